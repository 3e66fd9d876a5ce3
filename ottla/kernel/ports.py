"""The ports: all that a node needs from the world, so that the machine and the simulator can both give it.

`host` has the real ones, `sim` the simulated. There are four: Clock, Disk (with File), Rng, and the loop, which is
asyncio's own interface.

Rules:
- Everything on a path that must survive a crash says so by `sync`; what was not synced may be lost, torn or kept.
- A rename is durable only after `sync_directory` of the parent.
- A fault of the world is an OSError, on every disk alike.
"""

from collections.abc import Sequence
from typing import Protocol

#: Bytes of another owner; a memoryview is valid only as long as its owner says.
Buffer = bytes | bytearray | memoryview


class Clock(Protocol):
    """Time in whole milliseconds."""

    def now_ms(self) -> int:
        """Wall-clock time since 1970-01-01 UTC. It may jump."""

    def monotonic_ms(self) -> int:
        """Time that never goes back; only differences mean something."""


class Rng(Protocol):
    """Randomness. `random.Random` is one."""

    def random(self) -> float: ...
    def randrange(self, stop: int, /) -> int: ...
    def randbytes(self, n: int, /) -> bytes: ...


class File(Protocol):
    """An open file. All reads and writes are at a position; there is no cursor."""

    def size(self) -> int: ...

    def read(self, size: int, position: int) -> bytes:
        """Up to `size` bytes from `position`; shorter at the end of the file, empty past it."""

    def write(self, data: Buffer, position: int) -> None:
        """All of `data` at `position`, or OSError."""

    def write_many(self, pieces: Sequence[Buffer], position: int) -> None:
        """The pieces one after another from `position`, in one system call where the disk has one."""

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Return when the file's bytes and size survive a power failure."""

    def descriptor(self) -> int | None:
        """The file descriptor for sendfile, or None on a disk that has none."""

    def close(self) -> None: ...


class Disk(Protocol):
    """A file system. Paths are absolute strings with `/`."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing. FileNotFoundError if it is not there and `create` is False."""

    def exists(self, path: str) -> bool: ...
    def is_directory(self, path: str) -> bool: ...
    def list(self, path: str) -> list[str]:
        """The names in a directory, sorted."""

    def make_directory(self, path: str) -> None:
        """With its parents; no error if it is there."""

    def rename(self, source: str, target: str) -> None:
        """Atomic; replaces a file that is there."""

    def remove(self, path: str) -> None:
        """A file; FileNotFoundError if it is not there."""

    def remove_tree(self, path: str) -> None:
        """A directory with all that is in it; no error if it is not there."""

    def sync_directory(self, path: str) -> None:
        """Return when the names in this directory survive a power failure."""

    def free_bytes(self, path: str) -> tuple[int, int]:
        """(total, usable) bytes of the volume that holds `path`."""
