"""A place in a topic's partitions on the command line: earliest, latest, an offset, -N, a time, or a time ago."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from ottla.cli.amount import WHERE, instant, moment_ms
from ottla.kernel.error import OttlaError
from ottla.operations import offsets

if TYPE_CHECKING:
    from ottla.client import Admin, TopicPartition

_BY_PARTITION = re.compile(r"\d+:\d+(,\d+:\d+)*")
#: A number as large as this is a time in milliseconds (since 2001) rather than an offset.
_TIME_MIN = 1_000_000_000_000


def place(text: str) -> offsets.Place:
    """Parse a place. A time without a zone is local time."""
    from ottla.client import OffsetSpec

    if text in ("latest", "end"):
        return OffsetSpec.LATEST
    if text in ("earliest", "beginning", "start"):
        return OffsetSpec.EARLIEST
    if _BY_PARTITION.fullmatch(text):
        return {int(number): int(at) for number, at in (part.split(":") for part in text.split(","))}
    try:
        return int(text)
    except ValueError:
        timestamp_ms = moment_ms(text)
    if timestamp_ms is None:
        raise click.UsageError(f"invalid place: {text} (expected {WHERE})")
    return offsets.Moment(timestamp_ms)


@contextmanager
def with_time_hint(target: str | None) -> Iterator[None]:
    """Add a hint to BeyondTheEnd if the offset looks like a time without its `@`."""
    try:
        yield
    except offsets.BeyondTheEnd as error:
        if target is not None and target.isdecimal() and int(target) >= _TIME_MIN:
            raise OttlaError(f"{error}; for the time {instant(int(target))} write @{target}") from error
        raise


def offsets_at(ask: Admin, partitions: list[TopicPartition], target: str) -> offsets.Offsets:
    """Return the offset of each partition at `target`, clamped to its start and end.

    Raises OttlaError for an offset beyond the end of all partitions: a mistake, or a time without its `@`.
    """
    with with_time_hint(target):
        return offsets.offsets_at(ask, partitions, place(target))
