"""A copy of the tree in which one bug at a time is planted, and what the tests say of it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from tests.mutants.mutant import ROOT, Mutant

CAUGHT = "caught"


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
            self._usual[mutant.tests] = self.pytest(mutant.tests, 600)
        code, usual, said = self._usual[mutant.tests]
        if code != 0:
            return Outcome("broken", usual, f"its tests fail without it: {failed(said) or code}")
        right = place.read_text()
        write(place, right.replace(mutant.old, mutant.new))
        try:
            code, seconds, said = self.pytest(mutant.tests, 30 + 3 * usual)
        finally:
            write(place, right)
        if code is None:
            return Outcome(CAUGHT, seconds, "the tests did not come to their end in time")
        if code == 1:
            return Outcome(CAUGHT, seconds, failed(said))
        if code == 0:
            return Outcome("survived", seconds, mutant.about)
        return Outcome("invalid", seconds, f"pytest ended with {code}: {failed(said) or said[-300:]}")

    def pytest(self, tests: Iterable[str], limit: float) -> tuple[int | None, float, str]:
        """(exit code, or None after the limit; seconds; output)."""
        environment = os.environ | {"PYTHONPATH": str(self.root)}
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


def write(place: Path, text: str) -> None:
    """Write a module's text. Its compiled file goes: one of the same size, of the same second, would count as this."""
    place.write_text(text)
    for compiled in (place.parent / "__pycache__").glob(f"{place.stem}.*.pyc"):
        compiled.unlink()


def failed(said: str) -> str:
    """The first test that failed."""
    found = next((line for line in said.splitlines() if line.startswith(("FAILED", "ERROR"))), "")
    return found.partition(" - ")[0].partition(" ")[2]
