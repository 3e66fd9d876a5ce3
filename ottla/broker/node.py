"""A broker node: the root of the broker. Read this first.

It owns one of each component: the log store, the metadata log, the partitions it leads, the coordinators, the
listeners. It creates them in `open`, in order of their dependencies, and ends them in `close` in reverse.

The phases of `open`: locks -> metadata log -> quorum (`metadata_node`); image known -> logs opened with their topics'
settings -> registered -> unfenced -> serving (here).

Rules:
- A node is single-threaded: everything here runs on its loop's thread.
- The metadata image is the truth about which partitions exist; the node follows it and never gets ahead of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor, Future, wait
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from ottla.broker.controllers.broker_life import BrokerLife
from ottla.broker.coordinators.coordinators import Coordinators
from ottla.broker.coordinators.groups import GroupCoordinators
from ottla.broker.coordinators.parts import CoordinatorParts
from ottla.broker.coordinators.producer_ids import ProducerIds
from ottla.broker.coordinators.topic_spec import errors_of
from ottla.broker.coordinators.transactions import TransactionCoordinators
from ottla.broker.limits.telemetry import Telemetry
from ottla.broker.limits.throttles import Throttles
from ottla.broker.metadata.broker_view import BrokerView
from ottla.broker.metadata.topic_view import topics_changed
from ottla.broker.metadata_node import MetadataNode, Ports
from ottla.broker.partitions.cleaner import Cleaner
from ottla.broker.partitions.flush import Flusher
from ottla.broker.partitions.housekeeping import Housekeeping
from ottla.broker.partitions.leadership import Leadership
from ottla.broker.partitions.log_dirs import LogDirs
from ottla.broker.partitions.log_settings import LogSettingsByTopic
from ottla.broker.partitions.look_ups import LookUps
from ottla.broker.partitions.replication import Replication
from ottla.broker.share.coordinators import ShareStates
from ottla.broker.share.partitions import Shares
from ottla.kernel.callbacks import call_each
from ottla.kernel.error import KafkaError, OttlaError
from ottla.kernel.ids import Uuid
from ottla.kernel.lazy import LazyModule
from ottla.log.directory.opening import Opening
from ottla.log.directory.store import Store
from ottla.metadata.image import BROKER, GROUP, Image
from ottla.net.inbound import Connection
from ottla.net.peer import OutboundOptions, Peer
from ottla.replica.fetch_session import Sessions
from ottla.replica.hosted import HostedReplica
from ottla.replica.partition import Partition
from ottla.settings.server.settings import ServerSettings
from ottla.wire.api.create_topics import CreatableTopic, CreateTopicsRequest

if TYPE_CHECKING:
    from ottla.broker.coordinators import auto_creation, peers
    from ottla.broker.metadata.registration import LogDirectories
    from ottla.broker.partitions.clean_worker import CleanerWorker
    from ottla.broker.share import persister as share_persister
    from ottla.net.outbound import Outbound
else:
    peers = LazyModule("ottla.broker.coordinators.peers")
    auto_creation = LazyModule("ottla.broker.coordinators.auto_creation")
    share_persister = LazyModule("ottla.broker.share.persister")

__all__ = ["BrokerNode", "Ports"]

_log = logging.getLogger("ottla.broker")
_PROGRESS_MS = 1000
#: Concurrent flushes share a commit of the file system's journal.
_CLOSING_THREADS = 16


class BrokerNode(MetadataNode):
    """A broker, and also a controller if process.roles says so."""

    def __init__(self, settings: ServerSettings, loop: asyncio.AbstractEventLoop, ports: Ports | None = None) -> None:
        super().__init__(settings, loop, ports)
        self._progress_ms = 0
        self.look_ups = LookUps(loop, self.pool)
        self.flusher = Flusher(
            loop, self.pool, self.clock.now_ms, lambda log, error: self.log_dirs.sync_failed(log, error)
        )
        self.fetch_sessions = Sessions(settings.max_incremental_fetch_session_cache_slots, self.rng)
        self.throttles = Throttles(self.node_id, settings)
        self.telemetry = Telemetry(self.rng)
        #: All partitions that this node leads, and all replicas that it hosts.
        self.partitions: dict[tuple[str, int], Partition] = {}
        self.hosted: dict[tuple[str, int], HostedReplica] = {}
        self._log_settings = LogSettingsByTopic(self)
        self.store: Store
        #: The threads that open the logs while the loop goes on.
        self._loading: Executor | None = None
        #: Log directory -> the progress of opening its logs, which threads write.
        self._openings: dict[str, Opening] = {}
        self._is_closing = False
        #: True once the node hosts the partitions that the metadata assigns to it.
        self._is_hosting = False
        #: Listener name -> newest view.
        self._brokers: dict[str, BrokerView] = {}
        self._readable: list[HostedReplica] = []

    # ---- the phases of a start

    def _take_directories(self) -> LogDirectories:
        self.store = Store.take(
            self.disk,
            self.settings.log_dirs,
            node_id=self.node_id,
            settings_of=self._log_settings.of,
            metadata_dir=self.settings.metadata_log_dir,
        )
        self._undo.callback(self._close_store)
        return self.store

    def _make_parts(self) -> None:
        """Create the parts that use the store and the quorum, each after the parts that it uses."""
        store, quorum, controllers, flusher = self.store, self.quorum, self.controllers, self.flusher
        self.life = BrokerLife(
            self, quorum, controllers, store, self.bound, on_caught_up=self._caught_up, on_unfenced=self._serve
        )
        self.log_dirs = log_dirs = LogDirs(
            self, store, quorum, controllers, self.life, flusher, self.throttles, lambda: self.leadership
        )
        self.replication = Replication(self, self.partitions, controllers, flusher, log_dirs, self.throttles, self.dial)
        self.leadership = leadership = Leadership(
            self,
            store,
            self._log_settings,
            flusher,
            log_dirs,
            self.replication,
            hosted=self.hosted,
            partitions=self.partitions,
            on_led=self._led,
            on_resigned=self._resigned,
            on_readable=self.wake_later,
        )
        self.producer_ids = ProducerIds(self.node_id, controllers, lambda: self.life.epoch)
        parts = CoordinatorParts(self, leadership, flusher, log_dirs, self.create_topics)
        self.groups = GroupCoordinators(parts, controllers, lambda: self.persister)
        self.transactions = TransactionCoordinators(parts, self.dial, self.producer_ids.next, self.groups)
        self.share_states = ShareStates(parts)
        self.shares = Shares(self, log_dirs, self.look_ups, lambda: self.persister)
        self.housekeeping = Housekeeping(self, store, leadership, flusher, log_dirs)
        retain = self.housekeeping.retain_one
        self.cleaner = Cleaner(self, store, self.hosted, flusher, log_dirs, retain, self.new_clean_worker)

    def _led(self, partition: Partition) -> None:
        coordinators = self.coordinators_of(partition.tp.topic)
        if coordinators is not None:
            coordinators.lead(partition)
        self.transactions.led(partition.tp)

    def _resigned(self, partition: Partition, leads_on: bool) -> None:
        self.shares.resign(partition)
        coordinators = self.coordinators_of(partition.tp.topic)
        if coordinators is not None and not (leads_on and coordinators.goes_on(partition.tp.partition)):
            coordinators.resign(partition.tp.partition)

    def _begin(self) -> None:
        self._make_parts()
        if not self.life.is_alone:
            self._serve_controllers()
            self.quorum.start_threads(self.loop, self.pool)
            return self.life.begin()
        # Metadata first, because a log is opened with its topic's settings.
        self._take_settings(self.quorum.image)
        if self._wait_seconds is None:
            with self._new_loading_pool() as pool:
                self._load_store(pool)
            return self._join_alone()
        loading = self._load_beside()
        if wait([loading], self._wait_seconds).not_done:
            return self._then(loading, self._join_alone)
        self._end_loading()
        loading.result()
        return self._join_alone()

    def _join_alone(self) -> None:
        """Register and serve in a single-node cluster. No other node has been heard before, so it still is one."""
        self.life.join()
        self._serve_controllers()

    def _caught_up(self) -> None:
        """Open the logs on threads, after the metadata is replayed up to the broker's own registration.

        The loop goes on meanwhile: heartbeats keep the session, and a voter votes.
        """
        self._take_settings(self.quorum.image)
        self._then(self._load_beside(), self._recovered)

    def _load_beside(self) -> Future[None]:
        self._loading = pool = self._new_loading_pool()
        return pool.submit(self._load_store, pool)

    def _then(self, loading: Future[None], go_on: Callable[[], None]) -> None:
        """Call `go_on` on the loop when the logs are open."""
        loading.add_done_callback(lambda finished: self.loop.call_soon_threadsafe(self._loaded, finished, go_on))

    def _end_loading(self) -> None:
        if self._loading is not None:
            self._loading.shutdown(wait=False)
            self._loading = None
        self._openings.clear()

    def _loaded(self, finished: Future[None], go_on: Callable[[], None]) -> None:
        self._end_loading()
        if self.closed or self._is_closing:
            return
        try:
            finished.result()
            go_on()
        except Exception as error:
            if not isinstance(error, OSError | OttlaError):
                _log.exception("cannot open the logs")
            self.on_failure(f"cannot open the logs: {error}")

    def _recovered(self) -> None:
        """Ask to be unfenced, after the logs are open."""
        if self.quorum.image is not self.image:
            self._take_settings(self.quorum.image)
            self.leadership.configure_all()
        self._host()
        # Before the controller unfences this broker, and places partitions here.
        self.log_dirs.cordon()
        self.life.recovered()

    def _host(self) -> None:
        """Host the partitions that the metadata assigns to this node, and follow the metadata from now on."""
        self._is_hosting = True
        self.log_dirs.report_failed_directories()
        self._follow(Image.empty(), self.quorum.image)
        self.leadership.started()
        self.quorum.subscribe(self._follow)

    def _serve(self) -> None:
        """Serve clients, because the broker is unfenced."""
        if not self._is_hosting:
            # A single-node cluster opened its logs before it registered.
            self._host()
            self.quorum.start_threads(self.loop, self.pool)
        self.store.delete_strays(self.leadership.is_stray, self.log_dirs.suspect)
        self.log_dirs.cordon_later()
        self.log_dirs.resume()
        undo = self._undo
        undo.callback(self.transactions.close)
        undo.callback(self.groups.close)
        undo.callback(self.share_states.close)
        undo.callback(self.shares.close)
        undo.callback(self._close_persister)
        self.housekeeping.start()
        undo.callback(self.housekeeping.stop)
        self.cleaner.start()
        undo.callback(self.cleaner.stop)
        self.replication.start()
        undo.callback(self.replication.stop)
        for listener in self.listeners:
            listener.serve()
        self._ready()

    def stop(self, done: Callable[[], None]) -> None:
        resign = partial(super().stop, done)
        if self.settings.controlled_shutdown_enable:
            self.life.stop(resign)
        else:
            resign()

    @property
    def progress(self) -> str:
        return "; ".join(opening.line for opening in list(self._openings.values()))

    def why_waiting(self) -> str:
        if self._loading is not None:
            # The store reports progress while the logs are opened.
            return ""
        return self.quorum.trouble or self.life.last_error_text or super().why_waiting()

    def close(self) -> None:
        self.life.close()
        self._is_closing = True
        if self._loading is not None:
            # A recovery in progress stops at its next piece.
            self._loading.shutdown()
        super().close()

    def _close_store(self) -> None:
        # A start that fails before the parts are made has registered nothing.
        broker_epoch = self.life.epoch if "life" in vars(self) else -1
        pool = self._ports.pool(_CLOSING_THREADS)
        try:
            if "leadership" in vars(self):
                self.leadership.finish_deletions()
            self.store.close(broker_epoch, pool)
        finally:
            pool.shutdown()

    def _close_persister(self) -> None:
        if "persister" in vars(self):
            self.persister.close()

    def _new_loading_pool(self) -> Executor:
        """Threads that recover logs, and one that waits for them."""
        return self._ports.pool(self.settings.num_recovery_threads_per_data_dir * len(self.store.directories) + 1)

    def _load_store(self, pool: Executor) -> None:
        self._progress_ms = self.clock.monotonic_ms()
        self.store.load(
            self.clock.now_ms(), self._report_progress, pool, self.log_dirs.named, self.log_dirs.topic_id_of
        )

    def _report_progress(self, opening: Opening) -> None:
        """Report the progress of a start that takes noticeably long. OttlaError cancels the start."""
        if self._is_closing:
            raise OttlaError("the node was stopped while opening its logs")
        self._openings[opening.directory] = opening
        now_ms = self.clock.monotonic_ms()
        if now_ms - self._progress_ms >= _PROGRESS_MS:
            self._progress_ms = now_ms
            self.on_progress(opening.line)

    def _connection_closed(self, connection: Connection, why: str) -> None:
        super()._connection_closed(connection, why)
        self.telemetry.forget(connection)
        self.shares.connection_closed(connection)

    # ---- access

    @cached_property
    def persister(self) -> share_persister.Persister:
        """Access to the share coordinators; created when the first share group needs it."""
        return share_persister.Persister(self, self.share_states, self.leadership, peers.BrokerPeers(self, self.dial))

    @cached_property
    def auto_creation(self) -> auto_creation.AutoCreation:
        """Creates the topics that clients ask for and that are missing."""
        return auto_creation.AutoCreation(self, self.create_topics, self.coordinators_of)

    @property
    def cluster_id(self) -> str:
        return self.store.cluster_id

    @property
    def failed_directories(self) -> list[str]:
        return list(self.store.failed_directories)

    def dial(self, peer: Peer) -> Outbound:
        """A connection to another broker; its owner closes it."""
        options = OutboundOptions(
            setup_timeout_ms=self.settings.socket_connection_setup_timeout_ms,
            setup_timeout_max_ms=self.settings.socket_connection_setup_timeout_max_ms,
        )
        name = self.settings.inter_broker_listener_name
        return self.outbound_to(
            name, self.loop, peer.host, peer.port, client_id=f"broker-{self.node_id}", rng=self.rng, options=options
        )

    def new_clean_worker(self) -> CleanerWorker:
        """A worker for one compaction."""
        return self._ports.clean_worker(self.loop, self.disk)

    def brokers_at(self, listener_name: str) -> BrokerView:
        """The brokers as clients of this listener see them."""
        view = self._brokers.get(listener_name)
        if view is None or not view.is_of(self.image, listener_name):
            view = self._brokers[listener_name] = BrokerView(self.image.brokers, listener_name)
        return view

    def topic_name(self, topic_id: bytes) -> str | None:
        """The name of the topic with this id."""
        return self.image.topic_names.get(Uuid(topic_id))

    def leader_of(self, topic: str, index: int) -> Partition:
        """A partition that this node leads; otherwise raise the KafkaError that says why it does not."""
        return self.partitions.get((topic, index)) or self.leadership.find(topic, index)

    # ---- changes

    def create_topics(self, topics: list[CreatableTopic], done: Callable[[dict[str, KafkaError]], None]) -> None:
        """Create topics; when they can be used here, call `done` with topic name -> error for those that failed."""

        def committed(response: Any) -> None:
            names = [topic.name for topic in topics]
            errors = dict.fromkeys(names, response) if isinstance(response, KafkaError) else errors_of(response)
            self.leadership.on_created(names, lambda: done(errors))

        self.controllers.ask(CreateTopicsRequest(topics=topics), committed)

    def _follow(self, old: Image, new: Image) -> None:
        """Apply a metadata change: create, delete and adjust the partitions that it concerns."""
        self.image = new
        if self._follow_settings(old, new):
            self.log_dirs.cordon_later()
        self._follow_limits(old, new)
        self.throttles.follow(old, new)
        self.replication.follow_brokers(old, new)
        if new.brokers is not old.brokers:
            self.transactions.follow_brokers()
            if "persister" in vars(self):
                self.persister.peers.follow()
        self.leadership.configure(old, new)
        event = topics_changed(old, new)
        for name, _ in event.deleted:
            self.leadership.drop(old.topics[name])
            self.transactions.drop(old.topics[name])
        for name in (*event.created, *event.changed, *event.adjusted):
            self.leadership.follow(name)
        self.transactions.follow((*event.created, *event.changed, *event.adjusted))
        self.telemetry.follow(old, new)
        self.log_dirs.follow(old, new, event)
        if event.created or event.changed or event.deleted:
            self.groups.topics_changed(event)
            self.share_states.topics_changed(event)
        if new.changed_configs(old, GROUP) or new.changed_configs(old, BROKER):
            self.groups.settings_changed()
            self.shares.settings_changed()

    def coordinators_of(self, topic: str) -> Coordinators[Any] | None:
        """The coordinators whose records this topic holds."""
        for coordinators in (self.groups, self.transactions, self.share_states):
            if coordinators.topic == topic:
                return coordinators
        return None

    # ---- waking fetches

    def wake_later(self, replica: HostedReplica) -> None:
        if not self._readable:
            self.loop.call_soon(self._wake)
        self._readable.append(replica)

    def _wake(self) -> None:
        """Wake each waiting fetch once per turn of the loop, however many of its partitions have new records."""
        readable, self._readable = self._readable, []
        call_each(dict.fromkeys(wake for replica in readable for wake in replica.waiting))
