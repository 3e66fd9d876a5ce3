"""Checks the clients' observations against the final logs. Pure: it knows neither nodes nor time.

A `WorkloadLedger` records what the clients of one cluster were told while faults happened; `check` compares it with the
final records.

Promises:
- An acknowledged record exists once, at the acknowledged offset.
- A record of an idempotent producer exists at most once, and a producer's records are in the order of sending.
- A consumer saw at each offset the final record: no two values are ever served at one offset.
- A consumer reads a partition forwards, and skips no record.
- A confirmed commit never goes back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ottla.sim.history import OperationHistory

Partition = tuple[str, int]


@dataclass(slots=True)
class SentRecord:
    """A record that was passed to a producer. `offset` is None until it is acknowledged."""

    producer: str
    number: int
    value: bytes
    partition: int | None = None
    offset: int | None = None


@dataclass(slots=True)
class WorkloadLedger:
    """What the clients of one cluster were told."""

    topic: str
    sent: list[SentRecord] = field(default_factory=list)
    #: Consumer -> (partition, offset, value) in the order of the polls; None where the consumer started over.
    seen: dict[str, list[tuple[int, int, bytes] | None]] = field(default_factory=dict)
    #: (group, partition) -> the highest position whose commit was confirmed.
    committed: dict[tuple[str, int], int] = field(default_factory=dict)
    #: Every operation in order; None if not recorded.
    history: OperationHistory | None = None

    @property
    def acknowledged(self) -> int:
        return sum(each.offset is not None for each in self.sent)


class Broken(AssertionError):
    """A broken promise; the text names it and the record."""


def check(
    ledger: WorkloadLedger,
    logs: Mapping[int, Sequence[tuple[int, bytes]]],
    committed: Mapping[tuple[str, int], int | None],
) -> None:
    """Compare a ledger with the final logs (partition -> (offset, value)) and commits. Broken if they disagree."""
    _acknowledged(ledger, logs)
    _once_and_in_order(ledger, logs)
    for name, seen in ledger.seen.items():
        _seen(name, ledger, seen, logs)
    check_commits(ledger, committed)


def check_commits(ledger: WorkloadLedger, committed: Mapping[tuple[str, int], int | None]) -> None:
    """Compare the confirmed commits of a ledger with the final ones."""
    for (group, partition), position in ledger.committed.items():
        now = committed.get((group, partition))
        if now is None or now < position:
            raise Broken(f"the commit of {group} for partition {partition} went back from {position} to {now}")


def _acknowledged(ledger: WorkloadLedger, logs: Mapping[int, Sequence[tuple[int, bytes]]]) -> None:
    values = {index: dict(log) for index, log in logs.items()}
    for each in ledger.sent:
        if each.offset is None or each.partition is None:
            continue
        found = values[each.partition].get(each.offset)
        if found != each.value:
            where = f"{ledger.topic}-{each.partition} at {each.offset}"
            raise Broken(f"{each.value!r} was acknowledged in {where}, where {found!r} is")


def _once_and_in_order(ledger: WorkloadLedger, logs: Mapping[int, Sequence[tuple[int, bytes]]]) -> None:
    numbers = {each.value: (each.producer, each.number) for each in ledger.sent}
    places: dict[bytes, tuple[int, int]] = {}
    for index, log in logs.items():
        last: dict[str, int] = {}
        offset_before = -1
        for offset, value in log:
            if offset <= offset_before:
                raise Broken(f"{ledger.topic}-{index} has offset {offset} behind {offset_before}")
            offset_before = offset
            if value in places:
                raise Broken(f"{value!r} is in {ledger.topic} twice: at {places[value]} and {(index, offset)}")
            places[value] = (index, offset)
            if value not in numbers:
                raise Broken(f"{value!r} in {ledger.topic}-{index} at {offset} was never sent")
            producer, number = numbers[value]
            if number < last.get(producer, -1):
                raise Broken(f"{ledger.topic}-{index}: record {number} of {producer} is behind {last[producer]}")
            last[producer] = number


def _seen(
    name: str,
    ledger: WorkloadLedger,
    seen: Sequence[tuple[int, int, bytes] | None],
    logs: Mapping[int, Sequence[tuple[int, bytes]]],
) -> None:
    values = {index: dict(log) for index, log in logs.items()}
    position: dict[int, int] = {}
    for entry in seen:
        if entry is None:
            position.clear()
            continue
        index, offset, value = entry
        if values[index].get(offset) != value:
            there = values[index].get(offset)
            raise Broken(f"{name} was served {value!r} in {ledger.topic}-{index} at {offset}, where {there!r} is")
        before = position.get(index)
        if before is not None:
            if offset < before:
                raise Broken(f"{name} was served {ledger.topic}-{index} at {offset} behind {before - 1}")
            skipped = next((there for there in range(before, offset) if there in values[index]), None)
            if skipped is not None:
                raise Broken(f"{name} was not served {ledger.topic}-{index} at {skipped}")
        position[index] = offset + 1


@dataclass(slots=True)
class CommittedRecords:
    """Every record ever below a replica's high watermark: (partition, offset) -> (value, the first replica seen)."""

    seen: dict[tuple[int, int], tuple[bytes, str]] = field(default_factory=dict)
    #: Partition -> the highest committed offset plus one.
    ends: dict[int, int] = field(default_factory=dict)

    def add_committed(self, replica: str, partition: int, records: Sequence[tuple[int, bytes]]) -> None:
        """Record what a replica has below its high watermark. Broken if another replica had a different record."""
        for offset, value in records:
            before, where = self.seen.setdefault((partition, offset), (value, replica))
            if before != value:
                raise Broken(
                    f"partition {partition} at {offset}: {replica} has committed {value!r}, and {where} {before!r}"
                )
            self.ends[partition] = max(self.ends.get(partition, 0), offset + 1)

    def check_in_sync(
        self, replica: str, partition: int, records: Sequence[tuple[int, bytes]], end_offset: int
    ) -> None:
        """Check that an electable replica holds everything committed below `end_offset`. Broken if not."""
        there = dict(records)
        for offset in range(min(end_offset, self.ends.get(partition, 0))):
            known = self.seen.get((partition, offset))
            if known is not None and there.get(offset) != known[0]:
                raise Broken(
                    f"{replica} is in sync and has {there.get(offset)!r} in partition {partition} at {offset}, "
                    f"where {known[1]} has committed {known[0]!r}"
                )
