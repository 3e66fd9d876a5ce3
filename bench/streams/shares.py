"""What the time of a worker goes into: what bounds the rates of the bench.

    python -m bench.streams.shares [--keys 1000 1000000] [--records 1000000] [--only count] [--lane columns]

A worker's loop processes existing records in this process, without Spark, and a node runs beside it as a separate
process, so each has a core on a machine with two. A thread looks at the stack of the worker's thread every few
milliseconds. The table has the share of each part in the samples after the first results:

- reading: records from the client's thread become columns, or records
- computing: the steps of the program; state: the stores
- writing: changelog entries and outputs become batches
- waiting: for the client's thread or the node
- client, node: CPU time of the worker's other threads and of the node, as shares of the elapsed time
"""

import argparse
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

from bench import SCRATCH
from bench.streams.programs import IN_COLUMNS, application
from bench.streams.system import create, done, fill
from ottla.client import Admin
from ottla.spark.streams import worker
from ottla.spark.streams.running import prepare
from tests.spark.kills import Node

EVERY_S = 0.003
#: The part of the first of these that the stack shows, innermost frame first, by file or by function.
PARTS = {
    "threading.py": "waiting",
    "queue.py": "waiting",
    "selectors.py": "waiting",
    "flow/store/": "state",
    "flow/vector/table.py": "state",
    "flow/": "computing",
    "streams/write.py": "writing",
    "streams/commit.py": "writing",
    "streams/worker.py": "reading",
}
COLUMNS = ("reading", "computing", "state", "writing", "waiting", "client", "node")


class Sampler:
    """Counts the parts that a thread is in, until `end`."""

    def __init__(self, thread: int) -> None:
        self._thread = thread
        self._ended = threading.Event()
        self.seen: Counter[str] = Counter()
        self._sampler = threading.Thread(target=self._run, daemon=True)
        self._sampler.start()

    def _run(self) -> None:
        while not self._ended.wait(EVERY_S):
            self.seen[part_of(sys._current_frames()[self._thread])] += 1

    def end(self) -> dict[str, float]:
        """The share of each part."""
        self._ended.set()
        self._sampler.join()
        return {part: count / self.seen.total() for part, count in self.seen.items()}


def part_of(frame: FrameType | None) -> str:
    """The part of the innermost frame that belongs to one."""
    while frame is not None:
        for end, part in PARTS.items():
            if end in frame.f_code.co_filename:
                return part
        frame = frame.f_back
    return "reading"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.streams.shares", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--keys", type=int, nargs="+", default=[1_000, 1_000_000])
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--only", action="append", choices=IN_COLUMNS)
    parser.add_argument("--lane", action="append", choices=("python", "columns"))
    options = parser.parse_args()
    print(f"| row | lane | results/s | {' | '.join(COLUMNS)} |\n|---|---|---|{'---|' * len(COLUMNS)}")
    SCRATCH.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="shares-", dir=SCRATCH) as place:
        node = Node(Path(place))
        try:
            for keys in options.keys:
                _fill(node.servers, options.records, keys)
                for program in options.only or IN_COLUMNS:
                    for lane in options.lane or ("python", "columns"):
                        rate, shares = measure(node, program, lane, options.records, keys)
                        cells = " | ".join(f"{shares.get(name, 0):.0%}" for name in COLUMNS)
                        print(f"| {program}, {keys:,} keys | {lane} | {rate:,.0f} | {cells} |", flush=True)
        finally:
            node.close()


def _fill(servers: str, records: int, keys: int) -> None:
    with Admin(servers) as admin:
        create(admin, *(f"{side}-{keys}" for side in ("in", "table", "left", "right")))
    fill(servers, f"in-{keys}", records, keys)
    fill(servers, f"table-{keys}", keys, keys, step_ms=0)
    for side, first in (("left", 1), ("right", 2)):
        fill(servers, f"{side}-{keys}", records, keys, step_ms=max(10, -(-4_000 // keys)), first_ms=first)


def measure(node: Node, program: str, lane: str, records: int, keys: int) -> tuple[float, dict[str, float]]:
    """The rate of results, and the shares."""
    sides = ("left", "right") if program == "stream-stream" else ("in", "table")
    name = f"{program}-{keys}-{lane}"
    app = application(program, lane, name, f"{sides[0]}-{keys}", f"{sides[1]}-{keys}", f"out-{name}")
    with Admin(node.servers) as admin:
        create(admin, f"out-{name}")
        prepared = prepare(app.topology, app.settings, node.servers, {}, accept_changes=False)
        driver: Any = SimpleNamespace(
            stopped=threading.Event(), paused=threading.Event(), answer=None, send=lambda message: None
        )
        found: list[Any] = []
        watcher = threading.Thread(
            target=_watch, args=(driver, admin, f"out-{name}", records, node, threading.get_ident(), found)
        )
        with worker.TaskShare(prepared, 0, 1, driver) as share:
            watcher.start()
            share.run()
        watcher.join()
    rate, shares = found
    return rate, shares


def _watch(driver: Any, admin: Admin, output: str, records: int, node: Node, thread: int, found: list[Any]) -> None:
    """Sample from the first results to nearly the last, then stop the worker."""
    try:
        begun = _until(admin, output, records * 0.2)
        clock = time.pthread_getcpuclockid(thread)
        cpu = time.process_time(), time.clock_gettime(clock), _cpu_of(node.process.pid)
        sampler, began = Sampler(thread), time.monotonic()
        ended = _until(admin, output, records * 0.95)
        took, shares = time.monotonic() - began, sampler.end()
        own = time.clock_gettime(clock) - cpu[1]
        shares["client"] = (time.process_time() - cpu[0] - own) / took
        shares["node"] = (_cpu_of(node.process.pid) - cpu[2]) / took
        found += [(ended - begun) / took, shares]
    finally:
        driver.stopped.set()


def _until(admin: Admin, topic: str, count: float) -> int:
    while (have := done(admin, topic)) < count:
        time.sleep(0.02)
    return have


def _cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
