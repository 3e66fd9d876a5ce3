"""`ottla topics analyze`: what kind of records a topic holds. `Analysis` is pure and holds no more than it says."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.amount import duration, instant, size
from ottla.cli.option import Tool, as_json, client_settings, cluster, complete_topic
from ottla.cli.ottla.consume import bounds, reading, wants

if TYPE_CHECKING:
    from ottla.columns.record import ConsumerRecord

_SAMPLE = 10_000
_FIELDS_MAX = 200
_KEYS_MAX = 100_000
_TYPES = {dict: "object", list: "list", str: "text", bool: "bool", int: "int", float: "float", type(None): "null"}


class Sizes:
    """Lengths in bytes: exact count, sum and extremes; percentiles of a fair sample of `_SAMPLE`."""

    def __init__(self, rng: random.Random) -> None:
        self.count = self.total = self.largest = 0
        self._rng = rng
        self._sample: list[int] = []

    def add(self, length: int) -> None:
        """A more."""
        self.count += 1
        self.total += length
        self.largest = max(self.largest, length)
        if len(self._sample) < _SAMPLE:
            self._sample.append(length)
        elif (at := self._rng.randrange(self.count)) < _SAMPLE:
            self._sample[at] = length

    def document(self) -> dict[str, Any]:
        """Count, mean, median, 95th and 99th percentile, largest."""
        found = sorted(self._sample)

        def share(part: float) -> int:
            return found[min(int(part * len(found)), len(found) - 1)] if found else 0

        mean = round(self.total / self.count, 1) if self.count else 0
        return {
            "count": self.count,
            "bytes": self.total,
            "mean": mean,
            "p50": share(0.5),
            "p95": share(0.95),
            "p99": share(0.99),
            "max": self.largest,
        }


class Analysis:
    """Records looked at one by one."""

    def __init__(self) -> None:
        rng = random.Random(0)
        self.records = self.tombstones = self.keyless = 0
        self._first = self._last = -1
        self._partitions: Counter[int] = Counter()
        self._keys: Counter[bytes] = Counter()
        self._keys_left_out = 0
        self._values, self._key_sizes = Sizes(rng), Sizes(rng)
        self._kinds: Counter[str] = Counter()
        self._fields: dict[str, Counter[str]] = {}
        self._headers: Counter[str] = Counter()

    def add(self, record: ConsumerRecord) -> None:
        """A more."""
        self.records += 1
        self._partitions[record.partition] += 1
        if record.timestamp >= 0:
            self._first = record.timestamp if self._first < 0 else min(self._first, record.timestamp)
            self._last = max(self._last, record.timestamp)
        if record.key is None:
            self.keyless += 1
        else:
            self._key_sizes.add(len(record.key))
            if record.key in self._keys or len(self._keys) < _KEYS_MAX:
                self._keys[record.key] += 1
            else:
                self._keys_left_out += 1
        for name, _ in record.headers:
            if name in self._headers or len(self._headers) < _FIELDS_MAX:
                self._headers[name] += 1
        if record.value is None:
            self.tombstones += 1
        else:
            self._values.add(len(record.value))
            self._look_inside(record.value)

    def _look_inside(self, value: bytes) -> None:
        try:
            found = json.loads(value)
        except (ValueError, RecursionError):
            try:
                value.decode()
                self._kinds["text"] += 1
            except UnicodeDecodeError:
                schema = value[:1] == b"\0" and len(value) > 5
                self._kinds["with a schema id (registry)" if schema else "binary"] += 1
            return
        self._kinds["JSON"] += 1
        if isinstance(found, dict):
            for name, content in found.items():
                if name in self._fields or len(self._fields) < _FIELDS_MAX:
                    self._fields.setdefault(name, Counter())[_TYPES.get(type(content), "?")] += 1

    def document(self) -> dict[str, Any]:
        """All that was found."""
        span = (self._last - self._first) / 1000 if self._first >= 0 else 0
        objects = self._kinds["JSON"] or 1
        return {
            "records": self.records,
            "tombstones": self.tombstones,
            "without_key": self.keyless,
            "first_timestamp": self._first if self._first >= 0 else None,
            "last_timestamp": self._last if self._first >= 0 else None,
            "records_per_s": round(self.records / span, 3) if span else None,
            "partitions": dict(sorted(self._partitions.items())),
            "distinct_keys": len(self._keys),
            "distinct_keys_is_least": self._keys_left_out > 0,
            "top_keys": [
                {"key": key.decode(errors="backslashreplace"), "records": count}
                for key, count in self._keys.most_common(5)
            ],
            "key_bytes": self._key_sizes.document(),
            "value_bytes": self._values.document(),
            "values": dict(self._kinds.most_common()),
            "fields": {
                name: {"types": dict(types.most_common()), "share": round(sum(types.values()) / objects, 4)}
                for name, types in sorted(self._fields.items())
            },
            "headers": dict(self._headers.most_common()),
        }


@click.command(cls=Tool)
@cluster
@click.argument("topic", shell_complete=complete_topic)
@reading
@click.option(
    "-n", "--limit", type=click.IntRange(1), default=100_000, show_default=True, help="The most records to look at."
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
    """Show what kind of records a topic holds: sizes, keys, rates, JSON fields and their types."""
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
    found = analysis.document()
    if as_json:
        screen.document({"topic": topic, **found})
    else:
        _print(topic, found)


def _print(topic: str, found: dict[str, Any]) -> None:
    from ottla.cli import screen

    screen.heading(topic, f"{found['records']:,} records looked at")
    first, last = found["first_timestamp"], found["last_timestamp"]
    values, keys = found["value_bytes"], found["key_bytes"]
    at_least = "at least " if found["distinct_keys_is_least"] else ""
    rows: list[tuple[str, object]] = [
        ("time", None if first is None else f"{instant(first)} to {instant(last)} ({duration(last - first)})"),
        ("rate", None if found["records_per_s"] is None else f"{found['records_per_s']:,}/s"),
        ("values", ", ".join(f"{count:,} {kind}" for kind, count in found["values"].items()) or None),
        ("tombstones", found["tombstones"]),
        ("value size", _sizes(values)),
        ("key size", _sizes(keys) if keys["count"] else None),
        ("keys", f"{at_least}{found['distinct_keys']:,} distinct, {found['without_key']:,} records without"),
        ("top keys", ", ".join(f"{each['key']} ({each['records']:,})" for each in found["top_keys"]) or None),
        ("partitions", ", ".join(f"{number}: {count:,}" for number, count in found["partitions"].items()) or None),
        ("headers", ", ".join(f"{name} ({count:,})" for name, count in found["headers"].items()) or None),
    ]
    screen.table([screen.Column("", "dim"), screen.Column("")], rows, headless=True)
    if found["fields"]:
        screen.heading("\nfields")
        columns = [screen.Column("field", "name"), screen.Column("types"), screen.Column("in", numeric=True)]
        fields = found["fields"].items()
        screen.table(columns, [(name, ", ".join(each["types"]), f"{each['share']:.1%}") for name, each in fields])


def _sizes(found: dict[str, Any]) -> str:
    parts = (("mean", int(found["mean"])), ("p50", found["p50"]), ("p99", found["p99"]), ("max", found["max"]))
    return ", ".join(f"{name} {size(count)}" for name, count in parts)
