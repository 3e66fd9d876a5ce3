"""Apache's Connect and MirrorMaker 2 on the node: their groups, compacted topics and transactions."""

import json
import subprocess
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any
from urllib.error import HTTPError, URLError

import pytest

from ottla.client import Admin, ConfigResource, Consumer, Producer, ResourceType, TopicPartition
from tests.interop import server as servers
from tests.interop import toolchain
from tests.interop.program import running
from tests.interop.server import Server

pytestmark = [pytest.mark.interop, pytest.mark.timeout(400)]

_PATIENCE_S = 120.0
_SESSION = {"session.timeout.ms": "6000", "heartbeat.interval.ms": "2000"}


class Worker:
    """A worker of Connect, asked by REST."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.process = process
        self._address = f"http://127.0.0.1:{port}"

    def ask(self, path: str, body: object = None) -> Any:
        """What it answers; None while it does not serve, or has no such thing yet."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._address + path, data, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=90) as answer:
                return json.load(answer)
        except HTTPError as error:
            if error.code in (404, 409, 503):
                return None
            raise AssertionError(f"{path}: {error.read().decode(errors='replace')}") from error
        except (URLError, ConnectionError):
            return None

    def create(self, name: str, config: Mapping[str, str]) -> None:
        until(lambda: self.ask("/connectors", {"name": name, "config": config}), f"{name} is created")

    def runs(self, name: str, tasks: int) -> bool:
        """Do the connector and so many tasks run, each on a worker that is there?"""
        status = self.ask(f"/connectors/{name}/status")
        return status is not None and [each["state"] for each in status["tasks"]] == ["RUNNING"] * tasks


def until(done: Callable[[], object], what: str) -> None:
    deadline = monotonic() + _PATIENCE_S
    while not done():
        assert monotonic() < deadline, f"not within {_PATIENCE_S:.0f} s: {what}"
        sleep(0.2)


@contextmanager
def configured(main: str, settings: Mapping[str, str], directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A program of Connect with a file of settings."""
    directory.mkdir()
    file = directory / "settings.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    with running([*toolchain.connect(), main, str(file)], directory / "output.txt") as process:
        yield process


@pytest.fixture
def start(server: Server, name: str, tmp_path: Path) -> Iterator[Callable[[], Worker]]:
    """Starts workers of one Connect cluster, and ends them."""
    with ExitStack() as stack:

        def one() -> Worker:
            (port,) = servers.free_ports(1)
            kept = {
                f"{kind}.storage.{what}": value
                for kind in ("offset", "config", "status")
                for what, value in (("topic", f"{name}-{kind}s"), ("replication.factor", "1"))
            }
            settings = {
                "bootstrap.servers": server.bootstrap,
                "group.id": f"{name}-workers",
                "key.converter": "org.apache.kafka.connect.storage.StringConverter",
                "value.converter": "org.apache.kafka.connect.storage.StringConverter",
                "offset.flush.interval.ms": "1000",
                "exactly.once.source.support": "enabled",
                "listeners": f"HTTP://127.0.0.1:{port}",
                "scheduled.rebalance.max.delay.ms": "1000",
                **_SESSION,
                **kept,
            }
            main = "org.apache.kafka.connect.cli.ConnectDistributed"
            return Worker(stack.enter_context(configured(main, settings, tmp_path / f"worker-{port}")), port)

        yield one


def test_connectors_outlive_a_worker_and_the_node(
    server: Server, name: str, start: Callable[[], Worker], tmp_path: Path
) -> None:
    """A file's lines go to a topic in transactions, and from it to a file; each arrives once, or again after a kill."""
    source, sink = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text("".join(f"{number}\n" for number in range(500)))
    first, second = start(), start()
    first.create(
        "lines",
        {
            "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
            "file": str(source),
            "topic": name,
            "exactly.once.support": "required",
            "topic.creation.default.replication.factor": "1",
            "topic.creation.default.partitions": "3",
        },
    )
    second.create(
        "copy",
        {
            "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
            "tasks.max": "2",
            "file": str(sink),
            "topics": name,
            "consumer.override.isolation.level": "read_committed",
            **{f"consumer.override.{key}": value for key, value in _SESSION.items()},
        },
    )

    def arrived(count: int) -> Callable[[], bool]:
        return lambda: sink.exists() and len(set(sink.read_text().split())) == count

    until(arrived(500), "500 lines")
    second.process.kill()
    with source.open("a") as more:
        more.writelines(f"{number}\n" for number in range(500, 1000))
    until(arrived(1000), "500 lines more, by the worker that is left")
    until(lambda: first.runs("lines", 1) and first.runs("copy", 2), "all tasks run")
    server.restart()
    with source.open("a") as more:
        more.writelines(f"{number}\n" for number in range(1000, 1500))
    until(arrived(1500), "500 lines more after a restart of the node")
    found = Counter(int(record.value or b"") for record in _records(server, name, 1500))
    assert found == Counter(range(1500)), "the source is to write each line once"


def _records(server: Server, topic: str, count: int) -> list[Any]:
    """All committed records of the topic, and not one more within a second."""
    settings = {"bootstrap.servers": server.bootstrap, "isolation.level": "read_committed"}
    with Admin(server.bootstrap) as admin:
        partitions = len(admin.describe_topic(topic).partitions)
    found: list[Any] = []
    with Consumer(settings, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, index) for index in range(partitions)])
        deadline = monotonic() + _PATIENCE_S
        while len(found) < count and monotonic() < deadline:
            found += consumer.poll(1.0)
        found += consumer.poll(1.0)
    return found


