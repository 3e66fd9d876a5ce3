"""`make suites`: every suite whole, each on a node of its own, and the table of what passed in SUITES.md.

python -m tests.interop.suite [--server apache] [--only SUITE] [NUMBER...]
python -m tests.interop.suite --cited [--only librdkafka|confluent]

With `--cited` those tests run against Apache Kafka of which a reason in expected/ says that they fail against it, too.

A suite's last run is kept in results/, one file for each server and suite, so that running one, or some numbers of one,
renews its part of the table. Each outcome names the commit of the node (or Apache's version) that it is of.
"""

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path

from tests.evidence import commit
from tests.interop import made, toolchain
from tests.interop import server as servers
from tests.interop.server import SINGLE_NODE, Server
from tests.interop.suite import aiokafka, apache, confluent, kafka_python, kgo, librdkafka, sarama, secured, trogdor
from tests.interop.suite.outcome import FAILED, LEAST, PASSED, SKIPPED, Outcome, Report, cited_of, expected_of

TABLE = Path(__file__).resolve().parent / "SUITES.md"
#: The suites, and those of them that run with TLS and SASL as well.
_TWICE = ("kgo", "sarama", "trogdor", "librdkafka", "confluent")
_PLAIN = (*_TWICE, kafka_python.SUITE, aiokafka.SUITE, apache.SUITE)
_SECURED = tuple(f"{each}_secured" for each in _TWICE)
_APACHE = "4.3.1"
#: The runs against our node, and those against Apache Kafka that reasons in expected/ cite.
RESULTS = Path(__file__).resolve().parent / "results"


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
    if only in (None, kafka_python.SUITE):
        show("kafka-python's tests")
        yield kafka_python.run(kind)
    if only in (None, aiokafka.SUITE):
        show("aiokafka's tests")
        yield aiokafka.run(kind)
    for part in apache.PARTS:
        if only in (None, apache.SUITE) and (not numbers or part in numbers):
            show(f"Apache Kafka's own integration tests, {part}")
            yield apache.run(kind, part)
    for protocol in ("classic", "consumer"):
        if only in (None, "librdkafka"):
            show(f"librdkafka's tests, {protocol} protocol")
            with serving(kind, librdkafka.WHOLE_SETTINGS) as bootstrap:
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
    yield from _secured_reports(kind, only, numbers, show)


def _secured_reports(kind: str, only: str | None, numbers: list[str], show: Callable[[str], None]) -> Iterator[Report]:
    if only in (None, "kgo_secured"):
        show("franz-go's tests, with TLS and SCRAM")
        with secured.serving(kind, kgo.BROKER_SETTINGS) as server:
            yield kgo.run(server.at("SSL"), kgo.RECORDS_SHORT, secured=secured.kgo_settings(server))
    if only in (None, "librdkafka_secured"):
        show("some of librdkafka's tests, with TLS, SCRAM and OIDC")
        with secured.serving(kind, librdkafka.WHOLE_SETTINGS) as server:
            yield librdkafka.run_secured(secured.librdkafka_brokers(server), numbers or librdkafka.SECURED)
    if only in (None, "sarama_secured"):
        show("sarama's tests, with TLS and PLAIN")
        with secured.serving(kind, sarama.SECURED_SETTINGS, {"SASL_SSL": f"127.0.0.1:{sarama.PORTS[0]}"}) as server:
            yield sarama.run(server.at("SASL_SSL"), secured=secured.sarama_settings(server))
    if only in (None, "trogdor_secured"):
        show("Trogdor's workloads, with TLS and SCRAM")
        with secured.serving(kind, {}) as server:
            yield trogdor.run(server.at("SASL_SSL"), secured=secured.java_settings(server))
    if only in (None, "confluent_secured"):
        show("confluent-kafka-python's tests that want SASL, and some over SASL_SSL")
        with secured.serving(kind, confluent.BROKER_SETTINGS["classic"]) as server:
            yield confluent.run_secured(secured.confluent_clusters(server))


def cited_reports(only: str | None) -> Iterator[Report]:
    """Run against Apache Kafka what reasons say of it."""
    for protocol, (scenario, settings) in product(
        ("classic", "consumer"),
        (("default", librdkafka.WHOLE_SETTINGS), ("noautocreate", librdkafka.NO_AUTO_CREATE_SETTINGS)),
    ):
        numbers = sorted({name[:4] for name in cited_of(librdkafka.suite_name(protocol, scenario))})
        if scenario != "default":
            numbers = [number for number in numbers if number in librdkafka.NO_AUTO_CREATE]
        if only in (None, "librdkafka") and numbers:
            with serving("apache", settings) as bootstrap:
                yield librdkafka.run(bootstrap, protocol, numbers, scenario)
    numbers = sorted({name[:4] for name in cited_of("librdkafka_secured")})
    if only in (None, "librdkafka_secured") and numbers:
        with secured.serving("apache", librdkafka.WHOLE_SETTINGS) as server:
            yield librdkafka.run_secured(secured.librdkafka_brokers(server), numbers)
    for protocol in ("classic", "consumer"):
        # What the suite's list says is of both protocols, and no test of share groups runs with the second.
        names = cited_of(f"confluent ({protocol})") if protocol == "classic" else {}
        if only in (None, "confluent") and names:
            with serving("apache", confluent.BROKER_SETTINGS[protocol]) as bootstrap:
                yield confluent.run(bootstrap, protocol, sorted(names))


