"""What a node shows over HTTP: metrics as Prometheus' own parser reads them, health, readiness; and hostile peers."""

from __future__ import annotations

import json
import logging
import re
import socket
from collections.abc import Iterator
from http.client import HTTPConnection
from itertools import islice
from pathlib import Path
from time import monotonic
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client.parser import text_string_to_metric_families

import ottla
from ottla.broker.observe.endpoint import Observation, parse
from ottla.broker.observe.requests import Durations
from ottla.client import Admin, ConfigResource, Consumer, KafkaError, Producer, ResourceType
from ottla.kernel.error import OttlaError
from ottla.kernel.exposition import family, labels
from ottla.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.batch import build
from tests.broker.wire_client import WireClient

DASHBOARD = Path(__file__).parents[2] / "packaging" / "grafana" / "ottla-cluster.json"
SETTINGS = {"metrics.listener": "127.0.0.1:0"}
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]
_TOPICS = "kafka_server_brokertopicmetrics_"


@pytest.fixture(scope="module")
def node() -> Iterator[ottla.Node]:
    with ottla.Node(settings=SETTINGS) as node:
        yield node


def address(node: ottla.Node) -> tuple[str, int]:
    observation = node._running().observation
    assert observation is not None
    host, _, port = observation.address.rpartition(":")
    return host, int(port)


def asked(node: ottla.Node, path: str, method: str = "GET") -> tuple[int, str]:
    connection = HTTPConnection(*address(node), timeout=20)
    connection.request(method, path)
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def scraped(node: ottla.Node) -> Samples:
    status, text = asked(node, "/metrics")
    assert status == 200
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for each in text_string_to_metric_families(text)
        for sample in each.samples
    }


def value(samples: Samples, name: str, **labelled: object) -> float:
    return samples.get((name, tuple(sorted((key, str(each)) for key, each in labelled.items()))), 0)


