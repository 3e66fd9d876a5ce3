"""The picture: the year's days by carrier, the carriers' totals, and the effect of the weather."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from examples.flights.results import Row
from examples.flights.screen import WEATHER, average, by, total

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK, PALE, PAPER = "#1d2733", "#8a96a3", "#ffffff"
CALM, BAD = "#2f7f9e", "#c8442d"
AIRPORTS = {"Newark Liberty Intl": "#1b4965", "John F Kennedy Intl": "#5fa8d3", "La Guardia": "#f2a65a"}
STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": PALE,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.facecolor": PAPER,
}


def draw(carriers: list[Row], weather: list[Row], output: Path) -> Path:
    """Draw delays.png into the directory `output` and return its path."""
    import matplotlib as mpl

    mpl.use("agg")
    from matplotlib import pyplot as plt

    output.mkdir(parents=True, exist_ok=True)
    picture = output / "delays.png"
    order = sorted(by(carriers, "name").items(), key=lambda item: -average(item[1], "arrived"))
    with plt.rc_context(STYLE):
        figure = plt.figure(figsize=(15, 10.5), dpi=120)
        grid = figure.add_gridspec(
            2, 1, height_ratios=[1.15, 1], hspace=0.24, left=0.145, right=0.96, top=0.885, bottom=0.045
        )
        days(figure.add_subplot(grid[0]), order)
        lower = grid[1].subgridspec(1, 3, wspace=0.32, width_ratios=[1.15, 1, 1])
        year(figure.add_subplot(lower[0]), order)
        late(figure.add_subplot(lower[1]), weather)
        cancelled(figure.add_subplot(lower[2]), weather)
        flights = total(carriers, "flights")
        figure.text(0.145, 0.955, "A year of delays out of New York", fontsize=20, fontweight="bold")
        source = f"{flights:,} flights of 2013, from the topics carrier-delays and weather-delays"
        figure.text(0.145, 0.927, source, fontsize=11, color=PALE)
        figure.savefig(picture)
        plt.close(figure)
    return picture


def days(axes: "Axes", order: list[tuple[str, list[Row]]]) -> None:
    """Each carrier's days: the average arrival delay as colour, days without a flight blank."""
    from matplotlib.colors import TwoSlopeNorm

    dates = sorted({row["day"] for _, rows in order for row in rows})
    place = {date: number for number, date in enumerate(dates)}
    grid = np.full((len(order), len(dates)), np.nan)
    for number, (_, rows) in enumerate(order):
        for row in rows:
            if row["average"] is not None:
                grid[number, place[row["day"]]] = row["average"]
    norm = TwoSlopeNorm(0, -60, 90)
    image = axes.imshow(grid, aspect="auto", cmap="RdYlBu_r", norm=norm, interpolation="nearest")
    axes.set_yticks(range(len(order)), [name for name, _ in order])
    firsts = [number for number, date in enumerate(dates) if date.endswith("-01") and date.startswith("2013")]
    months = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
    axes.set_xticks(firsts, [months[int(dates[number][5:7]) - 1] for number in firsts], ha="left")
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_title(
        "Average arrival delay of each day and carrier, in minutes (white: none arrived)", loc="left", fontweight="bold"
    )
    bar = axes.figure.colorbar(
        image, ax=axes, pad=0.012, fraction=0.018, ticks=[-60, -30, 0, 30, 60, 90], extend="both"
    )
    bar.outline.set_visible(False)


def year(axes: "Axes", order: list[tuple[str, list[Row]]]) -> None:
    """The carriers' averages over the year."""
    names, averages = [name for name, _ in order], [average(rows, "arrived") for _, rows in order]
    bars = axes.barh(names, averages, color=[BAD if each > 0 else CALM for each in averages], height=0.72)
    axes.bar_label(
        bars, [f"{each:+.1f}".replace("-", "\N{MINUS SIGN}") for each in averages], padding=3, fontsize=8.5, color=INK
    )
    axes.invert_yaxis()
    axes.axvline(0, color=INK, linewidth=0.8)
    axes.margins(x=0.14)
    axes.set_xticks([])
    axes.tick_params(axis="y", length=0)
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.set_title("Arrival delay by carrier, minutes", loc="left", fontweight="bold")


def late(axes: "Axes", weather: list[Row]) -> None:
    """Departure delay by the weather of the hour."""
    _bars(axes, weather, lambda rows: average(rows, "flights", "cancelled"), 0)
    axes.set_title("Departure delay by weather, minutes", loc="left", fontweight="bold")
    axes.legend(frameon=False, loc="upper left", fontsize=9)


def cancelled(axes: "Axes", weather: list[Row]) -> None:
    """The share of cancelled flights, by the weather of the hour."""
    _bars(axes, weather, lambda rows: 100 * total(rows, "cancelled") / max(total(rows, "flights"), 1), 1)
    axes.set_title("Cancelled by weather, percent", loc="left", fontweight="bold")


def _bars(axes: "Axes", weather: list[Row], figure_of: Callable[[list[Row]], float], digits: int) -> None:
    """Three bars per kind of weather, one per airport; figures below ten have `digits` decimals."""
    width = 0.27
    for number, (airport, colour) in enumerate(AIRPORTS.items()):
        of = [[row for row in weather if row["airport"] == airport and row["weather"] == kind] for kind in WEATHER]
        heights = [figure_of(rows) for rows in of]
        places = np.arange(len(WEATHER)) + (number - 1) * width
        bars = axes.bar(places, heights, width * 0.92, color=colour, label=airport.removesuffix(" Intl"))
        axes.bar_label(
            bars, [f"{each:.{digits if each < 10 else 0}f}" for each in heights], padding=2, fontsize=7.5, color=INK
        )
    axes.set_xticks(range(len(WEATHER)), WEATHER)
    axes.tick_params(axis="x", length=0)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.margins(y=0.16)
