"""Voters that come and go while the quorum runs (KIP-853): controllers and tools of both kinds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.client import Admin
from ottla.kernel.error import KafkaError
from ottla.kernel.ids import uuid_text
from tests.cli.tool import Said, in_process
from tests.interop.apache_tool import ApacheTools
from tests.interop.mixed.nodes import MixedCluster, MixedNode, until

pytestmark = pytest.mark.timeout(600)

_KINDS = {"a": "apache", "o": "ottla"}


class Seen:
    """The quorum as a broker describes it."""

    def __init__(self, ask: Admin) -> None:
        try:
            found = ask.describe_quorum()
        except KafkaError:
            # Between two leaders.
            self.leader, self.voters, self.observers = -1, {}, set()
            return
        self.leader = found.leader_id
        self.voters = {each.id: uuid_text(each.directory_id) for each in found.voters}
        self.observers = {each.id for each in found.observers}


@pytest.fixture(scope="module")
def tools() -> Iterator[ApacheTools]:
    with ApacheTools() as one:
        yield one


def cluster(directory: Path, kinds: str, *, auto_join: bool = False) -> MixedCluster:
    """Controllers of these kinds, of which the first begins the quorum, and a broker of ours."""
    first, others = kinds[0], kinds[1:]
    settings = {"controller.quorum.auto.join.enable": "true"} if auto_join else {}
    nodes = [
        MixedNode(1, _KINDS[first], "controller", settings=settings),
        *(
            MixedNode(number, _KINDS[kind], "controller", joins=True, settings=settings)
            for number, kind in enumerate(others, 2)
        ),
        MixedNode(9, "ottla"),
    ]
    return MixedCluster(directory, nodes)


def add(nodes: MixedCluster, tools: ApacheTools, node_id: int) -> None:
    """By Apache's tool, which reads the joining controller's file and directory."""
    leader = f"127.0.0.1:{nodes.nodes[1].controller_port}"
    file = str(nodes.properties(node_id))
    # A controller that has only just come up may not be caught up yet.
    said = repeated(
        tools,
        "TimeoutException: Aborted add voter operation",
        *("--bootstrap-controller", leader, "--command-config", file, "add-controller"),
    )
    assert said.out.startswith(f"Added controller {node_id} with directory id")


def repeated(tools: ApacheTools, refusal: str, *words: str) -> Said:
    """Run kafka-metadata-quorum until it succeeds. `refusal`: what a quorum says that is not ready and did nothing."""
    said = Said(1, "", "")

    def done() -> bool:
        nonlocal said
        said = tools("kafka-metadata-quorum", *words)
        assert said.code == 0 or refusal in said.err, said.err
        return said.code == 0

    until(done, lambda: said.err)
    return said


def until_observed(nodes: MixedCluster, ask: Admin, observers: set[int]) -> None:
    for each in observers:
        nodes.start(each)
    until(lambda: observers <= Seen(ask).observers, lambda: f"{Seen(ask).observers}\n{nodes.tail(min(observers))}")


def until_another_leads(ask: Admin, before: int) -> int:
    until(lambda: Seen(ask).leader not in (-1, before), "no other controller leads")
    return Seen(ask).leader


def create(ask: Admin, name: str) -> None:
    """The quorum decides and commits."""
    ask.create_topic(name)
    until(lambda: name in {each.name for each in ask.list_topics()}, f"the topic {name}")


@pytest.mark.parametrize(
    "kinds", ["oa", pytest.param("oao", marks=pytest.mark.long), pytest.param("aoo", marks=pytest.mark.long)]
)
def test_controllers_become_voters_and_leave(tmp_path: Path, tools: ApacheTools, kinds: str) -> None:
    with cluster(tmp_path, kinds) as nodes, Admin(nodes.bootstrap_servers) as ask:
        joining = set(range(2, len(kinds) + 1))
        until_observed(nodes, ask, joining)
        for number, each in enumerate(sorted(joining), 2):
            add(nodes, tools, each)
            until(lambda: len(Seen(ask).voters) == number, f"{number} voters")  # noqa: B023 - called here
        create(ask, "with-all")
        voters = Seen(ask).voters
        # The first one leaves, which leads: it resigns when its record is committed. Ours is the tool this time.
        left = in_process("quorum", "remove", "1", voters[1], "--yes", "-b", nodes.address(9))
        assert left.code == 0, left.err
        assert until_another_leads(ask, 1) in joining
        until(lambda: set(Seen(ask).voters) == joining, "its vote")
        create(ask, "without-the-first")
        if len(kinds) > 2:
            nodes.kill(1)
        back = "1", voters[1], f"CONTROLLER://127.0.0.1:{nodes.nodes[1].controller_port}"
        if len(kinds) == 2:
            # It follows as an observer and can be added again.
            until(lambda: 1 in Seen(ask).observers, "the first one as an observer")
            added = in_process("quorum", "add", *back, "-b", nodes.address(9))
            assert added.code == 0, added.err
            assert set(Seen(ask).voters) == {1, *joining}


@pytest.mark.long
@pytest.mark.parametrize("kinds", ["oao", "aoo", "ooo"])
def test_controllers_join_by_themselves(tmp_path: Path, tools: ApacheTools, kinds: str) -> None:
    with cluster(tmp_path, kinds, auto_join=True) as nodes, Admin(nodes.bootstrap_servers) as ask:
        for each in (2, 3):
            nodes.start(each)
        until(lambda: set(Seen(ask).voters) == {1, 2, 3}, lambda: f"{Seen(ask).voters} {nodes.tail(2)} {nodes.tail(3)}")
        nodes.kill(1)
        leader = until_another_leads(ask, 1)
        create(ask, "after-the-first")
        # A new disk is another voter: the old one is removed, and the new one joins (KIP-853).
        follower = 5 - leader
        before = Seen(ask).voters[follower]
        nodes.start(1)
        until(lambda: nodes.runs(1) and Seen(ask).leader != -1, "the first one")
        nodes.kill(follower)
        nodes.renew(follower)
        nodes.start(follower)
        until(
            lambda: {**Seen(ask).voters, follower: before} != (now := Seen(ask).voters) and set(now) == {1, 2, 3},
            lambda: f"{Seen(ask).voters} {nodes.tail(follower)}",
        )
        create(ask, "with-a-new-disk")


@pytest.mark.long
@pytest.mark.parametrize("kinds", ["ooa", "aao"])
def test_a_static_quorum_becomes_dynamic(tmp_path: Path, tools: ApacheTools, kinds: str) -> None:
    controllers = [MixedNode(number, _KINDS[kind], "controller") for number, kind in enumerate(kinds, 1)]
    with (
        MixedCluster(tmp_path, [*controllers, MixedNode(9, "ottla")], static=True) as nodes,
        Admin(nodes.bootstrap_servers) as ask,
    ):
        assert set(Seen(ask).voters) == {1, 2, 3}
        # Every voter has to say first that it can (UpdateRaftVoter), which takes a fetch timeout.
        words = "--bootstrap-server", nodes.address(9), "upgrade", "--feature", "kraft.version=1"
        until(lambda: tools("kafka-features", *words).code == 0, "kraft.version 1")
        until(lambda: "AAAAAAAAAAAAAAAAAAAAAA" not in Seen(ask).voters.values(), "the voters' directories")
        leader = Seen(ask).leader
        nodes.kill(leader)
        assert until_another_leads(ask, leader) != leader
        # A new leader takes no change before it has committed a record of its own.
        repeated(
            tools,
            "TimeoutException: Request timed out waiting for leader to establish HWM",
            *("--bootstrap-server", nodes.address(9), "remove-controller"),
            *("--controller-id", str(leader), "--controller-directory-id", Seen(ask).voters[leader]),
        )
        create(ask, "dynamic")
