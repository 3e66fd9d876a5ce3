"""One chaos run: nodes up, clients at work, faults, then calm, and the judgement.

Rules:
- Clients write down what they were told (`WorkloadLedger`); the checker holds it against what the topic holds at the
  end, read by a client and from the disks of all nodes.
- After the faults end the cluster must be whole again within `_CALM_S`: every partition with a leader and all replicas
  in sync, every client at its end.
- Every wait for the cluster has a bound and a name (`tests.chaos.wait`); each of them takes up to `_CALM_S`, so that a
  run that fails may take several times as long as its faults.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from random import Random
from time import monotonic_ns

from ottla.client import AsyncAdmin, NewTopic
from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.sim.checker import Broken, WorkloadLedger, check, check_commits
from ottla.sim.history import OperationHistory
from ottla.sim.workload import PARTITIONS, commit_in_turn, consume, produce, read_all, read_commits, until_it_works
from tests.chaos.fault import CLOCK, KINDS, SLOW, Faults
from tests.chaos.network import Network
from tests.chaos.nodes import ChaosNodes
from tests.chaos.wait import Waits
from tests.replicas_on_disk import batches

_TOPIC = "records"
_GROUP = "group"
#: The group of one client, whose commits are looked at before each next one.
_ALONE = "alone"
_CALM_S = 180.0
_NODES = 3
_PRODUCERS = 2
_CONSUMERS = 2


@dataclass
class ChaosResult:
    acknowledged: int
    faults: dict[str, int]
    #: Nodes that ended without being told to.
    ended: list[int]


async def chaos(
    kind: str,
    directory: Path,
    seed: int,
    seconds: float,
    names: list[str],
    voters: int,
    *,
    history: Path | None = None,
    product: Path | None = None,
    waits: Waits | None = None,
) -> ChaosResult:
    """Run and judge. `Broken` says which promise was not kept; `directory` keeps outputs, data and the history.

    `names`: faults, none for all. `history`: a file for all operations in the shape of Jepsen's kafka workload.
    `product`: where Ottla is run from, if not here. `waits` is told what the run waits for.
    """
    waits = waits or Waits()
    names = names or list(KINDS)
    if unknown := [each for each in names if each not in KINDS]:
        raise OttlaError(f"FAULTS={unknown[0]} is unknown; these are known: {','.join(KINDS)}")
    rng = Random(seed)
    ledger = WorkloadLedger(_TOPIC, history=OperationHistory(monotonic_ns) if history is not None else None)
    commits = WorkloadLedger(_TOPIC)
    with (
        Network(_NODES, proxies=SLOW in names) as network,
        ChaosNodes(kind, network, directory, voters, moved_clocks=CLOCK in names, product=product) as nodes,
    ):
        servers = nodes.bootstrap_servers
        faults = Faults(nodes, network, rng, names, ledger.history)
        try:
            async with waits.within(_CALM_S, "the nodes to start and make a topic"):
                await until_it_works(lambda: _create(servers))
            await _in_sync(servers, waits, "before the faults")
            going = True

            def goes() -> bool:
                return going

            work = {
                **{f"p{n}": produce(f"p{n}", servers, ledger, Random(f"{seed} p{n}"), goes) for n in range(_PRODUCERS)},
                **{
                    f"c{n}": consume(f"c{n}", _GROUP, servers, ledger, Random(f"{seed} c{n}"), goes)
                    for n in range(_CONSUMERS)
                },
                _ALONE: commit_in_turn(_ALONE, servers, commits, Random(f"{seed} alone"), goes, lambda: None),
            }
            clients = {name: asyncio.create_task(each) for name, each in work.items()}
            async with waits.within(seconds + _CALM_S, "the last fault to end"):
                await faults.run(asyncio.get_running_loop().time() + seconds)
            going = False
            nodes.revive()
            async with waits.within(_CALM_S, "the clients to come to their end"):
                await _end(clients, waits)
            await _in_sync(servers, waits, "after the faults")
            async with waits.within(_CALM_S, "a client to read all records and commits"):
                logs = await read_all(servers, _TOPIC)
                committed = await read_commits(servers, _GROUP, _TOPIC)
                alone = await read_commits(servers, _ALONE, _TOPIC)
            if ledger.history is not None:
                ledger.history.read_to_the_end("last", logs)
            check(ledger, logs, committed)
            check_commits(commits, alone)
            waits.now = "the nodes to stop"
            for node in network.nodes:
                nodes.stop(node)
            waits.now = "the comparison of the disks"
            _same_on_all_disks([nodes.data(node) for node in network.nodes])
        except BaseException:
            nodes.keep(directory / "kept")
            raise
        finally:
            _write(directory / "history.json", ledger, faults)
            if history is not None:
                _write_operations(history, ledger)
        return ChaosResult(ledger.acknowledged, faults.counts, nodes.ended)


async def _create(servers: str) -> None:
    async with AsyncAdmin(servers) as admin:
        made = await admin.create_topics([NewTopic(_TOPIC, PARTITIONS, _NODES)])
        # An answer may have been lost on the way.
        if any(error.code is not ErrorCode.TOPIC_ALREADY_EXISTS for error in made.errors.values()):
            made.check()


async def _end(clients: dict[str, asyncio.Task[None]], waits: Waits) -> None:
    """Return when all have ended; raise the error of the first that failed."""
    left = {task: name for name, task in clients.items()}
    while left:
        waits.now = f"clients to come to their end: {', '.join(left.values())}"
        done, _ = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
        for each in done:
            del left[each]
            each.result()


async def _in_sync(servers: str, waits: Waits, when: str) -> None:
    """Return when every partition has a leader and all its replicas in sync. Broken when that takes too long."""
    what = f"all replicas to be in sync {when}"
    async with waits.within(_CALM_S, what):
        while True:
            try:
                async with AsyncAdmin(servers) as admin:
                    topic = await admin.describe_topic(_TOPIC)
            except (KafkaError, OttlaError) as error:
                last = str(error)
            else:
                behind = [
                    each for each in topic.partitions if each.leader is None or len(each.isr) < len(each.replicas)
                ]
                if not behind:
                    return
                last = ", ".join(f"{each.partition}: ISR {[node.id for node in each.isr]}" for each in behind)
            waits.now = f"{what}; last seen: {last}"
            await asyncio.sleep(0.5)


def _same_on_all_disks(directories: list[Path]) -> None:
    """Every replica holds the same batches; one may have them cut into other segments."""
    for partition in range(PARTITIONS):
        held = [batches(each / f"{_TOPIC}-{partition}") for each in directories]
        for other in held[1:]:
            if other != held[0]:
                at = next((n for n, (a, b) in enumerate(zip(held[0], other, strict=False)) if a != b), None)
                where = f"batch {at}" if at is not None else f"lengths {[len(each) for each in held]}"
                raise Broken(f"the replicas of {_TOPIC}-{partition} differ: {where}")


def _write_operations(path: Path, ledger: WorkloadLedger) -> None:
    assert ledger.history is not None
    path.write_text(ledger.history.text())


def _write(path: Path, ledger: WorkloadLedger, faults: Faults) -> None:
    document = {
        "faults": faults.story,
        "sent": [[each.value.decode(), each.partition, each.offset] for each in ledger.sent],
        "seen": {
            name: [None if one is None else [one[0], one[1], one[2].decode()] for one in seen]
            for name, seen in ledger.seen.items()
        },
        "committed": [[group, partition, at] for (group, partition), at in ledger.committed.items()],
    }
    path.write_text(json.dumps(document))
