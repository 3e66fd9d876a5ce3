"""A comparison of two topics: their records and settings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from ottla.operations.configs import own_of_topic
from ottla.operations.offsets import Offsets, bounds, partitions_of
from ottla.operations.reading import from_first_left, polls

if TYPE_CHECKING:
    from ottla.client import Admin, TopicPartition
    from ottla.columns.record import ConsumerRecord

_DIFFERENCES_MAX = 10


@dataclass(frozen=True, slots=True)
class TopicSide:
    """A topic to compare: its own settings, where its partitions begin and end, how clients reach it."""

    settings: dict[str, str]
    starts: Offsets
    ends: Offsets
    client: dict[str, object]


def side(ask: Admin, topic: str, client: dict[str, object]) -> TopicSide:
    """Describe a topic; its records are read later, with the settings of `client`."""
    # First: the error names a topic that does not exist; the error about its settings would not.
    partitions = partitions_of(ask, topic)
    return TopicSide(own_of_topic(ask, topic), *bounds(ask, partitions), client)


def differences(ours: TopicSide, theirs: TopicSide) -> tuple[int, list[str]]:
    """Return (equal records, differences). Records are compared only if both topics have as many partitions."""
    all_differences = [
        f"setting {name}: {ours.settings.get(name, '(default)')} | {theirs.settings.get(name, '(default)')}"
        for name in sorted({*ours.settings, *theirs.settings})
        if ours.settings.get(name) != theirs.settings.get(name)
    ]
    if len(ours.ends) != len(theirs.ends):
        return 0, [*all_differences, f"partitions: {len(ours.ends)} | {len(theirs.ends)} (records are not compared)"]
    same = 0
    for mine, yours in zip(ours.ends, theirs.ends, strict=True):
        alike, differing = compared(_records(ours, mine), _records(theirs, yours))
        same += alike
        all_differences += [f"partition {mine.partition}: {difference}" for difference in differing]
    return same, all_differences


def _records(topic: TopicSide, partition: TopicPartition) -> Iterator[ConsumerRecord]:
    from ottla.client import Consumer

    end = topic.ends[partition]
    with Consumer(from_first_left(topic.client)) as consumer:
        for records in polls(consumer, {partition: topic.starts[partition]}, {partition: end}):
            yield from (record for record in records if record.offset < end)


def compared(ours: Iterator[ConsumerRecord], theirs: Iterator[ConsumerRecord]) -> tuple[int, list[str]]:
    """Compare two sequences of records: (equal records, the first differences). Offsets may differ."""
    differing: list[str] = []
    same = more = fewer = 0
    for mine, yours in zip_longest(ours, theirs):
        if mine is None or yours is None:
            more += yours is None
            fewer += mine is None
            continue
        parts = [name for name in ("key", "value", "timestamp") if getattr(mine, name) != getattr(yours, name)]
        if list(mine.headers) != list(yours.headers):
            parts.append("headers")
        if not parts:
            same += 1
        elif len(differing) < _DIFFERENCES_MAX:
            shown = ", ".join(f"{part} {_pair(part, mine, yours)}" for part in parts)
            differing.append(f"offset {mine.offset} | {yours.offset}: {shown}")
        else:
            differing[-1] = differing[-1].partition(" (and more")[0] + " (and more)"
    if more or fewer:
        differing.append(f"the {'first' if more else 'second'} topic has {more or fewer:,} more")
    return same, differing


def _pair(part: str, mine: Any, yours: Any) -> str:
    return f"{_short(getattr(mine, part))} | {_short(getattr(yours, part))}"


def _short(value: Any) -> str:
    text = _text(value) if isinstance(value, bytes | None) else str(value)
    if isinstance(value, tuple | list):
        text = " ".join(f"{name}={_text(content)}" for name, content in value) or "none"
    return text if len(text) <= 30 else f"{text[:30]}..."


def _text(content: bytes | None) -> str:
    return "null" if content is None else content.decode(errors="backslashreplace")
