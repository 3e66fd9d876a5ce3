"""A broker's life: the table of its transitions, and random lives that keep what must hold."""

from __future__ import annotations

from random import Random

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
    LifeEnded,
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
from ottla.kernel.ids import Uuid, uuid_text
from ottla.wire.api.broker_heartbeat import BrokerHeartbeatResponse

INTERVAL = 2_000
SETTINGS = LifeSettings(INTERVAL, 60_000, 30_000, 9_000, 300_000)
ONE, TWO = Uuid(bytes([1] * 16)), Uuid(bytes([2] * 16))


class Life:
    """A machine and a clock."""

    def __init__(self) -> None:
        self.machine = Lifecycle(SETTINGS)
        self.now_ms = 1_000

    def tell(self, event: LifeEvent, after_ms: int = 0) -> list[LifeEffect]:
        self.now_ms += after_ms
        return self.machine.step(event, self.now_ms)

    def answer(self, *, caught_up: bool = True, fenced: bool = True, stop: bool = False) -> list[LifeEffect]:
        response = BrokerHeartbeatResponse(is_caught_up=caught_up, is_fenced=fenced, should_shut_down=stop)
        return self.tell(HeartbeatAnswered(response))

    def wait(self) -> list[LifeEffect]:
        """Until its next deadline."""
        deadline_ms = self.machine.deadline_ms()
        assert deadline_ms is not None
        self.now_ms = max(self.now_ms, deadline_ms)
        return self.tell(TimePassed())

    def begin(self) -> Life:
        assert self.tell(Begun()) == [Register()]
        assert self.tell(Registered(70)) == [beat()]
        return self

    def run(self) -> Life:
        self.begin()
        assert self.answer() == [CaughtUp()]
        assert self.tell(Recovered()) == [beat(fence=False)]
        assert self.answer(fenced=False) == [Unfenced()]
        assert self.machine.state == LifeState.RUNNING
        return self


def beat(epoch: int = 70, *, fence: bool = True, stop: bool = False, offline: tuple[Uuid, ...] = ()) -> SendHeartbeat:
    return SendHeartbeat(epoch, fence, stop, offline, None)


def refused(code: ErrorCode) -> KafkaError:
    return KafkaError(code)


def test_a_life_from_start_to_end() -> None:
    life = Life().run()
    assert life.wait() == [beat(fence=False)]
    assert life.answer(fenced=False) == []
    assert life.tell(StopWanted()) == [beat(fence=False, stop=True)]
    assert life.answer(fenced=False) == []
    assert life.machine.deadline_ms() == life.now_ms + 50
    assert life.wait() == [beat(fence=False, stop=True)]
    assert life.answer(fenced=False) == []
    assert life.machine.deadline_ms() == life.now_ms + INTERVAL
    assert life.wait() == [beat(fence=False, stop=True)]
    assert life.answer(stop=True) == [LifeEnded("")]
    assert life.machine.deadline_ms() is None


def test_a_node_that_is_the_cluster_serves_at_once() -> None:
    life = Life()
    assert life.tell(Joined(5)) == [Unfenced()]
    assert (life.machine.state, life.machine.epoch) == (LifeState.RUNNING, 5)
    assert life.machine.deadline_ms() == life.now_ms + INTERVAL
    assert life.wait() == [beat(5, fence=False)]
    assert life.answer(fenced=False) == []
    assert life.tell(StopWanted()) == [beat(5, fence=False, stop=True)]


def test_it_asks_again_soon_until_it_has_caught_up() -> None:
    life = Life().begin()
    for _ in range(3):
        assert life.answer(caught_up=False) == []
        assert life.machine.deadline_ms() == life.now_ms + 10
        assert life.wait() == [beat()]
    assert life.answer() == [CaughtUp()]
    # It is fenced as long as it recovers.
    assert life.wait() == [beat()]
    assert life.answer() == []
    assert life.machine.state == LifeState.RECOVERY


