"""A replica that this node hosts in one leader epoch, leader or follower: the reads that both serve.

Rules:
- A consumer's read is bounded by the high watermark, or by the last stable offset for `read_committed` (KIP-98).
- A request that names a leader epoch gets FENCED_LEADER_EPOCH when the epoch is older and UNKNOWN_LEADER_EPOCH when it
  is newer than ours (KIP-320).
- An object lives for one leader epoch; do not keep a reference to it beyond that epoch.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.kernel.callbacks import call_each
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import TopicPartition, Uuid
from ottla.kernel.named import NamedTuple
from ottla.log.log import Log
from ottla.log.segment.segment import Slice

READ_COMMITTED = 1
#: The isolation level of a follower.
LOG_END = -1


class Fetched(NamedTuple):
    """The result of a read."""

    records: Slice | None
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    #: (producer id, first offset) of the aborted transactions in the range; None with read_uncommitted.
    aborted: list[tuple[int, int]] | None


class HostedReplica:
    """The base of leader and follower. The node creates it when the metadata image assigns the replica."""

    __slots__ = ("leader_epoch", "log", "on_readable", "topic_id", "tp", "waiting")

    def __init__(self, tp: TopicPartition, topic_id: Uuid, log: Log, leader_epoch: int) -> None:
        self.tp = tp
        self.topic_id = topic_id
        self.log = log
        self.leader_epoch = leader_epoch
        #: Called when there is more to read and a fetch waits; the node wakes fetches at the end of the loop's turn.
        self.on_readable: Callable[[HostedReplica], None] | None = None
        #: Callbacks of the waiting fetches; a dict keeps their order.
        self.waiting: dict[Callable[[], None], None] = {}

    @property
    def high_watermark(self) -> int:
        """The first offset that is not yet on all in-sync replicas, and flushed where `flush.messages` asks for it."""
        return self.log.high_watermark

    @property
    def is_catching_up(self) -> bool:
        """Whether more may be committed than this replica knows: so of a leader in the beginning of its epoch."""
        return False

    def replace_log(self, log: Log) -> None:
        """Use `log`, the same log in another directory."""
        log.high_watermark = self.log.high_watermark
        self.log = log

    def notify_readers(self) -> None:
        """Tell the node that there may be more to read."""
        if self.waiting and self.on_readable is not None:
            self.on_readable(self)

    def end(self, error: KafkaError) -> None:
        """Wake all waiting fetches: the node no longer hosts the replica in this epoch. `error` is why."""
        call_each(list(self.waiting))

    def check_epoch(self, epoch: int) -> None:
        """Raise KafkaError if a client's leader epoch is not ours; -1 means that the client does not know it."""
        if epoch in (-1, self.leader_epoch):
            return
        if epoch < self.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(the greatest known epoch that is at most `epoch`, its end offset); (-1, -1) if unknown.

        A follower does not know an epoch before it has a batch of it: its log may end long before that epoch began.
        """
        return self.log.end_offset_for_epoch(epoch)

    def epoch_at(self, offset: int) -> int:
        """The leader epoch that wrote `offset`, or ours if `offset` is not written yet."""
        return self.leader_epoch if offset >= self.log.end_offset else self.log.epoch_at(offset)

    def read_bound(self, isolation_level: int) -> int:
        """The offset below which a fetch of this isolation level, or of a replica (`LOG_END`), may read."""
        if isolation_level == LOG_END:
            return self.log.end_offset
        if isolation_level == READ_COMMITTED:
            return min(self.log.last_stable_offset, self.high_watermark)
        return self.high_watermark

    def read(self, offset: int, bytes_max: int, isolation_level: int, *, min_one_batch: bool) -> Fetched:
        """Records from `offset` up to the isolation level's bound. OFFSET_OUT_OF_RANGE outside the log."""
        log = self.log
        high_watermark, stable = self.high_watermark, log.last_stable_offset
        if isolation_level == READ_COMMITTED:
            bound = min(stable, high_watermark)
        else:
            bound = log.end_offset if isolation_level == LOG_END else high_watermark
        if not log.start_offset <= offset <= log.end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        records = None
        truncated = False
        if offset < bound and (bytes_max > 0 or min_one_batch):
            fetched = log.read(offset, bytes_max, end_offset=bound, min_one_batch=min_one_batch)
            records, truncated = (fetched, False) if len(fetched) else (None, True)
        aborted = None
        # As in Apache Kafka, a response whose first batch did not fit lists no aborted transactions.
        if isolation_level == READ_COMMITTED and not truncated:
            aborted = self._aborted(offset, records) if records is not None else []
        return Fetched(records, high_watermark, stable, log.start_offset, aborted)

    def _aborted(self, offset: int, records: Slice) -> list[tuple[int, int]]:
        end = self.log.end_of(records)
        return [(transaction.producer_id, transaction.first_offset) for transaction in self.log.aborted(offset, end)]