def test_records_and_bytes_of_topics_are_counted(node: ottla.Node) -> None:
    node.create_topic("orders", 2)
    with Producer(node.bootstrap_servers) as producer:
        for number in range(100):
            producer.send("orders", b"x" * 10, partition=number % 2)
    settings = {"bootstrap.servers": node.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    with Consumer(settings) as consumer:
        consumer.subscribe(["orders"])
        for record in islice(consumer, 100):
            assert record.value == b"x" * 10
    found = scraped(node)
    size = sum(value(found, "kafka_log_log_size", topic="orders", partition=each) for each in (0, 1))
    assert size > 1000
    assert value(found, _TOPICS + "messagesin_total", topic="orders") == 100
    assert value(found, _TOPICS + "bytesin_total", topic="orders") == size
    assert value(found, _TOPICS + "bytesout_total", topic="orders") >= size
    assert value(found, _TOPICS + "messagesin_total") >= 100
    ends = [value(found, "kafka_log_log_logendoffset", topic="orders", partition=each) for each in (0, 1)]
    assert ends == [50, 50]
    produced = [
        each
        for (name, where), each in found.items()
        if name.endswith("requests_total") and ("request", "Produce") in where
    ]
    assert sum(produced) == value(found, "kafka_network_requestmetrics_totaltimems_count", request="Produce") > 0
    assert value(found, "kafka_network_requestmetrics_totaltimems", request="Produce", quantile=0.99) > 0


def test_a_deleted_topic_takes_nothing_from_the_totals(node: ottla.Node) -> None:
    """A counter that falls counts as one that began again: all that was left of it would show as a new rate."""
    node.create_topic("deleted")
    with Producer(node.bootstrap_servers) as producer:
        producer.send("deleted", b"x" * 1000)
    names = [_TOPICS + name for name in ("messagesin_total", "bytesin_total")]
    before = scraped(node)
    assert all(value(before, name, topic="deleted") for name in names)
    with Admin(node.bootstrap_servers) as admin:
        admin.delete_topics(["deleted"]).check()
    after = scraped(node)
    assert [value(after, name, topic="deleted") for name in names] == [0, 0]
    assert [value(after, name) for name in names] == [value(before, name) for name in names]


def test_a_node_shows_its_replicas_the_cluster_and_itself(node: ottla.Node) -> None:
    node.create_topic("three", 3)
    found = scraped(node)
    with Admin(node.bootstrap_servers) as admin:
        names = [each.name for each in admin.list_topics(internal=True)]
        partitions = sum(len(each.partitions) for each in admin.describe_topics(names).values())
    assert value(found, "kafka_server_replicamanager_leadercount") == partitions
    assert value(found, "kafka_server_replicamanager_partitioncount") == partitions
    assert value(found, "kafka_controller_kafkacontroller_globalpartitioncount") == partitions
    assert value(found, "kafka_controller_kafkacontroller_activecontrollercount") == 1
    assert value(found, "kafka_controller_kafkacontroller_activebrokercount") == 1
    assert value(found, "kafka_server_replicamanager_underreplicatedpartitions") == 0
    assert value(found, "kafka_server_raftmetrics_current_leader") == node._running().node_id
    assert value(found, "kafka_server_raftmetrics_current_state", current_state="leader") == 1
    assert value(found, "kafka_server_raftmetrics_number_of_voters") == 1
    assert value(found, "kafka_server_raftmetrics_current_vote") == node._running().node_id
    ends = [value(found, f"kafka_server_raftmetrics_{each}") for each in ("high_watermark", "log_end_offset")]
    assert ends[0] == ends[1] > 0
    assert value(found, "kafka_controller_kafkacontroller_newactivecontrollerscount") == 1
    assert value(found, "ottla_controller_leader_elections_total") == 0
    assert value(found, "process_resident_memory_bytes") > 1 << 20
    assert value(found, "process_cpu_seconds_total") > 0


def test_every_query_of_the_dashboard_asks_for_what_a_node_has(node: ottla.Node) -> None:
    node.create_topic("shown", 1)
    with Admin(node.bootstrap_servers) as admin:
        # A throttle's bound is there when one is set.
        resource = ConfigResource(ResourceType.BROKER, "")
        admin.alter_configs({resource: {"leader.replication.throttled.rate": "1000000"}}).check()
    with Producer(node.bootstrap_servers) as producer:
        producer.send("shown", b"x")
    there = {name for name, _ in scraped(node)}
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    queries = [each["expr"] for panel in dashboard["panels"] for each in panel["targets"]]
    asked_for = {name for query in queries for name in re.findall(r"\b(?:kafka|process)_\w+", query)}
    assert len(asked_for) >= len(dashboard["panels"])
    # A counter of errors is there as soon as there is an error.
    assert asked_for - there - {"kafka_network_requestmetrics_errors_total"} == set()


def test_what_fails_is_counted_as_failed(node: ottla.Node) -> None:
    node.create_topic("refused", 1)
    before = scraped(node)
    with WireClient(node.bootstrap_servers) as client:
        batch = build([(0, None, b"v", [])])
        topics = [
            TopicProduceData(name="absent", partition_data=[PartitionProduceData(index=0, records=batch)]),
            TopicProduceData(name="nothing", partition_data=[]),
            TopicProduceData(
                name="refused",
                partition_data=[
                    PartitionProduceData(index=7, records=batch),
                    PartitionProduceData(index=0, records=batch),
                ],
            ),
        ]
        client.ask(ProduceRequest(acks=1, timeout_ms=1000, topic_data=topics), 9)
    with Admin(node.bootstrap_servers) as admin, pytest.raises(KafkaError):
        admin.delete_topics(["absent"]).check()
    found = scraped(node)
    assert value(found, _TOPICS + "messagesin_total", topic="refused") == 1
    assert value(found, _TOPICS + "bytesin_total", topic="refused") == len(batch)
    assert value(found, _TOPICS + "messagesin_total", topic="absent") == 0
    name, error = "kafka_network_requestmetrics_errors_total", "UNKNOWN_TOPIC_OR_PARTITION"
    assert value(found, name, request="Produce", error=error) == value(before, name, request="Produce", error=error) + 2
    node_admin = Admin(node.bootstrap_servers)
    node_admin.delete_topics(["refused"]).check()
    node_admin.close()
    assert value(scraped(node), _TOPICS + "bytesin_total", topic="refused") == 0


def test_a_long_request_is_counted_whole(node: ottla.Node) -> None:
    node.create_topic("wide", 50)
    batch = build([(0, None, b"v", []), (1, None, b"w", [])])
    partitions = [PartitionProduceData(index=index, records=batch) for index in range(20_000)]
    request = ProduceRequest(
        acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name="wide", partition_data=partitions)]
    )
    name, error = "kafka_network_requestmetrics_errors_total", "UNKNOWN_TOPIC_OR_PARTITION"
    before = value(scraped(node), name, request="Produce", error=error)
    with WireClient(node.bootstrap_servers) as client:
        client.ask(request, 9)
        client.ask(request, 9)
    # It is counted in steps, beside the answer.
    deadline = monotonic() + 60
    while value(scraped(node), _TOPICS + "messagesin_total", topic="wide") < 200:
        assert monotonic() < deadline
    found = scraped(node)
    assert value(found, _TOPICS + "messagesin_total", topic="wide") == 200
    assert value(found, _TOPICS + "bytesin_total", topic="wide") == 100 * len(batch)
    assert value(found, name, request="Produce", error=error) == before + 2 * 19_950


