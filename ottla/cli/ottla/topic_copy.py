"""`ottla topics copy` and `ottla topics diff`: the records of one topic into another, and whether two hold the same.

Rules:
- A copy keeps keys, values, headers and timestamps to the byte, and the partition of each record where the target has
  as many partitions as the source; elsewhere the key decides. Offsets are new.
- A target that has records already is refused without --append: a copy that is started twice doubles nothing.
- A copy that ends early says where to go on: --from 0:1200,1:1180.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.option import Tool, admin, admin_of, as_json, client_settings, cluster, complete_topic, other_cluster
from ottla.cli.place import offsets_at
from ottla.cli.records.input import InputRecord
from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.operations.offsets import Offsets, bounds, partitions_of

if TYPE_CHECKING:
    from ottla.client import Admin, TopicPartition
    from ottla.columns.record import ConsumerRecord

_to = click.option("--to", "other", metavar="HOST:PORT|PROFILE", help="The cluster of the second topic.")
_DIFFERENCES_MAX = 10


@click.command(cls=Tool)
@cluster
@click.argument("source", shell_complete=complete_topic)
@click.argument("target")
@_to
@click.option(
    "-s", "--from", "start", default="earliest", metavar="WHERE", help="Begin there (consume --from; P:N,...)."
)
@click.option("--until", metavar="WHERE", help="Stop before this offset or time (default: at the end).")
@click.option("--create", is_flag=True, help="Create the target like the source if it does not exist.")
@click.option("--append", is_flag=True, help="The target may have records already.")
@click.option("--committed", is_flag=True, help="Leave out records of transactions that are not committed.")
@as_json
def copy(
    bootstrap: str,
    client: tuple[str, ...],
    source: str,
    target: str,
    other: str | None,
    start: str,
    until: str | None,
    create: bool,
    append: bool,
    committed: bool,
    as_json: bool,
) -> None:
    """Copy the records of SOURCE to TARGET, in this cluster or another."""
    if source == target and other in (None, bootstrap):
        raise click.UsageError("a topic is not copied into itself")
    with admin(bootstrap, client) as ask:
        partitions = partitions_of(ask, source)
        begins = offsets_at(ask, partitions, start)
        ends = offsets_at(ask, partitions, until or "latest")
        own = _own_settings(ask, source) if create else {}
    destination = other_cluster(other) if other else client_settings(bootstrap, client)
    with admin_of(destination) as there:
        count = _prepared(there, target, len(partitions), own, create=create, append=append)
    keeps = count == len(partitions)
    settings = client_settings(bootstrap, client)
    settings["isolation.level"] = "read_committed" if committed else "read_uncommitted"
    _run(settings, destination, begins, ends, target, keeps=keeps, as_json=as_json)


def _run(
    source: dict[str, object],
    destination: dict[str, object],
    begins: Offsets,
    ends: Offsets,
    target: str,
    *,
    keeps: bool,
    as_json: bool,
) -> None:
    from ottla.cli import screen
    from ottla.cli.records.read import polls
    from ottla.cli.records.write import Writer
    from ottla.client import Consumer, Producer, TopicPartition

    total = sum(max(0, ends[each] - begins[each]) for each in begins)
    sent: deque[TopicPartition] = deque()
    reached = dict(begins)
    offsets: deque[int] = deque()

    def settle(writer: Writer, before: int) -> int:
        for _ in range(writer.written - before):
            reached[sent.popleft()] = offsets.popleft() + 1
        return writer.written

    with Consumer(source) as consumer, Producer(destination) as producer, screen.progress(target, total) as bar:
        writer = Writer(producer, target)
        done = 0
        try:
            for records in polls(consumer, begins, ends):
                for record in records:
                    partition = TopicPartition(record.topic, record.partition)
                    if record.offset < ends[partition]:
                        sent.append(partition)
                        offsets.append(record.offset)
                        writer.send(_record(record, keeps=keeps))
                writer.look()
                done = settle(writer, done)
                bar.update(bar.task_ids[0], completed=done, count=done)
            writer.finish()
        except (OttlaError, KafkaError, KeyboardInterrupt) as error:
            writer.settle()
            settle(writer, done)
            places = ",".join(f"{each.partition}:{at}" for each, at in sorted(reached.items()))
            told = f"{writer.written:,} records are copied; go on with --append --from {places}"
            if isinstance(error, KeyboardInterrupt):
                screen.note(told)
                raise
            raise OttlaError(f"{screen.in_words(error)}; {told}") from error
    how = "partition by partition" if keeps else "to partitions by their keys"
    screen.told(
        as_json, {"topic": target, "records": writer.written}, f"{writer.written:,} records copied to {target}, {how}"
    )


def _record(record: ConsumerRecord, *, keeps: bool) -> InputRecord:
    timestamp = record.timestamp if record.timestamp >= 0 else None
    partition = record.partition if keeps else None
    return InputRecord(record.value, record.key, list(record.headers), partition, timestamp, 0)


def _own_settings(ask: Admin, topic: str) -> dict[str, str]:
    from ottla.client import ConfigResource, ResourceType

    entries = ask.describe_config(ConfigResource(ResourceType.TOPIC, topic)).values()
    return {each.name: each.value for each in entries if each.source.name == "DYNAMIC_TOPIC_CONFIG" and each.value}


def _prepared(ask: Admin, target: str, partitions: int, own: dict[str, str], *, create: bool, append: bool) -> int:
    """The target's partitions; made when it is not there and may be."""
    from ottla.client import NewTopic

    try:
        there = partitions_of(ask, target)
    except KafkaError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        if not create:
            raise OttlaError(f"there is no topic {target}; --create makes it as the source is") from error
        ask.create_topics([NewTopic(target, partitions, configs=own)]).check()
        return partitions
    if not append:
        starts, ends = bounds(ask, there)
        if held := sum(ends[each] - starts[each] for each in there):
            raise OttlaError(f"{target} has {held:,} records already; --append adds to them")
    return len(there)