def test_a_refused_registration_is_tried_until_its_time_is_over() -> None:
    life = Life()
    assert life.tell(Begun()) == [Register()]
    began_ms = life.now_ms
    while True:
        # Another incarnation's session is alive, as far as the controller knows.
        assert life.tell(RegistrationFailed(refused(ErrorCode.DUPLICATE_BROKER_REGISTRATION))) == []
        effects = life.wait()
        if effects != [Register()]:
            break
    assert life.now_ms - began_ms == 60_000
    (ended,) = effects
    assert isinstance(ended, LifeEnded) and "registration" in ended.failure


@pytest.mark.parametrize("code", [ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED])
def test_a_registration_that_the_controller_does_not_know_is_made_again(code: ErrorCode) -> None:
    life = Life().run()
    assert life.wait() == [beat(fence=False)]
    assert life.tell(HeartbeatFailed(refused(code))) == []
    assert life.machine.deadline_ms() == life.now_ms + INTERVAL
    assert life.wait() == [Register()]
    # No limit this time: the broker serves.
    for _ in range(100):
        assert life.tell(RegistrationFailed(refused(ErrorCode.REQUEST_TIMED_OUT))) == []
        assert life.wait() == [Register()]
    assert life.tell(Registered(99)) == [beat(99, fence=False)]
    assert life.answer(fenced=False) == []
    assert life.machine.state == LifeState.RUNNING


def test_another_failure_is_another_heartbeat() -> None:
    life = Life().run()
    assert life.wait() == [beat(fence=False)]
    assert life.tell(HeartbeatFailed(refused(ErrorCode.REQUEST_TIMED_OUT))) == []
    assert life.wait() == [beat(fence=False)]


def test_a_failed_directory_is_told_at_once_and_again_until_it_was_heard() -> None:
    life = Life().run()
    assert life.tell(DirectoryFailed(ONE), 100) == [beat(fence=False, offline=(ONE,))]
    assert life.tell(DirectoryFailed(TWO), 5) == []
    assert life.tell(DirectoryFailed(ONE)) == []
    # It follows the answer.
    assert life.answer(fenced=False) == [beat(fence=False, offline=(ONE, TWO))]
    assert life.tell(HeartbeatFailed(refused(ErrorCode.REQUEST_TIMED_OUT))) == []
    assert life.wait() == [beat(fence=False, offline=(ONE, TWO))]
    assert life.answer(fenced=False) == []
    assert life.wait() == [beat(fence=False, offline=(ONE, TWO))]


def test_a_failed_directory_that_no_controller_hears_of_ends_the_node() -> None:
    life = Life().run()
    assert life.tell(DirectoryFailed(ONE)) == [beat(fence=False, offline=(ONE,))]
    began_ms = life.now_ms
    effects: list[LifeEffect] = []
    while not effects or isinstance(effects[0], SendHeartbeat):
        assert life.tell(HeartbeatFailed(refused(ErrorCode.REQUEST_TIMED_OUT))) == []
        effects = life.wait()
    assert life.now_ms - began_ms == 30_000
    (ended,) = effects
    assert isinstance(ended, LifeEnded) and uuid_text(ONE) in ended.failure


def test_cordoned_directories_are_told_once_it_has_caught_up() -> None:
    life = Life().begin()
    assert life.tell(Cordoned((ONE,))) == []
    assert life.answer() == [CaughtUp(), SendHeartbeat(70, True, False, (), (ONE,))]
    assert life.tell(Cordoned((ONE,))) == []


def test_a_stop_before_it_runs_ends_at_once() -> None:
    assert Life().tell(StopWanted()) == [LifeEnded("")]
    assert Life().begin().tell(StopWanted()) == [LifeEnded("")]


def test_a_controlled_shutdown_has_its_time() -> None:
    life = Life().run()
    life.tell(StopWanted())
    assert life.tell(StopWanted()) == []
    began_ms = life.now_ms
    effects: list[LifeEffect] = []
    while not effects or isinstance(effects[0], SendHeartbeat):
        life.answer(fenced=False)
        effects = life.wait()
    assert life.now_ms - began_ms == 300_000
    assert effects == [LifeEnded("")]


