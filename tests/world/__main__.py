"""`make world SEEDS=n PROFILE=name`: histories of a simulated world, each in two processes whose traces must be equal.

    python -m tests.world --profile replicated --seeds 50 [--first 1] [--once] [--resume]

A line a seed: its trace, what was acknowledged, which faults there were. A broken promise is raised with its seed.
`--once` runs each seed in this process alone. `--resume` leaves out the seeds that ran at this commit before: they are
noted, one after the other, in build/world/PROFILE-COMMIT.txt.
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import subprocess
import sys
import time
from pathlib import Path

from tests import evidence
from tests.world.history import History
from tests.world.profile import PROFILES

_RAN = Path(__file__).parent.parent.parent / "build" / "world"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.world", description=__doc__.splitlines()[0])
    parser.add_argument("--profile", choices=sorted(PROFILES), default="alone")
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--once", action="store_true", help="in this process only; print the traces")
    parser.add_argument("--resume", action="store_true", help="leave out what ran at this commit; note what runs")
    asked = parser.parse_args()
    # Clients that cannot reach a killed node say so; here that is no news.
    logging.getLogger("ottla").setLevel(logging.CRITICAL)
    # As a node does it: the heap of several nodes is large, and otherwise walked all the time.
    gc.set_threshold(50_000, 20, 100)
    began, cpu = time.monotonic(), time.process_time()
    seeds = list(range(asked.first, asked.first + asked.seeds))
    ran = _RAN
    if asked.resume:
        ran = _RAN / f"{asked.profile}-{evidence.commit()}.txt"
        ran.parent.mkdir(parents=True, exist_ok=True)
        known = ran.read_text().split("\n") if ran.exists() else []
        before = {int(line.split()[0]) for line in known if line}
        seeds = [each for each in seeds if each not in before]
        print(f"{asked.profile}: {len(before)} seeds ran at this commit before, {len(seeds)} are left", flush=True)
    other = None if asked.once else _other(asked.profile, asked.first, asked.seeds)
    acknowledged = faults = simulated_us = 0
    lines = []
    for seed in seeds:
        history = _run(asked.profile, seed)
        acknowledged += history.acknowledged
        faults += sum(history.faults.values())
        simulated_us += history.world.now_us
        lines.append(f"{seed} {history.world.trace}")
        what = ", ".join(f"{kind} {count}" for kind, count in sorted(history.faults.items()))
        print(f"{lines[-1]} {history.acknowledged} acknowledged; {what}", flush=True)
        if asked.resume:
            with ran.open("a") as file:
                file.write(f"{lines[-1]} {history.acknowledged} {sum(history.faults.values())}\n")
    if other is not None:
        told = [" ".join(line.split()[:2]) for line in other.communicate()[0].splitlines() if "; " in line]
        told = [line for line in told if int(line.split()[0]) in seeds]
        if other.returncode or told != lines:
            print("the other process had another history:", *(set(told) ^ set(lines)), sep="\n  ")
            return 1
    counts = f"{acknowledged} acknowledged records, {faults} faults"
    seconds, simulated_s = time.monotonic() - began, simulated_us / 1_000_000
    rate = f"{simulated_s:.0f} simulated s in {seconds:.0f} s, {simulated_s / (time.process_time() - cpu):.0f} a CPU s"
    print(f"{len(seeds)} histories of {asked.profile}, {counts}, {rate}: no difference")
    return 0


def _run(profile: str, seed: int) -> History:
    try:
        return PROFILES[profile](seed)
    except BaseException:
        print(f"seed {seed} of {profile}", flush=True)
        raise


def _other(profile: str, first: int, seeds: int) -> subprocess.Popen[str]:
    """The same seeds in a process with another order of its hash tables."""
    command = [sys.executable, "-m", "tests.world", "--once", "--profile", profile]
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
