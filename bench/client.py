"""`python -m bench.client`: our client beside confluent-kafka and aiokafka, on one node, in one run.

Each work of each client is a separate process. The clients alternate within a round, and the order rotates from round
to round, so that other load affects all. Exit code 1 if something failed, never because of a figure.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench import RESULTS, SCRATCH
from bench.client_work import PARTITIONS
from bench.report import facts, number
from bench.system import System, settle
from ottla.client import Admin, ErrorCode, KafkaError

ROUNDS = 5
NAME = "client"
QUICK_NOTE = "From a quick run: tiny counts. These figures say only that everything runs."
Figures = dict[str, float]


@dataclass(frozen=True)
class Size:
    """The number of records of each work."""

    records: int
    #: for the slow ones (aiokafka, and dicts of JSON): enough for a second
    slow: int
    table: int
    memory: int


FULL = Size(1_000_000, 100_000, 3_000_000, 10_000_000)
#: More than a fetch returns of each partition.
QUICK = Size(200_000, 25_000, 200_000, 200_000)


@dataclass(frozen=True)
class Run:
    """A work of one client."""

    client: str
    work: str
    title: str
    #: The count of `Size` that it uses.
    size: str = "records"


@dataclass(frozen=True)
class Row:
    """A row of the table: a work of several clients, and the goals of ours relative to each."""

    title: str
    #: The topic that it writes or reads.
    topic: str
    reads: bool
    runs: Sequence[Run]
    #: Goals: our run (the first of the row, unless named) must be this many times as fast as another run.
    goals: Mapping[str, float]
    #: The goal in records per second.
    least: float = 0.0


ROWS = (
    Row(
        "produce 100 B records one at a time",
        "one-by-one",
        False,
        (
            Run("ottla", "produce", "`Producer.send`"),
            Run("ottla", "produce_async", "`AsyncProducer.send`"),
            Run("confluent", "produce", "confluent-kafka, with delivery reports"),
            Run("confluent", "produce_unreported", "confluent-kafka, without"),
            Run("aiokafka", "produce", "aiokafka", "slow"),
        ),
        {"confluent_produce": 1, "confluent_produce_unreported": 1, "aiokafka_produce": 3},
    ),
    Row(
        "produce 100 B values from an Arrow table",
        "table",
        False,
        (Run("ottla", "send_table", "`Producer.send_table`", "table"),),
        {"confluent_produce": 5, "confluent_produce_unreported": 5},
        2_000_000,
    ),
    Row(
        "consume 100 B records as objects",
        "table",
        True,
        (
            Run("ottla", "consume", "`Consumer.poll`"),
            Run("ottla", "iterate", "`for record in consumer`"),
            Run("confluent", "poll", "confluent-kafka, `poll`"),
            Run("confluent", "consume", "confluent-kafka, `consume(10000)`"),
            Run("aiokafka", "consume", "aiokafka, `getmany`", "slow"),
        ),
        {"confluent_poll": 1, "confluent_consume": 1, "aiokafka_consume": 3},
    ),
    Row(
        "consume 100 B values to Arrow",
        "table",
        True,
        (Run("ottla", "poll_table", "`Consumer.poll_table`", "table"),),
        {"confluent_poll": 5, "confluent_consume": 5},
        3_000_000,
    ),
    Row(
        "JSON values to typed columns",
        "json",
        True,
        (
            Run("ottla", "json", "`Consumer.poll_table(value_serde=serde.json(...))`"),
            Run("confluent", "json", "confluent-kafka and `json.loads` (dicts)", "slow"),
            Run("confluent", "json_table", "the same, to Arrow columns", "slow"),
        ),
        {"confluent_json": 5, "confluent_json_table": 6},
    ),
)


def main() -> int:
    """All rows in rounds, then the table."""
    options = _options()
    size = QUICK if options.quick else FULL
    SCRATCH.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    found: dict[str, list[Figures]] = {}
    noted = facts()
    with tempfile.TemporaryDirectory(prefix="client-", dir=SCRATCH, ignore_cleanup_errors=True) as directory:
        system = System("ottla", Path(directory), options.quick)
        try:
            system.start()
            for number_of_round in range(1, (options.rounds or (1 if options.quick else ROUNDS)) + 1):
                _round(system, number_of_round, size, found)
                _forget(system)
            found["ottla_memory"] = [_memory(system, size)]
        finally:
            system.stop()
    noted["took_s"] = round(time.monotonic() - began, 1)
    out = options.out or (SCRATCH if options.quick else RESULTS)
    out.mkdir(parents=True, exist_ok=True)
    text = report(found, noted, quick=options.quick)
    (out / f"{NAME}.md").write_text(text)
    (out / f"{NAME}.json").write_text(json.dumps({"facts": noted, "rounds": found}, indent=1) + "\n")
    print(text)
    return 0


def _round(system: System, number_of_round: int, size: Size, found: dict[str, list[Figures]]) -> None:
    names = {row.topic: f"{row.topic}-{number_of_round}" for row in ROWS}
    # The records to read were written before, all by the same client.
    made = _topic(system, names["json"])
    _work(system, "ottla", "send_json", made, size.records)
    for row in ROWS:
        turn = number_of_round % len(row.runs)
        for run in (*row.runs[turn:], *row.runs[:turn]):
            records = getattr(size, run.size)
            name = (
                names[row.topic] if row.reads or row.topic == "table" else f"{run.client}-{run.work}-{number_of_round}"
            )
            topic = _topic(system, name)
            settle()
            figures = _work(system, run.client, run.work, topic, records)
            found.setdefault(f"{run.client}_{run.work}", []).append(figures)
            rate = figures["records"] / figures["seconds"]
            print(
                f"round {number_of_round}  {run.client:9}  {run.work:18}  {rate:12,.0f} records/s  "
                f"{figures['cpu_seconds'] * 1e6 / figures['records']:6.2f} us of CPU each",
                file=sys.stderr,
                flush=True,
            )


def _topic(system: System, name: str) -> str:
    """An empty topic: `System.topic` writes into each partition to see that it serves."""
    with Admin(system.bootstrap) as admin:
        try:
            admin.create_topic(name, PARTITIONS)
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
    return name


def _forget(system: System) -> None:
    """Delete a round's topics, which would become many gigabytes."""
    with Admin(system.bootstrap) as admin:
        names = [topic.name for topic in admin.list_topics()]
        admin.delete_topics(names).check()


