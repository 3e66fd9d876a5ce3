"""Every API of Kafka: one module per API with its request and response, and the table of all APIs.

Invariant: the table has the versions that Apache Kafka 4.3.1 serves; those of 4.4.0 are in `preview`.

A module is imported when its request or response is first used. Read `produce` first. Structs have Kafka's names; where
request and response use one name for two different structs, they are called Request... and Response...
Keys 4 to 7 (LeaderAndIsr, StopReplica, UpdateMetadata, ControlledShutdown) were removed with ZooKeeper in 4.0.
"""

from __future__ import annotations

import re
from enum import IntEnum
from importlib import import_module
from typing import Any

from ottla.wire.schema import span

__all__ = ["API", "BOTH", "BROKER", "CONTROLLER", "Api", "ApiKey"]

BROKER = frozenset({"broker"})
CONTROLLER = frozenset({"controller"})
BOTH = BROKER | CONTROLLER


class ApiKey(IntEnum):
    """An API's number in the request header."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92
    STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE = 93
    UNREGISTER_CONTROLLER = 94


class Api:
    """An API: its versions, the listeners that serve it, its classes."""

    __slots__ = (
        "_request",
        "_response",
        "flexible_from",
        "key",
        "latest_unstable",
        "listeners",
        "module",
        "name",
        "preview",
        "versions",
    )

    def __init__(
        self,
        key: int,
        name: str,
        versions: range,
        flexible_from: int | None,
        listeners: frozenset[str],
        preview: range,
        latest_unstable: bool,
    ) -> None:
        self.key = ApiKey(key)
        #: Kafka's name, without Request or Response.
        self.name = name
        #: The versions of Apache Kafka 4.3.1; empty for later APIs. Produce is advertised from 0 (see `produce`).
        self.versions = versions
        #: The first version with compact lengths and tags; None if there is none.
        self.flexible_from = flexible_from
        #: "broker", "controller": the kinds of listener that serve it.
        self.listeners = listeners
        #: The versions of Apache Kafka 4.4.0.
        self.preview = preview
        #: The last version is advertised only with `unstable.api.versions.enable`.
        self.latest_unstable = latest_unstable
        self.module = re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()
        self._request: type | None = None
        self._response: type | None = None

    @property
    def stable_versions(self) -> range:
        """The versions that are advertised by default."""
        return self.versions[:-1] if self.latest_unstable else self.versions

    def offered(self, *, unstable: bool) -> range:
        """The versions that a node serves; unstable ones only with `unstable.api.versions.enable`."""
        return self.versions if unstable else self.stable_versions

    @property
    def request(self) -> type[Any]:
        """The class of the request."""
        if self._request is None:
            self._import()
        return self._request  # type: ignore[return-value]

    @property
    def response(self) -> type[Any]:
        """The class of the response."""
        if self._response is None:
            self._import()
        return self._response  # type: ignore[return-value]

    def _import(self) -> None:
        module = import_module(f"ottla.wire.api.{self.module}")
        self._request = getattr(module, f"{self.name}Request")
        self._response = getattr(module, f"{self.name}Response")

    def __repr__(self) -> str:
        return f"Api({self.key:d} {self.name} {self.versions})"


def _row(
    key: int,
    name: str,
    versions: str,
    flexible_from: int | None,
    listeners: frozenset[str],
    *,
    preview: str | None = None,
    latest_unstable: bool = False,
) -> Api:
    served = span(versions)
    return Api(key, name, served, flexible_from, listeners, span(preview) if preview else served, latest_unstable)


_ROWS = (
    _row(0, "Produce", "3-13", 9, BROKER),
    _row(1, "Fetch", "4-18", 12, BOTH),
    _row(2, "ListOffsets", "1-11", 6, BROKER),
    _row(3, "Metadata", "0-13", 9, BROKER),
    _row(8, "OffsetCommit", "2-10", 8, BROKER),
    _row(9, "OffsetFetch", "1-10", 6, BROKER),
    _row(10, "FindCoordinator", "0-6", 3, BROKER),
    _row(11, "JoinGroup", "0-9", 6, BROKER),
    _row(12, "Heartbeat", "0-4", 4, BROKER),
    _row(13, "LeaveGroup", "0-5", 4, BROKER),
    _row(14, "SyncGroup", "0-5", 4, BROKER),
    _row(15, "DescribeGroups", "0-6", 5, BROKER),
    _row(16, "ListGroups", "0-5", 3, BROKER),
    _row(17, "SaslHandshake", "0-1", None, BOTH),
    _row(18, "ApiVersions", "0-4", 3, BOTH, preview="0-5"),
    _row(19, "CreateTopics", "2-7", 5, BOTH),
    _row(20, "DeleteTopics", "1-6", 4, BOTH),
    _row(21, "DeleteRecords", "0-2", 2, BROKER),
    _row(22, "InitProducerId", "0-6", 2, BROKER, latest_unstable=True),
    _row(23, "OffsetForLeaderEpoch", "2-4", 4, BROKER),
    _row(24, "AddPartitionsToTxn", "0-5", 3, BROKER),
    _row(25, "AddOffsetsToTxn", "0-4", 3, BROKER),
    _row(26, "EndTxn", "0-5", 3, BROKER),
    _row(27, "WriteTxnMarkers", "1-2", 1, BROKER),
    _row(28, "TxnOffsetCommit", "0-5", 3, BROKER, preview="0-6"),
    _row(29, "DescribeAcls", "1-3", 2, BOTH),
    _row(30, "CreateAcls", "1-3", 2, BOTH),
    _row(31, "DeleteAcls", "1-3", 2, BOTH),
    _row(32, "DescribeConfigs", "1-4", 4, BOTH),
    _row(33, "AlterConfigs", "0-2", 2, BOTH),
    _row(34, "AlterReplicaLogDirs", "1-2", 2, BROKER),
    _row(35, "DescribeLogDirs", "1-5", 2, BROKER),
    _row(36, "SaslAuthenticate", "0-2", 2, BOTH),
    _row(37, "CreatePartitions", "0-3", 2, BOTH),
    _row(38, "CreateDelegationToken", "1-3", 2, BOTH),
    _row(39, "RenewDelegationToken", "1-2", 2, BOTH),
    _row(40, "ExpireDelegationToken", "1-2", 2, BOTH),
    _row(41, "DescribeDelegationToken", "1-3", 2, BOTH),
    _row(42, "DeleteGroups", "0-2", 2, BROKER, preview="0-3"),
    _row(43, "ElectLeaders", "0-2", 2, BOTH),
    _row(44, "IncrementalAlterConfigs", "0-1", 1, BOTH),
    _row(45, "AlterPartitionReassignments", "0-1", 0, BOTH),
    _row(46, "ListPartitionReassignments", "0", 0, BOTH),
    _row(47, "OffsetDelete", "0", None, BROKER),
    _row(48, "DescribeClientQuotas", "0-1", 1, BROKER),
    _row(49, "AlterClientQuotas", "0-1", 1, BOTH),
    _row(50, "DescribeUserScramCredentials", "0", 0, BOTH),
    _row(51, "AlterUserScramCredentials", "0", 0, BOTH),
    _row(52, "Vote", "0-2", 0, CONTROLLER),
    _row(53, "BeginQuorumEpoch", "0-1", 1, CONTROLLER),
    _row(54, "EndQuorumEpoch", "0-1", 1, CONTROLLER),
    _row(55, "DescribeQuorum", "0-2", 0, BOTH),
    _row(56, "AlterPartition", "2-3", 0, CONTROLLER),
    _row(57, "UpdateFeatures", "0-2", 0, BOTH),
    _row(58, "Envelope", "0", 0, CONTROLLER),
    _row(59, "FetchSnapshot", "0-1", 0, CONTROLLER),
    _row(60, "DescribeCluster", "0-2", 0, BOTH),
    _row(61, "DescribeProducers", "0", 0, BROKER),
    _row(62, "BrokerRegistration", "0-4", 0, CONTROLLER),
    _row(63, "BrokerHeartbeat", "0-2", 0, CONTROLLER),
    _row(64, "UnregisterBroker", "0", 0, BOTH),
    _row(65, "DescribeTransactions", "0", 0, BROKER),
    _row(66, "ListTransactions", "0-2", 0, BROKER),
    _row(67, "AllocateProducerIds", "0", 0, CONTROLLER),
    _row(68, "ConsumerGroupHeartbeat", "0-1", 0, BROKER),
    _row(69, "ConsumerGroupDescribe", "0-1", 0, BROKER),
    _row(70, "ControllerRegistration", "0", 0, CONTROLLER),
    _row(71, "GetTelemetrySubscriptions", "0", 0, BROKER),
    _row(72, "PushTelemetry", "0", 0, BROKER),
    _row(73, "AssignReplicasToDirs", "0", 0, CONTROLLER),
    _row(74, "ListConfigResources", "0-1", 0, BROKER),
    _row(75, "DescribeTopicPartitions", "0", 0, BROKER),
    _row(76, "ShareGroupHeartbeat", "1", 0, BROKER),
    _row(77, "ShareGroupDescribe", "1", 0, BROKER),
    _row(78, "ShareFetch", "1-2", 0, BROKER),
    _row(79, "ShareAcknowledge", "1-2", 0, BROKER),
    _row(80, "AddRaftVoter", "0-1", 0, BOTH),
    _row(81, "RemoveRaftVoter", "0", 0, BOTH),
    _row(82, "UpdateRaftVoter", "0", 0, CONTROLLER),
    _row(83, "InitializeShareGroupState", "0", 0, BROKER),
    _row(84, "ReadShareGroupState", "0", 0, BROKER),
    _row(85, "WriteShareGroupState", "0-1", 0, BROKER),
    _row(86, "DeleteShareGroupState", "0", 0, BROKER),
    _row(87, "ReadShareGroupStateSummary", "0-1", 0, BROKER),
    _row(88, "StreamsGroupHeartbeat", "0", 0, BROKER, preview="0-1"),
    _row(89, "StreamsGroupDescribe", "0", 0, BROKER, preview="0-1"),
    _row(90, "DescribeShareGroupOffsets", "0-1", 0, BROKER),
    _row(91, "AlterShareGroupOffsets", "0", 0, BROKER),
    _row(92, "DeleteShareGroupOffsets", "0", 0, BROKER),
    _row(93, "StreamsGroupTopologyDescriptionUpdate", "none", 0, BROKER, preview="0"),
    _row(94, "UnregisterController", "none", 0, BOTH, preview="0"),
)

#: All APIs by key, including those of 4.4.0.
API: dict[int, Api] = {int(api.key): api for api in _ROWS}
