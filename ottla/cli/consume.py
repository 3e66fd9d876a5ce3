"""`ottla consume`: read records, those that are there and those that come.

Rules:
- Without a group it begins at the end (with `-e` at the beginning), or where `--from` says, and nobody remembers where
  it stopped. With `-g` it is a member of that group: it goes on where the group was, and commits.
- It follows until Ctrl-C; `-e` ends at what was the end when it began, `-n` after so many records.
- In a pipe a line is a value, with `--json` a whole record that `ottla produce --format json` takes.
"""

from __future__ import annotations

import json
import sys
import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.option import admin, as_json, client_settings, cluster, complete_group, complete_topic, reach

if TYPE_CHECKING:
    from ottla.client import Consumer, TopicPartition
    from ottla.client.acknowledgement import ShareRecord
    from ottla.client.record import ConsumerRecord

    Shown = ConsumerRecord | ShareRecord

#: How long one poll waits: how soon Ctrl-C and the end are noticed.
_POLL_S = 0.2


@click.command()
@cluster
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...", shell_complete=complete_topic)
@click.option("-g", "--group", help="Be a member of this group, and commit.", shell_complete=complete_group)
@click.option("--share", "queue", metavar="GROUP", help="Take records from a queue (a share group), and accept them.")
@click.option("-s", "--from", "start", metavar="WHERE", help="earliest, latest, an offset, -N, or a time.")
@click.option("--from-beginning", is_flag=True, help="The same as --from earliest.")
@click.option(
    "-p", "--partition", "only", type=click.IntRange(0), multiple=True, help="Only this one; may be repeated."
)
@click.option("-n", "--count", type=click.IntRange(1), help="Stop after so many records.")
@click.option("-e", "--exit", "stop_at_end", is_flag=True, help="Stop at the end instead of following.")
@click.option("-k", "--keys", is_flag=True, help="KEY, a tab, VALUE.")
@click.option("--committed", is_flag=True, help="Leave out what transactions have not committed.")
@as_json
def consume(
    bootstrap: str,
    client: tuple[str, ...],
    topics: tuple[str, ...],
    group: str | None,
    queue: str | None,
    start: str | None,
    from_beginning: bool,
    only: tuple[int, ...],
    count: int | None,
    stop_at_end: bool,
    keys: bool,
    committed: bool,
    as_json: bool,
) -> None:
    """Read records of TOPIC, and go on with those that come.

    \b
    ottla consume flights                      what comes from now on
    ottla consume flights --from-beginning     everything, then what comes
    ottla consume flights -e                   everything that is there
    ottla consume flights -s -10 -e            the last ten of each partition
    ottla consume flights -s 2026-11-21T06:00  since then
    ottla consume flights -g readers           as a member of a group
    ottla consume jobs --share workers         from a queue, each record to one of its members
    """  # noqa: D301 - click wants the backspace itself
    write = _json_line if as_json else _writer(keys=keys, several=len(topics) > 1)
    if queue:
        if group or start or from_beginning or only or stop_at_end:
            raise click.UsageError("a queue gives its records as they come: with --share no -g, --from, -p and -e")
        _share(client_settings(bootstrap, client), topics, queue, committed, write, count)
        return
    if start and from_beginning:
        raise click.UsageError("--from and --from-beginning: give one of them")
    start = "earliest" if from_beginning else start
    if group and (only or start not in (None, "earliest", "latest")):
        raise click.UsageError("a group knows where it is: with -g, --from takes earliest or latest, and no -p")
    settings = client_settings(bootstrap, client)
    settings["isolation.level"] = "read_committed" if committed else "read_uncommitted"
    if group:
        settings |= {"group.id": group, "auto.offset.reset": start or ("earliest" if stop_at_end else "latest")}
    usual = "earliest" if stop_at_end else "latest"
    begins, ends = _bounds(bootstrap, client, topics, only, start or usual)
    from ottla.client import Consumer

    with Consumer(settings) as consumer:
        if group:
            consumer.subscribe(list(topics))
        else:
            consumer.assign(list(begins))
            for partition, offset in begins.items():
                consumer.seek(partition, offset)
        polls = _polls(consumer, ends if stop_at_end else None)
        expected = _expected(begins, ends, count) if stop_at_end and not group else None
        there = "new records (--from-beginning shows those that are there)"
        _show(polls, write, count, expected, "records" if start or group else there)


def _share(
    settings: dict[str, object],
    topics: tuple[str, ...],
    group: str,
    committed: bool,
    write: Callable[[Shown], str],
    count: int | None,
) -> None:
    """As a member of a share group: what was shown is accepted, what `count` leaves over goes to others."""
    if committed:
        raise click.UsageError(f"--committed: a queue says that itself: ottla configs set group {group} ...")
    from ottla.client import Acknowledge, ShareConsumer

    reach(str(settings["bootstrap.servers"]), settings)
    settings |= {"group.id": group, "share.acknowledgement.mode": "explicit"}
    shown = 0

    def polls(consumer: ShareConsumer) -> Iterator[Sequence[Shown]]:
        nonlocal shown
        while True:
            records = consumer.poll(_POLL_S)
            for number, record in enumerate(records):
                here = count is None or shown + number < count
                consumer.acknowledge(record, Acknowledge.ACCEPT if here else Acknowledge.RELEASE)
            shown += len(records)
            yield records

    with ShareConsumer(settings) as consumer:
        consumer.subscribe(list(topics))
        _show(polls(consumer), write, count, None, "records of the queue")