def _work(system: System, client: str, work: str, topic: str, records: int) -> Figures:
    said = system.program("bench.client_work", work, client, system.bootstrap, topic, str(records))
    figures: Figures = json.loads(said.splitlines()[-1])
    return figures


def _memory(system: System, size: Size) -> Figures:
    topic = _topic(system, "memory")
    written = 0
    while written < size.memory:
        _work(system, "ottla", "send_table", topic, min(size.table, size.memory - written))
        written += size.table
    return _work(system, "ottla", "memory", topic, size.memory)


# ---------------------------------------------------------------------------------------------------- the table


def report(found: Mapping[str, Sequence[Figures]], noted: Mapping[str, Any], *, quick: bool) -> str:
    """The table as Markdown."""
    lines = [
        "# Our client beside confluent-kafka and aiokafka",
        "",
        "Written by `make bench` (`python -m bench.client`). One node in a process of its own, each client's work in",
        "another; medians over the rounds, the least and the most in brackets. CPU: its own, us a record.",
        "",
        *((QUICK_NOTE, "") if quick else ()),
        "| work | with | records/s | CPU | beside ours |",
        "|---|---|---|---|---|",
    ]
    for row in ROWS:
        ours = _rate(found, f"{row.runs[0].client}_{row.runs[0].work}")
        for place, run in enumerate(row.runs):
            rates = _rates(found, f"{run.client}_{run.work}")
            middle = median(rates)
            cpu = median(one["cpu_seconds"] * 1e6 / one["records"] for one in found[f"{run.client}_{run.work}"])
            beside = "" if not place else f"{ours / middle:.1f}x"
            lines.append(
                f"| {'' if place else row.title} | {run.title} | {number(middle)} ({number(min(rates))} to "
                f"{number(max(rates))}) | {cpu:.2f} | {beside} |"
            )
    lines += ["", "| goal | wanted | is | |", "|---|---|---|---|"]
    for row in ROWS:
        ours = _rate(found, f"{row.runs[0].client}_{row.runs[0].work}")
        if row.least:
            lines.append(_goal(row.title, f"{number(row.least)} records/s", number(ours), ours >= row.least))
        for name, times in row.goals.items():
            ratio = ours / _rate(found, name)
            lines.append(
                _goal(f"{row.title}, {name.replace('_', ' ')}", f"{times:g}x", f"{ratio:.2f}x", ratio >= times)
            )
    memory = found["ottla_memory"][0]
    read_mib, took_mib = (memory[name] / (1 << 20) for name in ("read_bytes", "memory_bytes"))
    hardware = f"{noted['processor']}, {noted['cores']} cores, {noted['memory_gib']} GiB"
    load = f"load average at the start {noted['load_average']:.2f}"
    lines += [
        "",
        f"Memory: {read_mib:,.0f} MiB of values were read as columns in {took_mib:,.0f} MiB more than before.",
        "",
        f"- Machine: {hardware}, {noted['kernel']}, {noted['filesystem']}; {load}.",
        f"- Versions: {', '.join(f'{name} {version}' for name, version in noted['versions'].items())}.",
        f"- Commit {noted['commit']}, {noted['date']}, {noted['took_s'] / 60:.1f} minutes.",
        "",
    ]
    return "\n".join(lines)


def _goal(title: str, wanted: str, found: str, reached: bool) -> str:
    return f"| {title} | {wanted} | {found} | {'reached' if reached else '**short**'} |"


def _rates(found: Mapping[str, Sequence[Figures]], name: str) -> list[float]:
    return [one["records"] / one["seconds"] for one in found[name]]


def _rate(found: Mapping[str, Sequence[Figures]], name: str) -> float:
    return median(_rates(found, name))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.client", description="Our client beside confluent-kafka and aiokafka.")
    parser.add_argument("--quick", action="store_true", help="run everything once with tiny counts (for CI)")
    parser.add_argument("--rounds", type=int, default=0, help=f"rounds of all clients ({ROUNDS}; quick: 1)")
    parser.add_argument("--out", type=Path, help="the output directory (bench/results; quick: build/bench)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
