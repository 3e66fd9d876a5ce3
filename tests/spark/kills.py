"""Kills of Streams programs by command: a worker, a driver, all of a program, or the node; each result comes once.

    python -m tests.spark.kills --kills 100 --seed 1 --resume [--nodes 3]

Rules:
- A round is a node and a program, each in processes of its own, killed with SIGKILL six times when its seed says so.
- With `--nodes 3` it is a cluster with three replicas of everything. A killed node stays away until the next one is
  killed, or to the end: the program must go on with the others.
- A round ends when a reader of committed records has seen each count exactly once and in order, as an oracle has it.
- A round fails that shows no new result and no new phase of its program for `QUIET_S`: a slow machine fails none.
- Each round that is done is a line of `--log`; `--resume` leaves those rounds out.
- At the end: the median seconds from a kill to each phase of the program that followed, and to the first new result.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import median

import ottla
from ottla.client import Admin
from ottla.kernel.error import OttlaError
from tests.interop.server import free_ports
from tests.spark.test_streams_kills import run

ROUND = 6
KINDS = ("worker", "driver", "all", "node")
START_S = 60
#: What was killed, and the seconds from there to each phase that followed.
Recovery = tuple[str, dict[str, float]]


class Node:
    """A node in a process, on one port and one directory for its whole life."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        (self.port,) = free_ports(1)
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


class Several:
    """A cluster of nodes in processes, of which one may be away."""

    def __init__(self, directory: Path, nodes: int, seed: int) -> None:
        self._cluster = ottla.Cluster(nodes, data=directory, settings={"min.insync.replicas": 2}).start()
        self._draw = random.Random(seed)
        self.servers = self._cluster.bootstrap_servers

    def kill(self) -> None:
        """Bring back the one that is away, and end another, or the same one, at once."""
        for node in set(self._cluster.nodes) - set(self._cluster.running):
            self._cluster.restart(node)
            self._until_in_sync()
        self._cluster.kill(self._draw.choice(self._cluster.nodes))

    def _until_in_sync(self) -> None:
        """With two of three replicas away nobody could write."""
        deadline = time.monotonic() + START_S
        with Admin(self.servers) as admin:
            while any(
                len(each.isr) < len(each.replicas)
                for topic in admin.describe_topics([one.name for one in admin.list_topics()]).succeeded.values()
                for each in topic.partitions
            ):
                if time.monotonic() > deadline:
                    raise TimeoutError(f"replicas are not in sync {START_S} s after their node has come back")

    def close(self) -> None:
        for node in self._cluster.running:
            self._cluster.kill(node)
        self._cluster.close()


def round_of(seed: int, nodes: int = 1) -> list[Recovery]:
    """Play a round; AssertionError if a result is missing, doubled or wrong."""
    draw = random.Random(seed)
    names = draw.choices(KINDS, k=ROUND)
    if nodes > 1:  # else most rounds would kill one at most
        names[draw.randrange(ROUND)] = names[draw.randrange(ROUND)] = "node"
    with tempfile.TemporaryDirectory(prefix=f"streams-kills-{seed}-") as place:
        directory = Path(place)
        (directory / "program").mkdir()
        node = Node(directory / "node") if nodes == 1 else Several(directory / "nodes", nodes, seed)
        try:
            kills = [node.kill if name == "node" else name for name in names]
            return run(node.servers, f"round-{seed}", directory / "program", seed, kills, replicas=min(3, nodes))
        finally:
            node.close()


def phases_of(recoveries: Iterable[Recovery]) -> Iterator[str]:
    """A line for each kind of kill: its phases in their order, with the median seconds since the kill."""
    for kind in KINDS:
        found: dict[str, list[float]] = {}
        for _, phases in [one for one in recoveries if one[0] == kind]:
            for name, seconds in phases.items():
                found.setdefault(name, []).append(seconds)
        told = sorted((median(seconds), name) for name, seconds in found.items())
        if told:
            yield f"{kind}: {', '.join(f'{name} {seconds:.1f} s' for seconds, name in told)}"


def main() -> int:
    """Exit code 1 if a round's results differ."""
    parser = argparse.ArgumentParser(prog="python -m tests.spark.kills", description="Kills of Streams programs.")
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--nodes", type=int, choices=(1, 3), default=1, help="3: a cluster, one of which is killed")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--log", type=Path, default=Path("streams-kills.jsonl"))
    asked = parser.parse_args()
    if not asked.resume:
        asked.log.unlink(missing_ok=True)
    lines = asked.log.read_text().splitlines() if asked.log.exists() else []
    done: dict[int, list[Recovery]] = {told["seed"]: told["recoveries"] for told in map(json.loads, lines)}
    total: Counter[str] = Counter()
    for seed in range(asked.seed * 1000, asked.seed * 1000 + -(-asked.kills // ROUND)):
        if seed not in done:
            try:
                done[seed] = round_of(seed, asked.nodes)
            except AssertionError as error:
                print(f"seed {seed}: {error}")
                return 1
            with asked.log.open("a") as log:
                log.write(json.dumps({"seed": seed, "recoveries": done[seed]}) + "\n")
        total.update(kind for kind, _ in done[seed])
        print(
            f"{total.total()} kills ({', '.join(f'{kind} {total[kind]}' for kind in KINDS)}): no difference", flush=True
        )
    for line in phases_of([each for one in done.values() for each in one]):
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
