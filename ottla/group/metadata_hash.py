"""A hash over the topic metadata that a group's assignment depends on.

The hash equals Apache Kafka's (XXH3-64 over the same bytes), because it is in the log: after a migration to the other
implementation, the broker must not conclude that every topic has changed.
"""

import struct
from collections.abc import Iterable

from ottla.group.topic import TopicView, existing

_LONG = struct.Struct("<q")
_INT = struct.Struct("<i")
#: The format of a topic's bytes.
_MAGIC = b"\0"


def metadata_hash(names: Iterable[str], topics: TopicView) -> int:
    """The hash of the topics that exist; 0 if none does."""
    hashes = [topic_hash(name, topics) for name in sorted({*existing(names, topics)}, key=_java_order)]
    return _xxh3(b"".join(map(_LONG.pack, hashes))) if hashes else 0


def topic_hash(name: str, topics: TopicView) -> int:
    """The hash of an existing topic: its id, name, partitions and their racks."""
    topic_id = topics.topic_id(name)
    assert topic_id is not None
    parts = [_MAGIC, topic_id[7::-1], topic_id[:7:-1], _text(name)]
    count = topics.partition_count(name)
    parts.append(_INT.pack(count))
    for partition in range(count):
        parts.append(_INT.pack(partition))
        racks = sorted(topics.racks(name, partition), key=_java_order)
        parts += [_INT.pack(len(rack.encode("utf-16-le")) // 2) + _text(rack) for rack in racks]
    return _xxh3(b"".join(parts))


def _java_order(text: str) -> bytes:
    return text.encode("utf-16-be")


def _text(text: str) -> bytes:
    raw = text.encode("utf-16-le")
    return raw + _INT.pack(len(raw) // 2)


def _xxh3(data: bytes) -> int:
    # Imported on first use: only consumer groups need it.
    from xxhash import xxh3_64_intdigest

    value = xxh3_64_intdigest(data)
    return value - (1 << 64) if value >> 63 else value
