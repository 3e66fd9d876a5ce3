"""A broker's lifecycle with the controller: a pure machine, driven by `ottla/broker/controllers/broker_life.py`.

| state | event | effects | next state |
|---|---|---|---|
| NOT_RUNNING | Joined: a single-node cluster | Unfenced; a heartbeat after an interval | RUNNING |
| NOT_RUNNING | Begun | register; start the registration timeout | STARTING |
| any that registers | Registered | a heartbeat | same |
| any that registers | RegistrationFailed | register again after an interval | same |
| STARTING | the registration timeout passes | LifeEnded, with the reason | SHUTTING_DOWN |
| STARTING | heartbeat response: caught up | CaughtUp; the next heartbeat soon | RECOVERY |
| RECOVERY | Recovered: the logs are open | a heartbeat that asks to be unfenced | RECOVERY |
| RECOVERY | heartbeat response: not fenced | Unfenced | RUNNING |
| RUNNING | StopWanted | a heartbeat that asks to stop; start the shutdown timeout | PENDING_CONTROLLED_SHUTDOWN |
| PENDING_... | heartbeat response: should shut down | LifeEnded | SHUTTING_DOWN |
| PENDING_... | the shutdown timeout passes, or no response for a session | LifeEnded | SHUTTING_DOWN |
| NOT_RUNNING, STARTING, RECOVERY | StopWanted | LifeEnded | SHUTTING_DOWN |
| any registered | HeartbeatFailed: stale epoch, not registered | register again after an interval | same |
| any registered | HeartbeatFailed: another reason | a heartbeat after an interval | same |
| any registered | DirectoryFailed, Cordoned | a heartbeat that reports it | same |

Rules:
- The broker has one request in flight at a time. An event that needs another request while one is in flight has it
  sent right after the response. After a failure the next request waits for the interval, so that a controller in
  trouble is not flooded.
- From `Recovered` on heartbeats ask to be unfenced. The controller unfences a broker that has replayed the metadata up
  to its own registration.
- A failed directory that cannot be reported to a controller in time fails the node, because other brokers still count
  its replicas.
- A registration that the controller no longer knows is made again, with the same incarnation. Apache Kafka's broker
  sends heartbeats with the stale epoch until it is restarted (decision 0431).

KIPs: 631 (registration, fencing), 858 (directories), 966 (PreviousBrokerEpoch), 1066 (cordoned directories).
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.frozen import frozen
from ottla.kernel.ids import Uuid, uuid_text
from ottla.kernel.lazy import LazyModule
from ottla.kernel.now import earliest
from ottla.settings.server.node import NodeDeclaration

if TYPE_CHECKING:
    from ottla.wire.api import broker_heartbeat as heartbeat
else:
    heartbeat = LazyModule("ottla.wire.api.broker_heartbeat")

#: Delay after the first heartbeat response in STARTING, and after the first one in a controlled shutdown.
_SOON_MS = 10
_STOPPING_SOON_MS = 50
_REGISTRATION_LOST = (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED)


class LifeState(IntEnum):
    """Apache Kafka's states of a broker, with their numbers (BrokerState)."""

    NOT_RUNNING = 0
    STARTING = 1
    RECOVERY = 2
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    SHUTTING_DOWN = 7


# ---- events


@frozen
class Begun:
    """The node takes part in the cluster's metadata."""


@frozen
class Joined:
    """The node is the whole cluster, and its own log has its registration, at `epoch`, unfenced."""

    epoch: int


@frozen
class Registered:
    """The controller accepted the registration, whose offset in the metadata log is `epoch`."""

    epoch: int


@frozen
class RegistrationFailed:
    """The controller refused the registration, or none responded."""

    error: KafkaError


@frozen
class HeartbeatAnswered:
    """The controller accepted a heartbeat."""

    response: heartbeat.BrokerHeartbeatResponse


@frozen
class HeartbeatFailed:
    """The controller refused a heartbeat, or none responded."""

    error: KafkaError


@frozen
class Recovered:
    """The logs are open: the broker can serve."""


@frozen
class DirectoryFailed:
    """A log directory is offline."""

    directory_id: Uuid


@frozen
class Cordoned:
    """The complete set of log directories that get no new replicas."""

    directory_ids: tuple[Uuid, ...]


@frozen
class StopWanted:
    """A controlled shutdown was requested."""


@frozen
class TimePassed:
    """`deadline_ms` has passed."""


