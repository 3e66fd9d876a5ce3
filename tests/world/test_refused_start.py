"""Starts that cannot come to their end say why in one line, and what to do."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.log.directory.store import Store
from ottla.sim.node import NodeHost
from ottla.sim.world import World
from tests.world.cluster import cluster


def _told(node: NodeHost) -> list[str]:
    lines: list[str] = []
    assert node.running is not None
    node.running.on_progress = lines.append
    return lines


def test_a_broker_whose_controllers_are_not_there_says_whom_it_asks() -> None:
    world = World(1)
    controller, [broker] = cluster(world, 1)
    broker.start()
    lines = _told(broker)
    world.run_for(6_000)
    # The host is off: nothing answers.
    controller.host.boot()
    world.run_for(20_000)
    assert f"{controller.controller_address} cannot be reached" in lines[-1]
    world.run_until(lambda: broker.failure is not None, limit_ms=120_000)
    assert broker.failure is not None
    assert "no controller has taken this broker's registration in time" in broker.failure
    assert controller.controller_address in broker.failure


def test_a_broker_of_another_cluster_stops_and_names_the_controller() -> None:
    world = World(1)
    controller, _ = cluster(world, 0)
    stranger = NodeHost(
        world,
        "stranger",
        {
            "process.roles": "broker",
            "node.id": "5",
            "controller.quorum.bootstrap.servers": controller.controller_address,
        },
        cluster_id="AAAAAAAAAAAAAAAAAAAAtQ",
    )
    controller.start()
    stranger.start()
    assert world.run_until(lambda: stranger.failure is not None, limit_ms=5_000)
    assert stranger.failure is not None
    assert f"the controller at {controller.controller_address} belongs to another cluster than AAAA" in stranger.failure
    assert "correct controller.quorum.bootstrap.servers" in stranger.failure
    assert controller.failure is None


def test_a_broker_whose_id_is_taken_says_so_while_it_waits_and_when_it_gives_up() -> None:
    world = World(1)
    controller, [broker] = cluster(world, 1)
    own = {"controller.quorum.bootstrap.servers": controller.controller_address, "process.roles": "broker"}
    twin = NodeHost(world, "twin", own | {"node.id": "0", "initial.broker.registration.timeout.ms": "20000"})
    controller.start()
    broker.start()
    assert world.run_until(lambda: broker.is_ready, limit_ms=10_000)
    twin.start()
    lines = _told(twin)
    world.run_until(lambda: twin.failure is not None, limit_ms=40_000)
    assert "DUPLICATE_BROKER_REGISTRATION: This broker ID is already in use." in lines[-1]
    assert twin.failure is not None
    assert "DUPLICATE_BROKER_REGISTRATION: This broker ID is already in use." in twin.failure
    assert broker.failure is None


def test_a_broker_that_meets_a_bug_as_it_opens_its_logs_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would wait for good, with a session at the controller."""
    world = World(3)
    controller, [broker] = cluster(world, 1)

    def breaks(*_: Any, **__: Any) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr(Store, "load", breaks)
    controller.start()
    broker.start()
    assert world.run_until(lambda: broker.failure is not None, limit_ms=60_000)
    assert broker.failure == "cannot open the logs: a bug"
