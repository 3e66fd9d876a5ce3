"""Requests that few clients send: not only that they are answered, but with what."""

from __future__ import annotations

from typing import Any

import pytest

import ottla
from ottla.kernel.error import ErrorCode
from ottla.kernel.ids import Uuid
from ottla.wire.api import ApiKey
from ottla.wire.api.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.wire.api.add_raft_voter import AddRaftVoterRequest
from ottla.wire.api.create_acls import AclCreation, CreateAclsRequest
from ottla.wire.api.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla.wire.api.describe_cluster import DescribeClusterRequest
from ottla.wire.api.describe_quorum import DescribeQuorumRequest, RequestPartitionData, RequestTopicData
from ottla.wire.api.describe_topic_partitions import Cursor, DescribeTopicPartitionsRequest, TopicRequest
from ottla.wire.api.list_config_resources import ListConfigResourcesRequest
from ottla.wire.api.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.wire.api.remove_raft_voter import RemoveRaftVoterRequest
from ottla.wire.api.unregister_broker import UnregisterBrokerRequest
from tests.broker.test_produce_fetch import batch, produce_request, produced
from tests.broker.test_transaction import begun
from tests.broker.test_versions import _filled
from tests.broker.wire_client import WireClient


@pytest.fixture(scope="module")
def topic(node: ottla.Node) -> str:
    node.create_topic("seldom", partitions=3)
    with WireClient(node.bootstrap_servers) as client:
        produced(client, produce_request("seldom", batch(b"a", b"b", b"c")))
    return "seldom"


@pytest.mark.parametrize(
    ("partition", "current_epoch", "epoch", "answer"),
    [
        (0, -1, 0, (ErrorCode.NONE, 0, 3)),
        (0, 0, 0, (ErrorCode.NONE, 0, 3)),
        (0, -1, 5, (ErrorCode.NONE, -1, -1)),
        (1, -1, 0, (ErrorCode.NONE, 0, 0)),
        (0, 7, 0, (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1)),
        (9, -1, 0, (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1)),
    ],
)
@pytest.mark.parametrize("version", [2, 4])
def test_an_epoch_ends_where_the_next_begins_or_the_log_ends(
    client: WireClient, topic: str, version: int, partition: int, current_epoch: int, epoch: int, answer: Any
) -> None:
    asked = OffsetForLeaderPartition(partition=partition, current_leader_epoch=current_epoch, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic, partitions=[asked])])
    (found,) = client.ask(request, version).topics[0].partitions
    assert (found.partition, (found.error_code, found.leader_epoch, found.end_offset)) == (partition, answer)


