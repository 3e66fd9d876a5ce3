"""A request of each API as `test_authorizer` sends it: the name, the version and what draws its values by a seed."""

import random
from collections.abc import Callable
from typing import Any

from tests.interop.oracle.test_record import batch

TOPICS = ("orders", "orders-2", "payments", "secret", "absent")
GROUPS = ("app", "app-2", "other")
IDS = ("txn", "txn-2", "job")

Draw = random.Random
Make = Callable[[Draw], dict[str, Any]]


def _topics(draw: Draw, field: str = "name", **more: Any) -> list[dict[str, Any]]:
    return [{field: name, **more} for name in draw.sample(TOPICS, draw.randint(1, 3))]


def _group(draw: Draw) -> str:
    return draw.choice(GROUPS)


def _acl_filter(draw: Draw) -> dict[str, Any]:
    return {
        "resource_type_filter": draw.choice((1, 2, 3)),
        "resource_name_filter": draw.choice((None, "orders", "orders-2", "app")),
        "pattern_type_filter": draw.choice((1, 2, 3, 4)),
        "principal_filter": draw.choice((None, "User:ann")),
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }


def _resources(draw: Draw, **more: Any) -> list[dict[str, Any]]:
    names = [(2, name) for name in TOPICS] + [(4, "1"), (4, ""), (32, "app"), (16, "m"), (8, "1")]
    return [{"resource_type": kind, "resource_name": name, **more} for kind, name in draw.sample(names, 3)]


