"""Apache Kafka as the referee of the metadata: it starts on what we formatted and wrote, and we on what it wrote.

Needs a JVM and Apache's jars (tests/interop/toolchain.py brings them).
"""

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ottla.broker.metadata.metadata_log import MetadataLog
from ottla.host.disk import HostDisk
from ottla.metadata.image import BROKER, CLIENT_METRICS, GROUP, TOPIC
from ottla.wire.api import incremental_alter_configs as incremental
from tests.controller.place import CLUSTER_ID, Place, allocate, ask, create
from tests.controller.scene import SETTINGS
from tests.interop import toolchain
from tests.interop.server import free_ports, serves

pytestmark = [pytest.mark.interop, pytest.mark.timeout(240)]

_TIMEOUT_S = 60
_SHELLS_MAX = 20


def program(main: str, *arguments: str) -> list[str]:
    """The command of one of Apache's programs."""
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    return ["java", *toolchain.quick_jvm("384m"), quiet, "-cp", toolchain.classpath(), main, *arguments]


def java(main: str, *arguments: str) -> str:
    """Run one of Apache's tools; what it printed."""
    done = subprocess.run(
        program(main, *arguments), capture_output=True, text=True, timeout=_TIMEOUT_S, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def shell(snapshot: Path, *words: str) -> str:
    """What Apache's shell says of a snapshot.

    It waits until the loader has applied the snapshot. What the commands see is published by a later event: a command
    that runs before shows nothing, and only another run of the shell can tell.
    """
    for _ in range(_SHELLS_MAX):
        said = java("org.apache.kafka.shell.MetadataShell", "--snapshot", str(snapshot), *words)
        if said.strip() and "no such file" not in said:
            return said
    raise AssertionError(f"Apache's shell never showed what it read in {snapshot}")


class Site:
    """A node's directory that both kinds of node may be started on, one after the other."""

    def __init__(self, tmp_path: Path) -> None:
        self.data = tmp_path / "data"
        self.port, controller_port = free_ports(2)
        self.texts = SETTINGS | {
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller_port}",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller_port}",
            "offsets.topic.replication.factor": "1",
            "log.dirs": str(self.data),
        }
        self.properties = tmp_path / "server.properties"
        self.properties.write_text("".join(f"{name}={value}\n" for name, value in self.texts.items()))
        self.place = Place(HostDisk(), seed=11, **{name.replace(".", "_"): text for name, text in self.texts.items()})
        # Apache's clock is the machine's, and ours must not stand years before it.
        self.place.clock.jump(int(time.time() * 1000) - self.place.clock.now_ms())
        self.output = tmp_path / "output.txt"

    @property
    def bootstrap(self) -> list[str]:
        return ["--bootstrap-server", f"127.0.0.1:{self.port}"]

    @property
    def partition(self) -> Path:
        return self.data / "__cluster_metadata-0"

    @contextmanager
    def apache(self) -> Iterator[None]:
        """Apache Kafka runs on the directory, and stops cleanly."""
        command = program("kafka.Kafka", str(self.properties))
        with self.output.open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL)
        try:
            deadline = time.monotonic() + _TIMEOUT_S
            while not serves(self.port):
                assert process.poll() is None, self.output.read_text()[-3000:]
                assert time.monotonic() < deadline, self.output.read_text()[-3000:]
                time.sleep(0.05)
            yield
            process.send_signal(signal.SIGTERM)
            assert process.wait(_TIMEOUT_S) in (0, 128 + signal.SIGTERM)
        finally:
            process.kill()
            process.wait()


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def fill(log: MetadataLog) -> None:
    """Topics and settings of every kind."""
    assert create(log, "flights", partitions=3) == [0]
    assert create(log, "weather.jfk") == [0]
    changes = [
        (TOPIC, "flights", "retention.ms", "123456"),
        (BROKER, "", "log.cleaner.threads", "2"),
        (BROKER, "1", "num.io.threads", "7"),
        (GROUP, "readers", "consumer.session.timeout.ms", "50000"),
        (CLIENT_METRICS, "m", "interval.ms", "5000"),
    ]
    resources = [
        incremental.AlterConfigsResource(
            resource_type=kind, resource_name=name, configs=[incremental.AlterableConfig(name=key, value=value)]
        )
        for kind, name, key, value in changes
    ]
    response = ask(log, incremental.IncrementalAlterConfigsRequest(resources=resources))
    assert [each.error_code for each in response.responses] == [0] * 5


def test_apache_starts_on_what_we_formatted(site: Site) -> None:
    site.place.format()
    with site.apache():
        java("org.apache.kafka.tools.TopicCommand", *site.bootstrap, "--create", "--topic", "theirs")
        assert "theirs" in java("org.apache.kafka.tools.TopicCommand", *site.bootstrap, "--list")
    with site.place.node() as log:
        assert list(log.image.topics) == ["theirs"]


