"""A consumer's position in each partition, and the data fetched ahead of it. Pure.

Rules:
- `position` is the offset of the next record for the program; `fetch_offset` that of the next record to fetch. The data
  in between is in `chunks`. A seek drops the chunks; an answer to a fetch from another offset is dropped when it
  arrives.
- A position has the leader epoch of the last batch before it. A commit stores that epoch, so that the next reader can
  tell whether the log was truncated and rewritten in the meantime (KIP-320).
- A position with an epoch is validated under each new leader epoch before anything more is fetched or returned: the
  leader says where that epoch ends in its log. An end below the position means that the log was truncated. Without a
  reset policy that is an error; with one, the position moves back to that end, or is reset if no end is known.
- The fetcher adds chunks, polls take records out; the owner serialises the calls.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from ottla.columns.record import ConsumerRecord, Unread, batches
from ottla.kernel.client_error import LogTruncation
from ottla.kernel.error import KafkaError
from ottla.kernel.ids import TopicPartition
from ottla.kernel.named import NamedTuple
from ottla.kernel.ports import Buffer
from ottla.wire.batch import NO_LEADER_EPOCH, BatchHeader, headers


class Chunk:
    """The bytes of one partition from one fetch."""

    __slots__ = ("data", "end_epoch", "end_offset", "iterator", "size")

    def __init__(
        self, data: Buffer, offset: int, aborted: Iterable[tuple[int, int]] | None, *, check_crcs: bool
    ) -> None:
        self.data = data
        #: Bytes not taken out yet.
        self.size = len(data)
        self.iterator: Iterator[tuple[int, BatchHeader]] = batches(data, offset, aborted=aborted, check_crcs=check_crcs)
        #: The offset after the last complete batch (`offset` if there is none), and that batch's leader epoch.
        self.end_offset = offset
        self.end_epoch = NO_LEADER_EPOCH
        for _, header in headers(data):
            self.end_offset = max(offset, header.base_offset + header.last_offset_delta + 1)
            self.end_epoch = header.partition_leader_epoch


class Doubt(NamedTuple):
    """A position to be validated, and the leader to ask."""

    offset: int
    epoch: int
    leader: int
    leader_epoch: int


class PartitionPosition:
    """The position and fetched data of an assigned partition."""

    __slots__ = (
        "buffered",
        "chunks",
        "epochs",
        "error",
        "fetch_offset",
        "fetching",
        "held",
        "high_watermark",
        "last_stable_offset",
        "leader",
        "log_start_offset",
        "partition",
        "paused",
        "position",
        "preferred",
        "reset",
        "unread",
        "validate_at_ms",
        "validating",
    )

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        #: None until the starting position is known.
        self.position: int | None = None
        #: (offset, leader epoch): the first batch read after `offset` has this epoch. The first entry is for what was
        #: read before the last poll.
        self.epochs: list[tuple[int, int]] = [(-1, NO_LEADER_EPOCH)]
        self.fetch_offset = -1
        self.paused = False
        #: True while a fetch of this partition is in flight.
        self.fetching = False
        #: A node that has nothing for this partition now, and when to ask it again (monotonic ms).
        self.held: tuple[int, int] | None = None
        self.chunks: deque[Chunk] = deque()
        #: Bytes in `chunks` not taken out yet.
        self.buffered = 0
        #: The rest of the batch that the last poll took a part of; None if it took all of it.
        self.unread: Unread | None = None
        #: From the last fetch; -1 before the first.
        self.high_watermark = -1
        self.last_stable_offset = -1
        self.log_start_offset = -1
        #: Error for the next poll to raise.
        self.error: Exception | None = None
        #: How to find the position: "committed" first, or a reset policy ("earliest", ...). None once it is known.
        self.reset: str | None = "committed"
        #: The replica that the leader prefers for this client, and until when (monotonic ms) (KIP-392).
        self.preferred: tuple[int, int] | None = None
        #: (node, leader epoch) with which the position was last compared; None after a seek.
        self.leader: tuple[int, int] | None = None
        #: True until the leader has confirmed that its log has what was read before the position.
        self.validating = False
        #: Earliest time to ask the leader (again), monotonic ms.
        self.validate_at_ms = 0

    def seek(self, offset: int, epoch: int = NO_LEADER_EPOCH) -> None:
        """Move to `offset`; `epoch` is the leader epoch of the record before it, if known."""
        self._move_to(offset, epoch)
        self.error = None
        self._clear_leader()

    def _clear_leader(self) -> None:
        self.leader = None
        self.validating = False

    def led_by(self, leader: int, epoch: int) -> None:
        """Note the leader from the metadata; start a validation if it has changed."""
        if self.position is None or self.leader == (leader, epoch):
            return
        if self.leader is not None:
            self.preferred = None
        self.leader = (leader, epoch)
        self.validating = self.epoch >= 0 and epoch >= 0
        if self.validating:
            # Data fetched from the old leader may be what was truncated.
            self._move_to(self.position, self.epoch)

    def doubt(self) -> Doubt | None:
        """The question for the leader; None if the position needs no validation."""
        if not self.validating or self.position is None or self.leader is None:
            return None
        return Doubt(self.position, self.epoch, *self.leader)

    def validated(self, doubt: Doubt, end_epoch: int, end_offset: int, policy: str) -> LogTruncation | None:
        """Apply the leader's answer: the largest epoch not above the doubt's, and that epoch's end offset (-1:
        unknown).

        Returns the truncation, even if the reset policy repairs it. None without one, or if the position has moved.
        """
        if doubt != self.doubt():
            return None
        unknown = end_epoch < 0 or end_offset < 0
        if not unknown and end_offset >= doubt.offset:
            self.validating = False
            return None
        end = None if unknown else (end_offset, end_epoch)
        truncated = LogTruncation(self.partition, doubt.offset, doubt.epoch, end)
        if policy == "none":
            self.error = truncated
            self.validate_at_ms = 0
        elif end is None:
            self.forget(policy)
        else:
            self._move_to(*end)
            self.validating = False
        return truncated

    def trusted(self, doubt: Doubt) -> None:
        """Accept a position without validation: the leader is too old to be asked."""
        if doubt == self.doubt():
            self.validating = False

    def answers(self, leader_epoch: int) -> bool:
        """Does the answer to a fetch with this leader epoch still count?"""
        return not self.validating and (self.leader is None or self.leader[1] == leader_epoch)

    def _move_to(self, offset: int, epoch: int) -> None:
        self.validate_at_ms = 0
        self.position = self.fetch_offset = offset
        self.epochs = [(-1, epoch)]
        self.reset = None
        self._drop()

    @property
    def epoch(self) -> int:
        """The leader epoch of the last batch read before the position; -1 if unknown."""
        return self.epochs[-1][1]

    def epoch_before(self, offset: int) -> int:
        """The leader epoch of the last batch read before an offset that the last poll passed."""
        return next((epoch for start, epoch in reversed(self.epochs) if start < offset), self.epochs[0][1])

    def _read(self, epoch: int) -> None:
        """Note the leader epoch of the next batch after the position."""
        if epoch != self.epochs[-1][1]:
            assert self.position is not None
            self.epochs.append((self.position, epoch))

    def forget(self, policy: str) -> None:
        """Drop the position; it is to be found by `policy`."""
        self.position = None
        self.epochs = [(-1, NO_LEADER_EPOCH)]
        self.reset = policy
        self.error = None
        self._clear_leader()
        self._drop()

    def _drop(self) -> None:
        self.chunks.clear()
        self.unread = None
        self.buffered = 0

    def fetched(self, chunk: Chunk, offset: int) -> bool:
        """Take in a chunk fetched from `offset`. False if the fetch offset has moved since."""
        if self.position is None or self.validating or offset != self.fetch_offset:
            return False
        if chunk.end_offset > offset:
            self.chunks.append(chunk)
            self.buffered += chunk.size
            self.fetch_offset = chunk.end_offset
        return True

    def end_offset(self, *, stable: bool) -> int:
        """The offset up to which records can be read, as of the last fetch; -1 before the first."""
        return self.last_stable_offset if stable else self.high_watermark

    @property
    def has_records(self) -> bool:
        """Is there buffered data to take?"""
        return not self.paused and bool(self.unread or self.chunks)

    def take(self, records_max: int) -> list[ConsumerRecord]:
        """Take up to `records_max` records in order, and move the position past them.

        A batch that cannot be read sets `error`, and the position stays before it.
        """
        topic, number = self.partition
        records: list[ConsumerRecord] = []
        del self.epochs[:-1]
        while len(records) < records_max:
            unread = self.unread
            if unread is None:
                if not self.chunks:
                    break
                assert self.position is not None
                try:
                    batch = self.next_batch()
                    if batch is None:
                        continue
                    unread = Unread(*batch, topic, number, self.position)
                except KafkaError as error:
                    self.stop(self.position, error)
                    break
            batch_records = unread.take(records_max - len(records))
            records = records + batch_records if records else batch_records
            self.position = unread.next_offset
            self.unread = unread if unread else None
        if self.unread is None and not self.chunks and self.error is None:
            self.position = self.fetch_offset
        return records

    def stop(self, offset: int, error: Exception | None) -> None:
        """Move back to `offset`; the next poll raises `error`, and the one after it tries again there."""
        self.go_back(offset)
        self.error = error

    def go_back(self, offset: int) -> None:
        """Move back to an offset that the last poll passed."""
        self._move_to(offset, self.epoch_before(offset))

    def raise_error(self) -> None:
        """Raise the pending error once, if there is one."""
        error, self.error = self.error, None
        if error is not None:
            raise error

    def next_batch(self) -> tuple[Buffer, int, BatchHeader] | None:
        """Take the next visible batch out of the first chunk, still encoded; None when that chunk is used up.

        Its bytes are released at once, so that the next fetch runs while this batch is processed.
        """
        chunk = self.chunks[0]
        batch = next(chunk.iterator, None)
        taken = chunk.size if batch is None else min(chunk.size, batch[1].size)
        chunk.size -= taken
        self.buffered -= taken
        if batch is None:
            self.chunks.popleft()
            # Also skip what is not visible: control batches and aborted transactions.
            self._read(chunk.end_epoch)
            self.position = chunk.end_offset
            return None
        self._read(batch[1].partition_leader_epoch)
        return (chunk.data, *batch)
