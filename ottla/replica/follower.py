"""The follower of one partition as a state machine: what to fetch, and what a response does to the log.

| response | effects |
|---|---|
| records | `AppendRecords`, then `FollowLeader` (high watermark, log start) |
| diverging epoch | `Truncate` to the last offset up to which both logs may agree; fetch again |
| OFFSET_OUT_OF_RANGE | `AskOffsets`; then `Truncate` to the leader's end or `RestartAt` the leader's start |
| FENCED_LEADER_EPOCH | none; the follower stops until the metadata has a newer epoch |
| UNKNOWN_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER, other errors | `Pause`; fetch again |

Rules:
- An object lives for one leader epoch. A response is dropped if its fetch belongs to another epoch, or if the log has
  moved since.
- A fetch names the epoch of the log's last record (`last_fetched_epoch`) and the epoch of the leader that it follows
  (`current_leader_epoch`). The leader looks up the first in its own log to find where the logs diverge (KIP-595).
- The follower truncates to the smaller of the leader's end of the diverging epoch and its own end of that epoch. If it
  does not know the epoch, it truncates to the end of the next older one that it knows and fetches again.
- The high watermark follows the leader's up to our own end.

KIPs: 101, 279 (truncation), 320 (fencing), 595 (diverging epochs in a fetch).
"""

from __future__ import annotations

from typing import Protocol

from ottla.kernel.error import ErrorCode
from ottla.kernel.frozen import frozen

NO_EPOCH = -1
_UNDEFINED_OFFSET = -1


class FollowerLog(Protocol):
    """The part of the log that the machine reads."""

    @property
    def start_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...
    def latest_epoch(self) -> int:
        """The epoch of the last record; -1 in a log without epochs."""

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(the greatest known epoch that is at most `epoch`, its end offset); (-1, -1) if unknown.

        An epoch older than all known ones ended where the first known one begins.
        """


@frozen
class Position:
    """The parameters of a fetch."""

    offset: int
    last_fetched_epoch: int
    current_leader_epoch: int
    log_start_offset: int


# ---- events


@frozen
class FetchAnswered:
    """The leader answered the fetch at `asked`. `size`: bytes of records in the response."""

    asked: Position
    error: ErrorCode = ErrorCode.NONE
    #: (epoch, its end offset in the leader's log) where the leader's log diverges from ours.
    diverging: tuple[int, int] | None = None
    high_watermark: int = 0
    log_start_offset: int = 0
    size: int = 0


@frozen
class OffsetsAnswered:
    """The start and end of the leader's log, as asked for in `leader_epoch`."""

    leader_epoch: int
    start_offset: int
    end_offset: int


# ---- effects


@frozen
class AppendRecords:
    """Append the records of the response, except those of a newer epoch than `leader_epoch`."""

    leader_epoch: int


@frozen
class FollowLeader:
    """After the append: take over the leader's high watermark and log start, as far as our log reaches."""

    high_watermark: int
    log_start_offset: int


@frozen
class Truncate:
    """Drop everything at and above `offset`, durably, before the next fetch."""

    offset: int


@frozen
class RestartAt:
    """Drop everything and begin at `offset`, the start of the leader's log."""

    offset: int


@frozen
class AskOffsets:
    """Ask the leader for the earliest and the latest offset of its log."""


@frozen
class Pause:
    """Fetch nothing for replica.fetch.backoff.ms."""


Effect = AppendRecords | FollowLeader | Truncate | RestartAt | AskOffsets | Pause


class FollowerReplica:
    """The state of a replica that follows `leader_id` in `leader_epoch`."""

    __slots__ = ("awaits_offsets", "fenced", "leader_epoch", "leader_id")

    def __init__(self, leader_id: int, leader_epoch: int) -> None:
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        #: The leader has a newer epoch than ours: fetch nothing until the metadata brings it.
        self.fenced = False
        #: `AskOffsets` is not answered yet: fetch nothing.
        self.awaits_offsets = False

    def position(self, log: FollowerLog) -> Position | None:
        """The next fetch; None while there is nothing to fetch."""
        if self.fenced or self.awaits_offsets:
            return None
        latest = log.latest_epoch()
        # A log that knows no epochs (written before KIP-101) can only be trusted up to its high watermark.
        offset = log.end_offset if latest != NO_EPOCH else log.high_watermark
        return Position(offset, latest, self.leader_epoch, log.start_offset)

    def fetched(self, event: FetchAnswered, log: FollowerLog) -> list[Effect]:
        """Take the response to a fetch; the effects, in order."""
        if event.asked != self.position(log):
            return []
        match event.error:
            case ErrorCode.NONE:
                pass
            case ErrorCode.FENCED_LEADER_EPOCH:
                self.fenced = True
                return []
            case ErrorCode.OFFSET_OUT_OF_RANGE:
                self.awaits_offsets = True
                return [AskOffsets()]
            case _:
                return [Pause()]
        if event.diverging is not None:
            return self._diverged(event, *event.diverging, log)
        effects: list[Effect] = []
        if event.asked.offset < log.end_offset:
            # A log without epochs is fetched from its high watermark: records above it came from an unknown leader.
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
        """Take the leader's offsets; None if the request failed."""
        if not self.awaits_offsets or (event is not None and event.leader_epoch != self.leader_epoch):
            return []
        self.awaits_offsets = False
        if event is None:
            return [Pause()]
        if event.end_offset < log.end_offset:
            # An unclean election made a replica with a shorter log the leader.
            return [Truncate(event.end_offset)]
        if event.start_offset > log.end_offset:
            return [RestartAt(event.start_offset)]
        return []
