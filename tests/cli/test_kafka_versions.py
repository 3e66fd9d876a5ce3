"""kafka-broker-api-versions: a line for each API of each broker, also of brokers older and newer than this tool."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from ottla.cli.kafka.server import broker_api_versions
from ottla.client.admin.result import ClusterDescription
from ottla.client.connection.metadata import ClusterNode
from ottla.wire.api import API, ApiKey
from tests.cli.kafka_tool import kafka


def test_each_api_of_a_node_has_its_line(bootstrap: str, tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text("client.id=me\n")
    said = kafka("kafka-broker-api-versions", "--bootstrap-server", bootstrap, "--command-config", str(config))
    head, *lines, end = said.out.splitlines()
    host, _, port = bootstrap.partition(":")
    assert (said.code, said.err, end) == (0, "", ")")
    assert head == f"{host}:{port} (id: 1 rack: null isFenced: false) -> ("
    last = API[ApiKey.FETCH].versions[-1]
    assert lines[1] == f"\tFetch(1): {API[ApiKey.FETCH].versions[0]} to {last} [usable: {last}],"
    assert lines[-1].endswith("]")
    keys = [int(line.partition("(")[2].partition(")")[0]) for line in lines]
    assert keys == sorted(set(keys))


def test_brokers_of_other_versions_say_what_can_be_used() -> None:
    node = ClusterNode(7, "b7", 9092, "r")
    fetch, produce = API[ApiKey.FETCH].versions, API[ApiKey.PRODUCE].versions
    client: Any = mock.Mock()
    client.describe_cluster.return_value = ClusterDescription("c", node, (node,))
    client.api_versions.return_value = {
        7: {
            "UNKNOWN(999)": (0, 0),
            "Fetch": (fetch[-1] + 1, fetch[-1] + 2),
            "Produce": (0, produce[0] - 1),
            "Metadata": (0, 5),
        }
    }

    @contextmanager
    def opened(*_: object) -> Iterator[Any]:
        yield client

    with mock.patch.object(broker_api_versions, "admin", opened):
        head, *lines, _ = kafka("kafka-broker-api-versions", "--bootstrap-server", "b7:9092").out.splitlines()
    assert head == "b7:9092 (id: 7 rack: r isFenced: false) -> ("
    assert lines[:2] == [
        f"\tProduce(0): 0 to {produce[0] - 1} [unusable: node too old],",
        f"\tFetch(1): {fetch[-1] + 1} to {fetch[-1] + 2} [unusable: node too new],",
    ]
    assert "\tMetadata(3): 0 to 5 [usable: 5]," in lines
    assert "\tListOffsets(2): UNSUPPORTED," in lines
    assert not [line for line in lines if "BrokerHeartbeat" in line], "an API of controllers only"
    assert lines[-1] == "\tUNKNOWN(999): 0"
