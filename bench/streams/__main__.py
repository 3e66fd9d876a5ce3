"""`python -m bench.streams`: alternating rounds of all rows and systems, then the table.

Exit code 1 if something failed (the other rows go on), never because of a figure. `--short` runs everything once in
about ten minutes and writes results; `--quick` uses few records, to check that it works, and writes none.
"""

import argparse
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import ottla
from bench import RESULTS, SCRATCH
from bench.__main__ import QUIET_LOAD
from bench.report import facts
from bench.streams import measure, spark
from bench.streams.programs import IN_COLUMNS
from bench.streams.system import SYSTEMS, Place, create, fill, kafka_streams
from ottla.client import Admin

ROUNDS = 3
#: Makes Kafka Streams emit every change as we do, not only the last one of a commit.
NO_CACHE = ("statestore.cache.max.bytes=0",)


class Row(NamedTuple):
    """A program on an input with a number of records and keys."""

    program: str
    keys: int

    @property
    def name(self) -> str:
        return f"{self.program}, {self.keys:,} keys"


class Size(NamedTuple):
    """The amount of work of a run. `keys`: few first, many last."""

    records: int
    keys: tuple[int, ...]
    rates: tuple[int, ...]
    seconds: float


FULL = Size(2_000_000, (1_000, 1_000_000), (1_000, 10_000), 30)
SHORT = Size(400_000, (1_000, 100_000), (1_000,), 12)
QUICK = Size(20_000, (100, 10_000), (100, 1_000), 4)
PROGRAMS = ("stateless", "count", "windowed-count", "stream-table", "stream-stream", "table-aggregate")
HEAD = """{date}, commit {commit}; {processor}, {cores} cores, load average {load_average} before the start; {records:,}
records of some 25 bytes, two partitions, an Ottla node on the same machine. Exactly once in all but real-time mode and
PySpark, whose sink is at least once. Kafka Streams 4.3.1 with two threads and without a cache, so that it emits every
change as the others do; PySpark emits one a batch. Rates are results per second, latencies in ms, memory that of all
processes of the program; medians of {rounds} round(s), {took_s:,.0f} s in all. Beside a rate of ours: how often it is
Kafka Streams' and PySpark's."""
Work = Callable[..., dict[str, float]]
Figures = dict[tuple[str, str], list[dict[str, float]]]


def main() -> int:
    """Run the selected rows, and write the results."""
    options = _options()
    size = QUICK if options.quick else SHORT if options.short else FULL
    size = size._replace(keys=tuple(options.keys or size.keys), records=options.records or size.records)
    rounds = 1 if options.quick or options.short else options.rounds
    SCRATCH.mkdir(parents=True, exist_ok=True)
    conditions = facts()
    if conditions["load_average"] > QUIET_LOAD:
        _say(f"the load average is {conditions['load_average']}: figures want a machine that does nothing else")
    kafka_streams()
    figures: Figures = defaultdict(list)
    failures: list[str] = []
    began = time.monotonic()
    for number in range(1, rounds + 1):
        systems = [each for each in SYSTEMS if each in options.system]
        with ottla.Node() as node:
            bench = Bench(node.bootstrap_servers, size, options.kind, options.only)
            bench.fill()
            bench.round(number, systems if number % 2 else systems[::-1], figures, failures)
    conditions["took_s"] = round(time.monotonic() - began, 1)
    text = report(figures, failures, size, conditions | {"rounds": rounds})
    print(text)
    for failure in failures:
        _say(failure)
    if not options.quick:
        out = Path(options.out)
        out.mkdir(parents=True, exist_ok=True)
        (out / "streams.md").write_text(text)
    return 1 if failures else 0