def _bounds(
    bootstrap: str, client: tuple[str, ...], topics: tuple[str, ...], only: tuple[int, ...], start: str
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Where reading begins in each partition, and where each ends now."""
    from ottla.cli.group import offsets_at
    from ottla.client import TopicPartition
    from ottla.kernel.error import OttlaError

    with admin(bootstrap, client) as ask:
        found = [
            TopicPartition(topic, each.partition)
            for topic in dict.fromkeys(topics)
            for each in ask.describe_topic(topic).partitions
        ]
        partitions = [each for each in found if not only or each.partition in only]
        if not partitions:
            raise OttlaError(f"{', '.join(topics)} has no partition {', '.join(map(str, only))}")
        return offsets_at(ask, partitions, start), offsets_at(ask, partitions, "latest")


def _expected(begins: dict[TopicPartition, int], ends: dict[TopicPartition, int], count: int | None) -> int:
    whole = sum(ends[each] - begins[each] for each in begins)
    return whole if count is None else min(whole, count)


def _polls(consumer: Consumer, ends: dict[TopicPartition, int] | None) -> Iterator[list[ConsumerRecord]]:
    """What each poll brings, until all that is assigned has come to `ends`; for ever without."""
    while True:
        if ends is not None:
            assigned = consumer.assignment()
            if assigned and all(_at_end(consumer, each, ends) for each in assigned):
                return
        yield consumer.poll(_POLL_S)


def _at_end(consumer: Consumer, partition: TopicPartition, ends: dict[TopicPartition, int]) -> bool:
    end = ends.get(partition, 0)
    return end == 0 or consumer.position(partition) >= end


def _show(
    polls: Iterator[Sequence[Shown]],
    write: Callable[[Shown], str],
    count: int | None,
    expected: int | None,
    what: str,
) -> None:
    from ottla.cli import screen

    shown = 0
    began = time.monotonic()
    # A bar beside results that scroll by would only disturb.
    bar = None if screen.on_terminal() else screen.progress("reading", expected)
    try:
        if screen.on_terminal() and expected is None:
            screen.hint(f"waiting for {what}; Ctrl-C ends")
        if bar is not None:
            bar.start()
        for records in polls:
            some = records if count is None else records[: count - shown]
            if some:
                sys.stdout.write("".join(map(write, some)))
                sys.stdout.flush()
                shown += len(some)
            if bar is not None:
                rate = shown / max(time.monotonic() - began, 1e-9)
                bar.update(bar.task_ids[0], completed=shown, count=shown, rate=f"{rate:,.0f}/s")
            if shown == count:
                break
    except KeyboardInterrupt:
        # How a person ends what follows: no error.
        click.echo(err=True)
    finally:
        if bar is not None:
            bar.stop()
    screen.hint(f"{shown:,} record{'' if shown == 1 else 's'}")


def _writer(*, keys: bool, several: bool) -> Callable[[Shown], str]:
    """How a record becomes a line: decorated for people, bare for pipes."""
    from ottla.cli import screen

    if not screen.on_terminal():
        return _keyed_line if keys else _bare_line

    def line(record: Shown) -> str:
        place = f"{record.topic} " * several + f"{record.partition}:{record.offset}"
        parts = [screen.styled(f"{place:<8} {screen.instant(record.timestamp) or '-'}", dim=True)]
        if record.key is not None:
            parts.append(screen.styled(_text(record.key), "cyan"))
        parts.append(_text(record.value) if record.value is not None else screen.styled("null", dim=True))
        for name, content in record.headers:
            parts.append(screen.styled(f"{name}={_text(content)}", dim=True))
        return "  ".join(parts) + "\n"

    return line


def _bare_line(record: Shown) -> str:
    return _text(record.value) + "\n"


def _keyed_line(record: Shown) -> str:
    return f"{_text(record.key)}\t{_text(record.value)}\n"


def _json_line(record: Shown) -> str:
    found = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": _json(record.key),
        "value": _json(record.value),
        "headers": [[name, _json(content)] for name, content in record.headers],
    }
    return json.dumps(found, ensure_ascii=False, separators=(",", ":")) + "\n"


def _text(content: bytes | None) -> str:
    """For people: what is not text shows as such."""
    return "null" if content is None else content.decode(errors="backslashreplace")


def _json(content: bytes | None) -> Any:
    """Text, or {"base64": ...} for bytes that are none: nothing is lost."""
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(content).decode()}
