"""A node: the root of the broker. Read this first.

It owns one of each thing: the store of logs, the metadata log, the partitions it leads, the group coordinators, the
listeners. It makes them in `open`, in the order in which they need each other, and ends them in `close` in reverse.

Rules:
- A node is single-threaded: everything here runs on its loop's thread.
- The metadata image is the truth about which partitions there are; the node follows it and never leads it.
- One node is broker and controller in one, with a quorum of one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import field
from functools import cached_property
from random import SystemRandom
from time import perf_counter
from typing import TYPE_CHECKING, Any

from ottla.broker.coordinators.coordinators import Coordinators
from ottla.broker.coordinators.groups import GroupCoordinators
from ottla.broker.coordinators.producer_ids import ProducerIds
from ottla.broker.coordinators.topic_spec import errors_of
from ottla.broker.coordinators.transactions import TransactionCoordinators
from ottla.broker.dispatch.dispatch import Dispatch
from ottla.broker.endpoint import Endpoint, advertise
from ottla.broker.limits.admission import Admission
from ottla.broker.limits.quota import Quotas
from ottla.broker.limits.telemetry import Telemetry
from ottla.broker.metadata.metadata_log import MetadataLog
from ottla.broker.metadata.topic_view import topics_changed
from ottla.broker.partitions.cleaner import Cleaner
from ottla.broker.partitions.flush import Flusher
from ottla.broker.partitions.housekeeping import Housekeeping
from ottla.broker.partitions.leadership import Leadership
from ottla.broker.partitions.log_dirs import LogDirs
from ottla.broker.share.coordinators import ShareStates
from ottla.broker.share.partitions import Shares
from ottla.host.clock import HostClock
from ottla.host.disk import HostDisk
from ottla.kernel.error import KafkaError, OttlaError
from ottla.kernel.frozen import frozen
from ottla.kernel.ids import Uuid
from ottla.kernel.lazy import LazyModule
from ottla.kernel.ports import Clock, Disk, Rng
from ottla.log.directory.directory import LockingDisk
from ottla.log.directory.opening import Opening
from ottla.log.directory.store import Store
from ottla.metadata.image import BROKER, GROUP, Image
from ottla.net.inbound import Connection
from ottla.net.listener import ListeningSocket
from ottla.replica.fetch_session import Sessions
from ottla.replica.partition import Partition
from ottla.settings.server.settings import ServerSettings
from ottla.settings.server.unserved import check_served, notices
from ottla.wire.api.create_topics import CreatableTopic, CreateTopicsRequest

if TYPE_CHECKING:
    from ottla.broker.partitions import clean_worker
    from ottla.broker.share import persister as share_persister
    from ottla.net import outbound
else:
    clean_worker = LazyModule("ottla.broker.partitions.clean_worker")
    share_persister = LazyModule("ottla.broker.share.persister")
    outbound = LazyModule("ottla.net.outbound")

_log = logging.getLogger("ottla.broker")
_net_log = logging.getLogger("ottla.net")
_PROGRESS_MS = 1000
#: Syncs that are asked for at the same time share a commit of the file system's journal.
_CLOSING_THREADS = 16


def _threads(count: int = 2) -> Executor:
    return ThreadPoolExecutor(count, thread_name_prefix="ottla-disk")


def _process(loop: asyncio.AbstractEventLoop, disk: Disk) -> clean_worker.CleanerWorker:
    return clean_worker.ProcessWorker(loop, disk)


def _dial(*arguments: Any, **options: Any) -> outbound.Outbound:
    return outbound.Outbound(*arguments, **options)


@frozen
class Ports:
    """What a node takes from the world, besides its loop. The defaults are the machine's; `ottla.sim` has others."""

    disk: LockingDisk = field(default_factory=HostDisk)
    clock: Clock = field(default_factory=HostClock)
    rng: Rng = field(default_factory=SystemRandom)
    #: Makes what runs that which would block the loop; its argument is how many threads, if not two.
    pool: Callable[..., Executor] = _threads
    #: Makes a listener; its arguments are those of `ListeningSocket`.
    listener: Callable[..., ListeningSocket] = ListeningSocket
    #: A count of seconds by which the node measures its own work, for request quotas and the request log.
    work_seconds: Callable[[], float] = perf_counter
    #: Makes what carries out a compaction beside the loop.
    clean_worker: Callable[[asyncio.AbstractEventLoop, Disk], clean_worker.CleanerWorker] = _process
    #: Makes a connection to another node; its arguments are those of `Outbound`.
    outbound: Callable[..., outbound.Outbound] = _dial