def _offsets(draw: Draw) -> list[dict[str, Any]]:
    part = {"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}
    return _topics(draw, partitions=[part])


PARTITIONS = {"partition_index": 0}
REQUESTS: list[tuple[str, int, Make]] = [
    ("Metadata", 12, lambda d: {"topics": _topics(d), "include_topic_authorized_operations": True}),
    ("Metadata", 8, lambda d: {"topics": _topics(d), "include_cluster_authorized_operations": True}),
    ("Metadata", 1, lambda d: {"topics": None}),
    ("DescribeTopicPartitions", 0, lambda d: {"topics": _topics(d)}),
    (
        "Produce",
        9,
        lambda d: {
            "acks": 1,
            "timeout_ms": 1000,
            "topic_data": _topics(d, partition_data=[{"index": 0, "records": batch(1)}]),
        },
    ),
    (
        "Fetch",
        12,
        lambda d: {
            "max_wait_ms": 0,
            "session_epoch": -1,
            "topics": _topics(d, "topic", partitions=[{"partition": 0, "partition_max_bytes": 1000}]),
        },
    ),
    ("ListOffsets", 7, lambda d: {"topics": _topics(d, partitions=[{"partition_index": 0, "timestamp": -1}])}),
    (
        "OffsetForLeaderEpoch",
        4,
        lambda d: {"topics": _topics(d, "topic", partitions=[{"partition": 0, "leader_epoch": 0}])},
    ),
    (
        "DeleteRecords",
        2,
        lambda d: {"timeout_ms": 1000, "topics": _topics(d, partitions=[{"partition_index": 0, "offset": 0}])},
    ),
    ("DescribeProducers", 0, lambda d: {"topics": _topics(d, partition_indexes=[0])}),
    ("FindCoordinator", 4, lambda d: {"key_type": 0, "coordinator_keys": d.sample(GROUPS, 2)}),
    ("FindCoordinator", 3, lambda d: {"key_type": 0, "key": _group(d)}),
    ("FindCoordinator", 6, lambda d: {"key_type": 2, "coordinator_keys": ["app:AAAAAAAAAAAAAAAAAAAAAQ:0"]}),
    ("Heartbeat", 4, lambda d: {"group_id": _group(d), "member_id": "m", "generation_id": 1}),
    ("LeaveGroup", 5, lambda d: {"group_id": _group(d), "members": [{"member_id": "m"}]}),
    ("SyncGroup", 5, lambda d: {"group_id": _group(d), "member_id": "m", "generation_id": 1}),
    ("JoinGroup", 9, lambda d: {"group_id": _group(d), "session_timeout_ms": 1, "protocol_type": "consumer"}),
    (
        "OffsetCommit",
        8,
        lambda d: {"group_id": _group(d), "generation_id_or_member_epoch": -1, "topics": _offsets(d)},
    ),
    ("OffsetFetch", 7, lambda d: {"group_id": _group(d), "topics": _topics(d, partition_indexes=[0])}),
    ("OffsetFetch", 7, lambda d: {"group_id": _group(d), "topics": None}),
    (
        "OffsetFetch",
        9,
        lambda d: {
            "groups": [{"group_id": each, "topics": _topics(d, partition_indexes=[0])} for each in d.sample(GROUPS, 2)]
        },
    ),
    ("OffsetFetch", 9, lambda d: {"groups": [{"group_id": _group(d), "topics": None}]}),
    (
        "OffsetDelete",
        0,
        lambda d: {"group_id": _group(d), "topics": [{"name": "payments", "partitions": [PARTITIONS]}]},
    ),
    ("DescribeGroups", 5, lambda d: {"groups": d.sample(GROUPS, 2), "include_authorized_operations": True}),
    ("ConsumerGroupDescribe", 1, lambda d: {"group_ids": d.sample(GROUPS, 2), "include_authorized_operations": True}),
    ("DeleteGroups", 2, lambda d: {"groups_names": ["app-none", "none"]}),
    ("ListGroups", 4, lambda d: {}),
    (
        "ConsumerGroupHeartbeat",
        1,
        lambda d: {
            "group_id": "app-none",
            "member_id": "m",
            "member_epoch": 5,
            "subscribed_topic_names": [each["name"] for each in _topics(d)],
        },
    ),
    (
        "ConsumerGroupHeartbeat",
        1,
        lambda d: {
            "group_id": "app-none",
            "member_id": "m",
            "member_epoch": 5,
            "subscribed_topic_names": None,
            "subscribed_topic_regex": d.choice((".*", "orders.*")),
        },
    ),
    ("CreateTopics", 7, lambda d: {"validate_only": True, "timeout_ms": 9000, "topics": _creations(d)}),
    ("DeleteTopics", 5, lambda d: {"topic_names": ["absent", "orders-none"], "timeout_ms": 9000}),
    ("CreatePartitions", 3, lambda d: {"validate_only": True, "timeout_ms": 9000, "topics": _topics(d, count=4)}),
    ("DescribeConfigs", 4, lambda d: {"resources": _resources(d, configuration_keys=["retention.ms", "none"])}),
    ("IncrementalAlterConfigs", 1, lambda d: {"validate_only": True, "resources": _resources(d, configs=[])}),
    ("AlterConfigs", 2, lambda d: {"validate_only": True, "resources": _resources(d, configs=[])}),
    ("ListConfigResources", 1, lambda d: {"resource_types": [2]}),
    ("DescribeLogDirs", 4, lambda d: {"topics": []}),
    (
        "AlterReplicaLogDirs",
        2,
        lambda d: {"dirs": [{"path": "/nowhere", "topics": [{"name": "orders", "partitions": [0]}]}]},
    ),
    ("InitProducerId", 4, lambda d: {"transactional_id": None, "transaction_timeout_ms": 1000}),
    ("InitProducerId", 4, lambda d: {"transactional_id": d.choice(IDS), "transaction_timeout_ms": 2_000_000_000}),
    (
        "AddPartitionsToTxn",
        3,
        lambda d: {
            "v3_and_below_transactional_id": d.choice(IDS),
            "v3_and_below_producer_id": 99_999,
            "v3_and_below_producer_epoch": 0,
            "v3_and_below_topics": _topics(d, partitions=[0]),
        },
    ),
    (
        "AddOffsetsToTxn",
        3,
        lambda d: {
            "transactional_id": d.choice(IDS),
            "producer_id": 99_999,
            "producer_epoch": 0,
            "group_id": _group(d),
        },
    ),
    ("EndTxn", 3, lambda d: {"transactional_id": d.choice(IDS), "producer_id": 99_999, "producer_epoch": 0}),
    ("DescribeTransactions", 0, lambda d: {"transactional_ids": d.sample(IDS, 2)}),
    ("ListTransactions", 1, lambda d: {}),
    (
        "WriteTxnMarkers",
        1,
        lambda d: {
            "markers": [
                {
                    "producer_id": 99_999,
                    "producer_epoch": 0,
                    "transaction_result": True,
                    "coordinator_epoch": 0,
                    "topics": [{"name": "absent", "partition_indexes": [0]}],
                }
            ]
        },
    ),
    ("DescribeCluster", 1, lambda d: {"include_cluster_authorized_operations": True}),
    ("DescribeClientQuotas", 1, lambda d: {"components": [], "strict": False}),
    ("AlterClientQuotas", 1, lambda d: {"entries": [_quota()], "validate_only": True}),
    ("DescribeUserScramCredentials", 0, lambda d: {"users": [{"name": "nobody"}]}),
    ("AlterUserScramCredentials", 0, lambda d: {"deletions": [{"name": "nobody", "mechanism": 1}], "upsertions": []}),
    ("DescribeAcls", 3, _acl_filter),
    ("DeleteAcls", 3, lambda d: {"filters": [{**_acl_filter(d), "principal_filter": "User:none"}]}),
    ("CreateAcls", 3, lambda d: {"creations": [_wrong_rule(d)]}),
    ("UnregisterBroker", 0, lambda d: {"broker_id": 77}),
    ("ElectLeaders", 2, lambda d: {"topic_partitions": [{"topic": "orders", "partitions": [0]}], "timeout_ms": 9000}),
    (
        "AlterPartitionReassignments",
        0,
        lambda d: {"topics": _topics(d, partitions=[{"partition_index": 9}]), "timeout_ms": 9000},
    ),
    ("ListPartitionReassignments", 0, lambda d: {"topics": [{"name": "orders", "partition_indexes": [0]}]}),
    ("UpdateFeatures", 1, lambda d: {"feature_updates": [], "validate_only": True}),
    ("DescribeDelegationToken", 3, lambda d: {"owners": []}),
]


#: Share coordinators come up in their own time.
RANDOM = [each for each in REQUESTS if each[:2] != ("FindCoordinator", 6)]


def _creations(draw: Draw) -> list[dict[str, Any]]:
    return [
        {"name": name, "num_partitions": 1, "replication_factor": 1}
        for name in draw.sample(("orders", "orders-new", "pay-new", "absent"), 2)
    ]


def _quota() -> dict[str, Any]:
    entity = [{"entity_type": "user", "entity_name": "u"}]
    return {"entity": entity, "ops": [{"key": "producer_byte_rate", "value": 1000.0, "remove": False}]}


def _wrong_rule(draw: Draw) -> dict[str, Any]:
    right: dict[str, Any] = {
        "resource_type": 2,
        "resource_name": "orders",
        "resource_pattern_type": 3,
        "principal": "User:ann",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    return right | draw.choice(
        (
            {"resource_name": ""},
            {"principal": "ann"},
            {"resource_type": 4},
        )
    )
