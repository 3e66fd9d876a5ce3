"""The stateless operators. They pass null keys and values to the functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ottla.flow.failure import Failed
from ottla.flow.processor import Context, Processor
from ottla.flow.record import FixedKeyRecord, Headers, Record
from ottla.flow.task.push import Fused, Node, Push

Function = Callable[[Any, Any], Any]


def _timed(function: Function) -> Callable[[Any, Any, int], Any] | None:
    """The function of key, value and timestamp, if it is a column expression or a batch function."""
    timed: Callable[[Any, Any, int], Any] | None = getattr(function, "timed", None)
    return timed


def _without_time(function: Function) -> Callable[[Any, Any, int], Any]:
    return lambda key, value, timestamp: function(key, value)


class Filter(Fused):
    """filter, and filter_not if `negate`."""

    def __init__(self, predicate: Function, negate: bool = False) -> None:
        self.function = predicate
        self.negate = negate

    def fused(self, node: Node) -> Push:
        predicate, negate, emit, on_error = self.function, self.negate, node.emit, node.on_error
        timed = _timed(predicate)

        def push(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            try:
                kept = bool(predicate(key, value)) is not negate
            except Exception as error:
                on_error(key, value, timestamp, headers, error)
                return
            if kept:
                emit(key, value, timestamp, headers)

        def push_timed(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            try:
                kept = bool(timed(key, value, timestamp)) is not negate  # type: ignore[misc]
            except Exception as error:
                on_error(key, value, timestamp, headers, error)
                return
            if kept:
                emit(key, value, timestamp, headers)

        return push if timed is None else push_timed


class DropNullKeys(Fused):
    """The filter before a repartition topic."""

    def fused(self, node: Node) -> Push:
        emit = node.emit

        def push(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            if key is not None:
                emit(key, value, timestamp, headers)

        return push


class PassThrough(Fused):
    """Passes records on: merge, the arms of a branch, and in place of the filter before a repartition topic that a left
    or outer join reads (KIP-962).
    """

    def fused(self, node: Node) -> Push:
        return node.emit


class Map(Fused):
    """map."""

    def __init__(self, mapper: Function) -> None:
        self.function = mapper

    def fused(self, node: Node) -> Push:
        mapper, emit, on_error = self.function, node.emit, node.on_error

        def push(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            try:
                pair = mapper(key, value)
                if pair is None:
                    raise TypeError("the function of map returned None (expected a pair: key, value)")
                new_key, new_value = pair
            except Exception as error:
                on_error(key, value, timestamp, headers, error)
                return
            emit(new_key, new_value, timestamp, headers)

        return push


class FlatMap(Fused):
    """flat_map."""

    def __init__(self, mapper: Function) -> None:
        self.function = mapper

    def fused(self, node: Node) -> Push:
        mapper, emit, on_error = self.function, node.emit, node.on_error

        def push(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            try:
                pairs = mapper(key, value)
                if pairs is None:
                    raise TypeError("the function of flat_map returned None (expected pairs: key, value)")
                for new_key, new_value in pairs:
                    emit(new_key, new_value, timestamp, headers)
            except Failed:
                raise
            except Exception as error:
                on_error(key, value, timestamp, headers, error)

        return push


class SelectKey(Fused):
    """select_key."""

    def __init__(self, mapper: Function) -> None:
        self.function = mapper

    def fused(self, node: Node) -> Push:
        mapper, emit, on_error = self.function, node.emit, node.on_error
        timed = _timed(mapper) or (lambda key, value, timestamp: mapper(key, value))

        def push(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            try:
                new_key = timed(key, value, timestamp)
            except Exception as error:
                on_error(key, value, timestamp, headers, error)
                return
            emit(new_key, value, timestamp, headers)

        return push


class MapValues(Fused):
    """map_values."""

    def __init__(self, mapper: Function) -> None:
        self.function = mapper

    def fused(self, node: Node) -> Push:
        mapper, emit, on_error = self.function, node.emit, node.on_error
        #: A function of the value alone, called directly instead of through its adapter.
        alone: Callable[[Any], Any] | None = getattr(mapper, "of_value", None)
        timed = _timed(mapper)

        def push(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            try:
                new = mapper(key, value)
            except Exception as error:
                on_error(key, value, timestamp, headers, error)
                return
            emit(key, new, timestamp, headers)

        def push_alone(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            try:
                new = alone(value)  # type: ignore[misc]
            except Exception as error:
                on_error(key, value, timestamp, headers, error)
                return
            emit(key, new, timestamp, headers)

        def push_timed(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            try:
                new = timed(key, value, timestamp)  # type: ignore[misc]
            except Exception as error:
                on_error(key, value, timestamp, headers, error)
                return
            emit(key, new, timestamp, headers)

        if timed is not None:
            return push_timed
        return push if alone is None else push_alone


class FlatMapValues(Fused):
    """flat_map_values."""

    def __init__(self, mapper: Function) -> None:
        self.function = mapper

    def fused(self, node: Node) -> Push:
        mapper, emit, on_error = self.function, node.emit, node.on_error

        def push(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            try:
                values = mapper(key, value)
                if values is None:
                    raise TypeError("the function of flat_map_values returned None (expected values)")
                for new in values:
                    emit(key, new, timestamp, headers)
            except Failed:
                raise
            except Exception as error:
                on_error(key, value, timestamp, headers, error)

        return push


class Peek(Fused):
    """peek, foreach and print."""

    def __init__(self, action: Function) -> None:
        self._action = action

    def fused(self, node: Node) -> Push:
        action, emit, on_error = self._action, node.emit, node.on_error

        def push(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            try:
                action(key, value)
            except Exception as error:
                on_error(key, value, timestamp, headers, error)
                return
            emit(key, value, timestamp, headers)

        return push


class Branch(Fused):
    """split: the first arm whose predicate is true gets the record. Predicate None: the default arm."""

    def __init__(self, arms: Sequence[tuple[str, Function | None]]) -> None:
        self._arms = [(name, predicate) for name, predicate in arms if predicate is not None]
        self._default = next((name for name, predicate in arms if predicate is None), None)

    def fused(self, node: Node) -> Push:
        arms = [(node.child(name), _timed(predicate) or _without_time(predicate)) for name, predicate in self._arms]
        default = node.child(self._default) if self._default is not None else None
        on_error = node.on_error

        def push(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            emit = default
            try:
                for arm, predicate in arms:
                    if predicate(key, value, timestamp):
                        emit = arm
                        break
            except Exception as error:
                on_error(key, value, timestamp, headers, error)
                return
            if emit is not None:
                emit(key, value, timestamp, headers)

        return push


class ToStream(Fused):
    """to_stream: the new value of each change."""

    def fused(self, node: Node) -> Push:
        emit = node.emit

        def push(key: Any, value: Any, timestamp: int, headers: Headers) -> None:
            emit(key, value.new, timestamp, headers)

        return push


class FixedKey(Processor):
    """Wraps a user's fixed-key processor so that it cannot change keys."""

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
