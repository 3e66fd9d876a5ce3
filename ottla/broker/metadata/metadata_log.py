"""The metadata of the cluster on this node: what `node.quorum` is. Read this first.

Three parts do the work, each with one idea: `raft_driver` keeps the log with the quorum, `controller_driver` decides
requests while this node leads it, `images` gives what is committed to those who follow.

It lives on the node's thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
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
from ottla.kernel.error import KafkaError, OttlaError
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
    """A node that is alone has no one to reach."""
    raise OSError(f"{host}:{port} cannot be reached from here")


class MetadataLog:
    """The node makes it with `open` after it has locked its directories, and ends it with `close`."""

    def __init__(self, raft: RaftDriver, settings: ServerSettings, clock: Clock, rng: Rng, cluster_id: str) -> None:
        self.raft = raft
        self._settings = settings
        self._clock = clock
        self._rng = rng
        self._cluster_id = cluster_id
        self._controller = ControllerDriver(settings, clock, rng, raft, cluster_id)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        #: When that is due.
        self._timer_ms = 0
        self._on_leader: list[Callable[[], None]] = []
        self._on_step: list[Callable[[], None]] = []
        #: The epoch in which this node's controller was activated last.
        self._led_epoch = -1
        #: This controller's incarnation, which lasts as long as the process.
        self.controller_request = registration.controller_request(settings, rng)
        #: Called once when a sync fails; the node stops.
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
        """Read the log and take part in its quorum. OttlaError in words when it cannot be.

        A quorum of this node alone is led, and everything in its log committed, when this returns. Others are reached
        by `dial(host, port)` from `run_beside` on.
        """
        directory = (settings.metadata_log_dir or settings.log_dirs[0]).rstrip("/") or "/"
        if directory not in store.directories:
            failure = store.failed_directories.get(directory)
            why = "is not one of log.dirs" if failure is None else f"does not work: {failure}"
            raise OttlaError(f"metadata.log.dir={directory} {why}")
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

    # ---- what others use

    @property
    def image(self) -> Image:
        """The committed metadata."""
        return self.raft.images.committed

    @property
    def decided(self) -> Image:
        """The metadata with what is not committed yet: what the next decision is made on."""
        return self.raft.images.appended

    @property
    def supported_features(self) -> dict[str, tuple[int, int]]:
        """Feature -> (lowest, highest) level that this node can run."""
        return supported(unstable=self._settings.unstable_feature_versions_enable)

    @property
    def broker_epoch(self) -> int:
        """The epoch of this broker's registration; with it a clean stop is marked."""
        return self.decided.brokers[self._settings.node_id].epoch

    @property
    def directory(self) -> str:
        """The log directory that holds the log: without it there is no metadata."""
        return self.raft.directory

    @property
    def leader_epoch(self) -> int:
        """The quorum's epoch."""
        return self.raft.quorum.epoch

    @property
    def leader(self) -> Peer | None:
        """The active controller as far as it is known; with this node's own id when it is this node."""
        quorum = self.raft.quorum
        if self._controller.is_active:
            return Peer(self._settings.node_id, "", 0)
        return None if quorum.leader is None else Peer(*quorum.leader)

    def subscribe_leader(self, subscriber: Callable[[], None]) -> None:
        """Call `subscriber()` when another leader is known, or none is."""
        self._on_leader.append(subscriber)

    def subscribe_step(self, subscriber: Callable[[], None]) -> None:
        """Call `subscriber()` after each step of the quorum's machine: it may have another role, log or commit."""
        self._on_step.append(subscriber)

    @property
    def membership(self) -> Membership:
        """The voters, as the log says it."""
        return self.raft.membership

    @property
    def voters(self) -> tuple[VoterNode, ...]:
        """The voters with their addresses."""
        return self.raft.voters

    @property
    def log(self) -> Log:
        """The log itself, for who describes or serves it."""
        return self.raft.log

    @property
    def trouble(self) -> str:
        """Why no leader is known: which controllers cannot be reached; "" if there is nothing to say."""
        failures = self.raft.network.failures
        if self.leader is not None or not failures:
            return ""
        said, count = "; ".join(failures), len(self.voters)
        if count > 1:
            said += f" (the quorum needs {count // 2 + 1} of its {count} voters: start them, or check their addresses)"
        return said

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call `subscriber(old, new)` after each commit that changed something."""
        self.raft.images.subscribe(subscriber)

    def ask(
        self, request: Any, done: Callable[[Any], None], version: int = NEWEST, charge: MutationQuota = unlimited
    ) -> None:
        """Let this node decide: see `ControllerDriver.ask`. NOT_CONTROLLER when it is not the active controller."""
        self._controller.ask(request, done, version, charge)
        self._plan()

    def append(self, records: list[Any]) -> None:
        """Append these records as one batch; they are committed soon. KAFKA_STORAGE_ERROR when the log has failed."""
        self._controller.append(records)

    # ---- life

    def join(self, request: BrokerRegistrationRequest) -> None:
        """Register this node's broker with its own controller, and let it serve. Durable on return.

        For a node that is the whole cluster: no leader moves when it starts (decision 0431).
        """
        settings, decided = self._settings, self.decided
        before = decided.brokers.get(settings.node_id)
        registered = register_broker(decided, self._cluster_id, request, self.log.end_offset)
        self.raft.submit(registered.records)
        # A broker that stops says so in its last record; one that did not may have lost what it had not synced.
        crashed = before is not None and not before.fenced
        self.raft.submit(unfence(self.decided, settings.node_id, crashed=crashed))
        self.raft.sync.now()

    def run_beside(self, loop: asyncio.AbstractEventLoop, pool: Executor) -> None:
        """From now on the loop runs, and there are threads for syncs and snapshots."""
        self._loop = loop
        self.raft.run_beside(loop, pool)
        self._plan()

    def resign(self, done: Callable[[], None]) -> None:
        """Let another node lead before this one stops, if there is one, and call `done` when the others know."""
        quorum, loop = self.raft.quorum, self._loop
        if not quorum.leads or len(self.membership.voters) < 2 or loop is None or self.raft.sync.failure is not None:
            return done()
        waiting = True

        def told() -> None:
            nonlocal waiting
            if waiting:
                waiting = False
                limit.cancel()
                done()

        limit = loop.call_later(self._settings.controller_quorum_request_timeout_ms / 1000, told)
        self.raft.receive(ResignRequested(quorum.epoch))
        self.raft.network.when_idle(told)
        return None

    def finish(self) -> None:
        """The node stops: commit what was decided, and use its threads no more. OSError when the disk fails."""
        self._loop = None
        if self._timer is not None:
            self._timer.cancel()
        self.raft.finish()

    def deadline_ms(self) -> int | None:
        """When `time_passed` is to be called, by the clock's `monotonic_ms`; None when nothing waits for time."""
        deadlines = (self.raft.quorum.deadline_ms(), self._controller.deadline_ms())
        return min((each for each in deadlines if each is not None), default=None)

    def time_passed(self) -> None:
        """Do what is due. KafkaError when the log cannot be written."""
        if self.raft.sync.failure is None:
            self.raft.step(TimerExpired())
            self._controller.time_passed()
            self.raft.sync.later()

    def close(self) -> None:
        """Say that this broker stopped cleanly, and give the log's files back. The threads have ended."""
        with suppress(OSError):
            self.finish()
        try:
            broker = self.decided.brokers.get(self._settings.node_id)
            decides = self._controller.is_active and self.raft.sync.failure is None
            if decides and broker is not None and not broker.fenced:
                fence = BrokerRegistrationChangeRecord(
                    broker_id=broker.broker_id, broker_epoch=broker.epoch, fenced=_FENCE
                )
                self.append([fence])
        finally:
            self.raft.close()

    # ---- what the quorum tells

    def _stepped(self) -> None:
        """The machine may have another role now."""
        quorum, controller = self.raft.quorum, self._controller
        if quorum.leads and self._led_epoch != quorum.epoch:
            self._led_epoch = quorum.epoch
            if controller.is_active:
                controller.resign()
            self._lead()
            self._leader_changed()
        elif controller.is_active and not quorum.leads:
            controller.resign()
            self._leader_changed()
        for subscriber in self._on_step:
            subscriber()
        self._plan()

    def _lead(self) -> None:
        self._controller.activate()
        if self.is_controller_unregistered:
            self.raft.submit(register_controller(self.decided, self.controller_request).records)

    @property
    def is_controller_unregistered(self) -> bool:
        """Has this controller's incarnation to be made known in the metadata?"""
        image, request = self.decided, self.controller_request
        if not self._settings.is_controller or image.metadata_version < CONTROLLER_REGISTRATIONS_FROM:
            return False
        known = image.controllers.get(request.controller_id)
        return known is None or known.incarnation_id != request.incarnation_id

    def _leader_changed(self) -> None:
        for subscriber in self._on_leader:
            subscriber()

    def _refused(self, address: str) -> None:
        if self.raft.quorum.high_watermark >= 0:
            # This node has been in its cluster: the other node is the stranger.
            return _log.warning("%s belongs to another cluster than %s", address, self._cluster_id)
        return self.on_failure(
            OSError(
                f"the controller at {address} belongs to another cluster than {self._cluster_id}, for which this node "
                "was formatted; correct controller.quorum.bootstrap.servers, or format this node again with the "
                "cluster's id"
            )
        )

    def _failed(self, error: OSError) -> None:
        self.on_failure(error)
        self._controller.failed(error)

    def _plan(self, pause_ms_min: int = 0) -> None:
        """Turn to the quorum when it wants to be told of time: not later than now planned, perhaps earlier."""
        deadline_ms = self.deadline_ms()
        if deadline_ms is None or self._loop is None:
            return
        deadline_ms = max(deadline_ms, self._clock.monotonic_ms() + pause_ms_min)
        if self._timer is not None:
            if self._timer_ms <= deadline_ms:
                return
            self._timer.cancel()
        self._timer_ms = deadline_ms
        wait_ms = max(0, deadline_ms - self._clock.monotonic_ms())
        self._timer = self._loop.call_later(wait_ms / 1000, self._due)

    def _due(self) -> None:
        self._timer = None
        try:
            self.time_passed()
        except KafkaError:
            _log.exception("the metadata log cannot be written; it is tried again")
            return self._plan(_RETRY_MS)
        return self._plan()
