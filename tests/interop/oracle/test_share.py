"""Share groups (KIP-932): membership, the share coordinator's APIs, acquiring, acknowledging and offsets."""

from time import monotonic
from typing import Any

import pytest

from tests.interop.oracle.side import Oracle, Side
from tests.interop.oracle.test_group import find
from tests.interop.oracle.test_record import batch, data

_PATIENCE_S = 30
_LOADING = (14, 15, 16)


def beat(side: Side, group: str, member: str, epoch: int, **values: Any) -> Any:
    return side.ask("ShareGroupHeartbeat", 1, group_id=group, member_id=member, member_epoch=epoch, **values)


def join(side: Side, group: str, member: str, topic: str, partitions: int = 1) -> int:
    """A member with all partitions; its epoch. Not part of the transcript: Apache takes two heartbeats more."""
    find(side, group)
    epoch = 0
    deadline = monotonic() + _PATIENCE_S
    while monotonic() < deadline:
        names = [topic] if epoch == 0 else None
        reply = beat(side, group, member, epoch, note=False, subscribed_topic_names=names)
        if reply.error_code in _LOADING:
            continue
        assert reply.error_code == 0, reply
        epoch = int(reply.member_epoch)
        assigned = reply.assignment.topic_partitions if reply.assignment is not None else []
        if sum(len(each.partitions) for each in assigned) == partitions:
            return epoch
    raise AssertionError("nothing was assigned")


def earliest(side: Side, group: str) -> None:
    change = {"name": "share.auto.offset.reset", "config_operation": 0, "value": "earliest"}
    resource = {"resource_type": 32, "resource_name": group, "configs": [change]}
    side.ask("IncrementalAlterConfigs", 1, note=False, resources=[resource])


def reader(side: Side, group: str, member: str, topic: str, *sizes: int) -> bytes:
    """A topic with batches of these sizes, a group that begins at its start, a member; the topic's id."""
    topic_id = side.create(topic)
    for size in sizes:
        side.ask("Produce", 9, note=False, acks=-1, timeout_ms=5_000, topic_data=data(topic, batch(size)))
    earliest(side, group)
    side.settle()
    join(side, group, member, topic)
    return topic_id


def fetch(side: Side, group: str, member: str, epoch: int, topic_id: bytes, version: int = 2, **values: Any) -> Any:
    options: dict[str, Any] = {
        "max_wait_ms": 500,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "max_records": 500,
        "batch_size": 500,
        "topics": [{"topic_id": topic_id, "partitions": [{"partition_index": 0}]}],
        **values,
    }
    return side.ask("ShareFetch", version, group_id=group, member_id=member, share_session_epoch=epoch, **options)


def first(side: Side, group: str, member: str, topic_id: bytes, version: int = 2, **values: Any) -> int:
    """Fetches until there are records; the session's next epoch. A share partition that is loaded gives none yet."""
    for epoch in range(50):
        reply = fetch(side, group, member, epoch, topic_id, version, note=False, **values)
        assert reply.error_code == 0, reply
        if any(part.acquired_records for topic in reply.responses for part in topic.partitions):
            side.note("ShareFetch", reply, version)
            return epoch + 1
    raise AssertionError("no records")


def said(topic_id: bytes, *batches: tuple[int, int, list[int]], partition: int = 0) -> list[dict[str, Any]]:
    acknowledged = [{"first_offset": a, "last_offset": b, "acknowledge_types": types} for a, b, types in batches]
    part = {"partition_index": partition, "acknowledgement_batches": acknowledged}
    return [{"topic_id": topic_id, "partitions": [part]}]


def acknowledge(side: Side, group: str, member: str, epoch: int, topics: Any, version: int = 2, **values: Any) -> Any:
    return side.ask(
        "ShareAcknowledge",
        version,
        group_id=group,
        member_id=member,
        share_session_epoch=epoch,
        topics=topics,
        **values,
    )


