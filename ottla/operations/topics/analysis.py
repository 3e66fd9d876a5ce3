"""Statistics about the records of a topic. Pure; the memory of `Analysis` is bounded."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.columns.record import ConsumerRecord

_SAMPLE = 10_000
_FIELDS_MAX = 200
_KEYS_MAX = 100_000
_TYPES = {dict: "object", list: "list", str: "text", bool: "bool", int: "int", float: "float", type(None): "null"}


class Sizes:
    """Lengths in bytes: exact count, sum and maximum; percentiles of a random sample of `_SAMPLE`."""

    def __init__(self, rng: random.Random) -> None:
        self.count = self.total = self.largest = 0
        self._rng = rng
        self._sample: list[int] = []

    def add(self, length: int) -> None:
        """Count one length."""
        self.count += 1
        self.total += length
        self.largest = max(self.largest, length)
        if len(self._sample) < _SAMPLE:
            self._sample.append(length)
        elif (at := self._rng.randrange(self.count)) < _SAMPLE:
            self._sample[at] = length

    def document(self) -> dict[str, Any]:
        """Return the count, sum, mean, median, 95th and 99th percentile, and maximum."""
        ordered = sorted(self._sample)

        def share(part: float) -> int:
            return ordered[min(int(part * len(ordered)), len(ordered) - 1)] if ordered else 0

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
    """Statistics built record by record."""

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
        """Count one record."""
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
            document = json.loads(value)
        except (ValueError, RecursionError):
            try:
                value.decode()
                self._kinds["text"] += 1
            except UnicodeDecodeError:
                schema = value[:1] == b"\0" and len(value) > 5
                self._kinds["with a schema id (registry)" if schema else "binary"] += 1
            return
        self._kinds["JSON"] += 1
        if isinstance(document, dict):
            for name, content in document.items():
                if name in self._fields or len(self._fields) < _FIELDS_MAX:
                    self._fields.setdefault(name, Counter())[_TYPES.get(type(content), "?")] += 1

    def document(self) -> dict[str, Any]:
        """Return all statistics."""
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
