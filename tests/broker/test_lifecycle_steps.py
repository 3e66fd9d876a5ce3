"""A broker's life step by step: the effects of each event, and when the machine wants to be woken after it."""

from __future__ import annotations

import pytest

from ottla.broker.controllers.lifecycle import (
    Begun,
    CaughtUp,
    Cordoned,
    DirectoryFailed,
    HeartbeatAnswered,
    HeartbeatFailed,
    Joined,
    Lifecycle,
    LifeEffect,
    LifeEvent,
    LifeSettings,
    LifeState,
    Recovered,
    Register,
    Registered,
    RegistrationFailed,
    SendHeartbeat,
    StopWanted,
    TimePassed,
    Unfenced,
)
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import Uuid
from ottla.wire.api.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse

#: Heartbeats every 100 ms, 1000 to register, 500 for a directory, 300 a session, 900 for a controlled shutdown.
SETTINGS = LifeSettings(100, 1000, 500, 300, 900)
ONE, TWO = Uuid(bytes([1] * 16)), Uuid(bytes([2] * 16))
_NAMES = {ONE: "1", TWO: "2"}
_LOST = KafkaError(ErrorCode.STALE_BROKER_EPOCH)
_LATE = KafkaError(ErrorCode.REQUEST_TIMED_OUT)


def _answered(words: str) -> HeartbeatAnswered:
    return HeartbeatAnswered(
        BrokerHeartbeatResponse(
            is_caught_up="caught" in words, is_fenced="serve" not in words, should_shut_down="stop" in words
        )
    )


_EVENTS: dict[str, LifeEvent] = {
    "begun": Begun(),
    "joined": Joined(5),
    "registered": Registered(70),
    "refused": RegistrationFailed(_LATE),
    "lost": HeartbeatFailed(_LOST),
    "late": HeartbeatFailed(_LATE),
    "recovered": Recovered(),
    "fails1": DirectoryFailed(ONE),
    "fails2": DirectoryFailed(TWO),
    "cordon1": Cordoned((ONE,)),
    "cordon": Cordoned(()),
    "stop": StopWanted(),
    "time": TimePassed(),
    **{words: _answered(words) for words in ("answer", "answer-caught", "answer-serve", "answer-stop")},
}


def _said(effect: LifeEffect) -> str:
    if isinstance(effect, Register):
        return "register"
    if isinstance(effect, SendHeartbeat):
        words = [f"beat{effect.epoch}", *(["fence"] if effect.want_fence else [])]
        words += ["stop"] if effect.want_shut_down else []
        words += [f"offline{''.join(_NAMES[each] for each in effect.offline)}"] if effect.offline else []
        if effect.cordoned is not None:
            words.append(f"cordoned{''.join(_NAMES[each] for each in effect.cordoned)}")
        return "+".join(words)
    named = {CaughtUp(): "caught-up", Unfenced(): "unfenced"}
    return named.get(effect) or "end"


