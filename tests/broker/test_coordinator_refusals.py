"""What a coordinator's log refuses again and again is logged once, and once when it is over."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.coordinator.contract import TimePassed
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.replica.partition import Partition
from tests.broker.disk_scene import Scene
from tests.broker.test_coordinator_log import NAME, commit, consumer_heartbeat, coordinated

LOG = "__consumer_offsets-0"


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Any:
    """The lines so far about what the coordinator's log takes."""
    caplog.set_level("INFO", "ottla.broker")
    return lambda: [each for each in caplog.messages if f"append to {LOG}" in each]


def refuse(monkeypatch: pytest.MonkeyPatch, scene: Scene, code: ErrorCode, texts: list[str]) -> None:
    """Have the log refuse what a deadline appends, once with each text; between two tries, a client's commit."""
    driver = scene.node.groups.driver_of(NAME)
    append = Partition.append
    due: list[str] = []

    def refused(partition: Partition, *given: Any) -> Any:
        if not isinstance(driver._steps[0], TimePassed):
            return append(partition, *given)
        raise KafkaError(code, due.pop())

    with monkeypatch.context() as patched:
        patched.setattr(Partition, "append", refused)
        for text in texts:
            due.append(text)
            scene.machine.run(lambda: not due)
            if code is ErrorCode.MESSAGE_TOO_LARGE:
                assert commit(scene, 1, "other") == {"NONE"}


def test_a_full_disk_is_logged_once_although_the_coordinator_is_loaded_again(lines: Any) -> None:
    scene = coordinated()
    disk = scene.machine.disk
    assert commit(scene, 1) == {"NONE"}
    drivers = []
    for _ in range(2):
        for _ in range(3):
            disk.fill(disk._used())
            drivers.append(scene.node.groups.driver_of(NAME))
            assert commit(scene, 2) == {"NOT_COORDINATOR"}
            scene.machine.run(lambda: scene.node.groups.find(0) is not None)
        disk.fill(None)
        assert commit(scene, 3) == commit(scene, 4) == {"NONE"}
    assert len(set(map(id, drivers))) == len(drivers)
    assert lines() == 2 * [
        f"cannot append to {LOG}: [Errno 28] the simulated disk is full",
        f"can append to {LOG} again",
    ]


def test_a_deadline_that_cannot_append_is_logged_once_a_reason(monkeypatch: pytest.MonkeyPatch, lines: Any) -> None:
    scene = coordinated()
    assert scene.ask(consumer_heartbeat(0), 1).error_code == 0
    refuse(monkeypatch, scene, ErrorCode.NOT_ENOUGH_REPLICAS, ["1 is in sync", "1 is in sync", "none is", "none is"])
    members = scene.node.groups.driver_of(NAME).machine.shard.groups[NAME].members
    scene.machine.run(lambda: not members)
    assert lines() == [
        f"cannot append to {LOG}: 1 is in sync",
        f"cannot append to {LOG}: none is",
        f"can append to {LOG} again",
    ]


def test_records_that_are_too_large_are_logged_once_while_the_log_takes_others(
    monkeypatch: pytest.MonkeyPatch, lines: Any
) -> None:
    scene = coordinated(300)
    assert scene.ask(consumer_heartbeat(0), 1).error_code == 0
    refuse(monkeypatch, scene, ErrorCode.MESSAGE_TOO_LARGE, ["9 bytes", "9 bytes", "8 bytes"])
    assert lines() == [f"cannot append to {LOG}: 9 bytes"]
    for _ in range(2):
        assert commit(scene, 5, "other", partitions=300, metadata="x" * 4096) == {"UNKNOWN_SERVER_ERROR"}
    assert len(lines()) == 2, "another kind of step has its own line"
    assert commit(scene, 6, "other") == {"NONE"}
    assert commit(scene, 5, "other", partitions=300, metadata="x" * 4096) == {"UNKNOWN_SERVER_ERROR"}
    assert len(lines()) == 3, "it was over in the meantime"