def keep(
    report: Report, numbers: Sequence[str] = (), *, server: str = "ottla", of: str = "", some: bool = False
) -> None:
    """Remember the run of a whole suite, or of some numbers or `some` tests what came of these.

    `of` says of which server's commit.
    """
    RESULTS.mkdir(parents=True, exist_ok=True)
    here = f"{made.HERE.parents[1]}/"
    outcomes = [replace(one, of=of, said=one.said.replace(here, "")) for one in report.outcomes]
    if numbers or some:
        ran = {one.name for one in outcomes}
        last = next((each.outcomes for each in kept(server) if each.suite == report.suite), ())
        others = [one for one in last if one.name[:4] not in numbers and one.name not in ran]
        outcomes = sorted(others + outcomes, key=lambda one: one.name)
    kept_now = {"suite": report.suite, "release": release(report.suite), "outcomes": [asdict(one) for one in outcomes]}
    (RESULTS / f"{server} {report.suite}.json").write_text(json.dumps(kept_now, indent=1) + "\n")


def kept(server: str = "ottla") -> list[Report]:
    """The last run of each suite."""
    reports = []
    for path in sorted(RESULTS.glob(f"{server} *.json")):
        last = json.loads(path.read_text())
        suite = last["suite"]
        reports.append(Report(suite, [Outcome(**one) for one in last["outcomes"]], expected_of(suite)))
    return reports


def release(suite: str) -> str:
    """Which release of a suite is run."""
    modules = (made.HERE / "go" / "go.mod").read_text().split()
    releases = {
        "kgo": modules[modules.index("github.com/twmb/franz-go") + 1],
        "sarama": modules[modules.index("github.com/IBM/sarama") + 1],
        "trogdor": _APACHE,
        "librdkafka": toolchain.LIBRDKAFKA_PACKAGE,
        "confluent": toolchain.CONFLUENT_COMMIT[:9],
        kafka_python.SUITE: toolchain.KAFKA_PYTHON,
        aiokafka.SUITE: toolchain.AIOKAFKA_COMMIT[:9],
        apache.SUITE: _APACHE,
    }
    return releases[re.split("[ _]", suite)[0]]


def table(ran: list[Report]) -> str:
    """SUITES.md."""
    lines = [
        "# Suites that were not written here",
        "",
        "Written by `make suites`. What does not pass is in expected/, each with its reason.",
        "",
        "`alone` counts passed tests that failed first, and passed when they ran again with nothing beside them.",
        "",
        "A run with fewer outcomes than `at least` fails.",
        "",
        "| suite | its release | the node's commits | passed | alone | failed | skipped | at least | seconds |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for one in ran:
        alone = sum(each.again for each in one.outcomes)
        counts = " | ".join(map(str, (one.count(PASSED), alone, one.count(FAILED), one.count(SKIPPED))))
        nodes = ", ".join(sorted({each.of for each in one.outcomes}))
        seconds = sum(each.seconds for each in one.outcomes)
        least = LEAST[one.suite]
        lines.append(f"| {one.suite} | {release(one.suite)} | {nodes} | {counts} | {least} | {seconds:.0f} |")
    if not_run := sorted(LEAST.keys() - {one.suite for one in ran}):
        lines += ["", f"Without a run whose commit is known: {', '.join(not_run)}."]
    again = [(one.suite, each) for one in ran for each in one.outcomes if each.again]
    lines += ["", "## What passed only alone", ""]
    lines += [f"- {suite}: {each.name}: {each.said}" for suite, each in again] or ["Nothing."]
    lines += ["", "## What did not pass", ""]
    for one in ran:
        for each in one.outcomes:
            if each.state != PASSED:
                known = one.expected.get(each.name)
                why = each.said if known is None else known.reason if known.state else f"{known.reason}: {each.said}"
                lines.append(f"- {one.suite}: {each.name} {each.state}: {why}")
    return "\n".join([*lines, ""])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.interop.suite")
    parser.add_argument("--server", choices=("ottla", "apache"), default="ottla")
    parser.add_argument("--only", choices=(*_PLAIN, *_SECURED))
    parser.add_argument("--cited", action="store_true", help="against Apache Kafka, what reasons say of it")
    parser.add_argument(
        "numbers", nargs="*", help="librdkafka's test numbers or apache's parts; all when none is given"
    )
    given = parser.parse_args()
    if given.cited:
        for report in cited_reports(given.only):
            print(report.text(), flush=True)
            keep(report, server="apache", of=_APACHE, some=True)
        return 0
    surprises = False
    for report in reports(given.server, given.only, given.numbers, lambda line: print(f"== {line}", flush=True)):
        print(report.text(), flush=True)
        # The other scenario runs some of the numbers.
        gone = [] if given.numbers or "noautocreate" in report.suite else report.vanished
        for name in gone:
            print(f"  listed, but there is no such test any more: {name}", flush=True)
        surprises = surprises or bool(report.surprises or gone)
        of = commit() if given.server == "ottla" else _APACHE
        keep(report, given.numbers, server=given.server, of=of)
        if given.server == "ottla":
            TABLE.write_text(table(kept()))
    return 1 if surprises else 0


if __name__ == "__main__":
    sys.exit(main())
