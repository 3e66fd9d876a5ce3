"""Views: tables during lowering. One table may need another's current values, or the old values of its changes.

A view is the supplier of its table's processor. Requesting its values (`getter`) or old values (`enable_old`) may make
the table keep a store. Both happen during lowering, in the order of the program, as in Kafka Streams.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from ottla.flow.processor import Context, Processor
from ottla.flow.record import ValueAndTimestamp, Windowed
from ottla.flow.store.versioned import IS_LATEST, NOT_PUT, VersionedStore
from ottla.flow.task.push import Fused

_pair = tuple.__new__
#: Classes whose objects an aggregator cannot change. Others are read from the store once more where the old value is
#: needed beside the new one: an aggregator may append to a list and return it.
FIXED = frozenset((bool, int, float, str, bytes, type(None)))


class Values(Protocol):
    """The current values of a table."""

    versioned: bool

    def get(self, key: Any) -> ValueAndTimestamp | None: ...

    def get_as_of(self, key: Any, timestamp: int) -> ValueAndTimestamp | None: ...


class Getter:
    """Opens a table's values for a processor, which must be connected to `stores`."""

    def __init__(self, stores: tuple[str, ...], open_: Callable[[Context], Values]) -> None:
        self.stores = stores
        self.open = open_


class View:
    """A table during lowering, and the supplier of its processor."""

    sending_old = False

    def __call__(self) -> Processor | Fused:
        """Make the processor for a task."""
        raise TypeError(f"{type(self).__name__} has no processor")

    def enable_old(self, force: bool) -> bool:
        """Request old values in this table's changes. Without `force` the table adds no store for them. Returns whether
        its changes will have old values.
        """
        if not self.sending_old:
            if not self._enable_old(force):
                return False
            self.sending_old = True
        return True

    def _enable_old(self, force: bool) -> bool:
        return True

    def getter(self) -> Getter:
        """Request the table's current values."""
        raise TypeError(f"{type(self).__name__} has no values")


class StoreValues:
    """Values of a timestamped or versioned key-value store."""

    def __init__(self, context: Context, name: str) -> None:
        self.store = self._store = context.get_state_store(name)
        self.versioned = isinstance(self._store, VersionedStore)
        if not self.versioned:
            self.get = self._store.get  # type: ignore[method-assign]

    def get(self, key: Any) -> ValueAndTimestamp | None:
        stored = self._store.get(key)
        return stored if stored is None or not self.versioned else ValueAndTimestamp(stored.value, stored.timestamp)

    def get_as_of(self, key: Any, timestamp: int) -> ValueAndTimestamp | None:
        if not self.versioned:
            return self.get(key)
        version = self._store.get(key, timestamp)
        return None if version is None else ValueAndTimestamp(version.value, version.timestamp)

    def put(self, key: Any, value: Any, timestamp: int) -> int:
        """Put a value. Returns IS_LATEST, NOT_PUT, or the time until which an out-of-order version is valid."""
        if self.versioned:
            code: int = self._store.put(key, value, timestamp)
            return code
        self._store.put(key, None if value is None else _pair(ValueAndTimestamp, (value, timestamp)))
        return IS_LATEST


def store_getter(name: str) -> Getter:
    """The values of a key-value store."""
    return Getter((name,), lambda context: StoreValues(context, name))


class WindowValues:
    """Values of a window store, by windowed key."""

    versioned = False

    def __init__(self, context: Context, name: str) -> None:
        self._store = context.get_state_store(name)

    def get(self, key: Windowed) -> ValueAndTimestamp | None:
        stored: ValueAndTimestamp | None = self._store.fetch_one(key.key, key.window.start)
        return stored

    def get_as_of(self, key: Windowed, timestamp: int) -> ValueAndTimestamp | None:
        return self.get(key)


class SessionValues(WindowValues):
    """Values of a session store. Their timestamp is the session's end."""

    def get(self, key: Windowed) -> ValueAndTimestamp | None:
        value = self._store.fetch_session(key.key, *key.window)
        return None if value is None else ValueAndTimestamp(value, key.window.end)


class Derived:
    """Values computed from another table's."""

    def __init__(
        self, parent: Values, compute: Callable[[Any, ValueAndTimestamp | None], ValueAndTimestamp | None]
    ) -> None:
        self.parent = parent
        self._compute = compute
        self.versioned = parent.versioned

    def get(self, key: Any) -> ValueAndTimestamp | None:
        return self._compute(key, self.parent.get(key))

    def get_as_of(self, key: Any, timestamp: int) -> ValueAndTimestamp | None:
        return self._compute(key, self.parent.get_as_of(key, timestamp))


W = TypeVar("W")
Aggregator = Callable[[Any, Any, Any], Any]


class WindowedAggregate(View, Generic[W]):
    """The table of a windowed aggregate. `initializer` None: reduce, where the first value is the aggregate."""

    values: type[WindowValues] = WindowValues

    def __init__(
        self, store: str, windows: W, initializer: Callable[[], Any] | None, aggregator: Aggregator, on_close: bool
    ) -> None:
        self.store = store
        self.windows = windows
        self.initializer = _nothing if initializer is None else initializer
        self.aggregator = _reduced(aggregator) if initializer is None else aggregator
        self.on_close = on_close

    def getter(self) -> Getter:
        return Getter((self.store,), lambda context: self.values(context, self.store))


def _nothing() -> None:
    return None


def _reduced(reducer: Aggregator) -> Aggregator:
    """A reducer as an aggregator: the first value becomes the aggregate."""

    def aggregator(key: Any, value: Any, aggregate: Any) -> Any:
        return value if aggregate is None else reducer(key, value, aggregate)

    return aggregator


def value_of(row: ValueAndTimestamp | None) -> Any:
    """The value without its timestamp, or None."""
    return None if row is None else row[0]


__all__ = [
    "FIXED",
    "IS_LATEST",
    "NOT_PUT",
    "Aggregator",
    "Derived",
    "Getter",
    "SessionValues",
    "StoreValues",
    "Values",
    "View",
    "WindowValues",
    "WindowedAggregate",
    "store_getter",
    "value_of",
]
