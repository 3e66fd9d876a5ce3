"""Syncs of a segment's file that fail, so that no start takes for durable what is not.

After a failed fsync the kernel shows what it could not write, and no later fsync writes it. The error is told once,
perhaps to a process that is being killed. So a file is marked while it is synced, and the mark goes only when the sync
has succeeded. A start writes a marked file again (decision 0790).
"""

import errno
from typing import TYPE_CHECKING

from ottla.log.path import LOG

if TYPE_CHECKING:
    from ottla.log.segment.segment import Segment

_COPY_BYTES = 1 << 20


def sync(segment: "Segment") -> None:
    """Make the file durable. May run on two threads at a time; it uses only the descriptor."""
    file, has_failed = segment.file, segment.sync_failed
    if has_failed:
        raise OSError(errno.EIO, "an earlier sync of the file failed", segment.path(LOG))
    file.mark(True)
    try:
        file.sync()
    except OSError:
        segment.sync_failed = True
        file.mark(True)
        raise
    file.mark(False)
    if segment.sync_failed:
        # On the other thread, in the meantime.
        file.mark(True)


def write_again(segment: "Segment") -> None:
    """Make a marked file durable: the kernel writes what it believes to be written only if it is written again."""
    for position in range(0, segment.size, _COPY_BYTES):
        segment.file.write(segment.file.read(min(_COPY_BYTES, segment.size - position), position), position)
    sync(segment)
