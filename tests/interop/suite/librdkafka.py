"""librdkafka's tests that need a broker, from the sources in the npm package @confluentinc/kafka-javascript.

One process a test number, so that one that aborts or hangs takes no other with it; several at a time.
The tests that need no broker (their own mock, parsing, settings) are left out: they say nothing about the node.
"""

import os
import re
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.interop import toolchain
from tests.interop.suite.outcome import FAILED, LEAST, PASSED, SKIPPED, Outcome, Report, expected_of, judged
from tests.interop.suite.process import run_whole

#: The short form: each in about ten seconds or less, and together one of each kind.
SHORT = (
    *("0001", "0002", "0003", "0005", "0007", "0008", "0011", "0012", "0013", "0014", "0015", "0016", "0017", "0019"),
    *("0021", "0022", "0029", "0031", "0034", "0035", "0036", "0038", "0039", "0040", "0041", "0042", "0044", "0048"),
    *("0053", "0054", "0056", "0057", "0060", "0063", "0064", "0065", "0067", "0070", "0073", "0082", "0083", "0085"),
    *("0086", "0090", "0099", "0110", "0112", "0130", "0140"),
)
#: The short form of the consumer protocol of KIP-848: what joins groups.
SHORT_CONSUMER = (
    "0014",
    "0019",
    "0022",
    "0029",
    "0040",
    "0042",
    "0056",
    "0060",
    "0064",
    "0083",
    "0099",
    "0130",
    "0140",
)

#: With TLS and a sign-in: those that are for these, and some of each kind.
SECURED = (
    *("0001", "0005", "0012", "0017", "0019", "0022", "0031", "0040", "0097", "0103", "0126", "0130", "0135", "0142"),
)
#: The same, without those that wait for sessions to end.
SECURED_SHORT = ("0001", "0012", "0019", "0022", "0040", "0135")
#: Those of them that want TLS without SASL, and a provider of tokens.
TLS_ALONE = frozenset({"0097"})
OIDC = frozenset({"0126"})

#: The tests of share groups.
SHARE = frozenset(str(number).zfill(4) for number in range(170, 191))

PARALLEL = 4
#: Above the longest test's own limit, which is PATIENCE times what it says (0113: 600 s, 0150: 360 s).
TIMEOUT_S = 1_500
#: librdkafka's own limits are for a quiet machine.
PATIENCE = 2

#: What librdkafka's own cluster is started with, beside defaults.
BROKER_SETTINGS = {"num.partitions": "4", "group.share.min.record.lock.duration.ms": "1000"}

#: For whole runs: what it denies by ACL is denied, and who is named by no ACL may do all.
AUTHORIZER_SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:admin",
    "allow.everyone.if.no.acl.found": "true",
}
WHOLE_SETTINGS = {**BROKER_SETTINGS, **AUTHORIZER_SETTINGS}

#: The tests of its other scenario: topics are not made by being asked for.
NO_AUTO_CREATE = ("0045", "0107", "0111")
NO_AUTO_CREATE_SETTINGS = {**BROKER_SETTINGS, "auto.create.topics.enable": "false"}

_STATES = {"PASSED": PASSED, "FAILED": FAILED, "RUNNING": FAILED, "SKIPPED": SKIPPED}
_ROW = re.compile(r"^\| (\d{4}_\w+) +\| +(\w+) \| +([0-9.]+)s \|(.*)$", re.MULTILINE)
_COLOR = re.compile(r"\x1b\[\d+m")
_FAILURE = re.compile(r"^### Test \"(\w*)[^\n]* failed at [^\n]*\n([^\n]*)", re.MULTILINE)
_PASSED = re.compile(r"/ *([0-9.]+)s\] =+ Test (\d{4}_\w+) PASSED =+$", re.MULTILINE)
_TABLE = re.compile(r"_TEST\((\d{4})_(\w+),\s*([^,)]+)")


@dataclass(frozen=True)
class Broker:
    """Where the tests find their broker, and how they use it."""

    bootstrap: str
    #: of groups: classic or consumer
    protocol: str
    #: which of librdkafka's cluster settings it has: default or noautocreate
    scenario: str = "default"
    #: more of test.conf: how a client shows who it is
    lines: Mapping[str, str] = field(default_factory=dict)
    #: more of the environment
    environment: Mapping[str, str] = field(default_factory=dict)
    #: where Kafka's own tools find the broker, if elsewhere
    tools: str = ""


def run_secured(broker_of: Callable[[str], Broker], numbers: Sequence[str] = SECURED) -> Report:
    """Run the tests of these numbers, each with the broker that `broker_of` its number gives."""
    toolchain.librdkafka_tests()
    with ThreadPoolExecutor(PARALLEL) as pool:
        ran = list(pool.map(lambda number: _run(broker_of(number), number), numbers))
    suite = "librdkafka_secured"
    outcomes = [one for some in ran for one in some]
    return judged(
        suite, outcomes, expected_of(suite), lambda one: _alone(broker_of(one.name[:4]), one), least=len(numbers)
    )


