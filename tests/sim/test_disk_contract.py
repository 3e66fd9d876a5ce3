"""One contract, both disks: what the log may rely on."""

import errno
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest

from ottla.host.disk import HostDisk
from ottla.kernel.ports import Disk
from ottla.log.directory.directory import LockingDisk
from ottla.sim.disk import SimDisk


class Place(Protocol):
    disk: LockingDisk
    path: str


class _Place:
    def __init__(self, disk: LockingDisk, path: str) -> None:
        self.disk = disk
        self.path = path


@pytest.fixture(params=["host", "sim"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "host":
        yield _Place(HostDisk(), str(tmp_path))
    else:
        disk = SimDisk(random.Random(1))
        disk.make_directory("/data")
        yield _Place(disk, "/data")


def _write(disk: Disk, path: str, data: bytes) -> None:
    file = disk.open(path, create=True)
    file.write(data, 0)
    file.close()


def _read(disk: Disk, path: str) -> bytes:
    file = disk.open(path)
    try:
        return file.read(1 << 20, 0)
    finally:
        file.close()


def test_what_is_written_is_read_back_at_its_position(place: Place) -> None:
    file = place.disk.open(f"{place.path}/a", create=True)
    file.write(b"hello", 0)
    file.write(memoryview(b"world"), 5)
    file.write(bytearray(b"W"), 5)
    assert file.read(100, 0) == b"helloWorld"
    assert file.read(3, 5) == b"Wor"
    assert file.size() == 10
    file.close()


def test_a_read_past_the_end_is_short_or_empty(place: Place) -> None:
    file = place.disk.open(f"{place.path}/a", create=True)
    file.write(b"abc", 0)
    assert file.read(10, 2) == b"c"
    assert file.read(10, 3) == b""
    assert file.read(10, 30) == b""
    file.close()


def test_pieces_are_written_one_after_another(place: Place) -> None:
    file = place.disk.open(f"{place.path}/a", create=True)
    file.write_many([b"ab", memoryview(b"cd"), bytearray(b"ef")], 2)
    assert file.read(100, 0) == b"\0\0abcdef"
    file.close()


def test_more_pieces_than_a_system_call_takes_are_written_all_the_same(place: Place) -> None:
    file = place.disk.open(f"{place.path}/a", create=True)
    file.write_many([b"%04d" % number for number in range(3000)], 0)
    assert file.size() == 12000
    assert file.read(4, 4 * 2999) == b"2999"
    file.close()


def test_truncate_cuts_and_extends_with_zeros(place: Place) -> None:
    file = place.disk.open(f"{place.path}/a", create=True)
    file.write(b"abcdef", 0)
    file.truncate(2)
    assert file.read(10, 0) == b"ab"
    file.truncate(4)
    assert file.read(10, 0) == b"ab\0\0"
    file.close()


def test_open_without_create_needs_the_file(place: Place) -> None:
    with pytest.raises(FileNotFoundError):
        place.disk.open(f"{place.path}/none")
    _write(place.disk, f"{place.path}/a", b"x")
    place.disk.open(f"{place.path}/a", create=True).close()
    assert _read(place.disk, f"{place.path}/a") == b"x"


def test_directories_are_made_with_their_parents_and_listed_in_order(place: Place) -> None:
    deep = f"{place.path}/one/two"
    place.disk.make_directory(deep)
    place.disk.make_directory(deep)
    for name in ("b", "a", "c"):
        _write(place.disk, f"{deep}/{name}", b"")
    assert place.disk.list(deep) == ["a", "b", "c"]
    assert place.disk.is_directory(deep)
    assert not place.disk.is_directory(f"{deep}/a")
    assert place.disk.exists(f"{deep}/a")
    assert not place.disk.exists(f"{deep}/z")


def test_rename_replaces_what_is_there(place: Place) -> None:
    _write(place.disk, f"{place.path}/a", b"new")
    _write(place.disk, f"{place.path}/b", b"old")
    place.disk.rename(f"{place.path}/a", f"{place.path}/b")
    assert place.disk.list(place.path) == ["b"]
    assert _read(place.disk, f"{place.path}/b") == b"new"


def test_a_directory_is_renamed_with_all_that_is_in_it(place: Place) -> None:
    place.disk.make_directory(f"{place.path}/a")
    _write(place.disk, f"{place.path}/a/x", b"1")
    place.disk.rename(f"{place.path}/a", f"{place.path}/b")
    assert _read(place.disk, f"{place.path}/b/x") == b"1"
    assert not place.disk.exists(f"{place.path}/a")


def test_no_directory_replaces_one_with_files(place: Place) -> None:
    for name in ("a", "b"):
        place.disk.make_directory(f"{place.path}/{name}")
        _write(place.disk, f"{place.path}/{name}/x", name.encode())
    with pytest.raises(OSError, match="not empty") as raised:
        place.disk.rename(f"{place.path}/a", f"{place.path}/b")
    assert raised.value.errno == errno.ENOTEMPTY
    assert _read(place.disk, f"{place.path}/b/x") == b"b"
    place.disk.remove(f"{place.path}/b/x")
    place.disk.rename(f"{place.path}/a", f"{place.path}/b")
    assert _read(place.disk, f"{place.path}/b/x") == b"a"


def test_a_removed_or_renamed_file_stays_readable_for_who_has_it_open(place: Place) -> None:
    _write(place.disk, f"{place.path}/a", b"kept")
    file = place.disk.open(f"{place.path}/a")
    place.disk.rename(f"{place.path}/a", f"{place.path}/b")
    assert file.read(10, 0) == b"kept"
    place.disk.remove(f"{place.path}/b")
    assert file.read(10, 0) == b"kept"
    file.close()


def test_remove_needs_the_file_and_remove_tree_does_not(place: Place) -> None:
    with pytest.raises(FileNotFoundError):
        place.disk.remove(f"{place.path}/none")
    place.disk.remove_tree(f"{place.path}/none")
    place.disk.make_directory(f"{place.path}/a/b")
    _write(place.disk, f"{place.path}/a/b/x", b"1")
    place.disk.remove_tree(f"{place.path}/a")
    assert place.disk.list(place.path) == []


def test_sync_of_files_and_directories_returns(place: Place) -> None:
    file = place.disk.open(f"{place.path}/a", create=True)
    file.write(b"x", 0)
    file.sync()
    file.close()
    place.disk.sync_directory(place.path)
    total, usable = place.disk.free_bytes(place.path)
    assert 0 < usable <= total


def test_a_lock_is_held_by_one_at_a_time(place: Place) -> None:
    lock = place.disk.lock(f"{place.path}/.lock")
    assert lock is not None
    assert place.disk.lock(f"{place.path}/.lock") is None
    # Another descriptor of the same file that is closed does not let go of the lock.
    place.disk.open(f"{place.path}/.lock").close()
    assert place.disk.lock(f"{place.path}/.lock") is None
    lock.close()
    again = place.disk.lock(f"{place.path}/.lock")
    assert again is not None
    again.close()


def test_a_closed_file_refuses(place: Place) -> None:
    file = place.disk.open(f"{place.path}/a", create=True)
    file.close()
    with pytest.raises(OSError) as caught:
        file.write(b"x", 0)
    assert caught.value.errno == errno.EBADF


def test_the_errors_of_the_machines_disk_name_the_file() -> None:
    file = HostDisk().open("/dev/full")
    calls: list[Callable[[], None]] = [
        lambda: file.write(b"x", 0),
        lambda: file.write_many([b"x", b"y"], 0),
        lambda: file.truncate(1),
        file.sync,
    ]
    for fail in calls:
        with pytest.raises(OSError) as caught:
            fail()
        assert str(caught.value).endswith(": '/dev/full'")
    file.close()


def test_a_mark_stays_with_the_file(place: Place) -> None:
    path = f"{place.path}/a"
    file = place.disk.open(path, create=True)
    assert not file.is_marked()
    file.mark(True)
    file.mark(True)
    file.close()
    place.disk.rename(path, f"{place.path}/b")
    file = place.disk.open(f"{place.path}/b")
    assert file.is_marked()
    file.mark(False)
    assert not file.is_marked()
    file.close()
