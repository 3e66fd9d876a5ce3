"""File descriptors: as many as this machine allows, and the low numbers left to others.

A partition holds a descriptor or two. Other code in the process that waits with `select()` (the thread of PySpark that
hears of a query's progress does) can only use numbers below 1,024, and would stop for good when files have taken them.
"""

import fcntl
import os
import resource

#: FD_SETSIZE: what `select()` takes is below.
_SELECT_MAX = 1024
#: What is asked for where the machine names no highest number.
_PLENTY = 1 << 20
#: macOS refuses more than this (OPEN_MAX), whatever its limit says.
_OPEN_MAX = 10_240
#: The table of descriptors is made for as many at once: 128 KiB of the kernel's.
_ROOM = 16_384


def allow_many() -> None:
    """Raise this process's limit of open files to what it may be raised to, as a JVM does at its start.

    Called before there are threads, if that can be: with threads Linux waits 20 ms for all processors whenever the
    table of descriptors grows, which it does each time that their number doubles.
    """
    _raise_limit()
    _grow_table()


def _raise_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in (_PLENTY if hard == resource.RLIM_INFINITY else hard, _OPEN_MAX):
        if soft == resource.RLIM_INFINITY or wanted <= soft:
            return
        try:
            return resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (ValueError, OSError):
            # Not allowed here; the next one may be.
            continue


def _grow_table() -> None:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    last = _ROOM - 1 if limit == resource.RLIM_INFINITY else min(_ROOM, limit) - 1
    fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.close(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, last))
    except OSError:
        # The last one is taken: the table is large already.
        return
    finally:
        os.close(fd)


def out_of_the_way(fd: int) -> int:
    """The same open file under a number that `select()` has no use for, where the limit has room for one."""
    if fd >= _SELECT_MAX:
        return fd
    try:
        high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _SELECT_MAX)
    except OSError:
        # The limit is no higher, or it is reached.
        return fd
    os.close(fd)
    return high
