"""The log directories of one node: which belong together, who holds them, and what is told when one does not work."""

from __future__ import annotations

import errno
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from ottla.host.disk import HostDisk
from ottla.kernel.error import OttlaError
from ottla.log.checkpoint import META_PROPERTIES, write_properties
from ottla.log.directory.directory import Directories, lock_directories, take
from ottla.log.directory.store import Store
from ottla.log.setting import LogSettings
from ottla.sim.disk import SimDisk


def _disk(**clusters: str) -> SimDisk:
    """A disk with a formatted directory for each name, in the cluster that is its value."""
    disk = SimDisk(random.Random(1))
    for name, cluster in clusters.items():
        disk.make_directory(f"/{name}")
        _format(disk, f"/{name}", cluster)
    return disk


def _format(disk: SimDisk, path: str, cluster: str, **ids: str) -> None:
    ids = ids or {"node.id": "1"}
    write_properties(disk, f"{path}/{META_PROPERTIES}", {"version": "1", "cluster.id": cluster, **ids})


def _refused(disk: SimDisk, paths: Sequence[str], metadata: str | None = None, node_id: int = 1) -> str:
    with pytest.raises(OttlaError) as refused:
        lock_directories(disk, paths, node_id, metadata)
    return str(refused.value)


def _held(disk: SimDisk, *paths: str) -> list[bool]:
    """Whether each directory is locked."""
    held = []
    for path in paths:
        lock = disk.lock(f"{path}/.lock")
        held.append(lock is None)
        if lock is not None:
            lock.close()
    return held


def test_a_file_is_no_log_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OttlaError, match="file does not exist: format it first"):
        take(HostDisk(), str(tmp_path / "file"), 1, None)


def test_a_directory_of_before_kafka_3_names_its_node_as_the_broker() -> None:
    disk = _disk(a="c")
    _format(disk, "/a", "c", **{"broker.id": "1"})
    lock_directories(disk, ["/a"], 1).unlock()
    assert "belongs to node 1, and this is node 2" in _refused(disk, ["/a"], node_id=2)


@pytest.mark.parametrize("why", ["cluster", "node", "missing", "held"])
def test_a_directory_that_is_refused_leaves_none_locked(why: str) -> None:
    disk = _disk(a="c", b="d" if why == "cluster" else "c")
    if why == "node":
        _format(disk, "/b", "c", **{"node.id": "2"})
    other = disk.lock("/b/.lock") if why == "held" else None
    told = {
        "cluster": "belong to two clusters: /a to c, /b to d",
        "node": "/b belongs to node 2",
        "missing": "/nowhere does not exist",
        "held": "/b is in use by another broker",
    }[why]
    assert told in _refused(disk, ["/a", "/nowhere" if why == "missing" else "/b"])
    if other is not None:
        other.close()
    assert _held(disk, "/a", "/b") == [False, False]


def test_the_metadata_logs_own_directory_is_held_like_the_others_and_has_no_partitions() -> None:
    disk = _disk(a="c", m="c", other="d")
    store = Store.take(disk, ["/a/"], node_id=1, settings_of=lambda _: LogSettings(), metadata_dir="/m/")
    assert store.directories == ["/a"]
    assert (store.works("/a"), store.works("/m"), store.works("/other")) == (True, True, False)
    assert _held(disk, "/a", "/m") == [True, True]
    store.close()
    assert _held(disk, "/a", "/m") == [False, False]
    assert "/a to c, /other to d" in _refused(disk, ["/a"], "/other")


def test_a_directory_named_twice_for_both_purposes_is_taken_once() -> None:
    disk = _disk(a="c", b="c")
    found = lock_directories(disk, ["/a", "/b"], 1, "/b/")
    assert found.directories == ["/a", "/b"]
    found.unlock()


@pytest.mark.parametrize("broken", ["/a", "/m"])
def test_a_disk_that_fails_does_not_work_and_the_others_say_whose_the_node_is(broken: str) -> None:
    disk = _disk(a="c", b="c", m="c")
    disk.break_directory(broken)
    found: Directories = lock_directories(disk, ["/a", "/b"], 1, "/m")
    assert found.cluster_id == "c"
    assert [found.works(path) for path in ("/a", "/b", "/m")] == [path != broken for path in ("/a", "/b", "/m")]
    assert [(path, error.errno) for path, error in found.failed_directories.items()] == [(broken, errno.EIO)]
    found.unlock()


def test_a_node_none_of_whose_disks_works_says_why() -> None:
    disk = _disk(a="c", b="c")
    for path in ("/a", "/b"):
        disk.break_directory(path)
    told = _refused(disk, ["/a", "/b"])
    assert told.startswith("all log directories failed") and told.count("the simulated directory is broken") == 2
