"""`python -m tests.mutants.hunt`: which small bugs, planted by chance, do the tests not see?

`--seed` chooses them over all lines of code, or of the folders that `--under` names; `--at FILE:FIRST-LAST` takes all
bugs of these lines. Each is planted alone in a copy of the tree. Its tests are those that run its line, by a map that
`--map` names and `tests/mutants/lines.py` makes: JSON, `{"lines": {file: {line: [test]}}}`, the quickest first. Where
fewer than five run it, tests of the same file are added, those of lines that use the name first that the statement
sets, and for a line outside of functions the package's folder of tests: what runs when a module is imported belongs to
no test. A file without a line in the map has the tests of the files that import it. What the quickest ones do not catch
is given to all other tests of the line, as far as a bound of time allows: the quickest are seldom the sharpest.
`--also` adds tests that are newer than the map. A survivor is read by a person: a change that no caller can see does
not count.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import signal
import sys
import tempfile
from pathlib import Path

from tests.mutants.forked import preload, pytest_in
from tests.mutants.generate import Change, changes, chosen
from tests.mutants.mutant import ROOT
from tests.mutants.planting import Copy, failed, write

#: Tests of other lines of the file are taken, too, where fewer run the changed one; so many of each.
_FEW, _NEAR = 5, 10
#: A test that takes longer than this may fail without a bug when the machine is busy.
_SLOW_SECONDS = 0.5
#: The first round takes no longer.
_QUICK_SECONDS = 8.0
#: What pytest ends with when a test is not found.
_USAGE_ERROR = 4

Lines = dict[str, dict[str, list[str]]]


def tests_of(change: Change, lines: Lines) -> list[str]:
    """The tests that run a line of the changed statement, the quickest first."""
    found: dict[str, None] = {}
    here = lines.get(change.file, {})
    for line in range(change.line, change.last_line + 1):
        found.update(dict.fromkeys(here.get(str(line), ())))
    if len(found) < _FEW:
        for line in _users(change):
            found.update(dict.fromkeys(here.get(str(line), ())))
        near = sorted((abs(int(line) - change.line), tests) for line, tests in here.items())
        for _, tests in near:
            found.update(dict.fromkeys(tests[:_NEAR]))
    if not found:
        module = change.file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for file, there in lines.items():
            if re.search(rf"\b{module}\b", (ROOT / file).read_text()):
                for tests in there.values():
                    found.update(dict.fromkeys(tests[:_NEAR]))
    if not _is_in_function(change):
        folder = "/".join(["tests", *change.file.split("/")[1:2]])
        if (ROOT / folder).is_dir():
            found[folder] = None
    return list(found)


def _is_in_function(change: Change) -> bool:
    tree = ast.parse((ROOT / change.file).read_text())
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return any(node.body[0].lineno <= change.line <= (node.end_lineno or 0) for node in functions)


def _users(change: Change) -> list[int]:
    """The lines of the file that use the name which the changed statement, one outside of functions, sets."""
    text = (ROOT / change.file).read_text()
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.lineno <= change.line <= (node.end_lineno or 0):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name):
                word = re.compile(rf"\b{target.id}\b")
                return [number for number, line in enumerate(text.splitlines(), 1) if word.search(line)]
    return []


def at(places: list[str]) -> list[Change]:
    """All bugs that can be planted in these lines of these files."""
    found = []
    for place in places:
        file, _, span = place.partition(":")
        first, _, last = span.partition("-")
        inside = range(int(first), int(last or first) + 1)
        found += [each for each in changes(file, (ROOT / file).read_text()) if each.line in inside]
    return found


def rounds(tests: list[str], seconds: dict[str, float], most: int, budget: float) -> list[list[str]]:
    """The quickest tests, and others as far as `budget` seconds reach; one at least. A long one keeps no other out."""
    first: list[str] = []
    more: list[str] = []
    used = 0.0
    for test in tests:
        after = used + seconds.get(test, 0)
        if after > budget:
            continue
        (first if len(first) < most and after <= _QUICK_SECONDS else more).append(test)
        used = after
    return [each for each in (first, more) if each] or [tests[:1]][: len(tests)]


def outcome(copy: Copy, change: Change, tests: list[str], limit: float, slow: set[str]) -> tuple[str, str]:
    """(caught, survived, not run or unclear; which test failed)."""
    place = copy.root / change.file
    right = place.read_text()
    write(place, change.planted(right))
    try:
        code, _, said = pytest_in(copy.root, tests, limit)
    finally:
        write(place, right)
    first = failed(said)
    if code == 0:
        return "survived", f"{len(tests)} tests"
    if code == 1 and first and first not in slow:
        return "caught", first
    # A test that fails without the bug, too, has caught nothing: those that take time may fail on a busy machine. A
    # module that the bug keeps from being imported, and tests that do not end with it, are caught.
    without, _, usual = pytest_in(copy.root, [first] if code == 1 and first else tests, limit)
    if without == 0:
        return "caught", first or ("no end" if code is None else f"pytest ended with {code}")
    # The map may name tests that are there no more.
    there = [each for each in tests if each not in usual and f"{each.partition('[')[0]}\n" not in usual]
    if without == _USAGE_ERROR and len(there) < len(tests):
        return outcome(copy, change, there, limit, slow) if there else ("not run", "its tests are there no more")
    return "unclear", f"fails without it: {first}" if code == 1 else f"{code}, and {without} without it"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.hunt", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="chooses the bugs")
    parser.add_argument("--at", action="append", metavar="FILE:FIRST-LAST", help="all bugs of these lines instead")
    parser.add_argument(
        "--also", action="append", default=[], help="tests that are run first for each; may be repeated"
    )
    parser.add_argument("--count", type=int, default=60, help="how many")
    parser.add_argument("--under", action="append", help="a folder or file of ottla/; may be repeated")
    parser.add_argument("--map", type=Path, required=True, help="a JSON file: which tests run which line")
    parser.add_argument("--most", type=int, default=60, help="so many tests of a line in the first round")
    parser.add_argument("--budget", type=float, default=60, help="seconds of tests in the second round")
    parser.add_argument("--limit", type=float, default=120, help="seconds for the tests of one")
    parser.add_argument("--part", default="1/1", help="2/3: every third of them, from the second on")
    given = parser.parse_args(arguments)
    first, step = map(int, given.part.split("/"))
    found = json.loads(given.map.read_text())
    lines: Lines = found["lines"]
    seconds: dict[str, float] = found.get("seconds", {})
    for test, took in list(seconds.items()):
        folder = "/".join(test.split("/")[:2])
        seconds[folder] = seconds.get(folder, 0) + took
    slow = {test for test, took in seconds.items() if took > _SLOW_SECONDS}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    preload()
    words: list[str] = []
    with tempfile.TemporaryDirectory(prefix="ottla-mutants-") as directory:
        copy = Copy(Path(directory))
        planted = at(given.at) if given.at else chosen(ROOT, given.seed, given.count, tuple(given.under or ["ottla"]))
        for each in planted[first - 1 :: step]:
            word, detail = "not run", ""
            for tests in rounds([*given.also, *tests_of(each, lines)], seconds, given.most, given.budget):
                word, detail = outcome(copy, each, tests, given.limit, slow)
                if word != "survived":
                    break
            words.append(word)
            print(f"{word:9} {each}  [{detail}]", flush=True)
    print(f"seed {given.seed}: " + ", ".join(f"{word} {words.count(word)}" for word in dict.fromkeys(words)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
