"""Where a consumer stands in each of its partitions, and what has been fetched ahead of that. Pure.

Rules:
- `position` is the offset of the next record that the program gets; `fetch_offset` that of the next one to fetch. What
  lies between is in `chunks`. A seek drops the chunks, and an answer to a fetch that began elsewhere is dropped when
  it comes.
- The fetching side puts chunks in, the polling side takes records out; whoever owns both serialises them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from ottla.client.record import ConsumerRecord, batches, decode_batch
from ottla.kernel.error import KafkaError
from ottla.kernel.name import TopicPartition
from ottla.kernel.port import Buffer
from ottla.wire.batch import BatchHeader, headers


class Chunk:
    """The bytes of one partition from one fetch."""

    __slots__ = ("data", "end_offset", "iterator", "size")

    def __init__(
        self, data: Buffer, offset: int, aborted: Iterable[tuple[int, int]] | None, *, check_crcs: bool
    ) -> None:
        self.data = data
        self.size = len(data)
        self.iterator: Iterator[tuple[int, BatchHeader]] = batches(data, offset, aborted=aborted, check_crcs=check_crcs)
        #: The offset after the last whole batch; `offset` if there is none.
        self.end_offset = offset
        for _, header in headers(data):
            self.end_offset = max(offset, header.base_offset + header.last_offset_delta + 1)


class PartitionPosition:
    """One assigned partition."""

    __slots__ = (
        "buffered",
        "chunks",
        "error",
        "fetch_offset",
        "fetching",
        "high_watermark",
        "last_stable_offset",
        "leftover",
        "log_start_offset",
        "partition",
        "paused",
        "position",
        "preferred",
        "reset",
    )

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        #: None until it is known where to begin.
        self.position: int | None = None
        self.fetch_offset = -1
        self.paused = False
        #: Is a fetch of it on its way?
        self.fetching = False
        self.chunks: deque[Chunk] = deque()
        #: Bytes in `chunks`.
        self.buffered = 0
        #: Decoded records that the last poll had no room for, the next one last.
        self.leftover: list[ConsumerRecord] = []
        #: Found out by fetches; -1 before.
        self.high_watermark = -1
        self.last_stable_offset = -1
        self.log_start_offset = -1
        #: What the next poll raises.
        self.error: KafkaError | None = None
        #: How to find the position: "committed" first, or by a reset policy ("earliest", ...). None once it is known.
        self.reset: str | None = "committed"
        #: The replica that the leader sent us to, and until when (monotonic ms) (KIP-392).
        self.preferred: tuple[int, int] | None = None

    def seek(self, offset: int) -> None:
        """Go on from `offset`."""
        self.position = self.fetch_offset = offset
        self.reset = None
        self.error = None
        self._drop()

    def forget(self, policy: str) -> None:
        """The position is not known any more: find it by `policy`."""
        self.position = None
        self.reset = policy
        self.error = None
        self._drop()

    def _drop(self) -> None:
        self.chunks.clear()
        self.leftover = []
        self.buffered = 0

    def fetched(self, chunk: Chunk, offset: int) -> bool:
        """Take in what came for a fetch from `offset`. False if that is no longer where we are."""
        if self.position is None or offset != self.fetch_offset:
            return False
        if chunk.end_offset > offset:
            self.chunks.append(chunk)
            self.buffered += chunk.size
            self.fetch_offset = chunk.end_offset
        return True

    @property
    def has_records(self) -> bool:
        """Is there anything to take?"""
        return not self.paused and bool(self.leftover or self.chunks)

    def take(self, records_max: int) -> list[ConsumerRecord]:
        """Up to so many records, in order; the position moves behind them."""
        topic, number = self.partition
        found: list[ConsumerRecord] = self.leftover
        self.leftover = []
        while len(found) < records_max and self.chunks:
            batch = self.next_batch()
            if batch is None:
                continue
            data, position, header = batch
            assert self.position is not None
            records = decode_batch(data, position, header, topic, number, self.position)
            self.position = header.base_offset + header.last_offset_delta + 1
            if found:
                found += records
            else:
                found = records
        if len(found) > records_max:
            self.leftover = found[records_max:]
            del found[records_max:]
            self.position = self.leftover[0].offset
        elif found:
            assert self.position is not None
            self.position = self.fetch_offset if not self.chunks else max(self.position, found[-1].offset + 1)
        return found

    def next_batch(self) -> tuple[Buffer, int, BatchHeader] | None:
        """The next batch to show, still encoded, of the first chunk; None when that one is used up (and gone)."""
        chunk = self.chunks[0]
        found = next(chunk.iterator, None)
        if found is None:
            self.chunks.popleft()
            self.buffered -= chunk.size
            if not self.leftover:
                # Behind what was not shown too: control batches, aborted transactions.
                self.position = chunk.end_offset
            return None
        return (chunk.data, *found)
