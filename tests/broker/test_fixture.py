"""The fixtures that Ottla brings to everyone's tests."""

from __future__ import annotations

import ottla
from ottla.wire.api.metadata import MetadataRequest
from tests.broker.wire_client import WireClient


def test_ottla_topic_is_there_on_ottla_node(ottla_node: ottla.Node, ottla_topic: str) -> None:
    with WireClient(ottla_node.bootstrap_servers) as client:
        (topic,) = client.ask(MetadataRequest(topics=None), 12).topics
    assert topic.name == ottla_topic == "test_ottla_topic_is_there_on_ottla_node"
    assert len(topic.partitions) == 1


def test_every_test_has_a_node_of_its_own(ottla_node: ottla.Node) -> None:
    with WireClient(ottla_node.bootstrap_servers) as client:
        assert client.ask(MetadataRequest(topics=None), 12).topics == []
