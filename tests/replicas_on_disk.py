"""What the replicas of a topic hold, read from the disks of nodes of both kinds."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

_HEADER = 12


def batches(directory: Path) -> list[bytes]:
    """The batches of a partition's directory, in order, with their base offsets and leader epochs."""
    data = b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))
    found, at = [], 0
    while at + _HEADER <= len(data):
        size = int.from_bytes(data[at + 8 : at + _HEADER])
        if size <= 0:
            break  # room that was made ahead
        found.append(data[at : at + _HEADER + size])
        at += _HEADER + size
    return found


def assert_same(directories: Iterable[Path], partition: str) -> int:
    """Every directory holds the same batches of `partition` (TOPIC-N); how many."""
    first, *others = directories
    expected = batches(first / partition)
    for other in others:
        found = batches(other / partition)
        for number, (ours, theirs) in enumerate(zip(expected, found, strict=False)):
            assert ours == theirs, f"{partition}: batch {number} differs in {first} and {other}"
        assert len(found) == len(expected), f"{partition}: {len(expected)} batches in {first}, {len(found)} in {other}"
    return len(expected)


def assert_common_prefix(directories: Iterable[Path], partition: str, end_offset: int) -> int:
    """Where two directories both have a batch below `end_offset`, it is the same; how many the first has."""
    held = [{int.from_bytes(each[:8]): each for each in batches(home / partition)} for home in directories]
    for number, other in enumerate(held[1:], 1):
        for offset in held[0].keys() & other.keys():
            if offset < end_offset:
                assert held[0][offset] == other[offset], f"{partition}: {offset} differs in directory {number}"
    return len(held[0])
