"""Apache Kafka's own integration tests, from its jars: those that know a cluster by its test framework alone.

With classes of ours before those of the framework (java/cluster), each test starts nodes of ours as processes, with as
many brokers, controllers and disks, with the settings, features and sign-in that the test asks for.
"""

import os
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from tests.interop import made, toolchain
from tests.interop.suite.outcome import FAILED, LEAST, PASSED, SKIPPED, Outcome, Report, expected_of, judged
from tests.interop.suite.process import run_whole

SUITE = "apache"
_TIMEOUT_S = 3600
_JUPITER = "junit.jupiter"
#: A test that hangs ends; one of them takes three minutes here, on a busy machine.
_OPTIONS = {
    f"{_JUPITER}.extensions.autodetection.enabled": "true",
    f"{_JUPITER}.execution.timeout.testable.method.default": "300 s",
    f"{_JUPITER}.execution.timeout.thread.mode.default": "SEPARATE_THREAD",
}

#: Part -> package -> classes, or CLASS#METHOD. Left out are those whose every test asks for objects of Apache's broker,
#: or for Java classes in the broker: KafkaStreamsTelemetryIntegrationTest (12 of 18 fail, whose reporter is one).
#: ConnectorValidationIntegrationTest is left out, too: its plug-ins are not in the jars, and all 28 tests fail early.
PARTS: Mapping[str, Mapping[str, Sequence[str]]] = {
    # The Java client against clusters of nodes of ours.
    "clients": {
        "org.apache.kafka.clients": (
            "ClientRebootstrapTest",
            "MetadataVersionIntegrationTest",
            "TransactionsExpirationTest",
            "TransactionsWithMaxInFlightOneTest",
            "admin.AdminFenceProducersTest",
            "admin.AutoTopicCreationTest",
            "admin.ClientTelemetryTest",
            "admin.ConcurrentListOffsetsRequestTest",
            "admin.DeleteTopicTest",
            "admin.DescribeAuthorizedOperationsTest",
            "admin.DescribeFeaturesTest",
            "admin.DescribeProducersWithBrokerIdTest",
            "admin.DynamicGroupConfigIntegrationTest",
            "admin.ListOffsetsIntegrationTest",
            "admin.RackAwareAutoTopicCreationTest",
            "admin.StaticBrokerConfigTest",
            "consumer.ConsumerTopicCreationTest",
            "consumer.PlaintextConsumerAssignTest",
            "consumer.SaslPlainPlaintextConsumerTest",
            "producer.ProducerCompressionTest",
            "producer.ProducerFailureHandlingTest",
            "producer.ProducerIdExpirationTest",
            "producer.ProducerIntegrationTest",
            "producer.ProducerSendWhileDeletionTest",
        )
    },
    "consumers": {
        "org.apache.kafka.clients.consumer": (
            "ConsumerIntegrationTest",
            "PlaintextConsumerCallbackTest",
            "PlaintextConsumerCloseTest",
            "PlaintextConsumerCommitTest",
            "PlaintextConsumerFetchTest",
            "PlaintextConsumerPollTest",
            "PlaintextConsumerSubscriptionTest",
            "PlaintextConsumerTest",
        )
    },
    "admin": {"kafka.api": ("PlaintextAdminIntegrationTest",)},
    "core": {
        "kafka": (
            "api.PlaintextConsumerAssignorsTest",
            "api.PlaintextProducerSendTest",
            "api.TransactionsBounceTest",
            "api.TransactionsTest",
            "server.ReplicaFetchTest",
            "server.ServerShutdownTest",
            "server.epoch.LeaderEpochIntegrationTest",
        )
    },
    # With TLS, SCRAM and delegation tokens.
    "secured": {
        "kafka": (
            "api.SaslClientsWithInvalidCredentialsTest",
            "api.SslConsumerTest",
            "api.SslProducerSendTest",
            "server.DelegationTokenRequestsTest",
            "server.DelegationTokenRequestsWithDisableTokenFeatureTest",
        )
    },
    # Clients who sign in by SCRAM, tokens and certificates, and may do what an ACL lets them.
    "authorization": {
        "kafka.api": (
            "DelegationTokenEndToEndAuthorizationTest",
            "DelegationTokenEndToEndAuthorizationWithOwnerTest",
            "GroupEndToEndAuthorizationTest",
            "PlaintextEndToEndAuthorizationTest",
            "SaslScramSslEndToEndAuthorizationTest",
            "SslAdminIntegrationTest",
            "SslEndToEndAuthorizationTest",
        )
    },
    # With Kerberos, whose server is the tests' own.
    "kerberos": {
        "kafka": (
            "api.SaslGssapiSslEndToEndAuthorizationTest",
            "api.SaslMultiMechanismConsumerTest",
            "api.SaslPlaintextConsumerTest",
            "api.SaslSslAdminIntegrationTest",
            "api.SaslSslConsumerTest",
            "server.GssapiAuthenticationTest",
            "server.MultipleListenersWithAdditionalJaasContextTest",
            "server.MultipleListenersWithDefaultJaasContextTest",
        )
    },
    "quorum": {
        "org.apache.kafka.server": (
            "BrokerRegistrationRequestTest",
            "KRaftClusterTest",
            "ReconfigurableQuorumIntegrationTest",
        )
    },
    # The Java share consumer.
    "shares": {"org.apache.kafka.clients": ("consumer.ShareConsumerTest",)},
    # Requests of every kind of group, one by one.
    "groups": {
        "kafka.server": (
            "ApiVersionsRequestTest",
            "ConsumerGroupDescribeRequestTest",
            "ConsumerGroupHeartbeatRequestTest",
            "ConsumerProtocolMigrationTest",
            "DeleteGroupsRequestTest",
            "DescribeGroupsRequestTest",
            "DescribeQuorumRequestTest",
            "HeartbeatRequestTest",
            "JoinGroupRequestTest",
            "LeaveGroupRequestTest",
            "ListGroupsRequestTest",
            "OffsetCommitRequestTest",
            "OffsetDeleteRequestTest",
            "OffsetFetchRequestTest",
            "SaslApiVersionsRequestTest",
            "ShareFetchAcknowledgeRequestTest",
            "ShareGroupDescribeRequestTest",
            "ShareGroupHeartbeatRequestTest",
            "StreamsGroupDescribeRequestTest",
            "StreamsGroupHeartbeatRequestTest",
            "SyncGroupRequestTest",
            "TxnOffsetCommitRequestTest",
            "WriteTxnMarkersRequestTest",
        )
    },
    # Brokers of ours in the quorum of Apache's controller.
    "brokers": {
        "kafka": (
            "admin.AddPartitionsTest",
            "api.AuthorizerIntegrationTest",
            "server.AddPartitionsToTxnRequestServerTest",
            "server.AlterReplicaLogDirsRequestTest",
            "server.AlterUserScramCredentialsRequestTest",
            "server.ApiVersionsResponseIntegrationTest",
            "server.CreateTopicsRequestTest",
            "server.DelegationTokenRequestsOnPlainTextTest",
            "server.DeleteTopicsRequestTest",
            "server.DeleteTopicsRequestWithDeletionDisabledTest",
            "server.DescribeClusterRequestTest",
            "server.DescribeUserScramCredentialsRequestTest",
            "server.EdgeCaseRequestTest",
            "server.FetchFromFollowerIntegrationTest",
            "server.FetchRequestMaxBytesTest",
            "server.FetchRequestTest",
            "server.ListOffsetsRequestTest",
            "server.LogOffsetTest",
            "server.OffsetsForLeaderEpochRequestTest",
            "server.ProduceRequestTest",
        )
    },
    "server": {
        "org.apache.kafka": (
            "server.BootstrapControllersIntegrationTest",
            "server.CordonedLogDirsIntegrationTest",
            "server.EligibleLeaderReplicasIntegrationTest",
            "server.MetadataRequestTest",
            "server.UncleanLeaderElectionTest",
            "server.config.DynamicConfigTest",
            "server.config.MinInSyncReplicasConfigTest",
            "server.quota.ClientQuotasRequestTest",
        )
    },
    "tools": {
        "org.apache.kafka.tools": (
            "AclCommandTest",
            "BrokerApiVersionsCommandTest",
            "ClusterToolTest",
            "ConfigCommandIntegrationTest",
            "DeleteRecordsCommandTest",
            "FeatureCommandTest",
            "GetOffsetShellTest",
            "GroupsCommandTest",
            "LeaderElectionCommandTest",
            "LogDirsCommandTest",
            "MetadataQuorumCommandTest",
            "TopicCommandTest",
            "UserScramCredentialsCommandTest",
            "consumer.ConsoleConsumerTest",
            "consumer.group.AuthorizerIntegrationTest",
            "consumer.group.DeleteConsumerGroupsTest",
            "consumer.group.DeleteOffsetsConsumerGroupCommandIntegrationTest",
            "consumer.group.DescribeConsumerGroupTest",
            "consumer.group.ListConsumerGroupTest",
            "consumer.group.ResetConsumerGroupOffsetTest",
            "consumer.group.SaslClientsWithInvalidCredentialsTest",
            "reassign.ReassignPartitionsCommandTest",
        )
    },
    # Kafka Streams, exactly once.
    "streams": {"org.apache.kafka.streams.integration": ("EosIntegrationTest", "GlobalKTableEOSIntegrationTest")},
    # Kafka Streams' applications as groups of both protocols, their internal topics, and the tools for such groups.
    "applications": {
        "org.apache.kafka": (
            "streams.integration.AdjustStreamThreadCountTest",
            "streams.integration.HandlingSourceTopicDeletionIntegrationTest",
            "streams.integration.IQv2EndpointToPartitionsIntegrationTest",
            "streams.integration.InternalTopicIntegrationTest",
            "streams.integration.JoinWithIncompleteMetadataIntegrationTest",
            "streams.integration.KStreamRepartitionIntegrationTest",
            "streams.integration.KTableSourceTopicRestartIntegrationTest",
            "streams.integration.KafkaStreamsCloseOptionsIntegrationTest",
            "streams.integration.MetricsIntegrationTest",
            "streams.integration.PauseResumeIntegrationTest",
            "streams.integration.PurgeRepartitionTopicIntegrationTest",
            "streams.integration.RebalanceProtocolMigrationIntegrationTest",
            "streams.integration.RebalanceProtocolMigrationIntegrationTest$WithAssignmentBatchingDisabledTest",
            "streams.integration.RegexSourceIntegrationTest",
            "streams.integration.RestoreIntegrationTest",
            "streams.integration.SmokeTestDriverIntegrationTest",
            "streams.integration.StandbyTaskCreationIntegrationTest",
            "streams.integration.StreamsUncaughtExceptionHandlerIntegrationTest",
            "tools.ResetIntegrationTest",
            "tools.streams.DeleteStreamsGroupOffsetTest",
            "tools.streams.DeleteStreamsGroupTest",
            "tools.streams.DescribeStreamsGroupTest",
            "tools.streams.ListStreamsGroupTest",
            "tools.streams.ResetStreamsGroupOffsetTest",
        )
    },
    # Kafka Streams' tasks as they move, restore and fail; where they begin to read.
    "tasks": {
        "org.apache.kafka.streams.integration": (
            "AtLeastOnceDeliveryMessageLossIntegrationTest",
            "DeadLetterQueueIntegrationTest",
            "EOSUncleanShutdownIntegrationTest",
            "FineGrainedAutoResetIntegrationTest",
            "GlobalKTableIntegrationTest",
            "GlobalThreadShutDownOrderTest",
            "HighAvailabilityTaskAssignorIntegrationTest",
            "LagFetchIntegrationTest",
            "RebalanceIntegrationTest",
            "RebalanceIntegrationTest$WithAssignmentBatchingDisabledTest",
            "RebalanceTaskClosureIntegrationTest",
            "ResetPartitionTimeIntegrationTest",
            "StandbyTaskEOSIntegrationTest",
            "StandbyTaskEOSMultiRebalanceIntegrationTest",
            "StateDirectoryIntegrationTest",
            "StateUpdaterFailureIntegrationTest",
            "SwallowUnknownTopicErrorIntegrationTest",
            "TaskAssignorIntegrationTest",
            "TaskMetadataIntegrationTest",
        )
    },
    "connect": {
        "org.apache.kafka.connect.integration": (
            "ConnectorTopicsIntegrationTest",
            "ErrorHandlingIntegrationTest",
            "ExactlyOnceSourceIntegrationTest",
            "ExampleConnectIntegrationTest",
            "InternalTopicsIntegrationTest",
            "OffsetsApiIntegrationTest",
            "RebalanceSourceConnectorsIntegrationTest",
            "SessionedProtocolIntegrationTest",
            "SinkConnectorsIntegrationTest",
            "SourceConnectorsIntegrationTest",
        )
    },
    # Kafka Streams' stores as they are queried, by both of its ways, and its metrics.
    "queries": {
        "org.apache.kafka.streams.integration": (
            "ConsistencyVectorIntegrationTest",
            "GlobalStateReprocessTest",
            "IQv2IntegrationTest",
            "IQv2StoreIntegrationTest",
            "IQv2VersionedStoreIntegrationTest",
            "InMemoryStoreMetricsIntegrationTest",
            "MetricsReporterIntegrationTest",
            "PositionRestartIntegrationTest",
            "QueryableStateIntegrationTest",
            "RangeQueryIntegrationTest",
            "RocksDBMetricsIntegrationTest",
            "StoreQueryIntegrationTest",
        )
    },
    # Kafka Streams' stores of every kind, as they are restored and upgraded.
    "stores": {
        "org.apache.kafka.streams.integration": (
            "HeadersStoreUpgradeIntegrationTest",
            "SessionsStoreWithHeadersTest",
            "TimestampedKeyValueStoreWithHeadersTest",
            "TimestampedStoreUpgradeIntegrationTest",
            "TimestampedWindowStoreWithHeadersTest",
            "VersionedKeyValueStoreIntegrationTest",
        )
    },
    # Kafka Streams' joins, aggregates, windows and suppression; the examples of its API in Scala.
    "joins": {
        "org.apache.kafka.streams.integration": (
            "EmitOnChangeIntegrationTest",
            "JoinGracePeriodDurabilityIntegrationTest",
            "JoinStoreIntegrationTest",
            "KStreamAggregationDedupIntegrationTest",
            "KStreamAggregationIntegrationTest",
            "KStreamKStreamIntegrationTest",
            "KTableKTableForeignKeyInnerJoinCustomPartitionerIntegrationTest",
            "KTableKTableForeignKeyInnerJoinMultiIntegrationTest",
            "KTableKTableForeignKeyJoinDistributedTest",
            "NamedTopologyIntegrationTest",
            "OptimizedKTableIntegrationTest",
            "OuterJoinListValueStoreRestorationTest",
            "SelfJoinUpgradeIntegrationTest",
            "SlidingWindowedKStreamIntegrationTest",
            "SmokeTestDriverIntegrationTest$WithAssignmentBatchingDisabledTest",
            "StreamTableJoinTopologyOptimizationIntegrationTest",
            "StreamsUpgradeTestIntegrationTest",
            "SuppressionDurabilityIntegrationTest",
            "SuppressionIntegrationTest",
            "TimeWindowedKStreamIntegrationTest",
            "WordCountTest",
        )
    },
    # Connect's workers: how connectors are checked, restarted and stopped.
    "workers": {
        "org.apache.kafka.connect.integration": (
            "BlockingConnectorTest",
            "ConnectWorkerIntegrationTest",
            "ConnectorClientPolicyIntegrationTest",
            "ConnectorRestartApiIntegrationTest",
            "MonitorableSinkIntegrationTest",
            "MonitorableSourceIntegrationTest",
            "RestExtensionIntegrationTest",
            "StandaloneWorkerIntegrationTest",
            "TransformationIntegrationTest",
        )
    },
    # MirrorMaker between clusters of nodes of ours. Most classes inherit the many long tests of one: here is a test of
    # each that is about what the class changes.
    "mirror": {
        "org.apache.kafka.connect.mirror.integration": (
            "DedicatedMirrorIntegrationTest",
            "MirrorConnectorsIntegrationExactlyOnceTest#testReplication",
            "MirrorConnectorsIntegrationSSLTest#testReplication",
            "MirrorConnectorsIntegrationTransactionsTest#testOneWayReplicationWithFrequentOffsetSyncs",
        )
    },
}
#: The builders of principals that stand for classes of the tests.
_ENVIRONMENT = {"PYTHONPATH": f"{made.HERE / 'suite' / 'plugin' / 'principals'}:{toolchain.ROOT}"}
#: A class of each of the three ways in which a test comes by its cluster.
SHORT: Mapping[str, Mapping[str, Sequence[str]]] = {
    "groups": {"kafka.server": ("ApiVersionsRequestTest", "DescribeQuorumRequestTest", "HeartbeatRequestTest")},
    "brokers": {"kafka": ("server.DescribeClusterRequestTest",)},
    "streams": {"org.apache.kafka.streams.integration": ("GlobalKTableEOSIntegrationTest",)},
}


