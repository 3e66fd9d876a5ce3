"""The consumer protocol inside the classic one: what consumers put into JoinGroup metadata and assignments.

A two-byte version stands before the message. Every later version begins with the fields of the earlier ones, so a
version that we do not know is read as the newest that we know.
"""

from ottla.group.state.classic import ClassicGroup
from ottla.wire.compile import decode, encode
from ottla.wire.record.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from ottla.wire.type import Malformed

_VERSION_MAX = 3


def protocol_version(data: bytes) -> int:
    """The version that stands before the message."""
    if len(data) < 2:
        raise Malformed(f"a consumer protocol message of {len(data)} bytes has no version")
    version = int.from_bytes(data[:2], "big", signed=True)
    if version < 0:
        raise Malformed(f"consumer protocol version {version}")
    return min(version, _VERSION_MAX)


def read_subscription(data: bytes) -> ConsumerProtocolSubscription:
    """What a consumer subscribes to and owns. Raises Malformed."""
    return decode(ConsumerProtocolSubscription, protocol_version(data), data, 2)[0]


def read_assignment(data: bytes) -> ConsumerProtocolAssignment:
    """What a consumer was given. Raises Malformed."""
    return decode(ConsumerProtocolAssignment, protocol_version(data), data, 2)[0]


def write_assignment(assignment: ConsumerProtocolAssignment, version: int) -> bytes:
    """The message with its version before it."""
    return version.to_bytes(2, "big") + encode(assignment, version)


def subscribed_topics(group: ClassicGroup) -> frozenset[str] | None:
    """The union of the members' subscriptions; None if they are no consumers or cannot be read."""
    if not group.is_of_consumers:
        return None
    if not group.members:
        return frozenset()
    if group.protocol_name is None:
        return None
    topics: set[str] = set()
    try:
        for member in group.members.values():
            # Version 0 is the beginning of all versions.
            metadata = member.metadata(group.protocol_name)
            protocol_version(metadata)
            topics.update(decode(ConsumerProtocolSubscription, 0, metadata, 2)[0].topics)
    except Malformed:
        # A client may call its protocol "consumer" and put into it what it likes.
        return None
    return frozenset(topics)
