"""The results of a run: medians and ratios as Markdown and JSON, and a plot of them (`plot.py`)."""

import json
import os
import platform
import re
import subprocess
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

from bench import ROOT, SCRATCH
from bench.plot import draw
from bench.system import SYSTEMS

NAME = "beside-kafka"
#: The goal relative to a bare server: rates 0.9 of its, times at most 1.1 of its.
NEAR_GOAL = 0.9
_HEAD = (
    "Written by `make bench`; how it measures is in `docs/internals/bench.md`. Medians over the rounds, the least and",
    "the most in brackets. The ratio is Ottla's figure divided by Apache's: **above 1 is better for rates, below 1 is",
    "better for times and memory**. Where Ottla is better the ratio is bold. The bare server only receives, writes and",
    "answers (`bench/bare.py`); `of bare` is Ottla's rate as a part of its rate, or its time as a part of Ottla's.",
)
_QUICK = "From a quick run: tiny counts and a JVM that never gets fast. These figures say only that everything runs."


@dataclass(frozen=True)
class Figure:
    """A kind of figure."""

    unit: str
    #: whether a larger value is better
    more: bool
    factor: float = 1.0


#: In the order of the table. Other figures of a work are in the JSON only.
FIGURES: Mapping[str, Figure] = {
    "records_per_s": Figure("records/s", more=True),
    "total_per_s": Figure("records/s, with joining", more=True),
    "mean_ms": Figure("ms, mean", more=False),
    "p50_ms": Figure("ms, p50", more=False),
    "p99_ms": Figure("ms, p99", more=False),
    "p999_ms": Figure("ms, p99.9", more=False),
    "cold_start_ms": Figure("ms", more=False),
    "start_ms": Figure("ms", more=False),
    "memory_bytes": Figure("MiB", more=False, factor=1 / (1 << 20)),
}


@dataclass(frozen=True)
class Row:
    """A figure of a work on both systems."""

    work: str
    title: str
    figure: str
    unit: str
    more_is_better: bool
    #: system -> one value per round
    rounds: Mapping[str, list[float]]
    #: one value per round of the bare server; empty where it has no such figure
    bare: list[float]

    @property
    def near(self) -> float | None:
        """Ours relative to the bare server's: 1 is equal, 0.5 half as good. None without a bare figure."""
        if not self.bare or not self.ottla:
            return None
        ratio = self.ottla / median(self.bare)
        return ratio if self.more_is_better else 1 / ratio

    @property
    def apache(self) -> float:
        return median(self.rounds["apache"])

    @property
    def ottla(self) -> float:
        return median(self.rounds["ottla"])

    @property
    def ratio(self) -> float:
        """Ours divided by Apache's."""
        return self.ottla / self.apache if self.apache else float("nan")

    @property
    def better(self) -> float:
        """How many times better ours is, whether larger or smaller is better."""
        return self.ratio if self.more_is_better else 1 / self.ratio


