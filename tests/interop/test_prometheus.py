"""A real Prometheus scrapes a cluster, and answers every query of the dashboard from it."""

from __future__ import annotations

import json
import re
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest

import ottla
from ottla.client import Admin, ConfigResource, Consumer, KafkaError, Producer, ResourceType
from tests.interop.toolchain import prometheus

pytestmark = [pytest.mark.interop, pytest.mark.long, pytest.mark.timeout(300)]

DASHBOARD = Path(__file__).parents[2] / "packaging" / "grafana" / "ottla-cluster.json"
WAIT_S = 120
_AT = re.compile(r"metrics, health and readiness at http://(\S+)")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ottla.Cluster]:
    with ottla.Cluster(nodes=3, data=tmp_path / "cluster", settings={"metrics.listener": "127.0.0.1:0"}) as cluster:
        yield cluster


@pytest.fixture
def scraper(cluster: ottla.Cluster, tmp_path: Path) -> Iterator[str]:
    """The address of a Prometheus that scrapes the cluster's nodes."""
    logs = [cluster.log(each).read_text(encoding="utf-8") for each in cluster.nodes]
    nodes = [found[1] for text in logs for found in [_AT.search(text)] if found]
    assert len(nodes) == 3, logs
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    scrape = {"job_name": "ottla", "scrape_interval": "1s", "static_configs": [{"targets": nodes}]}
    file = tmp_path / "prometheus.yml"
    file.write_text(json.dumps({"scrape_configs": [scrape]}))  # JSON is YAML
    command = [prometheus(), f"--config.file={file}", f"--storage.tsdb.path={tmp_path / 'tsdb'}"]
    with subprocess.Popen([*command, f"--web.listen-address={address}"], stderr=subprocess.DEVNULL) as process:
        try:
            yield address
        finally:
            process.terminate()


def _asked(server: str, query: str) -> list[dict[str, Any]]:
    """The series of an instant query; none while the server starts."""
    try:
        with urlopen(f"http://{server}/api/v1/query?{urlencode({'query': query})}", timeout=20) as answer:
            found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
            return found
    except HTTPError as error:
        raise AssertionError(f"{query}: {error.read().decode()}") from error
    except URLError:
        return []


def _work(cluster: ottla.Cluster) -> None:
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    with Producer(cluster.bootstrap_servers) as producer, Consumer(settings) as consumer:
        for _ in range(100):
            producer.send("orders", b"x" * 100)
        producer.flush()
        consumer.subscribe(["orders"])
        next(iter(consumer))
    with Admin(cluster.bootstrap_servers) as admin, pytest.raises(KafkaError):
        admin.create_topic("orders", 1)


def test_prometheus_answers_every_query_of_the_dashboard(cluster: ottla.Cluster, scraper: str) -> None:
    with Admin(cluster.bootstrap_servers) as admin:
        admin.create_topic("orders", 3, 3)
        resource = ConfigResource(ResourceType.BROKER, "")
        admin.alter_configs({resource: {"leader.replication.throttled.rate": "1000000"}}).check()
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    queries = {
        each["expr"].replace("$job", "ottla").replace("$__rate_interval", "20s")
        for panel in dashboard["panels"]
        for each in panel["targets"]
    }
    left, deadline = set(queries), monotonic() + WAIT_S
    while left and monotonic() < deadline:
        _work(cluster)
        left = {query for query in left if not _asked(scraper, query)}
    assert left == set()
    told: list[str] = []
    while len(told) != 2 or told[0] != told[1]:
        assert monotonic() < deadline, told
        sums = ("kafka_server_replicamanager_leadercount", "kafka_controller_kafkacontroller_globalpartitioncount")
        told = [each["value"][1] for name in sums for each in _asked(scraper, f"sum({name})")]
