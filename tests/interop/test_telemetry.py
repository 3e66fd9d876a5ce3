"""What our clients push of their metrics to Apache Kafka, as its OpenTelemetry classes read it, beside its producer."""

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

import ottla
from ottla.client import Admin, ConfigResource, Consumer, Producer, ResourceType
from tests.broker.test_otlp_export import receiving
from tests.client.conftest import eventually
from tests.interop import server as servers
from tests.interop import toolchain
from tests.interop.server import Server

pytestmark = pytest.mark.interop

_PRODUCER, _CONSUMER = "org.apache.kafka.producer.", "org.apache.kafka.consumer."


class Line(NamedTuple):
    """A metric that a client pushed, as `Telemetry.java` prints it."""

    instance: str
    terminating: str
    resource: str
    name: str
    labels: str
    kind: str
    value: str


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    command = toolchain.java_peer()
    plain = servers.apache()
    classes = command[command.index("-cp") + 1]
    start = tuple(classes if part == toolchain.classpath() else part for part in plain.start)
    broker = Server(
        replace(plain, start=start),
        tmp_path_factory.mktemp("telemetry"),
        {**servers.HELD, "metric.reporters": "Telemetry"},
    )
    broker.start()
    with Admin(broker.bootstrap) as admin:
        admin.alter_configs(
            {ConfigResource(ResourceType.CLIENT_METRICS, "all"): {"metrics": "*", "interval.ms": "200"}}
        )
    yield broker
    broker.stop()


def _pushed(broker: Server) -> list[Line]:
    return _lines(Path(broker.output).read_text())


def _lines(text: str) -> list[Line]:
    # The last line may not be there whole.
    return [Line(*line.split("\t")[1:]) for line in text.split("\n")[:-1] if line.startswith("pushed\t")]


def _last(broker: Server, resource: str) -> list[Line]:
    return [line for line in _pushed(broker) if line.terminating == "true" and resource in line.resource]


def test_apache_reads_what_our_clients_push(broker: Server) -> None:
    with Producer(broker.bootstrap, transactional_id="ours") as producer:
        with producer.transaction():
            for _ in range(5):
                producer.send("pushed", b"v")
        eventually(lambda: any(line.name == f"{_PRODUCER}record.send.total" for line in _pushed(broker)))
    with Consumer(broker.bootstrap, group_id="readers", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["pushed"])
        assert next(iter(consumer)).value == b"v"
    sent = [line for line in _pushed(broker) if line.name == f"{_PRODUCER}record.send.total"]
    assert {line.kind for line in sent} == {"delta"}
    # A topic that was just created may have no leader yet: what is sent again counts again, at Apache's client, too.
    again = [float(line.value) for line in _pushed(broker) if line.name == f"{_PRODUCER}record.retry.total"]
    assert sum(float(line.value) for line in sent) == 5 + sum(again)
    said = {line.name: line for line in _last(broker, "transactional_id=ours")}
    assert said[f"{_PRODUCER}topic.byte.total"].labels == "{topic=pushed}"
    assert said[f"{_PRODUCER}node.request.latency.max"].labels == "{node_id=node-1}"
    eventually(lambda: bool(_last(broker, "group_id=readers")))
    read = {line.name: line for line in _last(broker, "group_id=readers")}
    assert read[f"{_CONSUMER}coordinator.assigned.partitions"].kind == "gauge"
    assert f"{_CONSUMER}fetch.manager.fetch.latency.avg" in read


def _produce(bootstrap: str) -> None:
    """Apache's producer sends 20 records in two seconds."""
    what = ("--topic", "theirs", "--max-messages", "20", "--throughput", "10")
    program = (*toolchain.java_peer()[:-1], "org.apache.kafka.tools.VerifiableProducer")
    done = subprocess.run(
        [*program, "--bootstrap-server", bootstrap, *what], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr


def test_names_and_kinds_are_those_of_apaches_producer(broker: Server) -> None:
    """Ours says nothing that Apache's does not: each has the same name, kind and labels there."""
    before = len(_pushed(broker))
    _produce(broker.bootstrap)
    theirs = {(line.name, line.kind, line.labels.replace("theirs", "t")) for line in _pushed(broker)[before:]}
    with Producer(broker.bootstrap) as producer:
        producer.send("ours", b"v").result()
        at = len(_pushed(broker))
    ours = {(line.name, line.kind, line.labels.replace("ours", "t")) for line in _pushed(broker)[at:]}
    assert ours <= theirs
    assert len(ours) > 30


def test_what_apaches_producer_pushes_to_our_node_reaches_a_receiver_of_otlp(tmp_path: Path) -> None:
    """And Apache's classes of OpenTelemetry read what the node made of it."""
    with receiving() as receiver, ottla.Node(settings={"client.metrics.otlp.url": receiver.url}) as node:
        with Admin(node.bootstrap_servers) as admin:
            resource = ConfigResource(ResourceType.CLIENT_METRICS, "all")
            admin.alter_configs({resource: {"metrics": "*", "interval.ms": "200"}}).check()
        _produce(node.bootstrap_servers)
        files: list[Path] = []
        while not receiver.posted.empty():
            files.append(tmp_path / str(len(files)))
            files[-1].write_bytes(receiver.posted.get()[2])
    command = [*toolchain.java_peer("Telemetry"), *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    found = {line.name: line.resource for line in _lines(done.stdout)}
    for part in ("client_software_name=apache-kafka-java", "client_software_version=4.3.1", "client_id=producer-1"):
        assert part in found[f"{_PRODUCER}record.send.total"]
