"""Committed offsets of groups: read them, set them, delete them.

    reset = plan_reset(admin, "billing", OffsetSpec.EARLIEST)
    check_empty(admin, "billing")
    reset.commit(admin)

Rules:
- A plan changes nothing, so it can be shown first. Only a group without members takes offsets: members would not
  notice the change.
- A share group has one offset per partition, where it begins; a plan for it looks like any other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.kernel.error import OttlaError
from ottla.operations.group_view import look, type_of
from ottla.operations.offsets import Offsets, Place, bounds, listed, offsets_at, partitions_of, within

if TYPE_CHECKING:
    from ottla.client import Admin, GroupType, TopicPartition


def committed(ask: Admin, group: str, type_: GroupType) -> Offsets:
    """Return the committed offset of each partition that the group has read; for a share group, where it begins."""
    from ottla.client import GroupType

    if type_ is GroupType.SHARE:
        return {tp: result.start_offset for tp, result in ask.list_share_group_offsets(group).succeeded.items()}
    return {tp: result.offset for tp, result in ask.list_group_offsets(group).items()}


def committed_or_end(ask: Admin, group: str, partitions: Iterable[TopicPartition]) -> Offsets:
    """Return the committed offset of each partition, or its end offset where the group has committed nothing."""
    from ottla.client import OffsetSpec

    partitions, known = list(partitions), ask.list_group_offsets(group)
    ends = listed(ask, [partition for partition in partitions if partition not in known], OffsetSpec.LATEST)
    return {partition: known[partition].offset if partition in known else ends[partition] for partition in partitions}


@dataclass(frozen=True, slots=True)
class Reset:
    """A planned reset: `before` has the committed offsets (all partitions), `goals` the new ones."""

    group: str
    type: GroupType
    before: Offsets
    goals: Offsets

    @property
    def moved(self) -> int:
        """The number of partitions whose offset would change."""
        return sum(self.before.get(tp) != goal for tp, goal in self.goals.items())

    def commit(self, ask: Admin) -> None:
        """Set the offsets. Raises the KafkaError of the first partition that fails."""
        from ottla.client import GroupType

        alter = ask.alter_share_group_offsets if self.type is GroupType.SHARE else ask.alter_group_offsets
        alter(self.group, self.goals).check()


def plan_reset(
    ask: Admin,
    group: str,
    place: Place | None = None,
    *,
    shift: int = 0,
    topics: Collection[str] = (),
    only: Collection[int] = (),
) -> Reset:
    """Plan a reset to a place, or by `shift` records from the committed offset (negative: back).

    `topics`: only these; otherwise all that the group has read. `only`: partitions with these numbers. OttlaError: no
    partition is selected, or none has an offset to shift; BeyondTheEnd: an offset that no partition reaches.
    """
    type_ = type_of(ask, group)
    before = committed(ask, group, type_)
    partitions = _selected(ask, group, before, topics, only)
    if place is not None:
        return Reset(group, type_, before, offsets_at(ask, partitions, place))
    if unread := [partition for partition in partitions if partition not in before]:
        raise OttlaError(f"the group has no committed offset for {unread[0]} to count from; use --to instead of --by")
    starts, ends = bounds(ask, partitions)
    return Reset(
        group, type_, before, within({partition: before[partition] + shift for partition in partitions}, starts, ends)
    )


def _selected(
    ask: Admin, group: str, read: Iterable[TopicPartition], topics: Collection[str], only: Collection[int]
) -> list[TopicPartition]:
    """Return the partitions of the named topics; otherwise those that the group has read."""
    partitions = [partition for topic in topics for partition in partitions_of(ask, topic)] if topics else sorted(read)
    if not partitions:
        raise OttlaError(f"{group} has no committed offsets; name the topics to reset")
    chosen = [tp for tp in partitions if not only or tp.partition in only]
    if not chosen:
        what = ", ".join(topics) or group
        raise OttlaError(f"{what} has no partition {', '.join(map(str, only))}")
    return chosen


def check_empty(ask: Admin, group: str) -> None:
    """Raise OttlaError, naming the members, for a group that has any: they would not notice a new offset."""
    listed = next((listing for listing in ask.list_groups() if listing.id == group), None)
    members = look(ask, listed.id, listed.type).members if listed is not None else []
    if members:
        who = ", ".join(sorted({f"{member['client']} on {member['host']}" for member in members})[:3])
        many = f"{len(members)} member{'' if len(members) == 1 else 's'}"
        raise OttlaError(f"{group} has {many} ({who}): stop them first, then reset it; -n shows the new offsets")


@dataclass(frozen=True, slots=True)
class OffsetDeletion:
    """A planned deletion of committed offsets: of `partitions`, or for a share group of `topics`."""

    group: str
    topics: Collection[str]
    #: None: the group is a share group.
    partitions: list[TopicPartition] | None

    def commit(self, ask: Admin) -> None:
        """Delete the offsets. Raises the first KafkaError, e.g. when a member is reading the topic."""
        if self.partitions is None:
            ask.delete_share_group_offsets(self.group, self.topics).check()
        else:
            ask.delete_group_offsets(self.group, self.partitions).check()


def plan_forgetting(ask: Admin, group: str, topics: Collection[str]) -> OffsetDeletion:
    """Plan the deletion of a group's offsets in topics. OttlaError for a topic in which it has committed nothing."""
    from ottla.client import GroupType

    if type_of(ask, group) is GroupType.SHARE:
        return OffsetDeletion(group, topics, None)
    read = [partition for partition in ask.list_group_offsets(group) if partition.topic in topics]
    if missing := sorted(set(topics) - {tp.topic for tp in read}):
        raise OttlaError(f"{group} has no committed offset for {missing[0]}")
    return OffsetDeletion(group, topics, read)
