"""Foreign-key joins of tables (KIP-213): each left row subscribes to the right row that its value references.

The left side sends a subscription to the right row's partition, which stores it under `right key, left key`. Each
change of the right row sends a response to all its subscriptions, and the left side joins each response with the
subscribed row. It drops responses to an older left value. Both directions go through internal topics.

The messages have Kafka Streams' layout, but their hash of the left value is BLAKE2b, not Murmur3: only the program's
own tasks read it.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from functools import partial
from hashlib import blake2b
from typing import Any

from ottla.flow.make_store import bound
from ottla.flow.operator.view import Getter, value_of
from ottla.flow.processor import Context, Processor
from ottla.flow.record import NO_TIMESTAMP, Change, Record
from ottla.flow.serde import Serde, WrappingSerde
from ottla.flow.store.ordered import after
from ottla.kernel.named import NamedTuple


class Instruction(IntEnum):
    """What the right side does with a subscription."""

    DELETE_NO_PROPAGATE = 0
    DELETE_AND_PROPAGATE = 1
    PROPAGATE_NULL_IF_MISSING = 2
    PROPAGATE_ONLY_IF_PRESENT = 3


class Subscription(NamedTuple):
    """A subscription of a left row: its key and partition, and the hash of its value."""

    hash: bytes | None
    instruction: Instruction
    primary_key: Any
    partition: int


class SubscriptionResponse(NamedTuple):
    """The response to a subscription: the right row's value, and the hash of the left value that subscribed."""

    hash: bytes | None
    value: Any
    partition: int


class SubscriptionSerde(WrappingSerde):
    """The serde of subscriptions. `inner` is the serde of the left key."""

    takes_key = True

    def __init__(self, inner: Serde | None) -> None:
        self.inner = inner
        self.name = f"subscription({inner or 'default'})"

    def bound(self, inner: Serde) -> SubscriptionSerde:
        return SubscriptionSerde(inner)

    def serialize(self, topic: str, value: Subscription) -> bytes:
        assert self.inner is not None
        version = 1 if value.hash is not None else 0x81
        key = self.inner.serialize(f"{topic}-pk", value.primary_key)
        return bytes((version, value.instruction)) + (value.hash or b"") + key + value.partition.to_bytes(4, "big")

    def deserialize(self, topic: str, data: bytes) -> Subscription:
        assert self.inner is not None
        at = 2 if data[0] & 0x80 else 18
        key = self.inner.deserialize(f"{topic}-pk", data[at:-4])
        return Subscription(data[2:at] or None, Instruction(data[1]), key, int.from_bytes(data[-4:], "big"))


class SubscriptionResponseSerde(WrappingSerde):
    """The serde of responses. `inner` is the serde of the right value."""

    def __init__(self, inner: Serde | None) -> None:
        self.inner = inner
        self.name = f"answer({inner or 'default'})"

    def bound(self, inner: Serde) -> SubscriptionResponseSerde:
        return SubscriptionResponseSerde(inner)

    def serialize(self, topic: str, value: SubscriptionResponse) -> bytes:
        assert self.inner is not None
        version = 1 if value.hash is not None else 0x81
        data = b"" if value.value is None else b"\x01" + self.inner.serialize(topic, value.value)
        return bytes((version,)) + (value.hash or b"") + value.partition.to_bytes(4, "big") + data

    def deserialize(self, topic: str, data: bytes) -> SubscriptionResponse:
        assert self.inner is not None
        at = 1 if data[0] & 0x80 else 17
        body = data[at + 4 :]
        value = self.inner.deserialize(topic, body[1:]) if body else None
        return SubscriptionResponse(data[1:at] or None, value, int.from_bytes(data[at : at + 4], "big"))


def _bound(context: Context, given: Serde | None, what: str, *, key: bool = False) -> Serde:
    return bound(given, (context.key_serde, context.value_serde), f"the {what} of a foreign-key join", key=key)


