"""Requests about very many groups, transactions or share partitions: other clients have their turns meanwhile."""

from __future__ import annotations

from itertools import count, pairwise
from random import Random
from typing import Any

import pytest

from ottla.broker.coordinators.group_driver import GroupDriver
from ottla.coordinator.contract import Called
from ottla.kernel.error import ErrorCode
from ottla.kernel.ids import Uuid
from ottla.share.state import SharePartitionKey
from ottla.sim.machine import Machine
from ottla.wire.api import API, ApiKey
from ottla.wire.api import add_partitions_to_txn as add
from ottla.wire.api import delete_records as deletion
from ottla.wire.api import describe_share_group_offsets as offsets
from ottla.wire.api import offset_fetch as fetched
from ottla.wire.api import offset_for_leader_epoch as epochs
from ottla.wire.api import share_acknowledge as ack
from ottla.wire.api import share_fetch as fetch
from ottla.wire.api import write_txn_markers as markers
from ottla.wire.api.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.wire.api.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.wire.api.delete_groups import DeleteGroupsRequest
from ottla.wire.api.describe_groups import DescribeGroupsRequest
from ottla.wire.api.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.wire.api.describe_transactions import DescribeTransactionsRequest
from ottla.wire.api.find_coordinator import FindCoordinatorRequest
from ottla.wire.api.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.api.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.wire.api.metadata import MetadataRequest
from ottla.wire.api.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from ottla.wire.api.share_group_describe import ShareGroupDescribeRequest
from ottla.wire.api.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.wire.compile import decode
from ottla.wire.header import ResponseHeader, response_header_version
from tests.abuse.served import frame
from tests.broker.wire_client import _key_of

_MANY = 300
_NAMES = [f"group-{number}" for number in range(_MANY)]
_TOPIC = Uuid(b"a topic of none.")


