"""`ottla topics analyze`: statistics about the records of a topic."""

from __future__ import annotations

from typing import Any

import click

from ottla.cli.amount import counted, duration, instant, size
from ottla.cli.option import Tool, as_json, client_settings, cluster, complete_topic
from ottla.cli.ottla.consume import bounds, reading, wants
from ottla.operations.topics.analysis import Analysis


@click.command(cls=Tool)
@cluster
@click.argument("topic", shell_complete=complete_topic)
@reading
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(1),
    default=100_000,
    show_default=True,
    help="Maximum number of records to read.",
)
@as_json
def analyze(
    bootstrap: str,
    client: tuple[str, ...],
    topic: str,
    start: str | None,
    until: str | None,
    only: tuple[int, ...],
    grep: str | None,
    condition: str | None,
    committed: bool,
    limit: int,
    as_json: bool,
) -> None:
    """Show statistics about the records of a topic: sizes, keys, rates, JSON fields and their types."""
    from ottla.cli import screen
    from ottla.cli.records.read import chosen

    settings = client_settings(bootstrap, client)
    settings["isolation.level"] = "read_committed" if committed else "read_uncommitted"
    begins, ends = bounds(bootstrap, client, (topic,), only, start or "earliest", until, committed=committed)
    analysis = Analysis()
    with screen.progress(f"reading {topic}", min(limit, sum(ends.values()) - sum(begins.values()))) as bar:
        for record in chosen(settings, begins, ends, wants(grep, condition), limit):
            analysis.add(record)
            if analysis.records % 1000 == 0:
                bar.update(bar.task_ids[0], completed=analysis.records, count=analysis.records)
    statistics = analysis.document()
    if as_json:
        screen.document({"topic": topic, **statistics})
    else:
        _print(topic, statistics)


def _print(topic: str, statistics: dict[str, Any]) -> None:
    from ottla.cli import screen

    screen.heading(topic, f"{counted(statistics['records'], 'record')} read")
    first, last = statistics["first_timestamp"], statistics["last_timestamp"]
    values, keys = statistics["value_bytes"], statistics["key_bytes"]
    keyless = counted(statistics["without_key"], "record")
    at_least = "at least " if statistics["distinct_keys_is_least"] else ""
    rows: list[tuple[str, object]] = [
        ("time", None if first is None else f"{instant(first)} to {instant(last)} ({duration(last - first)})"),
        ("rate", None if statistics["records_per_s"] is None else f"{statistics['records_per_s']:,}/s"),
        ("values", ", ".join(f"{count:,} {kind}" for kind, count in statistics["values"].items()) or None),
        ("tombstones", statistics["tombstones"]),
        ("value size", _sizes(values)),
        ("key size", _sizes(keys)),
        (
            "keys",
            f"{at_least}{statistics['distinct_keys']:,} distinct, {keyless} without a key",
        ),
        ("top keys", ", ".join(f"{top['key']} ({top['records']:,})" for top in statistics["top_keys"]) or None),
        ("partitions", ", ".join(f"{number}: {count:,}" for number, count in statistics["partitions"].items()) or None),
        ("headers", ", ".join(f"{name} ({count:,})" for name, count in statistics["headers"].items()) or None),
    ]
    screen.table([screen.Column("", "dim"), screen.Column("")], rows, headless=True)
    if statistics["fields"]:
        screen.heading("\nfields")
        columns = [screen.Column("field", "name"), screen.Column("types"), screen.Column("share", numeric=True)]
        fields = statistics["fields"].items()
        screen.table(columns, [(name, ", ".join(field["types"]), f"{field['share']:.1%}") for name, field in fields])


def _sizes(sizes: dict[str, Any]) -> str | None:
    if not sizes["count"]:
        return None
    parts = (("mean", int(sizes["mean"])), ("p50", sizes["p50"]), ("p99", sizes["p99"]), ("max", sizes["max"]))
    return ", ".join(f"{name} {size(count)}" for name, count in parts)
