"""The cluster metadata on this node (`node.quorum`). Read this first.

Three parts do the work: `raft_driver` maintains the log with the quorum, `controller_driver` decides requests while
this node leads the quorum, and `images` publishes committed metadata to subscribers.

It runs on the node's loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.broker.metadata import registration
from ottla.broker.metadata.controller_driver import ControllerDriver
from ottla.broker.metadata.images import Subscriber
from ottla.broker.metadata.raft_driver import RaftDriver
from ottla.broker.metadata.raft_network import Dial
from ottla.broker.metadata.registration import LogDirectories
from ottla.controller.broker import register_broker, register_controller, unfence
from ottla.controller.controller import NEWEST
from ottla.controller.decision import MutationQuota, unlimited
from ottla.kernel.callbacks import call_each
from ottla.kernel.error import KafkaError, OttlaError
from ottla.kernel.now import earliest
from ottla.kernel.ports import Clock, Disk, Rng
from ottla.log.log import Log
from ottla.metadata.feature import CONTROLLER_REGISTRATIONS_FROM, supported
from ottla.metadata.image import Image
from ottla.net.peer import Peer
from ottla.raft.checkpoint import Membership, VoterNode
from ottla.raft.event import ResignRequested, TimerExpired
from ottla.settings.server.settings import ServerSettings
from ottla.wire.api.broker_registration import BrokerRegistrationRequest
from ottla.wire.record.metadata import BrokerRegistrationChangeRecord

if TYPE_CHECKING:
    from ottla.net.outbound import Outbound

_log = logging.getLogger("ottla.broker")
_FENCE = 1
_RETRY_MS = 1000


def no_dial(host: str, port: int) -> Outbound:
    """Refuse to connect: a single-node cluster has no other nodes."""
    raise OSError(f"{host}:{port} cannot be reached from here")


class MetadataLog:
    """The metadata log. The node creates it with `open` after locking its directories, and ends it with `close`."""

    def __init__(self, raft: RaftDriver, settings: ServerSettings, clock: Clock, rng: Rng, cluster_id: str) -> None:
        self.raft = raft
        self._settings = settings
        self._clock = clock
        self._rng = rng
        self._cluster_id = cluster_id
        self._controller = ControllerDriver(settings, clock, rng, raft, cluster_id)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        #: When the timer is due.
        self._timer_ms = 0
        self._on_leader: list[Callable[[], None]] = []
        #: Called after each step, the plan for the next deadline last.
        self._on_step: list[Callable[[], None]] = [self._plan]
        #: The epoch in which this node's controller was last activated.
        self._led_epoch = -1
        #: The registration of this controller's incarnation, which lasts as long as the process.
        self.controller_request = registration.controller_request(settings, rng)
        #: Called once when a flush fails; the node stops.
        self.on_failure: Callable[[OSError], None] = lambda _: None
        raft.on_commit = self._controller.committed
        raft.on_failure = self._failed
        raft.on_leader = self._leader_changed
        raft.on_stepped = self._stepped
        raft.network.on_stranger = self._refused

    @classmethod
    def open(
        cls, disk: Disk, settings: ServerSettings, store: LogDirectories, clock: Clock, rng: Rng, dial: Dial = no_dial
    ) -> MetadataLog:
        """Load the log and join its quorum. OttlaError with a message for the user if that is impossible.

        A quorum of this node alone has elected it and committed its whole log when this returns. Other nodes are
        reached by `dial(host, port)`, from `start_threads` on.
        """
        directory = (settings.metadata_log_dir or settings.log_dirs[0]).rstrip("/") or "/"
        if not store.works(directory):
            raise OttlaError(f"metadata.log.dir={directory} does not work: {store.failed_directories[directory]}")
        directory_id = registration.directory_id(store, directory)
        raft = RaftDriver(disk, settings, clock, rng, store.cluster_id, directory, directory_id, dial)
        log = cls(raft, settings, clock, rng, store.cluster_id)
        raft.load()
        try:
            raft.start()
            raft.sync.now()
        except BaseException:
            raft.log.discard()
            raise
        return log

    # ---- access

    @property
    def image(self) -> Image:
        """The committed metadata."""
        return self.raft.images.committed

    @property
    def decided(self) -> Image:
        """The metadata including uncommitted records, on which the next decision is based."""
        return self.raft.images.appended

    @property
    def supported_features(self) -> dict[str, tuple[int, int]]:
        """Feature -> (lowest, highest) level that this node supports."""
        return supported(unstable=self._settings.unstable_feature_versions_enable)

    @property
    def broker_epoch(self) -> int:
        """The epoch of this broker's registration, which also marks a clean stop."""
        return self.decided.brokers[self._settings.node_id].epoch

    @property
    def directory(self) -> str:
        """The log directory that holds the metadata log; the node cannot run without it."""
        return self.raft.directory

    @property
    def leader_epoch(self) -> int:
        """The quorum's epoch."""
        return self.raft.quorum.epoch

    @property
    def leader(self) -> Peer | None:
        """The active controller, if known; has this node's id if this node is the active controller."""
        quorum = self.raft.quorum
        if self._controller.is_active:
            return Peer(self._settings.node_id, "", 0)
        return None if quorum.leader is None else Peer(*quorum.leader)

    def subscribe_leader(self, subscriber: Callable[[], None]) -> None:
        """Call `subscriber()` when the known leader changes."""
        self._on_leader.append(subscriber)

    def subscribe_step(self, subscriber: Callable[[], None]) -> None:
        """Call `subscriber()` after each step of the quorum's machine: its role, log or commit may have changed."""
        self._on_step.insert(-1, subscriber)

    @property
    def membership(self) -> Membership:
        """The voters according to the log."""
        return self.raft.membership

    @property
    def voters(self) -> tuple[VoterNode, ...]:
        """The voters with their addresses."""
        return self.raft.voters

    @property
    def log(self) -> Log:
        """The log itself, for components that describe or serve it."""
        return self.raft.log

    @property
    def trouble(self) -> str:
        """Why no leader is known (the controllers that cannot be reached); "" if there is nothing to report."""
        failures = self.raft.network.failures
        if self.leader is not None or not failures:
            return ""
        reason, count = "; ".join(failures), len(self.voters)
        if count > 1:
            reason += (
                f" (the quorum needs {count // 2 + 1} of its {count} voters: start them, or check their addresses)"
            )
        return reason

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call `subscriber(old, new)` after each commit that changed the metadata."""
        self.raft.images.subscribe(subscriber)

    def ask(
        self, request: Any, done: Callable[[Any], None], version: int = NEWEST, charge: MutationQuota = unlimited
    ) -> None:
        """Decide a request as in `ControllerDriver.ask`. NOT_CONTROLLER if this node is not the active controller."""
        self._controller.ask(request, done, version, charge)
        self._plan()

    def append(self, records: list[Any]) -> None:
        """Append these records as one batch, to be committed soon. KAFKA_STORAGE_ERROR if the log has failed."""
        self._controller.append(records)

    # ---- lifecycle

    def join(self, request: BrokerRegistrationRequest) -> None:
        """Register this node's broker with its own controller, and unfence it. Durable on return.

        For a single-node cluster: no leader moves when it starts (decision 0431).
        """
        settings, decided = self._settings, self.decided
        before = decided.brokers.get(settings.node_id)
        registered = register_broker(decided, self._cluster_id, request, self.log.end_offset)
        self.raft.submit(registered.records)
        # A clean stop is the broker's last record. Without it, the broker may have lost records that it had not
        # flushed.
        crashed = before is not None and not before.fenced
        self.raft.submit(unfence(self.decided, settings.node_id, crashed=crashed))
        self.raft.sync.now()

    def start_threads(self, loop: asyncio.AbstractEventLoop, pool: Executor) -> None:
        """From now on the loop runs, and a thread pool is available for flushes and snapshots."""
        self._loop = loop
        self.raft.start_threads(loop, pool)
        self._plan()

    def resign(self, done: Callable[[], None]) -> None:
        """Hand over leadership before this node stops, if there are other voters; call `done` when the others know."""
        quorum, loop = self.raft.quorum, self._loop
        if not quorum.leads or len(self.membership.voters) < 2 or loop is None or self.raft.sync.failure is not None:
            return done()
        waiting = True

        def finish() -> None:
            nonlocal waiting
            if waiting:
                waiting = False
                limit.cancel()
                done()

        limit = loop.call_later(self._settings.controller_quorum_request_timeout_ms / 1000, finish)
        self.raft.receive(ResignRequested(quorum.epoch))
        self.raft.network.when_idle(finish)
        return None

    def finish(self) -> None:
        """Before the node stops, commit what was decided and stop using its threads. OSError if the disk fails."""
        self._loop = None
        if self._timer is not None:
            self._timer.cancel()
        self.raft.finish()

    def deadline_ms(self) -> int | None:
        """When `time_passed` is due, by the clock's `monotonic_ms`; None if nothing depends on time."""
        if self.raft.sync.failure is not None:
            return None
        return earliest((self.raft.quorum.deadline_ms(), self._controller.deadline_ms()))

    def time_passed(self) -> None:
        """Do what is due. KafkaError if the log cannot be written."""
        if self.raft.sync.failure is None:
            self.raft.step(TimerExpired())
            self._controller.time_passed()
            self.raft.sync.later()

    def close(self) -> None:
        """Record this broker's clean stop, if the disk takes it, and close the log. The threads have ended."""
        with suppress(OSError):
            self.finish()
        try:
            try:
                self._record_stop()
            finally:
                self.raft.close()
        except (KafkaError, OSError) as error:
            # All other records are durable already, and a start after a crash has no index files either.
            _log.warning("cannot write what a clean stop adds to %s: %s", self.log.path, error)

    def _record_stop(self) -> None:
        """Fence the broker of a single-node cluster without moving its leaders (decision 0431).

        Among others, a fenced broker must not stay a leader: a controlled shutdown or the next controller fences it.
        """
        node_id, brokers = self._settings.node_id, self.decided.brokers
        broker = brokers.get(node_id) if len(brokers) == 1 else None
        decides = self._controller.is_active and self.raft.sync.failure is None
        if decides and broker is not None and not broker.fenced:
            fence = BrokerRegistrationChangeRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch, fenced=_FENCE)
            self.append([fence])

    # ---- reports of the quorum

    def _stepped(self) -> None:
        """After a step of the machine: activate or resign the controller if this node's role has changed."""
        quorum, controller = self.raft.quorum, self._controller
        if quorum.leads and self._led_epoch != quorum.epoch:
            self._led_epoch = quorum.epoch
            resign = [controller.resign] if controller.is_active else []
            call_each([*resign, self._lead, self._leader_changed, *self._on_step])
        elif controller.is_active and not quorum.leads:
            call_each([controller.resign, self._leader_changed, *self._on_step])
        else:
            call_each(self._on_step)

    def _lead(self) -> None:
        try:
            self._controller.activate()
            if self.is_controller_unregistered:
                self.raft.submit(register_controller(self.decided, self.controller_request).records)
        except KafkaError as error:
            # A leader without a controller would keep the other voters from leading.
            self.raft.sync.fail(OSError(f"cannot write the first records of a controller: {error}"))

    @property
    def is_controller_unregistered(self) -> bool:
        """Whether this controller's incarnation still has to be registered in the metadata."""
        image, request = self.decided, self.controller_request
        if not self._settings.is_controller or image.metadata_version < CONTROLLER_REGISTRATIONS_FROM:
            return False
        known = image.controllers.get(request.controller_id)
        return known is None or known.incarnation_id != request.incarnation_id

    def _leader_changed(self) -> None:
        call_each(self._on_leader)

    def _refused(self, address: str) -> None:
        if self.raft.quorum.high_watermark >= 0:
            # This node was already part of its cluster, so the other node is the stranger.
            return _log.warning("%s belongs to another cluster than %s", address, self._cluster_id)
        return self.on_failure(
            OSError(
                f"the controller at {address} belongs to another cluster than {self._cluster_id}, for which this node "
                "was formatted; correct controller.quorum.bootstrap.servers, or format this node again with the "
                "cluster's id"
            )
        )

    def _failed(self, error: OSError) -> None:
        call_each([partial(self.on_failure, error), partial(self._controller.failed, error)])

    def _plan(self, pause_ms_min: int = 0) -> None:
        """Set the timer to the next deadline, unless it is already due earlier."""
        now_ms = self._clock.monotonic_ms()
        if self._timer is not None and self._timer_ms <= now_ms:
            # The timer is due, or running: `_due` plans the next one.
            return
        deadline_ms = self.deadline_ms()
        if deadline_ms is None or self._loop is None:
            return
        deadline_ms = max(deadline_ms, now_ms + pause_ms_min)
        if self._timer is not None:
            if self._timer_ms <= deadline_ms:
                return
            self._timer.cancel()
        self._timer_ms = deadline_ms
        self._timer = self._loop.call_later((deadline_ms - now_ms) / 1000, self._due)

    def _due(self) -> None:
        pause_ms_min = _RETRY_MS
        try:
            self.time_passed()
            pause_ms_min = 0
        except KafkaError:
            _log.exception("cannot write the metadata log; will retry")
        finally:
            self._timer = None
            self._plan(pause_ms_min)
