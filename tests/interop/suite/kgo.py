"""franz-go's tests of its client, from its Go module, as `go test -c` builds them.

They are one program: it makes its own topics and groups, runs its tests side by side, and reads where the broker is and
how many records to write from the environment. Some read the module's sources: it runs in their directory.
"""

import os
import re
import subprocess

from tests.interop import toolchain
from tests.interop.suite.outcome import FAILED, PASSED, SKIPPED, Outcome, Report, expected_of, judged

#: franz-go's own default is 500,000, which is more than a node in Python does in the program's five minutes.
RECORDS_LONG = 100_000
RECORDS_SHORT = 5_000
TIMEOUT_S = 900
_END = re.compile(r"^( *)--- (PASS|FAIL|SKIP): (\S+) \(([0-9.]+)s\)$")
_STATES = {"PASS": PASSED, "FAIL": FAILED, "SKIP": SKIPPED}

#: What franz-go's own continuous integration sets at its broker, beside defaults.
BROKER_SETTINGS = {"group.share.delivery.count.limit": "10", "share.coordinator.state.topic.num.partitions": "5"}


def run(bootstrap: str, records: int) -> Report:
    """Run all tests."""
    outcomes = _run(bootstrap, records, ".")
    return judged("kgo", outcomes, expected_of("kgo"), lambda one: _alone(bootstrap, records, one))


def _alone(bootstrap: str, records: int, outcome: Outcome) -> Outcome:
    """The same test (a subtest by its whole path) with nothing beside it."""
    pattern = "/".join(f"^{re.escape(part)}$" for part in outcome.name.split("/"))
    found = [one for one in _run(bootstrap, records, pattern) if one.name == outcome.name]
    return found[0] if found else outcome


def _run(bootstrap: str, records: int, pattern: str) -> list[Outcome]:
    program, directory = toolchain.kgo_tests()
    environment = {
        **os.environ,
        "KGO_SEEDS": bootstrap,
        "KGO_TEST_RF": "1",
        "KGO_TEST_RECORDS": str(records),
        "KGO_TEST_UNSAFE": "1",
        "KGO_LOG_LEVEL": "none",
    }
    command = [str(program), "-test.v", f"-test.run={pattern}", f"-test.timeout={TIMEOUT_S - 30}s"]
    done = subprocess.run(
        command,
        cwd=directory,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        timeout=TIMEOUT_S,
    )
    outcomes = parse(done.stdout.decode(errors="replace"))
    if done.returncode and not any(one.state == FAILED for one in outcomes):
        raise RuntimeError(f"kgo's tests ended with {done.returncode}:\n{done.stdout[-4000:].decode(errors='replace')}")
    return outcomes


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
