"""The consumer protocol embedded in the classic one: the metadata and assignments of consumers.

A two-byte version precedes the message. Every version begins with the fields of the earlier ones, so an unknown version
is read as the newest known one.
"""

from ottla.group.state.classic import ClassicGroup
from ottla.wire.compile import decode, encode
from ottla.wire.record.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from ottla.wire.type import Malformed

_VERSION_MAX = 3


def protocol_version(data: bytes) -> int:
    """The version of a message, at most the newest known one. Raises Malformed."""
    if len(data) < 2:
        raise Malformed(f"a consumer protocol message of {len(data)} bytes has no version")
    version = int.from_bytes(data[:2], "big", signed=True)
    if version < 0:
        raise Malformed(f"consumer protocol version {version}")
    return min(version, _VERSION_MAX)


def read_subscription(data: bytes) -> ConsumerProtocolSubscription:
    """Decode a consumer's subscription and owned partitions. Raises Malformed."""
    return decode(ConsumerProtocolSubscription, protocol_version(data), data, 2)[0]


def read_assignment(data: bytes) -> ConsumerProtocolAssignment:
    """Decode a consumer's assignment. Raises Malformed."""
    return decode(ConsumerProtocolAssignment, protocol_version(data), data, 2)[0]


def write_assignment(assignment: ConsumerProtocolAssignment, version: int) -> bytes:
    """Encode an assignment, preceded by its version."""
    return version.to_bytes(2, "big") + encode(assignment, version)


def subscribed_topics(group: ClassicGroup) -> frozenset[str] | None:
    """The union of the members' subscriptions; None if they are not consumers or cannot be decoded."""
    if not group.is_of_consumers:
        return None
    if not group.members:
        return frozenset()
    if group.protocol_name is None:
        return None
    topics: set[str] = set()
    try:
        for member in group.members.values():
            # All versions begin with the fields of version 0.
            metadata = member.metadata(group.protocol_name)
            protocol_version(metadata)
            topics.update(decode(ConsumerProtocolSubscription, 0, metadata, 2)[0].topics)
    except Malformed:
        # A client may name its protocol type "consumer" and use another format.
        return None
    return frozenset(topics)
