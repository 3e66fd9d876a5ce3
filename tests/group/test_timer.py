"""Deadlines: one a key, moved as often as heartbeats come."""

from hypothesis import given
from hypothesis import strategies as st

from ottla.group.timer import Alarm, TimerKey, Timers

KEYS = [TimerKey(Alarm.SESSION, "g", name) for name in "abc"]


def test_setting_a_deadline_again_moves_it() -> None:
    timers = Timers()
    timers.set(KEYS[0], 10)
    timers.set(KEYS[0], 30)
    assert timers.next_ms() == 30 and timers.take_due(20) is None
    timers.set(KEYS[0], 5)
    assert timers.take_due(20) == KEYS[0] and timers.next_ms() is None


def test_a_deadline_that_is_moved_for_ever_takes_no_room() -> None:
    timers = Timers()
    for now_ms in range(10_000):
        timers.set(KEYS[now_ms % 3], now_ms)
    assert len(timers._heap) < 200


@given(st.lists(st.tuples(st.sampled_from(KEYS), st.one_of(st.none(), st.integers(0, 50)))), st.integers(0, 60))
def test_what_is_due_comes_out_once_in_order(moves: list[tuple[TimerKey, int | None]], now_ms: int) -> None:
    timers, expected = Timers(), dict[TimerKey, int]()
    for key, deadline_ms in moves:
        if deadline_ms is None:
            timers.cancel(key)
            expected.pop(key, None)
        else:
            timers.set(key, deadline_ms)
            expected[key] = deadline_ms
    assert timers.next_ms() == min(expected.values(), default=None)
    taken = []
    while (key_taken := timers.take_due(now_ms)) is not None:
        taken.append(key_taken)
    due = [key for key, deadline_ms in expected.items() if deadline_ms <= now_ms]
    assert sorted(taken) == sorted(due)
    assert [expected[key] for key in taken] == sorted(expected[key] for key in due)
