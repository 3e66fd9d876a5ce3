"""`make suites`: every suite whole, each on a node of its own, and the table of what passed in SUITES.md.

python -m tests.interop.suite [--server apache] [--only kgo|sarama|trogdor|librdkafka|confluent] [NUMBER...]

A suite's last run against our node is kept beside the caches, so that running one, or some numbers of one, renews its
part of the table.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from tests.interop import server as servers
from tests.interop import toolchain
from tests.interop.server import SINGLE_NODE, Server
from tests.interop.suite import confluent, kgo, librdkafka, sarama, trogdor
from tests.interop.suite.outcome import FAILED, PASSED, SKIPPED, Outcome, Report, expected_of

TABLE = Path(__file__).resolve().parent / "SUITES.md"
LAST = toolchain.CACHE / "suites"


@contextmanager
def serving(kind: str, settings: Mapping[str, str]) -> Iterator[str]:
    """A node for one suite; gives its address."""
    with tempfile.TemporaryDirectory(prefix="ottla-suite-") as directory:
        server = Server(servers.kind(kind), Path(directory), settings, base=SINGLE_NODE)
        server.start()
        try:
            yield server.bootstrap
        finally:
            server.stop()


def reports(kind: str, only: str | None, numbers: list[str], show: Callable[[str], None]) -> Iterator[Report]:
    """Run what was asked for, one suite after another."""
    if only in (None, "kgo"):
        show("franz-go's tests")
        with serving(kind, kgo.BROKER_SETTINGS) as bootstrap:
            yield kgo.run(bootstrap, kgo.RECORDS_LONG)
    if only in (None, "sarama"):
        show("sarama's tests")
        with serving(kind, sarama.BROKER_SETTINGS) as bootstrap:
            yield sarama.run(bootstrap)
    if only in (None, "trogdor"):
        show("Trogdor's workloads")
        with serving(kind, {}) as bootstrap:
            yield trogdor.run(bootstrap)
    for protocol in ("classic", "consumer"):
        if only in (None, "librdkafka"):
            show(f"librdkafka's tests, {protocol} protocol")
            with serving(kind, librdkafka.BROKER_SETTINGS) as bootstrap:
                yield librdkafka.run(bootstrap, protocol, numbers)
        if only in (None, "librdkafka") and not numbers:
            show(f"librdkafka's tests without auto-creation, {protocol} protocol")
            with serving(kind, librdkafka.NO_AUTO_CREATE_SETTINGS) as bootstrap:
                yield librdkafka.run(bootstrap, protocol, librdkafka.NO_AUTO_CREATE, scenario="noautocreate")
    for protocol in ("classic", "consumer"):
        if only in (None, "confluent"):
            show(f"confluent-kafka-python's tests, {protocol} protocol")
            with serving(kind, confluent.BROKER_SETTINGS[protocol]) as bootstrap:
                yield confluent.run(bootstrap, protocol)


def keep(report: Report, numbers: Sequence[str] = ()) -> None:
    """Remember the run of a whole suite, or of some numbers what came of these."""
    LAST.mkdir(parents=True, exist_ok=True)
    outcomes = list(report.outcomes)
    if numbers:
        last = next((each.outcomes for each in kept() if each.suite == report.suite), ())
        outcomes = sorted([one for one in last if one.name[:4] not in numbers] + outcomes, key=lambda one: one.name)
    kept_now = {"suite": report.suite, "outcomes": [asdict(one) for one in outcomes]}
    (LAST / f"{report.suite}.json").write_text(json.dumps(kept_now, indent=1))


def kept() -> list[Report]:
    """The last run of each suite."""
    reports = []
    for path in sorted(LAST.glob("*.json")):
        last = json.loads(path.read_text())
        suite = last["suite"]
        reports.append(Report(suite, [Outcome(**one) for one in last["outcomes"]], expected_of(suite)))
    return reports


def table(ran: list[Report]) -> str:
    """SUITES.md."""
    lines = [
        "# Suites that were not written here",
        "",
        "Written by `make suites`. What does not pass is in expected/, each with its reason.",
        "",
        "| suite | passed | failed | skipped | seconds of tests |",
        "|---|---|---|---|---|",
    ]
    for one in ran:
        counts = " | ".join(str(one.count(state)) for state in (PASSED, FAILED, SKIPPED))
        lines.append(f"| {one.suite} | {counts} | {sum(each.seconds for each in one.outcomes):.0f} |")
    lines += ["", "## What did not pass", ""]
    for one in ran:
        for each in one.outcomes:
            if each.state != PASSED:
                known = one.expected.get(each.name)
                lines.append(f"- {one.suite}: {each.name} {each.state}: {known.reason if known else each.said}")
    return "\n".join([*lines, ""])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.interop.suite")
    parser.add_argument("--server", choices=("ottla", "apache"), default="ottla")
    parser.add_argument("--only", choices=("kgo", "sarama", "trogdor", "librdkafka", "confluent"))
    parser.add_argument("numbers", nargs="*", help="librdkafka's test numbers; all when none is given")
    given = parser.parse_args()
    surprises = False
    for report in reports(given.server, given.only, given.numbers, lambda line: print(f"== {line}", flush=True)):
        print(report.text(), flush=True)
        surprises = surprises or bool(report.surprises)
        if given.server == "ottla":
            keep(report, given.numbers)
            TABLE.write_text(table(kept()))
    return 1 if surprises else 0


if __name__ == "__main__":
    sys.exit(main())
