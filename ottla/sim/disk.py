"""A disk in memory that keeps, loses or tears unsynced writes, as a seed decides.

Rules:
- Every file has written content and durable content. `sync` makes them equal; a crash decides for every write since
  then, one by one, whether it is kept, lost, or torn at a sector. So a later write may survive an earlier one.
- `sync_directory` makes a directory's names durable (created, renamed, removed); of the changes since then, a crash
  keeps a prefix, as a journal does.
- Faults: a sync that fails (once), a full disk (a write may be partial), a crash before the n-th effect, directories
  that return only EIO.
- A sync that fails loses or tears some of its writes, as the seed decides. As on Linux, readers see them until the next
  crash, and no later sync writes them.
- After a crash, all open files are dead: using one is a bug of the test.

Not obvious: a hole left by a lost write reads as zeros, like a sparse file.
"""

import errno
from collections.abc import Callable, Iterable, Sequence

from ottla.kernel.ports import Buffer, File, Rng

#: The unit that a device writes atomically.
SECTOR_BYTES = 512


class Crashed(BaseException):
    """The simulated power failed. A BaseException, so that no handler in the code under test swallows it."""


class _Inode:
    """A file's bytes, independent of its names."""

    __slots__ = ("content", "durable", "failed", "marked", "pending")

    def __init__(self) -> None:
        #: A sync of the volume failed to write this file, and no sync of the file has reported it yet.
        self.failed = False
        self.marked = False
        #: The content that readers see.
        self.content = bytearray()
        #: The content that survives a crash.
        self.durable = bytearray()
        #: Writes (position, bytes) and truncations (size, None) since the last sync, in order.
        self.pending: list[tuple[int, bytes | None]] = []

    def keep(self) -> None:
        """Make the pending writes durable."""
        for position, data in self.pending:
            _apply_write(self.durable, position, data)
        self.pending.clear()

    def lose(self, rng: Rng) -> None:
        """Fail a sync: the kernel marks the pages clean, so no later sync writes what was lost."""
        pending, self.pending = self.pending, []
        for position, data in pending:
            left = data if data is None else _survivor(position, data, rng)
            if data is None or left is not None:
                self.pending.append((position, left))


class _Directory:
    """The names in one directory."""

    __slots__ = ("durable", "names", "pending")

    def __init__(self) -> None:
        self.names: dict[str, _Inode | _Directory] = {}
        self.durable: dict[str, _Inode | _Directory] = {}
        #: Changes since the last sync: name -> its new entry, or None.
        self.pending: list[dict[str, _Inode | _Directory | None]] = []

    def change(self, names: dict[str, "_Inode | _Directory | None"]) -> None:
        """Apply a change of names atomically."""
        _apply(self.names, names)
        self.pending.append(names)

    def keep(self) -> None:
        """Make the names durable."""
        self.durable = dict(self.names)
        self.pending.clear()


class SimFile:
    """An open file. `SimDisk.open` creates it."""

    def __init__(self, disk: "SimDisk", inode: _Inode, path: str) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode
        self._generation = disk.generation
        self._closed = False

    def size(self) -> int:
        return len(self._alive().content)

    def read(self, size: int, position: int) -> bytes:
        return bytes(self._alive().content[position : position + size])

    def write(self, data: Buffer, position: int) -> None:
        inode = self._alive()
        self._disk.effect()
        written = bytes(data)
        room = self._disk.room(max(0, position + len(written) - len(inode.content)))
        full = room < 0
        if full:
            # The part that fits is written before the error.
            written = written[: max(0, len(written) + room)]
        _write(inode.content, position, written)
        inode.pending.append((position, written))
        if full:
            raise OSError(errno.ENOSPC, "the simulated disk is full")

    def write_many(self, pieces: Sequence[Buffer], position: int) -> None:
        self.write(b"".join(pieces), position)

    def truncate(self, size: int) -> None:
        inode = self._alive()
        self._disk.effect()
        _truncate(inode.content, size)
        inode.pending.append((size, None))

    def sync(self) -> None:
        inode = self._alive()
        try:
            self._disk.effect()
        except Crashed:
            if self._disk.fails_when_killed:
                inode.lose(self._disk.rng)
            raise
        if self._disk.sync_fails():
            inode.lose(self._disk.rng)
        elif not inode.failed:
            return inode.keep()
        inode.failed = False
        raise OSError(errno.EIO, "the simulated disk could not write")

    def mark(self, on: bool) -> None:
        self._alive().marked = on

    def is_marked(self) -> bool:
        return self._alive().marked

    def modified_ms(self) -> None:
        return None

    def set_modified_ms(self, modified_ms: int) -> None:
        return None

    def descriptor(self) -> int | None:
        return None

    def close(self) -> None:
        self._closed = True

    def _alive(self) -> _Inode:
        assert self._generation == self._disk.generation, "a file of before the crash is used"
        if self._closed:
            raise OSError(errno.EBADF, "the file is closed")
        self._disk.check(self._path)
        return self._inode


