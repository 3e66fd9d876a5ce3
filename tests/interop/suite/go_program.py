"""A program of tests that `go test -c` built: how it is run, and what its output means."""

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.interop.suite.outcome import FAILED, PASSED, SKIPPED, Outcome

TIMEOUT_S = 900
_END = re.compile(r"^( *)--- (PASS|FAIL|SKIP): (\S+) \(([0-9.]+)s\)$")
_STATES = {"PASS": PASSED, "FAIL": FAILED, "SKIP": SKIPPED}


def run(
    program: Path, directory: Path, settings: Mapping[str, str], pattern: str, *, without: str = "^$"
) -> list[Outcome]:
    """Run the tests whose names fit `pattern` and not `without`, in the directory of their sources."""
    command = [str(program), "-test.v", f"-test.run={pattern}", f"-test.skip={without}"]
    command.append(f"-test.timeout={TIMEOUT_S - 30}s")
    done = subprocess.run(
        command,
        cwd=directory,
        env={**os.environ, **settings},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        timeout=TIMEOUT_S,
    )
    outcomes = parse(done.stdout.decode(errors="replace"))
    # "no tests to run" is the end of a program that was told a pattern that fits none: code 0.
    if not outcomes or (done.returncode and not any(one.state == FAILED for one in outcomes)):
        last = done.stdout[-4000:].decode(errors="replace")
        raise RuntimeError(f"{program.name} ended with {done.returncode}:\n{last}")
    return outcomes


def alone(program: Path, directory: Path, settings: Mapping[str, str], outcome: Outcome) -> Outcome:
    """The same test (a subtest by its whole path) with nothing beside it."""
    pattern = "/".join(f"^{re.escape(part)}$" for part in outcome.name.split("/"))
    found = [one for one in run(program, directory, settings, pattern) if one.name == outcome.name]
    return found[0] if found else outcome


def parse(text: str) -> list[Outcome]:
    """The outcomes in the output of `go test -v`: a test with subtests gives one each and one of its own.

    What a test says stands in front of its closing line, or between that and the next for a subtest.
    """
    outcomes: list[Outcome] = []
    said: list[str] = []
    for line in text.splitlines():
        if found := _END.match(line):
            state = _STATES[found[2]]
            outcomes.append(Outcome(found[3], state, float(found[4]), "; ".join(said[-3:]) if state != PASSED else ""))
            said = []
        elif re.match(r"^ +\S+\.go:\d+: ", line):
            said.append(line.strip())
            if outcomes and outcomes[-1].state != PASSED and not outcomes[-1].said:
                outcomes[-1] = Outcome(outcomes[-1].name, outcomes[-1].state, outcomes[-1].seconds, line.strip())
    return outcomes
