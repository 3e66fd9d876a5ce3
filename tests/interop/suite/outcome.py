"""What a foreign test said, and whether it was expected.

An expectation is a line of `expected/NAME.txt`: the test's name, `fails`, `skips` or `times`, and the reason. `times`
excuses nothing: the test measures time, must pass, and if it does not, the table says what it is about.
Rules:
- A test that is not listed must pass. A skipped one has not: what a suite leaves out, it leaves out for a reason.
- A test that failed and is not listed runs once more, alone: these suites measure time, and the machine may be busy.
- A listed test that passes is no failure; it is told, so that its line can go.
- A run of a whole suite has at least as many outcomes as `LEAST` says, and one for each listed test: a program that
  does not start, or tests that vanish with a new release, do not look like a success.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
_STATES = {"fails": FAILED, "skips": SKIPPED, "times": ""}
EXPECTED = Path(__file__).resolve().parent / "expected"
#: A reason that ends so has a result of Apache Kafka in results/.
APACHE_TOO = "Apache Kafka 4.3.1, too"

#: The least number of outcomes of a whole suite: what the releases of today have, but for a few.
LEAST = {
    "aiokafka": 226,
    "apache (admin)": 120,
    "apache (applications)": 205,
    "apache (authorization)": 180,
    "apache (brokers)": 340,
    "apache (clients)": 130,
    "apache (connect)": 55,
    "apache (consumers)": 200,
    "apache (core)": 112,
    "apache (groups)": 160,
    "apache (joins)": 85,
    "apache (kerberos)": 72,
    "apache (mirror)": 6,
    "apache (queries)": 330,
    "apache (quorum)": 50,
    "apache (secured)": 37,
    "apache (server)": 112,
    "apache (shares)": 108,
    "apache (stores)": 50,
    "apache (streams)": 42,
    "apache (tasks)": 50,
    "apache (tools)": 485,
    "apache (workers)": 64,
    "confluent (classic)": 175,
    "confluent (consumer)": 20,
    "confluent_secured": 31,
    "kafka-python": 65,
    "kgo": 450,
    "kgo_secured": 450,
    "librdkafka (classic)": 110,
    "librdkafka (classic, noautocreate)": 4,
    "librdkafka (consumer)": 95,
    "librdkafka (consumer, noautocreate)": 4,
    "librdkafka_secured": 14,
    "sarama": 88,
    "sarama_secured": 88,
    "trogdor": 6,
    "trogdor_secured": 6,
}


@dataclass(frozen=True)
class Outcome:
    """One test's end."""

    name: str
    state: str
    seconds: float
    #: what it said when it did not pass
    said: str = ""
    #: it passed when it ran again, alone
    again: bool = False
    #: the commit of the node, or Apache's version
    of: str = ""


@dataclass(frozen=True)
class Expectation:
    """What is known not to pass, or only when nothing else runs."""

    #: as an outcome's; empty if it must pass
    state: str
    reason: str


@dataclass(frozen=True)
class Report:
    """One run of a suite."""

    suite: str
    outcomes: Sequence[Outcome]
    expected: Mapping[str, Expectation]

    @property
    def surprises(self) -> list[Outcome]:
        """What did not pass and is not listed."""
        return [one for one in self.outcomes if one.state != PASSED and not self._listed(one)]

    @property
    def needless(self) -> list[str]:
        """What is listed and passed."""
        ran = [one for one in self.outcomes if one.state == PASSED and one.name in self.expected]
        return [one.name for one in ran if self.expected[one.name].state]

    @property
    def vanished(self) -> list[str]:
        """What is listed and did not run; of interest when the whole suite ran."""
        ran = {one.name for one in self.outcomes}
        return [name for name in self.expected if name not in ran]

    def count(self, state: str) -> int:
        return sum(one.state == state for one in self.outcomes)

    def text(self) -> str:
        lines = [
            f"{self.suite}: {self.count(PASSED)} passed, {self.count(FAILED)} failed, {self.count(SKIPPED)} skipped"
        ]
        lines += [f"  unexpected: {one.name} {one.state}: {one.said}" for one in self.surprises]
        lines += [f"  passed when it ran alone: {one.name}: {one.said}" for one in self.outcomes if one.again]
        lines += [f"  passed, though listed: {name}" for name in self.needless]
        return "\n".join(lines)

    def _listed(self, outcome: Outcome) -> bool:
        known = self.expected.get(outcome.name)
        return known is not None and known.state == outcome.state


def expectations(text: str) -> dict[str, Expectation]:
    """Parse a list: `NAME fails|skips|times REASON` a line; `#` begins a comment."""
    found: dict[str, Expectation] = {}
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        name, state, reason = [*line.split(maxsplit=2), "", ""][:3]
        if state not in _STATES or not reason:
            raise ValueError(f"not `NAME fails|skips|times REASON`: {line!r}")
        if name in found:
            raise ValueError(f"{name} is listed twice")
        found[name] = Expectation(_STATES[state], reason)
    return found


def expected_of(suite: str) -> dict[str, Expectation]:
    """The list of a suite; of `librdkafka (consumer, ...)` that of librdkafka and then that of librdkafka-consumer."""
    first, *how = re.findall(r"\w+", suite)
    lists = [EXPECTED / f"{first}.txt", *(EXPECTED / f"{first}-{one}.txt" for one in how)]
    return {name: known for path in lists if path.exists() for name, known in expectations(path.read_text()).items()}


def cited_of(suite: str) -> dict[str, Expectation]:
    """What of a suite's list is said to fail against Apache Kafka, too."""
    return {name: known for name, known in expected_of(suite).items() if known.reason.endswith(APACHE_TOO)}


def judged(
    suite: str,
    outcomes: Iterable[Outcome],
    expected: Mapping[str, Expectation],
    again: Callable[[Outcome], Outcome],
    *,
    least: int = 1,
) -> Report:
    """The report of a run, each surprise having had its second chance by `again`.

    A run with fewer outcomes than `least` has one more, a failed one that says so.
    """
    ran = list(outcomes)
    if len(ran) < least:
        why = f"{len(ran)} tests told how they ended, expected at least {least}: does the suite start?"
        return Report(suite, [*ran, Outcome("the-whole-suite", FAILED, 0, why)], expected)
    report = Report(suite, ran, expected)
    for one in report.surprises:
        if one.state == FAILED:
            second = again(one)
            if second.state == PASSED:
                ran[ran.index(one)] = replace(second, again=True, said=one.said)
    return Report(suite, ran, expected)
