"""The follower of one partition, as a machine: what to fetch, and what an answer does to the log.

| answer | effect |
|---|---|
| records | `AppendRecords`, then `FollowLeader` (high watermark, log start) |
| diverging epoch | `Truncate` to where both logs agree at most, fetch again |
| OFFSET_OUT_OF_RANGE | `AskOffsets`; then `Truncate` to the leader's end or `RestartAt` the leader's start |
| FENCED_LEADER_EPOCH | nothing until the metadata has a newer epoch |
| UNKNOWN_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER, other errors | `Pause`, then again |

Rules:
- One object lives for one leader epoch. An answer to a fetch that was made in another epoch, or from another offset
  than the log's end now, is dropped.
- A fetch names the epoch of the log's last record (`last_fetched_epoch`) and the epoch of the leader that it follows
  (`current_leader_epoch`): the leader compares the first with its own log, and so tells where they part (KIP-595).
- The log is cut to the smaller of the leader's end of an epoch and our own end of that epoch; when we do not know the
  epoch, to the end of the next older one that we know, and the question is asked again.
- The high watermark is the leader's, but never beyond our own end.

KIPs: 101, 279 (truncation), 320 (fencing), 595 (diverging epochs in a fetch).
"""

from __future__ import annotations

from typing import Protocol

from ottla.kernel.error import ErrorCode
from ottla.kernel.frozen import frozen

NO_EPOCH = -1
_UNDEFINED_OFFSET = -1


class FollowerLog(Protocol):
    """What the machine reads of its log."""

    @property
    def start_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...
    def latest_epoch(self) -> int:
        """The epoch of the last record; -1 in a log without any."""

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(the greatest known epoch not above it, where that one ends); (-1, -1) if unknown.

        An epoch older than all that are known ended where the first of them begins.
        """


@frozen
class Position:
    """What to ask the leader for."""

    offset: int
    last_fetched_epoch: int
    current_leader_epoch: int
    log_start_offset: int


# ---- events


@frozen
class FetchAnswered:
    """The leader answered the fetch that was made at `asked`. `size`: bytes of records that came."""

    asked: Position
    error: ErrorCode = ErrorCode.NONE
    #: (epoch, end offset) of the leader's log, where it parts from ours.
    diverging: tuple[int, int] | None = None
    high_watermark: int = 0
    log_start_offset: int = 0
    size: int = 0


@frozen
class OffsetsAnswered:
    """Where the leader's log begins and ends, asked for in `leader_epoch`."""

    leader_epoch: int
    start_offset: int
    end_offset: int


# ---- effects


@frozen
class AppendRecords:
    """Append what came, as a replica does. Records of a newer epoch than `leader_epoch` are left away."""

    leader_epoch: int


@frozen
class FollowLeader:
    """After the append: these are the leader's; each is bounded by what our log has."""

    high_watermark: int
    log_start_offset: int


@frozen
class Truncate:
    """Drop everything at and above `offset`, durably, before the next fetch."""

    offset: int


@frozen
class RestartAt:
    """Drop everything and begin at `offset`: the leader has nothing older."""

    offset: int


@frozen
class AskOffsets:
    """Ask the leader for the earliest and the latest offset of its log."""


@frozen
class Pause:
    """Fetch nothing for replica.fetch.backoff.ms."""


Effect = AppendRecords | FollowLeader | Truncate | RestartAt | AskOffsets | Pause


class FollowerReplica:
    """A partition that follows `leader_id` in `leader_epoch`."""

    __slots__ = ("asks_offsets", "fenced", "leader_epoch", "leader_id")

    def __init__(self, leader_id: int, leader_epoch: int) -> None:
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        #: The leader has a newer epoch than ours: the metadata will bring it.
        self.fenced = False
        #: Nothing is fetched while the leader's offsets are asked for.
        self.asks_offsets = False

    def position(self, log: FollowerLog) -> Position | None:
        """What to fetch now; None while there is nothing to be asked."""
        if self.fenced or self.asks_offsets:
            return None
        latest = log.latest_epoch()
        # A log that knows no epochs (written before KIP-101) can only be trusted up to its high watermark.
        offset = log.end_offset if latest != NO_EPOCH else log.high_watermark
        return Position(offset, latest, self.leader_epoch, log.start_offset)

    def fetched(self, event: FetchAnswered, log: FollowerLog) -> list[Effect]:
        """An answer came."""
        if event.asked != self.position(log):
            return []
        match event.error:
            case ErrorCode.NONE:
                pass
            case ErrorCode.FENCED_LEADER_EPOCH:
                self.fenced = True
                return []
            case ErrorCode.OFFSET_OUT_OF_RANGE:
                self.asks_offsets = True
                return [AskOffsets()]
            case _:
                return [Pause()]
        if event.diverging is not None:
            return self._diverged(event, *event.diverging, log)
        effects: list[Effect] = []
        if event.asked.offset < log.end_offset:
            # The position of a log without epochs is its high watermark: what is beyond came from an unknown leader.
            effects.append(Truncate(event.asked.offset))
        if event.size:
            effects.append(AppendRecords(self.leader_epoch))
        return [*effects, FollowLeader(event.high_watermark, event.log_start_offset)]

    def _diverged(self, event: FetchAnswered, epoch: int, end_offset: int, log: FollowerLog) -> list[Effect]:
        if end_offset == _UNDEFINED_OFFSET:
            # The leader has no epoch at or below ours.
            return [Truncate(min(log.high_watermark, log.end_offset))]
        if epoch == NO_EPOCH:
            return [Truncate(min(end_offset, log.end_offset))]
        own_epoch, own_end = log.end_offset_for_epoch(epoch)
        if own_end == _UNDEFINED_OFFSET:
            return [Truncate(min(end_offset, log.end_offset))]
        if own_epoch != epoch:
            return [Truncate(min(own_end, log.end_offset))]
        return [Truncate(min(own_end, end_offset, log.end_offset))]

    def answered_offsets(self, event: OffsetsAnswered | None, log: FollowerLog) -> list[Effect]:
        """The leader's offsets came; None when they did not."""
        if not self.asks_offsets or (event is not None and event.leader_epoch != self.leader_epoch):
            return []
        self.asks_offsets = False
        if event is None:
            return [Pause()]
        if event.end_offset < log.end_offset:
            # An unclean election made a shorter log the leader's.
            return [Truncate(event.end_offset)]
        if event.start_offset > log.end_offset:
            return [RestartAt(event.start_offset)]
        return []
