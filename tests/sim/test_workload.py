"""What the clients of a workload record of themselves."""

from __future__ import annotations

import asyncio
from itertools import count
from random import Random
from typing import Any

import pytest

from ottla.client import RecordMetadata
from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.sim import workload
from ottla.sim.checker import WorkloadLedger
from ottla.sim.history import OperationHistory


class _Producer:
    """A producer whose records are all acknowledged."""

    acknowledges = 100

    def __init__(self, *_: Any, **__: Any) -> None:
        self._sent = 0

    async def __aenter__(self) -> _Producer:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def send(self, topic: str, value: bytes, *, partition: int) -> asyncio.Future[RecordMetadata]:
        delivery = asyncio.get_running_loop().create_future()
        if self._sent < self.acknowledges:
            delivery.set_result(RecordMetadata(topic, partition, 7 + self._sent, 0))
        else:
            delivery.set_exception(KafkaError(ErrorCode.REQUEST_TIMED_OUT))
        self._sent += 1
        return delivery


class _HalfProducer(_Producer):
    """A producer whose first record is acknowledged, and no other."""

    acknowledges = 1


class _StubbornProducer(_Producer):
    """A producer that fails while it is closed."""

    async def __aexit__(self, *_: object) -> None:
        raise OttlaError("the last flush failed")


def _produced(monkeypatch: pytest.MonkeyPatch, kind: type[_Producer], turns: list[bool]) -> list[str]:
    """The history of a producer that goes on for these turns."""
    monkeypatch.setattr(workload, "AsyncProducer", kind)
    monkeypatch.setattr(workload, "_PAUSE_S", (0.0, 0.0))
    ledger = WorkloadLedger("t", history=OperationHistory(count().__next__))
    going = iter(turns)
    asyncio.run(workload.produce("p0", "", ledger, Random(1), lambda: next(going), (0.0, 0.0)))
    assert ledger.history is not None
    return ledger.history.text().splitlines()


def test_a_burst_that_fails_records_what_was_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, done = _produced(monkeypatch, _HalfProducer, [True, True, False])
    partition = begun.split(":send ")[2].split()[0]
    assert begun.split(":value ")[1].startswith(f"[[:send {partition} 0] [:send {partition} 1]")
    assert ":type :info" in done
    assert done.split(":value ")[1].startswith(f"[[:send {partition} [7 0]] [:send {partition} 1]")


def test_a_producer_that_is_replaced_between_two_bursts_crashes(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = _produced(monkeypatch, _StubbornProducer, [True, True, False, True, True, False, False])
    assert [line.split(":type ")[1].split(", :value")[0] for line in lines] == [
        f"{kind}, :process {process}, :f {what}"
        for process in (0, 1)
        for kind, what in ((":invoke", ":send"), (":ok", ":send"), (":invoke", ":crash"), (":info", ":crash"))
    ]
