"""Quorums of Ottla's and Apache's voters, leadership forced round: all metadata logs agree, byte for byte."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.client import Admin
from tests.interop.apache_tool import ApacheTools
from tests.interop.mixed.nodes import MixedCluster, until
from tests.interop.mixed.test_brokers import cluster
from tests.interop.mixed.test_voters import Seen, create
from tests.replicas_on_disk import assert_common_prefix

_METADATA = "__cluster_metadata-0"
#: At least, and at most when controllers of one kind have won all elections.
_ROUNDS = range(6, 20)


@pytest.fixture(scope="module")
def tools() -> Iterator[ApacheTools]:
    with ApacheTools() as one:
        yield one


def status(tools: ApacheTools, *where: str) -> dict[str, str]:
    """What kafka-metadata-quorum says, line by line."""
    said = tools("kafka-metadata-quorum", *where, "describe", "--status")
    assert said.code == 0, said.err
    return {name: value.strip() for name, _, value in (line.partition(":") for line in said.out.splitlines())}


def leaders_told(tools: ApacheTools, nodes: MixedCluster, ask: Admin) -> set[str]:
    """Whom Apache's tool names when it asks a broker of each kind, and whom our client names."""
    told = {status(tools, "--bootstrap-server", nodes.address(each))["LeaderId"] for each in nodes.brokers()}
    return told | {str(Seen(ask).leader)}


def until_all_follow(nodes: MixedCluster, ask: Admin) -> int:
    """Until every node has fetched up to the leader's end; the high watermark then."""
    found = ask.describe_quorum()

    def all_there() -> bool:
        nonlocal found
        found = ask.describe_quorum()
        ends = {each.id: each.log_end_offset for each in (*found.voters, *found.observers)}
        return set(nodes.nodes) <= set(ends) and min(ends[each] for each in nodes.nodes) >= found.high_watermark

    until(all_there, lambda: str(found))
    return found.high_watermark


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("controllers", ["ooa", "oaa"])
def test_leadership_goes_round(tmp_path: Path, tools: ApacheTools, controllers: str) -> None:
    led: list[str] = []
    with cluster(tmp_path, controllers, "oa") as nodes, Admin(nodes.bootstrap_servers) as ask:
        while len(led) < _ROUNDS.start or (len(set(led)) < 2 and len(led) < _ROUNDS.stop):
            number = len(led)
            until_all_follow(nodes, ask)
            leader = Seen(ask).leader
            led.append(nodes.nodes[leader].kind)
            (nodes.kill if number % 2 else nodes.stop)(leader)
            create(ask, f"round-{number}")
            until(lambda: len(leaders_told(tools, nodes, ask)) == 1, lambda: str(leaders_told(tools, nodes, ask)))
            nodes.start(leader)
        assert set(led) == {"ottla", "apache"}
        end_offset = until_all_follow(nodes, ask)
        at_controllers = status(tools, "--bootstrap-controller", nodes.controllers)
        assert at_controllers["LeaderId"] == str(Seen(ask).leader)
        topics = {each.name for each in ask.list_topics()}
        assert {f"round-{number}" for number in range(len(led))} <= topics
        for each in nodes.nodes:
            nodes.kill(each)
    assert assert_common_prefix([nodes.data(each) for each in nodes.nodes], _METADATA, end_offset) > 0
