"""The machine's disk: files by descriptor, read and written at a position.

Rules:
- No buffering of our own: when `write` returns, the data is in the kernel and survives the death of this process.
- A file's mark is its owner's right to execute it: one system call sets it, also on a full disk and without a free
  descriptor.
- A file closes itself when its last reference goes, so a deleted segment stays readable for a fetch that still holds a
  slice of it.
"""

import errno
import fcntl
import os
import stat
import struct
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, ClassVar

from ottla.host.descriptor import out_of_the_way
from ottla.kernel.lazy import LazyModule
from ottla.kernel.ports import Buffer, File

if TYPE_CHECKING:
    import shutil

    from ottla.host import volume
else:
    shutil = LazyModule("shutil")
    volume = LazyModule("ottla.host.volume")

#: The most buffers of one pwritev (IOV_MAX on Linux and macOS).
_PIECES_MAX = 1024

_CLOEXEC = getattr(os, "O_CLOEXEC", 0)
_OPEN = os.O_RDWR | _CLOEXEC
_CREATE = _OPEN | os.O_CREAT

#: Linux only; elsewhere POSIX record locks are used.
_OFD_SETLK: int | None = getattr(fcntl, "F_OFD_SETLK", None) if sys.platform == "linux" else None
#: struct flock of 64-bit Linux: l_type, l_whence, l_start, l_len (0: to the end), l_pid (0: required).
_FLOCK = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)


class HostFile:
    """An open file. `HostDisk.open` creates it."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def size(self) -> int:
        # No other call uses the file's own position, and this takes a third of the time of `fstat`.
        return os.lseek(self._fd, 0, os.SEEK_END)

    def read(self, size: int, position: int) -> bytes:
        return os.pread(self._fd, size, position)

    def write(self, data: Buffer, position: int) -> None:
        try:
            written = os.pwrite(self._fd, data, position)
        except OSError as error:
            self._add_name(error)
            raise
        if written != len(data):
            self._write_rest(memoryview(data)[written:], position + written)

    def write_many(self, pieces: Sequence[Buffer], position: int) -> None:
        if len(pieces) > _PIECES_MAX:
            self.write(b"".join(pieces), position)
            return
        size = sum(map(len, pieces))
        try:
            written = os.pwritev(self._fd, pieces, position)
        except OSError as error:
            self._add_name(error)
            raise
        if written != size:
            self._write_rest(memoryview(b"".join(pieces))[written:], position + written)

    def truncate(self, size: int) -> None:
        try:
            os.ftruncate(self._fd, size)
        except OSError as error:
            self._add_name(error)
            raise

    def sync(self) -> None:
        try:
            os.fsync(self._fd)
        except OSError as error:
            self._add_name(error)
            raise

    def mark(self, on: bool) -> None:
        mode = stat.S_IMODE(os.fstat(self._fd).st_mode)
        # Fails for a file of another user, for example.
        with suppress(OSError):
            os.fchmod(self._fd, mode | stat.S_IXUSR if on else mode & ~stat.S_IXUSR)

    def is_marked(self) -> bool:
        return bool(os.fstat(self._fd).st_mode & stat.S_IXUSR)

    def modified_ms(self) -> int:
        return os.fstat(self._fd).st_mtime_ns // 1_000_000

    def set_modified_ms(self, modified_ms: int) -> None:
        # Fails for a file of another user, for example.
        with suppress(OSError):
            os.utime(self._fd, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def descriptor(self) -> int | None:
        return self._fd

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.close()

    def _write_rest(self, rest: memoryview, position: int) -> None:
        while rest:
            try:
                written = os.pwrite(self._fd, rest, position)
            except OSError as error:
                self._add_name(error)
                raise
            if written == 0:
                raise OSError(errno.EIO, "a write at the end of a file wrote nothing")
            rest = rest[written:]
            position += written

    def _add_name(self, error: OSError) -> None:
        """Add the file's current name to the error of a call that has only its descriptor; Linux only."""
        with suppress(OSError):
            error.filename = os.readlink(f"/proc/self/fd/{self._fd}")


class HostLock:
    """A held `.lock` file, released by `close` or the end of the process."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def covers(self, files: Iterable[File]) -> bool:
        """Whether `sync_volume` covers the files: `syncfs` reports every failed write, and little is unwritten."""
        if not volume.reports_failures(self._fd) or volume.is_much_dirty():
            return False
        device = os.fstat(self._fd).st_dev
        fds = (file.descriptor() for file in files)
        return all(fd is not None and os.fstat(fd).st_dev == device for fd in fds)

    def sync_volume(self) -> None:
        """Call `syncfs` on the lock's own descriptor, which was opened before anything was written under the lock.

        The kernel reports to each descriptor all failures since it was opened, even those already reported to others.
        """
        volume.sync(self._fd)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class HostDisk:
    """The file system of this machine."""

    __slots__ = ()

    #: The class of the files that `open` returns.
    file: ClassVar[type[HostFile]] = HostFile

    def open(self, path: str, *, create: bool = False, lasting: bool = False) -> HostFile:
        fd = os.open(path, _CREATE if create else _OPEN, 0o644)
        return self.file(out_of_the_way(fd) if lasting else fd)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(path)

    def list(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def make_directory(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def remove(self, path: str) -> None:
        os.remove(path)

    def remove_tree(self, path: str) -> None:
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            if os.path.exists(path):
                raise

    def sync_directory(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | _CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def free_bytes(self, path: str) -> tuple[int, int]:
        usage = os.statvfs(path)
        return usage.f_blocks * usage.f_frsize, usage.f_bavail * usage.f_frsize

    def lock(self, path: str) -> HostLock | None:
        """Take the lock file at `path`; None if it is held, in this process or another.

        Java's `FileChannel.tryLock` is a POSIX record lock. Linux's open-file-description locks conflict with those,
        so an Apache broker and this one exclude each other. Unlike POSIX locks, they also exclude a second node in the
        same process, and closing another descriptor of the file does not release them.
        """
        fd = os.open(path, os.O_RDWR | os.O_CREAT | _CLOEXEC, 0o644)
        try:
            if _OFD_SETLK is None:
                fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            else:
                fcntl.fcntl(fd, _OFD_SETLK, _FLOCK)
        except OSError as error:
            os.close(fd)
            if error.errno in (errno.EACCES, errno.EAGAIN):
                return None
            raise
        return HostLock(fd)