@pytest.fixture
def apache(tmp_path: Path) -> Iterator[Server]:
    one = Server(servers.kind("apache"), tmp_path / "apache", servers.KEPT)
    one.start()
    yield one
    one.stop()


def test_mirrormaker_moves_a_topic_and_its_group_from_apache_kafka(
    server: Server, apache: Server, name: str, tmp_path: Path
) -> None:
    """A consumer of the moved group goes on with the node where it stopped with Apache Kafka."""
    group = f"{name}-group"
    with Admin(apache.bootstrap) as admin:
        admin.create_topic(name, 2, configs={"retention.ms": "123456000", "compression.type": "lz4"})
    with Producer(bootstrap_servers=apache.bootstrap, transactional_id=name) as producer:
        producer.init_transactions()
        for number in range(4):
            producer.begin_transaction()
            for value in range(100 * number, 100 * (number + 1)):
                producer.send(name, str(value).encode(), partition=value % 2)
            if number == 1:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    kept = Counter(value for value in range(400) if value // 100 != 1)
    before = _consume(apache, name, group, lambda values: len(values) >= 120)
    settings = {
        "clusters": "from,to",
        "from.bootstrap.servers": apache.bootstrap,
        "to.bootstrap.servers": server.bootstrap,
        "from->to.enabled": "true",
        "from->to.topics": name,
        "from->to.groups": group,
        "to->from.enabled": "false",
        "to.exactly.once.source.support": "enabled",
        "dedicated.mode.enable.internal.rest": "true",
        "replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
        "sync.group.offsets.enabled": "true",
        "emit.heartbeats.enabled": "false",
        "offset.lag.max": "0",
        **{f"{what}.replication.factor": "1" for what in ("offset.storage", "config.storage", "status.storage")},
        **{f"{what}.topic.replication.factor": "1" for what in ("offset-syncs", "checkpoints", "heartbeats")},
        **{f"{what}.interval.seconds": "2" for what in ("sync.group.offsets", "emit.checkpoints")},
        **{f"refresh.{what}.interval.seconds": "2" for what in ("topics", "groups")},
        "replication.factor": "1",
        "offset.flush.interval.ms": "1000",
    }

    def moved() -> bool:
        with Admin(server.bootstrap) as admin:
            if not any(each.id == group for each in admin.list_groups()):
                return False
            offsets = admin.list_group_offsets(group)
            return sum(each.offset for each in offsets.values()) > 0

    with configured("org.apache.kafka.connect.mirror.MirrorMaker", settings, tmp_path / "mirror"):
        until(moved, "the group's offsets are there")
        found = Counter(int(record.value or b"") for record in _records(server, name, 300))
    assert found == kept
    with Admin(server.bootstrap) as admin:
        topic = admin.describe_topic(name)
        assert len(topic.partitions) == 2
        configs = admin.describe_config(ConfigResource(ResourceType.TOPIC, name))
        assert (configs["retention.ms"].value, configs["compression.type"].value) == ("123456000", "lz4")
    # MirrorMaker's offset may be an earlier one: some records come again, none is missed.
    after = _consume(server, name, group, lambda values: kept.keys() == {*before, *values})
    assert len(after) < 300, "the group started anew"


def _consume(server: Server, topic: str, group: str, enough: Callable[[list[int]], bool]) -> list[int]:
    """Read as a member of the group until this is enough, and commit."""
    found: list[int] = []
    settings = {"bootstrap.servers": server.bootstrap, "isolation.level": "read_committed", "group.id": group}
    with Consumer(settings, auto_offset_reset="earliest", max_poll_records=20) as consumer:
        consumer.subscribe([topic])
        deadline = monotonic() + _PATIENCE_S
        while not enough(found):
            assert monotonic() < deadline, f"only {len(found)} records within {_PATIENCE_S:.0f} s"
            found += [int(record.value or b"") for record in consumer.poll(1.0)]
        consumer.commit()
    return found
