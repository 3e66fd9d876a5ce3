"""A coordinator whose log moves to another directory while it is loaded."""

from __future__ import annotations

from ottla.broker.coordinators.driver import LOAD_BYTES
from ottla.group.records.encode import offset_entry
from ottla.group.state.offsets import Committed
from ottla.kernel.error import ErrorCode
from ottla.kernel.ids import OFFSETS_TOPIC, TopicPartition
from ottla.log.log import Origin
from ottla.wire.api.find_coordinator import FindCoordinatorRequest
from ottla.wire.batch import build
from tests.broker.disk_scene import TOPIC, Scene

_TP = TopicPartition(OFFSETS_TOPIC, 0)


def _with_groups() -> tuple[Scene, int]:
    """A scene with a log of groups of many pieces, and the number of groups."""
    scene = Scene(1, offsets_topic_num_partitions="1")
    scene.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4)
    scene.machine.settle()
    partition, number = scene.node.partitions[_TP], 0
    while partition.log.size < 60 * LOAD_BYTES:
        entries = []
        for _ in range(8):
            key, value = offset_entry(f"group-{number}", TOPIC, 0, Committed(number, -1, "x" * 4000, 1))
            entries.append((1, key, value, ()))
            number += 1
        partition.append(bytearray(build(entries)), 1, Origin.COORDINATOR)
    return scene, number


def test_a_log_that_moves_while_its_coordinator_is_loaded_is_loaded_to_its_end() -> None:
    scene, number = _with_groups()
    node = scene.node
    groups, before = node.groups, node.store.directory_of(_TP)
    groups.resign(0)
    assert node.log_dirs.move(_TP, "/b" if before == "/a" else "/a") is ErrorCode.NONE
    groups.lead(node.partitions[_TP])
    scene.machine.run(lambda: node.store.directory_of(_TP) != before)
    assert groups.loading(), "the log was loaded before it moved: this shows nothing"
    scene.machine.settle()
    assert len(groups.driver_of("g").machine.shard.groups) == number
