"""Confluent's wire format: what stands before a value whose schema is in a registry.

A zero byte, then the schema's id in four bytes, big-endian; for Protobuf, the message's place in its file follows.
"""

from __future__ import annotations

from ottla.kernel.error import OttlaError

PREFIX_BYTES = 5


def prefix(schema_id: int, place: bytes = b"") -> bytes:
    """What stands before a value; `place` is that of a Protobuf message in its file."""
    if not 0 <= schema_id < 1 << 31:
        raise OttlaError(f"schema_id is a registry's id of a schema, not {schema_id}")
    return b"\0" + schema_id.to_bytes(4, "big") + place


def behind(value: bytes) -> tuple[int, bytes]:
    """The schema's id, and what is behind it."""
    if len(value) < PREFIX_BYTES or value[0]:
        raise OttlaError("not in Confluent's wire format: a zero byte, four of the schema's id, then the value")
    return int.from_bytes(value[1:PREFIX_BYTES], "big"), value[PREFIX_BYTES:]
