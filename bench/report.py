"""Medians and ratios of a run, as Markdown, JSON and a plot."""

import json
import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from bench.system import SYSTEMS

#: work -> figure -> system -> one value a round
Samples = dict[str, dict[str, dict[str, list[float]]]]
#: figure -> (unit, factor, is more better)
FIGURES = {
    "records_per_s": ("records/s", 1.0, True),
    "mib_per_s": ("MiB/s", 1.0, True),
    "p50_ms": ("ms p50", 1.0, False),
    "p99_ms": ("ms p99", 1.0, False),
    "p999_ms": ("ms p99.9", 1.0, False),
    "cold_start_ms": ("ms", 1.0, False),
    "idle_bytes": ("MiB", 1 / (1 << 20), False),
    "peak_bytes": ("MiB", 1 / (1 << 20), False),
}


def machine() -> dict[str, Any]:
    """What the figures were taken on."""
    model = next(
        (line.split(":")[1].strip() for line in _text("/proc/cpuinfo").splitlines() if line.startswith("model name")),
        platform.machine(),
    )
    total_kib = next((int(line.split()[1]) for line in _text("/proc/meminfo").splitlines() if "MemTotal" in line), 0)
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=10"], capture_output=True, text=True, timeout=10
    )
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "memory_gib": round(total_kib / (1 << 20), 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "commit": commit.stdout.strip() or "unknown",
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }


def rows(samples: Samples, titles: dict[str, str]) -> list[dict[str, Any]]:
    """One a work and figure, with medians and the ratio of ours to Apache's."""
    made = []
    for work, figures in samples.items():
        for figure, (unit, factor, more) in FIGURES.items():
            if figure not in figures:
                continue
            values = {name: median(figures[figure][name]) * factor for name in SYSTEMS}
            made.append(
                {
                    "work": work,
                    "title": titles[work],
                    "figure": figure,
                    "unit": unit,
                    "more_is_better": more,
                    **values,
                    "ratio": values["ottla"] / values["apache"] if values["apache"] else None,
                    "rounds": len(figures[figure]["ottla"]),
                }
            )
    return made


def markdown(table: list[dict[str, Any]], facts: dict[str, Any]) -> str:
    """The table as Markdown."""
    where = (
        f"{facts['processor']}, {facts['cores']} cores, {facts['memory_gib']} GiB, {facts['system']}, "
        f"Python {facts['python']}, commit {facts['commit']}, {facts['date']}."
    )
    lines = [
        "# Ottla beside Apache Kafka 4.3.1",
        "",
        "Written by `make bench`. Medians; the ratio is ours to Apache's. Rates: more is better; the rest: less is.",
        "",
        where,
        "",
        "| work | unit | Apache Kafka 4.3.1 | Ottla | ratio | rounds |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for row in table:
        ratio = f"{row['ratio']:.2f}" if row["ratio"] is not None else ""
        figures = f"{_number(row['apache'])} | {_number(row['ottla'])} | {ratio} | {row['rounds']}"
        lines.append(f"| {row['title']} | {row['unit']} | {figures} |")
    return "\n".join(lines) + "\n"


def write(samples: Samples, titles: dict[str, str], directory: Path) -> str:
    """All three files; the Markdown is given back as well."""
    directory.mkdir(parents=True, exist_ok=True)
    facts, table = machine(), rows(samples, titles)
    text = markdown(table, facts)
    (directory / "beside-kafka.md").write_text(text)
    (directory / "beside-kafka.json").write_text(
        json.dumps({"machine": facts, "rows": table, "samples": samples}, indent=1) + "\n"
    )
    plot(table, facts, directory / "beside-kafka.png")
    return text


def plot(table: list[dict[str, Any]], facts: dict[str, Any], path: Path) -> None:
    """How many times better ours is, a bar a figure, on a logarithmic scale."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    shown = [row for row in reversed(table) if row["ratio"] and row["figure"] != "mib_per_s"]
    better = [row["ratio"] if row["more_is_better"] else 1 / row["ratio"] for row in shown]
    figure, axes = pyplot.subplots(figsize=(11, 0.42 * len(shown) + 1.6))
    axes.barh(range(len(shown)), [value - 1 for value in better], left=1, color=_colours(better))
    axes.set_yticks(range(len(shown)), [f"{row['title']}, {row['unit']}" for row in shown], fontsize=8)
    axes.set_xscale("log")
    axes.axvline(1, color="black", linewidth=1)
    for place, value in enumerate(better):
        axes.annotate(
            f"{value:.2f}x", (max(value, 1), place), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8
        )
    axes.set_title(
        f"Times better than Apache Kafka 4.3.1 ({facts['cores']} cores, commit {facts['commit']})", fontsize=10
    )
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _colours(better: list[float]) -> list[str]:
    return ["#2a7f62" if value >= 1 else "#b5482f" for value in better]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def _text(path: str) -> str:
    return Path(path).read_text() if Path(path).exists() else ""
