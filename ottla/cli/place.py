"""A place in a topic's partitions as people name it: earliest, latest, an offset, -N, a time, how long ago."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from ottla.cli.amount import WHERE, instant, moment_ms
from ottla.kernel.error import OttlaError

if TYPE_CHECKING:
    from ottla.client import Admin, OffsetSpec, TopicPartition

Places = dict["TopicPartition", int]
_BY_PARTITION = re.compile(r"\d+:\d+(,\d+:\d+)*")
#: A number as large as this is a time in milliseconds (since 2001) rather than an offset.
_TIME_MIN = 1_000_000_000_000


def offsets_at(ask: Admin, partitions: list[TopicPartition], target: str) -> dict[TopicPartition, int]:
    """The offset of each partition at `target`, within what it holds.

    An offset beyond the end of all partitions is an error: it is a mistake, or a time without its `@`.
    """
    from ottla.client import OffsetSpec

    ends = _listed(ask, partitions, OffsetSpec.LATEST)
    if target in ("latest", "end"):
        return ends
    starts = _listed(ask, partitions, OffsetSpec.EARLIEST)
    if target in ("earliest", "beginning", "start"):
        return starts
    if _BY_PARTITION.fullmatch(target):
        return _by_partition(target, starts, ends)
    try:
        number = int(target)
    except ValueError:
        found = _listed(ask, partitions, timestamp_ms(target))
        # -1: no record is as late as that.
        return {each: found[each] if found[each] >= 0 else ends[each] for each in partitions}
    if number > max(ends.values(), default=number):
        raise OttlaError(_beyond(number, max(ends.values()), len(ends)))
    return {
        each: max(starts[each], min(ends[each], number if number >= 0 else ends[each] + number)) for each in partitions
    }


def _by_partition(target: str, starts: Places, ends: Places) -> Places:
    """`0:1200,1:1180`: of each partition its own offset; of one that is not named, the start."""
    wanted = {int(number): int(at) for number, at in (each.split(":") for each in target.split(","))}
    if missing := wanted.keys() - {each.partition for each in ends}:
        raise OttlaError(f"{target}: there is no partition {min(missing)}")
    return {each: max(starts[each], min(ends[each], wanted.get(each.partition, starts[each]))) for each in ends}


def _beyond(number: int, end: int, partitions: int) -> str:
    whose = f"the partition ({end})" if partitions == 1 else f"every partition (the longest ends at {end})"
    text = f"offset {number} is beyond the end of {whose}"
    return f"{text}; for the time {instant(number)} write @{number}" if number >= _TIME_MIN else text


def _listed(ask: Admin, partitions: list[TopicPartition], spec: OffsetSpec | int) -> dict[TopicPartition, int]:
    found = ask.list_offsets(dict.fromkeys(partitions, spec)).check()
    return {each: found[each].offset for each in partitions}


def timestamp_ms(text: str) -> int:
    """A time as people write it, or how long ago, in milliseconds. Without a zone it is this machine's."""
    found = moment_ms(text)
    if found is None:
        raise click.UsageError(f"{text}: it takes {WHERE}")
    return found
