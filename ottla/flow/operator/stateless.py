"""Filter, map and their kin: no state, one record at a time. Null keys and values are passed to the functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ottla.flow.processor import Context, Processor
from ottla.flow.record import FixedKeyRecord, Record


class Filter(Processor):
    """Records for which the predicate holds (`negate`: does not hold)."""

    def __init__(self, predicate: Callable[[Any, Any], Any], negate: bool = False) -> None:
        self._predicate = predicate
        self._negate = negate

    def process(self, record: Record) -> None:
        if bool(self._predicate(record.key, record.value)) is not self._negate:
            self.context.forward(record)


def drop_null_keys() -> Filter:
    """The filter in front of a repartition topic."""
    return Filter(lambda key, value: key is not None)


def keep_null_keys() -> Filter:
    """The filter in front of a repartition topic that a left or outer join reads (KIP-962)."""
    return Filter(lambda key, value: True)


class Map(Processor):
    """One record for each, with another key and value."""

    def __init__(self, mapper: Callable[[Any, Any], Any]) -> None:
        self._mapper = mapper

    def process(self, record: Record) -> None:
        pair = self._mapper(record.key, record.value)
        if pair is None:
            raise TypeError("the function of map returned None (expected a pair: key, value)")
        key, value = pair
        self.context.forward(Record(key, value, record.timestamp, record.headers))


class FlatMap(Processor):
    """Any number of records for each."""

    def __init__(self, mapper: Callable[[Any, Any], Any]) -> None:
        self._mapper = mapper

    def process(self, record: Record) -> None:
        pairs = self._mapper(record.key, record.value)
        if pairs is None:
            raise TypeError("the function of flat_map returned None (expected pairs: key, value)")
        for key, value in pairs:
            self.context.forward(Record(key, value, record.timestamp, record.headers))


class SelectKey(Processor):
    """The same value under another key."""

    def __init__(self, mapper: Callable[[Any, Any], Any]) -> None:
        self._mapper = mapper

    def process(self, record: Record) -> None:
        self.context.forward(
            Record(self._mapper(record.key, record.value), record.value, record.timestamp, record.headers)
        )


class MapValues(Processor):
    """Another value under the same key."""

    def __init__(self, mapper: Callable[[Any, Any], Any]) -> None:
        self._mapper = mapper

    def process(self, record: Record) -> None:
        self.context.forward(
            Record(record.key, self._mapper(record.key, record.value), record.timestamp, record.headers)
        )


class FlatMapValues(Processor):
    """Any number of values under the same key."""

    def __init__(self, mapper: Callable[[Any, Any], Any]) -> None:
        self._mapper = mapper

    def process(self, record: Record) -> None:
        values = self._mapper(record.key, record.value)
        if values is None:
            raise TypeError("the function of flat_map_values returned None (expected values)")
        for value in values:
            self.context.forward(Record(record.key, value, record.timestamp, record.headers))


class Foreach(Processor):
    """A function for its effect; nothing follows."""

    def __init__(self, action: Callable[[Any, Any], Any]) -> None:
        self._action = action

    def process(self, record: Record) -> None:
        self._action(record.key, record.value)


class Peek(Foreach):
    """A function for its effect; the record goes on."""

    def process(self, record: Record) -> None:
        self._action(record.key, record.value)
        self.context.forward(record)


class PassThrough(Processor):
    """Merge, and the arms of a branch."""

    def process(self, record: Record) -> None:
        self.context.forward(record)


class Branch(Processor):
    """The first arm whose predicate holds gets the record; None is the default arm."""

    def __init__(self, arms: Sequence[tuple[str, Callable[[Any, Any], Any] | None]]) -> None:
        self._arms = [(name, predicate) for name, predicate in arms if predicate is not None]
        self._default = next((name for name, predicate in arms if predicate is None), None)

    def process(self, record: Record) -> None:
        for name, predicate in self._arms:
            if predicate(record.key, record.value):
                self.context.forward(record, name)
                return
        if self._default is not None:
            self.context.forward(record, self._default)


class ToStream(Processor):
    """The new value of each change."""

    def process(self, record: Record) -> None:
        self.context.forward(Record(record.key, record.value.new, record.timestamp, record.headers))


class FixedKey(Processor):
    """A user's fixed-key processor, kept from changing keys."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def init(self, context: Context) -> None:
        from ottla.flow.context import FixedKeyContext

        if hasattr(self._inner, "init"):
            self._inner.init(FixedKeyContext(context))

    def process(self, record: Record) -> None:
        self._inner.process(FixedKeyRecord(record.key, record.value, record.timestamp, record.headers))

    def close(self) -> None:
        if hasattr(self._inner, "close"):
            self._inner.close()