def test_a_heartbeat_is_answered_or_refused(oracle: Oracle, name: str) -> None:
    def script(side: Side) -> None:
        side.create(name)
        side.settle()
        find(side, name)
        beat(side, name, "", 0, subscribed_topic_names=[name])
        beat(side, name, "x" * 37, 0, subscribed_topic_names=[name])
        beat(side, "", "m", 0, subscribed_topic_names=[name])
        beat(side, name, "m", 0)
        beat(side, name, "m", 0, subscribed_topic_names=[])
        beat(side, name, "m", 0, subscribed_topic_names=[name], rack_id="")
        beat(side, name, "m", 5)
        beat(side, name, "m", -2)
        beat(side, name, "m", -1)
        epoch = join(side, name, "m", name)
        beat(side, name, "m", epoch)
        beat(side, name, "m", epoch + 1)
        beat(side, name, "other", epoch)
        beat(side, name, "other", -1)
        beat(side, name, "m", -1)
        beat(side, name, "m", epoch)

    oracle.compare(script)


def test_groups_of_other_kinds_are_kept_apart(oracle: Oracle, name: str) -> None:
    def script(side: Side) -> None:
        side.create(name)
        side.settle()
        join(side, name, "m", name)
        side.ask(
            "ConsumerGroupHeartbeat",
            1,
            group_id=name,
            member_id="c",
            member_epoch=0,
            rebalance_timeout_ms=5_000,
            subscribed_topic_names=[name],
            topic_partitions=[],
        )
        side.ask(
            "JoinGroup",
            9,
            group_id=name,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            protocol_type="consumer",
            protocols=[{"name": "range", "metadata": b"\0\1"}],
        )
        side.ask("Heartbeat", 4, group_id=name, generation_id=1, member_id="c")
        side.ask("SyncGroup", 5, group_id=name, generation_id=1, member_id="c", protocol_type="", protocol_name="")
        side.ask("LeaveGroup", 5, group_id=name, members=[{"member_id": "c"}])
        side.ask("OffsetDelete", 0, group_id=name, topics=[{"name": name, "partitions": [{"partition_index": 0}]}])
        for topics in (None, [{"name": name, "partition_indexes": [0]}]):
            side.ask("OffsetFetch", 9, groups=[{"group_id": name, "topics": topics}])
        committed = [{"name": name, "partitions": [{"partition_index": 0, "committed_offset": 1}]}]
        for epoch in (-1, 3):
            side.ask("OffsetCommit", 9, group_id=name, generation_id_or_member_epoch=epoch, topics=committed)
        side.ask("DescribeGroups", 6, groups=[name])
        side.ask("ConsumerGroupDescribe", 1, group_ids=[name])
        side.ask("ShareGroupDescribe", 1, note=False, group_ids=[name])
        for group in (name + "-none", ""):
            side.ask("ShareGroupDescribe", 1, group_ids=[group])
        side.ask("DeleteGroups", 2, groups_names=[name])
        beat(side, name, "m", -1)
        side.ask("DeleteGroups", 2, groups_names=[name])
        side.ask("DeleteGroups", 2, groups_names=[name])

    oracle.compare(script)


@pytest.mark.parametrize("version", [1, 2])
def test_records_are_acquired_acknowledged_and_come_again(oracle: Oracle, name: str, version: int) -> None:
    def script(side: Side) -> None:
        topic_id = reader(side, name, "m", name, 3, 2)
        epoch = first(side, name, "m", topic_id, version)
        acknowledge(side, name, "m", epoch, said(topic_id, (0, 0, [1]), (1, 3, [2, 3, 2])), version)
        fetch(side, name, "m", epoch + 1, topic_id, version, topics=[])
        acknowledge(side, name, "m", epoch + 2, said(topic_id, (0, 0, [1])), version)
        acknowledge(side, name, "m", epoch + 3, said(topic_id, (1, 4, [1])), version)
        acknowledge(side, name, "m", epoch + 4, said(topic_id, (1, 1, [1])), version)
        acknowledge(side, name, "m", epoch + 5, said(topic_id, (5, 5, [1])), version)
        acknowledge(side, name, "m", epoch + 6, said(topic_id, (3, 4, [0, 1])), version)
        acknowledge(side, name, "m", epoch + 7, said(topic_id, (0, 4, [1])), version)

    oracle.compare(script)