def suite_name(part: str) -> str:
    return f"{SUITE} ({part})"


def run(kind: str, part: str, *, short: bool = False) -> Report:
    """Run all tests of a part, or those of its short form, with servers of this kind."""
    ((package, classes),) = (SHORT if short else PARTS)[part].items()
    suite = suite_name(part)
    return judged(
        suite,
        _run(kind, [_selected(package, each) for each in classes], package),
        expected_of(suite),
        partial(_alone, kind, package),
        least=len(classes) if short else LEAST[suite],
    )


def _selected(package: str, name: str) -> str:
    return f"--select-{'method' if '#' in name else 'class'}={package}.{name}"


def _alone(kind: str, package: str, outcome: Outcome) -> Outcome:
    """The test's method again, with nothing beside it."""
    where, _, test = outcome.name.partition("::")
    method = rf"\Q{package}.{where}#{test.partition('(')[0]}\E"
    found = _run(kind, [f"--select-class={package}.{where}", f"--include-methodname={method}"], package)
    return next((each for each in found if each.name == outcome.name), outcome)


def _run(kind: str, selected: Sequence[str], package: str) -> list[Outcome]:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ottla-apache-suite-") as name:
        directory = Path(name)
        options = [f"--config={option}={value}" for option, value in _OPTIONS.items()]
        options += ["--details=none", "--disable-banner", f"--reports-dir={directory}", *selected]
        with (directory / "output.txt").open("wb") as output:
            command = [*toolchain.cluster_tests(kind), "execute", *options]
            code = run_whole(command, directory, {**os.environ, **_ENVIRONMENT}, _TIMEOUT_S, output)
        told = directory / "TEST-junit-jupiter.xml"
        if not told.exists():
            tail = (directory / "output.txt").read_text(errors="replace")[-2000:]
            raise RuntimeError(
                f"JUnit ended with {code} after {time.monotonic() - began:.0f} s and told nothing: {tail}"
            )
        return parse(told.read_text(), package)


def parse(text: str, package: str) -> list[Outcome]:
    """The outcomes in JUnit's report, each named by its class below the package, its method and the invocation."""
    outcomes: list[Outcome] = []
    for case in ElementTree.fromstring(text).iter("testcase"):
        bad = next((each for kind in ("failure", "error", "skipped") for each in case.iter(kind)), None)
        state = PASSED if bad is None else SKIPPED if bad.tag == "skipped" else FAILED
        said = "" if bad is None else " ".join((bad.get("message") or bad.text or "").split())[:300]
        where = case.get("classname", "").removeprefix(f"{package}.")
        name = f"{where}::{case.get('name', '')}".replace(" ", "_")
        outcomes.append(Outcome(name, state, float(case.get("time", "0")), said))
    return outcomes
