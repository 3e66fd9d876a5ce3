"""When syncing a whole volume may stand for syncing files one by one, on this machine."""

import errno
import os
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from ottla.host import volume
from ottla.host.disk import HostDisk


@pytest.mark.parametrize("release", ["5.16.20-generic", "4.18.0-553.el8_10.x86_64", "3.10", "unknown"])
def test_a_kernel_that_does_not_report_all_failures_is_not_trusted(
    release: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fd = os.open(tmp_path, os.O_RDONLY)
    monkeypatch.setattr(volume, "_FILE_SYSTEMS", _EveryFileSystem())
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "host", "5.17.0-1", "v", "x86_64")))
    assert volume.reports_failures(fd) == (sys.platform == "linux")
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "host", release, "v", "x86_64")))
    assert not volume.reports_failures(fd)
    os.close(fd)


def test_a_file_system_that_is_not_known_is_not_trusted() -> None:
    with open(os.devnull) as file:
        assert not volume.reports_failures(file.fileno())


@pytest.mark.parametrize(
    ("text", "much"),
    [
        ("MemTotal: 9 kB\nDirty: 1048000 kB\nWriteback: 576 kB\n", False),
        ("MemTotal: 9 kB\nDirty: 1048000 kB\nWriteback: 577 kB\n", True),
        ("MemTotal: 9 kB\n", True),
        ("Dirty:\n", True),
        (None, True),
    ],
)
def test_the_call_is_left_when_much_waits_to_be_written(
    text: str | None, much: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    about = tmp_path / "meminfo"
    if text is not None:
        about.write_text(text)
    monkeypatch.setattr(volume, "_ABOUT_MEMORY", about)
    assert volume.is_much_dirty() is much


def test_what_the_kernel_reports_is_raised() -> None:
    with pytest.raises(OSError, match="Bad file descriptor") as caught:
        volume.sync(-1)
    assert caught.value.errno == errno.EBADF


def test_a_lock_covers_files_of_its_volume_and_no_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(volume, "reports_failures", lambda _: True)
    monkeypatch.setattr(volume, "is_much_dirty", lambda: False)
    disk = HostDisk()
    lock = disk.lock(f"{tmp_path}/.lock")
    assert lock is not None
    mine = disk.open(f"{tmp_path}/a", create=True)
    # A log's directory may be a link to another volume.
    other = disk.file(os.open(os.devnull, os.O_RDONLY))
    assert lock.covers([mine])
    assert not lock.covers([mine, other])
    lock.sync_volume()
    for name, answer in (("reports_failures", False), ("is_much_dirty", True)):
        with monkeypatch.context() as patch:
            patch.setattr(volume, name, Mock(return_value=answer))
            assert not lock.covers([mine])
    lock.close()
    for each in (mine, other):
        each.close()


class _EveryFileSystem:
    def __contains__(self, kind: int) -> bool:
        return kind > 0
