"""The leader of one partition, as a machine: which replicas are in sync, and up to where the partition is committed.

| in | event | out |
|---|---|---|
| any | `Appended` | `RaiseHighWatermark`, when this leader is the whole ISR |
| any | `Fetched` by a replica that has caught up | `ProposeIsr` with it, unless one is under way |
| any | `TimePassed` with a member that lags | `ProposeIsr` without it, unless one is under way |
| any | `TimePassed`, or a new ISR, with a replica that has caught up | `ProposeIsr` with it, unless one is under way |
| proposed | `IsrAccepted`, `MetadataFollowed` | the new ISR counts; `RaiseHighWatermark` |
| proposed | `IsrRefused` | the old ISR counts, or, when the outcome is unknown, what the metadata will say |

Rules:
- One object lives for one leader epoch. Its follower state begins unknown, and its high watermark is the one that this
  replica had as a follower.
- The high watermark is the least end of the maximal ISR: the committed one and those that are proposed to join. A
  proposal to leave counts only when it is committed. It never goes back, and does not move below min.insync.replicas.
- A replica joins when its end has reached the high watermark and the start of this epoch, its broker is not fenced and
  not on its way out, and the broker epoch of its fetch is the one that the metadata has (KIP-903).
- One proposal is under way at a time; the partition epoch decides whether its answer or the metadata is newer.
- Time is monotonic, in ms.

KIPs: 101 epochs, 497 AlterPartition, 903 broker epochs, 966 min.insync.replicas and the high watermark.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.kernel.error import ErrorCode
from ottla.kernel.frozen import frozen, mutable
from ottla.settings.server.replication import ReplicationDeclaration
from ottla.settings.server.storage import StorageDeclaration

UNKNOWN_OFFSET = -1
#: A fetch of an older version names no broker epoch.
ANY_BROKER_EPOCH = -1
#: The controller did not apply the proposal: what was before it counts.
_NOT_APPLIED = (ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA)
#: The controller knows better, or this epoch is over: the metadata will tell.
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
    """The plain numbers that a leader needs."""

    broker_id: int
    #: replica.lag.time.max.ms
    lag_ms_max: int = ReplicationDeclaration.replica_lag_time_max_ms.default
    #: min.insync.replicas of the topic
    min_isr: int = StorageDeclaration.min_insync_replicas.default


@frozen
class PartitionState:
    """What the metadata says of the partition."""

    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


# ---- events


@frozen
class Appended:
    """Our log ends at `end_offset`, as far as it may count (synced, where flush.messages asks for that)."""

    end_offset: int


@frozen
class Fetched:
    """A replica asks for what is at `offset`: everything below is in its log."""

    replica_id: int
    broker_epoch: int
    offset: int
    log_start_offset: int


@frozen
class IsrAccepted:
    """The controller answered a proposal: this is the ISR now."""

    proposal: ProposeIsr
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]


@frozen
class IsrRefused:
    """The controller answered a proposal by an error."""

    proposal: ProposeIsr
    code: ErrorCode


@frozen
class MetadataFollowed:
    """The metadata has a newer state of the partition in this leader epoch."""

    state: PartitionState
    min_isr: int


@frozen
class TimePassed:
    """Look at who lags, and who may join; due every `lag_ms_max` / 2 and when the brokers change."""


Event = Appended | Fetched | IsrAccepted | IsrRefused | MetadataFollowed | TimePassed


# ---- effects


@frozen
class RaiseHighWatermark:
    """Everything below `offset` is committed."""

    offset: int


@frozen
class ProposeIsr:
    """Ask the controller (AlterPartition): (broker id, broker epoch) of the new in-sync replicas."""

    members: tuple[tuple[int, int], ...]
    leader_epoch: int
    partition_epoch: int


Effect = RaiseHighWatermark | ProposeIsr


@mutable
class Progress:
    """What the leader knows of one follower."""

    end_offset: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    #: The epoch that its last fetch named.
    broker_epoch: int = ANY_BROKER_EPOCH
    #: When it last had everything that there was.
    caught_up_ms: int = 0
    fetched_ms: int = 0
    #: Where our log ended at its last fetch.
    our_end_offset: int = UNKNOWN_OFFSET


class LeaderReplica:
    """A partition in one leader epoch. The broker makes it when the metadata makes this node the leader."""

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
        #: Where this epoch begins: followers that end below may still have other records there.
        self.epoch_start_offset = end_offset
        #: Broker id -> epoch of the brokers that may be in sync: unfenced, and not on their way out. The broker's own
        #: view of the metadata, shared by all its partitions.
        self.brokers = brokers
        me = settings.broker_id
        #: A member of the ISR has the benefit of the doubt for one lag time.
        self.followers = {
            each: Progress(caught_up_ms=now_ms if each in state.isr else now_ms - settings.lag_ms_max - 1)
            for each in state.replicas
            if each != me
        }
        #: What the controller is asked, while neither its answer nor newer metadata has come.
        self.proposal: ProposeIsr | None = None

    @property
    def maximal_isr(self) -> frozenset[int]:
        """Every replica that is in sync, or may be already as far as the controller is concerned."""
        proposed = self.proposal.members if self.proposal is not None else ()
        return frozenset((*self.state.isr, *(each for each, _ in proposed)))

    @property
    def is_under_min_isr(self) -> bool:
        """Are fewer replicas in sync than acks=all asks for?"""
        return len(self.state.isr) < min(self.settings.min_isr, len(self.state.replicas))

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        """Take one event; what is to be done, in order."""
        match event:
            case Appended():
                self.end_offset = event.end_offset
                return self._raise(now_ms)
            case Fetched():
                return self._fetched(event, now_ms)
            case TimePassed():
                return self._shrink(now_ms) or self._expand_any(now_ms)
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

    def level(self, replica_id: int, fetched_ms: int) -> None:
        """Note before an append that a follower still had everything when its session was heard of at `fetched_ms`.

        A session tells of the partitions that changed only; what it is silent about is as it was at its last fetch.
        """
        progress = self.followers.get(replica_id)
        if progress is not None and progress.end_offset >= self.end_offset:
            progress.caught_up_ms = max(progress.caught_up_ms, fetched_ms)

    def _fetched(self, event: Fetched, now_ms: int) -> list[Effect]:
        progress = self.followers.get(event.replica_id)
        if progress is None or (event.broker_epoch != ANY_BROKER_EPOCH and event.broker_epoch < progress.broker_epoch):
            # No replica of ours, or an earlier life of its broker.
            return []
        if event.offset >= self.end_offset:
            progress.caught_up_ms = max(progress.caught_up_ms, now_ms)
        elif event.offset >= progress.our_end_offset != UNKNOWN_OFFSET:
            # The follower has what there was at its last fetch: it was level with us then.
            progress.caught_up_ms = max(progress.caught_up_ms, progress.fetched_ms)
        moved = progress.end_offset != event.offset
        progress.end_offset = event.offset
        progress.log_start_offset = event.log_start_offset
        progress.broker_epoch = event.broker_epoch
        progress.fetched_ms = now_ms
        progress.our_end_offset = self.end_offset
        effects = self._expand(event.replica_id)
        return effects + self._raise(now_ms) if moved else effects

    def _expand(self, replica_id: int) -> list[Effect]:
        if self.proposal is not None or replica_id in self.state.isr or not self._may_join(replica_id):
            return []
        end_offset = self.followers[replica_id].end_offset
        if end_offset < self.high_watermark or end_offset < self.epoch_start_offset:
            return []
        return self._propose((*self.state.isr, replica_id))

    def _expand_any(self, now_ms: int) -> list[Effect]:
        """A follower that may join and has nothing to fetch says so by no fetch of its own."""
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
        left = tuple(each for each in self.state.isr if not self._lags(each, now_ms))
        return self._propose(left) if len(left) < len(self.state.isr) else []

    def _lags(self, replica_id: int, now_ms: int) -> bool:
        progress = self.followers.get(replica_id)
        return progress is not None and not self._is_caught_up(progress, now_ms)

    def _is_caught_up(self, progress: Progress, now_ms: int) -> bool:
        return progress.end_offset >= self.end_offset or now_ms - progress.caught_up_ms <= self.settings.lag_ms_max

    # ---- the ISR

    def _propose(self, isr: tuple[int, ...]) -> list[Effect]:
        members = tuple((each, self._broker_epoch(each)) for each in isr)
        self.proposal = ProposeIsr(members, self.state.leader_epoch, self.state.partition_epoch)
        return [self.proposal]

    def _broker_epoch(self, replica_id: int) -> int:
        """The epoch with which a member is proposed: that of its fetches, or for ourselves the metadata's."""
        progress = self.followers.get(replica_id)
        if progress is None or progress.broker_epoch == ANY_BROKER_EPOCH:
            return self.brokers.get(replica_id, ANY_BROKER_EPOCH)
        return progress.broker_epoch

    def _accepted(self, event: IsrAccepted, now_ms: int) -> list[Effect]:
        # An answer that newer metadata has overtaken must not end the proposal that was made since.
        newer = event.partition_epoch > self.state.partition_epoch
        if event.leader_epoch != self.state.leader_epoch or not (newer or event.proposal is self.proposal):
            return []
        return self._committed(event.isr, event.partition_epoch, self.state.replicas, now_ms)

    def _followed(self, event: MetadataFollowed, now_ms: int) -> list[Effect]:
        self.settings = LeaderSettings(self.settings.broker_id, self.settings.lag_ms_max, event.min_isr)
        state = event.state
        if state.partition_epoch <= self.state.partition_epoch:
            # The controller's answer came before its record did. A proposal made since is still under way, and whom it
            # adds still bounds the high watermark.
            return self._raise(now_ms)
        return self._committed(state.isr, state.partition_epoch, state.replicas, now_ms)

    def _committed(
        self, isr: tuple[int, ...], partition_epoch: int, replicas: tuple[int, ...], now_ms: int
    ) -> list[Effect]:
        self.state = PartitionState(self.state.leader_epoch, partition_epoch, replicas, isr)
        self.proposal = None
        for each in replicas:
            if each != self.settings.broker_id and each not in self.followers:
                self.followers[each] = Progress(caught_up_ms=now_ms - self.settings.lag_ms_max - 1)
        for each in [each for each in self.followers if each not in replicas]:
            del self.followers[each]
        return self._raise(now_ms) + self._expand_any(now_ms)

    def _refused(self, event: IsrRefused, now_ms: int) -> list[Effect]:
        if event.proposal is not self.proposal:
            return []
        if event.code in _NOT_APPLIED:
            self.proposal = None
            return []
        if event.code in _WAIT_FOR_METADATA:
            # The proposal may have been applied: the maximal ISR stays until the metadata has a newer partition epoch.
            return []
        return self._propose(tuple(each for each, _ in event.proposal.members))

    # ---- the high watermark

    def _raise(self, now_ms: int) -> list[Effect]:
        if self.is_under_min_isr:
            return []
        isr, least = self.maximal_isr, self.end_offset
        for replica_id, progress in self.followers.items():
            if progress.end_offset >= least:
                continue
            # A follower about to join is waited for, so that the high watermark does not run away from it.
            if replica_id in isr or (self._is_caught_up(progress, now_ms) and self._may_join(replica_id)):
                least = progress.end_offset
        if least <= self.high_watermark:
            return []
        self.high_watermark = least
        return [RaiseHighWatermark(least)]
