"""Where groups go on reading: what they have committed, setting it, and forgetting it.

    reset = plan_reset(admin, "billing", OffsetSpec.EARLIEST)
    check_empty(admin, "billing")
    reset.commit(admin)

Rules:
- A plan changes nothing: it can be shown first. Only a group without members takes offsets: its members would not
  hear of them.
- A share group has one offset a partition, where it begins; a plan for it looks like any other.
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
    """Where a group goes on in each partition that it has read; where a share group begins."""
    from ottla.client import GroupType

    if type_ is GroupType.SHARE:
        return {each: one.start_offset for each, one in ask.list_share_group_offsets(group).succeeded.items()}
    return {each: one.offset for each, one in ask.list_group_offsets(group).items()}


def committed_or_end(ask: Admin, group: str, partitions: Iterable[TopicPartition]) -> Offsets:
    """What a group has committed in each partition; the end where it has committed nothing."""
    from ottla.client import OffsetSpec

    partitions, known = list(partitions), ask.list_group_offsets(group)
    ends = listed(ask, [each for each in partitions if each not in known], OffsetSpec.LATEST)
    return {each: known[each].offset if each in known else ends[each] for each in partitions}


@dataclass(frozen=True, slots=True)
class Reset:
    """Where a group should go on: `before` has what it committed (all partitions), `goals` what it would."""

    group: str
    type: GroupType
    before: Offsets
    goals: Offsets

    @property
    def moved(self) -> int:
        """In how many partitions it would go on elsewhere."""
        return sum(self.before.get(each) != goal for each, goal in self.goals.items())

    def commit(self, ask: Admin) -> None:
        """Set it. Raises the KafkaError of the first partition that fails."""
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
    """Where a group goes on: at a place, or `shift` records ahead of what it committed (negative: back).

    `topics`: in these; otherwise wherever it has read. `only`: in partitions with these numbers. OttlaError: nothing is
    meant by that; BeyondTheEnd: an offset that no partition reaches.
    """
    type_ = type_of(ask, group)
    before = committed(ask, group, type_)
    partitions = _meant(ask, group, before, topics, only)
    if place is not None:
        return Reset(group, type_, before, offsets_at(ask, partitions, place))
    if unread := [each for each in partitions if each not in before]:
        raise OttlaError(
            f"the group has no committed offset for {unread[0]} to count from; name a place instead (--to)"
        )
    starts, ends = bounds(ask, partitions)
    return Reset(group, type_, before, within({each: before[each] + shift for each in partitions}, starts, ends))


def _meant(
    ask: Admin, group: str, read: Iterable[TopicPartition], topics: Collection[str], only: Collection[int]
) -> list[TopicPartition]:
    """The partitions of the topics that are named; otherwise those that the group has read."""
    found = [each for topic in topics for each in partitions_of(ask, topic)] if topics else sorted(read)
    if not found:
        raise OttlaError(f"{group} has read nothing yet; name the topics where it should begin")
    chosen = [each for each in found if not only or each.partition in only]
    if not chosen:
        what = ", ".join(topics) or group
        raise OttlaError(f"{what} has no partition {', '.join(map(str, only))}")
    return chosen


def check_empty(ask: Admin, group: str) -> None:
    """OttlaError that names the members of a group which has some: they would not hear of a new place."""
    listed = next((each for each in ask.list_groups() if each.id == group), None)
    members = look(ask, listed.id, listed.type).members if listed is not None else []
    if members:
        who = ", ".join(sorted({f"{each['client']} on {each['host']}" for each in members})[:3])
        many = f"{len(members)} member{'' if len(members) == 1 else 's'}"
        raise OttlaError(f"{group} has {many} ({who}): stop them first, then reset it; -n shows where it would go")


@dataclass(frozen=True, slots=True)
class Forgetting:
    """Committed offsets that go: those of `partitions`, of a share group those of `topics`."""

    group: str
    topics: Collection[str]
    #: None: the group is a share group.
    partitions: list[TopicPartition] | None

    def commit(self, ask: Admin) -> None:
        """Do it. Raises the first KafkaError: a member reads the topic now, for example."""
        if self.partitions is None:
            ask.delete_share_group_offsets(self.group, self.topics).check()
        else:
            ask.delete_group_offsets(self.group, self.partitions).check()


def plan_forgetting(ask: Admin, group: str, topics: Collection[str]) -> Forgetting:
    """What a group of any kind forgets about topics. OttlaError for one in which it has committed nothing."""
    from ottla.client import GroupType

    if type_of(ask, group) is GroupType.SHARE:
        return Forgetting(group, topics, None)
    read = [each for each in ask.list_group_offsets(group) if each.topic in topics]
    if missing := sorted(set(topics) - {each.topic for each in read}):
        raise OttlaError(f"{group} has committed nothing for {missing[0]}")
    return Forgetting(group, topics, read)
