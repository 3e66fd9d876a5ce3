"""The log of groups is Apache's: we read what it wrote, write the same bytes, and its tools read what we wrote."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ottla.coordinator.contract import Entry, Loaded
from ottla.group.coordinator import GroupCoordinator
from ottla.group.metadata_hash import metadata_hash
from ottla.group.records.encode import (
    assignment_epoch_entry,
    classic_group_entry,
    current_entry,
    epoch_entry,
    member_entry,
    offset_entry,
    regex_entry,
    target_entry,
)
from ottla.group.setting import CoordinatorSettings
from ottla.group.state.classic import ClassicGroup, ClassicState
from ottla.group.state.consumer import ConsumerGroup
from ottla.kernel.now import Now
from ottla.wire.batch import build, read
from ottla.wire.record.offset import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    GroupMetadataKey,
    OffsetCommitKey,
    parse,
)
from tests.group.client import Classic, Consumer, commit_request, rounds, stable_group
from tests.group.host import Host, Topics
from tests.interop.toolchain import classpath

GOLDEN = Path(__file__).parents[1] / "golden" / "group"


def golden() -> list[bytes]:
    return [path.read_bytes() for path in sorted(GOLDEN.glob("offsets-*.log"))]


def empty() -> GroupCoordinator:
    return GroupCoordinator(0, CoordinatorSettings(), Random(1), Topics())


def replayed(coordinator: GroupCoordinator, segment: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Replay a segment; each record that is no tombstone, once it was replayed."""
    for batch in read(segment):
        header = batch.header
        producer_id = header.producer_id if header.is_transactional else -1
        for one in batch.records():
            assert one.key is not None
            if header.is_control:
                coordinator.replay_marker(header.producer_id, committed=one.key[2:4] == b"\0\1")
                continue
            coordinator.replay(one.key, one.value, offset=one.offset, producer_id=producer_id)
            if one.value is not None:
                yield one.key, one.value


def ours(coordinator: GroupCoordinator, key: Any, producer_id: int = -1) -> Entry | None:
    """What we would write for the state behind a key."""
    shard = coordinator.shard
    group: Any = shard.groups[key.group if hasattr(key, "group") else key.group_id]
    match key:
        case OffsetCommitKey():
            committed = shard.offsets.get(key.group, key.topic, key.partition)
            for pending in shard.offsets.pending.values():
                committed = pending.get(key.group, {}).get(key.topic, {}).get(key.partition, committed)
            assert committed is not None
            return offset_entry(key.group, key.topic, key.partition, committed)
        case GroupMetadataKey():
            return classic_group_entry(group, {name: member.assignment for name, member in group.members.items()})
        case ConsumerGroupMemberMetadataKey():
            return member_entry(key.group_id, group.members[key.member_id])
        case ConsumerGroupCurrentMemberAssignmentKey():
            return current_entry(key.group_id, group.members[key.member_id])
        case ConsumerGroupTargetAssignmentMemberKey():
            return target_entry(key.group_id, key.member_id, group.targets[key.member_id])
        case ConsumerGroupTargetAssignmentMetadataKey():
            return assignment_epoch_entry(key.group_id, group.assignment_epoch, group.assignment_timestamp_ms)
        case ConsumerGroupMetadataKey():
            return epoch_entry(key.group_id, group.epoch, group.metadata_hash)
        case ConsumerGroupRegularExpressionKey():
            return regex_entry(key.group_id, key.regular_expression, group.resolved[key.regular_expression])
    return None


def check(segments: list[bytes]) -> None:
    """Load what Apache wrote; write it again; look at what is there."""
    groups: dict[str, Any] = {}
    offsets: dict[tuple[str, str, int], int] = {}
    kinds = set()
    for segment in segments:
        coordinator = empty()
        for key, value in replayed(coordinator, segment):
            record_key, _ = parse(key, None)
            kinds.add(type(record_key))
            assert ours(coordinator, record_key) == (key, value)
        coordinator.step(Loaded(), Now(1, 1))
        coordinator.validate()
        groups.update(coordinator.shard.groups)
        for group_id, topics in coordinator.shard.offsets.committed.items():
            for topic, partitions in topics.items():
                for partition, committed in partitions.items():
                    offsets[group_id, topic, partition] = committed.offset
    assert len(kinds) == 8
    assert set(groups) == {"classic", "consumer", "transactional", "upgraded"}
    assert isinstance(groups["classic"], ClassicGroup) and "i" in groups["classic"].static_members
    assert isinstance(groups["consumer"], ConsumerGroup) and "i" in groups["consumer"].static_members
    assert isinstance(groups["transactional"], ClassicGroup) and groups["transactional"].state is ClassicState.EMPTY
    assert {name: offset for name, offset in offsets.items() if name[0] == "classic"} == {
        ("classic", "orders", index): 10 + index for index in range(4)
    }
    assert sum(name[0] == "consumer" for name in offsets) == 6
    assert offsets["transactional", "orders", 0] == offsets["transactional", "clicks", 1] == 5