class _Hash:
    """The hash of a left value. `topic` is that of the subscriptions. As in Kafka Streams, the serdes of the join are
    called with its name and `-vh`, `-fk` or `-pk`, from which a schema registry derives its subjects.
    """

    def __init__(self, context: Context, topic: str, value: Serde | None) -> None:
        self._topic = f"{context.application_id}-{topic}-vh"
        self._serde = _bound(context, value, "value of the left table")

    def __call__(self, value: Any) -> bytes | None:
        return None if value is None else blake2b(self._serde.serialize(self._topic, value), digest_size=16).digest()


class SubscriptionSend(Processor):
    """Turns changes of the left table into subscriptions under their foreign keys. `extractor` takes (key, value)."""

    def __init__(
        self,
        extractor: Callable[[Any, Any], Any],
        topic: str,
        foreign: Serde | None,
        value: Serde | None,
        *,
        left: bool,
        versioned: bool,
    ) -> None:
        self._extractor = extractor
        self._topic = topic
        self._foreign_serde = foreign
        self._value_serde = value
        self._left = left
        self._versioned = versioned

    def init(self, context: Context) -> None:
        self.context = context
        serde = _bound(context, self._foreign_serde, "key of the right table", key=True)
        self._write = partial(serde.serialize, f"{context.application_id}-{self._topic}-fk")
        self._hash = _Hash(context, self._topic, self._value_serde)

    def process(self, record: Record) -> None:
        change: Change = record.value
        if record.key is None or (self._versioned and not change.latest):
            self.context.drop()
            return
        had, has = change.old is not None, change.new is not None
        old = self._extractor(record.key, change.old) if had else None
        new = self._extractor(record.key, change.new) if has else None
        if self._left:
            self._process_left(record, had, has, old, new)
        else:
            self._process_inner(record, had, has, old, new)

    def _process_left(self, record: Record, had: bool, has: bool, old: Any, new: Any) -> None:
        if had:
            if old is not None and not self._same(old, new):
                self._send(record, old, Instruction.DELETE_NO_PROPAGATE)
            self._send(record, new, Instruction.PROPAGATE_NULL_IF_MISSING)
        elif has:
            self._send(record, new, Instruction.PROPAGATE_NULL_IF_MISSING)

    def _process_inner(self, record: Record, had: bool, has: bool, old: Any, new: Any) -> None:
        if had and old is not None:
            if has and new is not None:
                if self._same(old, new):
                    self._send(record, new, Instruction.PROPAGATE_ONLY_IF_PRESENT)
                else:
                    self._send(record, old, Instruction.DELETE_NO_PROPAGATE)
                    self._send(record, new, Instruction.PROPAGATE_NULL_IF_MISSING)
            else:
                self._send(record, old, Instruction.DELETE_AND_PROPAGATE)
        elif has and new is not None:
            self._send(record, new, Instruction.PROPAGATE_ONLY_IF_PRESENT)
        elif had or has:
            self.context.drop()

    def _same(self, old: Any, new: Any) -> bool:
        return new is not None and self._write(old) == self._write(new)

    def _send(self, record: Record, foreign_key: Any, instruction: Instruction) -> None:
        partition = self.context.task.partition  # type: ignore[attr-defined]
        wrapper = Subscription(self._hash(record.value.new), instruction, record.key, partition)
        self.context.forward(Record(foreign_key, wrapper, record.timestamp, record.headers))


class _Keys:
    """The keys of subscriptions in their store: the length of the foreign key, the foreign key, the left key."""

    def __init__(self, context: Context, topic: str, foreign: Serde | None, primary: Serde | None) -> None:
        name = f"{context.application_id}-{topic}"
        foreign_serde = _bound(context, foreign, "key of the right table", key=True)
        primary_serde = _bound(context, primary, "key of the left table", key=True)
        self._foreign = partial(foreign_serde.serialize, f"{name}-fk")
        self._primary = partial(primary_serde.serialize, f"{name}-pk")

    def prefix(self, foreign_key: Any) -> bytes:
        data = self._foreign(foreign_key)
        return len(data).to_bytes(4, "big") + data

    def combined(self, foreign_key: Any, primary_key: Any) -> bytes:
        return self.prefix(foreign_key) + self._primary(primary_key)