@pytest.mark.parametrize("seed", range(200))
def test_random_lives_keep_what_must_hold(seed: int) -> None:
    """One request at a time, states go forward only, nothing happens twice, and a broker that lives is heard of."""
    rng, life = Random(seed), Life()
    machine = life.machine
    asking: LifeEffect | None = None
    once: set[type[LifeEffect]] = set()
    beat_ms = life.now_ms
    failed: set[Uuid] = set()

    def tell(event: LifeEvent) -> None:
        nonlocal asking, beat_ms
        before = machine.state
        effects = life.tell(event)
        assert machine.state >= before
        if before == LifeState.SHUTTING_DOWN:
            assert not effects
        for effect in effects:
            assert LifeEnded not in once, "something after the end"
            if isinstance(effect, Register | SendHeartbeat):
                assert asking is None, "two requests at a time"
                asking, beat_ms = effect, life.now_ms
                if isinstance(effect, SendHeartbeat):
                    assert machine.registered and effect.epoch == machine.epoch >= 0
                    assert set(effect.offline) == failed
            else:
                assert type(effect) not in once, "twice"
                once.add(type(effect))
        assert (LifeEnded in once) == (machine.state == LifeState.SHUTTING_DOWN)
        assert (Unfenced in once) <= (CaughtUp in once)

    tell(Begun())
    for _ in range(rng.randrange(5, 120)):
        # What is asked is answered within a heartbeat's interval: the channel sees to it.
        deadline_ms = machine.deadline_ms()
        if asking is not None and rng.random() < 0.6:
            asked, asking = asking, None
            life.now_ms += rng.randrange(INTERVAL)
            code = rng.choice(
                (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.STALE_BROKER_EPOCH, ErrorCode.UNKNOWN_SERVER_ERROR)
            )
            if isinstance(asked, Register):
                tell(Registered(rng.randrange(1000)) if rng.random() < 0.7 else RegistrationFailed(KafkaError(code)))
            elif rng.random() < 0.8:
                caught_up, fenced, stop = (rng.random() < 0.7 for _ in range(3))
                response = BrokerHeartbeatResponse(is_caught_up=caught_up, is_fenced=fenced, should_shut_down=stop)
                tell(HeartbeatAnswered(response))
            else:
                tell(HeartbeatFailed(KafkaError(code)))
        elif rng.random() < 0.5 and deadline_ms is not None:
            life.now_ms = max(life.now_ms, deadline_ms)
            tell(TimePassed())
        else:
            directory = rng.choice((ONE, TWO))
            events: list[LifeEvent] = [Recovered(), TimePassed(), Cordoned((directory,)), DirectoryFailed(directory)]
            event = StopWanted() if rng.random() < 0.03 else rng.choice(events)
            if isinstance(event, DirectoryFailed) and machine.state < LifeState.SHUTTING_DOWN:
                failed.add(directory)
            tell(event)
        if machine.state < LifeState.SHUTTING_DOWN:
            # It always waits for an answer or for a time that is not far.
            assert asking is not None or machine.deadline_ms() is not None
            if asking is None:
                assert (machine.deadline_ms() or 0) <= life.now_ms + INTERVAL


def test_a_controlled_shutdown_without_a_controller_ends_when_the_session_is_over() -> None:
    life = Life().run()
    life.tell(StopWanted())
    life.answer(fenced=False)
    began_ms = life.now_ms
    effects: list[LifeEffect] = []
    while not effects or isinstance(effects[0], SendHeartbeat):
        life.tell(HeartbeatFailed(refused(ErrorCode.REQUEST_TIMED_OUT)))
        effects = life.wait()
    assert life.now_ms - began_ms == 9_000
    assert effects == [LifeEnded("")]


def test_a_directory_that_fails_again_gets_no_more_time() -> None:
    life = Life().run()
    assert life.tell(DirectoryFailed(ONE)) == [beat(fence=False, offline=(ONE,))]
    began_ms = life.now_ms
    effects: list[LifeEffect] = []
    while life.now_ms - began_ms < 30_000:
        life.tell(DirectoryFailed(ONE), 1)
        life.tell(HeartbeatFailed(refused(ErrorCode.REQUEST_TIMED_OUT)))
        effects = life.wait()
    assert isinstance(effects[0], LifeEnded)
