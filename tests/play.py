"""Scenes of a machine: text in, the whole trace out. `make scenes REWRITE=1` writes the traces down as they are now.

A file has blocks: a command, `----`, what it brings. Lines that begin with `#` are prose. The commands are listed in
`tests/raft/scene.py` (the quorum), `tests/replica/scene.py` (the leader and followers of a partition) and
`tests/txn/scene.py` (a transaction coordinator), and in `tests/controller/played.py`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

RULE = "----"


class NothingThere(Exception):
    """A command finds nothing to do: the trace says so."""


class Scene:
    """What the commands of a file act on, one after the other: `do_x` for the command x."""

    def __init__(self) -> None:
        #: What the running command has brought.
        self.lines: list[str] = []

    def run(self, command: str) -> list[str]:
        """What the command brings, line by line."""
        self.lines = []
        name, *words = command.split()
        handler: Callable[..., None] = getattr(self, "do_" + name.replace("-", "_"))
        try:
            handler(*words)
        except NothingThere as error:
            self.lines.append(str(error))
        self.check()
        return self.lines

    def check(self) -> None:
        """Assert what always holds."""


def played(make: Callable[[], Scene], text: str) -> str:
    """The text of a scene with the trace that it brings now."""
    scene, out, skipping = make(), [], False
    for line in text.splitlines():
        if line == RULE:
            skipping = True
            continue
        if skipping and line:
            continue
        skipping = False
        out.append(line)
        if line and not line.startswith("#"):
            out += [RULE, *scene.run(line)]
    return "\n".join(out) + "\n"


def names(folder: Path) -> list[str]:
    """The scenes of a folder."""
    return sorted(path.stem for path in folder.glob("*.txt"))


def main(folder: Path, make: Callable[[], Scene], arguments: list[str] | None = None) -> int:
    """The command of one kind of scenes."""
    parser = argparse.ArgumentParser(description="Play the scenes of a machine.")
    parser.add_argument("--rewrite", action="store_true", help="write the traces down as they are now")
    parser.add_argument("names", nargs="*", help="scenes; all of them if none is named")
    given = parser.parse_args(arguments)
    failed = 0
    for name in given.names or names(folder):
        path = folder / f"{name}.txt"
        text = path.read_text()
        now = played(make, text)
        if now != text:
            failed += 1
            print(f"{name}: {'rewritten' if given.rewrite else 'brings another trace'}")
            if given.rewrite:
                path.write_text(now)
    return 0 if given.rewrite else min(failed, 1)
