"""A node that follows the metadata of another controller: records, images, snapshots, truncation, lost connections."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.kernel.error import KafkaError
from ottla.metadata.image import Image
from ottla.sim.node import NodeHost
from ottla.sim.world import World
from ottla.wire.api.alter_client_quotas import AlterClientQuotasRequest, EntityData, OpData, RequestEntryData


class FollowScene:
    """A controller, and a broker that follows it."""

    def __init__(self, seed: int, **more: str) -> None:
        self.world = world = World(seed)
        settings = {name.replace("_", "."): value for name, value in more.items()}
        self.controller = NodeHost(world, "controller", {"process.roles": "controller", "node.id": "9"} | settings)
        self.broker = NodeHost(
            world,
            "broker",
            {
                "process.roles": "broker",
                "node.id": "1",
                "controller.quorum.bootstrap.servers": self.controller.controller_address,
            },
        )
        #: What the broker was told of, as long as it runs.
        self.steps: list[tuple[Image, Image]] = []

    def start_broker(self) -> None:
        self.broker.start()
        self.steps = []
        assert self.broker.node is not None
        self.broker.node.quorum.subscribe(lambda old, new: self.steps.append((old, new)))

    def change(self, name: str) -> None:
        """Let the controller decide something, and wait for the answer."""
        entry = RequestEntryData(
            entity=[EntityData(entity_type="user", entity_name=name)], ops=[OpData(key="producer_byte_rate", value=1.0)]
        )
        answers: list[Any] = []
        assert self.controller.running is not None
        self.controller.running.quorum.ask(AlterClientQuotasRequest(entries=[entry]), answers.append)
        assert self.world.run_until(lambda: bool(answers), limit_ms=10_000)
        assert not isinstance(answers[0], KafkaError), answers

    @property
    def led(self) -> Image:
        assert self.controller.running is not None
        return self.controller.running.quorum.image

    @property
    def followed(self) -> Image:
        assert self.broker.node is not None
        return self.broker.node.quorum.image

    def follow(self, limit_ms: int = 30_000) -> None:
        """Wait until the broker has what the controller has."""
        assert self.world.run_until(lambda: self.followed == self.led, limit_ms=limit_ms), (
            self.followed.offset,
            self.led.offset,
        )
        assert self.broker.failure is None
        for (_, before), (after, _) in zip(self.steps, self.steps[1:], strict=False):
            assert before is after, "a step begins where the last one ended"


@pytest.mark.parametrize("seed", range(5))
def test_a_broker_follows_what_its_controller_commits(seed: int) -> None:
    scene = FollowScene(seed)
    scene.controller.start()
    scene.start_broker()
    scene.follow()
    for number in range(10):
        scene.change(f"user-{number}")
    scene.follow(limit_ms=5_000)
    assert len(scene.led.quotas) == 10
    assert len(scene.steps) > 5


@pytest.mark.parametrize("seed", range(5))
def test_a_broker_that_starts_first_waits_for_its_controller(seed: int) -> None:
    scene = FollowScene(seed)
    scene.start_broker()
    scene.world.run_for(5_000)
    assert scene.followed == Image.empty()
    scene.controller.start()
    scene.change("user")
    scene.follow(limit_ms=10_000)


@pytest.mark.parametrize("seed", range(10))
def test_either_may_die_and_comes_back(seed: int) -> None:
    scene = FollowScene(seed)
    scene.controller.start()
    scene.start_broker()
    rng = scene.world.rng
    for number in range(12):
        scene.change(f"user-{number}")
        scene.world.run_for(rng.randrange(300))
        dies = rng.choice([scene.controller, scene.broker, None])
        if dies is not None:
            rng.choice([dies.kill, dies.power_off])()
            scene.world.run_for(rng.randrange(3_000))
            (scene.start_broker if dies is scene.broker else dies.start)()
    scene.follow()
    assert len(scene.led.quotas) == 12


@pytest.mark.parametrize("seed", range(10))
def test_a_broker_that_missed_the_log_takes_a_snapshot(seed: int) -> None:
    # One that follows from the start, and one that comes when the log's beginning is gone.
    small = {
        "metadata_log_max_record_bytes_between_snapshots": "500",
        "metadata_max_retention_bytes": "600",
        "metadata_log_segment_bytes": "8388608",
    }
    scene = FollowScene(seed, **small)
    scene.controller.start()
    for number in range(20):
        scene.change(f"user-{number}")
        scene.world.run_for(100)
    assert scene.controller.running is not None
    assert scene.controller.running.quorum.log.start_offset > 0
    scene.start_broker()
    scene.follow()
    assert scene.broker.node is not None
    assert scene.broker.node.quorum.log.start_offset > 0
    rng = scene.world.rng
    for number in range(20, 30):
        scene.change(f"user-{number}")
        if not rng.randrange(3):
            scene.broker.power_off()
            scene.change(f"user-{number}b")
            scene.start_broker()
    scene.follow()
    names = {name for entity in scene.followed.quotas for _, name in entity}
    assert names >= {f"user-{number}" for number in range(30)}


@pytest.mark.parametrize("seed", range(10))
def test_links_are_cut_and_heal(seed: int) -> None:
    scene = FollowScene(seed)
    scene.controller.start()
    scene.start_broker()
    world, rng = scene.world, scene.world.rng
    one, two = scene.controller.host, scene.broker.host
    for number in range(10):
        ways = rng.choice([[(one, two)], [(two, one)], [(one, two), (two, one)]])
        for way in ways:
            world.network.cut(*way)
        scene.change(f"user-{number}")
        world.run_for(rng.randrange(8_000))
        for way in ways:
            world.network.heal(*way)
        world.run_for(rng.randrange(500))
    scene.follow()
    assert len(scene.followed.quotas) == 10


def test_two_runs_of_a_seed_are_the_same() -> None:
    def trace(seed: int) -> str:
        scene = FollowScene(seed)
        scene.controller.start()
        scene.start_broker()
        for number in range(5):
            scene.change(f"user-{number}")
        scene.follow()
        return scene.world.trace

    assert trace(1) == trace(1) != trace(2)


def test_what_a_controller_lost_in_a_power_failure_is_cut_from_those_who_have_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", logger="ottla.broker")
    cuts = 0
    for seed in range(30):
        caplog.clear()
        scene = FollowScene(seed)
        scene.controller.start()
        scene.start_broker()
        scene.change("first")
        scene.follow()
        for number in range(4):
            assert scene.controller.running is not None
            entry = RequestEntryData(
                entity=[EntityData(entity_type="user", entity_name=f"lost-{number}")],
                ops=[OpData(key="producer_byte_rate", value=1.0)],
            )
            scene.controller.running.quorum.ask(AlterClientQuotasRequest(entries=[entry]), lambda _: None)
            scene.world.run_for(scene.world.rng.randrange(4))
            scene.controller.power_off()
            scene.world.run_for(100)
            scene.controller.start()
            scene.change(f"kept-{number}")
        scene.follow()
        cuts += "truncating the metadata log from" in caplog.text
    assert cuts