def run(bootstrap: str, protocol: str, numbers: Sequence[str] = (), scenario: str = "default") -> Report:
    """Run the tests of these numbers, or all, with groups of the classic or the consumer protocol."""
    toolchain.librdkafka_tests()
    broker = Broker(bootstrap, protocol, scenario)
    with ThreadPoolExecutor(PARALLEL) as pool:
        ran = list(pool.map(lambda number: _run(broker, number), numbers or all_numbers(protocol)))
    suite = suite_name(protocol, scenario)
    outcomes = [one for some in ran for one in some]
    least = len(numbers) if numbers else LEAST[suite]
    return judged(suite, outcomes, expected_of(suite), lambda one: _alone(broker, one), least=least)


def suite_name(protocol: str, scenario: str = "default") -> str:
    """How a run is called in the table."""
    return f"librdkafka ({protocol}{'' if scenario == 'default' else ', ' + scenario})"


def all_numbers(protocol: str) -> list[str]:
    """The numbers of all tests that need a broker. Those of share groups know no other protocol: they run once."""
    numbers = {number for number, _, flags in _table() if not _left_out(flags)}
    return sorted(number for number in numbers if protocol == "classic" or number not in SHARE)


def _left_out(flags: str) -> bool:
    return any(flag in flags for flag in ("LOCAL", "MANUAL")) or flags.strip() == "TEST_F_KNOWN_ISSUE"


def _table() -> list[tuple[str, str, str]]:
    """number, name and flags of each test"""
    source = (toolchain.librdkafka_tests() / "test.c").read_text()
    return _TABLE.findall(source[source.index("struct test tests[]") :])


def _alone(broker: Broker, outcome: Outcome) -> Outcome:
    found = [one for one in _run(broker, outcome.name[:4]) if one.name == outcome.name]
    return found[0] if found else outcome


def _run(broker: Broker, number: str) -> list[Outcome]:
    tests = toolchain.librdkafka_tests()
    with tempfile.TemporaryDirectory(prefix="ottla-librdkafka-") as directory:
        settings = Path(directory) / "test.conf"
        settings.write_text(
            f"metadata.broker.list={broker.bootstrap}\n"
            f"test.timeout.multiplier={PATIENCE}\n"
            f"test.topic.prefix=librdkafka{number}\n"
            "test.topic.random=true\n" + "".join(f"{name}={value}\n" for name, value in broker.lines.items())
        )
        home = toolchain.kafka_home()
        environment = {
            **os.environ,
            **broker.environment,
            "LD_LIBRARY_PATH": f"{tests.parent}/src:{tests.parent}/src-cpp",
            "RDKAFKA_TEST_CONF": str(settings),
            "TESTS": number,
            "TEST_KAFKA_VERSION": "4.3.1",
            "TEST_CONSUMER_GROUP_PROTOCOL": broker.protocol,
            "TEST_SCENARIO": broker.scenario,
            "KAFKA_PATH": str(home),
            "BROKERS": broker.tools or broker.bootstrap,
        }
        environment.pop("CI", None)  # there its limits become shorter
        began = time.monotonic()
        text = _said(["./test-runner", "-L", "-p1"], tests, environment)
    outcomes = parse(number, text, time.monotonic() - began)
    for one in outcomes:
        print(f"  {one.state} {one.name} {one.seconds:.0f} s {one.said}", flush=True)
    return outcomes


def _said(command: list[str], directory: Path, environment: dict[str, str]) -> str:
    """The output of a test process."""
    with tempfile.TemporaryFile() as output:
        run_whole(command, directory, environment, TIMEOUT_S, output)
        output.seek(0)
        return output.read().decode(errors="replace")


def parse(number: str, text: str, seconds: float) -> list[Outcome]:
    """The outcomes of one test number: its summary's rows, or what it said as it went when it ended without one."""
    text = _COLOR.sub("", text)
    outcomes = [
        Outcome(name, _STATES[state], float(took), said.strip())
        for name, state, took, said in _ROW.findall(text)
        if "negative test flags" not in said  # needs no broker
        if "requires test scenario" not in said
        if not (state == "SKIPPED" and not said.strip())  # of another scenario
    ]
    found = _FAILURE.findall(text)
    failures = [said.strip() for _, said in found]
    failed = [one for one in outcomes if one.state == FAILED]
    if failures and not failed:
        # It ended before its summary: what it said as it went.
        passed = [Outcome(name, PASSED, float(took)) for took, name in _PASSED.findall(text)]
        named = {name: said.strip() for name, said in reversed(found) if name} or {_only(number): failures[0]}
        return [*(outcomes or passed), *(Outcome(name, FAILED, seconds, said) for name, said in sorted(named.items()))]
    if not outcomes and "================= Running test" in text:
        return [Outcome(_only(number), FAILED, seconds, f"no summary; its last words: {text[-300:]!r}")]
    if not _ROW.search(text):
        return [Outcome(number, FAILED, seconds, f"the program did not run; its last words: {text[-300:]!r}")]
    return [replace(one, said=failures[0]) if one in failed and failures else one for one in outcomes]


def _only(number: str) -> str:
    """The test of a number that needs a broker; of several, the first."""
    return next(f"{which}_{name}" for which, name, flags in _table() if which == number and not _left_out(flags))