@pytest.mark.parametrize(
    ("name", "other_id", "other_epoch", "code"),
    [
        ("seldom-1", 0, 0, ErrorCode.NONE),
        ("seldom-2", 1, 0, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        ("seldom-3", 0, 1, ErrorCode.PRODUCER_FENCED),
    ],
)
def test_offsets_join_the_transaction_of_their_own_producer(
    client: WireClient, name: str, other_id: int, other_epoch: int, code: ErrorCode
) -> None:
    mine = begun(client, name)
    request = AddOffsetsToTxnRequest(
        transactional_id=name,
        producer_id=mine.producer_id + other_id,
        producer_epoch=mine.producer_epoch + other_epoch,
        group_id="g",
    )
    assert client.ask(request, 4).error_code == code


def test_the_quorum_is_this_node_and_its_log_grows(node: ottla.Node, client: WireClient) -> None:
    def described() -> Any:
        partition = RequestPartitionData(partition_index=0)
        request = DescribeQuorumRequest(
            topics=[RequestTopicData(topic_name="__cluster_metadata", partitions=[partition])]
        )
        answer = client.ask(request, 2)
        assert [each.node_id for each in answer.nodes] == [1]
        (found,) = answer.topics[0].partitions
        return found

    before = described()
    assert (before.error_code, before.leader_id, before.leader_epoch) == (ErrorCode.NONE, 1, 1)
    (voter,) = before.current_voters
    assert (voter.replica_id, voter.log_end_offset) == (1, before.high_watermark)
    assert before.observers == []
    node.create_topic("seldom-quorum")
    assert described().high_watermark > before.high_watermark


def test_topics_are_described_a_page_at_a_time(client: WireClient, topic: str) -> None:
    numbers: list[int] = []
    cursor: Cursor | None = None
    for _ in range(2):
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=topic)], response_partition_limit=2, cursor=cursor
        )
        answer = client.ask(request, 0)
        (found,) = answer.topics
        assert (found.error_code, found.name) == (ErrorCode.NONE, topic)
        assert all((each.leader_id, each.isr_nodes) == (1, [1]) for each in found.partitions)
        numbers += [each.partition_index for each in found.partitions]
        cursor = answer.next_cursor
    assert (numbers, cursor) == ([0, 1, 2], None)
    (missing,) = client.ask(DescribeTopicPartitionsRequest(topics=[TopicRequest(name="not-there")]), 0).topics
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_full_page_ends_before_the_first_topic_that_is_not_there(client: WireClient, topic: str) -> None:
    missing = [f"{topic}-missing-1", f"{topic}-missing-2"]

    def page(cursor: Cursor | None) -> Any:
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in (topic, *missing)], response_partition_limit=3, cursor=cursor
        )
        return client.ask(request, 0)

    first = page(None)
    assert [(each.name, len(each.partitions)) for each in first.topics] == [(topic, 3)]
    assert (first.next_cursor.topic_name, first.next_cursor.partition_index) == (missing[0], 0)
    second = page(first.next_cursor)
    assert [each.name for each in second.topics] == missing
    assert second.next_cursor is None


def test_a_page_begins_at_its_cursor(node: ottla.Node, client: WireClient, topic: str) -> None:
    def page(names: list[str], limit: int, *cursor: Any) -> tuple[list[tuple[str, list[int]]], Any]:
        answer = client.ask(
            DescribeTopicPartitionsRequest(
                topics=[TopicRequest(name=name) for name in names],
                response_partition_limit=limit,
                cursor=Cursor(topic_name=cursor[0], partition_index=cursor[1]) if cursor else None,
            ),
            0,
        )
        following = answer.next_cursor
        shown = [(each.name, [part.partition_index for part in each.partitions]) for each in answer.topics]
        return shown, following and (following.topic_name, following.partition_index)

    other = f"{topic}-page"
    node.create_topic(other, partitions=2)
    both = [other, topic, topic]
    assert page(both, 0) == ([(topic, [0])], (topic, 1)), "one at least"
    assert page(both, 3) == ([(topic, [0, 1, 2])], (other, 0))
    assert page(both, 4) == ([(topic, [0, 1, 2]), (other, [0])], (other, 1))
    assert page(both, 5) == ([(topic, [0, 1, 2]), (other, [0, 1])], None)
    assert page(both, 9, topic, 2) == ([(topic, [2]), (other, [0, 1])], None)
    assert page(both, 9, other, 1) == ([(other, [1])], None)
    # A topic that has become smaller does not make the page larger.
    assert page(both, 2, topic, 9) == ([(topic, []), (other, [0, 1])], None)
    assert page([*both, f"{topic}-z"], 2, topic, 9) == ([(topic, []), (other, [0, 1])], (f"{topic}-z", 0))
    # With no topics named, all are meant, and the one of the cursor may be gone.
    shown, _ = page([], 9, f"{topic}-gone", 7)
    assert (other, [0, 1]) in shown
    assert topic not in dict(shown)


@pytest.mark.parametrize(("name", "index"), [("seldom", -1), ("seldom-other", 0)])
def test_a_cursor_that_fits_no_page_is_refused(client: WireClient, topic: str, name: str, index: int) -> None:
    cursor = Cursor(topic_name=name, partition_index=index)
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=topic)], cursor=cursor)
    (found,) = client.ask(request, 0).topics
    assert (found.error_code, found.name, found.partitions) == (ErrorCode.INVALID_REQUEST, topic, [])


