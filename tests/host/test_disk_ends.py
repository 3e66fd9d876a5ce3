"""The machine's disk when the system writes less than it was given, refuses, or lacks a call."""

import errno
import fcntl
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ottla.host import disk as module
from ottla.host.disk import HostDisk, HostFile

DATA = bytes(range(40))
WRITES: list[Callable[[HostFile], None]] = [
    lambda file: file.write(DATA, 5),
    lambda file: file.write_many([DATA[:1], DATA[1:15], b"", DATA[15:]], 5),
    lambda file: file.write_many([DATA[index : index + 1] for index in range(40)] + [b""] * 2000, 5),
]


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "file")


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("portion", [1, 7, 39])
def test_what_the_system_leaves_over_is_written_too(
    path: str, monkeypatch: pytest.MonkeyPatch, write: Callable[[HostFile], None], portion: int
) -> None:
    whole = os.pwrite

    def part(fd: int, data: Any, position: int) -> int:
        return whole(fd, bytes(data)[:portion], position)

    def part_of_many(fd: int, pieces: Sequence[Any], position: int) -> int:
        return part(fd, b"".join(pieces), position)

    monkeypatch.setattr(os, "pwrite", part)
    monkeypatch.setattr(os, "pwritev", part_of_many)
    file = HostDisk().open(path, create=True)
    write(file)
    assert file.read(100, 0) == bytes(5) + DATA
    file.close()


@pytest.mark.parametrize("write", WRITES)
def test_a_disk_that_fills_in_the_middle_of_a_write_is_an_error_with_the_files_name_of_now(
    path: str, write: Callable[[HostFile], None]
) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    file = HostDisk().open(path, create=True)
    HostDisk().rename(path, f"{path}.new")
    resource.setrlimit(resource.RLIMIT_FSIZE, (20, limits[1]))
    try:
        with pytest.raises(OSError) as refused:
            write(file)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (refused.value.errno, refused.value.filename) == (errno.EFBIG, f"{path}.new")
    assert file.read(100, 0) == bytes(5) + DATA[:15]
    file.close()


def test_a_system_that_writes_nothing_more_is_an_error_and_no_endless_loop(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "pwrite", lambda *_: 0)
    file = HostDisk().open(path, create=True)
    with pytest.raises(OSError) as refused:
        file.write(DATA, 0)
    assert refused.value.errno == errno.EIO
    file.close()


@pytest.mark.parametrize("gone", [True, False])
def test_a_tree_that_another_removes_meanwhile_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: bool
) -> None:
    """When a file below was gone, but the tree stays, something else is wrong."""
    tree = tmp_path / "tree"
    tree.mkdir()

    def removed(path: str) -> None:
        if gone:
            os.rmdir(path)
        raise FileNotFoundError(errno.ENOENT, "no such file", f"{path}/below")

    monkeypatch.setattr(shutil, "rmtree", removed)
    if gone:
        HostDisk().remove_tree(str(tree))
    else:
        with pytest.raises(FileNotFoundError, match="below"):
            HostDisk().remove_tree(str(tree))


def test_a_lock_that_fails_for_another_reason_is_no_held_lock_and_leaves_no_descriptor(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[int] = []
    close = os.close

    def noted(fd: int) -> None:
        closed.append(fd)
        close(fd)

    def refuse(*_: object) -> int:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(fcntl, "fcntl", refuse)
    monkeypatch.setattr(os, "close", noted)
    with pytest.raises(OSError) as refused:
        HostDisk().lock(path)
    assert refused.value.errno == errno.ENOLCK
    assert len(closed) == 1


@pytest.mark.parametrize("posix", [True, False])
def test_a_lock_keeps_other_processes_away_and_its_end_lets_them_in(
    path: str, monkeypatch: pytest.MonkeyPatch, posix: bool
) -> None:
    if posix:
        monkeypatch.setattr(module, "_OFD_SETLK", None)
    program = f"import fcntl\nfile = open({path!r}, 'r+b')\nfcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)"
    lock = HostDisk().lock(path)
    assert lock is not None
    said = subprocess.run([sys.executable, "-S", "-c", program], capture_output=True, text=True, check=False)
    assert "BlockingIOError" in said.stderr
    lock.close()
    lock.close()
    assert subprocess.run([sys.executable, "-S", "-c", program], check=False).returncode == 0
