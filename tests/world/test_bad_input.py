"""What a cluster is told wrongly: each says in one line what is wrong and how to mend it, and changes nothing."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from ottla.broker.metadata import registration
from ottla.client import AsyncAdmin
from ottla.kernel.error import OttlaError
from ottla.sim.node import Clients, NodeHost
from ottla.sim.world import World
from tests.world.cluster import cluster, combined, servers_of


def _files(node: NodeHost) -> dict[str, bytes]:
    """Every file of the node's directory but the lock."""
    found: dict[str, bytes] = {}
    for name in node.disk.list("/data"):
        path = f"/data/{name}"
        try:
            inside = [f"{path}/{each}" for each in node.disk.list(path)]
        except OSError:
            inside = [path]
        found |= {each: node.disk.open(each).read(1 << 20, 0) for each in inside if not each.endswith(".lock")}
    return found


def _lines(node: NodeHost) -> list[str]:
    lines: list[str] = []
    assert node.running is not None
    node.running.on_progress = lines.append
    return lines


def test_the_log_directory_of_another_node_is_refused_and_left_as_it_is() -> None:
    world = World(1)
    controller, [broker] = cluster(world, 1)
    stranger = NodeHost(world, "stranger", {"process.roles": "broker", "node.id": "7", **_of(controller)})
    stranger.disk = broker.disk
    before = _files(broker)
    with pytest.raises(OttlaError) as caught:
        stranger.start()
    assert str(caught.value) == (
        "the log directory /data belongs to node 0, and this is node 7; "
        "set node.id=0, or give this node log.dirs of its own"
    )
    assert _files(broker) == before


def test_a_quorum_that_cannot_form_says_whom_it_lacks_and_how_many_it_needs() -> None:
    world = World(1)
    nodes = combined(world, 3)
    # The machines are there, and nothing listens.
    for other in nodes[1:]:
        other.host.boot()
    before = _files(nodes[0])
    nodes[0].start()
    lines = _lines(nodes[0])
    world.run_for(20_000)
    said = lines[-1]
    for other in nodes[1:]:
        assert f"{other.controller_address} cannot be reached: Connection refused" in said
    assert "(the quorum needs 2 of its 3 voters: start them, or check their addresses)" in said
    assert not nodes[0].is_ready
    # It asks for pre-votes, which raise no epoch.
    assert nodes[0].running is not None and nodes[0].running.quorum.leader_epoch == 0
    logs = [name for name in before if name.endswith(".log")]
    assert all(_files(nodes[0])[name] == before[name] for name in logs)


def test_a_listener_that_other_brokers_cannot_reach_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    world = World(1)
    with Clients(world), caplog.at_level(logging.WARNING, logger="ottla.broker"):
        controller, [good] = cluster(world, 1)
        own = {"process.roles": "broker", "node.id": "7", "advertised.listeners": "PLAINTEXT://192.0.2.250:9092"}
        bad = NodeHost(world, "bad", own | _of(controller))
        for each in (controller, good, bad):
            each.start()
        assert world.run_until(lambda: good.is_ready and bad.is_ready, limit_ms=20_000)
        client = world.host("client")
        client.boot()

        async def create() -> None:
            async with AsyncAdmin(servers_of([good])) as admin:
                await admin.create_topic("topic", partitions=4, replication_factor=2)

        client.run(create())
        world.run_for(60_000)
        said = [each.getMessage() for each in caplog.records if "does not answer a fetch" in each.getMessage()]
        assert len(said) == 1
        assert "broker 7, whose partitions this broker follows, does not answer a fetch at 192.0.2.250:9092" in said[0]
        assert "check that its advertised.listeners for PLAINTEXT can be reached from here" in said[0]
        # The other way is whole: what the good one leads is in sync.
        assert controller.running is not None
        known = controller.running.quorum.image.topics["topic"].partitions
        assert {len(each.isr) for each in known if each.leader == 0} == {2}


@pytest.mark.parametrize(("name", "highest"), [("metadata.version", 29), ("group.version", 0)])
def test_a_broker_that_cannot_run_the_cluster_s_feature_level_says_which(
    name: str, highest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(1)
    controller, [broker] = cluster(world, 1, {"initial.broker.registration.timeout.ms": "20000"})
    controller.start()
    world.run_for(1_000)
    assert controller.running is not None
    before = controller.running.quorum.image
    request = registration.broker_request

    def of_an_older_program(*arguments: Any) -> Any:
        made = request(*arguments)
        for each in made.features:
            if each.name == name:
                each.max_supported_version = highest
        return made

    monkeypatch.setattr(registration, "broker_request", of_an_older_program)
    broker.start()
    lines = _lines(broker)
    world.run_until(lambda: broker.failure is not None, limit_ms=40_000)
    said = f"the cluster is at {name} {highest + 1}, and this broker runs "
    assert broker.failure is not None and said in broker.failure
    assert any(said in line for line in lines)
    assert not broker.is_ready
    after = controller.running.quorum.image
    assert (after.brokers, after.features) == (before.brokers, before.features)


def _of(controller: NodeHost) -> dict[str, Any]:
    return {"controller.quorum.bootstrap.servers": controller.controller_address}
