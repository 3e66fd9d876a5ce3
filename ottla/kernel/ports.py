"""The ports: everything that a node needs from outside, which both the host and the simulator can provide.

`host` has the real ones, `sim` the simulated ones. There are four: Clock, Disk (with File), Rng, and the loop, which
has asyncio's interface.

Rules:
- Data that must survive a crash is made durable by `sync`; unsynced data may be lost, torn or kept.
- A rename is durable only after `sync_directory` of the parent.
- A failure is an OSError on every disk.
"""

from collections.abc import Sequence
from typing import Protocol

#: Bytes that another object may own; a memoryview is valid only as long as its owner allows.
Buffer = bytes | bytearray | memoryview


class Clock(Protocol):
    """Time in whole milliseconds."""

    def now_ms(self) -> int:
        """Wall-clock time since 1970-01-01 UTC. It may jump."""

    def monotonic_ms(self) -> int:
        """Time that never decreases; only differences are meaningful."""


class Rng(Protocol):
    """Randomness. `random.Random` is one."""

    def random(self) -> float: ...
    def randrange(self, stop: int, /) -> int: ...
    def randbytes(self, n: int, /) -> bytes: ...


class File(Protocol):
    """An open file. All reads and writes are at a position; there is no cursor."""

    def size(self) -> int: ...

    def read(self, size: int, position: int) -> bytes:
        """Read up to `size` bytes from `position`; fewer at the end of the file, none past it."""

    def write(self, data: Buffer, position: int) -> None:
        """Write all of `data` at `position`, or raise OSError."""

    def write_many(self, pieces: Sequence[Buffer], position: int) -> None:
        """Write the pieces in sequence from `position`, in one system call if the disk has one."""

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Return when the file's bytes and size survive a power failure."""

    def mark(self, on: bool) -> None:
        """Set or clear a mark that stays with the file when this process dies, as well as the file system allows."""

    def is_marked(self) -> bool: ...

    def modified_ms(self) -> int | None:
        """When the file was last written, on the clock of timestamps; None on a disk without times."""

    def set_modified_ms(self, modified_ms: int) -> None:
        """Have the file look as if it was last written then, as well as the file system allows."""

    def descriptor(self) -> int | None:
        """Return the file descriptor for sendfile; None on a disk without one."""

    def close(self) -> None: ...


class Disk(Protocol):
    """A file system. Paths are absolute strings with `/`."""

    def open(self, path: str, *, create: bool = False, lasting: bool = False) -> File:
        """Open for reading and writing. FileNotFoundError if the file does not exist and `create` is False.

        `lasting`: the file will stay open, so keep it out of the way of other code's descriptors.
        """

    def exists(self, path: str) -> bool: ...
    def is_directory(self, path: str) -> bool: ...
    def list(self, path: str) -> list[str]:
        """Return the names in a directory, sorted."""

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents; no error if it exists."""

    def rename(self, source: str, target: str) -> None:
        """Rename atomically; an existing file is replaced."""

    def remove(self, path: str) -> None:
        """Remove a file; FileNotFoundError if it does not exist."""

    def remove_tree(self, path: str) -> None:
        """Remove a directory with its content; no error if it does not exist."""

    def sync_directory(self, path: str) -> None:
        """Return when the names in this directory survive a power failure."""

    def free_bytes(self, path: str) -> tuple[int, int]:
        """Return (total, usable) bytes of the volume that holds `path`."""
