"""The fixtures that Ottla brings to everyone's tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import ottla
from ottla.wire.api.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.wire.api.metadata import MetadataRequest
from tests.broker.wire_client import WireClient

TOPIC, BROKER = 2, 4


def test_ottla_topic_is_there_on_ottla_node(ottla_node: ottla.Node, ottla_topic: str) -> None:
    with WireClient(ottla_node.bootstrap_servers) as client:
        (topic,) = client.ask(MetadataRequest(topics=None), 12).topics
    assert topic.name == ottla_topic == "test_ottla_topic_is_there_on_ottla_node"
    assert len(topic.partitions) == 1


def test_every_test_has_a_node_of_its_own(ottla_node: ottla.Node) -> None:
    with WireClient(ottla_node.bootstrap_servers) as client:
        assert client.ask(MetadataRequest(topics=None), 12).topics == []


def setting(client: WireClient, kind: int, resource: str, name: str) -> str:
    asked = DescribeConfigsResource(resource_type=kind, resource_name=resource, configuration_keys=[name])
    (found,) = client.ask(DescribeConfigsRequest(resources=[asked]), 4).results
    return str(found.configs[0].value)


@pytest.mark.ottla(settings={"message.max.bytes": 1234}, partitions=3, topic_settings={"retention.ms": 5})
def test_a_mark_says_what_the_node_and_the_topic_are_like(ottla_node: ottla.Node, ottla_topic: str) -> None:
    with WireClient(ottla_node.bootstrap_servers) as client:
        assert len(client.ask(MetadataRequest(topics=None), 12).topics[0].partitions) == 3
        assert setting(client, BROKER, "1", "message.max.bytes") == "1234"
        assert setting(client, TOPIC, ottla_topic, "retention.ms") == "5"


MISSPELT = """
import pytest

@pytest.mark.ottla(partition=3)
def test_it(ottla_topic):
    pass
"""


def test_a_mark_that_is_misspelt_is_refused(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(MISSPELT)
    command = [sys.executable, "-m", "pytest", "-p", "ottla.testing", "-c", "/dev/null", "--strict-markers"]
    alone = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    ran = subprocess.run(
        [*command, "--rootdir", tmp_path, tmp_path], capture_output=True, text=True, timeout=120, check=False, env=alone
    )
    assert "takes partitions, settings, topic_settings by name" in ran.stdout
    assert "1 error" in ran.stdout


def test_a_node_says_where_it_is() -> None:
    node = ottla.Node()
    assert repr(node) == "<ottla.Node, not running>"
    with node:
        assert repr(node) == f"<ottla.Node on {node.bootstrap_servers}, data in {node.data}>"
