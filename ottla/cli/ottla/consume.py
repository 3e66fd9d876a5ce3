"""`ottla consume`: read existing and new records.

Rules:
- Without a group, it starts at the end (with `-e` at the beginning) or at `--from`, and stores no offsets. With `-g` it
  is a member of that group: it starts at the committed offsets, and commits the records that it has shown.
- It follows new records until Ctrl-C; `-e` stops at the end offsets of the start, `--until` at a place, `-n` after a
  number of records.
- In a pipe, a line is a value; with `--json`, it is a whole record that `ottla produce --format json` accepts.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.option import (
    F,
    Tool,
    admin,
    as_json,
    client_settings,
    cluster,
    complete_group,
    complete_topic,
    usage_errors,
)
from ottla.cli.place import offsets_at
from ottla.kernel.error import OttlaError
from ottla.operations.offsets import stable

if TYPE_CHECKING:
    from ottla.cli.records.read import Wanted
    from ottla.client import TopicPartition


def reading(function: F) -> F:
    """Add the options that select records."""
    options = (
        click.option(
            "-s",
            "--from",
            "start",
            metavar="WHERE",
            help="Start at earliest, latest, an offset, -N (before the end), a time (2026-11-21T06:00Z, @MS), or a "
            "time ago (2h).",
        ),
        click.option("--until", metavar="WHERE", help="Stop before this offset or time (now: the current end)."),
        click.option(
            "-p",
            "--partition",
            "only",
            type=click.IntRange(0),
            multiple=True,
            help="Only this partition; may be repeated.",
        ),
        click.option(
            "--grep", metavar="PATTERN", help="Only records with this regular expression in the key, value or headers."
        ),
        click.option(
            "--where",
            "condition",
            metavar="EXPRESSION",
            help="Only records for which this is true, e.g. 'value.price > 50'.",
        ),
        click.option(
            "--committed",
            is_flag=True,
            help="Leave out records of transactions that are not committed (read_committed).",
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


@click.command(cls=Tool)
@cluster
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...", shell_complete=complete_topic)
@click.option("-g", "--group", help="Read as a member of this group, and commit.", shell_complete=complete_group)
@click.option("--share", "queue", metavar="GROUP", help="Read as a member of this share group, and accept.")
@reading
@click.option("--from-beginning", is_flag=True, help="Same as --from earliest.")
@click.option(
    "--tail", type=click.IntRange(1), metavar="N", help="Start with the last N records of all partitions, by time."
)
@click.option("-n", "--count", type=click.IntRange(1), help="Stop after this many records.")
@click.option("-e", "--exit", "stop_at_end", is_flag=True, help="Stop at the end instead of following.")
@click.option("-k", "--keys", is_flag=True, help="In a pipe, print KEY, a tab, VALUE.")
@click.option("-o", "--output", metavar="TEMPLATE", help=r"Format of a record, e.g. '{key} {value.price} {headers}\n'.")
@click.option("-Z", "--null", metavar="TEXT", help=r"Text for a null (default: (null); in a pipe, \N).")
@as_json
def consume(
    bootstrap: str,
    client: tuple[str, ...],
    topics: tuple[str, ...],
    group: str | None,
    queue: str | None,
    keys: bool,
    output: str | None,
    null: str | None,
    as_json: bool,
    grep: str | None,
    condition: str | None,
    **options: Any,
) -> None:
    """Read records of TOPIC, and keep following new ones.

    \b
    ottla consume flights                      new records from now on
    ottla consume flights --from-beginning     all records, then new ones
    ottla consume flights -e                   all existing records
    ottla consume flights --tail 20 -e         the last twenty, over all partitions
    ottla consume flights -s 2026-11-21T06:00Z --until 2h
    ottla consume orders -e --where 'value.price > 50 and key != "ann"' -o '{key} {value.price:>8}\\n'
    ottla consume flights -g readers           as a member of a group
    ottla consume jobs --share workers         as a member of a share group (a queue)

    Fields in TEMPLATE and EXPRESSION: topic, partition, offset, timestamp, timestamp_ms, key, value, headers,
    header.NAME, and JSON paths such as value.a.b[0]. Operators: == != < <= > >= contains startswith endswith in and or
    not.
    """  # noqa: D301 - click wants the backspace itself
    from ottla.cli.records.show import json_line, writer

    if as_json and (output is not None or keys or null is not None):
        raise click.UsageError("--json cannot be combined with -o, -k or -Z")
    if keys and output:
        raise click.UsageError("-o cannot be combined with -k: put {key} into the template")
    with usage_errors():
        write = json_line if as_json else writer(keys=keys, topics=topics, null=null, output=output)
    wanted = wants(grep, condition)
    from ottla.cli.records import read

    if queue:
        places = ("start", "until", "tail", "from_beginning", "only", "stop_at_end")
        if group or wanted or any(options[name] for name in places):
            raise click.UsageError(
                "--share cannot be combined with -g, --from, -p, -e, --until, --tail, --grep or --where"
            )
        with admin(bootstrap, client) as ask:
            for topic in topics:
                ask.describe_topic(topic)
        settings = client_settings(bootstrap, client)
        read.read_share_group(settings, topics, queue, options["committed"], write, options["count"])
        return
    _read(bootstrap, client, topics, group, write, wanted, **options)


def _read(
    bootstrap: str,
    client: tuple[str, ...],
    topics: tuple[str, ...],
    group: str | None,
    write: Callable[[Any], str],
    wanted: Wanted | None,
    *,
    start: str | None,
    until: str | None,
    only: tuple[int, ...],
    committed: bool,
    from_beginning: bool,
    tail: int | None,
    count: int | None,
    stop_at_end: bool,
) -> None:
    from ottla.cli.records import read

    if start and from_beginning:
        raise click.UsageError("use either --from or --from-beginning, not both")
    start = "earliest" if from_beginning else start
    if group and (only or until or tail or start not in (None, "earliest", "latest")):
        raise click.UsageError(
            "-g starts at the group's offsets: use --from earliest or latest only, and no -p, --until or --tail"
        )
    if tail and (until or count):
        raise click.UsageError("--tail cannot be combined with --until or -n")
    settings = client_settings(bootstrap, client)
    settings["isolation.level"] = "read_committed" if committed else "read_uncommitted"
    usual = "earliest" if stop_at_end or until or (tail and wanted) else "latest"
    begins, ends = bounds(bootstrap, client, topics, only, start or usual, until, committed=committed)
    stops = ends if stop_at_end or until else None
    if group:
        reset = start or ("earliest" if stop_at_end else "latest")
        settings |= {"group.id": group, "auto.offset.reset": reset, "enable.auto.commit": "false"}
        read.read_as_member(settings, topics, stops, write, wanted, count)
        return
    there = "records" if start else "new records (--from-beginning shows existing ones)"
    if tail:
        floor = begins if start or wanted else bounds(bootstrap, client, topics, only, "earliest", None)[0]
        read.read_tail(settings, floor, ends, write, wanted, tail, follow=stops is None)
        return
    read.read_range(settings, begins, ends, write, wanted, count, follow=stops is None, what=there)


def wants(grep: str | None, condition: str | None) -> Wanted | None:
    """Return the test of --grep and --where together; None when all records are wanted."""
    tests: list[Wanted] = []
    if condition is not None:
        from ottla.cli.records.where import where

        with usage_errors():
            tests.append(where(condition))
    if grep is not None:
        try:
            pattern = re.compile(grep.encode())
        except re.error as error:
            raise click.UsageError(f"--grep {grep}: invalid regular expression: {error}") from error
        tests.append(lambda record: _is_in(pattern, record))
    if not tests:
        return None
    return lambda record: all(test(record) for test in tests)


def _is_in(pattern: re.Pattern[bytes], record: Any) -> bool:
    if any(content is not None and pattern.search(content) for content in (record.value, record.key)):
        return True
    return any(pattern.search(name.encode() + b"=" + (content or b"")) for name, content in record.headers)


def bounds(
    bootstrap: str,
    client: tuple[str, ...],
    topics: tuple[str, ...],
    only: tuple[int, ...],
    start: str,
    until: str | None,
    *,
    committed: bool = False,
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Return (offsets where reading starts, offsets where it ends: the current end, or `until`).

    With `committed`, reading ends at the last stable offset at the latest: records after an open transaction are not
    returned before it ends.
    """
    from ottla.client import TopicPartition

    with admin(bootstrap, client) as ask:
        all_partitions = [
            TopicPartition(topic, partition.partition)
            for topic in dict.fromkeys(topics)
            for partition in ask.describe_topic(topic).partitions
        ]
        partitions = [tp for tp in all_partitions if not only or tp.partition in only]
        if missing := set(only) - {partition.partition for partition in partitions}:
            raise OttlaError(f"{', '.join(topics)} has no partition {', '.join(map(str, sorted(missing)))}")
        begins = offsets_at(ask, partitions, start)
        ends = offsets_at(ask, partitions, "latest" if until in (None, "now") else until)
        if committed:
            ends = stable(ask, ends)
        return begins, ends