class SimLock:
    """A held lock file."""

    def __init__(self, disk: "SimDisk", release: Callable[[], None]) -> None:
        self._disk = disk
        self._release = release

    def covers(self, files: Iterable[File]) -> bool:
        """Whether the simulated volume reports every failure, which a test may switch off."""
        return self._disk.volume_reports_failures

    def sync_volume(self) -> None:
        """Sync everything on the disk. If it fails, one file loses its writes, and its next own sync reports it."""
        self._disk.sync_all()

    def close(self) -> None:
        self._release()


class SimDisk:
    """The file system of one simulated machine."""

    def __init__(self, rng: Rng, *, bytes_max: int | None = None) -> None:
        self.rng = rng
        self._root = _Directory()
        self._bytes_max = bytes_max
        self._locks: set[str] = set()
        self._broken: set[str] = set()
        #: Incremented by every crash.
        self.generation = 0
        #: Number of effects (writes, syncs, renames, ...) so far.
        self.effects = 0
        #: Crash instead of executing the effect with this number.
        self.crash_at: int | None = None
        #: How many of the next syncs fail.
        self.syncs_to_fail = 0
        #: Whether a file's sync that the planned crash interrupts fails, so that no process learns of it.
        self.fails_when_killed = False
        #: True if a sync has failed since the last crash.
        self.has_failed = False
        #: Whether `sync_volume` may be used, and how often it was.
        self.volume_reports_failures = True
        self.volume_syncs = 0

    # ---- the port

    def open(self, path: str, *, create: bool = False, lasting: bool = False) -> SimFile:
        directory, name = self._parent(path)
        found = directory.names.get(name)
        if isinstance(found, _Directory):
            raise IsADirectoryError(errno.EISDIR, "a directory", path)
        if found is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            self.effect()
            found = _Inode()
            directory.change({name: found})
        return SimFile(self, found, path)

    def exists(self, path: str) -> bool:
        return not self._is_broken(path) and self._find(path) is not None

    def is_directory(self, path: str) -> bool:
        return not self._is_broken(path) and isinstance(self._find(path), _Directory)

    def list(self, path: str) -> list[str]:
        return sorted(self._directory(path).names)

    def make_directory(self, path: str) -> None:
        self.check(path)
        directory = self._root
        for name in _names(path):
            found = directory.names.get(name)
            if isinstance(found, _Inode):
                raise FileExistsError(errno.EEXIST, "a file is in the way", path)
            if found is None:
                self.effect()
                found = _Directory()
                directory.change({name: found})
            directory = found

    def rename(self, source: str, target: str) -> None:
        directory, name = self._parent(source)
        target_directory, target_name = self._parent(target)
        assert directory is target_directory, "no rename across directories: it would not be atomic in a crash"
        found = directory.names.get(name)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", source)
        taken = directory.names.get(target_name)
        if isinstance(found, _Directory) and isinstance(taken, _Directory) and taken.names:
            raise OSError(errno.ENOTEMPTY, "Directory not empty", source)
        self.effect()
        directory.change({name: None, target_name: found})

    def remove(self, path: str) -> None:
        directory, name = self._parent(path)
        if not isinstance(directory.names.get(name), _Inode):
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        self.effect()
        directory.change({name: None})

    def remove_tree(self, path: str) -> None:
        if self._find(path) is None:
            return
        directory, name = self._parent(path)
        self.effect()
        directory.change({name: None})

    def sync_directory(self, path: str) -> None:
        directory = self._directory(path)
        self.effect()
        if self.sync_fails():
            raise OSError(errno.EIO, "the simulated disk could not write")
        directory.keep()

    def sync_all(self) -> None:
        """`sync` every file and `sync_directory` every directory, in one call."""
        self.effect()
        self.volume_syncs += 1
        inodes: list[_Inode] = []
        waiting = [self._root]
        directories = []
        while waiting:
            directory = waiting.pop()
            directories.append(directory)
            for found in directory.names.values():
                (waiting if isinstance(found, _Directory) else inodes).append(found)  # type: ignore[arg-type]
        if self.sync_fails():
            dirty = [inode for inode in inodes if inode.pending]
            if dirty:
                lost = dirty[self.rng.randrange(len(dirty))]
                lost.lose(self.rng)
                lost.failed = True
            raise OSError(errno.EIO, "the simulated disk could not write")
        for inode in inodes:
            if not inode.failed:
                inode.keep()
        for directory in directories:
            directory.keep()

    def free_bytes(self, path: str) -> tuple[int, int]:
        self._directory(path)
        total = 1 << 40 if self._bytes_max is None else self._bytes_max
        return total, max(0, total - self._used())

    def lock(self, path: str) -> SimLock | None:
        if path in self._locks:
            return None
        self.open(path, create=True).close()
        self._locks.add(path)
        return SimLock(self, lambda: self._locks.discard(path))

    # ---- faults

    def effect(self) -> None:
        """Count an effect on the disk; raises Crashed at the planned one."""
        if self.crash_at is not None and self.effects >= self.crash_at:
            raise Crashed
        self.effects += 1

    def sync_fails(self) -> bool:
        """Whether this sync must fail; counts it."""
        if self.syncs_to_fail > 0:
            self.syncs_to_fail -= 1
            self.has_failed = True
            return True
        return False

    def break_directory(self, path: str) -> None:
        """Fail every later use of this directory, and of the open files in it, with EIO."""
        self._broken.add(path)

    def mend_directory(self, path: str) -> None:
        """Make the directory work again, with its old content."""
        self._broken.discard(path)

    def check(self, path: str) -> None:
        """Raise if the path is in a broken directory."""
        if self._is_broken(path):
            raise OSError(errno.EIO, "the simulated directory is broken", path)

    def _is_broken(self, path: str) -> bool:
        return bool(self._broken) and any(path == each or path.startswith(each + "/") for each in self._broken)

    def room(self, growth: int) -> int:
        """0 if the disk has room for this growth, else the negative number of missing bytes."""
        if self._bytes_max is None or not growth:
            return 0
        return min(0, self._bytes_max - self._used() - growth)

    def flip(self, path: str, bit: int) -> None:
        """Silently flip one bit of a file at rest."""
        directory, name = self._parent(path)
        inode = directory.names[name]
        assert isinstance(inode, _Inode), f"{path} is a directory"
        for content in (inode.content, inode.durable):
            if bit // 8 < len(content):
                content[bit // 8] ^= 1 << bit % 8

    def fill(self, bytes_max: int | None) -> None:
        """Set the size of the disk; None is unlimited."""
        self._bytes_max = bytes_max

    def kill(self) -> None:
        """Kill the process, not the machine: all writes are kept, synced or not."""
        self.generation += 1
        self.crash_at = None
        self.syncs_to_fail = 0
        self.has_failed = False
        self._locks.clear()

    def crash(self) -> None:
        """Fail the power and restore it: unsynced writes are kept, lost or torn."""
        self.kill()
        self._settle(self._root)

    def _settle(self, directory: _Directory) -> None:
        kept = self.rng.randrange(len(directory.pending) + 1)
        for names in directory.pending[:kept]:
            _apply(directory.durable, names)
        directory.pending.clear()
        directory.names = dict(directory.durable)
        for each in directory.names.values():
            if isinstance(each, _Directory):
                self._settle(each)
            else:
                self._settle_file(each)

    def _settle_file(self, inode: _Inode) -> None:
        for position, data in inode.pending:
            if data is None:
                if self.rng.randrange(3):
                    _truncate(inode.durable, position)
                continue
            left = _survivor(position, data, self.rng)
            if left is not None:
                _write(inode.durable, position, left)
        inode.pending.clear()
        inode.failed = False
        inode.content = bytearray(inode.durable)

    # ---- names

    def _parent(self, path: str) -> tuple[_Directory, str]:
        parent, _, name = path.rstrip("/").rpartition("/")
        return self._directory(parent or "/"), name

    def _directory(self, path: str) -> _Directory:
        found = self._find(path)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        if isinstance(found, _Inode):
            raise NotADirectoryError(errno.ENOTDIR, "a file", path)
        return found

    def _find(self, path: str) -> "_Inode | _Directory | None":
        self.check(path)
        found: _Inode | _Directory | None = self._root
        for name in _names(path):
            if not isinstance(found, _Directory):
                return None
            found = found.names.get(name)
        return found

    def _used(self) -> int:
        def count(directory: _Directory) -> int:
            return sum(
                count(each) if isinstance(each, _Directory) else _occupied(each.content)
                for each in directory.names.values()
            )

        return count(self._root)


def _names(path: str) -> list[str]:
    assert path.startswith("/"), f"a path is absolute: {path}"
    return [name for name in path.split("/") if name]


def _apply_write(content: bytearray, position: int, data: bytes | None) -> None:
    """Write, or truncate to `position` if there is no data."""
    if data is None:
        _truncate(content, position)
    else:
        _write(content, position, data)


def _apply(names: dict[str, _Inode | _Directory], change: dict[str, _Inode | _Directory | None]) -> None:
    for name, found in change.items():
        if found is None:
            names.pop(name, None)
        else:
            names[name] = found


def _survivor(position: int, data: bytes, rng: Rng) -> bytes | None:
    """The part of a write that reaches the disk: all of it, its beginning, or None if it is lost."""
    fate = rng.randrange(3)
    if fate == 0:
        return None
    if fate == 1 or len(data) <= 1:
        return data
    # Torn at the end of a sector, or anywhere if the write is within one.
    sectors = (position + len(data)) // SECTOR_BYTES - position // SECTOR_BYTES
    if sectors:
        return data[: (position // SECTOR_BYTES + 1 + rng.randrange(sectors)) * SECTOR_BYTES - position]
    return data[: rng.randrange(len(data))]


def _write(content: bytearray, position: int, data: bytes) -> None:
    if len(content) < position:
        content.extend(bytes(position - len(content)))
    content[position : position + len(data)] = data


def _truncate(content: bytearray, size: int) -> None:
    if len(content) > size:
        del content[size:]
    else:
        content.extend(bytes(size - len(content)))


def _occupied(content: bytearray) -> int:
    """The size without trailing zeros: preallocated space is sparse."""
    return len(content.rstrip(b"\0"))
