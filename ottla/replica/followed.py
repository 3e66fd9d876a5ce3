"""A partition that this node follows: its machine, its log, and reads by nearby consumers (KIP-392).

Rules:
- The leader's batches are appended unchanged. The high watermark follows the leader's up to the end of our log.
- A truncation is durable before the next fetch (`Log.truncate`).
- The log's start follows the leader's up to our high watermark.
"""

from __future__ import annotations

from ottla.kernel.error import KafkaError
from ottla.kernel.ids import TopicPartition, Uuid
from ottla.kernel.ports import Buffer
from ottla.log.log import Log, Origin
from ottla.replica.follower import (
    AppendRecords,
    AskOffsets,
    Effect,
    FetchAnswered,
    FollowerReplica,
    FollowLeader,
    OffsetsAnswered,
    Pause,
    Position,
    RestartAt,
    Truncate,
)
from ottla.replica.hosted import HostedReplica


class _LogView:
    """The log as the machine sees it (`FollowerLog`)."""

    __slots__ = ("log",)

    def __init__(self, log: Log) -> None:
        self.log = log

    @property
    def start_offset(self) -> int:
        return self.log.start_offset

    @property
    def end_offset(self) -> int:
        return self.log.end_offset

    @property
    def high_watermark(self) -> int:
        return self.log.high_watermark

    def latest_epoch(self) -> int:
        return self.log.epochs.latest

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        return self.log.end_offset_for_epoch(epoch)


class FollowedPartition(HostedReplica):
    """A follower's replica in one leader epoch. The node creates it; a fetcher drives it."""

    __slots__ = ("ended", "leader_id", "machine")

    def __init__(self, tp: TopicPartition, topic_id: Uuid, log: Log, leader_epoch: int, leader_id: int) -> None:
        super().__init__(tp, topic_id, log, leader_epoch)
        self.leader_id = leader_id
        self.machine = FollowerReplica(leader_id, leader_epoch)
        #: Set when the object of another epoch has replaced this one; later answers are not for it.
        self.ended = False

    def position(self) -> Position | None:
        """The next fetch; None while there is nothing to fetch."""
        return self.machine.position(_LogView(self.log))

    def fetched(self, event: FetchAnswered, records: Buffer | None, now_ms: int) -> list[Effect]:
        """Apply a fetch response; the effects that are left for the fetcher: `AskOffsets`, `Pause`.

        Raises OSError when the disk fails and KafkaError when the records cannot be appended.
        """
        return self._carry_out(self.machine.fetched(event, _LogView(self.log)), records, now_ms)

    def answered_offsets(self, event: OffsetsAnswered | None, now_ms: int) -> list[Effect]:
        """Apply the leader's answer to `AskOffsets`; None if the request failed."""
        return self._carry_out(self.machine.answered_offsets(event, _LogView(self.log)), None, now_ms)

    def _carry_out(self, effects: list[Effect], records: Buffer | None, now_ms: int) -> list[Effect]:
        log = self.log
        remaining: list[Effect] = []
        for effect in effects:
            match effect:
                case AppendRecords():
                    assert records is not None
                    before = log.end_offset
                    try:
                        log.append(records, leader_epoch=effect.leader_epoch, now_ms=now_ms, origin=Origin.REPLICA)
                    finally:
                        # The first of several segments may have had room.
                        if log.must_flush:
                            log.limit_visible_end(before)
                case FollowLeader():
                    self.follow_leader(effect.high_watermark, effect.log_start_offset)
                case Truncate():
                    log.truncate(effect.offset, now_ms)
                case RestartAt():
                    log.restart_at(effect.offset, now_ms)
                case AskOffsets() | Pause():
                    remaining.append(effect)
        return remaining

    def follow_leader(self, high_watermark: int, log_start_offset: int) -> None:
        """Take over the leader's high watermark and log start, as far as our log reaches."""
        log = self.log
        high_watermark = min(high_watermark, log.end_offset)
        if high_watermark > log.high_watermark:
            log.high_watermark = high_watermark
            self.notify_readers()
        if log_start_offset > log.start_offset:
            log.advance_start_offset(min(log_start_offset, log.high_watermark))

    def end(self, error: KafkaError) -> None:
        """Stop following in this epoch and wake the consumers that wait."""
        self.ended = True
        super().end(error)