@click.command(cls=Tool)
@cluster
@click.argument("first", shell_complete=complete_topic)
@click.argument("second")
@_to
@as_json
def diff(bootstrap: str, client: tuple[str, ...], first: str, second: str, other: str | None, as_json: bool) -> int:
    """Compare two topics, partition by partition: records and settings. Exit code 1 when they differ."""
    from ottla.cli import screen

    with admin(bootstrap, client) as ask:
        ours, our_settings = partitions_of(ask, first), _own_settings(ask, first)
        our_bounds = bounds(ask, ours)
    left = client_settings(bootstrap, client)
    right = other_cluster(other) if other else left
    with admin_of(right) as ask:
        theirs, their_settings = partitions_of(ask, second), _own_settings(ask, second)
        their_bounds = bounds(ask, theirs)
    found = [
        f"setting {name}: {our_settings.get(name, '(default)')} | {their_settings.get(name, '(default)')}"
        for name in sorted({*our_settings, *their_settings})
        if our_settings.get(name) != their_settings.get(name)
    ]
    same = 0
    if len(ours) != len(theirs):
        found.append(f"partitions: {len(ours)} | {len(theirs)} (their records are not compared)")
    else:
        for mine, yours in zip(ours, theirs, strict=True):
            here = _each(left, mine, our_bounds[0][mine], our_bounds[1][mine])
            there = _each(right, yours, their_bounds[0][yours], their_bounds[1][yours])
            alike, differences = compared(here, there)
            same += alike
            found += [f"partition {mine.partition}: {each}" for each in differences]
    if as_json:
        screen.document({"same": not found, "equal_records": same, "differences": found})
    elif found:
        for each in found:
            click.echo(screen.visible(each) if screen.on_terminal() else each)
    else:
        screen.done(f"{first} and {second} hold the same {same:,} records")
    return 1 if found else 0


def _each(settings: dict[str, object], partition: TopicPartition, begin: int, end: int) -> Iterator[ConsumerRecord]:
    from ottla.cli.records.read import polls
    from ottla.client import Consumer

    with Consumer(settings) as consumer:
        for records in polls(consumer, {partition: begin}, {partition: end}):
            yield from (each for each in records if each.offset < end)


def compared(ours: Iterator[ConsumerRecord], theirs: Iterator[ConsumerRecord]) -> tuple[int, list[str]]:
    """How many records are equal, in their order, and the first differences. Offsets may differ."""
    from itertools import zip_longest

    found: list[str] = []
    same = rest = 0
    for mine, yours in zip_longest(ours, theirs):
        if mine is None or yours is None:
            rest += 1
            continue
        parts = [name for name in ("key", "value", "timestamp") if getattr(mine, name) != getattr(yours, name)]
        if list(mine.headers) != list(yours.headers):
            parts.append("headers")
        if not parts:
            same += 1
        elif len(found) < _DIFFERENCES_MAX:
            shown = ", ".join(f"{each} {_pair(each, mine, yours)}" for each in parts)
            found.append(f"offset {mine.offset} | {yours.offset}: {shown}")
        else:
            found[-1] = found[-1].partition(" (and more")[0] + " (and more)"
    if rest:
        found.append(f"{rest:,} records more on one side")
    return same, found


def _pair(part: str, mine: Any, yours: Any) -> str:
    return f"{_short(getattr(mine, part))} | {_short(getattr(yours, part))}"


def _short(value: Any) -> str:
    text = value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)
    return text if len(text) <= 30 else f"{text[:30]}..."