LifeEvent = (
    Begun
    | Joined
    | Registered
    | RegistrationFailed
    | HeartbeatAnswered
    | HeartbeatFailed
    | Recovered
    | DirectoryFailed
    | Cordoned
    | StopWanted
    | TimePassed
)

# ---- effects


@frozen
class Register:
    """Send the registration; answered by `Registered` or `RegistrationFailed`."""


@frozen
class SendHeartbeat:
    """Send a heartbeat; answered by `HeartbeatAnswered` or `HeartbeatFailed`."""

    epoch: int
    want_fence: bool
    want_shut_down: bool
    offline: tuple[Uuid, ...]
    cordoned: tuple[Uuid, ...] | None

    def request(self, broker_id: int, metadata_offset: int) -> heartbeat.BrokerHeartbeatRequest:
        """The request of a broker that has replayed the metadata up to this offset."""
        return heartbeat.BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=self.epoch,
            current_metadata_offset=metadata_offset,
            want_fence=self.want_fence,
            want_shut_down=self.want_shut_down,
            offline_log_dirs=list(self.offline),
            cordoned_log_dirs=None if self.cordoned is None else list(self.cordoned),
        )


@frozen
class CaughtUp:
    """The metadata is replayed up to the broker's own registration, for the first time: open the logs."""


@frozen
class Unfenced:
    """The broker is unfenced for the first time: serve clients."""


@frozen
class LifeEnded:
    """The lifecycle is over: the node may stop. `failure` is the reason why it must, "" after a requested stop."""

    failure: str


LifeEffect = Register | SendHeartbeat | CaughtUp | Unfenced | LifeEnded


@frozen
class LifeSettings:
    """Times in milliseconds, from Kafka's settings."""

    heartbeat_interval_ms: int
    #: initial.broker.registration.timeout.ms
    registration_timeout_ms: int
    #: log.dir.failure.timeout.ms
    directory_timeout_ms: int
    #: broker.session.timeout.ms: a broker without a response for this long has been fenced by any live controller.
    session_timeout_ms: int = NodeDeclaration.broker_session_timeout_ms.default
    #: How long a controlled shutdown may take: five minutes in Apache Kafka's server.
    shutdown_timeout_ms: int = 300_000


