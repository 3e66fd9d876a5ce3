"""`make world SEEDS=n`: histories of a simulated world, each run in two processes whose traces must be equal.

    python -m tests.world --seeds 50 [--first 1] [--once]

A line a seed: its trace, what was acknowledged, which faults there were. A broken promise is raised with its seed.
"""

from __future__ import annotations

import argparse
import logging
import os
import subprocess
import sys
import time

from tests.world.history import run_history


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.world", description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--once", action="store_true", help="in this process only; print the traces")
    asked = parser.parse_args()
    # Clients that cannot reach a killed node say so; here that is no news.
    logging.getLogger("ottla").setLevel(logging.CRITICAL)
    began = time.monotonic()
    other = None if asked.once else _other(asked.first, asked.seeds)
    acknowledged = faults = 0
    lines = []
    for seed in range(asked.first, asked.first + asked.seeds):
        try:
            history = run_history(seed)
        except BaseException:
            print(f"seed {seed}", flush=True)
            raise
        acknowledged += history.acknowledged
        faults += sum(history.faults.values())
        lines.append(f"{seed} {history.world.trace}")
        what = ", ".join(f"{kind} {count}" for kind, count in sorted(history.faults.items()))
        print(f"{lines[-1]} {history.acknowledged} acknowledged; {what}", flush=True)
    if other is not None:
        told = [" ".join(line.split()[:2]) for line in other.communicate()[0].splitlines() if "; " in line]
        if other.returncode or told != lines:
            print("the other process had another history:", *(set(told) ^ set(lines)), sep="\n  ")
            return 1
    counts = f"{acknowledged} acknowledged records, {faults} faults"
    print(f"{asked.seeds} histories, {counts}, {time.monotonic() - began:.0f} s: no difference")
    return 0


def _other(first: int, seeds: int) -> subprocess.Popen[str]:
    """The same seeds in a process with another order of its hash tables."""
    command = [sys.executable, "-m", "tests.world", "--once", "--first", str(first), "--seeds", str(seeds)]
    environment = dict(os.environ, PYTHONHASHSEED="1")
    return subprocess.Popen([*command], env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


if __name__ == "__main__":
    sys.exit(main())
