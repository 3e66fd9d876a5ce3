"""What `ottla consume -g` commits: the records that the reader of its output has taken, and no others."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, call

import pytest

from ottla.cli.records import shown
from ottla.cli.records.shown import Ledger
from ottla.client import TopicPartition

A, B = TopicPartition("a", 0), TopicPartition("b", 1)


class Clock:
    """Seconds that pass when a test says so, or while the tool sleeps."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []
        self.at_sleep: dict[int, Any] = {}

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        assert len(self.slept) < 100, "it waits forever"
        self.now += seconds
        self.at_sleep.get(len(self.slept), lambda: None)()


class Pipe:
    """The pipe that is stdout, and its reader."""

    def __init__(self) -> None:
        self.reader, writer = os.pipe()
        self.stdout = os.fdopen(writer, "wb")

    def write(self, size: int) -> int:
        self.stdout.write(b"x" * size)
        self.stdout.flush()
        return size

    def read(self, size: int) -> None:
        assert len(os.read(self.reader, size)) == size

    def close_reader(self) -> None:
        os.close(self.reader)
        self.reader = -1


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(shown, "time", clock)
    return clock


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pipe]:
    pipe = Pipe()
    monkeypatch.setattr(shown, "sys", SimpleNamespace(stdout=pipe.stdout))
    yield pipe
    pipe.stdout.close()
    if pipe.reader >= 0:
        pipe.close_reader()


def member(*assigned: TopicPartition) -> Mock:
    return Mock(assignment=Mock(return_value=set(assigned)))


def test_what_is_written_to_a_file_is_committed_once_and_only_while_it_is_assigned(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryFile() as file:
        monkeypatch.setattr(shown, "sys", SimpleNamespace(stdout=file))
        consumer = member(A)
        ledger = Ledger(consumer)
        ledger.note_written(3, {A: 5, B: 7})
        ledger.commit()
        ledger.commit()
        assert consumer.commit.call_args_list == [call({A: 5})]
        consumer.assignment.return_value = {A, B}
        ledger.note_written(3, {A: 6})
        ledger.finish()
        assert consumer.commit.call_args_list[1:] == [call({A: 6, B: 7})]
        assert clock.slept == []


def test_seen_records_are_committed_once_a_second(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryFile() as file:
        monkeypatch.setattr(shown, "sys", SimpleNamespace(stdout=file))
        consumer = member(A)
        ledger = Ledger(consumer)
        for number, (at, commits) in enumerate(
            [(100.9, 0), (101.0, 1), (101.9, 1), (102.1, 2), (103.0, 2), (103.1, 3)]
        ):
            clock.now = at
            ledger.note_written(1, {A: number})
            ledger.commit_if_due()
            assert consumer.commit.call_count == commits, at


def test_bytes_in_the_pipe_are_not_seen_until_their_reader_has_taken_them_for_a_moment(
    clock: Clock, pipe: Pipe
) -> None:
    consumer = member(A)
    ledger = Ledger(consumer)
    ledger.note_written(pipe.write(10), {A: 1})
    ledger.note_written(pipe.write(10), {A: 2})
    ledger.note_written(pipe.write(10), {A: 3})
    clock.now = 102.0
    ledger.commit_if_due()
    pipe.read(29)
    clock.now = 103.5
    ledger.commit_if_due()
    assert not consumer.commit.called
    clock.now = 104.0
    ledger.commit_if_due()
    # Both are taken; a reader that goes on being there has read them.
    clock.now = 105.0
    ledger.commit_if_due()
    assert consumer.commit.call_args_list == [call({A: 2})]
    pipe.read(1)
    ledger.commit_if_due()
    clock.now = 105.099
    ledger.commit_if_due()
    ledger.commit()
    assert consumer.commit.call_count == 1, "the last of them is not old enough"
    clock.now = 105.1 + 1e-9
    ledger.commit_if_due()
    ledger.commit()
    assert consumer.commit.call_args_list[1:] == [call({A: 3})]


def test_the_end_waits_for_a_slow_reader(clock: Clock, pipe: Pipe) -> None:
    consumer = member(A)
    ledger = Ledger(consumer)
    ledger.note_written(pipe.write(10), {A: 1})
    ledger.note_written(pipe.write(10), {A: 2})
    clock.at_sleep = {3: lambda: pipe.read(10), 20: lambda: pipe.read(10)}
    ledger.finish()
    assert consumer.commit.call_args_list == [call({A: 2})]
    assert 20 < len(clock.slept) < 30
    assert set(clock.slept) == {0.025}


def test_what_a_reader_took_just_before_it_went_away_is_not_seen(clock: Clock, pipe: Pipe) -> None:
    consumer = member(A)
    ledger = Ledger(consumer)
    ledger.note_written(pipe.write(10), {A: 1})
    pipe.read(10)
    ledger.commit_if_due()
    clock.now += 0.2
    ledger.note_written(pipe.write(10), {A: 2})
    ledger.commit_if_due()
    pipe.read(10)
    clock.at_sleep = {2: pipe.close_reader}
    ledger.finish()
    assert consumer.commit.call_args_list == [call({A: 1})]
    assert len(clock.slept) == 2


def test_a_reader_that_went_away_early_leaves_nothing_to_commit(clock: Clock, pipe: Pipe) -> None:
    consumer = member(A)
    ledger = Ledger(consumer)
    ledger.note_written(pipe.write(10), {A: 1})
    pipe.read(10)
    pipe.close_reader()
    clock.now += 5
    ledger.commit_if_due()
    ledger.finish()
    assert (consumer.commit.called, clock.slept) == (False, [])


def test_a_stdout_that_tells_no_unread_bytes_has_none(monkeypatch: pytest.MonkeyPatch, pipe: Pipe) -> None:
    pipe.write(7)
    assert shown._unread() == 7
    monkeypatch.setattr(shown, "fcntl", SimpleNamespace(ioctl=Mock(side_effect=OSError)))
    assert shown._unread() == 0
