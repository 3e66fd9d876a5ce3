"""Brokers that are wrong on purpose: does the checker cry? `make broken`, and `make chaos BROKEN=name`.

    python -m tests.chaos.broken [--seeds 20] [--real] [name ...]

Each bug is planted in a copy of the product. In the simulated world seeds are run, one after the other, until one ends
in a broken promise; a bug that no seed shows ends the command with exit code 1, and so does a broken promise of the
copy without a bug. `--real` does the same with three processes and real faults (`tests.chaos`), half a minute a seed.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from ottla.kernel.error import OttlaError

#: The checker's word. A history may also end by an error that a client met, which says less.
_CRIES = ("ottla.sim.checker.Broken", "AssertionError")
_ROOT = Path(__file__).parent.parent.parent


class Bug(NamedTuple):
    """Where `before` becomes `after`, once, in a file of the product."""

    what: str
    file: str
    before: str
    after: str
    #: The histories of the world that are run.
    profile: str = "replicated"


BUGS = {
    "acks": Bug(
        "acks=all is answered before a replica has the records",
        "broker/handlers/produce.py",
        "                waiter = partition.when_committed(offset, partial(self._committed, part))\n",
        "                waiter = None\n                self._committed(part, None)\n",
    ),
    "truncate": Bug(
        "a follower keeps records that its leader does not have",
        "replica/followed.py",
        "                    log.truncate(effect.offset, now_ms)\n",
        "                    pass\n",
    ),
    "elect": Bug(
        "a replica that is not in sync is elected",
        "controller/partition_change.py",
        "        holds_all = replica in self.isr or (not self.isr and replica in self._eligible)\n",
        "        holds_all = True\n",
    ),
    "commit": Bug(
        "a commit of offsets is confirmed before a replica has it",
        "broker/coordinators/driver.py",
        "            return answer(response)\n        timer: asyncio",
        "            pass\n        return answer(response)\n        timer: asyncio",
        "commits",
    ),
    "serve": Bug(
        "records are served before they are committed",
        "replica/hosted.py",
        "            bound = log.end_offset if isolation_level == LOG_END else high_watermark\n",
        "            bound = log.end_offset\n",
        "reads",
    ),
}

#: The bugs that random faults of half a minute show in processes, where replication takes a millisecond.
REAL = ("acks", "commit")


def planted(name: str, where: Path) -> Path:
    """A copy of the product in `where` with this bug in it ("none" plants none); what runs there runs it."""
    shutil.copytree(_ROOT / "ottla", where / "ottla", ignore=shutil.ignore_patterns("__pycache__"))
    (where / "tests").symlink_to(_ROOT / "tests")
    if name == "none":
        return where
    if name not in BUGS:
        raise OttlaError(f"BROKEN={name} is unknown; these are known: {', '.join(BUGS)}")
    bug = BUGS[name]
    file = where / "ottla" / bug.file
    text = file.read_text()
    if text.count(bug.before) != 1:
        raise OttlaError(f"the bug {name} does not fit ottla/{bug.file} any more: correct it in {__file__}")
    file.write_text(text.replace(bug.before, bug.after))
    return where


def first_real_seed(name: str, seeds: int) -> tuple[int, str] | None:
    """The first seed that shows a bug in processes and what the checker says; None when `seeds` show nothing."""
    command = [sys.executable, "-m", "tests.chaos", "--minutes", "0.5", "--faults", "slow,kill9", "--broken", name]
    for seed in range(1, 1 + seeds):
        done = subprocess.run([*command, "--seed", str(seed)], cwd=_ROOT, capture_output=True, text=True, check=False)
        said = done.stdout.splitlines()
        if done.returncode == 1 and said:
            if name != "none":
                # What is kept of a run that failed is for those who did not expect it.
                shutil.rmtree(said[-1].rpartition(" ")[2])
            return seed, said[0].partition(": ")[2]
        if done.returncode:
            raise OttlaError(f"the chaos run ended with {done.returncode}: {done.stdout}{done.stderr[-2000:]}")
    return None


def first_seed(name: str, seeds: int, first: int = 1) -> tuple[int, str] | None:
    """The first seed that shows a bug in the world and what its checker says; None when `seeds` show nothing."""
    with tempfile.TemporaryDirectory(prefix="ottla-broken-") as where:
        copy = planted(name, Path(where))
        for seed in range(first, first + seeds):
            profile = BUGS[name].profile if name in BUGS else "replicated"
            command = [sys.executable, "-m", "tests.world", "--profile", profile, "--once"]
            done = subprocess.run(
                [*command, "--seeds", "1", "--first", str(seed)], cwd=copy, capture_output=True, text=True, check=False
            )
            if done.returncode:
                said = [line for line in done.stderr.splitlines() if line.startswith(_CRIES)]
                if said:
                    return seed, said[-1]
    return None


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.broken", description="Bugs that the checker must see.")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--real", action="store_true", help="with processes; the bugs that half a minute shows")
    parser.add_argument("names", nargs="*")
    asked = parser.parse_args()
    missed = 0
    look = first_real_seed if asked.real else first_seed
    for name in asked.names or ["none", *(REAL if asked.real else BUGS)]:
        wrong = name != "none"
        found = look(name, asked.seeds if wrong else 2)
        missed += (found is None) is wrong
        what = BUGS[name].what if wrong else "nothing is wrong"
        seen = f"seed {found[0]}: {found[1]}" if found else f"silent in {asked.seeds if wrong else 2} seeds"
        print(f"{name} ({what}): {seen}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
