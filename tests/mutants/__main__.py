"""`python -m tests.mutants`: which planted bugs do the tests catch?

Each mutant is planted alone in a copy of the tree. Its tests must pass there without it and fail with it. Ends with a
table; the exit code is 1 if a mutant survives, fits the tree no more, or its tests fail without it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.mutants.mutant import ROOT, Mutant, Stale, load
from tests.mutants.planting import CAUGHT, Copy, Outcome

_CACHE = ROOT / ".cache" / "mutants.json"


def choose(mutants: list[Mutant], given: argparse.Namespace) -> list[Mutant]:
    """The mutants that the command line asks for."""
    if given.package:
        mutants = [each for each in mutants if each.package in given.package]
    if given.name:
        mutants = [each for each in mutants if any(word in each.name for word in given.name)]
    if given.cheap:
        mutants = [each for each in mutants if each.cheap]
    if given.sample is not None and given.sample < len(mutants):
        mutants = random.Random(given.seed).sample(mutants, given.sample)
    return mutants


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--package", action="append", help="mutants of this package only; may be repeated")
    parser.add_argument("--name", action="append", help="mutants whose name contains this; may be repeated")
    parser.add_argument("--cheap", action="store_true", help="mutants whose tests take a few seconds")
    parser.add_argument("--sample", type=int, metavar="N", help="N of them by chance")
    parser.add_argument("--seed", type=int, default=1, help="of the sample")
    parser.add_argument("--from", dest="folder", type=Path, help="a folder with other mutants")
    parser.add_argument("--resume", action="store_true", help="take outcomes of earlier runs for what has not changed")
    parser.add_argument("--list", action="store_true", help="list them and run nothing")
    parser.add_argument("--check", action="store_true", help="say which fit the tree no more and run nothing")
    given = parser.parse_args(arguments)
    mutants = choose(load(given.folder) if given.folder else load(), given)
    if given.list:
        for each in mutants:
            print(f"{each.package:10} {each.name:45} {each.about}")
        print(f"{len(mutants)} mutants: {_by_package(mutants)}")
        return 0
    if given.check:
        stale = [f"{each.package}/{each.name}: {why}" for each in mutants if (why := each.misfit(ROOT))]
        print("\n".join([*stale, f"{len(mutants) - len(stale)} of {len(mutants)} fit the tree"]))
        return 1 if stale else 0
    known: dict[str, list[object]] = json.loads(_CACHE.read_text()) if given.resume and _CACHE.exists() else {}
    outcomes: dict[str, Outcome] = {}
    # The limit of a test's time counts for programs that are started from a shell's background job, too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="ottla-mutants-") as directory:
        copy = Copy(Path(directory))
        for each in sorted(mutants, key=lambda mutant: mutant.tests):
            try:
                digest = each.digest(ROOT)
            except (Stale, OSError):
                digest = ""
            if digest and digest in known:
                outcome = Outcome(*known[digest])  # type: ignore[arg-type]
            else:
                outcome = copy.try_out(each)
                if digest and outcome.word in (CAUGHT, "survived"):
                    _remember(digest, outcome)
            outcomes[f"{each.package}/{each.name}"] = outcome
            print(
                f"{outcome.word:9} {outcome.seconds:6.1f} s  {each.package}/{each.name}: {outcome.detail}", flush=True
            )
    return _summary(mutants, outcomes)


def _remember(digest: str, outcome: Outcome) -> None:
    known = json.loads(_CACHE.read_text()) if _CACHE.exists() else {}
    known[digest] = outcome
    _CACHE.parent.mkdir(exist_ok=True)
    fresh = _CACHE.with_suffix(f".{os.getpid()}")
    fresh.write_text(json.dumps(known, indent=0))
    fresh.replace(_CACHE)


def _by_package(mutants: list[Mutant]) -> str:
    return ", ".join(f"{package} {count}" for package, count in Counter(each.package for each in mutants).items())


def _summary(mutants: list[Mutant], outcomes: dict[str, Outcome]) -> int:
    print(f"\n{'package':12}{'planted':>8}{'caught':>8}")
    for package in dict.fromkeys(each.package for each in mutants):
        words = [outcome.word for name, outcome in outcomes.items() if name.startswith(f"{package}/")]
        print(f"{package:12}{len(words):8}{words.count(CAUGHT):8}")
    left = {name: outcome for name, outcome in outcomes.items() if outcome.word != CAUGHT}
    for name, outcome in left.items():
        print(f"{outcome.word.upper()} {name}: {outcome.detail}")
    print(f"{len(outcomes) - len(left)} of {len(outcomes)} caught")
    return 1 if left or not outcomes else 0


if __name__ == "__main__":
    sys.exit(main())