class _Client:
    """A client of a simulated machine."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.answers: list[bytes] = []
        self._connection = machine.connect(self.answers.append, lambda: None)

    def send(self, request: Any, version: int) -> None:
        self.answers.clear()
        self._connection.send(frame(request, version)[4:])

    def answer(self, request: Any, version: int) -> Any:
        """The answer to `request`, which was sent."""
        self.machine.run(lambda: bool(self.answers))
        key = _key_of(request)
        _, position = decode(ResponseHeader, response_header_version(key, version), self.answers[0])
        return decode(API[ApiKey(key)].response, version, self.answers[0], position)[0]

    def ask(self, request: Any, version: int) -> Any:
        self.send(request, version)
        return self.answer(request, version)


@pytest.fixture
def machine() -> Machine:
    machine = Machine(Random(1))
    machine.start()
    machine.create_topic("here")
    client = _Client(machine)
    for kind, key in ((0, "group-0"), (2, "g:eHh4eHh4eHh4eHh4eHh4eA:0")):
        answer = client.ask(FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]), 6)
        assert answer.coordinators[0].error_code == 0
    return machine


def _session(epoch: int, *partitions: int) -> fetch.ShareFetchRequest:
    topic = fetch.FetchTopic(
        topic_id=_TOPIC, partitions=[fetch.FetchPartition(partition_index=each) for each in partitions]
    )
    return fetch.ShareFetchRequest(
        group_id="g",
        member_id="m",
        share_session_epoch=epoch,
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1000,
        max_records=10,
        batch_size=10,
        topics=[topic] if partitions else [],
    )


def _acknowledgements() -> ack.ShareAcknowledgeRequest:
    batch = ack.AcknowledgementBatch(first_offset=0, last_offset=0, acknowledge_types=[1])
    partitions = [
        ack.AcknowledgePartition(partition_index=each, acknowledgement_batches=[batch]) for each in range(_MANY)
    ]
    topics = [ack.AcknowledgeTopic(topic_id=_TOPIC, partitions=partitions)]
    return ack.ShareAcknowledgeRequest(group_id="g", member_id="m", share_session_epoch=1, topics=topics)


def _offsets(topic: str) -> offsets.DescribeShareGroupOffsetsRequest:
    asked = offsets.DescribeShareGroupOffsetsRequestTopic(topic_name=topic, partitions=list(range(_MANY)))
    groups = [offsets.DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=[asked])]
    return offsets.DescribeShareGroupOffsetsRequest(groups=groups)


def _markers(*indexes: int) -> markers.WriteTxnMarkersRequest:
    marker = markers.WritableTxnMarker(
        producer_id=7,
        producer_epoch=0,
        transaction_result=True,
        coordinator_epoch=0,
        topics=[markers.WritableTxnMarkerTopic(name="here", partition_indexes=[*indexes])],
    )
    return markers.WriteTxnMarkersRequest(markers=[marker])


def _ends(*indexes: int) -> epochs.OffsetForLeaderEpochRequest:
    partitions = [epochs.OffsetForLeaderPartition(partition=index, leader_epoch=0) for index in indexes]
    topics = [epochs.OffsetForLeaderTopic(topic="here", partitions=partitions)]
    return epochs.OffsetForLeaderEpochRequest(replica_id=-1, topics=topics)


def _deletion(*indexes: int) -> deletion.DeleteRecordsRequest:
    partitions = [deletion.DeleteRecordsPartition(partition_index=index, offset=0) for index in indexes]
    topics = [deletion.DeleteRecordsTopic(name="here", partitions=partitions)]
    return deletion.DeleteRecordsRequest(topics=topics, timeout_ms=1000)


def _joins(transactional_id: str, *indexes: int) -> add.AddPartitionsToTxnTransaction:
    topics = [add.AddPartitionsToTxnTopic(name="here", partitions=[*indexes])]
    return add.AddPartitionsToTxnTransaction(
        transactional_id=transactional_id, producer_id=7, producer_epoch=0, verify_only=True, topics=topics
    )


def _joined(topic: add.AddPartitionsToTxnTopicResult) -> list[tuple[int, int]]:
    return [(each.partition_index, each.partition_error_code) for each in topic.results_by_partition]


def _codes(partitions: list[Any]) -> list[tuple[int, int]]:
    return [(each.partition_index, each.error_code) for each in partitions]


@pytest.mark.parametrize(
    ("request_", "version", "said"),
    [
        (
            DescribeGroupsRequest(groups=_NAMES),
            5,
            lambda answer: (
                [(each.group_id, each.group_state) for each in answer.groups] == [(name, "Dead") for name in _NAMES]
            ),
        ),
        (
            DeleteGroupsRequest(groups_names=_NAMES),
            2,
            lambda answer: (
                [(each.group_id, each.error_code) for each in answer.results]
                == [(name, ErrorCode.GROUP_ID_NOT_FOUND) for name in _NAMES]
            ),
        ),
        (
            DescribeTransactionsRequest(transactional_ids=_NAMES),
            0,
            lambda answer: [each.transactional_id for each in answer.transaction_states] == _NAMES,
        ),
        (
            DescribeProducersRequest(
                topics=[
                    TopicRequest(name="here", partition_indexes=list(range(_MANY))),
                    TopicRequest(name="nowhere", partition_indexes=[7]),
                ]
            ),
            0,
            lambda answer: (
                [(topic.name, _codes(topic.partitions)) for topic in answer.topics]
                == [
                    ("here", [(each, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if each else 0) for each in range(_MANY)]),
                    ("nowhere", [(7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]),
                ]
            ),
        ),
        (
            _session(0, *range(_MANY)),
            1,
            lambda answer: (
                _codes(answer.responses[0].partitions) == [(each, ErrorCode.UNKNOWN_TOPIC_ID) for each in range(_MANY)]
            ),
        ),
        (
            _offsets("here"),
            0,
            lambda answer: (
                [
                    (each.partition_index, each.error_code, each.start_offset)
                    for each in answer.groups[0].topics[0].partitions
                ]
                == [(each, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if each else 0, -1) for each in range(_MANY)]
            ),
        ),
        (
            _offsets("nowhere"),
            0,
            lambda answer: _codes(answer.groups[0].topics[0].partitions) == [(each, 0) for each in range(_MANY)],
        ),
        (
            _markers(*range(_MANY)),
            1,
            lambda answer: (
                _codes(answer.markers[0].topics[0].partitions)
                == [(each, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if each else 0) for each in range(_MANY)]
            ),
        ),
        (
            _ends(*range(3 * _MANY)),
            3,
            lambda answer: (
                [(each.partition, each.error_code) for each in answer.topics[0].partitions]
                == [(each, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if each else 0) for each in range(3 * _MANY)]
            ),
        ),
        (
            _deletion(*range(_MANY), 0),
            1,
            lambda answer: (
                _codes(answer.topics[0].partitions)
                == [(each, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if each else 0) for each in range(_MANY)]
            ),
        ),
        (
            add.AddPartitionsToTxnRequest(
                v3_and_below_transactional_id="group-0",
                v3_and_below_topics=[add.AddPartitionsToTxnTopic(name="here", partitions=[*range(10 * _MANY), 0])],
            ),
            3,
            lambda answer: (
                _joined(answer.results_by_topic_v3_and_below[0])
                == [
                    (
                        each,
                        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if each else ErrorCode.OPERATION_NOT_ATTEMPTED,
                    )
                    for each in range(10 * _MANY)
                ]
            ),
        ),
        (
            add.AddPartitionsToTxnRequest(transactions=[_joins(name, 0) for name in _NAMES]),
            5,
            lambda answer: (
                [(each.transactional_id, *map(_joined, each.topic_results)) for each in answer.results_by_transaction]
                == [(name, [(0, ErrorCode.NOT_COORDINATOR)]) for name in _NAMES]
            ),
        ),
    ],
    ids=[
        "describe",
        "delete",
        "transactions",
        "producers",
        "share-fetch",
        "share-offsets",
        "share-offsets-of-nothing",
        *("markers", "epochs", "delete-records", "add-partitions", "verify"),
    ],
)
def test_others_have_their_turns_during_a_wide_request(
    machine: Machine, request_: Any, version: int, said: Any
) -> None:
    wide, other = _Client(machine), _Client(machine)
    wide.send(request_, version)
    other.send(MetadataRequest(topics=[]), 9)
    machine.run(lambda: bool(other.answers))
    assert wide.answers == [], "the other one is answered first"
    assert said(wide.answer(request_, version))


def test_members_that_leave_in_a_long_request_leave_in_parts_with_turns_between(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    joined = _Client(machine).ask(_join("group-0", 1000), 3)
    assert joined.error_code == 0
    step, loop = GroupDriver.step, machine.loop
    at_once: list[tuple[int, int]] = []
    turns = count()
    monkeypatch.setattr(loop, "turn", lambda turn=loop.turn: (next(turns), turn())[1])

    def steps(driver: GroupDriver, event: Any) -> None:
        if isinstance(event, Called) and isinstance(event.request, LeaveGroupRequest):
            at_once.append((next(turns), len(event.request.members)))
        step(driver, event)

    monkeypatch.setattr(GroupDriver, "step", steps)
    names = [f"unknown-{number}" for number in range(1200)]
    names[1100] = joined.member_id
    request = LeaveGroupRequest(group_id="group-0", members=[MemberIdentity(member_id=name) for name in names])
    client = _Client(machine)
    answer = client.ask(request, 5)
    assert answer.error_code == 0
    assert [(each.member_id, each.error_code) for each in answer.members] == [
        (name, 0 if name == joined.member_id else ErrorCode.UNKNOWN_MEMBER_ID) for name in names
    ]
    assert [members for _, members in at_once] == [500, 500, 200]
    assert all(after - before > 1 for (before, _), (after, _) in pairwise(at_once)), "others have a turn"
    (group,) = client.ask(DescribeGroupsRequest(groups=["group-0"]), 5).groups
    assert (group.group_state, group.members) == ("Empty", [])


def test_a_long_request_to_leave_that_no_coordinator_takes_fails_as_a_whole(machine: Machine) -> None:
    for members in (1, 1200):
        named = [MemberIdentity(member_id=f"m{number}") for number in range(members)]
        answer = _Client(machine).ask(LeaveGroupRequest(group_id="", members=named), 5)
        assert (answer.error_code, answer.members) == (ErrorCode.INVALID_GROUP_ID, [])


def test_a_member_with_very_many_protocols_is_refused_because_all_are_compared_at_once(machine: Machine) -> None:
    client = _Client(machine)
    answer = client.ask(_join("group-0", 1001), 3)
    assert (answer.error_code, answer.member_id) == (ErrorCode.INVALID_REQUEST, "")
    assert client.ask(DescribeGroupsRequest(groups=["group-0"]), 5).groups[0].group_state == "Dead"


def _join(group_id: str, protocols: int) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name=f"p{number}", metadata=b"") for number in range(protocols)],
    )


@pytest.mark.parametrize("acknowledges", [True, False])
def test_others_have_their_turns_during_wide_requests_of_a_share_session(machine: Machine, acknowledges: bool) -> None:
    wide, other = _Client(machine), _Client(machine)
    wide.ask(_session(0, *range(_MANY)), 1)
    request: Any = _acknowledgements() if acknowledges else _session(1)
    wide.send(request, 1)
    other.send(MetadataRequest(topics=[]), 9)
    machine.run(lambda: bool(other.answers))
    assert wide.answers == [], "the other one is answered first"
    answer = wide.answer(request, 1)
    assert answer.error_code == 0
    assert _codes(answer.responses[0].partitions) == [(each, ErrorCode.UNKNOWN_TOPIC_ID) for each in range(_MANY)]


def test_a_share_session_that_ends_during_its_wide_fetch_leaves_no_share_partitions(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.create_topic("wide", 2)
    assert machine.node is not None
    begun: list[SharePartitionKey] = []
    monkeypatch.setattr(machine.node.shares, "lead", lambda key, _: begun.append(key))
    topic_id = machine.node.image.topics["wide"].topic_id
    wide, other = _Client(machine), _Client(machine)
    request = _session(0, *range(_MANY))
    led = [fetch.FetchPartition(partition_index=each) for each in (0, 1)]
    request.topics.append(fetch.FetchTopic(topic_id=topic_id, partitions=led))
    wide.send(request, 1)
    answer = other.ask(_session(-1), 1)
    assert (answer.error_code, wide.answers) == (0, []), "the session ends while the fetch is at work"
    assert wide.answer(request, 1).responses == []
    assert begun == [], "nothing would end them"


def test_a_marker_is_written_once_to_a_partition_that_is_named_twice(machine: Machine) -> None:
    assert machine.node is not None
    partition = machine.node.partitions["here", 0]
    answer = _Client(machine).ask(_markers(0, 0, 0), 1)
    assert _codes(answer.markers[0].topics[0].partitions) == [(0, 0)]
    assert partition.log.end_offset == 1


def _beat(share: bool, names: list[str]) -> Any:
    if share:
        return ShareGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=0, subscribed_topic_names=names)
    return ConsumerGroupHeartbeatRequest(
        group_id="group-0",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=names,
        topic_partitions=[],
    )


@pytest.mark.parametrize("share", [False, True])
def test_a_name_that_a_long_heartbeat_repeats_counts_once(machine: Machine, share: bool) -> None:
    client = _Client(machine)
    client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 6)
    names = [f"topic-{number:060d}" for number in range(600)]
    answer = client.ask(_beat(share, names * 30), 1)
    assert answer.error_code == 0, "600 names have 40 KB, and each of them 30 times has more than a batch may have"
    if share:
        described: Any = client.ask(ShareGroupDescribeRequest(group_ids=["g"]), 1)
    else:
        described = client.ask(ConsumerGroupDescribeRequest(group_ids=["group-0"]), 1)
    assert described.groups[0].members[0].subscribed_topic_names == names


@pytest.mark.parametrize("share", [False, True])
def test_more_names_than_a_record_has_room_for_are_refused(machine: Machine, share: bool) -> None:
    client = _Client(machine)
    client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 6)
    answer = client.ask(_beat(share, [f"topic-{number:0100d}" for number in range(10_500)]), 1)
    assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert client.ask(_beat(share, ["here"]), 1).error_code == 0, "the group goes on"


def test_an_offset_commit_that_is_larger_than_a_batch_is_refused_whole_and_one_as_large_is_written(
    machine: Machine,
) -> None:
    client = _Client(machine)

    def committed(count: int) -> tuple[set[int], int]:
        partitions = [
            OffsetCommitRequestPartition(partition_index=0, committed_offset=number, committed_metadata="x" * 1000)
            for number in range(count)
        ]
        topics = [OffsetCommitRequestTopic(name="here", partitions=partitions)]
        (topic,) = client.ask(OffsetCommitRequest(group_id="group-0", topics=topics), 8).topics
        assert len(topic.partitions) == count
        asked = fetched.OffsetFetchRequestTopics(name="here", partition_indexes=[0])
        group = fetched.OffsetFetchRequestGroup(group_id="group-0", topics=[asked])
        (found,) = client.ask(fetched.OffsetFetchRequest(groups=[group]), 8).groups[0].topics[0].partitions
        return {each.error_code for each in topic.partitions}, found.committed_offset

    assert committed(900) == ({0}, 899)
    assert committed(1100) == ({ErrorCode.UNKNOWN_SERVER_ERROR}, 899)
