"""The limit of the table's produce rates: the CPU time of each side of a run, written to bench/results/floor.md.

    python -m bench.floor

Kafka's ProducerPerformance runs against three servers in turn: Apache Kafka, our node, and our node with a log that
accepts a batch without writing ("null"): it decodes and acknowledges every request, the minimum for a broker in Python.
The client's CPU is that of its process, the server's what the scheduler gave it during the run.

The limit: everything shares the machine's cores, so no run is faster than `records / (client + server) * cores`, and
with any server none is faster than `records / client * cores`, or than the client's busiest thread. CPU times are
nearly the same on a busy machine.
"""

import argparse
import os
import resource
import struct
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench import RESULTS, SCRATCH
from bench.report import facts as facts_of_now
from bench.system import System, settle
from bench.work import BIG_BATCHES, PARTITIONS, java_produce
from ottla.kernel.ports import Buffer
from ottla.log.log import Appended, Log, Origin

_LAST_OFFSET_DELTA = struct.Struct(">i")
_LAST_OFFSET_DELTA_AT = 23


class Load(NamedTuple):
    """A kind of produce load."""

    title: str
    record_bytes: int
    records: int
    settings: tuple[str, ...]


_LOADS = (
    Load("100 B, client defaults, 6 partitions", 100, 3_000_000, ()),
    Load("1 KiB, batch.size=131072, acks=all, 6 partitions", 1024, 600_000, BIG_BATCHES),
)


class Run(NamedTuple):
    """Seconds of CPU per million records, and records per second."""

    client_s: float
    server_s: float
    rate: float


def main() -> int:
    """Run all loads on all servers, `--rounds` times, and write the table."""
    parser = argparse.ArgumentParser(prog="bench.floor", description="What bounds the produce rates.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--share", type=float, default=1.0, help="the fraction of the records, for a first look")
    parser.add_argument("--out", type=Path, default=RESULTS, help="the output directory")
    options = parser.parse_args()
    facts, cores = facts_of_now(), os.cpu_count() or 1
    SCRATCH.mkdir(parents=True, exist_ok=True)
    loads = [load._replace(records=int(load.records * options.share)) for load in _LOADS]
    runs: dict[tuple[str, str], list[Run]] = {}
    for name in ("apache", "ottla", "null"):
        for load, found in zip(loads, _measure(name, loads, options.rounds), strict=True):
            runs[load.title, name] = found
    lines = [
        "# What bounds the produce rates",
        "",
        "Written by `python -m bench.floor`, whose head says what this is. CPU seconds a million records: medians of",
        f"{options.rounds} runs of Kafka's ProducerPerformance, its JVM's start and compiler included, after one that",
        "does not count. `at most`: what the cores could do if they did nothing else and were never idle.",
        "",
        f"- {facts['processor']}, {cores} cores; load average at the start {facts['load_average']}.",
        f"- Commit {facts['commit']}, {facts['date']}.",
        "",
        "| load | server | client, s | server, s | records/s | at most | Ottla / Apache at most |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for load in loads:
        bounds: dict[str, float] = {}
        for name in ("apache", "ottla", "null"):
            client, server, rate = (median(values) for values in zip(*runs[load.title, name], strict=True))
            bounds[name] = cores * 1e6 / (client + server)
            ratio = f"{bounds[name] / bounds['apache']:.2f}" if name != "apache" else ""
            lines.append(
                f"| {load.title} | {name} | {client:.2f} | {server:.2f} | {rate:,.0f} | {bounds[name]:,.0f} | {ratio} |"
            )
    text = "\n".join([*lines, ""])
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "floor.md").write_text(text)
    print(text)
    return 0


def _measure(name: str, loads: list[Load], rounds: int) -> list[list[Run]]:
    found: list[list[Run]] = []
    with tempfile.TemporaryDirectory(prefix=f"floor-{name}-", dir=SCRATCH, ignore_cleanup_errors=True) as directory:
        system = System("apache" if name == "apache" else "ottla", Path(directory))
        if name == "null":
            kind = system.server.kind
            command = (sys.executable, "-m", "bench.floor", "serve", "{file}")
            system.server.kind = replace(kind, start=command)
        try:
            system.start()
            for load in loads:
                topic = system.topic(f"floor-{load.record_bytes}", PARTITIONS)
                found.append([_produce(system, topic, load) for _ in range(rounds + 1)][1:])
        finally:
            system.stop()
    return found


def _produce(system: System, topic: str, load: Load) -> Run:
    settle()
    client, server = _children_s(), _server_s(system)
    said = java_produce(system, topic, load.records, load.record_bytes, *load.settings)
    scale = 1e6 / load.records
    return Run((_children_s() - client) * scale, (_server_s(system) - server) * scale, said["records_per_s"])


def _children_s() -> float:
    """The CPU of ended children, which are the tools, since the servers still run."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _server_s(system: System) -> float:
    fields = Path(f"/proc/{system.server.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# ---------------------------------------------------------------------------------------------------- the null log


def serve(properties: str) -> None:
    """Run `ottla start PROPERTIES` with a log that writes only coordinators' records."""
    from ottla.cli.ottla.root import ottla

    append = Log.append

    def take(log: Log, data: Buffer, *, origin: Origin = Origin.CLIENT, **more: object) -> Appended:
        if origin is not Origin.CLIENT:
            return append(log, data, origin=origin, **more)  # type: ignore[arg-type]
        base_offset = log.end_offset
        log.end_offset += _LAST_OFFSET_DELTA.unpack_from(data, _LAST_OFFSET_DELTA_AT)[0] + 1
        return Appended(base_offset, log.end_offset - 1, -1, -1, False)

    Log.append = take  # type: ignore[method-assign,assignment]
    ottla.main(["start", properties], prog_name="ottla", standalone_mode=False)


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(sys.argv[2])
    else:
        sys.exit(main())
