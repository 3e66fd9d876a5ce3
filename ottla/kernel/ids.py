"""Topic partitions and ids.

A UUID is its 16 bytes (`Uuid`), as on the wire. People see Kafka's text form: base64url without padding.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import TYPE_CHECKING, NewType

from ottla.kernel.named import NamedTuple

if TYPE_CHECKING:
    from ottla.kernel.ports import Rng

#: 16 bytes, big-endian, as on the wire.
Uuid = NewType("Uuid", bytes)

NO_UUID = Uuid(bytes(16))
#: The topic id of `__cluster_metadata` (KIP-516).
METADATA_TOPIC_ID = Uuid(bytes(15) + b"\x01")
METADATA_TOPIC = "__cluster_metadata"
OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTION_TOPIC = "__transaction_state"
SHARE_TOPIC = "__share_group_state"
INTERNAL_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTION_TOPIC, SHARE_TOPIC})


class TopicPartition(NamedTuple):
    """A partition of one topic. Its text form is the name of its directory: `flights-3`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def uuid_v4(rng: Rng) -> Uuid:
    """A random UUID, version 4 (RFC 9562)."""
    raw = bytearray(rng.randbytes(16))
    raw[6], raw[8] = raw[6] & 0x0F | 0x40, raw[8] & 0x3F | 0x80
    return Uuid(bytes(raw))


def random_uuid(rng: Rng) -> Uuid:
    """A new id, version 4. As in Apache Kafka its text has no leading `-`, which tools take for an option."""
    while uuid_text(made := uuid_v4(rng)).startswith("-"):
        continue
    return made


def uuid_text(uuid: bytes) -> str:
    """Return Kafka's text form: base64url, 22 characters, no padding."""
    return urlsafe_b64encode(uuid).rstrip(b"=").decode("ascii")


def parse_uuid(text: str) -> Uuid:
    """Parse Kafka's text form. Raise ValueError unless it is 16 bytes of base64url."""
    try:
        raw = urlsafe_b64decode(text + "==")
    except ValueError as error:
        raise ValueError(f"invalid Kafka id: {text!r} (expected 22 characters of base64url)") from error
    if len(raw) != 16:
        raise ValueError(f"invalid Kafka id: {text!r} (expected 22 characters of base64url)")
    return Uuid(raw)


def java_string_hash(text: str) -> int:
    """Return Java's `String.hashCode` as a signed 32-bit number: it maps groups and transactions to partitions."""
    units = text.encode("utf-16-be")
    value = 0
    for index in range(0, len(units), 2):
        value = (31 * value + (units[index] << 8 | units[index + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def coordinator_partition(name: str, partitions: int) -> int:
    """Return the partition of `__consumer_offsets` or `__transaction_state` for this group or transactional id.

    As Kafka's `Utils.abs`: the absolute value, not the low 31 bits; -2^31, which has no absolute value, counts as 0.
    """
    value = java_string_hash(name)
    return 0 if value == -(1 << 31) else abs(value) % partitions
