"""Tests that pytest runs, with a Python of their own: how they are run, and what its report means."""

import os
import re
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tests.interop.suite.outcome import FAILED, PASSED, SKIPPED, Outcome
from tests.interop.suite.process import run_whole

_TEST_TIMEOUT_S = 120


def run(
    python: Path,
    sources: Path,
    arguments: Sequence[str],
    settings: Mapping[str, str],
    timeout_s: float,
    *,
    below: str,
) -> list[Outcome]:
    """Run the tests that `arguments` name; an outcome's name begins with its file in the directory `below`."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ottla-pytest-") as directory:
        told = Path(directory) / "told.xml"
        options = ["-q", "-p", "no:cacheprovider", f"--timeout={_TEST_TIMEOUT_S}", f"--junitxml={told}"]
        # What this project tells pytest is not for them.
        options += ["-c", os.devnull, f"--rootdir={sources}"]
        command = [str(python), "-m", "pytest", *options, *arguments]
        code = run_whole(command, sources, {**os.environ, **settings}, timeout_s)
        if not told.exists():
            said = f"pytest ended with {code} after {time.monotonic() - began:.0f} s and told nothing"
            raise RuntimeError(said)
        return parse(told.read_text(), below)


def alone(ran: Callable[[Sequence[str]], list[Outcome]], below: str, outcome: Outcome) -> Outcome:
    """The same test with nothing beside it; `ran` runs the tests of these paths."""
    return next(iter(ran([below + outcome.name])), outcome)


def parse(text: str, below: str) -> list[Outcome]:
    """The outcomes in a report of JUnit's form, each named by its file in the directory `below` and its function."""
    outcomes: dict[str, Outcome] = {}
    for case in ElementTree.fromstring(text).iter("testcase"):
        path, _, inside = re.sub(r"\.(?=[A-Z])", " ", case.get("classname", ""), count=1).partition(" ")
        where = path.replace(".", "/").removeprefix(below)
        name = "::".join([f"{where}.py", *filter(None, [inside]), case.get("name", "")]).replace(" ", "_")
        bad = next((each for kind in ("failure", "error", "skipped") for each in case.iter(kind)), None)
        state = PASSED if bad is None else SKIPPED if bad.tag == "skipped" else FAILED
        said = "" if bad is None else " ".join(bad.get("message", "").split())[:300]
        # A test whose fixture fails afterwards is there twice.
        if name not in outcomes or state == FAILED:
            outcomes[name] = Outcome(name, state, float(case.get("time", 0)), said)
    return list(outcomes.values())
