"""The process that cleans one log: `Cleaner` starts it, tells it the job, and swaps in what it has written.

A conversation in lines of JSON. It reads the job from its standard input and writes `{"ready": [base offsets]}` for
each group; the answer is a line, and then it goes on. In the end it writes `{"end_offset": ...}`, or `{"error": ...}`.

Rules:
- It writes `.cleaned` files and nothing else: when it is killed, nothing is lost.
- It ends when its parent is gone; a node that is started again must have the directory for itself.
- It gives way to everyone else (nice 10) and keeps to `log.cleaner.io.max.bytes.per.second`.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any, TextIO

from ottla.host.disk import HostDisk
from ottla.kernel.error import KafkaError
from ottla.kernel.ports import Disk
from ottla.log.cleaning.job import Cleaning, Job

_NICE = 10


class CleanerPace:
    """Called with numbers of bytes, it takes the time that they may take."""

    def __init__(self, bytes_per_second: float, clock: Callable[[], float], sleep: Callable[[float], None]) -> None:
        self._bytes_per_second = bytes_per_second
        self._clock = clock
        self._sleep = sleep
        #: When all bytes so far may have been moved.
        self._due = clock()

    def __call__(self, count: int) -> None:
        now = self._clock()
        # Time that was not used is gone: no burst makes up for it.
        self._due = max(self._due, now) + count / self._bytes_per_second
        if self._due > now:
            self._sleep(self._due - now)


def converse(disk: Disk, lines: TextIO, out: TextIO, pace_of: Callable[[float], Callable[[int], None]]) -> None:
    """Carry out the job that the first of `lines` holds. A parent that is gone (no more lines) ends it."""

    def say(what: dict[str, Any]) -> None:
        out.write(json.dumps(what) + "\n")
        out.flush()

    fields = json.loads(lines.readline())
    cleaning = Cleaning(disk, Job.of_json(fields["job"]), pace_of(fields["bytes_per_second"]))
    try:
        for bases in cleaning.run():
            say({"ready": bases})
            if not lines.readline():
                return
    except KafkaError as error:
        # Bytes that cannot be cleaned, whenever it is tried.
        say({"error": str(error), "corrupt": True})
    except OSError as error:
        say({"error": str(error), "corrupt": False})
    else:
        say({"end_offset": cleaning.end_offset, "read": cleaning.bytes_read, "written": cleaning.bytes_written})


def main() -> None:
    """The process."""
    os.nice(_NICE)
    parent = os.getppid()

    def pace_of(bytes_per_second: float) -> Callable[[int], None]:
        pace = CleanerPace(bytes_per_second, time.monotonic, time.sleep)

        def attend(count: int) -> None:
            if os.getppid() != parent:
                raise SystemExit(1)
            pace(count)

        return attend

    converse(HostDisk(), sys.stdin, sys.stdout, pace_of)


if __name__ == "__main__":
    main()
