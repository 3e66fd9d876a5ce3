"""The cost of a large keyed state: a count by key with many keys, in columns, without Spark.

    python -m bench.streams.state [--keys 1000000 ...] [--out DIRECTORY]      # --short: 200,000 keys

The task is the same as in a worker, with its transactions, changelog and restore; a node runs beside it as a separate
process. For each number of keys, one process sees every key once and then random keys, and another one opens the task
again. CPU times are those of the task's process only, which depend little on the load.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bench import RESULTS, SCRATCH
from bench.report import facts
from bench.streams.programs import application
from ottla.client import Admin, CommittedOffset, TopicPartition
from ottla.flow.vector.columns import Batch
from ottla.spark.streams.running import prepare
from ottla.spark.streams.task import HostedTask
from tests.spark.kills import Node

BATCH = 10_000
#: Batches of random keys, after all keys exist.
AFTER = 20
SOURCE = TopicPartition("in", 0)
HEAD = """{date}, commit {commit}; {processor}, {cores} cores, load average {load_average} before the start. A count by
key in columns, keys of 16 bytes, one task, exactly once, transactions of {batch:,} records; a node on the same machine.
Memory is the most that the task's process has had, CPU times are its own. The changelog is not compacted yet."""
COLUMNS = {
    "memory, MB": "memory_mb",
    "bytes a key": "bytes_a_key",
    "changelog, MB": "disk_mb",
    "a batch of new keys, CPU ms": "new_ms",
    "a batch of known keys, CPU ms": "known_ms",
    "the slowest, wall ms": "slowest_ms",
    "restore, CPU s": "restore_cpu_s",
    "restore, wall s": "restore_s",
    "memory restored, MB": "restored_mb",
}


def main() -> None:
    """Run each number of keys, print the table and write it."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.streams.state", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--keys", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--short", action="store_true", help="200,000 keys")
    parser.add_argument("--out", default=str(RESULTS), metavar="DIRECTORY")
    parser.add_argument("--part", nargs=2, metavar=("fill|restore", "BOOTSTRAP"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        part, servers = options.part
        print(json.dumps(PARTS[part](servers, options.keys[0])))
        return
    conditions = facts()
    found = {keys: measure(keys) for keys in ([200_000] if options.short else options.keys)}
    text = report(found, conditions)
    print(text)
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    (out / "streams-state.md").write_text(text)


def measure(keys: int) -> dict[str, float]:
    """The figures for one number of keys."""
    SCRATCH.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="state-", dir=SCRATCH) as place:
        node = Node(Path(place))
        try:
            with Admin(node.servers) as admin:
                for topic in ("in", "out"):
                    admin.create_topic(topic, 1, 1, {"retention.ms": -1})
            found = _in_process("fill", node.servers, keys)
            sizes = [each.stat().st_size for each in Path(place).glob("**/*-changelog-0/*.log")]
            return found | {"disk_mb": sum(sizes) / 1e6} | _in_process("restore", node.servers, keys)
        finally:
            node.close()


def _in_process(part: str, servers: str, keys: int) -> dict[str, float]:
    words = [sys.executable, "-m", "bench.streams.state", "--keys", str(keys), "--part", part, servers]
    told = subprocess.run(words, stdout=subprocess.PIPE, check=True).stdout
    found: dict[str, float] = json.loads(told.splitlines()[-1])
    return found


def fill(servers: str, keys: int) -> dict[str, float]:
    """Process every key once, then random keys."""
    with Admin(servers) as admin:
        program = _program(servers)
        task = HostedTask(program, program.tasks[0], admin, None, 0)
        began, before = time.process_time(), memory_mb()
        for first in range(0, keys, BATCH):
            give(task, np.arange(first, min(first + BATCH, keys)), first)
        new, memory = time.process_time() - began, memory_mb()
        draw, walls, began = np.random.default_rng(1), [], time.process_time()
        for number in range(AFTER):
            start = time.perf_counter()
            give(task, draw.integers(0, keys, BATCH), keys + number * BATCH)
            walls.append(time.perf_counter() - start)
        known = time.process_time() - began
        task.close(lambda call: call())
    return {
        "memory_mb": memory,
        "bytes_a_key": (memory - before) * 1e6 / keys,
        "new_ms": new * 1000 * BATCH / keys,
        "known_ms": known * 1000 / AFTER,
        "slowest_ms": max(walls) * 1000,
    }


def restore(servers: str, keys: int) -> dict[str, float]:
    """Open the task again."""
    with Admin(servers) as admin:
        program = _program(servers)
        cpu, wall = time.process_time(), time.perf_counter()
        task = HostedTask(program, program.tasks[0], admin, None, 0)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        (store,) = task.task.store_names
        if len(task.task.store(store).entries) != keys:
            raise RuntimeError(f"{len(task.task.store(store).entries):,} keys were restored, not {keys:,}")
        task.close(lambda call: call())
    return {"restore_cpu_s": cpu, "restore_s": wall, "restored_mb": memory_mb()}


PARTS = {"fill": fill, "restore": restore}


def _program(servers: str) -> Any:
    app = application("count", "columns", "state", "in", "in", "out")
    return prepare(app.topology, app.settings, servers, {}, accept_changes=False)


def give(task: HostedTask, numbers: Any, offset: int) -> None:
    """Process and commit a batch of records with these keys."""
    count = len(numbers)
    keys = pa.array([b"key-%012d" % number for number in numbers.tolist()], pa.binary())
    offsets = np.arange(offset, offset + count)
    task.add_batch(Batch("in", 0, offsets, offsets, keys, pa.array([b"value"] * count, pa.binary()), None), 0)
    task.run({SOURCE: CommittedOffset(offset + count)}, [], 0)


def memory_mb() -> float:
    """The peak memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def report(found: dict[int, dict[str, float]], conditions: dict[str, Any]) -> str:
    """The table, a row for each number of keys."""
    lines = ["# A large keyed state", "", HEAD.format(batch=BATCH, **conditions), ""]
    lines += [f"| keys | {' | '.join(COLUMNS)} |", f"|---|{'---|' * len(COLUMNS)}"]
    for keys, figures in found.items():
        cells = [figures[name] for name in COLUMNS.values()]
        lines.append(f"| {keys:,} | {' | '.join(f'{each:,.1f}' if each < 100 else f'{each:,.0f}' for each in cells)} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
