"""A group of any protocol (classic, consumer, share, streams) as `ottla groups` shows it: members, offsets, lag."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ottla.kernel.error import KafkaError

if TYPE_CHECKING:
    from ottla.client import Admin, GroupType, TopicPartition
    from ottla.client.admin.streams_group import StreamsGroupDescription


@dataclass(frozen=True, slots=True)
class GroupView:
    """A group of any protocol."""

    type: str
    state: str
    assignor: str
    coordinator: int
    #: member, instance, client, host, partitions (for a streams member: its active tasks).
    members: list[dict[str, Any]]
    #: topic, partition, committed (for a share group: where it begins), end_offset, lag, member. None: unknown.
    partitions: list[dict[str, Any]]

    @property
    def lag(self) -> int | None:
        """The sum over all partitions whose lag is known."""
        known = [partition["lag"] for partition in self.partitions if partition["lag"] is not None]
        return sum(known) if known else None


def type_of(ask: Admin, group: str) -> GroupType:
    """Return the group's protocol; classic for an unknown group: describing it then raises GROUP_ID_NOT_FOUND."""
    from ottla.client import GroupType

    return next((listing.type for listing in ask.list_groups() if listing.id == group), GroupType.CLASSIC)


def look(ask: Admin, group: str, type_: GroupType) -> GroupView:
    """Describe a group. Raises GROUP_ID_NOT_FOUND if it does not exist."""
    from ottla.client import GroupType

    if type_ is GroupType.SHARE:
        return _share(ask, group)
    if type_ is GroupType.STREAMS:
        return _streams(ask, group)
    description = ask.describe_group(group)
    partitions = [
        _partition(row.partition, row.committed, row.end_offset, row.lag, row.member.id if row.member else None)
        for row in ask.group_lag(group)
    ]
    members = [
        _member(member.id, member.instance_id, member.client_id, member.host, len(member.assignment))
        for member in description.members
    ]
    node = description.coordinator.id
    return GroupView(description.type.value, description.state, description.assignor, node, members, partitions)


def _member(member: str, instance: str | None, client: str, host: str, partitions: int) -> dict[str, Any]:
    return {
        "member": member,
        "instance": instance,
        "client": client,
        "host": host.removeprefix("/"),
        "partitions": partitions,
    }


def _partition(
    partition: TopicPartition, committed: int | None, end: int | None, lag: int | None, member: str | None
) -> dict[str, Any]:
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "committed": committed,
        "end_offset": end,
        "lag": lag,
        "member": member,
    }


def _ends(ask: Admin, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the end offsets, without the partitions that do not answer."""
    from ottla.client import OffsetSpec

    if not partitions:
        return {}
    try:
        results = ask.list_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST)).succeeded
    except KafkaError:
        return {}
    return {tp: result.offset for tp, result in results.items()}


def _share(ask: Admin, group: str) -> GroupView:
    description = ask.describe_share_group(group)
    offsets = ask.list_share_group_offsets(group, unread=True).succeeded
    ends = _ends(ask, sorted(offsets))
    partitions = [
        # Many members share a partition, so there is no owner.
        _partition(tp, result.start_offset if result.start_offset >= 0 else None, ends.get(tp), result.lag, None)
        for tp, result in sorted(offsets.items())
    ]
    members = [
        _member(member.id, None, member.client_id, member.host, len(member.assignment))
        for member in description.members
    ]
    node = description.coordinator.id
    return GroupView("share", description.state, description.assignor, node, members, partitions)


def _streams(ask: Admin, group: str) -> GroupView:
    description = ask.describe_streams_group(group)
    committed = ask.list_group_offsets(group)
    owners = _owners(description)
    places = sorted({*committed, *owners})
    ends = _ends(ask, places)
    partitions = []
    for place in places:
        at, end = committed.get(place), ends.get(place)
        lag = None if at is None or end is None else max(0, end - at.offset)
        partitions.append(_partition(place, None if at is None else at.offset, end, lag, owners.get(place)))
    members = [
        _member(member.id, member.instance_id, member.client_id, member.host, len(member.assignment.active))
        for member in description.members
    ]
    return GroupView("streams", description.state, "", description.coordinator.id, members, partitions)


def _owners(description: StreamsGroupDescription) -> dict[TopicPartition, str]:
    """Return partition -> the member whose active task reads it."""
    from ottla.client import TopicPartition

    topics = {part.id: (*part.source_topics, *part.repartition_source_topics) for part in description.subtopologies}
    return {
        TopicPartition(topic, number): member.id
        for member in description.members
        for subtopology, number in member.assignment.active
        for topic in topics.get(subtopology, ())
    }
