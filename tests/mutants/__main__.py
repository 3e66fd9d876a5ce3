"""`python -m tests.mutants`: which planted bugs do the tests catch?

Each mutant is planted alone in a copy of the tree. Its tests must pass there without it and fail with it. Ends with a
table; the exit code is 1 if a mutant survives, fits the tree no more, or its tests fail without it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from tests.mutants.mutant import ROOT, Mutant, Stale, load

_CACHE = ROOT / ".cache" / "mutants.json"
_GOOD = "caught"


class Outcome(NamedTuple):
    """What came of a mutant."""

    #: caught, survived, stale, invalid (its tests cannot be collected), broken (they fail without it).
    word: str
    seconds: float
    #: The first test that failed, or why it is not "caught".
    detail: str


class Copy:
    """A copy of the tree in which one mutant at a time is planted."""

    def __init__(self, root: Path) -> None:
        self.root = root
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for name in filter(None, listed.split("\0")):
            source, target = ROOT / name, root / name
            if source.is_file():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, target)
        #: What tests do without a mutant: (exit code, seconds, output).
        self._usual: dict[tuple[str, ...], tuple[int | None, float, str]] = {}

    def try_out(self, mutant: Mutant) -> Outcome:
        if why := mutant.misfit(self.root):
            return Outcome("stale", 0, why)
        place = mutant.place(self.root)
        if mutant.tests not in self._usual:
            self._usual[mutant.tests] = self._pytest(mutant.tests, 600)
        code, usual, said = self._usual[mutant.tests]
        if code != 0:
            return Outcome("broken", usual, f"its tests fail without it: {_failed(said) or code}")
        right = place.read_text()
        place.write_text(right.replace(mutant.old, mutant.new))
        try:
            code, seconds, said = self._pytest(mutant.tests, 30 + 3 * usual)
        finally:
            place.write_text(right)
        if code is None:
            return Outcome(_GOOD, seconds, "the tests did not come to their end in time")
        if code == 1:
            return Outcome(_GOOD, seconds, _failed(said))
        if code == 0:
            return Outcome("survived", seconds, mutant.about)
        return Outcome("invalid", seconds, f"pytest ended with {code}: {_failed(said) or said[-300:]}")

    def _pytest(self, tests: tuple[str, ...], limit: float) -> tuple[int | None, float, str]:
        """(exit code, or None after the limit; seconds; output)."""
        # No compiled files: a mutant of the same size, planted in the same second, would not be seen.
        environment = os.environ | {"PYTHONPATH": str(self.root), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-m", "pytest", "-q", "-x", "--no-header", "--tb=no", "-p", "no:cacheprovider"]
        began = time.monotonic()
        with tempfile.TemporaryFile("w+") as out:
            process = subprocess.Popen(
                [*command, "-m", "not interop and not long", *tests],
                cwd=self.root,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                code: int | None = process.wait(limit)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                # The nodes that the tests started, too.
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            out.seek(0)
            return code, time.monotonic() - began, out.read()


def _failed(said: str) -> str:
    """The first test that failed."""
    found = next((line for line in said.splitlines() if line.startswith(("FAILED", "ERROR"))), "")
    return found.partition(" - ")[0].partition(" ")[2]


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
                if digest and outcome.word in (_GOOD, "survived"):
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
        print(f"{package:12}{len(words):8}{words.count(_GOOD):8}")
    left = {name: outcome for name, outcome in outcomes.items() if outcome.word != _GOOD}
    for name, outcome in left.items():
        print(f"{outcome.word.upper()} {name}: {outcome.detail}")
    print(f"{len(outcomes) - len(left)} of {len(outcomes)} caught")
    return 1 if left or not outcomes else 0


if __name__ == "__main__":
    sys.exit(main())
