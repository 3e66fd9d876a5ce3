"""Producers that nobody closes: what is told of them, in which process, and what the end of a program waits for."""

from __future__ import annotations

import asyncio
import gc
import os
import warnings
import weakref
from concurrent.futures import Future
from typing import Any

import pytest

from ottla.client import AsyncProducer
from ottla.client.producer import unclosed


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other test's producers."""
    for name, empty in (
        ("_open", weakref.WeakSet()),
        ("_threads", weakref.WeakKeyDictionary()),
        ("_closing", {}),
    ):
        monkeypatch.setattr(unclosed, name, empty)


async def abandoned(records: int) -> AsyncProducer:
    """A producer with so many records, and without a broker."""
    producer: AsyncProducer = AsyncProducer("127.0.0.1:1", linger_ms=60_000)
    producer._accumulator.set_partitions("t", 1, (0,))
    for _ in range(records):
        await producer.send("t", b"v", partition=0)
    return producer


def dropped(records: int) -> list[str]:
    """The warnings when such a producer is dropped after its loop has ended."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        asyncio.run(abandoned(records))
        gc.collect()
    return [str(each.message) for each in told if issubclass(each.category, ResourceWarning)]


@pytest.mark.parametrize(
    ("records", "logged"), [(0, ""), (1, "1 record was not delivered"), (1200, "1,200 records were not delivered")]
)
def test_a_dropped_producer_is_warned_of_and_its_records_are_counted(
    records: int, logged: str, caplog: pytest.LogCaptureFixture
) -> None:
    (warned,) = dropped(records)
    assert warned.startswith("an AsyncProducer was dropped before it was closed: use `async with`")
    lines = [each.getMessage() for each in caplog.records if "delivered" in each.getMessage()]
    assert lines == ([f"{logged} when the producer was dropped: close or flush the producer"] if logged else [])
    assert not unclosed._open


def test_a_closed_producer_is_not_mentioned(caplog: pytest.LogCaptureFixture) -> None:
    async def closed() -> None:
        producer = await abandoned(0)
        await producer.close()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(closed())
        gc.collect()
    unclosed._close_all()
    assert "delivered" not in caplog.text


def test_a_forked_child_says_nothing_of_its_parents_producers(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    producer = asyncio.run(abandoned(1))
    parent = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: parent + 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del producer
        gc.collect()
    assert "delivered" not in caplog.text


class Thread:
    """The loop thread of process `pid`, whose calls never end."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.calls: list[Future[None]] = []

    def submit(self, work: Any) -> Future[None]:
        work.close()
        self.calls.append(Future())
        return self.calls[-1]


def test_the_end_of_a_program_closes_each_producer_once_and_waits_for_those_under_way(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Not those of a parent process. Ctrl-C ends the wait, and what is left is counted."""
    own, parents = Thread(os.getpid()), Thread(os.getpid() + 1)
    awaited: list[Future[None]] = []

    def interrupted(closings: list[Future[None]], seconds: float) -> None:
        awaited.extend(closings)
        raise KeyboardInterrupt

    monkeypatch.setattr(unclosed, "wait", interrupted)
    producers = [asyncio.run(abandoned(1)) for _ in range(4)]
    for producer, thread in zip(producers, (own, own, own, parents), strict=True):
        unclosed._threads[producer] = thread  # type: ignore[assignment]
    under_way: Future[None] = Future()
    unclosed._closing[producers[0]] = under_way
    producers[1]._closed = True
    unclosed._close_all()
    assert awaited == [under_way, *own.calls] and len(own.calls) == 1 and not parents.calls
    assert "interrupted while the records of unclosed producers were being delivered" in caplog.text
    assert caplog.text.count("1 record was not delivered when the program ended") == 4
    for producer in producers:
        producer._unclosed.detach()
