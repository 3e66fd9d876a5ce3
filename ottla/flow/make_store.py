"""Construction of a task's stores from their specifications."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.flow.error import TopologyError
from ottla.flow.record import NO_TIMESTAMP
from ottla.flow.serde import BYTES, Serde, WrappingSerde
from ottla.flow.store.buffer import JoinBuffer, SuppressBuffer
from ottla.flow.store.changelog import Cell, Log
from ottla.flow.store.duplicates import DuplicatesStore, TimestampedDuplicatesStore
from ottla.flow.store.key_value import KeyValueStore, LruStore, TimestampedKeyValueStore
from ottla.flow.store.ordered import OrderedBytes
from ottla.flow.store.session import SessionStore
from ottla.flow.store.spec import StoreSpec
from ottla.flow.store.unjoined import UnjoinedStore
from ottla.flow.store.versioned import VersionedStore
from ottla.flow.store.window import TimestampedWindowStore, WindowStore

Defaults = tuple[Serde | None, Serde | None]


def bound(given: Serde | None, defaults: Defaults, what: str, *, key: bool = False) -> Serde:
    """The given serde, or the application's default for keys or values. TopologyError if there is neither."""
    if isinstance(given, WrappingSerde) and given.inner is None:
        return given.bound(bound(None, defaults, what, key=given.takes_key))
    if given is not None:
        return given
    default = defaults[0 if key else 1]
    if default is None:
        raise TopologyError(
            f"{what} has no serde; set it there, or pass the defaults key_serde= and value_serde= to build()"
        )
    return default


def make_store(
    spec: StoreSpec,
    entries: OrderedBytes,
    defaults: Defaults,
    topic: str,
    log: Log | None,
    now: Callable[[], int],
    cell: Callable[[str, int], Cell],
) -> Any:
    """Make a store. `cell` returns the numbers that are part of its state; `topic` is the name of its changelog."""
    key = bound(spec.key, defaults, f"the key of state store {spec.name}", key=True)

    def observed() -> Cell:
        return cell(f"{spec.name}/observed", NO_TIMESTAMP)

    def sequence() -> Cell:
        return cell(f"{spec.name}/sequence", 0)

    if spec.kind == "unjoined":
        # The value serde of an unjoined store holds one serde for each side.
        left, right = getattr(spec.value, "sides", (None, None))
        value = bound(left, defaults, f"the left value of state store {spec.name}")
        other = bound(right, defaults, f"the right value of state store {spec.name}")
        return UnjoinedStore(spec, entries, key, value, other, topic, log, sequence())
    value = bound(spec.value, defaults, f"the value of state store {spec.name}")
    match spec.kind:
        case "key_value":
            kind = LruStore if spec.capacity else KeyValueStore
            return kind(spec, entries, key, value, topic, log, now)
        case "timestamped_key_value":
            return TimestampedKeyValueStore(spec, entries, key, value, topic, log, now)
        case "subscription":
            return TimestampedKeyValueStore(spec, entries, BYTES, value, topic, log, now)
        case "versioned":
            return VersionedStore(spec, entries, key, value, topic, log, now, observed())
        case "window" | "timestamped_window" if spec.duplicates:
            duplicates_class = DuplicatesStore if spec.kind == "window" else TimestampedDuplicatesStore
            return duplicates_class(spec, entries, key, value, topic, log, now, observed(), sequence=sequence())
        case "window":
            return WindowStore(spec, entries, key, value, topic, log, now, observed())
        case "timestamped_window":
            return TimestampedWindowStore(spec, entries, key, value, topic, log, now, observed())
        case "session":
            return SessionStore(spec, entries, key, value, topic, log, now, observed())
        case "suppress_buffer":
            return SuppressBuffer(spec, entries, key, value, topic, log)
        case "join_buffer":
            return JoinBuffer(spec, entries, key, value, topic, log, observed(), sequence=sequence())


class Sides(Serde):
    """The value serdes of both sides of a join, for the store that holds records of both."""

    def __init__(self, left: Serde | None, right: Serde | None) -> None:
        self.sides = (left, right)
        self.name = f"{left or 'default'}|{right or 'default'}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sides) and self.sides == other.sides

    def __hash__(self) -> int:
        return hash(self.sides)
