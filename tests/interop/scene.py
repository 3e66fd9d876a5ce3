"""What scenes share: which peers a scene is for, and the records it sends."""

import time
from collections.abc import Callable

import pytest

from tests.interop.peer import KINDS, Kind, Record

#: A whole number of ms in the recent past: within `message.timestamp.before.max.ms`, and never in the future.
NOW_MS = int(time.time()) * 1000 - 60_000


def each_peer(can: Callable[[Kind], bool] = lambda kind: True, argument: str = "peer") -> pytest.MarkDecorator:
    """Run the scene with every peer that can."""
    kinds = [kind for kind in KINDS.values() if can(kind)]
    return pytest.mark.parametrize(argument, kinds, ids=[kind.name for kind in kinds], indirect=True)


def all_sorts(kind: Kind, partition: int = 0) -> list[Record]:
    """One of each sort of record that this client can send: with and without key, value and headers, and any bytes."""
    headers: tuple[tuple[str, bytes | None], ...] = (("trace", b"a"), ("trace", b"b"), ("empty", b""))
    if kind.null_headers:
        headers = (*headers, ("null", None))
    if not kind.repeated_headers:
        headers = (("trace", b"a"), ("empty", b""))
    return [
        Record(partition, NOW_MS, b"key", b"value", headers),
        Record(partition, NOW_MS + 1, None, b"no key"),
        Record(partition, NOW_MS + 1, b"tombstone", None),
        Record(partition, NOW_MS - 500, b"", b""),
        Record(partition, NOW_MS + 2, bytes(range(256)), bytes(range(255, -1, -1))),
        Record(partition, NOW_MS + 3, "kľúč".encode(), ("long " * 3000).encode()),
    ]


def plain(count: int, partitions: int = 1, start: int = 0) -> list[Record]:
    """Numbered records, spread over the partitions."""
    return [
        Record(number % partitions, NOW_MS + number, f"key-{number}".encode(), f"value-{number}".encode())
        for number in range(start, start + count)
    ]
