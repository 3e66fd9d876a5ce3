"""What handlers answer about offsets, share groups, directories and the quorum, field by field and bound by bound."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from ottla.broker.call.reply import Later
from ottla.broker.handlers.api_versions import offer
from ottla.broker.handlers.delete_records import delete_records
from ottla.broker.handlers.list_offsets import list_offsets
from ottla.broker.handlers.log_dir import alter_replica_log_dirs, describe_log_dirs
from ottla.broker.handlers.quorum import describe_here
from ottla.broker.handlers.share_offset import describe_share_group_offsets
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import NO_UUID, OFFSETS_TOPIC, TopicPartition, Uuid
from ottla.metadata.feature import CORDONED_DIRECTORIES_FROM
from ottla.raft.quorum import ReplicaView
from ottla.raft.role import Voter
from ottla.share.state import UNSET_COUNT, UNSET_OFFSET
from ottla.wire.api import ApiKey
from ottla.wire.api import alter_replica_log_dirs as move
from ottla.wire.api import delete_records as delete
from ottla.wire.api import describe_log_dirs as dirs
from ottla.wire.api import describe_quorum as quorum
from ottla.wire.api import describe_share_group_offsets as share
from ottla.wire.api import list_offsets as offsets
from tests.broker.table_node import called, done, leads

NONE = ErrorCode.NONE
ID = Uuid(b"t" * 16)


# ---- offsets


def partition(
    *, start: int = 2, high: int = 10, low: int | None = None, policy: str = "delete", lags: bool = False
) -> Mock:
    """A partition of these offsets; `low` is what the slowest replica has deleted up to."""
    log = Mock(start_offset=start, settings=Mock(cleanup_policy=set(policy.split())))
    made = Mock(high_watermark=high, leader_epoch=4, log=log, is_catching_up=lags)
    made.read_bound = lambda isolation: {0: high, 1: high - 1}.get(isolation, high + 5)
    made.epoch_at = lambda offset: 3 if offset == start else -1
    log.advance_start_offset.side_effect = lambda offset: setattr(log, "start_offset", max(log.start_offset, offset))
    type(made).low_watermark = property(lambda self: self.log.start_offset if low is None else low)
    return made


GUARD = Mock(guarding=lambda log: nullcontext())


def deleted(call: Any, topic: str, *asked: tuple[int, int], timeout_ms: int = 50) -> Any:
    parts = [delete.DeleteRecordsPartition(partition_index=index, offset=offset) for index, offset in asked]
    topics = [delete.DeleteRecordsTopic(name=topic, partitions=parts)]
    return delete_records(call, delete.DeleteRecordsRequest(topics=topics, timeout_ms=timeout_ms))


@pytest.mark.parametrize(
    ("offset", "code", "low"),
    [
        (5, NONE, 5),
        (-1, NONE, 10),
        (10, NONE, 10),
        (0, NONE, 2),
        (11, ErrorCode.OFFSET_OUT_OF_RANGE, -1),
        (-2, ErrorCode.OFFSET_OUT_OF_RANGE, -1),
    ],
)
def test_records_are_deleted_up_to_the_high_watermark(offset: int, code: ErrorCode, low: int) -> None:
    led = partition()
    ((result,),) = [
        each.partitions for each in deleted(called(leader_of=leads(t=led), log_dirs=GUARD), "t", (0, offset)).topics
    ]
    assert (result.partition_index, result.error_code, result.low_watermark) == (0, code, low)
    assert led.log_start_moved.called == (code is NONE)


@pytest.mark.parametrize(
    ("topic", "policy", "index", "code"),
    [
        ("t", "compact", 0, ErrorCode.POLICY_VIOLATION),
        ("t", "compact delete", 0, NONE),
        (OFFSETS_TOPIC, "delete", 0, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("t", "delete", 1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
)
def test_records_that_must_stay_are_not_deleted(topic: str, policy: str, index: int, code: ErrorCode) -> None:
    call = called(leader_of=leads(**{topic: partition(policy=policy)}), log_dirs=GUARD)
    (result,) = deleted(call, topic, (index, 5)).topics[0].partitions
    assert (result.partition_index, result.error_code) == (index, code)


def test_a_partition_that_is_named_twice_is_deleted_from_once() -> None:
    call = called(leader_of=leads(t=partition()), log_dirs=GUARD)
    (result,) = deleted(call, "t", (0, 99), (0, 4)).topics[0].partitions
    assert (result.error_code, result.low_watermark) == (NONE, 4)


@pytest.mark.parametrize("outcome", ["deleted", "resigned", "too late"])
def test_a_deletion_waits_for_the_slowest_replica(outcome: str) -> None:
    slow = partition(low=3)
    slow.when_deleted.side_effect = lambda offset, then: Mock(done=then)
    loop = Mock()
    call = called(leader_of=leads(t=slow), log_dirs=GUARD, loop=loop)
    later = deleted(call, "t", (0, 5), timeout_ms=2000)
    assert isinstance(later, Later)
    assert not later.resolved
    offset, told = slow.when_deleted.call_args.args
    seconds, too_late = loop.call_later.call_args.args
    assert (offset, seconds) == (5, 2.0)
    if outcome == "deleted":
        type(slow).low_watermark = 6
        told(None)
    elif outcome == "resigned":
        told(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    else:
        too_late()
    (result,) = later.value.topics[0].partitions
    assert (result.error_code, result.low_watermark) == {
        "deleted": (NONE, 6),
        "resigned": (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1),
        "too late": (ErrorCode.REQUEST_TIMED_OUT, -1),
    }[outcome]


def test_a_deletion_that_takes_the_directory_of_the_one_before_offline_is_told_for_both() -> None:
    first, second, loop = partition(low=3), partition(), Mock()
    gone = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    first.when_deleted.side_effect = lambda offset, then: Mock(done=then)

    def fails(_: int) -> None:
        first.when_deleted.call_args.args[1](gone)
        raise gone

    second.log.advance_start_offset.side_effect = fails
    call = called(leader_of=lambda topic, index: (first, second)[index], log_dirs=GUARD, loop=loop)
    response = deleted(call, "t", (0, 5), (1, 5))
    assert [(each.partition_index, each.error_code) for each in response.topics[0].partitions] == [
        (0, gone.code),
        (1, gone.code),
    ]
    assert not loop.call_later.called, "there is nothing left to wait for"


LATEST, EARLIEST, MAX_TIMESTAMP, LOCAL, TIERED, PENDING = range(-1, -7, -1)


def listed(
    timestamp: int,
    version: int,
    *,
    replica_id: int = -1,
    isolation: int = 0,
    position: Any = None,
    lags: bool = False,
) -> tuple[Any, ...]:
    def steps(_: Any) -> Generator[None, None, Any]:
        yield None
        return position

    node = {"leader_of": leads(t=partition(lags=lags)), "hosted": {}, "look_ups": Mock(steps=steps)}
    call = called(version, log_dirs=GUARD, **node)
    asked = offsets.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    topics = [offsets.ListOffsetsTopic(name="t", partitions=[asked])]
    request = offsets.ListOffsetsRequest(replica_id=replica_id, isolation_level=isolation, topics=topics)
    (found,) = done(list_offsets(call, request), call).topics[0].partitions
    return found.error_code, found.timestamp, found.offset, found.leader_epoch


@pytest.mark.parametrize(
    ("timestamp", "since", "answer"),
    [
        (LATEST, 4, (NONE, -1, 10, 4)),
        (EARLIEST, 4, (NONE, -1, 2, 3)),
        (MAX_TIMESTAMP, 7, (NONE, 77, 8, 2)),
        (LOCAL, 8, (NONE, -1, 2, 3)),
        (TIERED, 9, (NONE, -1, -1, -1)),
        (PENDING, 11, (NONE, -1, -1, -1)),
        (50, 4, (NONE, 77, 8, 2)),
    ],
)
def test_an_end_of_the_log_is_told_to_versions_that_know_it(
    timestamp: int, since: int, answer: tuple[Any, ...]
) -> None:
    assert listed(timestamp, since, position=(77, 8, 2)) == answer
    if timestamp < EARLIEST:
        assert listed(timestamp, since - 1) == (ErrorCode.UNSUPPORTED_VERSION, -1, -1, -1)
    else:
        # Before version 4 there is no epoch.
        assert listed(timestamp, 3, position=(77, 8, 2)) == (*answer[:3], -1)
    assert listed(-7, 99) == (ErrorCode.UNSUPPORTED_VERSION, -1, -1, -1)


@pytest.mark.parametrize(
    ("replica_id", "isolation", "latest"), [(-1, 0, 10), (-1, 1, 9), (2, 0, 15), (2, 1, 15), (-2, 1, 15)]
)
def test_only_consumers_are_held_back_by_open_transactions(replica_id: int, isolation: int, latest: int) -> None:
    assert listed(LATEST, 9, replica_id=replica_id, isolation=isolation)[2] == latest
    # What lies behind that bound has no offset yet.
    for offset, shown in ((latest - 1, latest - 1), (latest, -1)):
        found = listed(50, 9, replica_id=replica_id, isolation=isolation, position=(77, offset, 2))
        assert found == (NONE, 77 if shown >= 0 else -1, shown, 2 if shown >= 0 else -1)
    assert listed(50, 9, replica_id=replica_id, isolation=isolation) == (NONE, -1, -1, -1)


@pytest.mark.parametrize(
    ("version", "code"), [(4, ErrorCode.LEADER_NOT_AVAILABLE), (5, ErrorCode.OFFSET_NOT_AVAILABLE)]
)
def test_a_new_leader_tells_no_offset_that_may_go_back(version: int, code: ErrorCode) -> None:
    later = (code, -1, -1, -1)
    assert listed(LATEST, version, lags=True) == later
    assert listed(50, version, lags=True, position=(77, 10, 2)) == later
    # What lies below its high watermark stays, as do its start and a time that nothing reaches.
    assert listed(50, version, lags=True, position=(77, 9, 2)) == (NONE, 77, 9, 2)
    assert listed(50, version, lags=True) == (NONE, -1, -1, -1)
    assert listed(EARLIEST, version, lags=True) == (NONE, -1, 2, 3)
    # Replicas may know the end of the log.
    assert listed(LATEST, version, lags=True, replica_id=2)[:3] == (NONE, -1, 15)


def test_offsets_of_a_partition_that_is_named_twice_are_refused() -> None:
    call = called(9, leader_of=leads(t=partition(), u=partition()), hosted={})
    topics = [
        offsets.ListOffsetsTopic(
            name=name,
            partitions=[offsets.ListOffsetsPartition(partition_index=index, timestamp=LATEST) for index in indexes],
        )
        for name, indexes in (("t", [0, 1]), ("u", [0]), ("t", [0]), ("v", []))
    ]
    found = done(list_offsets(call, offsets.ListOffsetsRequest(replica_id=-1, topics=topics)), call).topics
    assert [(each.name, [(part.partition_index, part.error_code) for part in each.partitions]) for each in found] == [
        ("t", [(0, ErrorCode.INVALID_REQUEST), (1, ErrorCode.NOT_LEADER_OR_FOLLOWER)]),
        ("u", [(0, NONE)]),
    ]


# ---- share groups


def lag_of(
    start: int, count: int, high: int | KafkaError = 20, *, known: bool = True
) -> tuple[ErrorCode, int, int, int, str | None]:
    summary = SimpleNamespace(start_offset=start, leader_epoch=3, delivery_complete_count=count)
    persister = Mock(summary=lambda key, then: then(summary), high_watermark=lambda tp, then: then(high))
    image = Mock(topics={"t": Mock(topic_id=ID)} if known else {})
    call = called(persister=persister, image=image, topic_name=lambda topic_id: "t")
    call.node.image.finalized_features = {}
    topics = [share.DescribeShareGroupOffsetsRequestTopic(topic_name="t", partitions=[0])]
    asked = share.DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=topics)
    reply = done(describe_share_group_offsets(call, share.DescribeShareGroupOffsetsRequest(groups=[asked])), call)
    (topic,) = reply.groups[0].topics
    assert topic.topic_id == (ID if known else NO_UUID)
    (found,) = topic.partitions
    return ErrorCode(found.error_code), found.start_offset, found.leader_epoch, found.lag, found.error_message


@pytest.mark.parametrize(
    ("start", "count", "high", "answer"),
    [
        (5, 0, 20, (NONE, 5, 3, 15, None)),
        (5, 4, 20, (NONE, 5, 3, 11, None)),
        (5, UNSET_COUNT, 20, (NONE, 5, 3, -1, None)),
        (UNSET_OFFSET, 0, 20, (NONE, -1, 3, -1, None)),
        (
            5,
            0,
            KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "away"),
            (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, 3, -1, "away"),
        ),
    ],
)
def test_the_lag_of_a_share_group_leaves_out_what_is_done(
    start: int, count: int, high: int | KafkaError, answer: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.broker.handlers.share_offset.check_enabled", lambda *_: None)
    assert lag_of(start, count, high) == answer
    assert lag_of(start, count, high, known=False) == (NONE, -1, 0, -1, None), "an unknown topic has no state"


def test_a_share_partition_that_is_named_twice_is_answered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.broker.handlers.share_offset.check_enabled", lambda *_: None)
    persister = Mock()
    persister.summary = lambda key, then: then(Mock(start_offset=UNSET_OFFSET, leader_epoch=3))
    call = called(persister=persister, image=Mock(topics={"t": Mock(topic_id=ID)}), topic_name=lambda topic_id: "t")
    named = [("t", [1, 0]), ("u", [0, 0]), ("t", [0, 2]), ("u", [])]
    topics = [share.DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=each) for name, each in named]
    asked = share.DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=topics)
    reply = done(describe_share_group_offsets(call, share.DescribeShareGroupOffsetsRequest(groups=[asked])), call)
    assert [(each.topic_name, [one.partition_index for one in each.partitions]) for each in reply.groups[0].topics] == [
        ("u", [0, 0]),
        ("u", []),
        ("t", [1, 0, 2]),
    ]


# ---- log directories


def test_log_directories_are_described_with_what_was_asked_for() -> None:
    one, two = TopicPartition("t", 0), TopicPartition("u", 1)
    logs = {one: Mock(size=100, end_offset=50), two: Mock(size=200, end_offset=10)}
    future = {one: (Mock(size=30, end_offset=20), "/b"), two: None}
    store = Mock(
        directories=["/a", "/b"],
        failed_directories={"/c": "broken"},
        logs=lambda: logs,
        directory_of=lambda tp: "/a",
        future=future.get,
    )

    def described(topics: Any, level: int = CORDONED_DIRECTORIES_FROM) -> list[Any]:
        call = called(
            store=store,
            disk=Mock(free_bytes=lambda path: (1000, 400)),
            image=Mock(metadata_version=level),
            log_dirs=Mock(cordoned=lambda: {"/b"}),
        )
        return [
            (
                each.log_dir,
                ErrorCode(each.error_code).name,
                (each.total_bytes, each.usable_bytes, each.is_cordoned),
                [
                    (topic.name, part.partition_index, part.partition_size, part.offset_lag, part.is_future_key)
                    for topic in each.topics
                    for part in topic.partitions
                ],
            )
            for each in describe_log_dirs(call, dirs.DescribeLogDirsRequest(topics=topics)).results
        ]

    failed: Any = ("/c", "KAFKA_STORAGE_ERROR", (-1, -1, False), [])
    assert described(None) == [
        ("/a", "NONE", (1000, 400, False), [("t", 0, 100, 0, False), ("u", 1, 200, 0, False)]),
        ("/b", "NONE", (1000, 400, True), [("t", 0, 30, 30, True)]),
        failed,
    ]
    asked = [dirs.DescribableLogDirTopic(topic="u", partitions=[0, 1]), dirs.DescribableLogDirTopic(topic="v")]
    assert described(asked, CORDONED_DIRECTORIES_FROM - 1) == [
        ("/a", "NONE", (1000, 400, False), [("u", 1, 200, 0, False)]),
        ("/b", "NONE", (1000, 400, False), []),
        failed,
    ]


def test_a_volume_whose_size_cannot_be_read_fails_alone() -> None:
    def free_bytes(path: str) -> tuple[int, int]:
        if path == "/a":
            raise OSError(5, "Input/output error", path)
        return 1000, 400

    store = Mock(directories=["/a", "/b"], failed_directories={}, logs=dict)
    call = called(store=store, disk=Mock(free_bytes=free_bytes), image=Mock(metadata_version=1))
    found = describe_log_dirs(call, dirs.DescribeLogDirsRequest(topics=None)).results
    assert [(each.log_dir, each.error_code, each.total_bytes) for each in found] == [
        ("/a", ErrorCode.KAFKA_STORAGE_ERROR, -1),
        ("/b", NONE, 1000),
    ]


def test_the_last_directory_that_is_named_for_a_replica_counts() -> None:
    moved: list[tuple[TopicPartition, str]] = []

    def to(tp: TopicPartition, path: str) -> ErrorCode:
        moved.append((tp, path))
        return ErrorCode.LOG_DIR_NOT_FOUND if path == "/none" else NONE

    def topics(*parts: tuple[str, list[int]]) -> list[Any]:
        return [move.AlterReplicaLogDirTopic(name=name, partitions=indexes) for name, indexes in parts]

    request = move.AlterReplicaLogDirsRequest(
        dirs=[
            move.AlterReplicaLogDir(path="/a", topics=topics(("t", [0, 1]), ("u", [0]))),
            move.AlterReplicaLogDir(path="/none", topics=topics(("t", [1]))),
        ]
    )
    found = alter_replica_log_dirs(called(log_dirs=Mock(move=to)), request).results
    assert [
        (each.topic_name, [(part.partition_index, part.error_code) for part in each.partitions]) for each in found
    ] == [("t", [(0, NONE), (1, ErrorCode.LOG_DIR_NOT_FOUND)]), ("u", [(0, NONE)])]
    assert moved == [
        (TopicPartition("t", 0), "/a"),
        (TopicPartition("t", 1), "/none"),
        (TopicPartition("u", 0), "/a"),
    ]


def test_many_moves_begin_in_steps() -> None:
    to = Mock(return_value=NONE)
    topics = [move.AlterReplicaLogDirTopic(name="t", partitions=list(range(5000)))]
    call = called(log_dirs=Mock(move=to))
    reply = alter_replica_log_dirs(
        call, move.AlterReplicaLogDirsRequest(dirs=[move.AlterReplicaLogDir(path="/a", topics=topics)])
    )
    assert not to.called, "the names come first"
    most = 0
    while call.turns:
        before = to.call_count
        call.turns.pop(0)()
        most = max(most, to.call_count - before)
    assert (to.call_count, most) == (5000, 20)
    assert isinstance(reply, Later)
    (result,) = reply.value.results
    assert [each.partition_index for each in result.partitions] == list(range(5000))


# ---- the quorum, and what is offered


def quorum_of(version: int, *asked: tuple[str, int], leads: bool = True) -> Any:
    voter = ReplicaView(Voter(1, ID), (), end_offset=30, fetched_ms_ago=None, caught_up_ms_ago=0)
    observer = ReplicaView(Voter(5, ID), (), end_offset=20, fetched_ms_ago=7, caught_up_ms_ago=None)
    # The node may know more of what is committed than its epoch as leader has shown.
    machine = Mock(leads=leads, epoch=6, high_watermark=31, leader_high_watermark=29)
    machine.describe = lambda now_ms: ([voter], [observer])
    known = SimpleNamespace(voter=Voter(1, ID), endpoints=[SimpleNamespace(name="C", host="h", port=9)])
    node_quorum = Mock(raft=Mock(quorum=machine), voters=[known])
    clock = Mock(monotonic_ms=lambda: 500, now_ms=lambda: 1000)
    topics = [
        quorum.RequestTopicData(topic_name=name, partitions=[quorum.RequestPartitionData(partition_index=index)])
        for name, index in asked
    ]
    return describe_here(
        called(version, quorum=node_quorum, clock=clock, node_id=1), quorum.DescribeQuorumRequest(topics=topics)
    )


METADATA = "__cluster_metadata"


@pytest.mark.parametrize("version", [1, 2])
def test_the_quorum_is_described_by_its_leader(version: int) -> None:
    response = quorum_of(version, (METADATA, 0))
    (found,) = response.topics[0].partitions
    assert (found.error_code, found.leader_id, found.leader_epoch, found.high_watermark) == (NONE, 1, 6, 29)
    own = ID if version >= 2 else NO_UUID
    shown = [
        (each.replica_id, each.replica_directory_id, each.log_end_offset)
        for each in (*found.current_voters, *found.observers)
    ]
    assert shown == [(1, own, 30), (5, own, 20)]
    times = [
        (each.last_fetch_timestamp, each.last_caught_up_timestamp) for each in (*found.current_voters, *found.observers)
    ]
    assert times == [(-1, 1000), (993, -1)]
    nodes = [(each.node_id, [(end.name, end.host, end.port) for end in each.listeners]) for each in response.nodes]
    assert nodes == ([(1, [("C", "h", 9)])] if version >= 2 else [])


@pytest.mark.parametrize(
    ("asked", "is_leader", "code"),
    [
        (("other", 0), True, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ((METADATA, 1), True, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ((METADATA, 0), False, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
)
def test_no_other_partition_and_no_other_node_describes_a_quorum(
    asked: tuple[str, int], is_leader: bool, code: ErrorCode
) -> None:
    for version, has_words in ((1, False), (2, True)):
        response = quorum_of(version, asked, leads=is_leader)
        (found,) = response.topics[0].partitions
        assert (found.partition_index, found.error_code, bool(found.error_message)) == (asked[1], code, has_words)
        assert response.nodes == []
    assert quorum_of(2, (METADATA, 0), ("other", 0)).nodes == []


@pytest.mark.parametrize(("version", "exporter", "unstable"), [(3, None, False), (4, None, True), (4, object(), False)])
def test_what_a_node_offers_depends_on_the_version_and_on_its_settings(
    version: int, exporter: object, unstable: bool
) -> None:
    node: Any = Mock(
        settings=Mock(unstable_api_versions_enable=unstable),
        telemetry=Mock(exporter=exporter),
        finalized_features={"b": 0, "a": 2, "c": 1},
        image=Mock(offset=77),
    )
    keys = [ApiKey.PUSH_TELEMETRY, ApiKey.FETCH, ApiKey.PRODUCE, ApiKey.INIT_PRODUCER_ID]
    response = offer(node, version, keys, {"b": (0, 2), "a": (1, 3)})
    found = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
    assert list(found) == sorted(found)
    assert (ApiKey.PUSH_TELEMETRY in found) == (exporter is not None)
    assert found[ApiKey.PRODUCE][0] == 0
    assert found[ApiKey.FETCH][0] > 0
    assert found[ApiKey.INIT_PRODUCER_ID][1] == (6 if unstable else 5)
    features = [(each.name, each.min_version, each.max_version) for each in response.supported_features]
    assert features == [("a", 1, 3), *([("b", 0, 2)] if version >= 4 else [])]
    levels = [(each.name, each.max_version_level, each.min_version_level) for each in response.finalized_features]
    assert levels == [("a", 2, 2), ("c", 1, 1)]
    assert response.finalized_features_epoch == 77
