"""Which seeds of a profile ran without a difference, and at which commit: for proofs that take more than one day.

    python -m tests.world.ran           # what the table holds
    python -m tests.world.ran --keep    # add what build/world holds to the table

Each seed is noted in build/world/PROFILE-COMMIT.txt as it ends. The table is a file of the tree:
`{profile: {commit: {"seeds": ["1-83", "90"], "acknowledged": n, "faults": n, "simulated_s": n}}}`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import TypedDict

from ottla.kernel.named import NamedTuple

_ROOT = Path(__file__).parents[2]
TABLE = Path(__file__).parent / "ran.json"
NOTES = _ROOT / "build" / "world"


class Kept(TypedDict):
    """What ran of a profile at a commit."""

    seeds: list[str]
    acknowledged: int
    faults: int
    simulated_s: int


class Note(NamedTuple):
    """One history without a difference."""

    seed: int
    trace: str
    acknowledged: int
    faults: int
    simulated_s: int


def note(profile: str, commit: str, done: Note, notes: Path = NOTES) -> None:
    """Note a history of this commit."""
    notes.mkdir(parents=True, exist_ok=True)
    with _file(profile, commit, notes).open("a") as file:
        file.write(" ".join(map(str, done)) + "\n")


def ran_at(profile: str, commit: str, notes: Path = NOTES) -> set[int]:
    """The seeds that ran at this commit, on this machine."""
    file = _file(profile, commit, notes)
    return {each.seed for each in _read(file)} if file.exists() else set()


def ran(profile: str, notes: Path = NOTES, table: Path = TABLE) -> set[int]:
    """The seeds that ran at any commit: those of the table and those noted on this machine."""
    found = {seed for kept in _table(table).get(profile, {}).values() for seed in seeds_of(kept["seeds"])}
    for _, file in _files(profile, notes):
        found.update(each.seed for each in _read(file))
    return found


def keep(notes: Path = NOTES, table: Path = TABLE) -> None:
    """Add the notes of this machine to the table. A seed that it has already, at any commit, is not added again."""
    known = _table(table)
    for profile in {file.name.rpartition("-")[0] for file in notes.glob("*-*.txt")}:
        commits = known.setdefault(profile, {})
        had = {seed for each in commits.values() for seed in seeds_of(each["seeds"])}
        for commit, file in _files(profile, notes):
            fresh = {each.seed: each for each in _read(file) if each.seed not in had}
            if fresh:
                here = commits.setdefault(commit, Kept(seeds=[], acknowledged=0, faults=0, simulated_s=0))
                here["seeds"] = spans({*seeds_of(here["seeds"]), *fresh})
                here["acknowledged"] += sum(each.acknowledged for each in fresh.values())
                here["faults"] += sum(each.faults for each in fresh.values())
                here["simulated_s"] += sum(each.simulated_s for each in fresh.values())
                had |= fresh.keys()
    table.write_text(json.dumps(known, indent=1) + "\n")


def spans(seeds: Iterable[int]) -> list[str]:
    """The seeds in order, neighbours joined: 1, 2, 3, 7 are `["1-3", "7"]`."""
    order = sorted(seeds)
    if not order:
        return []
    breaks = [at for at, (one, two) in enumerate(pairwise(order), 1) if two != one + 1]
    parts = [order[first:last] for first, last in pairwise([0, *breaks, len(order)])]
    return [f"{part[0]}-{part[-1]}" if len(part) > 1 else str(part[0]) for part in parts]


def seeds_of(spans: Iterable[str]) -> set[int]:
    """The opposite of `spans`."""
    found: set[int] = set()
    for each in spans:
        first, _, last = each.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def _file(profile: str, commit: str, notes: Path) -> Path:
    return notes / f"{profile}-{commit}.txt"


def _files(profile: str, notes: Path) -> list[tuple[str, Path]]:
    """(commit, file) of all notes of a profile."""
    found = sorted(notes.glob(f"{profile}-*.txt"))
    parts = [(file.stem.removeprefix(f"{profile}-"), file) for file in found]
    return [(commit, file) for commit, file in parts if "-" not in commit]


def _read(file: Path) -> list[Note]:
    lines = [line.split() for line in file.read_text().splitlines()]
    # A run that was ended may have cut its last line.
    whole = [line for line in lines if len(line) == len(Note._fields)]
    return [Note(int(seed), trace, *map(int, counts)) for seed, trace, *counts in whole]


def _table(table: Path) -> dict[str, dict[str, Kept]]:
    known: dict[str, dict[str, Kept]] = json.loads(table.read_text()) if table.exists() else {}
    return known


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.world.ran", description=__doc__.splitlines()[0])
    parser.add_argument("--keep", action="store_true", help="add what build/world holds to the table")
    if parser.parse_args().keep:
        keep()
    for profile, commits in _table(TABLE).items():
        for commit, here in commits.items():
            counts = f"{here['acknowledged']} acknowledged records, {here['faults']} faults"
            print(f"{profile} {commit}: seeds {', '.join(here['seeds'])}; {counts}, {here['simulated_s']} simulated s")
        print(f"{profile}: {sum(len(seeds_of(here['seeds'])) for here in commits.values())} histories")
    return 0


if __name__ == "__main__":
    sys.exit(main())
