"""The planted bugs as they are written down, and where each of them goes."""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
_FOLDER = Path(__file__).parent


class Stale(Exception):
    """A mutant that fits the tree no more."""


class Mutant(NamedTuple):
    """One planted bug."""

    #: The stem of its TOML file: a package of `ottla`.
    package: str
    name: str
    #: What goes wrong.
    about: str
    #: Where the text stood when the mutant was written.
    file: str
    old: str
    new: str
    #: Files or folders of tests, relative to the root; all of them run until one test fails.
    tests: tuple[str, ...]
    #: Runs in a few seconds.
    cheap: bool

    def place(self, root: Path) -> Path:
        """The file that holds the text once. Stale if there is none, or more than one."""
        hint = root / self.file
        if hint.exists() and hint.read_text().count(self.old) == 1:
            return hint
        found = [path for path in sorted((root / "ottla").rglob("*.py")) if self.old in path.read_text()]
        if len(found) != 1 or found[0].read_text().count(self.old) != 1:
            raise Stale(f"its text stands in {len(found)} files of ottla/, or more than once in one (expected once)")
        return found[0]

    def misfit(self, root: Path) -> str:
        """Why it fits the tree no more, or nothing."""
        try:
            self.place(root)
        except Stale as why:
            return str(why)
        missing = [path for path in self.tests if not (root / path.partition("::")[0]).exists()]
        return f"no such tests: {', '.join(missing)}" if missing else ""

    def digest(self, root: Path) -> str:
        """Of all that decides the outcome but the rest of the product: the mutant, its file and its tests."""
        found = hashlib.sha256(repr(self).encode())
        for path in [self.place(root), *_files(root, self.tests)]:
            found.update(path.read_bytes())
        return found.hexdigest()[:16]


def _files(root: Path, tests: Iterable[str]) -> list[Path]:
    found: list[Path] = []
    for each in tests:
        path = root / each.partition("::")[0]
        found += sorted(path.rglob("*.py")) if path.is_dir() else [path]
    return found


def load(folder: Path = _FOLDER) -> list[Mutant]:
    """All mutants, by package and in the order in which they are written down."""
    found = []
    for path in sorted(folder.glob("*.toml")):
        data = tomllib.loads(path.read_text())
        usual = data.get("tests", [])
        for name, each in data["mutant"].items():
            tests = tuple(each.get("tests", usual))
            cheap = each.get("cheap", False)
            found.append(Mutant(path.stem, name, each["about"], each["file"], each["old"], each["new"], tests, cheap))
    return found
