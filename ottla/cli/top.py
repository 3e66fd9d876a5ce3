"""`ottla top`: what a cluster does now: records and bytes a second by topic, and how far groups are behind.

Rules:
- A rate is the difference of two looks. Records come from end offsets, bytes from the sizes of the logs (with retention
  at work a log may shrink: no rate then).
- A topic that is new since the last look has no rate yet; one that was deleted is gone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.option import Tool, admin, as_json, cluster
from ottla.kernel.error import KafkaError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ottla.client import Admin

_SORTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "rate": lambda row: (-(row["records_per_s"] or 0), row["topic"]),
    "records": lambda row: (-(row["records"] or 0), row["topic"]),
    "size": lambda row: (-(row["bytes"] or 0), row["topic"]),
    "name": lambda row: row["topic"],
}


@dataclass(frozen=True, slots=True)
class Look:
    """What was found at one moment. Partitions are (topic, number)."""

    at: float
    ends: Mapping[tuple[str, int], int]
    starts: Mapping[tuple[str, int], int]
    sizes: Mapping[str, int]
    #: Group to (state, members, lag).
    groups: Mapping[str, tuple[str, int, int | None]] = field(default_factory=dict)


def topic_rows(before: Look | None, now: Look) -> list[dict[str, Any]]:
    """By topic: partitions, records, bytes, the rates of both since `before`, and its hottest partition."""
    rows = []
    seconds = 0.0 if before is None else now.at - before.at
    for topic in sorted({name for name, _ in now.ends}):
        numbers = sorted(number for name, number in now.ends if name == topic)
        grown = {}
        if before is not None and seconds > 0:
            for number in numbers:
                was = before.ends.get((topic, number))
                if was is not None and now.ends[topic, number] >= was:
                    grown[number] = (now.ends[topic, number] - was) / seconds
        size, had = now.sizes.get(topic), None if before is None else before.sizes.get(topic)
        flow = None if size is None or had is None or seconds <= 0 or size < had else (size - had) / seconds
        hot = max(grown, key=lambda number: grown[number], default=None)
        rows.append(
            {
                "topic": topic,
                "partitions": len(numbers),
                "records": sum(now.ends[topic, each] - now.starts.get((topic, each), 0) for each in numbers),
                "bytes": size,
                "records_per_s": round(sum(grown.values()), 1) if grown else None,
                "bytes_per_s": None if flow is None else round(flow, 1),
                "hottest_partition": hot if hot is not None and len(numbers) > 1 and grown[hot] > 0 else None,
            }
        )
    return rows


def group_rows(before: Look | None, now: Look) -> list[dict[str, Any]]:
    """By group: state, members, lag, and how fast the lag grows (negative: it catches up)."""
    rows = []
    seconds = 0.0 if before is None else now.at - before.at
    for group, (state, members, lag) in now.groups.items():
        had = None if before is None or group not in before.groups else before.groups[group][2]
        change = None if lag is None or had is None or seconds <= 0 else round((lag - had) / seconds, 1)
        rows.append({"group": group, "state": state, "members": members, "lag": lag, "lag_per_s": change})
    return sorted(rows, key=lambda row: (-(row["lag"] or 0), row["group"]))


def look(ask: Admin, *, internal: bool) -> Look:
    """Ask the cluster."""
    from ottla.client import OffsetSpec, TopicPartition
    from ottla.operations.group_view import look as look_at_group

    topics = ask.describe_topics([each.name for each in ask.list_topics(internal=internal)]).succeeded
    led = [
        TopicPartition(name, each.partition)
        for name, topic in topics.items()
        for each in topic.partitions
        if each.leader is not None
    ]
    ends = ask.list_offsets(dict.fromkeys(led, OffsetSpec.LATEST)).succeeded if led else {}
    at = time.monotonic()
    starts = ask.list_offsets(dict.fromkeys(led, OffsetSpec.EARLIEST)).succeeded if led else {}
    sizes: dict[str, int] = {}
    for directories in ask.describe_log_dirs().succeeded.values():
        for replica in (one for each in directories for one in each.replicas if not one.future):
            sizes[replica.partition.topic] = sizes.get(replica.partition.topic, 0) + replica.size
    groups: dict[str, tuple[str, int, int | None]] = {}
    for listing in ask.list_groups():
        try:
            found = look_at_group(ask, listing.id, listing.type)
        except KafkaError:
            continue  # it went away meanwhile
        groups[listing.id] = (found.state, len(found.members), found.lag)
    return Look(
        at,
        {(each.topic, each.partition): one.offset for each, one in ends.items()},
        {(each.topic, each.partition): one.offset for each, one in starts.items()},
        sizes,
        groups,
    )


@click.command(cls=Tool)
@cluster
@click.option("--interval", type=click.FloatRange(0.1), default=2.0, show_default=True, help="Seconds between looks.")
@click.option("--once", is_flag=True, help="Look twice, one interval apart, and end.")
@click.option("--sort", type=click.Choice(list(_SORTS)), default="rate", show_default=True, help="Which come first.")
@click.option("-i", "--internal", is_flag=True, help="Kafka's own topics, too.")
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
    """Show what the cluster does now, until Ctrl-C: rates by topic, the lag of groups.

    In a pipe, and with --json, a table or a document comes at every interval.
    """
    from ottla.cli import screen

    with admin(bootstrap, client) as ask:
        before = look(ask, internal=internal)
        if screen.on_terminal() and not once and not as_json:
            _watch(ask, before, bootstrap, interval, sort, internal)
            return
        while True:
            time.sleep(interval)
            now = look(ask, internal=internal)
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

    columns = [screen.Column(each, "" if number else "name", numeric=number > 0) for number, each in enumerate(_TOPICS)]
    screen.table(columns, map(_topic_cells, topics), empty="there is no topic yet")
    if groups:
        if screen.on_terminal():
            screen.out().print()
        columns = [screen.Column("group", "name"), screen.Column("state")]
        columns += [screen.Column(each, numeric=True) for each in _GROUPS[2:]]
        screen.table(columns, map(_group_cells, groups))


def _watch(ask: Admin, before: Look, bootstrap: str, interval: float, sort: str, internal: bool) -> None:
    """The live view, on a screen of its own."""
    from rich.live import Live

    from ottla.cli import screen

    try:
        with Live(console=screen.out(), screen=True, auto_refresh=False) as live:
            live.update(_page(before, None, bootstrap, sort), refresh=True)
            while True:
                time.sleep(interval)
                now = look(ask, internal=internal)
                live.update(_page(now, before, bootstrap, sort), refresh=True)
                before = now
    except KeyboardInterrupt:
        return


def _page(now: Look, before: Look | None, bootstrap: str, sort: str) -> RenderableType:
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
        f"{len(topics):,} topics, {rate:,.0f} records/s  ",
        (time.strftime("%H:%M:%SZ", time.gmtime()) + "  Ctrl-C ends", "dim"),
    )
    left = len(topics) - room
    parts: list[RenderableType] = [head, Text(), _grid(_TOPICS, [_topic_cells(each) for each in topics[:room]], 1)]
    if left > 0:
        parts.append(Text(f"and {left:,} more topics", style="dim"))
    if groups:
        shown = [_group_cells(each) for each in groups[: max(1, height // 3)]]
        parts += [Text(), _grid(_GROUPS, shown, 2)]
    return Group(*parts)


def _grid(titles: tuple[str, ...], rows: list[list[object]], words: int) -> RenderableType:
    """A table whose first `words` columns are text and whose others are numbers."""
    from ottla.cli import screen

    columns = [screen.Column(title, "" if at else "name", numeric=at >= words) for at, title in enumerate(titles)]
    return screen.grid(columns, rows)
