"""The time of a clean stop of many logs: `python -m bench.stop [--partitions 10000] [--beside TREE]`.

Each round creates a store with that many logs, in a separate process, writes a record to each and closes it ("the first
time"), then opens it, writes again and closes it ("again"). With `--beside` another work tree alternates. The figures
are medians: wall and CPU seconds, and with `--counts` the number of system calls, by strace.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from bench import ROOT, SCRATCH

#: Runs one phase in a tree, with one record for all logs; prints wall and CPU seconds.
_PHASE = """
import json, os, sys, time
from concurrent.futures import ThreadPoolExecutor
from ottla.host.disk import HostDisk
from ottla.kernel.ids import Uuid
from ottla.log import checkpoint
from ottla.log.directory.store import Store
from ottla.log.log import LogSettings
from ottla.wire.batch import build
path, count = sys.argv[1], int(sys.argv[2])
disk, settings = HostDisk(), LogSettings()
if not os.path.exists(path + "/meta.properties"):
    checkpoint.write_properties(
        disk, path + "/meta.properties", {"version": "1", "node.id": "1", "cluster.id": "c", "directory.id": "a"})
now_ms = int(time.time() * 1000)
store = Store.open(disk, (path,), node_id=1, now_ms=now_ms, settings_of=lambda _: settings)
topic_id = Uuid(bytes(15) + b"\\x09")
for index in range(count):
    log = store.create("many", topic_id, index)
    log.append(build([(now_ms, None, b"x" * 100, [])]), leader_epoch=0, now_ms=now_ms)
pool = ThreadPoolExecutor(8)
wall, cpu = time.perf_counter(), time.process_time()
os.access("/the-stop-begins", 0)
store.close(1, pool)
os.access("/the-stop-has-ended", 0)
print(json.dumps([time.perf_counter() - wall, time.process_time() - cpu]))
"""
_PHASES = ("the first time", "again")
_CALL = re.compile(r"^(?:\[pid +\d+\] |\d+ +)?(\w+)\(")


def main() -> int:
    """Print the table."""
    options = _options()
    trees = [ROOT, *options.beside]
    figures: dict[tuple[Path, str], list[list[float]]] = {}
    for number in range(options.rounds):
        for tree in trees if number % 2 == 0 else reversed(trees):
            for phase, took in _round(tree, options.partitions):
                figures.setdefault((tree, phase), []).append(took)
    print(f"a clean stop of {options.partitions:,} logs, medians of {options.rounds} rounds")
    for tree in trees:
        for phase in _PHASES:
            walls, cpus = zip(*figures[tree, phase], strict=True)
            spread = f"{min(walls):.2f} to {max(walls):.2f}"
            print(
                f"{tree.name:12} {phase:16} {statistics.median(walls):7.2f} s ({spread}),"
                f" CPU {statistics.median(cpus):.2f} s"
            )
    if options.counts:
        for tree in trees:
            for phase, calls in _counts(tree, 1000):
                print(f"{tree.name:12} {phase:16} calls for 1,000 logs: {calls}")
    return 0


def _command(tree: Path, where: str, partitions: int) -> list[str]:
    # The packages of the working directory take precedence over installed ones.
    return [sys.executable, "-c", _PHASE, where, str(partitions)]


def _scratch() -> "tempfile.TemporaryDirectory[str]":
    SCRATCH.mkdir(parents=True, exist_ok=True)
    return tempfile.TemporaryDirectory(prefix="stop-", dir=SCRATCH)


def _round(tree: Path, partitions: int) -> list[tuple[str, list[float]]]:
    found = []
    with _scratch() as where:
        for phase in _PHASES:
            os.sync()
            done = subprocess.run(
                _command(tree, where, partitions), stdout=subprocess.PIPE, text=True, cwd=tree, check=True
            )
            found.append((phase, json.loads(done.stdout)))
    return found


def _counts(tree: Path, partitions: int) -> list[tuple[str, dict[str, int]]]:
    """The system calls between the two marks."""
    found = []
    with _scratch() as where:
        for phase in _PHASES:
            trace = f"{where}.trace"
            command = ["strace", "-f", "-qq", "-o", trace, *_command(tree, where, partitions)]
            subprocess.run(command, capture_output=True, cwd=tree, check=True)
            calls: dict[str, int] = {}
            counting = False
            for line in Path(trace).read_text().splitlines():
                if "/the-stop-" in line:
                    counting = "begins" in line
                match = _CALL.match(line)
                if counting and match:
                    calls[match[1]] = calls.get(match[1], 0) + 1
            Path(trace).unlink()
            found.append((phase, dict(sorted(calls.items(), key=lambda each: -each[1])[:12])))
    return found


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.stop", description="A clean stop of many logs.")
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--beside", type=Path, action="append", default=[], help="another work tree")
    parser.add_argument("--counts", action="store_true", help="count system calls, with strace")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
