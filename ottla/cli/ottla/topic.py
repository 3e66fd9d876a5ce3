"""`ottla topics`: list, create, describe, grow, trim, copy, compare, analyze and delete topics."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.amount import counted, setting_value
from ottla.cli.option import Commands, admin, as_json, at_most, cluster, complete_topic, confirm, pairs, yes_option
from ottla.cli.ottla.topic_analyze import analyze
from ottla.cli.ottla.topic_copy import copy, diff
from ottla.cli.pattern import expand
from ottla.cli.place import place, with_time_hint
from ottla.kernel.error import OttlaError
from ottla.operations.offsets import plan_trim
from ottla.operations.topics.view import PartitionPlace, TopicDetails, TopicSummary, summaries, view

if TYPE_CHECKING:
    from ottla.client import Admin

_INT32_MAX = (1 << 31) - 1


def _complete_setting(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    from ottla.cli.ottla.config import complete_setting

    return complete_setting(context, parameter, incomplete)


@click.group(cls=Commands, invoke_without_command=True)
@cluster
@as_json
@click.pass_context
def topics(context: click.Context, bootstrap: str, client: tuple[str, ...], as_json: bool) -> None:
    """List, create, describe, grow, copy, compare, analyze and delete topics. Without a command, list them."""
    if context.invoked_subcommand is None:
        context.invoke(list_, bootstrap=bootstrap, client=client, names=(), internal=False, as_json=as_json)


@topics.command("list")
@cluster
@click.argument("names", nargs=-1, metavar="[NAME|PATTERN...]", shell_complete=complete_topic)
@click.option("-i", "--internal", is_flag=True, help="Include Kafka's internal topics.")
@as_json
def list_(bootstrap: str, client: tuple[str, ...], names: tuple[str, ...], internal: bool, as_json: bool) -> None:
    """List all topics, or those named, with their partitions, replicas, records and sizes.

    NAME may be a pattern: 'orders.*', or a regular expression between slashes: '/^orders-[0-9]+$/'.
    """
    from ottla.cli import screen

    with admin(bootstrap, client) as ask:
        chosen = _matching_topics(ask, names) if names else [topic.name for topic in ask.list_topics(internal=internal)]
        listed = summaries(ask, chosen)
    if as_json:
        screen.document([asdict(summary) for summary in listed])
        return
    columns = [
        screen.Column("topic", "name"),
        screen.Column("partitions", numeric=True),
        screen.Column("replicas", numeric=True),
        screen.Column("records", numeric=True),
        screen.Column("size", numeric=True),
    ]
    rows = [
        (summary.topic, summary.partitions, summary.replicas, summary.records, screen.size(summary.bytes))
        for summary in listed
    ]
    screen.table(columns, rows, empty="there are no topics yet; ottla topics create NAME creates one")


def _matching_topics(ask: Admin, names: Iterable[str]) -> list[str]:
    """Return the topics that names and patterns match. A pattern matches no internal topic."""
    there = ask.list_topics(internal=True)
    own = [listing.name for listing in there if not listing.internal]
    return expand(names, own, "topic", hidden=[listing.name for listing in there if listing.internal])


@topics.command()
@cluster
@click.argument("names", nargs=-1, required=True, metavar="NAME|PATTERN...", shell_complete=complete_topic)
@as_json
def describe(bootstrap: str, client: tuple[str, ...], names: tuple[str, ...], as_json: bool) -> None:
    """Show topics: their partitions, leaders, offsets, and the settings set on them."""
    from ottla.cli import screen

    with admin(bootstrap, client) as ask:
        details = [view(ask, name) for name in _matching_topics(ask, names)]
    if as_json:
        documents = [asdict(topic) for topic in details]
        screen.document(documents[0] if len(details) == 1 and names == (details[0].topic,) else documents)
        return
    for number, topic in enumerate(details):
        if number:
            screen.out().print()
        # A pipe gets no headings.
        _print_description(topic, named=len(details) > 1 and not screen.on_terminal())


def _print_description(topic: TopicDetails, *, named: bool) -> None:
    """Print the partitions and settings of a topic; `named` puts its name before each row."""
    from ottla.cli import screen

    own = [screen.Column("topic", "name")] * named
    screen.heading(topic.topic, f"id {topic.id}")
    columns = [
        *own,
        screen.Column("partition", numeric=True),
        screen.Column("leader", numeric=True),
        screen.Column("replicas"),
        screen.Column("in sync"),
        screen.Column("start", numeric=True),
        screen.Column("end", numeric=True),
        screen.Column("records", numeric=True),
    ]
    screen.table(columns, ([topic.topic] * named + _partition_row(row) for row in topic.partitions))
    if topic.configs:
        screen.heading("\nsettings of this topic")
        columns = [*own, screen.Column("setting", "name"), screen.Column("value")]
        screen.table(columns, ([topic.topic] * named + [*pair] for pair in sorted(topic.configs.items())))


def _partition_row(row: PartitionPlace) -> list[object]:
    from ottla.cli import screen

    start, end = row.start_offset, row.end_offset
    return [
        row.partition,
        screen.coloured("none", "red") if row.leader is None else row.leader,
        _ids(row.replicas),
        screen.coloured(_ids(row.isr), "yellow" if len(row.isr) < len(row.replicas) else "green"),
        start,
        end,
        None if start is None or end is None else end - start,
    ]


def _ids(ids: Iterable[int]) -> str:
    return " ".join(map(str, ids))


@topics.command()
@cluster
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=complete_topic)
@click.option(
    "-p",
    "--partitions",
    type=click.IntRange(1),
    callback=at_most(_INT32_MAX),
    default=None,
    help="Number of partitions (default: the cluster's).",
)
@click.option(
    "-r",
    "--replicas",
    "--replication-factor",
    type=click.IntRange(1),
    callback=at_most((1 << 15) - 1),
    default=None,
    help="Number of replicas (default: the cluster's).",
)
@click.option(
    "-s",
    "--set",
    "settings",
    metavar="KEY=VALUE",
    multiple=True,
    shell_complete=_complete_setting,
    help="Setting, e.g. retention.ms=7d; may be repeated.",
)
@click.option("--if-not-exists", is_flag=True, help="Do not fail if the topic exists.")
@as_json
def create(
    bootstrap: str,
    client: tuple[str, ...],
    names: tuple[str, ...],
    partitions: int | None,
    replicas: int | None,
    settings: tuple[str, ...],
    if_not_exists: bool,
    as_json: bool,
) -> None:
    """Create topics."""
    from ottla.cli import screen
    from ottla.client import ErrorCode, NewTopic

    configs = {key: setting_value(key, value) for key, value in pairs(settings, "--set").items()}
    wanted = [NewTopic(name, partitions or -1, replicas or -1, configs) for name in dict.fromkeys(names)]
    with admin(bootstrap, client) as ask:
        results = ask.create_topics(wanted)
    failed = {
        name: error
        for name, error in results.errors.items()
        if not (if_not_exists and error.code is ErrorCode.TOPIC_ALREADY_EXISTS)
    }
    made: list[dict[str, Any]] = [
        {"topic": name, "partitions": topic.partitions, "replicas": topic.replication_factor}
        for name, topic in ((topic.name, results[topic.name]) for topic in wanted if topic.name not in results.errors)
    ]
    lines = [f"created {topic['topic']} with {screen.counted(topic['partitions'], 'partition')}" for topic in made]
    screen.report_each(as_json, made, lines, failed)


@topics.command()
@cluster
@click.argument("names", nargs=-1, required=True, metavar="NAME|PATTERN...", shell_complete=complete_topic)
@yes_option
@click.option("-n", "--dry-run", is_flag=True, help="Only show which topics would be deleted.")
@as_json
def delete(
    bootstrap: str, client: tuple[str, ...], names: tuple[str, ...], yes: bool, dry_run: bool, as_json: bool
) -> None:
    """Delete topics with all their records. NAME may be a pattern, 'orders.*' or '/^orders-[0-9]+$/'."""
    from ottla.cli import screen

    with admin(bootstrap, client) as ask:
        meant = _matching_topics(ask, names)
        if dry_run:
            screen.report(as_json, {"would_delete": meant}, *(f"{name} would be deleted" for name in meant))
            return
        if not yes:
            confirm(_question(summaries(ask, meant)), yes=False)
        results = ask.delete_topics(meant)
    deleted = [name for name in meant if name not in results.errors]
    screen.report_each(as_json, {"deleted": deleted}, [f"deleted {name}" for name in deleted], results.errors)


def _question(topics_to_delete: list[TopicSummary]) -> str:
    shown = [
        f"{summary.topic} with {'? records' if summary.records is None else counted(summary.records, 'record')}"
        for summary in topics_to_delete
    ]
    if len(shown) == 1:
        return f"delete {shown[0]} forever?"
    lines = "".join(f"  {text}\n" for text in shown)
    return f"{lines}delete these {len(shown)} topics forever?"


@topics.command()
@cluster
@click.argument("name", shell_complete=complete_topic)
@click.option(
    "--before", "target", required=True, metavar="WHERE", help="Place: latest (all), an offset, -N, or a time."
)
@click.option("-p", "--partition", "only", type=int, multiple=True, help="Only this partition; may be repeated.")
@yes_option
@as_json
def trim(
    bootstrap: str, client: tuple[str, ...], name: str, target: str, only: tuple[int, ...], yes: bool, as_json: bool
) -> None:
    """Delete the records of a topic before a place, permanently.

    WHERE is latest, an offset (100), -N (-100 keeps the last 100), or a time (2026-11-21T06:00).
    """
    from ottla.cli import screen

    with admin(bootstrap, client) as ask:
        with with_time_hint(target):
            trim = plan_trim(ask, name, place(target), only)
        confirm(f"delete {counted(trim.records, 'record')} of {name} forever?", yes=yes)
        results = ask.delete_records(trim.goals)
    rows = [{"partition": partition.partition, "start_offset": results[partition]} for partition in trim.goals]
    screen.report(
        as_json,
        {"topic": name, "deleted": trim.records, "partitions": rows},
        f"deleted {counted(trim.records, 'record')} of {name}",
    )


@topics.command()
@cluster
@click.argument("name", shell_complete=complete_topic)
@click.option(
    "-p",
    "--partitions",
    type=click.IntRange(1),
    callback=at_most(_INT32_MAX),
    required=True,
    help="The new number of partitions.",
)
@as_json
def grow(bootstrap: str, client: tuple[str, ...], name: str, partitions: int, as_json: bool) -> None:
    """Add partitions to a topic. New records may go to another partition than old records with the same key."""
    from ottla.cli import screen

    with admin(bootstrap, client) as ask:
        there = len(ask.describe_topic(name).partitions)
        if partitions <= there:
            raise OttlaError(f"{name} already has {counted(there, 'partition')}; their number can only grow")
        ask.create_partitions({name: partitions}).check()
    screen.report(as_json, {"topic": name, "partitions": partitions}, f"{name} has {partitions} partitions")


topics.add_command(copy)
topics.add_command(diff)
topics.add_command(analyze)
