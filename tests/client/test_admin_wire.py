"""What each admin call asks of a broker, field by field, and what it makes of an answer in which every field differs.

tests/golden/client/admin.txt holds both for each call: `>` and the request in Kafka's names, `=` and the result. A call
or a message that changes is written again with OTTLA_WRITE_ADMIN=1 in the environment, and read before it is committed.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from itertools import count, cycle
from pathlib import Path
from typing import Any

import pytest

from ottla.client import AsyncAdmin, CommittedOffset, GroupType, OffsetSpec, TopicPartition
from ottla.client.admin.acl import Acl, AclFilter, AclOperation, AclPermission, AclResource, PatternType
from ottla.client.admin.credential import ScramCredential, ScramDeletion, ScramMechanism
from ottla.client.admin.quota import AnyName
from ottla.client.admin.replica import Replica
from ottla.client.admin.result import AlterOperation, ConfigResource, Downgrade, NewTopic, ResourceType, Results
from ottla.client.connection.cluster import Cluster
from ottla.kernel.ids import Uuid
from ottla.log.dump.decoder import as_json, json_of
from ottla.wire.api.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.wire.record.consumer_protocol import (
    AssignedTopicPartition,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    pack,
)
from ottla.wire.schema import WireField, fields, schema

FILE = Path(__file__).parents[1] / "golden" / "client" / "admin.txt"
ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)
TOPIC, BROKER = ConfigResource(ResourceType.TOPIC, "t"), ConfigResource(ResourceType.BROKER, "1")
GROUP = ConfigResource(ResourceType.GROUP, "g")
TIMEOUT_MS = 1234
#: Fields whose value has a meaning of its own, wherever they stand.
FIXED: dict[str, Any] = {
    "error_code": 0,
    "error_message": None,
    "next_cursor": None,
    "unknown_state_filters": [],
    "member_assignment": pack(
        ConsumerProtocolAssignment(assigned_partitions=[AssignedTopicPartition(topic="t", partitions=[4, 2])])
    ),
    "member_metadata": pack(ConsumerProtocolSubscription(topics=["t", "u"])),
    "protocol_type": "consumer",
    "cluster_authorized_operations": 1 << 4,
    "topic_authorized_operations": 1 << 5,
    "authorized_operations": 1 << 6,
}
#: Names and numbers that were asked for or that say "none": the values of a message's field, in turn.
IN_TURN: dict[str, tuple[Any, ...]] = {
    "AlterConfigsResourceResponse.resource_name": ("t", "1", "g"),
    "AlterConfigsResourceResponse.resource_type": (2, 4, 32),
    "AlterReplicaLogDirPartitionResult.partition_index": (1, 0),
    "AlterReplicaLogDirTopicResult.topic_name": ("t", "u"),
    "AlterUserScramCredentialsResult.user": ("ann", "carl"),
    "CreatableTopicResult.name": ("t", "u"),
    "CreatePartitionsTopicResult.name": ("u", "t"),
    "DeletableTopicResult.name": ("u", "t"),
    "DeleteRecordsPartitionResult.partition_index": (0, 1),
    "DeleteRecordsTopicResult.name": ("t", "u"),
    "DescribeClusterBroker.broker_id": (2, 1),
    "DescribeClusterBroker.is_fenced": (True, False),
    "DescribeClusterResponse.controller_id": (1,),
    "DescribeConfigsResourceResult.config_source": (1, 77),
    "DescribeConfigsResourceResult.config_type": (4, 99, 0, 9, 10, -1),
    "DescribeConfigsResult.resource_name": ("t", "1", "g"),
    "DescribeConfigsResult.resource_type": (2, 4, 32),
    "DescribeConfigsSynonym.source": (5, 4),
    "DescribeShareGroupOffsetsResponsePartition.lag": (0, -1),
    "DescribeShareGroupOffsetsResponsePartition.start_offset": (-1, 4, 0),
    "DescribeTopicPartitionsResponsePartition.leader_id": (-1, 1, 2, 0),
    "DescribeTopicPartitionsResponseTopic.name": ("t", "u"),
    "FinalizedFeatureKey.name": ("b", "c"),
    "ListOffsetsPartitionResponse.leader_epoch": (0, -1),
    "ListOffsetsPartitionResponse.partition_index": (0, 1),
    "ListOffsetsTopicResponse.name": ("t", "u"),
    "ListedGroup.group_type": ("Share", "Consumer"),
    "Member.member_type": (1, -1),
    "MetadataResponsePartition.leader_id": (-1, 1, 2, 0),
    "MetadataResponseTopic.is_internal": (True, False),
    "MetadataResponseTopic.name": ("u", "t"),
    "OffsetFetchResponsePartition.committed_leader_epoch": (3, 0, -1),
    "OffsetFetchResponsePartition.committed_offset": (5, -1, 0),
    "OffsetFetchResponsePartitions.committed_leader_epoch": (3, 0, -1),
    "OffsetFetchResponsePartitions.committed_offset": (5, -1, 0),
    "PartitionResponse.partition_index": (0, 1),
    "PartitionResult.partition_id": (1, 0),
    "ProducerState.coordinator_epoch": (0, -1),
    "ProducerState.current_txn_start_offset": (-1, 0),
    "ReplicaElectionResult.topic": ("t", "u"),
    "SupportedFeatureKey.name": ("b", "a"),
    "TopicResponse.name": ("t", "u"),
    "UpdatableFeatureResult.feature": ("a", "b"),
}


class Broker:
    """It answers with two of everything; no two fields are alike, and later ones have smaller numbers."""

    def __init__(self, *, old: bool) -> None:
        self._old = old
        self.asked: list[str] = []

    def supports(self, *_: object) -> bool:
        return not self._old

    def version_of(self, *_: object) -> int:
        return 7 if self._old else 9

    @property
    def versions(self) -> dict[int, tuple[int, int]]:
        return {3: (0, 13), 999: (1, 2)}

    async def call(self, request: Any, response: type, *, timeout_ms: int, version: int | None = None) -> Any:
        assert timeout_ms == TIMEOUT_MS
        name = type(request).__name__
        if version is None:
            # The older ones name topics in another field.
            version = 5 if self._old and name == "DeleteTopicsRequest" else max(schema(type(request)).versions or ())
        self.asked.append(f"> {name} {as_json(json_of(request, version))}")
        return filled(response, Values())


class Values:
    """The values of one answer."""

    def __init__(self) -> None:
        self.numbers = count(240, -1)
        self._in_turn = {name: cycle(values) for name, values in IN_TURN.items()}

    def of(self, kind: type, field: WireField) -> Any:
        turn = self._in_turn.get(f"{kind.__name__}.{field.name}")
        return _one(field, self) if turn is None else next(turn)


def filled(kind: Any, values: Values) -> Any:
    made = kind()
    for field in fields(kind):
        if field.name in FIXED:
            setattr(made, field.name, FIXED[field.name])
        elif field.is_array:
            setattr(made, field.name, [values.of(kind, field) for _ in range(2)])
        else:
            setattr(made, field.name, values.of(kind, field))
    return made


def _one(field: WireField, values: Values) -> Any:
    if field.struct is not None:
        return filled(field.struct, values)
    number = next(values.numbers)
    match field.type:
        case "String":
            return f"{field.name}-{number:02}"
        case "Boolean":
            return number % 2 == 1
        case "Uuid":
            return Uuid(bytes([number]) * 16)
        case "Bytes" | "Records":
            return bytes([number])
        case "Float64":
            return number + 0.5
    return number


class OneBroker(Cluster):
    """The broker leads both partitions and is every coordinator."""

    broker: Broker

    async def any(self) -> Any:
        return self.broker

    async def node(self, *_: object) -> Any:
        return self.broker

    async def coordinator(self, *_: object, **__: object) -> Any:
        return self.broker

    def coordinator_id(self, *_: object) -> int:
        return 1

    async def update(self, *_: object) -> None:
        return


Call = Callable[[AsyncAdmin], Awaitable[Any]]
CALLS: dict[str, Call] = {
    "list_topics": lambda admin: admin.list_topics(),
    "list_topics, internal": lambda admin: admin.list_topics(internal=True),
    "describe_topics": lambda admin: admin.describe_topics(["t", "u"]),
    "describe_topics, operations": lambda admin: admin.describe_topics(["t"], include_authorized_operations=True),
    "create_topics": lambda admin: admin.create_topics(
        [NewTopic("t"), NewTopic("u", 3, 2, {"a": True, "b": ["x", "y"]})]
    ),
    "create_topics, assignments": lambda admin: admin.create_topics(
        [NewTopic("t", 3, 2, assignments={0: [1, 2], 1: (3, 1)})], validate_only=True
    ),
    "delete_topics": lambda admin: admin.delete_topics(["t", "u"]),
    "create_partitions": lambda admin: admin.create_partitions({"t": 3, "u": 4}, assignments={"u": [[1, 2]]}),
    "create_partitions, checked": lambda admin: admin.create_partitions({"t": 3}, validate_only=True),
    "elect_leaders": lambda admin: admin.elect_leaders([ONE, TWO], unclean=True),
    "elect_leaders, all": lambda admin: admin.elect_leaders(),
    "describe_configs": lambda admin: admin.describe_configs([TOPIC, BROKER, GROUP]),
    "describe_configs, more": lambda admin: admin.describe_configs([TOPIC], ["a"], synonyms=True, documentation=True),
    "alter_configs": lambda admin: admin.alter_configs(
        {TOPIC: {"a": 1, "b": None}, BROKER: {"c": (AlterOperation.APPEND, ["x", "y"])}}
    ),
    "alter_configs, checked": lambda admin: admin.alter_configs(
        {GROUP: {"a": (AlterOperation.SUBTRACT, "x")}}, validate_only=True
    ),
    "list_config_resources": lambda admin: admin.list_config_resources([ResourceType.TOPIC, ResourceType.GROUP]),
    "list_groups": lambda admin: admin.list_groups(),
    "list_groups, some": lambda admin: admin.list_groups(states=["Stable"], types=[GroupType.SHARE, GroupType.CLASSIC]),
    "describe_group": lambda admin: admin.describe_group("g"),
    "describe_group, operations": lambda admin: admin.describe_group("g", include_authorized_operations=True),
    "delete_groups": lambda admin: admin.delete_groups(["g", "h"]),
    "list_group_offsets": lambda admin: admin.list_group_offsets("g"),
    "list_group_offsets, some": lambda admin: admin.list_group_offsets("g", [TWO, ONE], stable=True),
    "alter_group_offsets": lambda admin: admin.alter_group_offsets("g", {ONE: 7, TWO: CommittedOffset(8, "why", 3)}),
    "delete_group_offsets": lambda admin: admin.delete_group_offsets("g", [ONE, TWO]),
    "describe_share_group": lambda admin: admin.describe_share_group("g"),
    "list_share_group_offsets": lambda admin: admin.list_share_group_offsets("g"),
    "list_share_group_offsets, some": lambda admin: admin.list_share_group_offsets("g", [TWO], unread=True),
    "alter_share_group_offsets": lambda admin: admin.alter_share_group_offsets("g", {ONE: 7, TWO: 8}),
    "delete_share_group_offsets": lambda admin: admin.delete_share_group_offsets("g", ["t", "u"]),
    "describe_streams_group": lambda admin: admin.describe_streams_group("g"),
    "list_offsets": lambda admin: admin.list_offsets({ONE: OffsetSpec.EARLIEST, TWO: 77}),
    "delete_records": lambda admin: admin.delete_records({ONE: 5, TWO: -1}),
    "alter_partition_reassignments": lambda admin: admin.alter_partition_reassignments({ONE: [1, 2], TWO: None}),
    "alter_partition_reassignments, fixed": lambda admin: admin.alter_partition_reassignments(
        {ONE: [1]}, allow_replication_factor_change=False
    ),
    "list_partition_reassignments": lambda admin: admin.list_partition_reassignments([ONE, TWO]),
    "list_partition_reassignments, all": lambda admin: admin.list_partition_reassignments(),
    "alter_replica_log_dirs": lambda admin: admin.alter_replica_log_dirs(
        {Replica("t", 0, 2): "/a", Replica("t", 1, 2): "/b", Replica("u", 0, 1): "/a"}
    ),
    "describe_producers": lambda admin: admin.describe_producers([ONE, TWO]),
    "describe_producers of a broker": lambda admin: admin.describe_producers([ONE], broker=3),
    "list_transactions": lambda admin: admin.list_transactions(),
    "list_transactions, some": lambda admin: admin.list_transactions(
        states=["Ongoing"], producer_ids=[7], duration_ms=5, pattern="x.*"
    ),
    "describe_transactions": lambda admin: admin.describe_transactions(["x", "y"]),
    "fence_producers": lambda admin: admin.fence_producers(["x"]),
    "describe_acls": lambda admin: admin.describe_acls(),
    "describe_acls, some": lambda admin: admin.describe_acls(
        AclFilter(AclResource.TOPIC, "t", "User:a", AclOperation.READ, AclPermission.DENY, PatternType.PREFIXED, "h")
    ),
    "create_acls": lambda admin: admin.create_acls(
        [
            Acl(AclResource.TOPIC, "t", "User:a", AclOperation.READ),
            Acl(AclResource.GROUP, "g", "User:b", AclOperation.ALL, AclPermission.DENY, PatternType.PREFIXED, "h"),
        ]
    ),
    "delete_acls": lambda admin: admin.delete_acls([AclFilter(AclResource.GROUP), AclFilter(name="t")]),
    "describe_client_quotas": lambda admin: admin.describe_client_quotas(),
    "describe_client_quotas, some": lambda admin: admin.describe_client_quotas(
        {"user": "ann", "client-id": None, "ip": AnyName()}, strict=True
    ),
    "alter_client_quotas": lambda admin: admin.alter_client_quotas(
        [({"user": "ann", "client-id": None}, {"producer_byte_rate": 5, "request_percentage": None})]
    ),
    "alter_client_quotas, checked": lambda admin: admin.alter_client_quotas(
        [({"ip": None}, {"connection_creation_rate": 1.5})], validate_only=True
    ),
    "describe_scram_credentials": lambda admin: admin.describe_scram_credentials(),
    "describe_scram_credentials, some": lambda admin: admin.describe_scram_credentials(["ann"]),
    "alter_scram_credentials": lambda admin: admin.alter_scram_credentials(
        [
            ScramCredential("ann", ScramMechanism.SCRAM_SHA_512, "secret", 4096, b"salt"),
            ScramCredential("bob", ScramMechanism.SCRAM_SHA_256, "secret", 4097, b"salt"),
            ScramDeletion("carl", ScramMechanism.SCRAM_SHA_256),
        ]
    ),
    "create_delegation_token": lambda admin: admin.create_delegation_token(),
    "create_delegation_token, more": lambda admin: admin.create_delegation_token(
        owner="User:ann", renewers=["bob", "Group:c:d"], max_lifetime_ms=5
    ),
    "renew_delegation_token": lambda admin: admin.renew_delegation_token(b"hmac"),
    "renew_delegation_token, more": lambda admin: admin.renew_delegation_token(b"hmac", renew_period_ms=5),
    "expire_delegation_token": lambda admin: admin.expire_delegation_token(b"hmac"),
    "expire_delegation_token, more": lambda admin: admin.expire_delegation_token(b"hmac", expiry_period_ms=5),
    "describe_delegation_tokens": lambda admin: admin.describe_delegation_tokens(),
    "describe_delegation_tokens, some": lambda admin: admin.describe_delegation_tokens(["ann", "Other:b"]),
    "describe_cluster": lambda admin: admin.describe_cluster(),
    "describe_cluster, more": lambda admin: admin.describe_cluster(
        include_fenced=True, include_authorized_operations=True
    ),
    "unregister_broker": lambda admin: admin.unregister_broker(7),
    "describe_log_dirs": lambda admin: admin.describe_log_dirs(),
    "describe_log_dirs, some": lambda admin: admin.describe_log_dirs([3], [ONE, TWO]),
    "describe_quorum": lambda admin: admin.describe_quorum(),
    "describe_features": lambda admin: admin.describe_features(),
    "update_features": lambda admin: admin.update_features({"a": 1, "b": 0}),
    "update_features, more": lambda admin: admin.update_features(
        {"a": 1}, downgrade=Downgrade.UNSAFE, validate_only=True
    ),
    "add_raft_voter": lambda admin: admin.add_raft_voter(5, Uuid(b"d" * 16), {"C": ("h", 1)}, cluster_id="c"),
    "remove_raft_voter": lambda admin: admin.remove_raft_voter(5, Uuid(b"d" * 16)),
    "api_versions": lambda admin: admin.api_versions(),
}
#: Asked again of a broker that knows only older versions.
OLDER = ("describe_topics", "delete_topics", "describe_group", "list_group_offsets, some", "alter_group_offsets")


def said(call: Call, *, old: bool = False) -> list[str]:
    """The requests of a call, and its result."""

    async def run() -> list[str]:
        admin = AsyncAdmin("127.0.0.1:1", request_timeout_ms=TIMEOUT_MS)
        admin._cluster = cluster = OneBroker(admin._settings)
        cluster.broker = Broker(old=old)
        partitions = [MetadataResponsePartition(partition_index=number, leader_id=1) for number in range(2)]
        brokers = [MetadataResponseBroker(node_id=1, host="b1", port=9092)]
        topics = [MetadataResponseTopic(name="t", topic_id=Uuid(b"t" * 16), partitions=partitions)]
        cluster.metadata.want(["t"], 0)
        cluster.metadata.apply(MetadataResponse(brokers=brokers, topics=topics), 0)
        result = await call(admin)
        if isinstance(result, Results):
            failed = {key: error.code.name for key, error in result.errors.items()}
            result = f"{result.succeeded!r} failed: {failed!r}"
        return [*cluster.broker.asked, f"= {_steady(result)}"]

    return asyncio.run(run())


def _steady(result: object) -> str:
    """A result as text; a frozenset in the order of its members."""
    if isinstance(result, frozenset):
        return f"{{{', '.join(sorted(map(repr, result)))}}}"
    return result if isinstance(result, str) else repr(result)


def _golden() -> dict[str, list[str]]:
    """The lines of each call, by its name."""
    blocks = (block.splitlines() for block in FILE.read_text().split("\n\n"))
    return {name: lines for name, *lines in blocks}


CASES = {name: (call, False) for name, call in CALLS.items()} | {
    f"{name} (older)": (CALLS[name], True) for name in OLDER
}


@pytest.mark.parametrize("name", CASES)
def test_a_call_asks_and_understands_every_field(name: str) -> None:
    call, old = CASES[name]
    assert said(call, old=old) == _golden()[name]


def test_the_golden_file_has_the_calls_that_there_are() -> None:
    if os.environ.get("OTTLA_WRITE_ADMIN"):
        blocks = ("\n".join([name, *said(call, old=old)]) for name, (call, old) in CASES.items())
        FILE.write_text("\n\n".join(blocks) + "\n")
    assert list(_golden()) == list(CASES)
