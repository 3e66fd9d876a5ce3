"""Reading and showing records, for `ottla consume` and `ottla export`.

Rules:
- A record is written to stdout and flushed before it is committed (group) or accepted (share group).
- Records beyond the end offsets are read, but neither shown nor committed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from heapq import nlargest
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.client_kind import settings_of
from ottla.client import TopicPartition
from ottla.operations.reading import POLL_S, from_first_left, never_creating, polls, until_ends

if TYPE_CHECKING:
    from ottla.cli.records.field import Shown
    from ottla.client import Consumer
    from ottla.client.acknowledgement import ShareRecord
    from ottla.columns.record import ConsumerRecord

Wanted = Callable[[Any], bool]
Write = Callable[[Any], str]
_WAIT = "waiting for {}; Ctrl-C to stop"


def read_range(
    settings: dict[str, object],
    begins: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    write: Write,
    wanted: Wanted | None,
    count: int | None,
    *,
    follow: bool,
    what: str,
) -> None:
    """Read without a group, from `begins` to `ends`, or with `follow` forever."""
    from ottla.client import Consumer

    with Consumer(from_first_left(settings_of("consumer", settings))) as consumer:
        whole = sum(max(0, ends[partition] - begins[partition]) for partition in begins)
        expected = None if follow else whole if count is None else min(whole, count)
        limits = None if follow else ends
        show(polls(consumer, begins, limits), write, wanted, count, expected, what, ends=limits)


def read_as_member(
    settings: dict[str, object],
    topics: Sequence[str],
    ends: Mapping[TopicPartition, int] | None,
    write: Write,
    wanted: Wanted | None,
    count: int | None,
) -> None:
    """Read as a member of a group, committing only records that were shown."""
    from ottla.cli.records.shown import Ledger
    from ottla.client import Consumer, RebalanceListener

    with Consumer(never_creating(settings_of("consumer", settings))) as consumer:
        ledger = Ledger(consumer)

        class Leaving(RebalanceListener):
            def revoked(self, partitions: list[TopicPartition]) -> None:
                ledger.commit()

            def lost(self, partitions: list[TopicPartition]) -> None:
                """Do not commit: the partitions belong to another member already."""

        consumer.subscribe(list(topics), listener=Leaving())

        def shown(size: int, _: Sequence[Shown], left: Sequence[Shown]) -> None:
            positions = dict(consumer.positions())
            for record in reversed(left):
                positions[TopicPartition(record.topic, record.partition)] = record.offset
            ledger.note_written(size, positions)
            ledger.commit_if_due()

        try:
            show(until_ends(consumer, ends), write, wanted, count, None, "records", ends=ends, shown=shown)
        finally:
            ledger.finish()


def read_share_group(
    settings: dict[str, object],
    topics: Sequence[str],
    group: str,
    committed: bool,
    write: Write,
    count: int | None,
) -> None:
    """Read as a member of a share group: accept the records shown, release those beyond `count`."""
    if committed:
        raise click.UsageError(f"--committed: use ottla configs set group {group} share.isolation.level=read_committed")
    from ottla.client import Acknowledge, ShareConsumer

    settings |= {"group.id": group, "share.acknowledgement.mode": "explicit"}

    with ShareConsumer(never_creating(settings_of("share", settings))) as consumer:
        consumer.subscribe(list(topics))

        def polled() -> Iterator[Sequence[ShareRecord]]:
            while True:
                yield consumer.poll(POLL_S)

        def shown(_: int, records: Sequence[ShareRecord], left: Sequence[ShareRecord]) -> None:
            for number, record in enumerate(records):
                here = number < len(records) - len(left)
                consumer.acknowledge(record, Acknowledge.ACCEPT if here else Acknowledge.RELEASE)

        show(polled(), write, None, count, None, "records of the share group", shown=shown)


def read_tail(
    settings: dict[str, object],
    floor: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    write: Write,
    wanted: Wanted | None,
    count: int,
    *,
    follow: bool,
) -> None:
    """Show the last `count` records of all partitions by time, then, with `follow`, new ones."""
    from ottla.client import Consumer

    with Consumer(from_first_left(settings_of("consumer", settings))) as consumer:
        last = _last(consumer, floor, ends, wanted, count)
        shown = show(iter([last]), write, None, None, len(last), "records", quiet=follow)
        if follow:
            show(polls(consumer, ends, None), write, wanted, None, None, "new records", already=shown)


def _last(
    consumer: Consumer,
    floor: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    wanted: Wanted | None,
    count: int,
) -> list[ConsumerRecord]:
    """Find the last `count` records. Offsets without a record (compacted, markers) make it search further back."""
    back = count
    while True:
        begins = {tp: max(floor[tp], ends[tp] - back) if wanted is None else floor[tp] for tp in ends}
        newest: list[ConsumerRecord] = []
        per: dict[TopicPartition, int] = {}
        for records in polls(consumer, begins, ends):
            batch, _ = _split(records, wanted, None, ends)
            for record in batch:
                partition = TopicPartition(record.topic, record.partition)
                per[partition] = per.get(partition, 0) + 1
            newest = nlargest(count, [*newest, *batch], key=_time_order)
        if all(begins[tp] == floor[tp] or per.get(tp, 0) >= count for tp in begins):
            return sorted(newest, key=_time_order)
        back *= 4


def _time_order(record: ConsumerRecord) -> tuple[int, int, int]:
    return record.timestamp, record.partition, record.offset


def show(
    batches: Iterator[Sequence[Any]],
    write: Write,
    wanted: Wanted | None,
    count: int | None,
    expected: int | None,
    what: str,
    *,
    ends: Mapping[TopicPartition, int] | None = None,
    shown: Callable[[int, Sequence[Any], Sequence[Any]], None] | None = None,
    quiet: bool = False,
    already: int = 0,
) -> int:
    """Write records to stdout and return their number. Calls `shown(bytes written, records of the poll, left over)`."""
    from ottla.cli import screen

    done = 0
    began = time.monotonic()
    bar = screen.progress("reading", expected) if screen.into_file() else None
    try:
        if screen.on_terminal() and expected is None:
            screen.hint(_WAIT.format(what))
        if bar is not None:
            bar.start()
        for records in batches:
            batch, left = _split(records, wanted, None if count is None else count - done, ends)
            data = "".join(map(write, batch)).encode(errors="surrogateescape")
            if data:
                sys.stdout.buffer.write(data)
                sys.stdout.buffer.flush()
                done += len(batch)
            if shown is not None:
                shown(len(data), records, left)
            if bar is not None:
                rate = done / max(time.monotonic() - began, 1e-9)
                bar.update(bar.task_ids[0], completed=done, count=done, rate=f"{rate:,.0f}/s")
            if done == count:
                break
    except KeyboardInterrupt:
        # Ctrl-C is the normal way to stop following.
        click.echo(err=True)
    finally:
        if bar is not None:
            bar.stop()
    if not quiet:
        total = done + already
        screen.hint(f"{total:,} record{'' if total == 1 else 's'}")
    return done


def _split(
    records: Sequence[Any], wanted: Wanted | None, room: int | None, ends: Mapping[TopicPartition, int] | None
) -> tuple[Sequence[Any], Sequence[Any]]:
    """Split records into those wanted, at most `room`, and those left over: beyond an end, or beyond `room`."""
    beyond: list[Any] = []
    if ends is not None:
        inside: list[Any] = []
        for record in records:
            is_inside = record.offset < ends.get(TopicPartition(record.topic, record.partition), 0)
            (inside if is_inside else beyond).append(record)
        records = inside
    if wanted is None:
        return (records, beyond) if room is None else (records[:room], [*records[room:], *beyond])
    selected = []
    for number, record in enumerate(records, 1):
        if wanted(record):
            selected.append(record)
            if len(selected) == room:
                return selected, [*records[number:], *beyond]
    return selected, beyond


def chosen(
    settings: dict[str, object],
    begins: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    wanted: Wanted | None,
    limit: int | None,
) -> Generator[ConsumerRecord, None, None]:
    """Yield the wanted records from `begins` to `ends`, at most `limit`."""
    from ottla.client import Consumer

    left = limit
    with Consumer(from_first_left(settings_of("consumer", settings))) as consumer:
        for records in polls(consumer, begins, ends):
            batch, _ = _split(records, wanted, left, ends)
            yield from batch
            if left is not None:
                left -= len(batch)
                if left == 0:
                    return
