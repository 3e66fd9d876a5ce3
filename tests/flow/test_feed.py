"""Rows of two partitions go by their times, in turns, and not for longer than was asked."""

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.flow.task.feed import feed_two
from ottla.flow.task.rows import Rows

#: As times of records are: far above any number of rows.
BASE = 1_700_000_000_000


class Feeding:
    """A task with two partitions, which notes what it is fed."""

    def __init__(self, *times: list[int], schedules: bool = False) -> None:
        self.seen: list[Any] = []
        self.punctuated: list[int] = []
        punctuators = SimpleNamespace(schedules=schedules, run=lambda time, call: self.punctuated.append(time - BASE))
        self.task: Any = SimpleNamespace(time=SimpleNamespace(value=-1), by_stream_time=punctuators, call=None)
        self.sides = [self._side(name, some) for name, some in zip("ab", times, strict=True)]

    def _side(self, name: str, times: list[int]) -> tuple[Any, Rows]:
        def emit(key: str, value: int, timestamp: int, headers: Any) -> None:
            assert (self.task.row, self.task.timestamp, self.task.received) == (value, timestamp, None)
            assert self.task.rows is rows
            self.seen.append((key, timestamp - BASE, headers))

        count = len(times)
        headers: Any = [((name, b"h"),)] * count if name == "b" else None
        rows = Rows(
            name,
            0,
            range(count),
            [BASE + time for time in times],
            lambda: ([name] * count, list(range(count))),
            headers,
            lambda row: (None, None),
        )
        return SimpleNamespace(context=SimpleNamespace(emit=emit)), rows

    def run(self, limit: int, *, first_wins: bool = True) -> int:
        return feed_two(self.task, self.sides[0], self.sides[1], first_wins=first_wins, limit=limit)

    @property
    def order(self) -> str:
        return " ".join(f"{key}{time}" for key, time, _ in self.seen)


@pytest.mark.parametrize(
    ("ours", "theirs", "first_wins", "order"),
    [
        ([1, 3, 5], [2, 4, 6], True, "a1 b2 a3 b4 a5"),
        ([1, 1, 2], [1, 2, 2], True, "a1 a1 b1 a2"),
        ([1, 1, 2], [1, 2, 2], False, "b1 a1 a1 b2 b2"),
        ([1, 9, 2], [3, 3], True, "a1 b3 b3"),
        ([1], [2], True, "a1"),
    ],
)
def test_rows_of_two_partitions_go_by_time_until_one_has_no_more(
    ours: list[int], theirs: list[int], first_wins: bool, order: str
) -> None:
    feeding = Feeding(ours, theirs)
    assert feeding.run(1_000, first_wins=first_wins) == len(order.split())
    assert feeding.order == order
    assert feeding.task.time.value == BASE + max(time for _, time, _ in feeding.seen)
    assert [rows.at for _, rows in feeding.sides] == [order.count("a"), order.count("b")]
    assert {key: headers for key, _, headers in feeding.seen} == {
        key: (("b", b"h"),) if key == "b" else () for key in "ab" if key in order
    }


@pytest.mark.parametrize(("limit", "taken"), [(1, 1), (2, 2), (7, 7), (100, 39)])
def test_rows_in_turns_end_at_a_limit_so_that_columns_get_another_chance(limit: int, taken: int) -> None:
    feeding = Feeding(list(range(0, 40, 2)), list(range(1, 41, 2)))
    assert feeding.run(limit) == taken
    assert feeding.order == " ".join(f"{'ab'[time % 2]}{time}" for time in range(taken))


def test_a_limit_is_looked_at_when_the_other_partition_goes_next() -> None:
    feeding = Feeding([0, 1, 2, 5], [3, 4])
    assert feeding.run(1) == 3
    assert feeding.order == "a0 a1 a2"


def test_punctuators_are_called_after_each_row_with_the_newest_time() -> None:
    feeding = Feeding([3, 5], [4], schedules=True)
    feeding.run(1_000)
    assert (feeding.order, feeding.punctuated) == ("a3 b4", [3, 4])
    idle = Feeding([3, 5], [4])
    idle.run(1_000)
    assert idle.punctuated == []
