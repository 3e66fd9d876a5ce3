"""Apache's command-line tools, many of them in one JVM (java/Tools.java)."""

import subprocess
from types import TracebackType
from typing import IO

from tests.cli.tool import Said
from tests.interop import toolchain

#: Console script to the class behind it.
CLASSES = {
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-client-metrics": "org.apache.kafka.tools.ClientMetricsCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-console-share-consumer": "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-delegation-tokens": "org.apache.kafka.tools.DelegationTokenCommand",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-dump-log": "org.apache.kafka.tools.DumpLogSegments",
    "kafka-e2e-latency": "org.apache.kafka.tools.EndToEndLatency",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-groups": "org.apache.kafka.tools.GroupsCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-metadata-shell": "org.apache.kafka.shell.MetadataShell",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-server-start": "kafka.Kafka",
    "kafka-share-consumer-perf-test": "org.apache.kafka.tools.ShareConsumerPerformance",
    "kafka-share-groups": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    "kafka-storage": "kafka.tools.StorageTool",
    "kafka-streams-application-reset": "org.apache.kafka.tools.StreamsResetter",
    "kafka-streams-groups": "org.apache.kafka.tools.streams.StreamsGroupCommand",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
    "kafka-verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "kafka-verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
    "kafka-verifiable-share-consumer": "org.apache.kafka.tools.VerifiableShareConsumer",
}


class ApacheTools:
    """One JVM for all calls. Whoever makes it closes it."""

    def __init__(self) -> None:
        java, *rest = toolchain.java_peer("Tools")
        # The last of two settings counts. The tools' own words on stderr are compared, not their loggers'.
        command = [java, *rest[:-3], "-Dorg.slf4j.simpleLogger.defaultLogLevel=off", *_MAY_CATCH_EXITS, *rest[-3:]]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __call__(self, tool: str, *arguments: str, typed: str = "") -> Said:
        assert self._process.stdin is not None and self._process.stdout is not None
        words = [CLASSES[tool], *arguments]
        request = len(words).to_bytes(4) + b"".join(map(_framed, words)) + _framed(typed)
        self._process.stdin.write(request)
        self._process.stdin.flush()
        answer = self._process.stdout
        code = int.from_bytes(_read(answer, 4), signed=True)
        out, err = (_read(answer, int.from_bytes(_read(answer, 4))).decode() for _ in range(2))
        return Said(code, out, err)

    def __enter__(self) -> "ApacheTools":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()


#: With Java 17; it knows no other way to keep a tool from ending the JVM.
_MAY_CATCH_EXITS = ("-Djava.security.manager=allow",)


def _framed(text: str) -> bytes:
    content = text.encode()
    return len(content).to_bytes(4) + content


def _read(stream: IO[bytes], count: int) -> bytes:
    content = stream.read(count)
    assert len(content) == count, "the JVM of Apache's tools has ended"
    return content
