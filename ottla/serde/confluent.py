"""Confluent's wire format: the prefix of a value whose schema is in a registry.

The prefix is a zero byte and the schema id as four bytes, big-endian; for Protobuf, the message's index path follows.
"""

from __future__ import annotations

from ottla.kernel.error import OttlaError

PREFIX_BYTES = 5


def prefix(schema_id: int, place: bytes = b"") -> bytes:
    """The prefix of a value; `place` is the encoded index path of a Protobuf message in its file."""
    if not 0 <= schema_id < 1 << 31:
        raise OttlaError(f"invalid schema_id: {schema_id} (expected a registry's schema id, 0 to 2147483647)")
    return b"\0" + schema_id.to_bytes(4, "big") + place


def split_prefix(value: bytes) -> tuple[int, bytes]:
    """The schema id and the value after the prefix. OttlaError if the prefix is missing."""
    if len(value) < PREFIX_BYTES or value[0]:
        raise OttlaError("not in Confluent's wire format: expected a zero byte, a four-byte schema id and the value")
    return int.from_bytes(value[1:PREFIX_BYTES], "big"), value[PREFIX_BYTES:]
