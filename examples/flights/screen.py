"""The output: a live view on a terminal, lines in a log, and the tables at the end."""

import time
from collections.abc import Iterable

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from examples.flights.feed import Feed
from examples.flights.pace import Pace
from examples.flights.referee import Verdict
from examples.flights.results import Results, Row

LINE_EVERY_S = 5.0


class Screen:
    """The view while the demo runs: redrawn on a terminal, a line every few seconds elsewhere."""

    def __init__(self, console: Console, feed: Feed, results: Results, pace: Pace) -> None:
        self.console, self.feed, self.results, self.pace = console, feed, results, pace
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._line_due = 0.0
        self._began = time.monotonic()

    def __enter__(self) -> "Screen":
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self) -> None:
        if self.console.is_terminal:
            self._live.update(self._view(), refresh=True)
        elif time.monotonic() >= self._line_due:
            self._line_due = time.monotonic() + LINE_EVERY_S
            self.console.print(self._line(), soft_wrap=True)

    def _line(self) -> str:
        seconds = time.monotonic() - self._began
        sent = f"{self.feed.sent:,} of {self.feed.total:,} events sent"
        processed = sum(part.processed for part in self.pace.parts.values())
        told = ", ".join(f"{topic} told {count:,} times" for topic, count in self.results.told.items())
        return f"{seconds:5.0f} s  {date(self.feed.time_ms)}  {sent}; {processed:,} records processed; {told}"

    def _view(self) -> RenderableType:
        head = Table.grid(padding=(0, 2))
        head.add_row(
            Text(date(self.feed.time_ms), "bold cyan"),
            ProgressBar(total=self.feed.total, completed=self.feed.sent, width=40),
            f"{self.feed.sent:>7,} events sent",
            f"{self.feed.sent / max(self.feed.seconds, 0.001):>7,.0f}/s",
        )
        parts = Table("reads", "records", "waiting", "commits", "time", box=None, header_style="dim")
        for column in parts.columns[1:]:
            column.justify = "right"
        for part in self.pace.parts.values():
            seen = date(part.seen_ms) if part.seen_ms else "-"
            parts.add_row(part.reads, f"{part.processed:,}", f"{part.waiting:,}", f"{part.commits:,}", seen)
        body = Group(head, Text(), parts)
        return Group(Panel(body, title="flights", border_style="cyan"), self._ranking(), self._conditions())

    def _ranking(self) -> RenderableType:
        """The current ranking of the newest day."""
        rows = self.results.rows("carrier-delays")
        last = max((row["day"] for row in rows), default=None)
        day = sorted((row for row in rows if row["day"] == last), key=lambda row: int(row["rank"]))
        told = f"told {self.results.told['carrier-delays']:,} times"
        return ranking(day[:8], f"airlines on {last} ({told})" if last else "no airline has landed yet")

    def _conditions(self) -> RenderableType:
        rows = self.results.rows("weather-delays")
        parts = []
        for kind in WEATHER:
            of = [row for row in rows if row["weather"] == kind]
            parts.append(f"{kind} {average(of, 'flights', 'cancelled'):.1f}" if of else f"{kind} -")
        told = f"told {self.results.told['weather-delays']:,} times"
        return Panel(Text("   ".join(parts)), title=f"minutes late at departure ({told})", border_style="dim")


def ranking(day: Iterable[Row], title: str) -> RenderableType:
    """A day's carriers, the worst first."""
    table = Table("", "carrier", "flights", "late", "cancelled", "average min", "", box=None, header_style="dim")
    for column in (table.columns[0], *table.columns[2:6]):
        column.justify = "right"
    for row in day:
        average = row["average"]
        length = 0 if average is None else round(min(max(average, 0), 90) / 3)
        table.add_row(
            str(row["rank"]),
            row["name"],
            str(row["flights"]),
            str(row["late"]),
            str(row["cancelled"]),
            "-" if average is None else f"{average:.1f}",
            Text("█" * length, _colour(average or 0)),
        )
    return Panel(table, title=title, border_style="dim")


def carriers(rows: list[Row]) -> Table:
    """The year's totals by carrier, summed from the days."""
    table = Table(
        *(
            "carrier",
            "flights",
            "cancelled",
            "late",
            "average min",
            "worst min",
            "days ranked worst",
        ),
        title="the year by carrier, from the topic carrier-delays",
    )
    for column in table.columns[1:]:
        column.justify = "right"
    for name, of in sorted(by(rows, "name").items(), key=lambda item: -average(item[1], "arrived")):
        flown = total(of, "flights")
        table.add_row(
            name,
            f"{flown:,}",
            f"{total(of, 'cancelled') / flown:.1%}",
            f"{total(of, 'late') / flown:.1%}",
            Text(f"{average(of, 'arrived'):.1f}", _colour(average(of, "arrived") * 2)),
            f"{max(row['worst_minutes'] or 0 for row in of):,}",
            str(sum(row["rank"] == 1 for row in of)),
        )
    return table


def conditions(rows: list[Row]) -> Table:
    """The year's departures by weather and airport, summed from the weeks."""
    table = Table("weather", "airport", "flights", "cancelled", "average min", title="from the topic weather-delays")
    for column in table.columns[2:]:
        column.justify = "right"
    for kind in WEATHER:
        for airport, of in sorted(by([row for row in rows if row["weather"] == kind], "airport").items()):
            flown = total(of, "flights")
            share, late = total(of, "cancelled") / flown, average(of, "flights", "cancelled")
            table.add_row(kind, airport, f"{flown:,}", f"{share:.1%}", Text(f"{late:.1f}", _colour(late * 2)))
    return table


def verdicts(judged: list[Verdict]) -> Table:
    """Whether each result topic is equal to pandas' figures."""
    table = Table("result topic", "rows", "figures", "against pandas", box=None, header_style="dim")
    for verdict in judged:
        word = Text("all equal", "bold green") if verdict.equal else Text("NOT EQUAL", "bold red")
        table.add_row(verdict.topic, f"{verdict.rows:,}", f"{verdict.figures:,}", word)
    return table


#: from the best weather to the worst
WEATHER = ("fair", "wind", "rain", "fog", "snow")


def by(rows: list[Row], column: str) -> dict[str, list[Row]]:
    """The rows by a column's value."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row[column], []).append(row)
    return groups


def total(rows: list[Row], column: str) -> int:
    """The sum of a column, nulls left out."""
    return sum(row[column] or 0 for row in rows)


def average(rows: list[Row], count: str, less: str | None = None) -> float:
    """Delay minutes divided by the flights of column `count`, minus those of column `less`."""
    number = total(rows, count) - (total(rows, less) if less else 0)
    return total(rows, "delay_minutes") / number if number else 0.0


def date(time_ms: int) -> str:
    """A day of event time."""
    return time.strftime("%Y-%m-%d", time.gmtime(time_ms / 1000))


def _colour(minutes: float) -> str:
    return "green" if minutes < 10 else "yellow" if minutes < 30 else "red"
