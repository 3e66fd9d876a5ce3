"""Kills of Streams programs by command: a worker, a driver, all of a program, or the node; each result comes once.

    python -m tests.spark.kills --kills 100 --seed 1 --resume

Rules:
- A round is a node and a program, each in processes of its own, killed with SIGKILL six times when its seed says so.
- A round ends when a reader of committed records has seen each count exactly once and in order, as an oracle has it.
- Each round that is done is a line of `--log`; `--resume` leaves those rounds out.
"""

from __future__ import annotations

import argparse
import json
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from ottla.client import Admin
from ottla.kernel.error import OttlaError
from tests.spark.test_streams_kills import run

ROUND = 6
KINDS = ("worker", "driver", "all", "node")
START_S = 60


class Node:
    """A node in a process, on one port and one directory for its whole life."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self.port = found.getsockname()[1]
        self.servers = f"127.0.0.1:{self.port}"
        self.start()

    def start(self) -> None:
        """Returns when it answers."""
        words = ["start", "--port", str(self.port), "--data", str(self._directory), "--log-level", "fatal"]
        self.process = subprocess.Popen([sys.executable, "-m", "ottla.cli", *words], stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + START_S
        while True:
            try:
                with Admin(self.servers) as admin:
                    admin.describe_cluster()
                return
            except OttlaError:
                if time.monotonic() > deadline or self.process.poll() is not None:
                    raise

    def kill(self) -> None:
        """End it at once and start it again."""
        self.close()
        self.start()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


def round_of(seed: int) -> Counter[str]:
    """Play a round; AssertionError if a result is missing, doubled or wrong."""
    draw = random.Random(seed)
    names = draw.choices(KINDS, k=ROUND)
    with tempfile.TemporaryDirectory(prefix=f"streams-kills-{seed}-") as place:
        directory = Path(place)
        (directory / "program").mkdir()
        node = Node(directory / "node")
        try:
            kills = [node.kill if name == "node" else name for name in names]
            run(node.servers, f"round-{seed}", directory / "program", seed, kills)
        finally:
            node.close()
    return Counter(names)


def main() -> int:
    """Exit code 1 if a round's results differ."""
    parser = argparse.ArgumentParser(prog="python -m tests.spark.kills", description="Kills of Streams programs.")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--log", type=Path, default=Path("streams-kills.jsonl"))
    asked = parser.parse_args()
    if not asked.resume:
        asked.log.unlink(missing_ok=True)
    lines = asked.log.read_text().splitlines() if asked.log.exists() else []
    done = {told["seed"]: Counter(told["kills"]) for told in map(json.loads, lines)}
    total: Counter[str] = Counter()
    for seed in range(asked.seed * 1000, asked.seed * 1000 + -(-asked.kills // ROUND)):
        if seed not in done:
            try:
                done[seed] = round_of(seed)
            except AssertionError as error:
                print(f"seed {seed}: {error}")
                return 1
            with asked.log.open("a") as log:
                log.write(json.dumps({"seed": seed, "kills": done[seed]}) + "\n")
        total += done[seed]
        print(
            f"{total.total()} kills ({', '.join(f'{kind} {total[kind]}' for kind in KINDS)}): no difference", flush=True
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