def test_acknowledgements_that_make_no_sense_are_refused(oracle: Oracle, name: str) -> None:
    def script(side: Side) -> None:
        topic_id = reader(side, name, "m", name, 4)
        epoch = first(side, name, "m", topic_id)
        nonsense: list[Any] = [
            said(topic_id, (1, 0, [1])),
            said(topic_id, (0, 1, [])),
            said(topic_id, (0, 3, [1, 1])),
            said(topic_id, (0, 0, [5])),
            said(topic_id, (0, 0, [-1])),
            said(topic_id, (0, 0, [4])),
            said(topic_id, (2, 3, [1]), (0, 1, [1])),
            said(topic_id, (0, 9, [1])),
            said(topic_id, (7, 9, [1])),
            said(bytes(15) + b"\x09", (0, 0, [1])),
            said(topic_id, (0, 0, [1]), partition=3),
        ]
        for offset, topics in enumerate(nonsense):
            acknowledge(side, name, "m", epoch + offset, topics)
        epoch += len(nonsense)
        acknowledge(side, name, "m", epoch, said(topic_id, (0, 1, [4])), is_renew_ack=True)
        acknowledge(side, name, "m", epoch + 1, said(topic_id, (0, 3, [1])))

    oracle.compare(script)


def test_sessions_must_carry_their_epoch(oracle: Oracle, name: str) -> None:
    def script(side: Side) -> None:
        topic_id = reader(side, name, "m", name, 2)
        fetch(side, name, "m", 1, topic_id)
        fetch(side, name, "m", -1, topic_id)
        acknowledge(side, name, "m", 1, said(topic_id, (0, 0, [1])))
        acknowledge(side, name, "m", -1, said(topic_id, (0, 0, [1])))
        fetch(side, name, "m", 0, topic_id, topics=said(topic_id, (0, 0, [1])))
        epoch = first(side, name, "m", topic_id)
        fetch(side, name, "m", epoch + 5, topic_id)
        acknowledge(side, name, "m", epoch + 5, said(topic_id, (0, 0, [1])))
        acknowledge(side, name, "m", 0, said(topic_id, (0, 0, [1])))
        fetch(side, name, "", 0, topic_id)
        fetch(side, name, "x" * 37, 0, topic_id)
        fetch(side, name, "m", epoch, topic_id, is_renew_ack=True)
        renew = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0, "is_renew_ack": True}
        fetch(side, name, "m", epoch, topic_id, topics=said(topic_id, (0, 0, [4])), **renew)
        fetch(side, name, "m", epoch + 1, topic_id, topics=said(topic_id, (0, 0, [1])), max_wait_ms=0)
        acknowledge(side, name, "m", -1, said(topic_id, (1, 1, [1])))
        acknowledge(side, name, "m", -1, said(topic_id, (1, 1, [1])))
        # Not asked: a topic id that is not there, at which Apache fails as a whole with UNKNOWN_SERVER_ERROR.
        fetch(side, name, "m", 0, topic_id, topics=[{"topic_id": topic_id, "partitions": [{"partition_index": 4}]}])

    oracle.compare(script)


