"""The log of streams groups is Apache's: we read what it wrote, write the same bytes, and in the same life the same."""

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ottla.coordinator.contract import Loaded
from ottla.group.coordinator import GroupCoordinator
from ottla.group.event import SettingsChanged
from ottla.group.records.encode_streams import (
    streams_assignment_epoch_entry,
    streams_current_entry,
    streams_epoch_entry,
    streams_member_entry,
    streams_target_entry,
    topology_entry,
)
from ottla.group.records.replay_streams import STREAMS_RECORDS
from ottla.group.setting import CoordinatorSettings, GroupOverride
from ottla.group.state.streams import StreamsGroup, TaskState
from ottla.kernel.now import Now
from ottla.wire.batch import read
from ottla.wire.record.offset import (
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTargetAssignmentMetadataValue,
    StreamsGroupTopologyKey,
    parse,
)
from ottla.wire.record.streams_group import TaskIdsWithEpochs
from tests.group.apache_streams import CLIENT_ID, GROUP, TOPICS, record, tell
from tests.group.host import Host, Topics
from tests.interop.oracle.side import message

GOLDEN = Path(__file__).parents[1] / "golden" / "group" / "streams.log"
_NOW_MS = 1


def empty() -> GroupCoordinator:
    return GroupCoordinator(0, CoordinatorSettings(), Random(1), Topics(TOPICS))


def replayed(coordinator: GroupCoordinator, segment: bytes) -> Iterator[tuple[bytes, bytes | None]]:
    """Replay a segment; each record, once it was replayed."""
    for batch in read(segment):
        for one in batch.records():
            assert one.key is not None
            coordinator.replay(one.key, one.value, offset=one.offset)
            yield one.key, one.value


def ours(group: StreamsGroup, key: Any) -> tuple[bytes, bytes | None]:
    """What we would write for the state behind a key."""
    match key:
        case StreamsGroupMemberMetadataKey():
            return streams_member_entry(GROUP, group.members[key.member_id])
        case StreamsGroupCurrentMemberAssignmentKey():
            return streams_current_entry(GROUP, group.members[key.member_id])
        case StreamsGroupTargetAssignmentMemberKey():
            return streams_target_entry(GROUP, key.member_id, group.targets[key.member_id])
        case StreamsGroupTargetAssignmentMetadataKey():
            return streams_assignment_epoch_entry(GROUP, group.assignment_epoch, group.assignment_timestamp_ms)
        case StreamsGroupTopologyKey():
            assert group.topology is not None
            return topology_entry(GROUP, group.topology)
        case _:
            assert isinstance(key, StreamsGroupMetadataKey)
            return streams_epoch_entry(
                GROUP, group.epoch, group.metadata_hash, group.validated_topology_epoch, group.assignment_configs
            )


def check(segment: bytes) -> None:
    """Load what Apache wrote; write it again; look at what is there."""
    coordinator = empty()
    kinds, states = set(), set()
    for key, value in replayed(coordinator, segment):
        record_key, _ = parse(key, None)
        kinds.add(type(record_key))
        if value is not None:
            group = coordinator.shard.groups[GROUP]
            assert isinstance(group, StreamsGroup)
            assert ours(group, record_key) == (key, value)
            states |= {member.state for member in group.members.values()}
    assert len(kinds) == 6
    assert states == {TaskState.STABLE, TaskState.UNREVOKED_TASKS, TaskState.UNRELEASED_TASKS}
    coordinator.step(Loaded(), Now(_NOW_MS, _NOW_MS))
    coordinator.validate()
    group = coordinator.shard.groups[GROUP]
    assert isinstance(group, StreamsGroup)
    assert set(group.members) == {"one", "three"}
    assert group.members["one"].client_tags == {"zone": "z", "a": "b"}


def test_what_apache_wrote_of_a_streams_group_is_read_and_would_be_written_the_same() -> None:
    check(GOLDEN.read_bytes())


def test_every_prefix_of_apaches_log_of_a_streams_group_can_be_loaded() -> None:
    records = [one for batch in read(GOLDEN.read_bytes()) for one in batch.records()]
    for end in range(len(records) + 1):
        coordinator = empty()
        for one in records[:end]:
            assert one.key is not None
            coordinator.replay(one.key, one.value, offset=one.offset)
        coordinator.step(Loaded(), Now(_NOW_MS, _NOW_MS))


def test_the_same_life_writes_the_same_log() -> None:
    host = Host(topics=Topics(TOPICS))
    override = GroupOverride(
        streams_initial_rebalance_delay_ms=0, streams_assignment_interval_ms=0, streams_num_standby_replicas=1
    )
    host.send(SettingsChanged(host.settings, {GROUP: override}))
    tell(lambda **values: host.call(message("StreamsGroupHeartbeat", group_id=GROUP, **values), 0, client_id=CLIENT_ID))
    theirs = [_plain(one.key, one.value) for batch in read(GOLDEN.read_bytes()) for one in batch.records() if one.key]
    assert [_plain(key, value) for key, value, _ in host.log] == theirs


def _plain(key: bytes, value: bytes | None) -> tuple[Any, Any]:
    """A record without what is of one run only: the time, and the hash of topics with ids of their own."""
    record_key, record_value = parse(key, value)
    if isinstance(record_value, StreamsGroupMetadataValue):
        record_value.metadata_hash = int(record_value.metadata_hash != 0)
    if isinstance(record_value, StreamsGroupTargetAssignmentMetadataValue):
        record_value.assignment_timestamp = int(record_value.assignment_timestamp != 0)
    return record_key, record_value


@pytest.mark.interop
@pytest.mark.timeout(120)
def test_apache_writes_the_log_of_a_streams_group_again(tmp_path: Path) -> None:
    check(record(tmp_path))


@pytest.mark.parametrize(
    ("epochs", "member_epoch", "expected"),
    [
        ([4, 5], 7, {0: 4, 3: 5}),
        (None, 7, {0: 7, 3: 7}),
        ([4], 7, {0: 7, 3: 7}),
        ([4, 5, 6], 7, {0: 7, 3: 7}),
        ([], 7, {0: 7, 3: 7}),
        (None, 0, {0: 0, 3: 0}),
        (None, -1, {0: 0, 3: 0}),
    ],
)
def test_a_task_whose_epoch_is_not_written_counts_from_its_members(
    epochs: list[int] | None, member_epoch: int, expected: dict[int, int]
) -> None:
    """Records of before Kafka 4.3 have no epochs of tasks."""
    ids = [TaskIdsWithEpochs(subtopology_id="0", partitions=[0, 3], assignment_epochs=epochs)]
    shard = empty().shard
    key = StreamsGroupCurrentMemberAssignmentKey(group_id=GROUP, member_id="one")
    STREAMS_RECORDS[StreamsGroupMemberMetadataKey](
        shard, StreamsGroupMemberMetadataKey(group_id=GROUP, member_id="one"), StreamsGroupMemberMetadataValue()
    )
    value = StreamsGroupCurrentMemberAssignmentValue(
        member_epoch=member_epoch,
        previous_member_epoch=member_epoch - 1,
        active_tasks=ids,
        active_tasks_pending_revocation=ids,
    )
    STREAMS_RECORDS[StreamsGroupCurrentMemberAssignmentKey](shard, key, value)
    group = shard.groups[GROUP]
    assert isinstance(group, StreamsGroup)
    member = group.members["one"]
    assert (member.epoch, member.previous_epoch) == (member_epoch, member_epoch - 1)
    assert member.assigned.active == {"0": expected}
    assert member.revoking.active == {"0": expected}