def test_a_name_that_no_topic_can_have_is_told_from_one_that_none_has(client: WireClient) -> None:
    names = ["__share_group_state", "no such", "none"]
    found = client.ask(DescribeTopicPartitionsRequest(topics=[TopicRequest(name=name) for name in names]), 0).topics
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [each.error_code for each in found] == [missing, ErrorCode.INVALID_TOPIC_EXCEPTION, missing]
    assert [each.is_internal for each in found] == [True, False, False]


@pytest.mark.parametrize(
    ("endpoint_type", "code", "words"),
    [
        (1, ErrorCode.NONE, None),
        (
            2,
            ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER",
        ),
        (7, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, "Unsupported endpoint type 7"),
    ],
)
def test_a_broker_describes_brokers_only(
    client: WireClient, endpoint_type: int, code: ErrorCode, words: str | None
) -> None:
    answer = client.ask(DescribeClusterRequest(endpoint_type=endpoint_type), 1)
    assert (answer.error_code, answer.error_message) == (code, words)
    assert [each.broker_id for each in answer.brokers] == ([1] if code is ErrorCode.NONE else [])


def test_config_resources_are_listed_by_their_type(client: WireClient, topic: str) -> None:
    topics, brokers = 2, 4
    found = client.ask(ListConfigResourcesRequest(resource_types=[topics]), 1).config_resources
    assert (topic, topics) in {(each.resource_name, each.resource_type) for each in found}
    assert {each.resource_type for each in found} == {topics}
    found = client.ask(ListConfigResourcesRequest(resource_types=[brokers]), 1).config_resources
    assert [(each.resource_name, each.resource_type) for each in found] == [("1", brokers)]
    every = client.ask(ListConfigResourcesRequest(resource_types=[]), 1).config_resources
    assert {topics, brokers} <= {each.resource_type for each in every}


def test_a_broker_that_is_not_there_is_not_unregistered(client: WireClient) -> None:
    answer = client.ask(UnregisterBrokerRequest(broker_id=77), 0)
    assert answer.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert answer.error_message == "Broker ID 77 is not currently registered"


@pytest.mark.parametrize("request_", [AddRaftVoterRequest(voter_id=5), RemoveRaftVoterRequest(voter_id=5)])
def test_voters_of_another_cluster_are_refused(client: WireClient, request_: Any) -> None:
    request_.cluster_id = "another"
    answer = client.ask(request_, 0)
    assert answer.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
    assert '"another"' in answer.error_message


def test_without_an_authorizer_rules_are_refused_as_such(client: WireClient) -> None:
    creation = AclCreation(
        resource_type=2,
        resource_name="t",
        resource_pattern_type=3,
        principal="User:ann",
        host="*",
        operation=3,
        permission_type=3,
    )
    pattern = DeleteAclsFilter(
        resource_type_filter=2,
        resource_name_filter="t",
        pattern_type_filter=3,
        principal_filter=None,
        host_filter=None,
        operation=3,
        permission_type=3,
    )
    described = client.ask(_filled(ApiKey.DESCRIBE_ACLS, 3, Uuid(b"\1" * 16)), 3)
    (created,) = client.ask(CreateAclsRequest(creations=[creation]), 3).results
    (deleted,) = client.ask(DeleteAclsRequest(filters=[pattern]), 3).filter_results
    assert {each.error_code for each in (described, created, deleted)} == {ErrorCode.SECURITY_DISABLED}


@pytest.mark.parametrize(
    ("key", "version"),
    [
        (ApiKey.CREATE_DELEGATION_TOKEN, 3),
        (ApiKey.DESCRIBE_DELEGATION_TOKEN, 3),
        (ApiKey.RENEW_DELEGATION_TOKEN, 2),
        (ApiKey.EXPIRE_DELEGATION_TOKEN, 2),
    ],
)
def test_delegation_tokens_are_refused_over_a_plain_listener(client: WireClient, key: ApiKey, version: int) -> None:
    answer = client.ask(_filled(key, version, Uuid(b"\1" * 16)), version)
    assert ErrorCode(answer.error_code) in (
        ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
        ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED,
    )