class Lifecycle:
    """A broker from start to end. All events go through `step`; `deadline_ms` says when `TimePassed` is due."""

    def __init__(self, settings: LifeSettings) -> None:
        self._settings = settings
        self.state = LifeState.NOT_RUNNING
        #: The offset of the registration; -1 before there is one.
        self.epoch = -1
        self.registered = False
        self._recovered = False
        #: Whether a request is in flight, and whether another should follow its response at once.
        self._asking = False
        self._hurry = False
        #: When the next request is due, and when the current state times out.
        self._next_ms: int | None = None
        self._limit_ms: int | None = None
        #: Failed directory -> when the controller must have been told of it; None once it has.
        self._offline: dict[Uuid, int | None] = {}
        #: The failed directories in the last heartbeat.
        self._reporting: tuple[Uuid, ...] = ()
        self._cordoned: tuple[Uuid, ...] | None = None
        self._stop_was_answered = False
        #: When a controlled shutdown ends in any case.
        self._stop_until_ms = 0

    def deadline_ms(self) -> int | None:
        """When `TimePassed` is due; None if nothing depends on time."""
        if self.state in (LifeState.NOT_RUNNING, LifeState.SHUTTING_DOWN):
            return None
        times = [self._limit_ms, None if self._asking else self._next_ms, *self._offline.values()]
        return earliest(times)

    def step(self, event: LifeEvent, now_ms: int) -> list[LifeEffect]:
        """The effects of `event`, in order."""
        if self.state == LifeState.SHUTTING_DOWN:
            return []
        match event:
            case Begun():
                self.state = LifeState.STARTING
                self._limit_ms = now_ms + self._settings.registration_timeout_ms
                self._next_ms = now_ms
            case Joined(epoch):
                self.state = LifeState.RUNNING
                self.epoch, self.registered, self._recovered = epoch, True, True
                self._after(now_ms, self._settings.heartbeat_interval_ms)
                return [Unfenced()]
            case Registered(epoch):
                self._registered(epoch, now_ms)
            case RegistrationFailed():
                self._failed(now_ms)
            case HeartbeatAnswered(response):
                return self._answered(response, now_ms) + self._due(now_ms)
            case HeartbeatFailed(error):
                self.registered = self.registered and error.code not in _REGISTRATION_LOST
                self._failed(now_ms)
            case Recovered():
                self._recovered = True
                self._soon(now_ms)
            case DirectoryFailed(directory_id):
                if directory_id not in self._offline:
                    self._offline[directory_id] = now_ms + self._settings.directory_timeout_ms
                    self._soon(now_ms)
            case Cordoned(directory_ids):
                if directory_ids != self._cordoned:
                    self._cordoned = directory_ids
                    self._soon(now_ms)
            case StopWanted():
                return self._stop(now_ms)
            case TimePassed():
                pass
        return self._due(now_ms)

    # ---- events

    def _registered(self, epoch: int, now_ms: int) -> None:
        self._asking = False
        self.epoch = epoch
        self.registered = True
        if self.state == LifeState.STARTING:
            self._limit_ms = None
        self._after(now_ms, 0)

    def _failed(self, now_ms: int) -> None:
        self._asking = self._hurry = False
        self._after(now_ms, self._settings.heartbeat_interval_ms)

    def _answered(self, response: heartbeat.BrokerHeartbeatResponse, now_ms: int) -> list[LifeEffect]:
        self._asking = False
        for each in self._reporting:
            self._offline[each] = None
        effects: list[LifeEffect] = []
        wait_ms = self._settings.heartbeat_interval_ms
        if self.state == LifeState.STARTING:
            wait_ms = _SOON_MS
            if response.is_caught_up:
                self.state = LifeState.RECOVERY
                effects.append(CaughtUp())
        elif self.state == LifeState.RECOVERY and not response.is_fenced:
            self.state = LifeState.RUNNING
            effects.append(Unfenced())
        elif self.state == LifeState.PENDING_CONTROLLED_SHUTDOWN:
            if response.should_shut_down:
                return self._end("")
            self._wait_for_shutdown(now_ms)
            if not self._stop_was_answered:
                self._stop_was_answered = True
                wait_ms = _STOPPING_SOON_MS
        self._after(now_ms, wait_ms)
        return effects

    def _stop(self, now_ms: int) -> list[LifeEffect]:
        if self.state == LifeState.PENDING_CONTROLLED_SHUTDOWN:
            return []
        if self.state != LifeState.RUNNING:
            return self._end("")
        self.state = LifeState.PENDING_CONTROLLED_SHUTDOWN
        self._stop_until_ms = now_ms + self._settings.shutdown_timeout_ms
        self._wait_for_shutdown(now_ms)
        self._soon(now_ms)
        return self._due(now_ms)

    def _wait_for_shutdown(self, now_ms: int) -> None:
        """Extend the wait for the controller's permission to stop, but only while a controller responds.

        The last nodes of a stopping quorum have none (Apache Kafka waits for the whole five minutes).
        """
        self._limit_ms = min(self._stop_until_ms, now_ms + self._settings.session_timeout_ms)

    def _end(self, failure: str) -> list[LifeEffect]:
        self.state = LifeState.SHUTTING_DOWN
        return [LifeEnded(failure)]

    # ---- timing of requests

    def _soon(self, now_ms: int) -> None:
        """Send the next request now, or right after the response to the one in flight."""
        self._hurry = self._asking
        if not self._asking and self._next_ms is not None:
            self._next_ms = now_ms

    def _after(self, now_ms: int, wait_ms: int) -> None:
        self._next_ms = now_ms if self._hurry else now_ms + wait_ms
        self._hurry = False

    def _due(self, now_ms: int) -> list[LifeEffect]:
        if self.state == LifeState.SHUTTING_DOWN:
            return []
        if self._limit_ms is not None and now_ms >= self._limit_ms:
            stopping = self.state == LifeState.PENDING_CONTROLLED_SHUTDOWN
            return self._end("" if stopping else "no controller has taken this broker's registration in time")
        unreported = [each for each, until_ms in self._offline.items() if until_ms is not None and now_ms >= until_ms]
        if unreported:
            return self._end(f"no controller was told in time that log directory {uuid_text(unreported[0])} is offline")
        if self._asking or self._next_ms is None or now_ms < self._next_ms:
            return []
        self._asking = True
        if not self.registered:
            return [Register()]
        self._reporting = tuple(self._offline)
        return [
            SendHeartbeat(
                self.epoch,
                not self._recovered,
                self.state == LifeState.PENDING_CONTROLLED_SHUTDOWN,
                self._reporting,
                None if self.state == LifeState.STARTING else self._cordoned,
            )
        ]
