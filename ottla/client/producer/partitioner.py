"""Chooses a record's partition: by its key, as the Java client does, or any partition, one batch after another.

Rules:
- A key's partition is `(murmur2(key) & 0x7fffffff) % partitions`, so that clients in all languages agree.
- Records without a key stick to one partition until its batch is closed (KIP-480). The next partition is the less
  loaded of two chosen at random among those with a leader (KIP-794 balances by load; two choices are enough for that).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache

from ottla.kernel.ports import Rng

_MULTIPLIER = 0x5BD1E995
_SEED = 0x9747B28C
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Murmur2 with Kafka's seed, as an unsigned 32-bit number."""
    length = len(data)
    aligned = length & ~3
    value = _SEED ^ length
    for (piece,) in struct.iter_unpack("<I", data[:aligned]):
        piece = (piece * _MULTIPLIER) & _MASK
        piece = ((piece ^ (piece >> 24)) * _MULTIPLIER) & _MASK
        value = ((value * _MULTIPLIER) & _MASK) ^ piece
    if length != aligned:
        value = ((value ^ int.from_bytes(data[aligned:], "little")) * _MULTIPLIER) & _MASK
    value = ((value ^ (value >> 13)) * _MULTIPLIER) & _MASK
    return value ^ (value >> 15)


@lru_cache(maxsize=16_384)
def key_hash(key: bytes) -> int:
    """A key's hash, 0 to 2^31-1. Keys repeat, so the last 16,384 hashes are cached."""
    return murmur2(key) & 0x7FFFFFFF


def key_partition(key: bytes, partitions: int) -> int:
    """The partition of a key in a topic with this many partitions."""
    return key_hash(key) % partitions


def next_sticky(available: Sequence[int], load: Sequence[int], current: int, rng: Rng) -> int:
    """The partition for the next batch of records without keys. `load` is the queue length by partition number."""
    if len(available) < 2:
        return available[0]
    others = [number for number in available if number != current]
    first = others[rng.randrange(len(others))]
    second = others[rng.randrange(len(others))]
    return second if load[second] < load[first] else first
