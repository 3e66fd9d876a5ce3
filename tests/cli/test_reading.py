"""Which records `ottla consume` shows: those within the ends, the wanted ones, the last ones; and what is left over."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from ottla.cli import screen
from ottla.cli.records import read
from ottla.client import TopicPartition
from tests.cli.test_screen import shown as shown

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def record(offset: int, partition: int = 0, *, at: int = 0) -> Any:
    return SimpleNamespace(topic="t", partition=partition, offset=offset, timestamp=at)


def offsets(records: Sequence[Any]) -> list[int]:
    return [each.offset for each in records]


@pytest.mark.parametrize(
    ("wanted", "room", "ends", "chosen", "left"),
    [
        (None, None, None, [0, 1, 2, 3], []),
        (None, 2, None, [0, 1], [2, 3]),
        (None, None, {P0: 3}, [0, 1, 2], [3]),
        (None, 2, {P0: 3}, [0, 1], [2, 3]),
        (None, 9, {P0: 0}, [], [0, 1, 2, 3]),
        (None, None, {}, [], [0, 1, 2, 3]),
        ((1, 3), None, None, [1, 3], []),
        # What comes before the last wanted one is done with, wanted or not.
        ((1, 3), 1, None, [1], [2, 3]),
        ((1, 3), 2, None, [1, 3], []),
        ((1, 3), None, {P0: 3}, [1], [3]),
        ((1, 2), 1, {P0: 3}, [1], [2, 3]),
    ],
)
def test_records_are_chosen_and_the_rest_is_left_over(
    wanted: tuple[int, ...] | None, room: int | None, ends: Any, chosen: list[int], left: list[int]
) -> None:
    test = None if wanted is None else lambda each: each.offset in wanted
    found, over = read._split([record(number) for number in range(4)], test, room, ends)
    assert (offsets(found), offsets(over)) == (chosen, left)


class Log:
    """A consumer of two partitions, some of whose offsets have no record, ten records in a poll."""

    def __init__(self, *records: Any) -> None:
        self.records = records
        self.sought: list[dict[TopicPartition, int]] = []
        self.closed = 0

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed += 1

    def polls(self, _: object, begins: dict[TopicPartition, int], ends: Any) -> Iterator[list[Any]]:
        self.sought.append(dict(begins))
        found = [
            each
            for each in self.records
            if TopicPartition("t", each.partition) in begins
            and begins[TopicPartition("t", each.partition)] <= each.offset
        ]
        for at in range(0, len(found), 10):
            yield found[at : at + 10]


def last(log: Log, count: int, wanted: Any = None, floor: Any = None, ends: Any = None) -> list[tuple[int, int]]:
    consumer: Any = log
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(read, "polls", log.polls)
        found = read._last(consumer, floor or {P0: 0, P1: 0}, ends or {P0: 100, P1: 100}, wanted, count)
    return [(each.partition, each.offset) for each in found]


def test_the_last_records_are_those_of_all_partitions_by_time() -> None:
    log = Log(*(record(number, number % 2, at=number) for number in range(100)))
    assert last(log, 3) == [(1, 97), (0, 98), (1, 99)]
    assert log.sought[0] == {P0: 97, P1: 97}
    same = Log(record(5, 1, at=7), record(9, 0, at=7), record(8, 0, at=7), record(1, 0, at=6))
    assert last(same, 3, floor={P0: 0, P1: 0}, ends={P0: 10, P1: 6}) == [(0, 8), (0, 9), (1, 5)]


def test_the_last_records_are_sought_further_back_where_offsets_have_none() -> None:
    log = Log(record(20, at=1), record(30, at=2), record(60, 1, at=3), record(61, 1, at=4))
    assert last(log, 2) == [(1, 60), (1, 61)]
    assert [each[P0] for each in log.sought] == [98, 92, 68, 0]
    # Not before the first one that counts.
    log = Log(record(20, at=1), record(30, at=2))
    assert last(log, 2, floor={P0: 25, P1: 0}) == [(0, 30)]
    assert log.sought[-1] == {P0: 25, P1: 0}
    # With a condition, every record has to be looked at.
    log = Log(*(record(number, at=number) for number in range(100)))
    assert last(log, 2, lambda each: each.offset < 50) == [(0, 48), (0, 49)]
    assert log.sought == [{P0: 0, P1: 0}]
    # Records that come meanwhile are beyond the end.
    assert last(Log(*(record(number) for number in range(100))), 1, ends={P0: 50, P1: 0}) == [(0, 49)]


@pytest.fixture
def stdout(monkeypatch: pytest.MonkeyPatch) -> io.BytesIO:
    buffer = io.BytesIO()
    monkeypatch.setattr(read, "sys", SimpleNamespace(stdout=SimpleNamespace(buffer=buffer)))
    return buffer


def line(each: Any) -> str:
    return f"{each.offset}\n"


def test_what_is_shown_is_told_with_what_is_left_over(stdout: io.BytesIO) -> None:
    told: list[tuple[int, list[int], list[int]]] = []
    batches = [[record(0), record(1)], [], [record(2), record(3)], [record(4)]]
    count = read.show(
        iter(batches),
        line,
        None,
        3,
        None,
        "records",
        shown=lambda size, records, left: told.append((size, offsets(records), offsets(left))),
    )
    assert (count, stdout.getvalue()) == (3, b"0\n1\n2\n")
    assert told == [(4, [0, 1], []), (0, [], []), (2, [2, 3], [3])]


def test_reading_says_on_a_terminal_what_it_waits_for_and_how_many_came(
    shown: Callable[..., tuple[str, str]], stdout: io.BytesIO
) -> None:
    def reading(count: int, expected: int | None, **more: Any) -> Callable[[], object]:
        batches = [[record(number) for number in range(count)]]
        return lambda: read.show(iter(batches), line, None, None, expected, "new records", **more)

    wait = "waiting for new records; Ctrl-C to stop\n"
    assert shown(reading(2, None), 80) == ("", f"{wait}2 records\n")
    assert shown(reading(1, 1), 80) == ("", "1 record\n")
    assert shown(reading(1, None, quiet=True), 80) == ("", wait)
    assert shown(reading(1, None, already=1200), 80) == ("", f"{wait}1,201 records\n")
    assert shown(reading(1, None)) == ("", "")

    def interrupted() -> Iterator[list[Any]]:
        yield [record(7)]
        raise KeyboardInterrupt

    stdout.truncate(0)
    assert shown(lambda: read.show(interrupted(), line, None, None, None, "records")) == ("", "\n")
    assert stdout.getvalue().endswith(b"7\n")


def test_a_bar_beside_a_file_counts_the_records(monkeypatch: pytest.MonkeyPatch, stdout: io.BytesIO) -> None:
    said: list[Any] = []
    bar = SimpleNamespace(
        start=lambda: said.append("start"), stop=lambda: said.append("stop"), update=lambda _, **more: said.append(more)
    )
    bar.task_ids = [0]
    monkeypatch.setattr(screen, "into_file", lambda: True)

    def progress(*words: Any) -> Any:
        said.append(words)
        return bar

    monkeypatch.setattr(screen, "progress", progress)
    moments = iter([10.0, 12.0, 14.0])
    monkeypatch.setattr(read, "time", SimpleNamespace(monotonic=lambda: next(moments)))
    read.show(iter([[record(0), record(1)], [record(2)]]), line, None, None, 3, "records")
    assert said == [
        ("reading", 3),
        "start",
        {"completed": 2, "count": 2, "rate": "1/s"},
        {"completed": 3, "count": 3, "rate": "1/s"},
        "stop",
    ]


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> tuple[Log, list[tuple[Any, ...]]]:
    """The consumer of every read, and what `show` is given."""
    log = Log(*(record(number, at=number) for number in range(20)))
    calls: list[tuple[Any, ...]] = []

    def show(batches: Any, _: Any, wanted: Any, count: Any, expected: Any, what: str, **more: Any) -> int:
        calls.append((wanted, count, expected, what, more))
        return sum(map(len, batches))

    monkeypatch.setattr("ottla.client.Consumer", lambda _: log)
    monkeypatch.setattr(read, "settings_of", lambda _, settings: settings)
    monkeypatch.setattr(read, "polls", log.polls)
    monkeypatch.setattr(read, "show", show)
    return log, calls


@pytest.mark.parametrize(
    ("begins", "count", "follow", "expected"),
    [
        ({P0: 5, P1: 0}, None, False, 25),
        ({P0: 5, P1: 0}, 7, False, 7),
        ({P0: 5, P1: 0}, 70, False, 25),
        # A start beyond the end has nothing.
        ({P0: 25, P1: 9}, None, False, 1),
        ({P0: 5, P1: 0}, 7, True, None),
    ],
)
def test_a_range_knows_how_many_records_it_has_unless_it_follows(
    reads: tuple[Log, list[Any]], begins: Any, count: int | None, follow: bool, expected: int | None
) -> None:
    ends = {P0: 20, P1: 10}
    read.read_range({}, begins, ends, line, None, count, follow=follow, what="records")
    assert reads[1] == [(None, count, expected, "records", {"ends": None if follow else ends})]
    assert (reads[0].sought, reads[0].closed) == ([begins], 1)


def test_the_last_records_come_before_new_ones(reads: tuple[Log, list[Any]]) -> None:
    log, calls = reads
    ends = {P0: 20}
    read.read_tail({}, {P0: 0}, ends, line, None, 3, follow=False)
    assert calls == [(None, None, 3, "records", {"quiet": False})]
    calls.clear()
    log.sought.clear()
    read.read_tail({}, {P0: 0}, ends, line, None, 3, follow=True)
    assert calls == [
        (None, None, 3, "records", {"quiet": True}),
        (None, None, None, "new records", {"already": 3}),
    ]
    assert log.sought == [{P0: 17}, {P0: 20}]


def test_chosen_records_end_with_their_limit(reads: tuple[Log, list[Any]]) -> None:
    def chosen(wanted: Any, limit: int | None) -> list[int]:
        return offsets(list(read.chosen({}, {P0: 0}, {P0: 15}, wanted, limit)))

    assert chosen(None, None) == list(range(15))
    assert chosen(None, 3) == [0, 1, 2]
    assert chosen(None, 12) == list(range(12))
    assert chosen(lambda each: each.offset % 5 == 0, 3) == [0, 5, 10]
    assert chosen(lambda each: each.offset % 5 == 0, None) == [0, 5, 10]


# ---- groups


class Member:
    """A consumer, or a share consumer, that a test plays."""

    def __init__(self, *polls: list[Any], positions: dict[TopicPartition, int] | None = None) -> None:
        self.polls = iter(polls)
        self.at = positions or {}
        self.settings: Any = None
        self.subscribed: list[str] = []
        self.listener: Any = None
        self.acknowledged: list[tuple[int, str]] = []

    def __call__(self, settings: Any) -> Member:
        self.settings = settings
        return self

    def __enter__(self) -> Member:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def subscribe(self, topics: list[str], listener: Any = None) -> None:
        self.subscribed, self.listener = topics, listener

    def positions(self) -> dict[TopicPartition, int]:
        return self.at

    def poll(self, _: float) -> list[Any]:
        return next(self.polls)

    def acknowledge(self, record: Any, how: Any) -> None:
        self.acknowledged.append((record.offset, how.name))


def test_a_share_group_accepts_what_is_shown_and_releases_the_rest(
    monkeypatch: pytest.MonkeyPatch, stdout: io.BytesIO
) -> None:
    member = Member([record(0), record(1)], [], [record(2), record(3), record(4)])
    monkeypatch.setattr("ottla.client.ShareConsumer", member)
    read.read_share_group({"client.id": "c"}, ["t"], "g", False, line, 3)
    assert stdout.getvalue() == b"0\n1\n2\n"
    assert member.acknowledged == [
        (0, "ACCEPT"),
        (1, "ACCEPT"),
        (2, "ACCEPT"),
        (3, "RELEASE"),
        (4, "RELEASE"),
    ]
    assert member.subscribed == ["t"]
    about = {"group.id": "g", "share.acknowledgement.mode": "explicit", "allow.auto.create.topics": "false"}
    assert {name: member.settings[name] for name in about} == about


class Notes:
    """A ledger that only notes what it is told."""

    def __init__(self, _: Any) -> None:
        self.did: list[Any] = []
        NOTES.append(self)

    def note_written(self, size: int, positions: dict[TopicPartition, int]) -> None:
        self.did.append((size, dict(positions)))

    def commit_if_due(self) -> None:
        self.did.append("due")

    def commit(self) -> None:
        self.did.append("commit")

    def finish(self) -> None:
        self.did.append("finish")


NOTES: list[Notes] = []


def test_a_member_commits_what_is_shown_and_nothing_that_is_left_over(
    monkeypatch: pytest.MonkeyPatch, stdout: io.BytesIO
) -> None:
    NOTES.clear()
    member = Member(positions={P0: 9, P1: 4})
    batches = [[record(0), record(7, 1)], [record(1), record(2), record(3), record(8, 1)]]
    monkeypatch.setattr("ottla.client.Consumer", member)
    monkeypatch.setattr("ottla.cli.records.shown.Ledger", Notes)
    monkeypatch.setattr(read, "until_ends", lambda *_: iter(batches))
    read.read_as_member({"client.id": "c"}, ("t",), None, line, None, 3)
    assert stdout.getvalue() == b"0\n7\n1\n"
    (notes,) = NOTES
    # The first record that is left over of each partition is the next one.
    assert notes.did == [(4, {P0: 9, P1: 4}), "due", (2, {P0: 2, P1: 8}), "due", "finish"]
    assert (member.subscribed, member.settings["allow.auto.create.topics"]) == (["t"], "false")
    member.listener.lost([P0])
    assert notes.did[-1] == "finish"
    member.listener.revoked([P0])
    assert notes.did[-1] == "commit"


def test_a_member_that_fails_still_waits_for_its_reader(monkeypatch: pytest.MonkeyPatch, stdout: io.BytesIO) -> None:
    NOTES.clear()
    monkeypatch.setattr("ottla.client.Consumer", Member())
    monkeypatch.setattr("ottla.cli.records.shown.Ledger", Notes)

    monkeypatch.setattr(read, "until_ends", Mock(side_effect=BrokenPipeError))
    with pytest.raises(BrokenPipeError):
        read.read_as_member({}, ("t",), None, line, None, None)
    assert NOTES[0].did == ["finish"]
