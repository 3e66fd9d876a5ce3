"""Offsets of partitions: where they begin and end, which offset a place is, and clamping an offset to them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from ottla.kernel.error import OttlaError
from ottla.operations.partition_view import replicas_of

if TYPE_CHECKING:
    from ottla.client import Admin, OffsetSpec, TopicPartition

Offsets = dict["TopicPartition", int]


@dataclass(frozen=True, slots=True)
class Moment:
    """The first record at or after this time in milliseconds; the end if no record is that late."""

    timestamp_ms: int


#: A place in partitions: the start or end of the log; an offset, or a number of records before the end (negative); a
#: time; or partition number -> offset, with the start for partitions that are not named.
Place: TypeAlias = "OffsetSpec | int | Moment | Mapping[int, int]"


class BeyondTheEnd(OttlaError):
    """An offset beyond the end of every partition."""


def partitions_of(ask: Admin, topic: str, only: Collection[int] = ()) -> list[TopicPartition]:
    """Return all partitions of a topic, or `only` those with these numbers. OttlaError: there is no such number."""
    return list(replicas_of(ask, topic, only))


def listed(ask: Admin, partitions: Iterable[TopicPartition], spec: OffsetSpec | int) -> Offsets:
    """Return the offset of each partition at a spec, or at a time in milliseconds (-1: no record is that late)."""
    partitions = list(partitions)
    results = ask.list_offsets(dict.fromkeys(partitions, spec)).check()
    return {partition: results[partition].offset for partition in partitions}


def bounds(ask: Admin, partitions: Iterable[TopicPartition]) -> tuple[Offsets, Offsets]:
    """(where each begins, where it ends)."""
    from ottla.client import OffsetSpec

    partitions = list(partitions)
    return listed(ask, partitions, OffsetSpec.EARLIEST), listed(ask, partitions, OffsetSpec.LATEST)


def stable(ask: Admin, ends: Offsets) -> Offsets:
    """Each end, or the last stable offset if that is lower, where read_committed waits for a transaction to end."""
    from ottla.client import OffsetSpec

    results = ask.list_offsets(dict.fromkeys(ends, OffsetSpec.LATEST), read_committed=True).check()
    return {tp: min(end, results[tp].offset) for tp, end in ends.items()}


def bounds_of_led(ask: Admin, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
    """Return (start, end) of each partition whose leader answers; the others are left out."""
    from ottla.client import OffsetSpec

    partitions = list(partitions)
    if not partitions:
        return {}
    ends = ask.list_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST)).succeeded
    starts = ask.list_offsets(dict.fromkeys(partitions, OffsetSpec.EARLIEST)).succeeded
    return {
        partition: (starts[partition].offset, ends[partition].offset)
        for partition in partitions
        if partition in starts and partition in ends
    }


def within(wanted: Mapping[TopicPartition, int], starts: Offsets, ends: Offsets) -> Offsets:
    """Clamp each offset to the start and end of its partition."""
    return {tp: max(starts[tp], min(ends[tp], offset)) for tp, offset in wanted.items()}


def at_time(
    ask: Admin, partitions: Iterable[TopicPartition], timestamp_ms: int
) -> tuple[Offsets, list[TopicPartition]]:
    """Return (the first offsets at or after a time, the partitions without such a record: there it is the end)."""
    from ottla.client import OffsetSpec

    offsets = listed(ask, partitions, timestamp_ms)
    late = [tp for tp, offset in offsets.items() if offset < 0]
    return offsets | listed(ask, late, OffsetSpec.LATEST), late


def offsets_at(ask: Admin, partitions: Iterable[TopicPartition], place: Place) -> Offsets:
    """Return the offset of each partition at a place, clamped to its start and end.

    BeyondTheEnd: an offset that no partition reaches is a mistake. OttlaError: a partition that does not exist.
    """
    from ottla.client import OffsetSpec

    partitions = list(partitions)
    if isinstance(place, OffsetSpec):
        return listed(ask, partitions, place)
    if isinstance(place, Moment):
        # A negative number has another meaning to a broker: -1 is the end of the log.
        return at_time(ask, partitions, max(0, place.timestamp_ms))[0]
    starts, ends = bounds(ask, partitions)
    if isinstance(place, Mapping):
        if missing := place.keys() - {partition.partition for partition in partitions}:
            text = ",".join(f"{number}:{offset}" for number, offset in place.items())
            raise OttlaError(f"{text}: there is no partition {min(missing)}")
        return within(
            {partition: place.get(partition.partition, starts[partition]) for partition in partitions}, starts, ends
        )
    if place > max(ends.values(), default=place):
        longest = max(ends.values())
        whose = f"the partition ({longest})" if len(ends) == 1 else f"every partition (the longest ends at {longest})"
        raise BeyondTheEnd(f"offset {place} is beyond the end of {whose}")
    return within(
        {partition: place if place >= 0 else ends[partition] + place for partition in partitions}, starts, ends
    )


@dataclass(frozen=True, slots=True)
class Trim:
    """A planned deletion of records: the new start of each partition, and how many records it deletes."""

    goals: Offsets
    records: int


def plan_trim(ask: Admin, topic: str, place: Place, only: Collection[int] = ()) -> Trim:
    """Plan the deletion of a topic's records before a place, or in `only` these partitions; `admin.delete_records(
    trim.goals)` does it.

    BeyondTheEnd, OttlaError: as in `offsets_at` and `partitions_of`.
    """
    partitions = partitions_of(ask, topic, only)
    starts, goals = bounds(ask, partitions)[0], offsets_at(ask, partitions, place)
    return Trim(goals, sum(goals[partition] - starts[partition] for partition in partitions))
