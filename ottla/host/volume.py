"""Makes a whole volume durable by one call, `syncfs`, where it reports every failure.

It does on Linux from 5.17 on: since 5.8 `syncfs` reports a failed write of any file of the volume to every descriptor
that was open then, and since 5.17 also a failure of the file system's own step. It does on ext4 (also ext2 and ext3),
XFS and Btrfs; others (overlayfs, FUSE, network file systems) do not report every failure.
"""

import ctypes
import os
import sys
from pathlib import Path

_KERNEL_MIN = (5, 17)
#: `f_type` of `statfs`: EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC, BTRFS_SUPER_MAGIC.
_FILE_SYSTEMS = frozenset({0xEF53, 0x58465342, 0x9123683E})
#: `syncfs` also waits for the data of other programs: it is not used when more than this is unwritten.
_DIRTY_KIB_MAX = 1 << 20
_ABOUT_MEMORY = Path("/proc/meminfo")
#: More than the size of `struct statfs` anywhere; `f_type` is its first word on 64-bit Linux.
_STATFS_BYTES = 512


def reports_failures(fd: int) -> bool:
    """Whether `sync` of this volume reports every failed write."""
    if sys.platform != "linux" or sys.maxsize < 1 << 32 or _kernel() < _KERNEL_MIN:
        return False
    found = ctypes.create_string_buffer(_STATFS_BYTES)
    try:
        failed = _libc().fstatfs(fd, found)
        _ = _libc().syncfs
    except AttributeError:
        # The C library does not have the call.
        return False
    return not failed and ctypes.c_ulong.from_buffer(found).value in _FILE_SYSTEMS


def is_much_dirty() -> bool:
    """Whether so much data of all programs is unwritten on this machine that syncing file by file is faster."""
    try:
        lines = _ABOUT_MEMORY.read_text().splitlines()
        kib = {line.split(":")[0]: int(line.split()[1]) for line in lines}
        return kib["Dirty"] + kib["Writeback"] > _DIRTY_KIB_MAX
    except (OSError, ValueError, KeyError, IndexError):
        return True


def sync(fd: int) -> None:
    """Make everything on the volume of this descriptor durable. OSError as the kernel reports it."""
    if _libc().syncfs(fd):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _kernel() -> tuple[int, ...]:
    """The first two numbers of the kernel's release; (0,) if it does not begin with numbers."""
    try:
        return tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2])
    except ValueError:
        return (0,)
