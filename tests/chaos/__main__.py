"""`make chaos MINUTES=5 SEED=1 NODES=ottla FAULTS=kill9,cut HISTORY=file.edn BROKEN=acks`: chaos on real processes.

    python -m tests.chaos --minutes 1 --seed 1 --nodes apache --faults kill9,pause --history file.edn
    python -m tests.chaos --minutes 1 --seed 1 --broken acks

`--history` writes every operation in the shape of Jepsen's kafka workload; `--broken` runs a copy of the product with
one of the bugs of `tests.chaos.broken` in it, at which the checker is to cry.

One line at the end: what was acknowledged and which faults there were. A promise that was not kept ends it with exit
code 1, and so does a wait for the cluster that has no end in its time; what the nodes said and held is kept. SIGTERM,
as `timeout` sends it, stops the nodes, removes their network and names what the run waited for.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
import tempfile
from collections.abc import Coroutine
from functools import partial
from pathlib import Path

from ottla.kernel.error import OttlaError
from ottla.sim.checker import Broken
from tests.chaos.broken import planted
from tests.chaos.run import ChaosResult, chaos
from tests.chaos.wait import Waits

_ENDED_FROM_OUTSIDE = 128 + signal.SIGTERM


async def _until_told(run: Coroutine[None, None, ChaosResult]) -> ChaosResult:
    """Run it; SIGTERM cancels it, so that it takes its nodes and its network along."""
    task = asyncio.ensure_future(run)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await task


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description="Chaos on real processes.")
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--nodes", choices=("ottla", "apache"), default="ottla")
    parser.add_argument("--voters", type=int, default=3)
    parser.add_argument("--faults", default="")
    parser.add_argument("--history", type=Path, default=None)
    parser.add_argument("--broken", default="none")
    asked = parser.parse_args()
    # Clients that cannot reach a killed node say so; here that is no news.
    logging.getLogger("ottla").setLevel(logging.CRITICAL)
    directory = Path(tempfile.mkdtemp(prefix=f"ottla-chaos-{asked.nodes}-{asked.seed}-"))
    names = [each for each in asked.faults.split(",") if each]
    waits = Waits()
    run = partial(chaos, asked.nodes, directory, asked.seed, asked.minutes * 60, names, asked.voters)
    try:
        product = planted(asked.broken, directory / "product") if asked.broken != "none" else None
        result = asyncio.run(_until_told(run(history=asked.history, product=product, waits=waits)))
    except asyncio.CancelledError:
        print(f"seed {asked.seed}: ended from outside, waiting for {waits.now}\nhistory and outputs: {directory}")
        return _ENDED_FROM_OUTSIDE
    except Broken as broken:
        print(f"seed {asked.seed}: {broken}\nhistory, outputs and data: {directory}")
        return 1
    except OttlaError as error:
        print(f"chaos: {error}")
        return 2
    what = ", ".join(f"{kind} {count}" for kind, count in sorted(result.faults.items()))
    ended = f"; ended by themselves: {result.ended}" if result.ended else ""
    print(f"seed {asked.seed}: {result.acknowledged} acknowledged records; {what}{ended}: no difference")
    return 0


if __name__ == "__main__":
    sys.exit(main())