@dataclass
class Run:
    """All measurements of a run."""

    titles: Mapping[str, str]
    size: Mapping[str, Any]
    #: a run with tiny counts, whose report says that it measures nothing
    quick: bool = False
    #: work -> figure -> system -> one value per round
    samples: dict[str, dict[str, dict[str, list[float]]]] = field(default_factory=dict)
    #: the failures, one line each
    failures: list[str] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=lambda: facts())

    def note(self, work: str, system: str, figures: Mapping[str, float]) -> None:
        for figure, value in figures.items():
            by_system = self.samples.setdefault(work, {}).setdefault(figure, {name: [] for name in SYSTEMS})
            by_system.setdefault(system, []).append(value)

    def rows(self) -> list[Row]:
        """The figures that both systems have, in the order of the works."""
        rows = []
        for work, title in self.titles.items():
            for name, figure in FIGURES.items():
                by_system = self.samples.get(work, {}).get(name, {})
                if not by_system or not all(by_system[system] for system in SYSTEMS):
                    continue
                rounds = {system: [value * figure.factor for value in by_system[system]] for system in SYSTEMS}
                bare = [value * figure.factor for value in by_system.get("bare", ())]
                rows.append(Row(work, title, name, figure.unit, figure.more, rounds, bare))
        return rows

    def write(self, directory: Path) -> str:
        """Write the table, the figures and the plot; returns the table."""
        directory.mkdir(parents=True, exist_ok=True)
        rows = self.rows()
        text = self._markdown(rows)
        (directory / f"{NAME}.md").write_text(text)
        (directory / f"{NAME}.json").write_text(json.dumps(self._plain(rows), indent=1) + "\n")
        if rows:
            draw(rows, self._caption(), directory / f"{NAME}.png")
        return text

    def _caption(self) -> str:
        noted = self.facts
        rounds = max((len(values) for row in self.rows() for values in row.rounds.values()), default=0)
        return (
            f"{'Quick run, no measurement. ' if self.quick else ''}"
            f"{noted['processor']}, {noted['cores']} cores, {noted['memory_gib']} GiB. "
            f"Medians of {rounds} round{'s' if rounds != 1 else ''}. Commit {noted['commit']}, {noted['date']}."
        )

    def _machine(self) -> str:
        noted = self.facts
        hardware = f"{noted['processor']}, {noted['cores']} cores, {noted['memory_gib']} GiB"
        load = f"load average at the start {noted['load_average']:.2f}"
        return f"- Machine: {hardware}, {noted['kernel']}, {noted['filesystem']}; {load}."

    def _markdown(self, rows: list[Row]) -> str:
        noted = self.facts
        lines = [
            "# Ottla beside Apache Kafka 4.3.1",
            "",
            *_HEAD,
            "",
            *((_QUICK, "") if self.quick else ()),
            self._machine(),
            f"- Versions: {', '.join(f'{name} {number}' for name, number in noted['versions'].items())}.",
            f"- Commit {noted['commit']}, {noted['date']}, {noted['took_s'] / 60:.1f} minutes.",
            "",
            f"| work | unit | Apache Kafka 4.3.1 | Ottla | Ottla / Apache | bare server | of bare (goal {NEAR_GOAL}) |",
            "|---|---|---:|---:|---:|---:|---:|",
        ]
        for row in rows:
            ratio = f"{row.ratio:.2f}" if row.ratio >= 0.1 else f"{row.ratio:.3f}"
            told = f"**{ratio}**" if row.better > 1 else ratio
            apache, ottla = (_spread(row.rounds[name]) for name in SYSTEMS)
            bare = _spread(row.bare) if row.bare else ""
            lines.append(f"| {row.title} | {row.unit} | {apache} | {ottla} | {told} | {bare} | {_near(row)} |")
        if self.failures:
            lines += ["", "What broke:", "", *(f"- {line}" for line in self.failures)]
        return "\n".join(lines) + "\n"

    def _plain(self, rows: list[Row]) -> dict[str, Any]:
        medians = [
            {
                **{key: value for key, value in asdict(row).items() if key != "rounds"},
                "apache": row.apache,
                "ottla": row.ottla,
                "ratio": row.ratio,
                "near": row.near,
            }
            for row in rows
        ]
        return {
            "facts": self.facts,
            "quick": self.quick,
            "size": self.size,
            "medians": medians,
            "samples": self.samples,
            "failures": self.failures,
        }


def number(value: float) -> str:
    """A number with three significant digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _near(row: Row) -> str:
    near = row.near
    if near is None:
        return ""
    return f"**{near:.2f}**" if near >= NEAR_GOAL else f"{near:.2f}"


def _spread(values: list[float]) -> str:
    middle = number(median(values))
    return middle if len(values) == 1 else f"{middle} ({number(min(values))} to {number(max(values))})"


def facts() -> dict[str, Any]:
    """The machine and the versions of a run."""
    cpus, memory = _text("/proc/cpuinfo"), _text("/proc/meminfo")
    model = re.search(r"model name\s*:\s*(.+)", cpus)
    total = re.search(r"MemTotal:\s*(\d+)", memory)
    return {
        "processor": model[1] if model else platform.machine(),
        "cores": os.cpu_count(),
        "memory_gib": round(int(total[1]) / (1 << 20), 1) if total else None,
        "kernel": f"{platform.system()} {platform.release()}",
        "filesystem": _file_system(SCRATCH),
        "load_average": round(os.getloadavg()[0], 2),
        "versions": {
            "Ottla": version("ottla"),
            "Python": platform.python_version(),
            "uvloop": version("uvloop"),
            "Java": (re.search(r'"(.+?)"', _said("java", "-version")) or ["", "unknown"])[1],
            "confluent-kafka": version("confluent-kafka"),
            "aiokafka": version("aiokafka"),
            "pyarrow": version("pyarrow"),
            "NumPy": version("numpy"),
        },
        "commit": _said("git", "describe", "--always", "--dirty", "--abbrev=10") or "unknown",
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "took_s": 0.0,
    }


def _file_system(directory: Path) -> str:
    """The file system, for ext4 with its journal: without one, creating files is slow for minutes after removals."""
    directory.mkdir(parents=True, exist_ok=True)
    kind, _, device = _said("findmnt", "-no", "FSTYPE,SOURCE", "-T", str(directory)).partition(" ")
    if kind == "ext4" and not list(Path("/proc/fs/jbd2").glob(f"{Path(device.strip()).name}-*")):
        return "ext4 without a journal"
    return kind or "unknown file system"


@cache
def _said(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=20, stdin=subprocess.DEVNULL, cwd=ROOT)
    return (done.stdout + done.stderr).strip() if done.returncode == 0 else ""


def _text(path: str) -> str:
    return Path(path).read_text() if Path(path).exists() else ""
