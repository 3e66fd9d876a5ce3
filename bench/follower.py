"""The leader's cost of a follower's fetch when one of many partitions has a new record.

Rules:
- The bench is the follower: the node is dead, and a raw connection fetches in its name, with an incremental fetch
  session (KIP-227) as replicas do. A fetch waits at the leader until the next record completes it.
- The figure is the CPU time of the leader's process for a record and a fetch, minus that for a record alone, which is
  sent to a topic like the other one, whose follower is dead, too. Both are measured when each partition has a record,
  in short slices by turns. The cheapest slice of each counts: what else the machine does only makes a slice dearer,
  by its caches and the host's other guests.
"""

from __future__ import annotations

import struct
from pathlib import Path

from bench import raw
from ottla.wire.api.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from ottla.wire.compile import decode, encode

FETCH, FETCH_VERSION = 1, 11
_SLICES = 25


class Follower:
    """A connection that fetches all partitions of a topic in the name of a replica."""

    def __init__(self, port: int, replica: int, topic: str, partitions: int) -> None:
        self._connection = raw.Connection(port)
        self._replica = replica
        self._topic = topic
        self._offsets = [0] * partitions
        self._session, self._epoch = 0, 0
        self._changed = list(range(partitions))

    def send(self, wait_ms: int) -> None:
        """Fetch the changes since the last fetch."""
        partitions = [
            FetchPartition(
                partition=each, fetch_offset=self._offsets[each], log_start_offset=0, partition_max_bytes=1 << 20
            )
            for each in self._changed
        ]
        request = FetchRequest(
            replica_id=self._replica,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=10 << 20,
            session_id=self._session,
            session_epoch=self._epoch,
            topics=[FetchTopic(topic=self._topic, partitions=partitions)] if partitions else [],
        )
        self._connection.send(raw.frame(FETCH, FETCH_VERSION, encode(request, FETCH_VERSION)))

    def read(self) -> int:
        """Read the answer; returns the number of partitions with records."""
        answer, _ = decode(FetchResponse, FETCH_VERSION, self._connection.read(), 4)
        if answer.error_code:
            raise RuntimeError(f"the leader refuses the fetch with error {answer.error_code}")
        self._session, self._epoch = answer.session_id, self._epoch + 1
        self._changed = []
        for topic in answer.responses:
            for each in topic.partitions:
                if each.error_code:
                    raise RuntimeError(
                        f"the leader answers error {each.error_code} of partition {each.partition_index}"
                    )
                if each.records:
                    self._offsets[each.partition_index] = _next_offset(bytes(each.records))
                    self._changed.append(each.partition_index)
        return len(self._changed)

    def close(self) -> None:
        self._connection.close()


def fetch_us(port: int, pid: int, replica: int, topic: str, partitions: int, beside: str, count: int) -> float:
    """Microseconds of the leader's CPU per fetch. Nobody fetches `beside`, a topic of as many partitions."""
    follower = Follower(port, replica, topic, partitions)
    with raw.Connection(port) as producer:

        def cost_s(target: str, numbers: range) -> float:
            fetching, began = target == topic, _cpu_s(pid)
            for number in numbers:
                if fetching:
                    follower.send(10_000)
                producer.ask(raw.produce_frame(target, [number * 7 % partitions], 1, 100, acks=1))
                if fetching and follower.read() != 1:
                    raise RuntimeError("a fetch was answered without the one record that was written")
            return _cpu_s(pid) - began

        try:
            follower.send(0)
            while follower.read():
                follower.send(0)
            for target in (topic, beside):
                cost_s(target, range(partitions))
            size = max(1, count // _SLICES)
            slices = [range(first, first + size) for first in range(partitions, partitions + count, size)]
            costs = [(cost_s(topic, each), cost_s(beside, each)) for each in slices]
            return 1e6 * (min(both for both, _ in costs) - min(alone for _, alone in costs)) / size
        finally:
            follower.close()


def _next_offset(records: bytes) -> int:
    """The offset after the last batch: base offset and length, and the last offset delta at byte 23."""
    at, offset = 0, 0
    while at + 61 <= len(records):
        base, length = struct.unpack_from(">qi", records, at)
        if at + 12 + length > len(records):
            break
        offset = base + int(struct.unpack_from(">i", records, at + 23)[0]) + 1
        at += 12 + length
    return offset


def _cpu_s(pid: int) -> float:
    """The CPU time of all threads of a process, by the scheduler's clock."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9