class BrokerNode:
    """One broker and controller. Whoever runs it gives it a loop, calls `open`, and `close` at the end."""

    def __init__(self, settings: ServerSettings, loop: asyncio.AbstractEventLoop, ports: Ports | None = None) -> None:
        self._ports = ports = ports or Ports()
        #: What the file says, and what is in force: the dynamic settings of the metadata go before the file.
        self._file_settings = settings
        self.settings = settings
        self.loop = loop
        self.disk, self.clock, self.rng = ports.disk, ports.clock, ports.rng
        self.node_id = settings.node_id
        #: Called when the node cannot go on (a disk that fails); whoever runs the node stops it.
        self.on_failure: Callable[[str], None] = lambda why: _log.critical("%s", why)
        #: Called during a long start with a line about how far it is.
        self.on_progress: Callable[[str], None] = lambda line: _log.info("%s", line)
        self._told_ms = 0
        self.pool = ports.pool()
        self.flusher = Flusher(
            loop, self.pool, self.clock.now_ms, lambda log, error: self.log_dirs.sync_failed(log, error)
        )
        self.fetch_sessions = Sessions(settings.max_incremental_fetch_session_cache_slots, self.rng)
        self.dispatch = Dispatch(self, ports.work_seconds)
        self.quotas = Quotas.of(settings)
        self.admission = Admission(lambda: self.settings, self.clock.monotonic_ms)
        self.log_dirs = LogDirs(self)
        self.closed = False
        self.listeners: list[ListeningSocket] = []
        self.leadership = Leadership(self)
        #: Every partition that this node leads.
        self.partitions = self.leadership.partitions
        self.groups = GroupCoordinators(self)
        self.transactions = TransactionCoordinators(self)
        self.share_states = ShareStates(self)
        self.shares = Shares(self)
        self.housekeeping = Housekeeping(self)
        self.cleaner = Cleaner(self)
        self.telemetry = Telemetry(self.rng)
        #: The newest committed metadata that this node has followed.
        self.image = Image.empty()
        self.store: Store
        self.quorum: MetadataLog
        self._undo = ExitStack()
        #: The offset of our registration in the metadata log, once there is one.
        self._broker_epoch = -1
        self._endpoints: dict[str, Endpoint] = {}
        self._appended: list[Partition] = []
        self.producer_ids = ProducerIds(self)

    # ---- life

    def open(self) -> None:
        """Take the addresses and the directories, recover, and serve. Raises OttlaError in words."""
        check_served(self.settings)
        for notice in notices(self.settings):
            _log.warning("%s", notice)
        with ExitStack() as undo:
            undo.callback(self.pool.shutdown)
            self._bind(undo)
            self.store = Store.take(
                self.disk, self.settings.log_dirs, node_id=self.node_id, settings_of=self.leadership.settings_of
            )
            undo.callback(self._close_store)
            self.quorum = MetadataLog.open(self.disk, self.settings, self.store, self.clock, self.rng)
            undo.callback(self.quorum.close)
            self.quorum.on_failure = lambda error: self.on_failure(f"the metadata log cannot be synced: {error}")
            self.quorum.join(self.store, self._endpoints.values())
            self._broker_epoch = self.quorum.broker_epoch
            # The metadata first: a log is opened as its topic is set.
            self._take_settings(self.quorum.image)
            self._load_store()
            self.log_dirs.tell_what_is_left()
            self._follow(Image.empty(), self.quorum.image)
            self.leadership.started()
            self.quorum.subscribe(self._follow)
            self.quorum.run_beside(self.loop, self.pool)
            self.store.delete_strays(self.leadership.is_stray)
            self.log_dirs.cordon_later()
            self.log_dirs.resume()
            undo.callback(self.transactions.close)
            undo.callback(self.groups.close)
            undo.callback(self.share_states.close)
            undo.callback(self.shares.close)
            undo.callback(self._close_persister)
            self.housekeeping.start()
            undo.callback(self.housekeeping.stop)
            self.cleaner.start()
            undo.callback(self.cleaner.stop)
            for listener in self.listeners:
                listener.serve()
            self._undo = undo.pop_all()

    def close(self) -> None:
        """Stop to serve, write the checkpoints and the mark of a clean shutdown, give the directories back."""
        for listener in self.listeners:
            listener.close()
        with suppress(OSError):
            # What was decided is followed while there are threads for it. A disk that fails has told the node.
            self.quorum.finish()
        self.closed = True
        # Syncs under way come to their end before the logs that they are about are closed.
        self.pool.shutdown()
        self._undo.close()

    def _close_store(self) -> None:
        pool = self._ports.pool(_CLOSING_THREADS)
        try:
            self.store.close(self._broker_epoch, pool)
        finally:
            pool.shutdown()

    def _close_persister(self) -> None:
        if "persister" in vars(self):
            self.persister.close()

    def _load_store(self) -> None:
        pool = self._ports.pool(self.settings.num_recovery_threads_per_data_dir * len(self.store.directories))
        self._told_ms = self.clock.monotonic_ms()
        try:
            self.store.load(self.clock.now_ms(), self._tell_progress, pool, self.log_dirs.named)
        finally:
            pool.shutdown()

    def _tell_progress(self, opening: Opening) -> None:
        """Say how far a start is, when it takes long enough for somebody to wonder."""
        now_ms = self.clock.monotonic_ms()
        if now_ms - self._told_ms >= _PROGRESS_MS:
            self._told_ms = now_ms
            self.on_progress(opening.line)

    def _bind(self, undo: ExitStack) -> None:
        if not (self.settings.is_broker and self.settings.is_controller):
            raise OttlaError("a node is broker and controller in one for now: write process.roles=broker,controller")
        for each in self.settings.listeners:
            if each.security_protocol != "PLAINTEXT":
                raise OttlaError(
                    f"the listener {each.name} is {each.security_protocol}, and only PLAINTEXT is served for now; "
                    "change it in listeners or in listener.security.protocol.map"
                )
            if each.name in self.settings.controller_listener_names:
                # The quorum is this node alone: nobody else has to reach its controller.
                continue
            listener = self._ports.listener(
                each.name,
                self.loop,
                self.dispatch.on_frame,
                self._connection_closed,
                frame_bytes_max=self.settings.socket_request_max_bytes,
                idle_ms_max=self.settings.connections_max_idle_ms,
                gate=self.admission.gate(each.name),
            )
            listener.bind(each.host, each.port)
            undo.callback(listener.close)
            self.listeners.append(listener)
            self._endpoints[each.name] = advertise(self.settings, each, listener.port)

    def _connection_closed(self, connection: Connection, why: str) -> None:
        self.telemetry.forget(connection)
        _net_log.debug("connection of %s:%d closed: %s", *connection.peer, why)
        self.shares.connection_closed(connection)

    # ---- what there is

    @cached_property
    def persister(self) -> share_persister.Persister:
        """The way to the share coordinators; made when the first share group needs it."""
        return share_persister.Persister(self)

    @property
    def cluster_id(self) -> str:
        return self.store.cluster_id

    @property
    def supported_features(self) -> dict[str, tuple[int, int]]:
        """Feature -> (lowest, highest) level that this node can run."""
        return self.quorum.supported_features

    @property
    def finalized_features(self) -> dict[str, int]:
        """Feature -> the level that the cluster has agreed on; kraft.version is the quorum's own (KIP-853)."""
        kraft_version = self.quorum.membership.kraft_version
        return {**self.image.features, "kraft.version": kraft_version}

    def new_clean_worker(self) -> clean_worker.CleanerWorker:
        """What carries out one compaction."""
        return self._ports.clean_worker(self.loop, self.disk)

    def endpoints(self, listener_name: str) -> list[Endpoint]:
        """The brokers' addresses on one listener."""
        return [self._endpoints[listener_name]]

    def bound(self) -> list[Endpoint]:
        """Where this node really listens, for people and for embedded clients."""
        return list(self._endpoints.values())

    def topic_name(self, topic_id: bytes) -> str | None:
        """The name of a topic by its id."""
        return self.image.topic_names.get(Uuid(topic_id))

    def leader_of(self, topic: str, index: int) -> Partition:
        """The partition, which we lead; KafkaError says why there is none."""
        return self.partitions.get((topic, index)) or self.leadership.find(topic, index)

    # ---- what changes

    def make_topics(self, topics: list[CreatableTopic], done: Callable[[dict[str, KafkaError]], None]) -> None:
        """Make topics, and call `done` when they can be used, with what went wrong by name."""

        def committed(response: Any) -> None:
            names = [each.name for each in topics]
            errors = dict.fromkeys(names, response) if isinstance(response, KafkaError) else errors_of(response)
            self.leadership.when_made(names, lambda: done(errors))

        self.quorum.ask(CreateTopicsRequest(topics=topics), committed)

    def _take_settings(self, image: Image) -> None:
        self.image = image
        own, everyones = image.config(BROKER, str(self.node_id)), image.config(BROKER, "")
        self.settings = self._file_settings.with_dynamic(own, everyones)

    def _follow(self, old: Image, new: Image) -> None:
        """The metadata changed: make, drop and adjust the partitions that it concerns."""
        self.image = new
        if new.changed_configs(old, BROKER):
            self._take_settings(new)
            self.log_dirs.cordon_later()
            self.admission.settings_changed()
        self.leadership.configure(old, new)
        event = topics_changed(old, new)
        for name, topic_id in event.deleted:
            self.leadership.drop(old.topics[name])
            self.transactions.drop(old.topics[name])
            self.shares.drop_topic(topic_id)
        for name in (*event.created, *event.changed):
            self.leadership.follow(name)
        self.telemetry.follow(old, new)
        if new.quotas is not old.quotas:
            self.quotas.follow(new)
            self.admission.follow(new)
        self.log_dirs.follow(old, new, event)
        if event.created or event.changed or event.deleted:
            self.groups.topics_changed(event)
            self.share_states.topics_changed(event)
        if new.changed_configs(old, GROUP) or new.changed_configs(old, BROKER):
            self.groups.settings_changed()
            self.shares.settings_changed()

    def coordinators_of(self, topic: str) -> Coordinators[Any] | None:
        """Whose records this topic holds."""
        return next((each for each in (self.groups, self.transactions, self.share_states) if each.topic == topic), None)

    # ---- waking those who wait for records

    def wake_later(self, partition: Partition) -> None:
        if not self._appended:
            self.loop.call_soon(self._wake)
        self._appended.append(partition)

    def _wake(self) -> None:
        """Once a turn of the loop: a fetch that waits on many partitions is tried once, not once an append."""
        appended, self._appended = self._appended, []
        waiting = dict.fromkeys(wake for partition in appended for wake in partition.waiting)
        for wake in waiting:
            wake()