@pytest.mark.parametrize(("mode", "records"), [(0, 3), (1, 3), (0, 500), (1, 500)])
def test_how_many_records_are_acquired(oracle: Oracle, name: str, mode: int, records: int) -> None:
    def script(side: Side) -> None:
        topic_id = reader(side, name, "m", name, 2, 2, 2)
        asked = {"share_acquire_mode": mode, "max_records": records, "batch_size": 2}
        epoch = first(side, name, "m", topic_id, **asked)
        reply = fetch(side, name, "m", epoch, topic_id, note=False, topics=[], **asked)
        # Into how many pieces the offsets are put depends on what was cut before; no client looks at it.
        (part,) = reply.responses[0].partitions if reply.responses else (None,)
        acquired = part.acquired_records if part is not None else []
        offsets = [(at, one.delivery_count) for one in acquired for at in range(one.first_offset, one.last_offset + 1)]
        side.note("the second ShareFetch", offsets)

    oracle.compare(script)


@pytest.mark.parametrize("limit", [2, 3, 5])
def test_records_that_fail_again_and_again_come_in_ever_smaller_numbers(oracle: Oracle, name: str, limit: int) -> None:
    def script(side: Side) -> None:
        topic_id = reader(side, name, "m", name, 16)
        change = {"name": "share.delivery.count.limit", "config_operation": 0, "value": str(limit)}
        resource = {"resource_type": 32, "resource_name": name, "configs": [change]}
        side.ask("IncrementalAlterConfigs", 1, note=False, resources=[resource])
        side.settle()
        epoch = first(side, name, "m", topic_id)
        acquired = [(0, 15)]
        for _ in range(12):
            acknowledge(side, name, "m", epoch, said(topic_id, *((a, b, [2]) for a, b in acquired)))
            reply = fetch(side, name, "m", epoch + 1, topic_id, note=False, topics=[], max_wait_ms=200)
            epoch += 2
            parts = [part for topic in reply.responses for part in topic.partitions]
            records = [one for part in parts for one in part.acquired_records]
            acquired = [(one.first_offset, one.last_offset) for one in records]
            counts = [
                (at, one.delivery_count) for one in records for at in range(one.first_offset, one.last_offset + 1)
            ]
            side.note("ShareFetch after a release", counts)
            if not acquired:
                break

    oracle.compare(script)


def test_the_share_coordinator_answers_or_refuses(oracle: Oracle, name: str) -> None:
    def script(side: Side) -> None:
        topic_id = side.create(name)
        side.settle()

        def topics(**partition: Any) -> Any:
            return [{"topic_id": topic_id, "partitions": [{"partition": 0, **partition}]}]

        def summary(version: int = 1, note: bool = True) -> Any:
            asked = [{"topic_id": topic_id, "partitions": [{"partition": 0, "leader_epoch": 0}]}]
            return side.ask("ReadShareGroupStateSummary", version, note=note, group_id=name, topics=asked)

        join(side, name + "-warm", "m", name)
        for _ in range(2000):
            if summary(note=False).results[0].partitions[0].error_code not in _LOADING:
                break
        summary()
        side.ask("ReadShareGroupState", 0, group_id=name, topics=topics(leader_epoch=0))
        side.ask("WriteShareGroupState", 0, group_id=name, topics=topics(start_offset=0))
        side.ask("InitializeShareGroupState", 0, group_id=name, topics=topics(state_epoch=2, start_offset=5))
        side.ask("InitializeShareGroupState", 0, group_id=name, topics=topics(state_epoch=1, start_offset=5))
        side.ask("InitializeShareGroupState", 0, group_id="", topics=topics(state_epoch=1, start_offset=5))
        side.ask("InitializeShareGroupState", 0, group_id=name, topics=[])
        state = {"first_offset": 5, "last_offset": 9, "delivery_state": 2, "delivery_count": 1}
        written = {"state_epoch": 2, "leader_epoch": 0, "start_offset": 5, "state_batches": [state]}
        side.ask("WriteShareGroupState", 1, group_id=name, topics=topics(delivery_complete_count=5, **written))
        more = {**state, "first_offset": 8, "last_offset": 12, "delivery_state": 0, "delivery_count": 2}
        written["state_batches"] = [more]
        side.ask("WriteShareGroupState", 1, group_id=name, topics=topics(delivery_complete_count=3, **written))
        side.ask("WriteShareGroupState", 1, group_id=name, topics=topics(**{**written, "state_epoch": 1}))
        side.ask("ReadShareGroupState", 0, group_id=name, topics=topics(leader_epoch=3))
        side.ask("ReadShareGroupState", 0, group_id=name, topics=topics(leader_epoch=2))
        side.ask("WriteShareGroupState", 1, group_id=name, topics=topics(**written))
        side.ask("ReadShareGroupState", 0, group_id=name, topics=topics(leader_epoch=3, partition=8))
        for version in (0, 1):
            summary(version)
        side.ask("DeleteShareGroupState", 0, group_id=name, topics=topics())
        side.ask("DeleteShareGroupState", 0, group_id=name, topics=topics())
        side.ask("ReadShareGroupState", 0, group_id=name, topics=topics(leader_epoch=0))

    oracle.compare(script)


