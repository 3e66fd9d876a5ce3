"""The plot of a run: how many times better Ottla is than Apache Kafka, one bar per figure, with both medians.

For all bars, right is better, whether the figure is a rate, a time or an amount of memory. The scale is logarithmic, so
that twice as good and half as good are equally long. Dots are the single rounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bench.report import Row

GOOD, BAD = "#1f7a5c", "#c2552d"
INK, FAINT, BAND = "#22272e", "#8a929c", "#f3f5f7"
#: figure -> heading of its group, in the order of the plot
GROUPS = {
    "records_per_s": "Rates",
    "total_per_s": "Rates",
    "mean_ms": "Latencies",
    "p50_ms": "Latencies",
    "p99_ms": "Latencies",
    "p999_ms": "Latencies",
    "cold_start_ms": "Starts",
    "start_ms": "Starts",
    "memory_bytes": "Memory",
}
ROW_IN = 0.3
MARGIN_IN = 1.75


def draw(rows: Sequence[Row], caption: str, path: Path) -> None:
    """Write the plot as PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    lines = _lines(rows)
    with pyplot.rc_context({"font.family": "DejaVu Sans", "font.size": 9, "text.color": INK}):
        height = ROW_IN * len(lines) + MARGIN_IN
        figure = pyplot.figure(figsize=(13, height))
        # The titles left of the bars and the medians right of them have fixed positions.
        axes = figure.add_axes((0.385, 0.75 / height, 0.40, (height - MARGIN_IN) / height))
        _bars(axes, lines)
        figure.text(
            0.015, 1 - 0.32 / height, "Ottla beside Apache Kafka 4.3.1", fontsize=16, weight="bold", va="center"
        )
        subtitle = (
            "The same unmodified clients on one machine, in alternating rounds. Bars to the right: Ottla is better."
        )
        figure.text(0.015, 1 - 0.62 / height, subtitle, fontsize=10, color=FAINT, va="center")
        figure.text(0.015, 0.18 / height, caption, fontsize=8, color=FAINT, va="center")
        figure.savefig(path, dpi=130, facecolor="white")
        pyplot.close(figure)


def _lines(rows: Sequence[Row]) -> list[Row | str]:
    """The rows by group, with the heading of each group before it."""
    lines: list[Row | str] = []
    for group in dict.fromkeys(GROUPS.values()):
        members = [row for row in rows if GROUPS[row.figure] == group]
        if members:
            lines += [group, *members]
    return lines


def _bars(axes: Any, lines: Sequence[Row | str]) -> None:
    from matplotlib.patches import Rectangle
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    from bench.report import Row, number

    rows = [line for line in lines if isinstance(line, Row)]
    every = [each for row in rows for each in (row.better, *_rounds(row))]
    left, right = min([0.5, *(0.8 * each for each in every)]), max([2.0, *(1.6 * each for each in every)])
    axes.set_xscale("log")
    axes.set_xlim(left, right)
    axes.set_ylim(len(lines) - 0.4, -0.6)
    words = axes.get_yaxis_transform()  # x in shares of the width, y in rows
    for place, line in enumerate(lines):
        if isinstance(line, str):
            axes.text(-0.925, place + 0.1, line, transform=words, weight="bold", fontsize=10, va="center")
            for at, head in ((1.14, "Apache"), (1.27, "Ottla")):
                axes.text(at, place, head, transform=words, color=FAINT, ha="right", va="center", fontsize=8)
            continue
        colour = GOOD if line.better >= 1 else BAD
        if place % 2:
            axes.add_patch(
                Rectangle(
                    (-0.925, place - 0.5), 2.46, 1, transform=words, color=BAND, zorder=0, linewidth=0, clip_on=False
                )
            )
        axes.barh(place, line.better - 1, left=1, height=0.56, color=colour, zorder=2)
        rounds = _rounds(line)
        if len(rounds) > 1:
            axes.plot(rounds, [place] * len(rounds), "o", markersize=3.2, color=INK, markerfacecolor="white", zorder=4)
        end = max([line.better, 1, *rounds])
        told = f"{line.better:.2f}x" if line.better < 10 else f"{line.better:.0f}x"
        axes.annotate(
            told, (end, place), xytext=(6, 0), textcoords="offset points", va="center", color=colour, weight="bold"
        )
        axes.text(-0.91, place, line.title, transform=words, va="center")
        axes.text(1.14, place, number(line.apache), transform=words, ha="right", va="center")
        axes.text(1.27, place, number(line.ottla), transform=words, ha="right", va="center")
        axes.text(1.285, place, line.unit, transform=words, va="center", color=FAINT, fontsize=8)
    ticks = [each for each in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100) if left <= each <= right]
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}x"))
    axes.tick_params(axis="x", colors=FAINT, length=0)
    axes.grid(axis="x", color="#dfe3e8", linewidth=0.7, zorder=1)
    axes.axvline(1, color=INK, linewidth=1.1, zorder=3)
    axes.yaxis.set_visible(False)
    for side in axes.spines.values():
        side.set_visible(False)


def _rounds(row: Row) -> list[float]:
    """How many times better each round was."""
    pairs = zip(row.rounds["apache"], row.rounds["ottla"], strict=False)
    return [ottla / apache if row.more_is_better else apache / ottla for apache, ottla in pairs if apache and ottla]
