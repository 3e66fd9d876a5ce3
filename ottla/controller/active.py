"""The active controller's volatile state: each broker's last contact and the metadata offset it has read.

Rules:
- The state is created when this node becomes the active controller and dropped when it resigns. All unfenced brokers
  start with a fresh session.
- A session belongs to a broker's epoch: an older incarnation cannot keep it alive.
- State that is noted before its record is written is harmless if the write fails: it is compared with the image.

Times are monotonic milliseconds.
"""

from __future__ import annotations

from ottla.metadata.image import BrokerImage, Image
from ottla.metadata.index import PartitionIndex
from ottla.settings.server.settings import ServerSettings

_NEVER = 1 << 63
#: The delay between the batches of one check (PeriodicTask.DEFAULT_IMMEDIATE_PERIOD_NS).
_SOON_MS = 10


class BrokerState:
    """The controller's view of one incarnation of a broker."""

    __slots__ = ("epoch", "metadata_offset", "registered_at", "shutdown_offset")

    def __init__(self, epoch: int, registered_at: int) -> None:
        self.epoch = epoch
        #: The offset of its registration; it stays fenced until it has read that far.
        self.registered_at = registered_at
        #: The metadata offset in its last heartbeat; -1 again when its registration changes.
        self.metadata_offset = -1
        #: The end of the records that moved its leaders away; -1 unless it is in controlled shutdown.
        self.shutdown_offset = -1


class Active:
    """Volatile state of the active controller."""

    def __init__(self, image: Image, settings: ServerSettings, now_ms: int) -> None:
        #: This controller's node. A broker in the same process registers only after its previous incarnation has ended.
        self.node_id = settings.node_id
        self._index: PartitionIndex | None = None
        self.sessions = BrokerSessions(settings.broker_session_timeout_ms)
        #: Periodic elections over all partitions: preferred leaders, and unclean leaders for leaderless partitions.
        self.preferred = Periodic(
            settings.auto_leader_rebalance_enable * settings.leader_imbalance_check_interval_seconds * 1000, now_ms
        )
        self.unclean = Periodic(settings.unclean_leader_election_interval_ms, now_ms)
        #: The removal of expired delegation tokens; never without a secret key.
        token_ms = settings.delegation_token_expiry_check_interval_ms
        self.tokens = Periodic(token_ms if settings.delegation_token_secret_key else 0, now_ms)
        self._states: dict[int, BrokerState] = {}
        #: Registrations older than this object are at or before this offset.
        self._since = image.offset
        for broker in image.brokers.values():
            if not broker.fenced:
                self.sessions.touch(broker.broker_id, broker.epoch, now_ms)

    def index(self, image: Image) -> PartitionIndex:
        """Return the partitions of this image by broker; the index is built when first needed."""
        if self._index is None:
            self._index = PartitionIndex(image)
        else:
            self._index.follow(image)
        return self._index

    def state(self, broker: BrokerImage) -> BrokerState:
        """Return the state of the registered incarnation."""
        state = self._states.get(broker.broker_id)
        if state is None or state.epoch != broker.epoch:
            state = self._states[broker.broker_id] = BrokerState(broker.epoch, self._since)
        return state

    def registered(self, broker_id: int, epoch: int, offset: int) -> None:
        """Note that a registration is about to be written at `offset`."""
        state = self._states.get(broker_id)
        if state is None or state.epoch != epoch:
            self._states[broker_id] = BrokerState(epoch, offset)
        else:
            state.registered_at, state.metadata_offset = offset, -1

    def forget(self, broker_id: int) -> None:
        """Drop the state of an unregistered broker."""
        self._states.pop(broker_id, None)

    def is_stopping(self, broker: BrokerImage) -> bool:
        """Return True if the broker is in a controlled shutdown that this controller started."""
        return broker.in_controlled_shutdown and not broker.fenced and self.state(broker).shutdown_offset >= 0

    def lowest_offset(self, image: Image) -> int:
        """Return the lowest metadata offset that the active brokers have read."""
        offsets = (
            self.state(broker).metadata_offset
            for broker in image.brokers.values()
            if not broker.fenced and not self.is_stopping(broker)
        )
        return min(offsets, default=_NEVER)


class Periodic:
    """A periodic task; an interval of 0 disables it."""

    def __init__(self, interval_ms: int, now_ms: int) -> None:
        self._interval_ms = interval_ms
        #: None if disabled.
        self.due_ms = now_ms + interval_ms if interval_ms else None

    def is_due(self, now_ms: int) -> bool:
        return self.due_ms is not None and self.due_ms <= now_ms

    def done(self, now_ms: int, *, soon: bool) -> None:
        """Schedule the next run; `soon` if there is more to do."""
        self.due_ms = now_ms + (_SOON_MS if soon else self._interval_ms)


class BrokerSessions:
    """The last contact of each incarnation, longest silent first."""

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._heard: dict[tuple[int, int], int] = {}
        #: Expired sessions; they are checked once more in case the fencing record was not written.
        self._expired: set[tuple[int, int]] = set()

    def touch(self, broker_id: int, epoch: int, now_ms: int) -> None:
        """Renew the broker's session."""
        key = broker_id, epoch
        self._heard.pop(key, None)
        self._heard[key] = now_ms
        self._expired.discard(key)

    def end(self, broker_id: int, epoch: int) -> None:
        """End the session of a broker that stops and sends no more heartbeats (0411)."""
        self._heard.pop((broker_id, epoch), None)

    def is_alive(self, broker_id: int, epoch: int, now_ms: int) -> bool:
        """Return True if the session has not expired."""
        key = broker_id, epoch
        heard = self._heard.get(key)
        return heard is not None and key not in self._expired and now_ms <= heard + self._timeout_ms

    def deadline_ms(self) -> int | None:
        """Return when the next session expires; None if there is none."""
        heard = next(iter(self._heard.values()), None)
        return None if heard is None else heard + self._timeout_ms + 1

    def expire_soon(self, broker: BrokerImage, now_ms: int) -> None:
        """Make `expire` return this silent broker next: more work is due before it is fenced."""
        key = broker.broker_id, broker.epoch
        self._heard.pop(key, None)
        self._heard = {key: now_ms + _SOON_MS - self._timeout_ms - 1, **self._heard}

    def expire(self, image: Image, now_ms: int) -> BrokerImage | None:
        """Return a broker to fence now because its session expired; None if there is none."""
        while self._heard:
            key, heard = next(iter(self._heard.items()))
            if now_ms <= heard + self._timeout_ms:
                return None
            del self._heard[key]
            again = key in self._expired
            self._expired.discard(key)
            broker = image.brokers.get(key[0])
            if broker is None or broker.epoch != key[1] or (again and broker.fenced):
                continue
            self._heard[key] = now_ms
            self._expired.add(key)
            return broker
        return None