def test_health_and_readiness(node: ottla.Node) -> None:
    status, text = asked(node, "/ready")
    assert (status, json.loads(text)) == (200, {"node": node._running().node_id, "state": "ready", "reasons": []})
    assert asked(node, "/health")[0] == 200
    assert asked(node, "/metrics", "HEAD") == (200, "")
    assert asked(node, "/else")[0] == 404
    assert asked(node, "/metrics", "POST")[0] == 405


@pytest.mark.parametrize(
    ("own", "state"),
    [
        (None, "fenced"),
        (SimpleNamespace(in_controlled_shutdown=False, fenced=True), "fenced"),
        (SimpleNamespace(in_controlled_shutdown=True, fenced=False), "stopping"),
        (SimpleNamespace(in_controlled_shutdown=False, fenced=False), "ready"),
    ],
)
def test_a_broker_is_ready_when_the_controllers_say_so(own: Any, state: str) -> None:
    node = SimpleNamespace(
        node_id=3,
        is_ready=True,
        settings=SimpleNamespace(is_broker=True),
        image=SimpleNamespace(brokers={} if own is None else {3: own}),
        failed_directories=["/b"],
    )
    endpoint = cast(Any, SimpleNamespace(node=node))
    found = Observation._state(endpoint)
    assert (found["state"], found["reasons"][-1]) == (state, "log directory /b has failed")
    assert len(found["reasons"]) == 1 + (state != "ready")


def test_peers_that_say_nothing_or_too_much_take_nothing_from_the_others(node: ottla.Node) -> None:
    silent = [socket.create_connection(address(node)) for _ in range(40)]
    with Admin(node.bootstrap_servers) as admin:
        admin.list_topics()
    # Room for 32: those that were silent longest make room for the others, and for a probe.
    for _ in range(3):
        assert asked(node, "/health")[0] == 200
    assert all(_is_closed(each) for each in silent[:9])
    for each in silent:
        each.close()
    status, _ = asked(node, "/ready")
    assert status == 200
    with socket.create_connection(address(node)) as endless:
        endless.sendall(b"GET /" + b"x" * (16 << 10))
        assert _is_closed(endless)
    assert asked(node, "/ready")[0] == 200


def _is_closed(sock: socket.socket) -> bool:
    sock.settimeout(20)
    try:
        return sock.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


@pytest.mark.parametrize("text", ["9308", "host", "127.0.0.1:", "127.0.0.1:70000", "127.0.0.1:x"])
def test_an_address_that_is_none_stops_the_start(text: str) -> None:
    with (
        pytest.raises(OttlaError, match=r"metrics\.listener: HOST:PORT is expected"),
        ottla.Node(settings={"metrics.listener": text}),
    ):
        pass


@pytest.mark.parametrize(("host", "open_to_all"), [("127.0.0.1", False), ("0.0.0.0", True)])
def test_a_node_says_that_others_can_read_its_metrics(
    host: str, open_to_all: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "ottla.broker")
    with ottla.Node(settings={"metrics.listener": f"{host}:0"}):
        pass
    [line] = [each for each in caplog.messages if each.startswith("metrics, health")]
    assert ("without TLS and passwords" in line) is open_to_all


def test_an_address_that_is_taken_stops_the_start() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(OttlaError, match="cannot listen"), ottla.Node(settings={"metrics.listener": where}):
            pass
    assert parse(":9308") == ("", 9308)
    assert parse("[::1]:9308") == ("::1", 9308)


def test_quantiles_are_those_of_the_last_minutes() -> None:
    durations = Durations()
    for number in range(1, 1001):
        durations.add(number / 10)
    found = dict(durations.quantiles(0))
    for quantile, exact in ((0.5, 50.0), (0.95, 95.0), (0.99, 99.0)):
        assert exact <= found[quantile] <= exact * 1.2
    durations.add(10**9)
    assert dict(durations.quantiles(60_000))[0.5] == found[0.5]
    assert dict(durations.quantiles(120_000)) == {}
    assert durations.count == 1001


def test_labels_are_escaped() -> None:
    text = "\n".join(family("a_total", "counter", "A.", [(labels(x='q"\\\n'), 2)])) + "\n"
    (found,) = text_string_to_metric_families(text)
    assert found.samples[0].labels == {"x": 'q"\\\n'}
    assert family("a", "gauge", "A.", []) == []
