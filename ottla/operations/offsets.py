"""Offsets of partitions: where they begin and end, what stands at a place, and keeping a wish within them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from ottla.kernel.error import OttlaError

if TYPE_CHECKING:
    from ottla.client import Admin, GroupType, OffsetSpec, TopicPartition

Offsets = dict["TopicPartition", int]


@dataclass(frozen=True, slots=True)
class Moment:
    """The first record at or after this time in milliseconds; the end where no record is so late."""

    timestamp_ms: int


#: A place in partitions: an end of the log; an offset, or so many records before the end (negative); a time; or an
#: offset by number of the partition, the start in those that are not named.
Place: TypeAlias = "OffsetSpec | int | Moment | Mapping[int, int]"


class BeyondTheEnd(OttlaError):
    """An offset behind the end of every partition."""


def partitions_of(ask: Admin, topic: str) -> list[TopicPartition]:
    """All partitions of a topic."""
    from ottla.client import TopicPartition

    return [TopicPartition(topic, each.partition) for each in ask.describe_topic(topic).partitions]


def listed(ask: Admin, partitions: Iterable[TopicPartition], spec: OffsetSpec | int) -> Offsets:
    """Where each of them is: at an end, or at a time in milliseconds (-1: no record is so late)."""
    partitions = list(partitions)
    found = ask.list_offsets(dict.fromkeys(partitions, spec)).check()
    return {each: found[each].offset for each in partitions}


def bounds(ask: Admin, partitions: Iterable[TopicPartition]) -> tuple[Offsets, Offsets]:
    """(where each begins, where it ends)."""
    from ottla.client import OffsetSpec

    partitions = list(partitions)
    return listed(ask, partitions, OffsetSpec.EARLIEST), listed(ask, partitions, OffsetSpec.LATEST)


def within(wanted: Mapping[TopicPartition, int], starts: Offsets, ends: Offsets) -> Offsets:
    """Each offset, brought into what its partition holds."""
    return {each: max(starts[each], min(ends[each], offset)) for each, offset in wanted.items()}


def at_time(
    ask: Admin, partitions: Iterable[TopicPartition], timestamp_ms: int
) -> tuple[Offsets, list[TopicPartition]]:
    """(the first offsets at or after a time, the partitions where nothing is so late: there it is the end)."""
    from ottla.client import OffsetSpec

    found = listed(ask, partitions, timestamp_ms)
    late = [each for each, offset in found.items() if offset < 0]
    return found | listed(ask, late, OffsetSpec.LATEST), late


def offsets_at(ask: Admin, partitions: Iterable[TopicPartition], place: Place) -> Offsets:
    """The offset of each partition at a place, within what it holds.

    BeyondTheEnd: an offset that no partition reaches is a mistake. OttlaError: a partition that does not exist.
    """
    from ottla.client import OffsetSpec

    partitions = list(partitions)
    if isinstance(place, OffsetSpec):
        return listed(ask, partitions, place)
    if isinstance(place, Moment):
        return at_time(ask, partitions, place.timestamp_ms)[0]
    starts, ends = bounds(ask, partitions)
    if isinstance(place, Mapping):
        if missing := place.keys() - {each.partition for each in partitions}:
            text = ",".join(f"{number}:{offset}" for number, offset in place.items())
            raise OttlaError(f"{text}: there is no partition {min(missing)}")
        return within({each: place.get(each.partition, starts[each]) for each in partitions}, starts, ends)
    if place > max(ends.values(), default=place):
        longest = max(ends.values())
        whose = f"the partition ({longest})" if len(ends) == 1 else f"every partition (the longest ends at {longest})"
        raise BeyondTheEnd(f"offset {place} is beyond the end of {whose}")
    return within({each: place if place >= 0 else ends[each] + place for each in partitions}, starts, ends)


# ---- of groups


def committed(ask: Admin, group: str, type_: GroupType) -> Offsets:
    """Where a group goes on in each partition that it has read; where a share group begins."""
    from ottla.client import GroupType

    if type_ is GroupType.SHARE:
        return {each: one.start_offset for each, one in ask.list_share_group_offsets(group).succeeded.items()}
    return {each: one.offset for each, one in ask.list_group_offsets(group).items()}


def commit(ask: Admin, group: str, type_: GroupType, offsets: Offsets) -> None:
    """Set where a group without members goes on."""
    from ottla.client import GroupType

    alter = ask.alter_share_group_offsets if type_ is GroupType.SHARE else ask.alter_group_offsets
    alter(group, offsets).check()


def committed_or_end(ask: Admin, group: str, partitions: Iterable[TopicPartition]) -> Offsets:
    """What a group has committed in each partition; the end where it has committed nothing."""
    from ottla.client import OffsetSpec

    partitions, known = list(partitions), ask.list_group_offsets(group)
    ends = listed(ask, [each for each in partitions if each not in known], OffsetSpec.LATEST)
    return {each: known[each].offset if each in known else ends[each] for each in partitions}