def test_apache_serves_what_we_decided(site: Site) -> None:
    site.place.format()
    with site.place.node() as log:
        fill(log)
        ids = allocate(log)
        topics = log.image.topics
    with site.apache():
        told = java("org.apache.kafka.tools.TopicCommand", *site.bootstrap, "--describe", "--topic", "flights")
        assert "PartitionCount: 3" in told
        assert "retention.ms=123456" in told
        assert told.count("Leader: 1") == 3
        node = ["--describe", "--entity-type", "brokers", "--entity-name", "1"]
        assert "num.io.threads=7" in java("kafka.admin.ConfigCommand", *site.bootstrap, *node)
        group = ["--describe", "--entity-type", "groups", "--entity-name", "readers"]
        assert "consumer.session.timeout.ms=50000" in java("kafka.admin.ConfigCommand", *site.bootstrap, *group)
    with site.place.node() as log:
        # A clean stop of ours and one of theirs: nothing was lost, and the topics are the same topics.
        assert {name: topic.topic_id for name, topic in log.image.topics.items()} == {
            name: topic.topic_id for name, topic in topics.items()
        }
        assert all(partition.leader == 1 for partition in log.image.topics["flights"].partitions)
        assert allocate(log).start >= ids.stop


def test_we_replay_what_apaches_tools_made(site: Site) -> None:
    storage = ["format", "--standalone", "-t", CLUSTER_ID, "-c", str(site.properties)]
    java("kafka.tools.StorageTool", *storage)
    topics, configs = "org.apache.kafka.tools.TopicCommand", "kafka.admin.ConfigCommand"
    with site.apache():
        made = ["--create", "--topic", "a.b", "--partitions", "4", "--config", "cleanup.policy=compact"]
        java(topics, *site.bootstrap, *made)
        java(topics, *site.bootstrap, "--create", "--topic", "gone")
        java(topics, *site.bootstrap, "--delete", "--topic", "gone")
        java(topics, *site.bootstrap, "--alter", "--topic", "a.b", "--partitions", "6")
        client = ["--alter", "--entity-type", "clients", "--entity-default"]
        java(configs, *site.bootstrap, *client, "--add-config", "producer_byte_rate=1024")
        user = ["--alter", "--entity-type", "users", "--entity-name", "alice"]
        java(configs, *site.bootstrap, *user, "--add-config", "SCRAM-SHA-256=[iterations=4096,password=x]")
        broker = ["--alter", "--entity-type", "brokers", "--entity-default"]
        java(configs, *site.bootstrap, *broker, "--add-config", "log.cleaner.threads=2")
    with site.place.node() as log:
        image = log.image
        assert {name: len(topic.partitions) for name, topic in image.topics.items()} == {"a.b": 6}
        assert image.config(TOPIC, "a.b") == {"cleanup.policy": "compact"}
        assert image.config(BROKER, "") == {"min.insync.replicas": "1", "log.cleaner.threads": "2"}
        assert image.quotas == {(("client-id", None),): {"producer_byte_rate": 1024.0}}
        assert list(image.scram) == [("alice", 1)]
        assert all(partition.leader == 1 for partition in image.topics["a.b"].partitions)
        fill(log)
    with site.apache():
        listed = java(topics, *site.bootstrap, "--list").split()
        assert listed == ["a.b", "flights", "weather.jfk"]


def test_apache_reads_our_log_and_our_snapshot(site: Site) -> None:
    small = replace_settings(site, metadata_log_max_record_bytes_between_snapshots="2000")
    small.format()
    with small.node() as log:
        fill(log)
        for number in range(12):
            create(log, f"t{number}", partitions=2)
        names = sorted(log.image.topics)
    dump = "org.apache.kafka.tools.DumpLogSegments"
    segment = site.partition / "00000000000000000000.log"
    told = java(dump, "--cluster-metadata-decoder", "--files", str(segment))
    assert "isvalid: false" not in told
    assert payloads(told)[0] == "BEGIN_TRANSACTION_RECORD"
    assert {"REGISTER_BROKER_RECORD", "TOPIC_RECORD", "PARTITION_RECORD", "CONFIG_RECORD"} <= set(payloads(told))
    newest = sorted(site.partition.glob("*.checkpoint"))[-1]
    assert int(newest.name[:20]) > 0
    told = java(dump, "--cluster-metadata-decoder", "--files", str(newest))
    assert "SnapshotHeader" in told
    assert "SnapshotFooter" in told
    assert payloads(told)[0] == "FEATURE_LEVEL_RECORD"
    seen = shell(newest, "ls", "/image/topics/byName").split()
    assert set(seen) <= set(names)
    assert "flights" in seen
    with site.apache():
        assert java("org.apache.kafka.tools.TopicCommand", *site.bootstrap, "--list").split() == names


def replace_settings(site: Site, **more: str) -> Place:
    texts = {name.replace(".", "_"): text for name, text in site.texts.items()} | more
    place = Place(HostDisk(), str(site.data), seed=12, **texts)
    place.clock = site.place.clock
    return place


def payloads(dump: str) -> list[str]:
    """The types of the records in a dump."""
    found = [line.partition("payload: ")[2] for line in dump.splitlines()]
    return [json.loads(each)["type"] for each in found if each]
