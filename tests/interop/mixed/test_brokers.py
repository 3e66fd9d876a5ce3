"""Apache's brokers beside ours in one cluster, under controllers of either kind: all replicas hold the same records."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.sim.workload import PARTITIONS
from tests.interop.apache_tool import ApacheTools
from tests.interop.mixed.load import JavaClients, Load, create, judge, led_by, until_whole
from tests.interop.mixed.nodes import MixedCluster, MixedNode
from tests.replicas_on_disk import assert_same

pytestmark = pytest.mark.timeout(600)

_TOPIC = "records"
#: Snapshots of the metadata all the time: a node that comes back begins with one.
_SNAPSHOTS = {"metadata.log.max.record.bytes.between.snapshots": "2800"}
_KINDS = {"a": "apache", "o": "ottla"}


@pytest.fixture(scope="module")
def tools() -> Iterator[ApacheTools]:
    with ApacheTools() as one:
        yield one


def cluster(directory: Path, controllers: str, brokers: str) -> MixedCluster:
    """Nodes of these kinds, the controllers first."""
    nodes = [MixedNode(number, _KINDS[kind], "controller") for number, kind in enumerate(controllers, 1)]
    nodes += [MixedNode(number, _KINDS[kind]) for number, kind in enumerate(brokers, 1 + len(controllers))]
    return MixedCluster(directory, nodes, _SNAPSHOTS)


def stop_all(nodes: MixedCluster) -> None:
    """Brokers first, all in good order."""
    for each in sorted(nodes.nodes.values(), key=lambda node: node.is_controller):
        nodes.stop(each.node_id)


def assert_replicas_are_the_same(nodes: MixedCluster, topic: str = _TOPIC) -> None:
    """After all have stopped."""
    homes = [nodes.data(each) for each in nodes.brokers()]
    assert sum(assert_same(homes, f"{topic}-{index}") for index in range(PARTITIONS)) > 0


def dumped(nodes: MixedCluster, tools: ApacheTools, node_id: int, topic: str = _TOPIC) -> int:
    """How many batches Apache's dump finds in a node's logs of a topic, all of them valid."""
    files = [str(path) for path in sorted(nodes.data(node_id).glob(f"{topic}-*/*.log"))]
    said = tools("kafka-dump-log", "--deep-iteration", "--files", ",".join(files))
    assert said.code == 0, said.err
    assert "isvalid: false" not in said.out
    return said.out.count("isvalid: true")


def test_leaders_of_both_kinds_die_under_load(tmp_path: Path, tools: ApacheTools) -> None:
    with cluster(tmp_path, "o", "ooa") as nodes:
        create(nodes, _TOPIC)
        ours, theirs = nodes.brokers("ottla")[0], nodes.brokers("apache")[0]
        assert {ours, theirs} <= set(led_by(nodes, _TOPIC).values())
        servers = nodes.bootstrap_servers
        with Load(servers, _TOPIC) as load, JavaClients(servers, _TOPIC, tmp_path / "java") as java:
            load.wait_for(40)
            for node in (theirs, ours):
                nodes.kill(node)
                load.wait_for(40)
                nodes.start(node)
                nodes.until_ready(node)
                until_whole(nodes, _TOPIC)
        load.ledger.sent += java.sent()
        assert judge(nodes, load.ledger) > 100
        stop_all(nodes)
        assert_replicas_are_the_same(nodes)
        assert dumped(nodes, tools, ours) == dumped(nodes, tools, theirs) > 0


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("controllers", "brokers"), [("o", "oaa"), ("aaa", "ooa"), ("ooa", "ooa"), ("oaa", "oaa")])
def test_every_node_dies_and_stops_under_load(tmp_path: Path, controllers: str, brokers: str) -> None:
    with cluster(tmp_path, controllers, brokers) as nodes:
        create(nodes, _TOPIC)
        servers = nodes.bootstrap_servers
        with Load(servers, _TOPIC) as load, JavaClients(servers, _TOPIC, tmp_path / "java") as java:
            load.wait_for(50)
            for node in nodes.nodes:
                if len(controllers) == 1 and nodes.nodes[node].is_controller:
                    continue
                for end in (nodes.kill, nodes.stop):
                    end(node)
                    load.wait_for(50)
                    nodes.start(node)
                    nodes.until_ready(node)
                    until_whole(nodes, _TOPIC)
        load.ledger.sent += java.sent()
        assert judge(nodes, load.ledger) > 300
        stop_all(nodes)
        assert_replicas_are_the_same(nodes)
