"""Which log a partition gets at a start, and what becomes of moves that cannot go on."""

from __future__ import annotations

import errno
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.partitions import leadership
from ottla.broker.partitions.leadership import Leadership
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import TopicPartition
from ottla.log.directory import new_log
from ottla.log.path import DELETE_DIRECTORY, PARTITION_METADATA
from ottla.wire.api.delete_topics import DeleteTopicsRequest
from tests.broker.disk_scene import TOPIC, Scene

_TP = TopicPartition(TOPIC, 0)


@pytest.mark.parametrize("records", [[], [b"one"]])
def test_a_log_whose_topic_id_was_not_written_serves_and_keeps_its_records(records: list[bytes]) -> None:
    """A crash between the creation of the directory and that of its first file; an empty log gets its topic id."""
    scene = Scene()
    scene.create()
    for value in records:
        scene.write(0, value)
    where = f"{scene.lies_in(0)}/{_TP}/{PARTITION_METADATA}"
    scene.machine.stop()
    scene.machine.disk.remove(where)
    scene.machine.start()
    scene.machine.settle()
    assert scene.read(0) == records
    assert scene.write(0, b"two") == "NONE"
    assert scene.read(0) == [*records, b"two"]
    if not records:
        assert scene.machine.disk.exists(where)
        assert scene.node.store.get(_TP).topic_id == scene.node.image.topics[TOPIC].topic_id


@pytest.mark.parametrize(
    ("fields", "replaceable"),
    [
        ({}, True),
        ({"isr": (2, 1)}, False),
        ({"eligible_leader_replicas": (1,)}, False),
        ({"last_known_elr": (1,)}, False),
        ({"leader": 1}, False),
        ({"leader": -1}, False),
        ({"isr": (2, 3), "eligible_leader_replicas": (3,), "last_known_elr": (3,)}, True),
    ],
)
def test_a_lost_log_is_fetched_afresh_only_if_nothing_relies_on_it(fields: dict[str, Any], replaceable: bool) -> None:
    usual = {"leader": 2, "isr": (2,), "eligible_leader_replicas": (), "last_known_elr": ()}
    node: Any = SimpleNamespace(_runtime=SimpleNamespace(node_id=1))
    known: Any = SimpleNamespace(**usual | fields)
    assert Leadership._is_replaceable(node, known) is replaceable


def _moving(monkeypatch: pytest.MonkeyPatch, error: Exception) -> tuple[Scene, int]:
    """The copy of a move fails with this error."""
    scene = Scene()
    scene.create()
    _, moved = scene.in_b()
    scene.write(moved, b"one")

    def fails(*_: Any) -> None:
        raise error

    monkeypatch.setattr(scene.node.log_dirs, "_copy_piece", fails)
    assert scene.move(moved, "/b") == "NONE"
    scene.machine.settle()
    return scene, moved


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "full", "/b/t-0/x.log"),
        OSError(errno.EMFILE, "too many files"),
        KafkaError(ErrorCode.CORRUPT_MESSAGE, "a damaged batch"),
    ],
)
def test_a_move_that_cannot_go_on_is_dropped_and_no_directory_with_it(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    scene, moved = _moving(monkeypatch, error)
    assert not scene.node.failed_directories
    assert scene.node.store.future(TopicPartition(TOPIC, moved)) is None
    assert not [name for name in scene.machine.disk.list("/b") if name.endswith("-future")]
    assert (scene.lies_in(moved), scene.write(moved, b"two")) == ("/a", "NONE")
    assert scene.read(moved) == [b"one", b"two"]


@pytest.mark.parametrize(("code", "failed"), [(errno.EIO, ["/b"]), (errno.ENOSPC, [])])
def test_a_move_that_cannot_begin_is_an_error_of_its_destination(
    monkeypatch: pytest.MonkeyPatch, code: int, failed: list[str]
) -> None:
    scene = Scene()
    scene.create()
    _, moved = scene.in_b()

    def fails(*_: Any) -> None:
        raise OSError(code, "no")

    monkeypatch.setattr(scene.node.store, "begin_move", fails)
    assert scene.move(moved, "/b") == "KAFKA_STORAGE_ERROR"
    scene.machine.settle()
    assert list(scene.node.failed_directories) == failed
    assert scene.write(moved, b"one") == "NONE"


def test_a_log_whose_directory_fails_while_it_is_created_is_created_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    create = new_log.create_files

    def failing(batch: Any) -> Any:
        created = create(batch)
        scene.node.log_dirs.failed("/b", OSError(errno.EIO, "the disk fails"))
        return created

    with monkeypatch.context() as patch:
        patch.setattr(leadership, "create_files", failing)
        scene.create()
    scene.node.housekeeping.checkpoint()
    scene.machine.settle()
    assert {scene.write(index, b"one") for index in range(4)} == {"NONE"}
    assert {scene.lies_in(index) for index in range(4)} == {"/a"}


def _deleted_on_a_full_disk(**settings: str) -> tuple[Scene, list[OSError]]:
    """A scene that has deleted its topic of four partitions; its disk renames no log until the list is empty."""
    scene = Scene(1, None, **settings)
    scene.create()
    full = [OSError(errno.ENOSPC, "full")]
    rename = scene.machine.disk.rename

    def refusing(source: str, target: str) -> None:
        if full and target.endswith(DELETE_DIRECTORY):
            raise full[0]
        rename(source, target)

    scene.machine.disk.rename = refusing  # type: ignore[method-assign]
    response = scene.ask(DeleteTopicsRequest(topic_names=[TOPIC], timeout_ms=1000), 5)
    assert response.responses[0].error_code == 0
    scene.machine.settle()
    assert len(_of_topic(scene)) == 4
    return scene, full


def _of_topic(scene: Scene) -> list[str]:
    return [
        f"{path}/{name}" for path in ("/a", "/b") for name in scene.machine.disk.list(path) if name.startswith(TOPIC)
    ]


def _housekeeping(scene: Scene) -> None:
    scene.node.housekeeping.remove_deleted()
    scene.machine.settle()


def test_a_deleted_log_that_a_full_disk_kept_is_removed_when_there_is_room() -> None:
    scene, full = _deleted_on_a_full_disk(log_segment_delete_delay_ms="0")
    before = _of_topic(scene)
    _housekeeping(scene)
    assert _of_topic(scene) == before and not scene.node.failed_directories
    full.clear()
    # An administrator has made the room.
    scene.machine.disk.remove_tree(before[0])
    _housekeeping(scene)
    _housekeeping(scene)
    assert _of_topic(scene) == [] and not scene.node.failed_directories


def test_a_deleted_log_that_a_full_disk_kept_leaves_a_new_topic_of_its_name_alone() -> None:
    scene, full = _deleted_on_a_full_disk()
    scene.create()
    scene.write(0, b"new")
    full.clear()
    _housekeeping(scene)
    assert not [path for path in _of_topic(scene) if path.endswith(DELETE_DIRECTORY)]
    assert scene.read(0) == [b"new"] and scene.write(0, b"newer") == "NONE"


def test_a_deleted_log_on_a_disk_that_fails_later_takes_its_directory_offline_once() -> None:
    scene, full = _deleted_on_a_full_disk()
    directory = _of_topic(scene)[-1].rpartition("/")[0]
    assert directory == "/b"
    full[0] = OSError(errno.EIO, "broken")
    scene.node.store._unrenamed = {
        path: log for path, log in scene.node.store._unrenamed.items() if path.startswith(directory)
    }
    _housekeeping(scene)
    assert list(scene.node.failed_directories) == [directory]
    assert scene.node.store.unrenamed() == []
