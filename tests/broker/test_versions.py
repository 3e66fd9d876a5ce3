"""Every API in every version that is offered, asked for something real: the answer fits the version."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import ottla
from ottla.broker.dispatch.dispatch import HANDLERS
from ottla.kernel.ids import NO_UUID, Uuid
from ottla.wire.api import (
    API,
    ApiKey,
    alter_configs,
    create_partitions,
    create_topics,
    delete_records,
    describe_configs,
    describe_quorum,
    describe_share_group_offsets,
    fetch,
    incremental_alter_configs,
    join_group,
    leave_group,
    list_offsets,
    metadata,
    offset_commit,
    offset_fetch,
    produce,
    share_fetch,
    txn_offset_commit,
)
from ottla.wire.api import add_partitions_to_txn as add
from ottla.wire.api import consumer_group_heartbeat as heartbeat
from ottla.wire.api import offset_for_leader_epoch as epochs
from ottla.wire.batch import build
from ottla.wire.compile import encode
from tests.broker.wire_client import WireClient

Fill = Callable[[Any, int, Uuid], None]

RECORDS = build([(1_700_000_000_000, b"k", b"v", [])])


def _produce(request: Any, version: int, topic_id: Uuid) -> None:
    topic = produce.TopicProduceData(partition_data=[produce.PartitionProduceData(index=0, records=RECORDS)])
    _name(topic, "name", version >= 13, topic_id)
    request.acks, request.timeout_ms, request.topic_data = -1, 1000, [topic]


def _fetch(request: Any, version: int, topic_id: Uuid) -> None:
    partition = fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topic = fetch.FetchTopic(partitions=[partition])
    _name(topic, "topic", version >= 13, topic_id)
    request.max_wait_ms, request.max_bytes, request.topics = 0, 1 << 20, [topic]
    request.isolation_level = 1
    if version < 15:
        request.replica_id = -1


def _list_offsets(request: Any, version: int, topic_id: Uuid) -> None:
    asked = [list_offsets.ListOffsetsPartition(partition_index=0, timestamp=-1)]
    request.topics = [list_offsets.ListOffsetsTopic(name="t", partitions=asked)]


def _metadata(request: Any, version: int, topic_id: Uuid) -> None:
    asked = [metadata.MetadataRequestTopic(name="t"), metadata.MetadataRequestTopic(name="no such topic")]
    request.topics = asked
    if version >= 8:
        request.include_topic_authorized_operations = True
    if 8 <= version <= 10:
        request.include_cluster_authorized_operations = True


def _offset_commit(request: Any, version: int, topic_id: Uuid) -> None:
    partition = offset_commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topic = offset_commit.OffsetCommitRequestTopic(partitions=[partition])
    _name(topic, "name", version >= 10, topic_id)
    request.group_id, request.topics = "commits", [topic]


def _offset_fetch(request: Any, version: int, topic_id: Uuid) -> None:
    if version < 8:
        request.group_id = "commits"
        request.topics = [offset_fetch.OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
    else:
        topic = offset_fetch.OffsetFetchRequestTopics(partition_indexes=[0])
        _name(topic, "name", version >= 10, topic_id)
        request.groups = [offset_fetch.OffsetFetchRequestGroup(group_id="commits", topics=[topic])]


def _find_coordinator(request: Any, version: int, topic_id: Uuid) -> None:
    if version < 4:
        request.key = "g"
    else:
        request.coordinator_keys = ["g", "h"]


def _join_group(request: Any, version: int, topic_id: Uuid) -> None:
    request.group_id, request.protocol_type, request.session_timeout_ms = f"join-{version}", "consumer", 10_000
    if version >= 1:
        request.rebalance_timeout_ms = 10_000
    request.protocols = [join_group.JoinGroupRequestProtocol(name="range", metadata=b"x")]


def _leave_group(request: Any, version: int, topic_id: Uuid) -> None:
    request.group_id = "left"
    if version < 3:
        request.member_id = "nobody"
    else:
        request.members = [leave_group.MemberIdentity(member_id="nobody")]


def _create_topics(request: Any, version: int, topic_id: Uuid) -> None:
    good = create_topics.CreatableTopic(name=f"made-{version}", num_partitions=1, replication_factor=1)
    bad = create_topics.CreatableTopic(name="bad name!", num_partitions=1, replication_factor=1)
    request.topics, request.timeout_ms = [good, bad], 1000


def _delete_topics(request: Any, version: int, topic_id: Uuid) -> None:
    from ottla.wire.api.delete_topics import DeleteTopicState

    if version < 6:
        request.topic_names = ["nowhere"]
    else:
        request.topics = [DeleteTopicState(name="nowhere"), DeleteTopicState(name=None, topic_id=Uuid(b"\7" * 16))]


def _create_partitions(request: Any, version: int, topic_id: Uuid) -> None:
    request.topics = [create_partitions.CreatePartitionsTopic(name="t", count=1, assignments=None)]
    request.timeout_ms = 1000


def _delete_records(request: Any, version: int, topic_id: Uuid) -> None:
    partition = delete_records.DeleteRecordsPartition(partition_index=0, offset=0)
    request.topics = [delete_records.DeleteRecordsTopic(name="t", partitions=[partition])]


def _describe_configs(request: Any, version: int, topic_id: Uuid) -> None:
    request.resources = [
        describe_configs.DescribeConfigsResource(resource_type=2, resource_name="t", configuration_keys=None),
        describe_configs.DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None),
        describe_configs.DescribeConfigsResource(resource_type=8, resource_name="1", configuration_keys=None),
        describe_configs.DescribeConfigsResource(resource_type=2, resource_name="nowhere", configuration_keys=None),
    ]
    request.include_synonyms = True
    if version >= 3:
        request.include_documentation = True


def _incremental(request: Any, version: int, topic_id: Uuid) -> None:
    change = incremental_alter_configs.AlterableConfig(name="retention.ms", config_operation=0, value="1000000")
    request.resources = [
        incremental_alter_configs.AlterConfigsResource(resource_type=2, resource_name="t", configs=[change])
    ]


def _alter_configs(request: Any, version: int, topic_id: Uuid) -> None:
    change = alter_configs.AlterableConfig(name="retention.ms", value="1000001")
    request.resources = [alter_configs.AlterConfigsResource(resource_type=2, resource_name="t", configs=[change])]


def _epochs(request: Any, version: int, topic_id: Uuid) -> None:
    partition = epochs.OffsetForLeaderPartition(partition=0, leader_epoch=0)
    request.topics = [epochs.OffsetForLeaderTopic(topic="t", partitions=[partition])]
    if version >= 3:
        request.replica_id = -1


def _add_partitions(request: Any, version: int, topic_id: Uuid) -> None:
    topic = add.AddPartitionsToTxnTopic(name="t", partitions=[0])
    if version < 4:
        request.v3_and_below_transactional_id, request.v3_and_below_topics = "x", [topic]
    else:
        request.transactions = [add.AddPartitionsToTxnTransaction(transactional_id="x", topics=[topic])]


def _txn_offset_commit(request: Any, version: int, topic_id: Uuid) -> None:
    partition = txn_offset_commit.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    request.transactional_id, request.group_id = "x", "commits"
    request.topics = [txn_offset_commit.TxnOffsetCommitRequestTopic(name="t", partitions=[partition])]


def _consumer_heartbeat(request: Any, version: int, topic_id: Uuid) -> None:
    request.group_id, request.member_epoch = f"beats-{version}", 0
    request.member_id = "AAAAAAAAAAAAAAAAAAAAAQ"
    request.rebalance_timeout_ms, request.subscribed_topic_names = 10_000, ["t"]
    request.topic_partitions = []


def _describe_quorum(request: Any, version: int, topic_id: Uuid) -> None:
    partition = describe_quorum.RequestPartitionData(partition_index=0)
    request.topics = [
        describe_quorum.RequestTopicData(topic_name="__cluster_metadata", partitions=[partition]),
        describe_quorum.RequestTopicData(topic_name="t", partitions=[partition]),
    ]


def _init_producer_id(request: Any, version: int, topic_id: Uuid) -> None:
    request.transactional_id, request.transaction_timeout_ms = "x", 10_000


def _share_heartbeat(request: Any, version: int, topic_id: Uuid) -> None:
    request.group_id, request.member_id, request.subscribed_topic_names = "shares", "m", ["t"]


def _share_fetch(request: Any, version: int, topic_id: Uuid) -> None:
    request.group_id, request.member_id = "shares", "m"
    request.max_records, request.batch_size = 10, 10
    request.topics = [
        share_fetch.FetchTopic(topic_id=topic_id, partitions=[share_fetch.FetchPartition(partition_index=0)])
    ]


def _named(**fields: Any) -> Fill:
    def fill(request: Any, version: int, topic_id: Uuid) -> None:
        for name, value in fields.items():
            setattr(request, name, value)

    return fill


def _name(topic: Any, field: str, by_id: bool, topic_id: Uuid) -> None:
    if by_id:
        topic.topic_id = topic_id
    else:
        setattr(topic, field, "t")


FILLS: dict[int, Fill] = {
    ApiKey.PRODUCE: _produce,
    ApiKey.FETCH: _fetch,
    ApiKey.LIST_OFFSETS: _list_offsets,
    ApiKey.METADATA: _metadata,
    ApiKey.OFFSET_COMMIT: _offset_commit,
    ApiKey.OFFSET_FETCH: _offset_fetch,
    ApiKey.FIND_COORDINATOR: _find_coordinator,
    ApiKey.JOIN_GROUP: _join_group,
    ApiKey.SYNC_GROUP: _named(group_id="sync", member_id="nobody", generation_id=1),
    ApiKey.HEARTBEAT: _named(group_id="beat", member_id="nobody", generation_id=1),
    ApiKey.LEAVE_GROUP: _leave_group,
    ApiKey.DESCRIBE_GROUPS: _named(groups=["commits", "nobody's"]),
    ApiKey.LIST_GROUPS: _named(),
    ApiKey.DELETE_GROUPS: _named(groups_names=["nobody's", "nothing"]),
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.CREATE_PARTITIONS: _create_partitions,
    ApiKey.DELETE_RECORDS: _delete_records,
    ApiKey.DESCRIBE_CONFIGS: _describe_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _incremental,
    ApiKey.ALTER_CONFIGS: _alter_configs,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _epochs,
    ApiKey.ADD_PARTITIONS_TO_TXN: _add_partitions,
    ApiKey.ADD_OFFSETS_TO_TXN: _named(transactional_id="x", group_id="commits"),
    ApiKey.END_TXN: _named(transactional_id="x"),
    ApiKey.TXN_OFFSET_COMMIT: _txn_offset_commit,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _consumer_heartbeat,
    ApiKey.CONSUMER_GROUP_DESCRIBE: _named(group_ids=["beats-0", "nobody's"]),
    ApiKey.SHARE_GROUP_HEARTBEAT: _share_heartbeat,
    ApiKey.SHARE_GROUP_DESCRIBE: _named(group_ids=["shares", "nobody's"]),
    ApiKey.SHARE_FETCH: _share_fetch,
    ApiKey.SHARE_ACKNOWLEDGE: _named(group_id="shares", member_id="nobody", share_session_epoch=1),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: _named(
        groups=[describe_share_group_offsets.DescribeShareGroupOffsetsRequestGroup(group_id="shares", topics=None)]
    ),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: _named(group_id="nobody's"),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: _named(group_id="nobody's"),
    ApiKey.DESCRIBE_TRANSACTIONS: _named(transactional_ids=["x", "", "y"]),
    ApiKey.DESCRIBE_LOG_DIRS: _named(topics=None),
    ApiKey.INIT_PRODUCER_ID: _init_producer_id,
    ApiKey.DESCRIBE_QUORUM: _describe_quorum,
    ApiKey.API_VERSIONS: _named(),
    ApiKey.DESCRIBE_ACLS: _named(resource_type_filter=1, operation=1, permission_type=1),
}


@pytest.fixture(scope="module")
def topic_id(node: ottla.Node) -> Uuid:
    node.create_topic("t")
    with WireClient(node.bootstrap_servers) as client:
        client.ask(_filled(ApiKey.PRODUCE, 9, NO_UUID), 9)
        asked = metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name="t")])
        found: Uuid = client.ask(asked, 12).topics[0].topic_id
    return found


def _filled(key: int, version: int, topic_id: Uuid) -> Any:
    request = API[ApiKey(key)].request()
    if key in FILLS:
        FILLS[key](request, version, topic_id)
    if key == ApiKey.API_VERSIONS and version >= 3:
        request.client_software_name = request.client_software_version = "test"
    return request


def test_every_request_here_can_be_written() -> None:
    for key in FILLS:
        for version in API[ApiKey(key)].stable_versions:
            encode(_filled(key, version, Uuid(b"\1" * 16)), version)


@pytest.mark.parametrize("key", sorted(HANDLERS), ids=lambda key: API[ApiKey(key)].name)
def test_every_version_is_answered(node: ottla.Node, topic_id: Uuid, key: int) -> None:
    for version in API[ApiKey(key)].stable_versions:
        with WireClient(node.bootstrap_servers) as client:
            client.ask(_filled(key, version, topic_id), version)


def test_a_consumer_heartbeat_joins(client: WireClient, topic_id: Uuid) -> None:
    request = heartbeat.ConsumerGroupHeartbeatRequest()
    _consumer_heartbeat(request, 1, topic_id)
    request.group_id = "joins"
    assert client.ask(request, 1).error_code == 0