class Bench:
    """A node with its inputs. `kinds` and `only` select the measurements."""

    def __init__(self, servers: str, size: Size, kinds: list[str], only: list[str]) -> None:
        self.servers = servers
        self.size = size
        self.kinds = kinds
        self.only = only
        self.rows = [Row(program, keys) for program in PROGRAMS for keys in size.keys if program in only]

    def fill(self) -> None:
        """Write the inputs, one for each number of keys, and the other sides of joins."""
        with Admin(self.servers) as admin:
            for keys in self.size.keys:
                create(admin, f"in-{keys}", f"table-{keys}", f"right-{keys}", f"left-{keys}")
                fill(self.servers, f"in-{keys}", self.size.records, keys)
                fill(self.servers, f"table-{keys}", keys, keys, step_ms=0)
                for side, first in (("left", 1), ("right", 2)):
                    # A key recurs after two seconds at the earliest: each record has one partner.
                    step = max(10, -(-4_000 // keys))
                    fill(self.servers, f"{side}-{keys}", self.size.records, keys, step_ms=step, first_ms=first)

    def round(self, number: int, systems: list[str], figures: Figures, failures: list[str]) -> None:
        """Run all rows on all systems, a row's systems one after another."""
        for name, system, work, place in self._works(number, systems):
            with Admin(self.servers) as admin:
                create(admin, place.output)
            try:
                found = work(system, place, settings=NO_CACHE if system == "kafka-streams" else ())
            except (OSError, RuntimeError, TimeoutError, subprocess.SubprocessError) as error:
                failures.append(f"{name}, {system}: {error}")
                _say(f"{name}, {system}: failed")
                continue
            figures[name, system].append(found)
            _say(f"{name}, {system}: {', '.join(f'{key} {value:,.1f}' for key, value in found.items())}")

    def _works(self, number: int, systems: list[str]) -> Iterator[tuple[str, str, Work, Place]]:
        size = self.size
        for row in self.rows if "rate" in self.kinds else ():
            for system in systems:
                if self._has(system, row.program):
                    work = partial(measure.rate, records=size.records)
                    yield row.name, system, work, self._place(row, system, number)
        for per_second in size.rates if "latency" in self.kinds and "stateless" in self.only else ():
            for system in [each for each in systems if each != "pyspark"]:
                work = partial(measure.latency, per_second=per_second, seconds=size.seconds)
                yield f"latency at {per_second:,}/s", system, work, self._fresh(f"latency-{per_second}", system, number)
        row = Row("windowed-count", size.keys[-1])
        for system in [each for each in systems if each in ("ottla-python", "kafka-streams")]:
            if "recovery" in self.kinds and row.program in self.only:
                work = partial(measure.recovery, records=size.records)
                place = self._place(row, system, number)._replace(application_id=f"recovery-{system}-{number}")
                yield f"recovery, {row.keys:,} keys", system, work, place

    def _has(self, system: str, program: str) -> bool:
        if system == "ottla-columns":
            return program in IN_COLUMNS
        if system == "ottla-real-time":
            return program == "stateless"
        return system != "pyspark" or program in spark.PROGRAMS

    def _place(self, row: Row, system: str, number: int) -> Place:
        source, other = f"in-{row.keys}", f"table-{row.keys}"
        if row.program == "stream-stream":
            source, other = f"left-{row.keys}", f"right-{row.keys}"
        name = f"{row.program}-{row.keys}-{system}-{number}"
        return Place(self.servers, row.program, name, source, other, f"out-{name}-{time.monotonic_ns()}")

    def _fresh(self, name: str, system: str, number: int) -> Place:
        source = f"{name}-{system}-{number}"
        with Admin(self.servers) as admin:
            create(admin, source)
        return Place(self.servers, "stateless", source, source, source, f"out-{source}")


def report(figures: Figures, failures: list[str], size: Size, conditions: dict[str, Any]) -> str:
    """The table: medians of the rounds."""
    names = list(dict.fromkeys(name for name, _ in figures))
    lines = [
        "# Streams programs beside Kafka Streams and PySpark",
        "",
        HEAD.format(records=size.records, **conditions),
        "",
        f"| row | {' | '.join(SYSTEMS)} |",
        f"|---|{'---|' * len(SYSTEMS)}",
    ]
    for name in names:
        cells = []
        for system in SYSTEMS:
            found = figures.get((name, system))
            if not found:
                cells.append("-")
                continue
            told = _cell(_medians(found))
            if system.startswith("ottla"):
                told += _beside(figures, name, _medians(found))
            cells.append(told)
        lines.append(f"| {name} | {' | '.join(cells)} |")
    if failures:
        lines += ["", f"Failed: {'; '.join(each.splitlines()[0] for each in failures)}"]
    return "\n".join(lines) + "\n"


def _medians(found: list[dict[str, float]]) -> dict[str, float]:
    return {key: median(each[key] for each in found) for key in found[0]}


def _beside(figures: Figures, name: str, ours: dict[str, float]) -> str:
    """The ratio of a rate to those of the other systems."""
    told = []
    for system, word in (("kafka-streams", "KS"), ("pyspark", "PySpark")):
        found = figures.get((name, system))
        if found and "rate" in ours and (theirs := _medians(found)["rate"]):
            told.append(f"{ours['rate'] / theirs:.2f}x {word}")
    return f" ({', '.join(told)})" if told else ""


def _cell(found: dict[str, float]) -> str:
    if "rate" in found:
        memory = f", {found['memory_mb']:,.0f} MB" if "memory_mb" in found else ""
        return f"{found['rate']:,.0f}/s{memory}"
    if "p50_ms" in found:
        return f"p50 {found['p50_ms']:.0f} ms, p99 {found['p99_ms']:.0f} ms"
    return f"{found['seconds']:.1f} s"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.streams", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few records, once, no results written")
    parser.add_argument("--short", action="store_true", help="one round of 400,000 records, about ten minutes")
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N")
    parser.add_argument("--system", action="append", choices=SYSTEMS, help="only this system (repeatable)")
    parser.add_argument("--only", action="append", choices=PROGRAMS, help="only this program (repeatable)")
    parser.add_argument("--kind", action="append", choices=("rate", "latency", "recovery"), help="only these figures")
    parser.add_argument("--keys", type=int, nargs="+", metavar="N", help="the numbers of keys of the inputs")
    parser.add_argument("--records", type=int, metavar="N", help="the number of records in each input")
    parser.add_argument("--out", default=str(RESULTS), metavar="DIRECTORY")
    options = parser.parse_args()
    options.system = options.system or list(SYSTEMS)
    options.only = options.only or list(PROGRAMS)
    # A recovery first fills a store with many keys, so the short form omits it.
    options.kind = options.kind or ["rate", "latency", *([] if options.short else ["recovery"])]
    return options


def _say(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
