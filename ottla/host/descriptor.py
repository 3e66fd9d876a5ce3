"""Limits of the process: many file descriptors, whose low numbers stay free for other code, and no core file.

A partition holds a descriptor or two. Other code in the process that uses `select()` (such as PySpark's thread for
query progress) only works with descriptors below 1,024, and would hang forever if our files took all of them.
"""

import fcntl
import os
import resource

#: FD_SETSIZE: `select()` takes only lower descriptors.
_SELECT_MAX = 1024
#: The limit to set where the hard limit is infinite.
_PLENTY = 1 << 20
#: macOS refuses more than this (OPEN_MAX), whatever its hard limit.
_OPEN_MAX = 10_240
#: The initial size of the kernel's descriptor table: 128 KiB.
_ROOM = 16_384


def allow_many() -> None:
    """Raise this process's limit of open files to its maximum, as a JVM does at startup.

    Call it before starting threads if possible: in a process with threads, Linux waits 20 ms for all processors
    whenever the descriptor table grows, which is each time that the number of descriptors doubles.
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
            # Not allowed here; try the next limit.
            continue


def _grow_table() -> None:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    last = _ROOM - 1 if limit == resource.RLIM_INFINITY else min(_ROOM, limit) - 1
    fd = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.close(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, last))
    except OSError:
        # The descriptor is in use, so the table is large enough already.
        return
    finally:
        os.close(fd)


def out_of_the_way(fd: int) -> int:
    """Move an open file to a descriptor above `select()`'s range, if the limit allows; returns the descriptor."""
    if fd >= _SELECT_MAX:
        return fd
    try:
        high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _SELECT_MAX)
    except OSError:
        # No descriptor is free above the range.
        return fd
    os.close(fd)
    return high


def set_limits() -> None:
    """`allow_many`, and no core file after a crash: it would contain passwords and keys."""
    allow_many()
    _, most = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, most))
