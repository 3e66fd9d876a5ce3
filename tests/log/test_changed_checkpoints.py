"""Start offsets and high watermarks are written when they have changed, and only then."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from ottla.log.checkpoint import HIGH_WATERMARKS, START_OFFSETS, read_offsets
from ottla.log.log import Log
from tests.broker.disk_scene import about_to_move
from tests.log.test_recreated import _TP, _Node, append


def _raise_watermark(log: Log, offset: int) -> None:
    log.high_watermark = offset


_MOVES: dict[str, Callable[[Log, int], object]] = {
    HIGH_WATERMARKS: _raise_watermark,
    START_OFFSETS: lambda log, offset: log.advance_start_offset(offset),
}


def _write(node: _Node, name: str) -> list[str]:
    """Write what has changed; the directories where something had."""
    tasks = node.store.changed_tasks(name)
    for task in tasks.values():
        task()
    return list(tasks)


def _on_disk(node: _Node, name: str) -> int | None:
    return read_offsets(node.disk, f"/a/{name}").get(_TP)


@pytest.mark.parametrize("name", _MOVES)
def test_an_offset_is_written_once_for_each_change(name: str) -> None:
    node = _Node()
    log, move = node.create(1), _MOVES[name]
    append(log, 10)
    log.high_watermark = 10 if name == START_OFFSETS else 0
    assert _write(node, name) == ([] if name == START_OFFSETS else ["/a"])
    for offset in (3, 5):
        move(log, offset)
        assert _write(node, name) == ["/a"]
        assert _on_disk(node, name) == offset
        assert not _write(node, name)
    move(log, 6)
    node.store.checkpoint(1)
    assert _on_disk(node, name) == 6
    assert not _write(node, name), "the other checkpoints' turn has written it"
    restarted = node.restart()
    assert restarted is not None
    if name == HIGH_WATERMARKS:
        assert node.store.checkpointed_high_watermark(_TP) == 6
    else:
        assert restarted.start_offset == 6


@pytest.mark.parametrize("name", _MOVES)
def test_an_offset_that_could_not_be_written_is_written_later(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    node = _Node()
    log = node.create(1)
    append(log, 10)
    log.high_watermark = 10
    _MOVES[name](log, 4)

    def refuse(source: str, target: str) -> None:
        raise OSError(errno.ENOSPC, "no space left", source)

    with monkeypatch.context() as full:
        full.setattr(node.disk, "rename", refuse)
        with pytest.raises(OSError, match="no space left"):
            _write(node, name)
    assert _write(node, name) == ["/a"]
    assert _on_disk(node, name) == 4


def test_the_end_of_a_sole_replica_is_no_high_watermark_that_changes() -> None:
    node = _Node()
    log = node.create(1)
    for _ in range(2):
        append(log, 1)
        assert not _write(node, HIGH_WATERMARKS)


def test_deleted_records_stay_deleted_after_a_power_loss_once_the_interval_has_passed() -> None:
    scene, _ = about_to_move(1, log_flush_start_offset_checkpoint_interval_ms="1000")
    scene.delete_before(1, 3)
    later_ms = scene.machine.clock.now_ms() + 1500
    scene.machine.run(lambda: scene.machine.clock.now_ms() >= later_ms)
    scene.machine.settle()
    scene.machine.power_off()
    scene.machine.start()
    scene.machine.settle()
    assert scene.first_offset(1) == 3
