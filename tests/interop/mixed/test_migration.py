"""From Apache Kafka to Ottla node by node, and back: the same directories, addresses and ids, under load all the time.

docs/how-to/migrate-from-apache.md tells what this does.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.apache_tool import ApacheTools
from tests.interop.mixed.load import JavaClients, Load, create, judge, until_whole
from tests.interop.mixed.nodes import MixedCluster, MixedNode
from tests.interop.mixed.test_brokers import assert_replicas_are_the_same

_TOPIC = "records"


@pytest.fixture(scope="module")
def tools() -> Iterator[ApacheTools]:
    with ApacheTools() as one:
        yield one


def three(directory: Path) -> MixedCluster:
    """Three nodes of Apache Kafka, each broker and controller."""
    return MixedCluster(directory, [MixedNode(number, "apache", "broker,controller") for number in (1, 2, 3)])


@pytest.mark.long
@pytest.mark.timeout(900)
def test_each_node_changes_in_place_and_back(tmp_path: Path, tools: ApacheTools) -> None:
    with three(tmp_path) as nodes:
        create(nodes, _TOPIC)
        servers = nodes.bootstrap_servers
        with Load(servers, _TOPIC) as load, JavaClients(servers, _TOPIC, tmp_path / "java") as java:
            load.wait_for(50)
            for kind in ("ottla", "apache"):
                for node in nodes.nodes:
                    nodes.become(node, kind)
                    until_whole(nodes, _TOPIC, "__consumer_offsets")
                    load.wait_for(50)
                said = tools("kafka-metadata-quorum", "--bootstrap-server", servers, "describe", "--status")
                assert all(f'"id": {node}' in said.out for node in nodes.nodes), said.out
        load.ledger.sent += java.sent()
        assert judge(nodes, load.ledger) > 300
        # The last of three that are controllers, too, would wait for the others while it stops.
        for node in nodes.nodes:
            nodes.kill(node)
        assert_replicas_are_the_same(nodes)
