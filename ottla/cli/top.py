"""`ottla top`: the current activity of a cluster: records and bytes a second by topic, and the lag of groups."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.option import Tool, admin, as_json, cluster
from ottla.operations.rates import ClusterSample, group_rows, take_sample, topic_rows

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ottla.client import Admin

_SORTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "rate": lambda row: (-(row["records_per_s"] or 0), row["topic"]),
    "records": lambda row: (-(row["records"] or 0), row["topic"]),
    "size": lambda row: (-(row["bytes"] or 0), row["topic"]),
    "name": lambda row: row["topic"],
}


@click.command(cls=Tool)
@cluster
@click.option("--interval", type=click.FloatRange(0.1), default=2.0, show_default=True, help="Seconds between updates.")
@click.option("--once", is_flag=True, help="Print one update after one interval and exit.")
@click.option("--sort", type=click.Choice(list(_SORTS)), default="rate", show_default=True, help="Order of the topics.")
@click.option("-i", "--internal", is_flag=True, help="Include Kafka's internal topics.")
@as_json
def top(
    bootstrap: str,
    client: tuple[str, ...],
    interval: float,
    once: bool,
    sort: str,
    internal: bool,
    as_json: bool,
) -> None:
    """Show the activity of the cluster until Ctrl-C: rates by topic, the lag of groups.

    In a pipe, or with --json, it prints a table or a document at every interval.
    """
    from ottla.cli import screen

    with admin(bootstrap, client) as ask:
        before = take_sample(ask, internal=internal)
        if screen.on_terminal() and not once and not as_json:
            _watch(ask, before, bootstrap, interval, sort, internal)
            return
        while True:
            time.sleep(interval)
            now = take_sample(ask, internal=internal)
            topics, groups = sorted(topic_rows(before, now), key=_SORTS[sort]), group_rows(before, now)
            if as_json:
                screen.line({"topics": topics, "groups": groups})
            else:
                _print(topics, groups)
            if once:
                return
            before = now


_TOPICS = ("topic", "partitions", "records", "records/s", "size", "size/s", "hottest")
_GROUPS = ("group", "state", "members", "lag", "lag/s")


def _topic_cells(row: dict[str, Any]) -> list[object]:
    from ottla.cli import screen

    size, flow, rate = row["bytes"], row["bytes_per_s"], row["records_per_s"]
    return [
        row["topic"],
        row["partitions"],
        row["records"],
        None if rate is None else f"{rate:,.0f}" if rate >= 10 else f"{rate:g}",
        None if size is None else screen.size(size),
        None if flow is None else f"{screen.size(int(flow))}/s",
        row["hottest_partition"],
    ]


def _group_cells(row: dict[str, Any]) -> list[object]:
    change = row["lag_per_s"]
    return [row["group"], row["state"], row["members"], row["lag"], None if change is None else f"{change:+,.0f}"]


def _print(topics: list[dict[str, Any]], groups: list[dict[str, Any]]) -> None:
    from ottla.cli import screen

    columns = [
        screen.Column(title, "" if number else "name", numeric=number > 0) for number, title in enumerate(_TOPICS)
    ]
    screen.table(columns, map(_topic_cells, topics), empty="there are no topics yet")
    if groups:
        if screen.on_terminal():
            screen.out().print()
        columns = [screen.Column("group", "name"), screen.Column("state")]
        columns += [screen.Column(title, numeric=True) for title in _GROUPS[2:]]
        screen.table(columns, map(_group_cells, groups))


def _watch(ask: Admin, before: ClusterSample, bootstrap: str, interval: float, sort: str, internal: bool) -> None:
    """Show the live view on the terminal's alternate screen."""
    from rich.live import Live

    from ottla.cli import screen

    try:
        with Live(console=screen.out(), screen=True, auto_refresh=False) as live:
            live.update(_page(before, None, bootstrap, sort), refresh=True)
            while True:
                time.sleep(interval)
                now = take_sample(ask, internal=internal)
                live.update(_page(now, before, bootstrap, sort), refresh=True)
                before = now
    except KeyboardInterrupt:
        return


def _page(now: ClusterSample, before: ClusterSample | None, bootstrap: str, sort: str) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    from ottla.cli import screen

    topics = sorted(topic_rows(before, now), key=_SORTS[sort])
    groups = group_rows(before, now)
    height = screen.out().height
    room = max(3, height - 6 - min(len(groups), height // 3))
    rate = sum(row["records_per_s"] or 0 for row in topics)
    head = Text.assemble(
        (f"{bootstrap}  ", "bold"),
        f"{screen.counted(len(topics), 'topic')}, {rate:,.0f} records/s  ",
        (time.strftime("%H:%M:%SZ", time.gmtime()) + "  Ctrl-C to stop", "dim"),
    )
    left = len(topics) - room
    parts: list[RenderableType] = [head, Text(), _grid(_TOPICS, [_topic_cells(topic) for topic in topics[:room]], 1)]
    if left > 0:
        parts.append(Text(f"and {left:,} more topics", style="dim"))
    if groups:
        shown = [_group_cells(group) for group in groups[: max(1, height // 3)]]
        parts += [Text(), _grid(_GROUPS, shown, 2)]
    return Group(*parts)


def _grid(titles: tuple[str, ...], rows: list[list[object]], words: int) -> RenderableType:
    """Return a table whose first `words` columns are text and the others numbers."""
    from ottla.cli import screen

    columns = [screen.Column(title, "" if at else "name", numeric=at >= words) for at, title in enumerate(titles)]
    return screen.fitting(columns, rows)
