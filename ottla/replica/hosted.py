"""A replica that this node hosts, in one leader epoch: what can be read of it, whatever node leads.

Rules:
- A consumer's read is bounded by the high watermark, or by the last stable offset for `read_committed` (KIP-98).
- A request that names a leader epoch gets FENCED_LEADER_EPOCH when it is old and UNKNOWN_LEADER_EPOCH when it is
  newer than ours (KIP-320).
- An object lives for one leader epoch: a reference that was kept from an earlier one is not the replica that is hosted.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import TopicPartition, Uuid
from ottla.kernel.named import NamedTuple
from ottla.log.epoch import UNDEFINED_EPOCH
from ottla.log.log import Log
from ottla.log.segment.segment import Slice

READ_COMMITTED = 1
#: The isolation level of a follower.
TO_THE_END = -1


class Fetched(NamedTuple):
    """What a fetch of one partition found."""

    records: Slice | None
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    #: (producer id, first offset) of the aborted transactions in the range; None with read_uncommitted.
    aborted: list[tuple[int, int]] | None


class HostedReplica:
    """What a leader and a follower have in common. The node makes it when the metadata image says so."""

    __slots__ = ("leader_epoch", "log", "on_readable", "topic_id", "tp", "waiting")

    def __init__(self, tp: TopicPartition, topic_id: Uuid, log: Log, leader_epoch: int) -> None:
        self.tp = tp
        self.topic_id = topic_id
        self.log = log
        self.leader_epoch = leader_epoch
        #: Called when there is more to read and a fetch waits; the node wakes them at the end of the loop's turn.
        self.on_readable: Callable[[HostedReplica], None] | None = None
        #: Called when there is more to read; a dict keeps the order in which they came.
        self.waiting: dict[Callable[[], None], None] = {}

    @property
    def high_watermark(self) -> int:
        """The first offset that is not yet on all in-sync replicas, and on the disk where `flush.messages` says so."""
        return self.log.high_watermark

    def moved_to(self, log: Log) -> None:
        """The log lies in another directory now, and is the same otherwise."""
        log.high_watermark = self.log.high_watermark
        self.log = log

    def tell(self) -> None:
        """There may be more to read."""
        if self.waiting and self.on_readable is not None:
            self.on_readable(self)

    def end(self, error: KafkaError) -> None:
        """Hosted no more in this epoch: all who wait find that out. `error` is why."""
        for wake in list(self.waiting):
            wake()

    def check_epoch(self, epoch: int) -> None:
        """Compare the leader epoch that a client believes in with ours; -1 says that it does not know."""
        if epoch in (-1, self.leader_epoch):
            return
        if epoch < self.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(the greatest known epoch not above it, where that one ends); (-1, -1) if unknown.

        Our own epoch is known before its first batch is written. It ends with the log, as in Apache Kafka: a follower
        may have more than the high watermark.
        """
        if epoch == self.leader_epoch:
            return epoch, self.log.end_offset
        latest = self.log.epochs.latest
        if latest < self.leader_epoch and epoch != UNDEFINED_EPOCH:
            # Ours begins at the end of the log, though nothing is written in it yet.
            if latest < 0 and epoch < self.leader_epoch:
                return epoch, self.log.end_offset
            if latest <= epoch < self.leader_epoch:
                return latest, self.log.end_offset
        return self.log.end_offset_for_epoch(epoch)

    def epoch_at(self, offset: int) -> int:
        """The leader epoch that wrote `offset`, or will write it: ours from the end of the log on."""
        return self.leader_epoch if offset >= self.log.end_offset else self.log.epoch_at(offset)

    def end_for(self, isolation_level: int) -> int:
        """The exclusive bound of what a consumer of this isolation level may see, or a replica (`TO_THE_END`)."""
        if isolation_level == TO_THE_END:
            return self.log.end_offset
        if isolation_level == READ_COMMITTED:
            return min(self.log.last_stable_offset, self.high_watermark)
        return self.high_watermark

    def read(self, offset: int, bytes_max: int, isolation_level: int, *, min_one_batch: bool) -> Fetched:
        """Records from `offset` up to the bound. OFFSET_OUT_OF_RANGE outside of the log."""
        log = self.log
        high_watermark, stable = self.high_watermark, log.last_stable_offset
        if isolation_level == READ_COMMITTED:
            bound = min(stable, high_watermark)
        else:
            bound = log.end_offset if isolation_level == TO_THE_END else high_watermark
        if not log.start_offset <= offset <= log.end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        records = None
        cut = False
        if offset < bound and (bytes_max > 0 or min_one_batch):
            found = log.read(offset, bytes_max, end_offset=bound, min_one_batch=min_one_batch)
            records, cut = (found, False) if len(found) else (None, True)
        aborted = None
        # Nothing is told of a batch that did not fit, as in Apache Kafka.
        if isolation_level == READ_COMMITTED and not cut:
            aborted = self._aborted(offset, records) if records is not None else []
        return Fetched(records, high_watermark, stable, log.start_offset, aborted)

    def _aborted(self, offset: int, records: Slice) -> list[tuple[int, int]]:
        end = self.log.end_of(records)
        return [(each.producer_id, each.first_offset) for each in self.log.aborted(offset, end)]
