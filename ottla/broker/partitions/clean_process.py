"""The process that cleans one log. `Cleaner` starts it, sends it the job and swaps in the segments it writes.

The two exchange lines of JSON. The process reads the job from standard input and writes `{"ready": [base offsets]}` for
each group; it continues when it has read a line in reply. At the end it writes `{"end_offset": ...}` or
`{"error": ...}`.

Rules:
- It writes only `.cleaned` files, so killing it loses nothing.
- It exits when its parent is gone, because a restarted node must have the directory to itself.
- It runs at nice 10 and respects `log.cleaner.io.max.bytes.per.second`.
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
    """Rate limiter: a call with a number of bytes sleeps as long as the rate requires."""

    def __init__(self, bytes_per_second: float, clock: Callable[[], float], sleep: Callable[[float], None]) -> None:
        self._bytes_per_second = bytes_per_second
        self._clock = clock
        self._sleep = sleep
        #: The time at which all bytes so far are within the rate.
        self._due = clock()

    def __call__(self, count: int) -> None:
        now = self._clock()
        # Unused time is not credited: no bursts.
        self._due = max(self._due, now) + count / self._bytes_per_second
        if self._due > now:
            self._sleep(self._due - now)


def converse(disk: Disk, lines: TextIO, out: TextIO, pace_of: Callable[[float], Callable[[int], None]]) -> None:
    """Carry out the job in the first of `lines`. The end of `lines` means that the parent is gone, and ends the job."""

    def send(message: dict[str, Any]) -> None:
        out.write(json.dumps(message) + "\n")
        out.flush()

    fields = json.loads(lines.readline())
    cleaning = Cleaning(disk, Job.of_json(fields["job"]), pace_of(fields["bytes_per_second"]))
    try:
        for bases in cleaning.run():
            send({"ready": bases})
            if not lines.readline():
                return
    except KafkaError as error:
        # These bytes will never be cleanable, so a retry is useless.
        send({"error": str(error), "corrupt": True})
    except OSError as error:
        send({"error": str(error), "corrupt": False})
    else:
        send({"end_offset": cleaning.end_offset, "read": cleaning.bytes_read, "written": cleaning.bytes_written})


def main() -> None:
    """Run the cleaner process."""
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