_START = """
0 begun -> register @1000
0 registered -> beat70+fence @-
"""
_RUNNING = f"""{_START}
0 answer-caught -> caught-up @10
3 recovered -> beat70 @-
0 answer-serve -> unfenced @103
"""
#: Milliseconds later, the event, its effects, and the next deadline since the beginning.
LIVES = {
    "registration in time": """
0 begun -> register @1000
5 refused -> . @105
99 time -> . @105
1 time -> register @1000
0 refused -> . @205
100 time -> register @1000
794 time -> . @1000
1 time -> end @-
9 registered -> . @-
""",
    "until it has caught up": f"""{_START}
7 answer -> . @17
9 time -> . @17
1 time -> beat70+fence @-
0 cordon1 -> . @-
0 answer-caught -> caught-up+beat70+fence+cordoned1 @-
4 answer -> . @121
99 time -> . @121
1 time -> beat70+fence+cordoned1 @-
0 recovered -> . @-
0 answer -> beat70+cordoned1 @-
0 answer-serve -> unfenced @221
""",
    "an answer that fails takes its haste along": f"""{_RUNNING}
0 fails1 -> beat70+offline1 @503
0 fails2 -> . @503
50 late -> . @153
0 cordon -> beat70+offline12+cordoned @503
0 cordon -> . @503
7 answer-serve -> . @160
0 cordon1 -> beat70+offline12+cordoned1 @-
0 answer-serve -> . @160
""",
    "a directory that nobody hears of": f"""{_RUNNING}
0 fails1 -> beat70+offline1 @503
0 late -> . @103
499 time -> beat70+offline1 @503
1 time -> end @-
""",
    "a directory that was heard of": f"""{_RUNNING}
0 fails1 -> beat70+offline1 @503
10 answer-serve -> . @113
0 fails1 -> . @113
100 time -> beat70+offline1 @-
600 answer-serve -> . @813
""",
    "a directory that fails while another is told": f"""{_RUNNING}
0 fails1 -> beat70+offline1 @503
10 fails2 -> . @503
10 answer-serve -> beat70+offline12 @513
20 answer-serve -> . @143
""",
    "what is lost is registered again": f"""{_RUNNING}
100 time -> beat70 @-
0 lost -> . @203
0 fails1 -> register @603
0 refused -> . @203
100 time -> register @603
0 registered -> beat70+offline1 @603
0 lost -> . @303
0 late -> . @303
100 time -> register @603
""",
    "a stop before it runs": f"""{_START}
0 stop -> end @-
0 time -> . @-
""",
    "a controlled shutdown": f"""{_RUNNING}
0 stop -> beat70+stop @303
0 stop -> . @303
10 answer-serve -> . @63
0 cordon1 -> beat70+stop+cordoned1 @313
20 answer-serve -> . @133
100 time -> beat70+stop+cordoned1 @333
0 answer-stop -> end @-
""",
    "a stop while a heartbeat is under way": f"""{_RUNNING}
100 time -> beat70 @-
0 stop -> . @403
5 answer-serve -> beat70+stop @408
0 late -> . @208
100 time -> beat70+stop @408
199 time -> . @408
1 time -> end @-
""",
    "a shutdown has its time": f"""{_RUNNING}
0 stop -> beat70+stop @303
299 answer -> . @352
50 time -> beat70+stop @602
249 answer -> . @701
100 time -> beat70+stop @901
199 answer -> . @903
2 time -> . @903
1 time -> end @-
""",
    "the whole cluster": """
0 joined -> unfenced @100
0 recovered -> beat5 @-
0 answer-serve -> . @100
""",
}


@pytest.mark.parametrize("name", LIVES)
def test_a_life_step_by_step(name: str) -> None:
    machine, now_ms, told = Lifecycle(SETTINGS), 0, []
    for line in filter(None, LIVES[name].splitlines()):
        after_ms, event, *_ = line.split()
        now_ms += int(after_ms)
        effects = machine.step(_EVENTS[event], now_ms)
        deadline_ms = machine.deadline_ms()
        said = "+".join(map(_said, effects)) or "."
        told.append(f"{after_ms} {event} -> {said} @{'-' if deadline_ms is None else deadline_ms}")
    assert told == [line for line in LIVES[name].splitlines() if line]


def test_a_heartbeat_is_asked_with_all_that_the_machine_says() -> None:
    beat = SendHeartbeat(70, True, False, (ONE,), (TWO,))
    assert beat.request(3, 99) == BrokerHeartbeatRequest(
        broker_id=3,
        broker_epoch=70,
        current_metadata_offset=99,
        want_fence=True,
        want_shut_down=False,
        offline_log_dirs=[ONE],
        cordoned_log_dirs=[TWO],
    )
    other = SendHeartbeat(70, False, True, (), None).request(3, 99)
    assert (other.want_fence, other.want_shut_down) == (False, True)
    assert (other.offline_log_dirs, other.cordoned_log_dirs) == ([], None)
    assert SendHeartbeat(70, False, True, (), ()).request(3, 99).cordoned_log_dirs == []


def test_the_numbers_of_the_states_and_the_times_are_kafkas() -> None:
    assert {each.name: int(each) for each in LifeState} == {
        "NOT_RUNNING": 0,
        "STARTING": 1,
        "RECOVERY": 2,
        "RUNNING": 3,
        "PENDING_CONTROLLED_SHUTDOWN": 6,
        "SHUTTING_DOWN": 7,
    }
    usual = LifeSettings(1, 2, 3)
    assert (usual.session_timeout_ms, usual.shutdown_timeout_ms) == (9_000, 300_000)
