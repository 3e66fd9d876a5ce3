"""A metadata log in a directory of its own (metadata.log.dir), beside the log directories."""

from __future__ import annotations

from random import Random

import pytest

from ottla.broker.metadata.format import format_directories
from ottla.kernel.error import OttlaError
from ottla.log.directory.directory import lock_directories
from ottla.sim.disk import SimDisk
from ottla.sim.node import NodeHost
from ottla.sim.world import World
from tests.broker.disk_scene import Scene
from tests.controller.place import CLUSTER_ID, Place

METADATA = "__cluster_metadata-0"


@pytest.fixture
def scene() -> Scene:
    scene = Scene(metadata_log_dir="/m")
    scene.create()
    return scene


def test_partitions_lie_in_the_log_directories_and_the_metadata_beside_them(scene: Scene) -> None:
    disk, machine = scene.machine.disk, scene.machine
    for end in (machine.power_off, machine.stop):
        assert scene.write(1, b"v") == "NONE"
        assert METADATA in disk.list("/m")
        assert not [path for path in ("/a", "/b") if METADATA in disk.list(path)]
        assert {scene.lies_in(index) for index in range(4)} == {"/a", "/b"}
        assert list(scene.described()) == ["/a", "/b"]
        named = {scene.node.log_dirs._id_of(path) for path in ("/a", "/b")}
        assert set(scene.node.image.brokers[1].log_dirs) == named
        assert scene.move(1, "/m") == "LOG_DIR_NOT_FOUND"
        end()
        machine.start()
        machine.settle()
    assert scene.read(1) == scene.written[1]


def test_a_node_goes_on_until_its_last_log_directory_has_failed(scene: Scene) -> None:
    scene.node.log_dirs.failed("/a", OSError(5, "Input/output error"))
    scene.machine.settle()
    failures = [scene.machine.failure]
    assert "NONE" in {scene.write(index, b"v") for index in range(4)}
    cluster_id = scene.node.cluster_id
    scene.node.log_dirs.failed("/b", OSError(5, "Input/output error"))
    failures.append(scene.machine.failure)
    assert failures == [None, "all log directories have failed, the last one /b: [Errno 5] Input/output error"]
    assert scene.node.cluster_id == cluster_id


def test_a_metadata_directory_that_does_not_work_stops_the_start(scene: Scene) -> None:
    scene.machine.power_off()
    scene.machine.disk.break_directory("/m")
    with pytest.raises(OttlaError, match="=/m does not work"):
        scene.machine.start()


def test_the_metadata_directory_belongs_to_one_node_of_one_cluster() -> None:
    place = Place(SimDisk(Random(1)), "/one", metadata_log_dir="/m")
    assert place.format() == [
        "Formatting data directory /one with metadata.version 4.3-IV0.",
        "Formatting dynamic metadata voter directory /m with metadata.version 4.3-IV0.",
    ]
    assert place.disk.exists(f"/m/{METADATA}") and not place.disk.exists(f"/one/{METADATA}")
    taken = lock_directories(place.disk, ["/one"], 1, "/m")
    with pytest.raises(OttlaError, match="the log directory /m is in use by another broker"):
        lock_directories(place.disk, ["/m"], 1)
    taken.unlock()
    with pytest.raises(OttlaError, match="the log directory /m belongs to node 1, and this is node 2"):
        lock_directories(place.disk, ["/m"], 2)
    other = Place(place.disk, "/two")
    format_directories(place.disk, other.settings, "other", clock=other.clock, rng=other.rng, standalone=True)
    with pytest.raises(OttlaError, match="belong to two clusters: /two to other, /m to"):
        lock_directories(place.disk, ["/two"], 1, "/m")
    lock_directories(place.disk, ["/one"], 1, "/m/").unlock()


def test_a_controller_alone_has_it_too() -> None:
    world = World(1)
    texts = {"process.roles": "controller", "node.id": "9", "log.dirs": "/data", "metadata.log.dir": "/m"}
    node = NodeHost(world, "controller", texts)
    node.start()
    assert world.run_until(lambda: node.decides, limit_ms=10_000)
    assert METADATA in node.disk.list("/m")
    assert METADATA not in node.disk.list("/data")


def test_a_broker_is_formatted_without_voters_of_its_own() -> None:
    place = Place(
        SimDisk(Random(1)),
        "/one",
        process_roles="broker",
        listeners="PLAINTEXT://127.0.0.1:9092",
        controller_quorum_bootstrap_servers="there:9093",
    )
    with pytest.raises(OttlaError, match="You can only use --standalone on a controller"):
        place.format()
    assert not place.disk.exists("/one")
    lines = format_directories(
        place.disk,
        place.settings,
        CLUSTER_ID,
        clock=place.clock,
        rng=place.rng,
        initial_controllers="7@there:9093:J8qXRwI-Qyi2G0guFTiuYw",
    )
    assert lines == ["Formatting dynamic metadata directory /one with metadata.version 4.3-IV0."]
