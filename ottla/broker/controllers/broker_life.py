"""The driver of a broker's lifecycle (`lifecycle`): sends its requests, keeps its timer, notifies the node.

    life = BrokerLife(runtime, quorum, controllers, store, bound, on_caught_up=..., on_unfenced=...)
    life.begin()                     # the node takes part in the metadata quorum
    life.recovered()                 # from on_caught_up, when the logs are open
    life.stop(done)                  # leaders move away, then done()
    life.close()

A single-node cluster calls `join` instead when its logs are open, and serves when that returns.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.broker.controllers.lifecycle import (
    Begun,
    CaughtUp,
    Cordoned,
    DirectoryFailed,
    HeartbeatAnswered,
    HeartbeatFailed,
    Joined,
    Lifecycle,
    LifeEffect,
    LifeEnded,
    LifeEvent,
    LifeSettings,
    LifeState,
    Recovered,
    Register,
    Registered,
    RegistrationFailed,
    SendHeartbeat,
    StopWanted,
    TimePassed,
    Unfenced,
)
from ottla.broker.metadata import registration
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.error_message import words
from ottla.kernel.ids import Uuid, random_uuid
from ottla.log.checkpoint import clean_shutdown_epoch
from ottla.wire.api.broker_registration import BrokerRegistrationRequest

if TYPE_CHECKING:
    from ottla.broker.controllers.controllers import Controllers
    from ottla.broker.endpoint import Endpoint
    from ottla.broker.metadata.metadata_log import MetadataLog
    from ottla.broker.runtime import Runtime
    from ottla.log.directory.store import Store

_log = logging.getLogger("ottla.broker")
_REGISTER_RETRY_SECONDS = 1.0


class BrokerLife:
    """A broker's lifecycle. The node creates and closes it."""

    def __init__(
        self,
        runtime: Runtime,
        quorum: MetadataLog,
        controllers: Controllers,
        store: Store,
        bound: Callable[[], list[Endpoint]],
        *,
        on_caught_up: Callable[[], None],
        on_unfenced: Callable[[], None],
    ) -> None:
        settings = runtime.settings
        self._runtime = runtime
        self._quorum = quorum
        self._controllers = controllers
        self._store = store
        #: The addresses that this broker registers.
        self._bound = bound
        self._on_caught_up = on_caught_up
        self._on_unfenced = on_unfenced
        self._on_end: Callable[[], None] | None = None
        self._machine = Lifecycle(
            LifeSettings(
                settings.broker_heartbeat_interval_ms,
                settings.initial_broker_registration_timeout_ms,
                settings.log_dir_failure_timeout_ms,
                settings.broker_session_timeout_ms,
            )
        )
        #: Events that arrived while another event was being handled.
        self._events: deque[LifeEvent] = deque()
        self._is_stepping = False
        self._timer: asyncio.TimerHandle | None = None
        self._incarnation_id = random_uuid(runtime.rng)
        self._previous_epoch = -1
        self._closed = False
        #: The last error from the controller.
        self.last_error: KafkaError | None = None

    @property
    def state(self) -> LifeState:
        """The broker's state under Apache Kafka's name."""
        return self._machine.state

    @property
    def epoch(self) -> int:
        """The broker epoch (the offset of its registration); -1 before there is one."""
        return self._machine.epoch

    def begin(self) -> None:
        """Register, and continue from there."""
        if not self._store.failed_directories:
            # Read before the logs are opened, because the marker file holds for one start.
            self._previous_epoch = clean_shutdown_epoch(self._runtime.disk, self._store.directories)
        self._step(Begun())

    def join(self) -> None:
        """Register this broker in a single-node cluster, and let it serve."""
        self._quorum.join(self._registration())
        self._step(Joined(self._quorum.broker_epoch))

    @property
    def is_alone(self) -> bool:
        """Whether this node is the active controller and the only registered broker."""
        node_id, leader = self._runtime.node_id, self._quorum.leader
        is_own = leader is not None and leader.node_id == node_id
        return is_own and not set(self._quorum.decided.brokers) - {node_id}

    def register_again(self) -> None:
        """Register the log directories, which the earlier metadata.version could not record. The broker epoch stays."""

        def answered(response: Any) -> None:
            if isinstance(response, KafkaError) and not self._closed:
                _log.warning("the controller refused the log directories of this broker: %s; will retry", response)
                self._runtime.loop.call_later(_REGISTER_RETRY_SECONDS, self.register_again)

        if not self._closed:
            self._controllers.ask_for_lifecycle(self._registration(), answered)

    def recovered(self) -> None:
        """Note that the logs are open."""
        self._step(Recovered())

    def directory_failed(self, directory_id: Uuid) -> None:
        """Have the controller move leadership away from this directory."""
        self._step(DirectoryFailed(directory_id))

    def cordoned(self, directory_ids: list[Uuid]) -> None:
        """Have the controller place no new replicas in these directories."""
        self._step(Cordoned(tuple(sorted(directory_ids))))

    def stop(self, done: Callable[[], None]) -> None:
        """Have leadership moved away, and call `done` when the broker may stop; at once on the only node."""
        self._on_end = done
        if self.is_alone:
            self._end("")
        else:
            self._step(StopWanted())

    def close(self) -> None:
        """Send nothing more."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    # ---- the machine

    def _step(self, event: LifeEvent) -> None:
        self._events.append(event)
        if self._is_stepping:
            return
        self._is_stepping = True
        try:
            while self._events and not self._closed:
                event = self._events.popleft()
                for effect in self._machine.step(event, self._runtime.clock.monotonic_ms()):
                    self._carry_out(effect)
        except Exception as error:
            if isinstance(event, Joined):
                # The caller, who opens the node, gets the error.
                raise
            # The broker may be in the middle of its start. The controller counts on it while it sends heartbeats.
            _log.exception("the broker's lifecycle has failed")
            self._runtime.on_failure(f"the broker cannot go on: {error}")
            return
        finally:
            self._is_stepping = False
        self._plan()

    def _carry_out(self, effect: LifeEffect) -> None:
        match effect:
            case Register():
                self._register()
            case SendHeartbeat():
                try:
                    request = effect.request(self._runtime.node_id, self._quorum.image.offset)
                except OSError as error:
                    # No descriptor is left with which the request's module could be imported.
                    return self._heartbeat_answered(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)))
                self._controllers.ask_for_lifecycle(request, self._heartbeat_answered)
            case CaughtUp():
                _log.debug("the metadata is replayed up to this broker's registration")
                self._on_caught_up()
            case Unfenced():
                _log.debug("the broker is unfenced and serves")
                self._on_unfenced()
            case LifeEnded(failure):
                self._end(failure)

    def _register(self) -> None:
        request = self._registration()
        self._controllers.ask_for_lifecycle(request, partial(self._registration_answered, request))

    def _registration(self) -> BrokerRegistrationRequest:
        store = self._store
        return registration.broker_request(
            self._runtime.settings,
            self._incarnation_id,
            self._previous_epoch,
            store.cluster_id,
            [registration.directory_id(store, path) for path in store.directories],
            self._bound(),
        )

    def _registration_answered(self, request: BrokerRegistrationRequest, response: Any) -> None:
        if self._closed:
            return None
        if isinstance(response, KafkaError):
            if response.code is ErrorCode.UNSUPPORTED_VERSION:
                response = KafkaError(response.code, self._unsupported(request) or response.message)
            self.last_error = response
            _log.info("the controller refused to register this broker: %s", response)
            return self._step(RegistrationFailed(response))
        return self._step(Registered(response.broker_epoch))

    def _unsupported(self, request: BrokerRegistrationRequest) -> str:
        """The feature level that this broker does not support; the controller's response has no message for it."""
        ranges = {
            feature.name: (feature.min_supported_version, feature.max_supported_version) for feature in request.features
        }
        for name, level in self._quorum.image.features.items():
            low, high = ranges.get(name, (0, 0))
            if not low <= level <= high:
                return (
                    f"the cluster is at {name} {level}, and this broker runs {low} to {high}: "
                    "start a version of the program that runs it, or set the cluster's level before it joins"
                )
        return ""

    def _heartbeat_answered(self, response: Any) -> None:
        if self._closed:
            return None
        if isinstance(response, KafkaError):
            self.last_error = response
            _log.warning("a heartbeat of this broker failed: %s", response)
            return self._step(HeartbeatFailed(response))
        return self._step(HeartbeatAnswered(response))

    @property
    def last_error_text(self) -> str:
        """The last error from the controller, with its meaning; "" if there is none."""
        error = self.last_error
        return "" if error is None else f"{error.code.name}: {words(error)}"

    def _end(self, failure: str) -> None:
        done, self._on_end = self._on_end, None
        if failure:
            reason = f"{failure}: {self.last_error_text}" if self.last_error_text else failure
            if self._quorum.trouble:
                reason = f"{reason} ({self._quorum.trouble})"
            self._runtime.on_failure(reason)
        if done is not None:
            done()

    # ---- time

    def _plan(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline_ms = self._machine.deadline_ms()
        if deadline_ms is not None and not self._closed:
            wait_ms = max(0, deadline_ms - self._runtime.clock.monotonic_ms())
            self._timer = self._runtime.loop.call_later(wait_ms / 1000, self._due)

    def _due(self) -> None:
        self._timer = None
        self._step(TimePassed())