def test_offsets_are_described_altered_and_deleted(oracle: Oracle, name: str) -> None:
    def script(side: Side) -> None:
        topic_id = side.create(name, 2)
        side.settle()
        find(side, name)

        def described(topics: Any) -> None:
            groups = [{"group_id": name, "topics": topics}]
            side.ask("DescribeShareGroupOffsets", 1, groups=groups)

        def alter(offset: int, partitions: tuple[int, ...] = (0,), group: str = name) -> Any:
            changed = [{"partition_index": index, "start_offset": offset} for index in partitions]
            topics = [{"topic_name": each, "partitions": changed} for each in (name, "none")]
            return side.ask("AlterShareGroupOffsets", 0, group_id=group, topics=topics)

        described([])
        described([{"topic_name": name, "partitions": [0]}, {"topic_name": "none", "partitions": [0, 1]}])
        described(None)
        side.ask("DeleteShareGroupOffsets", 0, group_id=name, topics=[{"topic_name": name}])
        side.ask("DeleteShareGroupOffsets", 0, group_id="", topics=[{"topic_name": name}])
        alter(3, group="")
        for _ in range(2000):
            made = side.ask(
                "AlterShareGroupOffsets",
                0,
                note=False,
                group_id=name,
                topics=[{"topic_name": name, "partitions": [{"partition_index": 0, "start_offset": 2}]}],
            )
            if made.responses[0].partitions[0].error_code not in _LOADING:
                break
        alter(0, (0, 7))
        described([{"topic_name": name, "partitions": [0, 1]}])
        epoch = join(side, name, "m", name, 2)
        alter(1)
        side.ask("DeleteShareGroupOffsets", 0, group_id=name, topics=[{"topic_name": name}])
        beat(side, name, "m", -1)
        assert epoch > 0
        assert topic_id
        topics = [{"topic_name": name}, {"topic_name": "none"}]
        side.ask("DeleteShareGroupOffsets", 0, group_id=name, topics=topics)
        side.ask("DeleteShareGroupOffsets", 0, group_id=name, topics=topics)
        described(None)

    oracle.compare(script)


def test_the_coordinator_of_a_share_partition_is_found(oracle: Oracle, name: str) -> None:
    def script(side: Side) -> None:
        keys = ["g:AAECAwQFBgcICQoLDA0ODw:0", "a:b:AAECAwQFBgcICQoLDA0ODw:1"]
        side.create(name)
        side.settle()
        join(side, name, "m", name)
        side.ask("FindCoordinator", 6, key_type=2, coordinator_keys=keys)
        side.ask("FindCoordinator", 6, key_type=2, coordinator_keys=["g", "g:x:0", ":AAECAwQFBgcICQoLDA0ODw:1"])
        side.ask("FindCoordinator", 5, key_type=2, coordinator_keys=keys[:1])
        side.ask("FindCoordinator", 3, key_type=2, key=keys[0])

    oracle.compare(script)
