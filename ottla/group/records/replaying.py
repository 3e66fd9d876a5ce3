"""The replay functions that consumer, share and streams groups have in common: epochs and targets.

Each function takes the lookup of a kind of group and returns the replay function for a kind of record. A value of None
is a tombstone, which does nothing if the group is missing.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from ottla.group.state.classic import ClassicGroup
from ottla.group.state.consumer import ConsumerGroup
from ottla.group.state.server_assigned_group import ServerAssignedGroup
from ottla.group.state.shard import Shard
from ottla.group.state.streams import StreamsGroup

#: (shard, group id, create a missing group?) -> the group, if it is of this kind.
Find = Callable[[Shard, str, bool], ServerAssignedGroup[Any, Any] | None]
#: (shard, key, value) -> None: applies a record to the state.
ReplayFunction = Callable[[Shard, Any, Any], None]

G = TypeVar("G", ConsumerGroup, StreamsGroup)
H = TypeVar("H", bound=ServerAssignedGroup[Any, Any])


def replacing_simple_group(kind: type[G]) -> Callable[[Shard, str, bool], G | None]:
    """The lookup of a kind of group that replaces a group which only its offsets created."""

    def find(shard: Shard, group_id: str, create: bool) -> G | None:
        group = shard.groups.get(group_id)
        if isinstance(group, kind):
            return group
        if not create:
            return None
        if group is not None:
            text = f"{group_id} is a group of another kind, with records of its own"
            assert isinstance(group, ClassicGroup) and group.protocol_type is None and group.is_empty, text
        made = shard.groups[group_id] = kind(group_id)
        return made

    return find


def with_group(
    find: Callable[[Shard, str, bool], H | None],
) -> Callable[[Callable[[H, Any, Any], None]], ReplayFunction]:
    """Turn a change of a group into a replay function: look up the group first; a tombstone creates none."""

    def decorated(change: Callable[[H, Any, Any], None]) -> ReplayFunction:
        def replay(shard: Shard, key: Any, value: Any) -> None:
            group = find(shard, key.group_id, value is not None)
            if group is not None:
                change(group, key, value)

        return replay

    return decorated


def epoch(find: Find) -> ReplayFunction:
    """Replay the epoch of a group; its tombstone removes the group."""

    def replay(shard: Shard, key: Any, value: Any) -> None:
        group = find(shard, key.group_id, value is not None)
        if group is None:
            return
        if value is None:
            assert not group.members, f"the tombstone of {key.group_id} comes before those of its members"
            del shard.groups[key.group_id]
            return
        group.epoch = value.epoch
        group.metadata_hash = value.metadata_hash

    return replay


def target(find: Find) -> ReplayFunction:
    """Replay the target of a member."""

    @with_group(find)
    def replay(group: ServerAssignedGroup[Any, Any], key: Any, value: Any) -> None:
        if value is None:
            group.targets.pop(key.member_id, None)
            return
        topics = value.topic_partitions
        group.targets[key.member_id] = {topic.topic_id: tuple(sorted(topic.partitions)) for topic in topics}

    return replay


def assignment_epoch(find: Find) -> ReplayFunction:
    """Replay the group epoch and the time of the target."""

    @with_group(find)
    def replay(group: ServerAssignedGroup[Any, Any], _: Any, value: Any) -> None:
        group.assignment_epoch = -1 if value is None else value.assignment_epoch
        group.assignment_timestamp_ms = 0 if value is None else value.assignment_timestamp

    return replay
