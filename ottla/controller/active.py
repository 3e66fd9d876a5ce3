"""What an active controller knows and no record says: who was heard of when, and how far each broker has read.

Rules:
- It is made when this node becomes the active controller and dropped when it resigns; all unfenced brokers get one
  session's time to be heard of.
- A session belongs to a broker's epoch: an older incarnation cannot keep it alive.
- What is noted here ahead of a record that then cannot be written does no harm: it is compared with the image.

Times are monotonic milliseconds.
"""

from __future__ import annotations

from ottla.metadata.image import BrokerImage, Image
from ottla.metadata.index import PartitionIndex
from ottla.settings.server.settings import ServerSettings

_NEVER = 1 << 63
#: The pause within one check that needs several batches (PeriodicTask.DEFAULT_IMMEDIATE_PERIOD_NS).
_SOON_MS = 10


class BrokerState:
    """An incarnation of a broker."""

    __slots__ = ("epoch", "metadata_offset", "registered_at", "shutdown_offset")

    def __init__(self, epoch: int, registered_at: int) -> None:
        self.epoch = epoch
        #: The offset of its registration; it is not unfenced before it has read that.
        self.registered_at = registered_at
        #: How far it had read at its last heartbeat; -1 again when its registration changes.
        self.metadata_offset = -1
        #: Where the records end that moved its leaders away; -1 when it does not stop.
        self.shutdown_offset = -1


class Active:
    """Volatile state of the active controller."""

    def __init__(self, image: Image, settings: ServerSettings, now_ms: int) -> None:
        #: This controller's own node. A broker in its process registers when the incarnation before has ended.
        self.node_id = settings.node_id
        self._index: PartitionIndex | None = None
        self.sessions = BrokerSessions(settings.broker_session_timeout_ms)
        #: Checks of all partitions: first replicas lead again; any replica leads where no broker does. 0 ms is never.
        self.preferred = Periodic(
            settings.auto_leader_rebalance_enable * settings.leader_imbalance_check_interval_seconds * 1000, now_ms
        )
        self.unclean = Periodic(settings.unclean_leader_election_interval_ms, now_ms)
        #: Removing of delegation tokens that have ended; never where there are none.
        token_ms = settings.delegation_token_expiry_check_interval_ms
        self.tokens = Periodic(token_ms if settings.delegation_token_secret_key else 0, now_ms)
        self._states: dict[int, BrokerState] = {}
        #: Registrations that are older than this object stand at or before this offset.
        self._since = image.offset
        for broker in image.brokers.values():
            if not broker.fenced:
                self.sessions.touch(broker.broker_id, broker.epoch, now_ms)

    def index(self, image: Image) -> PartitionIndex:
        """The partitions of this image by broker. It is made when it is first needed."""
        if self._index is None:
            self._index = PartitionIndex(image)
        else:
            self._index.follow(image)
        return self._index

    def state(self, broker: BrokerImage) -> BrokerState:
        """What is known of the registered incarnation."""
        state = self._states.get(broker.broker_id)
        if state is None or state.epoch != broker.epoch:
            state = self._states[broker.broker_id] = BrokerState(broker.epoch, self._since)
        return state

    def registered(self, broker_id: int, epoch: int, offset: int) -> None:
        """A registration is about to stand at `offset`."""
        state = self._states.get(broker_id)
        if state is None or state.epoch != epoch:
            self._states[broker_id] = BrokerState(epoch, offset)
        else:
            state.registered_at, state.metadata_offset = offset, -1

    def forget(self, broker_id: int) -> None:
        """The broker is unregistered."""
        self._states.pop(broker_id, None)

    def is_stopping(self, broker: BrokerImage) -> bool:
        """Is it in a controlled shutdown that this controller has begun?"""
        return broker.in_controlled_shutdown and not broker.fenced and self.state(broker).shutdown_offset >= 0

    def lowest_offset(self, image: Image) -> int:
        """How far every active broker has read the metadata at least."""
        offsets = (
            self.state(broker).metadata_offset
            for broker in image.brokers.values()
            if not broker.fenced and not self.is_stopping(broker)
        )
        return min(offsets, default=_NEVER)


class Periodic:
    """Something that is due again and again."""

    def __init__(self, interval_ms: int, now_ms: int) -> None:
        self._interval_ms = interval_ms
        #: None is never.
        self.due_ms = now_ms + interval_ms if interval_ms else None

    def is_due(self, now_ms: int) -> bool:
        return self.due_ms is not None and self.due_ms <= now_ms

    def done(self, now_ms: int, *, soon: bool) -> None:
        """Note that the check was done; `soon` when there is more to do."""
        self.due_ms = now_ms + (_SOON_MS if soon else self._interval_ms)


class BrokerSessions:
    """When each incarnation was heard of last, the longest silent one first."""

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._heard: dict[tuple[int, int], int] = {}
        #: Sessions that were expired already; they are looked at once more, should the record not have been written.
        self._expired: set[tuple[int, int]] = set()

    def touch(self, broker_id: int, epoch: int, now_ms: int) -> None:
        """The broker was heard of."""
        key = broker_id, epoch
        self._heard.pop(key, None)
        self._heard[key] = now_ms
        self._expired.discard(key)

    def end(self, broker_id: int, epoch: int) -> None:
        """The broker stops and is not heard of again (0411)."""
        self._heard.pop((broker_id, epoch), None)

    def is_alive(self, broker_id: int, epoch: int, now_ms: int) -> bool:
        """Was it heard of within the session's timeout?"""
        key = broker_id, epoch
        heard = self._heard.get(key)
        return heard is not None and key not in self._expired and now_ms <= heard + self._timeout_ms

    def deadline_ms(self) -> int | None:
        """When the next one expires, None without any."""
        heard = next(iter(self._heard.values()), None)
        return None if heard is None else heard + self._timeout_ms + 1

    def expire_soon(self, broker: BrokerImage, now_ms: int) -> None:
        """There is more to do before this silent broker is fenced: `expire` names it again next."""
        key = broker.broker_id, broker.epoch
        self._heard.pop(key, None)
        self._heard = {key: now_ms + _SOON_MS - self._timeout_ms - 1, **self._heard}

    def expire(self, image: Image, now_ms: int) -> BrokerImage | None:
        """A broker that is to be fenced now because it was silent for too long."""
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
