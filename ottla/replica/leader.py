"""The leader of one partition as a state machine: which replicas are in sync, and the high watermark.

| proposal | event | effects |
|---|---|---|
| any | `Appended` | `RaiseHighWatermark` if no other replica holds it back |
| any | `Fetched` by an ISR member that moved | `RaiseHighWatermark` if it was the last one behind |
| none | `Fetched` by a replica that has caught up | `ProposeIsr` with it |
| none | `TimePassed` while an ISR member lags | `ProposeIsr` without it |
| none | `TimePassed` while a replica outside the ISR has caught up | `ProposeIsr` with it |
| any | `IsrAccepted` or newer `MetadataFollowed` | `RaiseHighWatermark`; `ProposeIsr` with a caught-up replica |
| any | `TimePassed` | `RaiseHighWatermark` if a replica outside the ISR holds it back no more |
| pending | `IsrRefused`: not applied | `RaiseHighWatermark` likewise; the proposal is dropped and the old ISR stays |
| pending | `IsrRefused`: outcome unknown | none; the proposal stays until the metadata has a newer partition epoch |
| pending | `IsrRefused`: any other error | `ProposeIsr` again |

Rules:
- An object lives for one leader epoch. It starts knowing nothing of its followers, with the high watermark that this
  replica had as a follower.
- The high watermark is the lowest end offset of the maximal ISR: the committed ISR plus the replicas that are proposed
  to join. A replica that is proposed to leave counts until the proposal is committed. Followers about to join are
  waited for as well. The high watermark never goes back, and stays while the ISR is under min.insync.replicas.
- A replica may join when its end offset has reached the high watermark and the start of this epoch, its broker is
  neither fenced nor shutting down, and its fetch named the broker epoch that the metadata has (KIP-903).
- One proposal is pending at a time; the partition epoch decides whether its answer or the metadata is newer.
- Time is monotonic, in ms.

KIPs: 101 (epochs), 497 (AlterPartition), 903 (broker epochs), 966 (min.insync.replicas and the high watermark).
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.kernel.error import ErrorCode
from ottla.kernel.frozen import frozen, mutable
from ottla.settings.server.replication import ReplicationDeclaration
from ottla.settings.server.storage import StorageDeclaration

UNKNOWN_OFFSET = -1
#: The broker epoch of a fetch whose version has none.
ANY_BROKER_EPOCH = -1
#: The controller did not apply the proposal: the old ISR stays.
_NOT_APPLIED = (ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA)
#: The controller has newer state, or this epoch is over: the metadata will bring the outcome.
_WAIT_FOR_METADATA = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INVALID_UPDATE_VERSION,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.NEW_LEADER_ELECTED,
)


@frozen
class LeaderSettings:
    """The settings that a leader needs, as plain numbers."""

    broker_id: int
    #: replica.lag.time.max.ms
    lag_ms_max: int = ReplicationDeclaration.replica_lag_time_max_ms.default
    #: min.insync.replicas of the topic
    min_isr: int = StorageDeclaration.min_insync_replicas.default


@frozen
class PartitionState:
    """The partition as the metadata has it."""

    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


# ---- events


@frozen
class Appended:
    """Our log ends at `end_offset` (its flushed end, where flush.messages asks for that)."""

    end_offset: int


@frozen
class Fetched:
    """A replica fetches from `offset`: everything below is in its log."""

    replica_id: int
    broker_epoch: int
    offset: int
    log_start_offset: int


@frozen
class IsrAccepted:
    """The controller applied a proposal: `isr` is the ISR now."""

    proposal: ProposeIsr
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]


@frozen
class IsrRefused:
    """The controller answered a proposal with an error."""

    proposal: ProposeIsr
    code: ErrorCode


@frozen
class MetadataFollowed:
    """The metadata has a newer state of the partition in this leader epoch."""

    state: PartitionState
    min_isr: int


@frozen
class TimePassed:
    """Check which members lag and which replicas may join; due every `lag_ms_max` / 2 and when the brokers change."""


Event = Appended | Fetched | IsrAccepted | IsrRefused | MetadataFollowed | TimePassed


# ---- effects


@frozen
class RaiseHighWatermark:
    """Everything below `offset` is committed."""

    offset: int


@frozen
class ProposeIsr:
    """Ask the controller (AlterPartition) for a new ISR: (broker id, broker epoch) of each member."""

    members: tuple[tuple[int, int], ...]
    leader_epoch: int
    partition_epoch: int


Effect = RaiseHighWatermark | ProposeIsr


@mutable
class Progress:
    """What the leader knows about one follower."""

    end_offset: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    #: The broker epoch that its last fetch named.
    broker_epoch: int = ANY_BROKER_EPOCH
    #: When it last had everything in our log.
    caught_up_ms: int = 0
    fetched_ms: int = 0
    #: The end of our log at its last fetch.
    leader_end_offset: int = UNKNOWN_OFFSET


class LeaderReplica:
    """The state of a leader in one leader epoch. The broker creates it when the metadata makes this node the leader."""

    def __init__(
        self,
        settings: LeaderSettings,
        state: PartitionState,
        *,
        end_offset: int,
        high_watermark: int,
        brokers: Mapping[int, int],
        now_ms: int,
    ) -> None:
        self.settings = settings
        self.state = state
        self.end_offset = end_offset
        self.high_watermark = high_watermark
        #: Where this epoch begins: followers that end below it may still hold records that diverge from ours.
        self.epoch_start_offset = end_offset
        #: Broker id -> epoch of the brokers that may be in sync: neither fenced nor shutting down. The broker updates
        #: it from the metadata, and all its partitions share it.
        self.brokers = brokers
        #: A member of the ISR counts as caught up for the first `lag_ms_max`.
        self.followers = {
            replica_id: Progress(caught_up_ms=now_ms if replica_id in state.isr else now_ms - settings.lag_ms_max - 1)
            for replica_id in state.replicas
            if replica_id != settings.broker_id
        }
        #: The pending proposal, until the controller's answer or newer metadata arrives.
        self.proposal: ProposeIsr | None = None

    @property
    def maximal_isr(self) -> frozenset[int]:
        """The replicas in the ISR and those that the controller may already have added to it."""
        proposed = self.proposal.members if self.proposal is not None else ()
        return frozenset((*self.state.isr, *(replica_id for replica_id, _ in proposed)))

    @property
    def is_under_min_isr(self) -> bool:
        """Are fewer replicas in sync than acks=all requires?"""
        in_sync = len(self.state.isr)
        return in_sync < self.settings.min_isr and in_sync < len(self.state.replicas)

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        """Apply an event; the effects to carry out, in order."""
        match event:
            case Appended():
                self.end_offset = event.end_offset
                return self._raise_high_watermark(now_ms)
            case Fetched():
                return self._fetched(event, now_ms)
            case TimePassed():
                # A replica outside the ISR that lags or is fenced by now holds back the high watermark no more.
                return (self._shrink(now_ms) or self._expand_any(now_ms)) + self._raise_high_watermark(now_ms)
            case IsrAccepted():
                return self._accepted(event, now_ms)
            case IsrRefused():
                return self._refused(event, now_ms)
            case MetadataFollowed():
                return self._followed(event, now_ms)

    def validate(self) -> None:
        """Assert every invariant."""
        assert self.settings.broker_id in self.state.isr
        assert self.settings.broker_id not in self.followers
        assert set(self.followers) | {self.settings.broker_id} == set(self.state.replicas)
        assert self.high_watermark <= self.end_offset or self.end_offset < self.epoch_start_offset
        if self.proposal is not None:
            assert self.maximal_isr <= set(self.state.replicas)

    # ---- followers

    def note_caught_up(self, replica_id: int, fetched_ms: int) -> None:
        """Record, when its session marks it, that a follower had everything when it last fetched at `fetched_ms`.

        A session's fetch names only the partitions that changed; all others are as they were at its fetch before.
        """
        progress = self.followers.get(replica_id)
        if progress is not None and progress.end_offset >= self.end_offset and progress.caught_up_ms < fetched_ms:
            progress.caught_up_ms = fetched_ms

    def _fetched(self, event: Fetched, now_ms: int) -> list[Effect]:
        progress = self.followers.get(event.replica_id)
        if progress is None or (event.broker_epoch != ANY_BROKER_EPOCH and event.broker_epoch < progress.broker_epoch):
            # Not a replica of this partition, or an earlier incarnation of its broker.
            return []
        if event.offset >= self.end_offset:
            # Time is monotonic, so this is the latest.
            progress.caught_up_ms = now_ms
        elif event.offset >= progress.leader_end_offset != UNKNOWN_OFFSET:
            # The follower has all that we had at its last fetch, so it was caught up then.
            progress.caught_up_ms = max(progress.caught_up_ms, progress.fetched_ms)
        moved = progress.end_offset != event.offset
        progress.end_offset = event.offset
        progress.log_start_offset = event.log_start_offset
        progress.broker_epoch = event.broker_epoch
        progress.fetched_ms = now_ms
        progress.leader_end_offset = self.end_offset
        effects = [] if event.replica_id in self.state.isr else self._expand(event.replica_id)
        return effects + self._raise_high_watermark(now_ms) if moved else effects

    def _expand(self, replica_id: int) -> list[Effect]:
        if self.proposal is not None or replica_id in self.state.isr or not self._may_join(replica_id):
            return []
        end_offset = self.followers[replica_id].end_offset
        if end_offset < self.high_watermark or end_offset < self.epoch_start_offset:
            return []
        return self._propose((*self.state.isr, replica_id))

    def _expand_any(self, now_ms: int) -> list[Effect]:
        """Propose the first follower that may join: without news it sends no fetch that would propose it."""
        for replica_id, progress in self.followers.items():
            if now_ms - progress.caught_up_ms <= self.settings.lag_ms_max:
                effects = self._expand(replica_id)
                if effects:
                    return effects
        return []

    def _may_join(self, replica_id: int) -> bool:
        known = self.brokers.get(replica_id)
        named = self.followers[replica_id].broker_epoch
        return known is not None and named in (known, ANY_BROKER_EPOCH)

    def _shrink(self, now_ms: int) -> list[Effect]:
        if self.proposal is not None:
            return []
        remaining = tuple(replica_id for replica_id in self.state.isr if not self._lags(replica_id, now_ms))
        return self._propose(remaining) if len(remaining) < len(self.state.isr) else []

    def _lags(self, replica_id: int, now_ms: int) -> bool:
        progress = self.followers.get(replica_id)
        return progress is not None and not self._is_caught_up(progress, now_ms)

    def _is_caught_up(self, progress: Progress, now_ms: int) -> bool:
        return progress.end_offset >= self.end_offset or now_ms - progress.caught_up_ms <= self.settings.lag_ms_max

    # ---- the ISR

    def _propose(self, isr: tuple[int, ...]) -> list[Effect]:
        members = tuple((replica_id, self._broker_epoch(replica_id)) for replica_id in isr)
        self.proposal = ProposeIsr(members, self.state.leader_epoch, self.state.partition_epoch)
        return [self.proposal]

    def _broker_epoch(self, replica_id: int) -> int:
        """The broker epoch to propose a member with: that of its last fetch, or the metadata's for this broker."""
        progress = self.followers.get(replica_id)
        if progress is None or progress.broker_epoch == ANY_BROKER_EPOCH:
            return self.brokers.get(replica_id, ANY_BROKER_EPOCH)
        return progress.broker_epoch

    def _accepted(self, event: IsrAccepted, now_ms: int) -> list[Effect]:
        # A late answer, overtaken by newer metadata, must not end the proposal that was made since.
        newer = event.partition_epoch > self.state.partition_epoch
        if event.leader_epoch != self.state.leader_epoch or not (newer or event.proposal is self.proposal):
            return []
        return self._adopt_isr(event.isr, event.partition_epoch, self.state.replicas, now_ms)

    def _followed(self, event: MetadataFollowed, now_ms: int) -> list[Effect]:
        self.settings = LeaderSettings(self.settings.broker_id, self.settings.lag_ms_max, event.min_isr)
        state = event.state
        if state.partition_epoch <= self.state.partition_epoch:
            # The controller's answer came before its record. A proposal made since is still pending, and the replicas
            # that it adds still hold back the high watermark.
            return self._raise_high_watermark(now_ms)
        return self._adopt_isr(state.isr, state.partition_epoch, state.replicas, now_ms)

    def _adopt_isr(
        self, isr: tuple[int, ...], partition_epoch: int, replicas: tuple[int, ...], now_ms: int
    ) -> list[Effect]:
        self.state = PartitionState(self.state.leader_epoch, partition_epoch, replicas, isr)
        self.proposal = None
        for replica_id in replicas:
            if replica_id != self.settings.broker_id and replica_id not in self.followers:
                self.followers[replica_id] = Progress(caught_up_ms=now_ms - self.settings.lag_ms_max - 1)
        for replica_id in [replica_id for replica_id in self.followers if replica_id not in replicas]:
            del self.followers[replica_id]
        return self._raise_high_watermark(now_ms) + self._expand_any(now_ms)

    def _refused(self, event: IsrRefused, now_ms: int) -> list[Effect]:
        if event.proposal is not self.proposal:
            return []
        if event.code in _NOT_APPLIED:
            self.proposal = None
            return self._raise_high_watermark(now_ms)
        if event.code in _WAIT_FOR_METADATA:
            # The proposal may have been applied: keep the maximal ISR until the metadata has a newer partition epoch.
            return []
        return self._propose(tuple(replica_id for replica_id, _ in event.proposal.members))

    # ---- the high watermark

    def _raise_high_watermark(self, now_ms: int) -> list[Effect]:
        lowest = self.end_offset
        for replica_id, progress in self.followers.items():
            if progress.end_offset >= lowest:
                continue
            # Wait for a follower that is about to join, so that the high watermark does not run away from it.
            if (
                replica_id in self.state.isr
                or (self.proposal is not None and replica_id in self.maximal_isr)
                or (self._is_caught_up(progress, now_ms) and self._may_join(replica_id))
            ):
                lowest = progress.end_offset
        if lowest <= self.high_watermark or self.is_under_min_isr:
            return []
        self.high_watermark = lowest
        return [RaiseHighWatermark(lowest)]
