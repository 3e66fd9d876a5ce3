"""`make world SEEDS=n PROFILE=name`: histories of a simulated world, each in two processes whose traces must be equal.

    python -m tests.world --profile replicated --seeds 50 [--first 1] [--once] [--resume] [--jobs 2]
    python -m tests.world --profile replicated --seeds 1 [--first 1] --history file.edn

A line a seed: its trace, what was acknowledged, which faults there were. A broken promise is raised with its seed.
`--once` runs each seed once. `--jobs` runs that many seeds at a time. `--resume` notes each seed, and leaves out those
that ran at this commit before; `--resume any` also those of other commits (`tests/world/ran.py`). `--history` writes
the operations of the clients of one seed in the shape of Jepsen's kafka workload, also of a broken promise.
"""

from __future__ import annotations

import argparse
import gc
import logging
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import repeat
from pathlib import Path

from ottla.kernel.named import NamedTuple
from tests import evidence
from tests.world import ran
from tests.world.profile import PROFILES, RECORDED


class Played(NamedTuple):
    """One history: what it had, and what it cost."""

    seed: int
    trace: str
    acknowledged: int
    faults: dict[str, int]
    simulated_us: int
    cpu_seconds: float


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.world", description=__doc__.splitlines()[0])
    parser.add_argument("--profile", choices=sorted(PROFILES), default="alone")
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--once", action="store_true", help="run each seed once; print the traces")
    parser.add_argument(
        "--resume", nargs="?", const="here", choices=("here", "any"), help="leave out what ran; note what runs"
    )
    parser.add_argument("--jobs", type=int, default=1, help="how many seeds run at a time")
    parser.add_argument("--history", type=Path, default=None, help="a file for all operations of one seed")
    asked = parser.parse_args()
    if asked.history is not None and (refusal := _refusal(asked)):
        print(f"world: {refusal}", file=sys.stderr)
        return 2
    # Clients that cannot reach a killed node say so; here that is no news.
    logging.getLogger("ottla").setLevel(logging.CRITICAL)
    # As a node does it: the heap of several nodes is large, and otherwise walked all the time.
    gc.set_threshold(50_000, 5, 400)
    began = time.monotonic()
    seeds = list(range(asked.first, asked.first + asked.seeds))
    commit = evidence.commit() if asked.resume else ""
    if asked.resume:
        before = ran.ran(asked.profile) if asked.resume == "any" else ran.ran_at(asked.profile, commit)
        left = [each for each in seeds if each not in before]
        print(f"{asked.profile}: {len(seeds) - len(left)} seeds ran before, {len(left)} are left", flush=True)
        seeds = left
    other = None if asked.once else _other(asked.profile, asked.first, asked.seeds, asked.jobs)
    played = []
    for history in _play_all(asked.profile, seeds, asked.jobs, asked.history):
        played.append(history)
        count = sum(history.faults.values())
        what = ", ".join(f"{kind} {count}" for kind, count in sorted(history.faults.items()))
        print(f"{history.seed} {history.trace} {history.acknowledged} acknowledged; {what}", flush=True)
        if asked.resume:
            simulated_s = history.simulated_us // 1_000_000
            ran.note(
                asked.profile, commit, ran.Note(history.seed, history.trace, history.acknowledged, count, simulated_s)
            )
    if other is not None:
        lines = [f"{each.seed} {each.trace}" for each in played]
        told = [" ".join(line.split()[:2]) for line in other.communicate()[0].splitlines() if "; " in line]
        told = [line for line in told if int(line.split()[0]) in seeds]
        if other.returncode or told != lines:
            print("the other process had another history:", *(set(told) ^ set(lines)), sep="\n  ")
            return 1
    print(_summary(asked.profile, played, time.monotonic() - began))
    return 0


def _refusal(asked: argparse.Namespace) -> str | None:
    """Why there can be no file of operations, or None."""
    if asked.profile not in RECORDED:
        return f"PROFILE={asked.profile} has no HISTORY (expected {' or '.join(RECORDED)})"
    if asked.seeds != 1 or asked.resume:
        return "HISTORY is that of one seed: give SEEDS=1 FIRST=n, without RESUME"
    return None


def _summary(profile: str, played: list[Played], seconds: float) -> str:
    simulated_s = sum(each.simulated_us for each in played) / 1_000_000
    cpu_seconds = sum(each.cpu_seconds for each in played)
    faults = sum(sum(each.faults.values()) for each in played)
    counts = f"{sum(each.acknowledged for each in played)} acknowledged records, {faults} faults"
    rate = f"{simulated_s:.0f} simulated s in {seconds:.0f} s, {simulated_s / (cpu_seconds or 1):.0f} a CPU s"
    return f"{len(played)} histories of {profile}, {counts}, {rate}: no difference"


def _play_all(profile: str, seeds: Iterable[int], jobs: int, operations: Path | None) -> Iterator[Played]:
    """Play the seeds, `jobs` at a time; they come in their order."""
    if jobs == 1 or operations is not None:
        yield from map(partial(_play, profile, operations=operations), seeds)
        return
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("fork")) as pool:
        yield from pool.map(_play, repeat(profile), seeds)


def _play(profile: str, seed: int, operations: Path | None = None) -> Played:
    cpu = time.process_time()
    try:
        history = PROFILES[profile](seed) if operations is None else RECORDED[profile](seed, operations)
    except BaseException:
        print(f"seed {seed} of {profile}", flush=True)
        raise
    seconds, world = time.process_time() - cpu, history.world
    played = Played(seed, world.trace, history.acknowledged, history.faults, world.now_us, seconds)
    # The thresholds above leave several MiB of each history behind: a run of a thousand seeds would fill the memory.
    del history, world
    gc.collect()
    return played


def _other(profile: str, first: int, seeds: int, jobs: int) -> subprocess.Popen[str]:
    """The same seeds in a process with another order of its hash tables."""
    command = [sys.executable, "-m", "tests.world", "--once", "--profile", profile, "--jobs", str(jobs)]
    environment = dict(os.environ, PYTHONHASHSEED="1")
    return subprocess.Popen(
        [*command, "--first", str(first), "--seeds", str(seeds)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


if __name__ == "__main__":
    sys.exit(main())