def test_what_apache_wrote_is_read_and_would_be_written_the_same() -> None:
    check(golden())


def test_every_prefix_of_apaches_log_can_be_loaded() -> None:
    for segment in golden():
        records = [(one, batch.header) for batch in read(segment) for one in batch.records()]
        for end in range(len(records) + 1):
            coordinator = empty()
            for one, header in records[:end]:
                assert one.key is not None
                if header.is_control:
                    coordinator.replay_marker(header.producer_id, committed=one.key[2:4] == b"\0\1")
                else:
                    producer_id = header.producer_id if header.is_transactional else -1
                    coordinator.replay(one.key, one.value, offset=one.offset, producer_id=producer_id)
            coordinator.step(Loaded(), Now(1, 1))
            coordinator.shard.offsets.validate()


def test_the_hash_of_the_topics_is_apaches() -> None:
    (group,) = [group for group in map(_consumer_group, golden()) if group is not None]
    (target,) = group.targets.values()
    assert len(target) == 2
    hashes = set()
    for names in (("orders", "clicks"), ("clicks", "orders")):
        topics = Topics({"orders": 4, "clicks": 2}, racks=False)
        for topic_id, name in zip(target, names, strict=True):
            topics.rename(topic_id, name)
        hashes.add(metadata_hash(["orders", "clicks", "nothing"], topics))
    assert group.metadata_hash in hashes and len(hashes) == 2


def _consumer_group(segment: bytes) -> ConsumerGroup | None:
    coordinator = empty()
    for _ in replayed(coordinator, segment):
        pass
    group = coordinator.shard.groups.get("consumer")
    return group if isinstance(group, ConsumerGroup) else None


@pytest.mark.interop
def test_what_apache_writes_today_is_read_and_would_be_written_the_same(tmp_path: Path) -> None:
    from tests.group.apache import record  # it needs confluent-kafka, as all of interop does

    check(record(tmp_path))


def our_segment() -> bytes:
    """A log with every kind of record that we write."""
    host = Host()
    members = stable_group(host, 2, group_id="classic")
    members[0].commit(0, 5)
    Classic(host, group_id="classic", instance_id="i").join()
    consumers = [Consumer(host, "a", topics=None, regex="orders.*"), Consumer(host, "b", instance_id="i")]
    for consumer in consumers:
        consumer.join()
    rounds(consumers)
    old = commit_request("old", {"orders": {1: 7}})
    old.retention_time_ms = 1_000
    host.call(old, 4)
    consumers[0].leave()
    stable_group(host, 1, group_id="upgraded")
    new = Consumer(host, "new", group_id="upgraded")
    new.join(), new.leave()
    return b"".join(
        build([(host.now_ms, key, value, [])], base_offset=offset) for offset, (key, value, _) in enumerate(host.log)
    )


@pytest.mark.interop
def test_apaches_dump_log_reads_what_we_wrote(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020}.log"
    path.write_bytes(our_segment())
    tool = ["java", "-cp", classpath(), "org.apache.kafka.tools.DumpLogSegments"]
    command = [*tool, "--offsets-decoder", "--print-data-log", "--files", str(path)]
    dumped = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    keys = [json.loads(text) for text in re.findall(r" key: (\{.*?\}) payload: ", dumped)]
    values = re.findall(r" payload: (.*)", dumped)
    written = sum(len(list(batch.records())) for batch in read(path.read_bytes()))
    assert len(keys) == len(values) == written
    assert {int(key["type"]) for key in keys} == {1, 2, 3, 4, 5, 6, 7, 8, 16}
    payloads = [json.loads(value) for value in values if value != "<DELETE>"]
    assert all("data" in payload for payload in payloads)
    versions = {
        (int(key["type"]), int(json.loads(value)["version"]))
        for key, value in zip(keys, values, strict=True)
        if value != "<DELETE>"
    }
    assert versions == {(1, 1), (1, 4), (2, 3), *((kind, 0) for kind in (3, 5, 6, 7, 8, 16))}