class SubscriptionReceive(Processor):
    """Stores subscriptions beside the right table and forwards them for a response."""

    def __init__(self, store: str, topic: str, foreign: Serde | None, primary: Serde | None) -> None:
        self._name = store
        self._keyed = (topic, foreign, primary)

    def init(self, context: Context) -> None:
        self.context = context
        self._store = context.get_state_store(self._name)
        self._keys = _Keys(context, *self._keyed)

    def process(self, record: Record) -> None:
        subscription: Subscription = record.value
        if record.key is None:
            if subscription.instruction is not Instruction.PROPAGATE_NULL_IF_MISSING:
                self.context.drop()
                return
        else:
            store_key = self._keys.combined(record.key, subscription.primary_key)
            if subscription.instruction in (Instruction.DELETE_AND_PROPAGATE, Instruction.DELETE_NO_PROPAGATE):
                self._store.delete(store_key)
            else:
                self._store.put(store_key, (subscription, record.timestamp))
        self.context.forward(record)


class SubscriptionJoin(Processor):
    """Responds to a new subscription with the right row's value."""

    def __init__(self, right: Getter) -> None:
        self._right = right

    def init(self, context: Context) -> None:
        self.context = context
        self._values = self._right.open(context)

    def process(self, record: Record) -> None:
        subscription: Subscription = record.value
        right = None if record.key is None else self._values.get(record.key)
        timestamp = max(record.timestamp, right[1] if right is not None else NO_TIMESTAMP)
        match subscription.instruction:
            case Instruction.DELETE_AND_PROPAGATE:
                value = None
            case Instruction.PROPAGATE_NULL_IF_MISSING:
                value = value_of(right)
            case Instruction.PROPAGATE_ONLY_IF_PRESENT if right is not None:
                value = right[0]
            case _:
                return
        answer = SubscriptionResponse(subscription.hash, value, subscription.partition)
        self.context.forward(Record(subscription.primary_key, answer, timestamp, record.headers))


class ForeignTableJoin(Processor):
    """Responds to all subscriptions of a right row when it changes, in the order of the left keys."""

    def __init__(self, store: str, topic: str, foreign: Serde | None, primary: Serde | None, versioned: bool) -> None:
        self._name = store
        self._keyed = (topic, foreign, primary)
        self._versioned = versioned

    def init(self, context: Context) -> None:
        self.context = context
        self._store = context.get_state_store(self._name)
        self._keys = _Keys(context, *self._keyed)

    def process(self, record: Record) -> None:
        change: Change = record.value
        if record.key is None or (self._versioned and not change.latest):
            self.context.drop()
            return
        prefix = self._keys.prefix(record.key)
        for store_key, _ in list(self._store.entries.scan(prefix, after(prefix))):
            stored = self._store.get(store_key)
            subscription: Subscription = stored[0]
            answer = SubscriptionResponse(subscription.hash, change.new, subscription.partition)
            self.context.forward(Record(subscription.primary_key, answer, record.timestamp, record.headers))


class ResponseJoin(Processor):
    """Joins responses with the left rows that subscribed. `joiner` takes (key, left, right)."""

    def __init__(
        self, left_table: Getter, topic: str, value: Serde | None, joiner: Callable[[Any, Any, Any], Any], *, left: bool
    ) -> None:
        self._left_table = left_table
        self._topic = topic
        self._value_serde = value
        self._joiner = joiner
        self._left = left

    def init(self, context: Context) -> None:
        self.context = context
        self._values = self._left_table.open(context)
        self._hash = _Hash(context, self._topic, self._value_serde)

    def process(self, record: Record) -> None:
        answer: SubscriptionResponse = record.value
        current = value_of(self._values.get(record.key))
        if answer.hash != self._hash(current):
            self.context.drop()
            return
        if answer.value is None and (not self._left or current is None):
            value = None
        else:
            value = self._joiner(record.key, current, answer.value)
        self.context.forward(Record(record.key, value, record.timestamp, record.headers))
