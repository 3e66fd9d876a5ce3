"""The consumer's data in the classic protocol: a member's subscription and its assignment.

Brokers pass these bytes on without reading them. Written in version 3, read in every version (KIP-429, 792, 881).
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.frozen import frozen
from ottla.kernel.ids import TopicPartition
from ottla.kernel.ports import Buffer
from ottla.wire import schema
from ottla.wire.compile import decode, encode
from ottla.wire.record import consumer_protocol as wire
from ottla.wire.record.consumer_protocol import AssignedTopicPartition
from ottla.wire.type import Int32, Malformed

_VERSION = 3


@schema.wire(versions="0-1", flexible="none")
class StickyUserData:
    """The user data of Java's `sticky` assignor, which no version precedes: what the member had, and when."""

    previous_assignment: list[AssignedTopicPartition] = schema.on("0+", factory=list)
    generation: Int32 = schema.on("1+", default=-1)


@frozen
class Subscription:
    """A member's topics, the partitions that it owns, and the generation in which it got them."""

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1
    rack: str | None = None
    user_data: bytes | None = None


def subscription_bytes(subscription: Subscription) -> bytes:
    """Encode a subscription for JoinGroup."""
    message = wire.ConsumerProtocolSubscription(
        topics=list(subscription.topics),
        user_data=subscription.user_data,
        owned_partitions=[
            wire.TopicPartition(topic=topic, partitions=numbers)
            for topic, numbers in _by_topic(subscription.owned).items()
        ],
        generation_id=subscription.generation,
        rack_id=subscription.rack,
    )
    return _VERSION.to_bytes(2, "big") + encode(message, _VERSION)


def parse_subscription(data: Buffer) -> Subscription:
    """Decode a subscription. INCONSISTENT_GROUP_PROTOCOL if the bytes are not a consumer's subscription."""
    version = _version(data)
    try:
        message, _ = decode(wire.ConsumerProtocolSubscription, version, data, 2)
    except Malformed as error:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"a member's subscription: {error}") from error
    owned = tuple(
        TopicPartition(topic.topic, partition) for topic in message.owned_partitions for partition in topic.partitions
    )
    user_data = None if message.user_data is None else bytes(message.user_data)
    return Subscription(tuple(message.topics), owned, message.generation_id, message.rack_id, user_data)


def assignment_bytes(partitions: Iterable[TopicPartition], user_data: bytes | None = None) -> bytes:
    """Encode an assignment for SyncGroup."""
    message = wire.ConsumerProtocolAssignment(
        assigned_partitions=[
            AssignedTopicPartition(topic=topic, partitions=numbers) for topic, numbers in _by_topic(partitions).items()
        ],
        user_data=user_data,
    )
    return _VERSION.to_bytes(2, "big") + encode(message, _VERSION)


def parse_assignment(data: Buffer) -> tuple[TopicPartition, ...]:
    """Decode an assignment; empty bytes mean no partitions."""
    if not len(data):
        return ()
    version = _version(data)
    try:
        message, _ = decode(wire.ConsumerProtocolAssignment, version, data, 2)
    except Malformed as error:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"an assignment: {error}") from error
    return tuple(
        TopicPartition(topic.topic, partition)
        for topic in message.assigned_partitions
        for partition in topic.partitions
    )


def sticky_user_data(partitions: Iterable[TopicPartition], generation: int) -> bytes:
    """Encode a member's last assignment for the `sticky` assignor."""
    previous = [
        AssignedTopicPartition(topic=topic, partitions=numbers) for topic, numbers in _by_topic(partitions).items()
    ]
    return encode(StickyUserData(previous_assignment=previous, generation=generation), 1)


def parse_sticky_user_data(data: Buffer) -> tuple[tuple[TopicPartition, ...], int]:
    """The partitions and generation of a member's last assignment; as in Java's client, none if they are unreadable."""
    for version in (1, 0):
        with suppress(Malformed):
            message, _ = decode(StickyUserData, version, data, 0)
            return tuple(
                TopicPartition(topic.topic, partition)
                for topic in message.previous_assignment
                for partition in topic.partitions
            ), message.generation
    return (), -1


def _version(data: Buffer) -> int:
    if len(data) < 2:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "a member's data has no version")
    version = int.from_bytes(data[:2], "big", signed=True)
    if version < 0:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"a member's data has the invalid version {version}")
    return min(version, _VERSION)


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)
    return by_topic
