"""The metadata log: the driver of the quorum and of the controller on this node's disk.

Rules:
- The controller decides on what it wrote last; everyone else sees `image`, which is what is committed.
- Records are synced before they count. Several decisions may share one sync: appends first, then `_sync`.
- A decision of the controller may build on one that is not committed yet; its answer waits for both, also when it has
  no records of its own ("there is such a topic already").
- `__cluster_metadata-0` is opened here and not by the store, which leaves it alone.
- A disk that fails in a sync leaves unknown what is durable: from then on every change is refused, until a restart
  reads what is there.

It lives on the node's thread, its syncs on another (docs/decisions/0230).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from functools import partial
from typing import Any

from ottla.broker.metadata import registration
from ottla.broker.metadata.durability import MetadataSync
from ottla.broker.metadata.file import MetadataFiles
from ottla.broker.metadata.loader import check_servable, load
from ottla.broker.metadata.registration import BrokerAddress, LogDirectories
from ottla.broker.metadata.voters import known_voters, raised, with_own_address
from ottla.controller.activation import activation_records
from ottla.controller.broker import register_broker, register_controller, unfence
from ottla.controller.controller import NEWEST, Controller
from ottla.controller.decision import Decision, MutationQuota, unlimited
from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.kernel.ids import Uuid
from ottla.kernel.ports import Clock, Disk, Rng
from ottla.log.log import Log, LogSettings, Origin
from ottla.metadata.delta import Fold
from ottla.metadata.feature import CONTROLLER_REGISTRATIONS_FROM, supported
from ottla.metadata.image import Image
from ottla.metadata.record_version import record_version
from ottla.raft.checkpoint import (
    Membership,
    VoterNode,
    control_batch,
    leader_change_record,
    membership_records,
    record_batch,
)
from ottla.raft.effect import (
    AppendEntries,
    AppendLeaderChange,
    AppendNoOp,
    CleanLog,
    Commit,
    Effect,
    SaveElection,
    Sync,
    WriteSnapshot,
)
from ottla.raft.event import (
    EntriesAppended,
    Event,
    SnapshotFailed,
    SnapshotWritten,
    Started,
    Submitted,
    Synced,
    TimerExpired,
)
from ottla.raft.quorum import Quorum, QuorumSettings
from ottla.raft.role import Voter
from ottla.settings.schema import SettingSource
from ottla.settings.server.settings import ServerSettings
from ottla.wire.record.control import ControlRecordType
from ottla.wire.record.metadata import BrokerRegistrationChangeRecord, NoOpRecord, pack

_log = logging.getLogger("ottla.broker")
#: Kafka's largest batch of metadata (KafkaRaftClient.MAX_BATCH_SIZE_BYTES), and room for its header.
_BATCH_BYTES_MAX = 8 * 1024 * 1024 + 4096
_FENCE = 1

Subscriber = Callable[[Image, Image], None]


class MetadataLog:
    """The node makes it with `open` after it has locked its directories, and ends it with `close`."""

    def __init__(
        self, disk: Disk, settings: ServerSettings, store: LogDirectories, clock: Clock, rng: Rng, directory: str
    ) -> None:
        self._settings = settings
        self._cluster_id = store.cluster_id
        self._clock = clock
        self._rng = rng
        self._directory = directory
        self._files = MetadataFiles(disk, directory)
        self._controller = Controller(settings, rng)
        self._membership = Membership()
        #: Everything appended, committed or not: what the controller decides on.
        self._fold = Fold(Image.empty())
        #: Everything committed: what everyone else sees.
        self._image = Image.empty()
        self._subscribers: list[Subscriber] = []
        self._snapshot_end_offset = self._bytes_since_snapshot = 0
        #: Where each batch ends that is not committed, and what the metadata is with it.
        self._uncommitted: deque[tuple[int, Image]] = deque()
        #: Who is told when the log is committed up to here.
        self._waiting: deque[tuple[int, Callable[[KafkaError | None], None]]] = deque()
        self._sync = MetadataSync(clock.now_ms, self._synced, self._failed)
        self._beside: tuple[asyncio.AbstractEventLoop, Executor] | None = None
        #: Called once when a sync fails; the node stops.
        self.on_failure: Callable[[OSError], None] = lambda _: None
        self._log: Log
        self._quorum: Quorum
        self._voters: tuple[Voter, ...]
        self._directory_id: Uuid

    @classmethod
    def open(
        cls,
        disk: Disk,
        settings: ServerSettings,
        store: LogDirectories,
        clock: Clock,
        rng: Rng,
        addresses: Iterable[BrokerAddress],
    ) -> MetadataLog:
        """Read the log, lead its quorum, and register this node in it. OttlaError in words when it cannot be."""
        directory = (settings.metadata_log_dir or settings.log_dirs[0]).rstrip("/") or "/"
        if directory not in store.directories:
            failure = store.failed_directories.get(directory)
            why = "is not one of log.dirs" if failure is None else f"does not work: {failure}"
            raise OttlaError(f"metadata.log.dir={directory} {why}")
        log = cls(disk, settings, store, clock, rng, directory)
        try:
            log._load()
            log._lead(registration.directory_id(store, directory))
            log._activate()
            log._join([registration.directory_id(store, path) for path in store.directories], list(addresses))
        except BaseException:
            if hasattr(log, "_log"):
                log._log.discard()
            raise
        return log

    # ---- what others use

    @property
    def image(self) -> Image:
        """The committed metadata."""
        return self._image

    @property
    def decided(self) -> Image:
        """The metadata with what is not committed yet: what the next decision is made on."""
        return self._fold.image

    @property
    def supported_features(self) -> dict[str, tuple[int, int]]:
        """Feature -> (lowest, highest level) that this node can run."""
        return supported(unstable=self._settings.unstable_feature_versions_enable)

    @property
    def broker_epoch(self) -> int:
        """The epoch of this broker's registration; with it a clean stop is marked."""
        return self._fold.image.brokers[self._settings.node_id].epoch

    @property
    def directory(self) -> str:
        """The log directory that holds the log: without it there is no metadata."""
        return self._directory

    @property
    def leader_epoch(self) -> int:
        """The quorum's epoch."""
        return self._quorum.epoch

    @property
    def membership(self) -> Membership:
        """The voters, as the log says it."""
        return self._membership

    @property
    def voters(self) -> tuple[VoterNode, ...]:
        """The voters with their addresses: from the log, or with kraft.version 0 from the settings (KIP-595)."""
        return known_voters(self._membership, self._settings)

    @property
    def log(self) -> Log:
        """The log itself, for who describes or serves it."""
        return self._log

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call `subscriber(old, new)` after each commit that changed something."""
        self._subscribers.append(subscriber)

    def ask(
        self, request: Any, done: Callable[[Any], None], version: int = NEWEST, charge: MutationQuota = unlimited
    ) -> None:
        """Let the controller decide a request; `done` gets the response when all that led to it is committed.

        `done` gets a KafkaError when the whole request fails or the disk does, and may be called before this returns.
        `charge` is told of each partition that comes or goes.
        """
        try:
            self._check_works()
            decision = self._decide(request, version, charge)
        except KafkaError as error:
            return done(error)
        self._sync.later()
        if not self._uncommitted:
            return done(decision.response)
        self._waiting.append((self._log.end_offset, lambda error: done(error or decision.response)))
        return None

    def _decide(self, request: Any, version: int, charge: MutationQuota) -> Decision:
        self._controller.kraft_version = self._membership.kraft_version
        decision = self._controller.handle(self._fold.image, request, version, charge)
        if decision.kraft_version is not None:
            own = Voter(self._settings.node_id, self._directory_id)
            self._membership = raised(self._membership, self._settings, decision.kraft_version, own)
            self._append_control(membership_records(self._membership), self._quorum.epoch)
        if decision.records:
            self._step(Submitted(decision.records))
        return decision

    def append(self, records: list[Any]) -> None:
        """Append these records as one batch; they are committed soon. KAFKA_STORAGE_ERROR when the log has failed."""
        self._check_works()
        self._step(Submitted(records))
        self._sync.later()

    def _check_works(self) -> None:
        if self._sync.failure is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the metadata log failed: {self._sync.failure}")

    def run_beside(self, loop: asyncio.AbstractEventLoop, pool: Executor) -> None:
        """From now on the loop runs, and there are threads for syncs and snapshots."""
        self._beside = loop, pool
        self._sync.run_beside(loop, pool)

    def finish(self) -> None:
        """The node stops: commit what was decided, and use its threads no more. OSError when the disk fails."""
        try:
            self._sync.now()
        finally:
            self._beside = None
            self._sync.run_here()

    def deadline_ms(self) -> int | None:
        """When `time_passed` is to be called, by the clock's `monotonic_ms`; None when nothing waits for time."""
        return self._quorum.deadline_ms()

    def time_passed(self) -> None:
        """Do what is due. KafkaError when the log cannot be written."""
        if self._sync.failure is None:
            self._step(TimerExpired())
            self._sync.later()

    def close(self) -> None:
        """Say that this broker stopped cleanly, and give the log's files back. The threads have ended."""
        with suppress(OSError):
            self.finish()
        try:
            broker = self._fold.image.brokers.get(self._settings.node_id)
            if self._sync.failure is None and broker is not None and not broker.fenced:
                self.append(
                    [
                        BrokerRegistrationChangeRecord(
                            broker_id=broker.broker_id, broker_epoch=broker.epoch, fenced=_FENCE
                        )
                    ]
                )
        finally:
            if self._sync.failure is None:
                self._log.close()
            else:
                self._log.discard()

    # ---- start

    def _load(self) -> None:
        settings = self._settings
        log_settings = LogSettings(
            segment_bytes=settings.metadata_log_segment_bytes,
            segment_ms=settings.metadata_log_segment_ms,
            max_message_bytes=_BATCH_BYTES_MAX,
            retention_ms=-1,
            retention_bytes=-1,
        )
        loaded = load(self._files, log_settings, self._clock.now_ms())
        self._log, self._fold, self._membership = loaded.log, loaded.fold, loaded.membership
        self._sync.log = loaded.log
        self._snapshot_end_offset = loaded.snapshot_end_offset
        self._bytes_since_snapshot = loaded.bytes_since_snapshot
        check_servable(loaded.fold.image, settings.node_id, self.supported_features)

    def _lead(self, directory_id: Uuid) -> None:
        """Make the quorum and win its election."""
        settings = self._settings
        self._directory_id = directory_id
        if self._membership.kraft_version:
            me = Voter(settings.node_id, directory_id)
            voters = tuple(node.voter for node in self._membership.voters)
        else:
            # Before KIP-853 the settings name the voters; a log without both begins a quorum of this node.
            me = Voter(settings.node_id)
            voters = tuple(Voter(each.id) for each in settings.controller_quorum_voters or ())
            if not voters and not self._log.end_offset:
                where = f"{self._directory} is formatted for a node that joins a quorum later"
                raise OttlaError(f"{where}, and this one begins its own: format it with --standalone")
            voters = voters or (me,)
        idle_ms = 0
        if settings.source_of("metadata.max.idle.interval.ms") is not SettingSource.DEFAULT:
            # A quorum of one has nobody to tell that it lives: NoOps are for who asks for them.
            idle_ms = settings.metadata_max_idle_interval_ms
        quorum_settings = QuorumSettings(
            snapshot_bytes=settings.metadata_log_max_record_bytes_between_snapshots,
            snapshot_interval_ms=settings.metadata_log_max_snapshot_interval_ms,
            idle_interval_ms=idle_ms,
        )
        self._quorum = Quorum(me, voters, self._files.election(), quorum_settings)
        self._voters = voters
        self._step(Started(self._log.end_offset, self._snapshot_end_offset, self._bytes_since_snapshot))

    def _activate(self) -> None:
        records = activation_records(
            self._fold.image,
            in_transaction=self._fold.transaction_offset >= 0,
            bootstrap=[] if self._fold.image.metadata_version else self._files.bootstrap_records(),
            min_isr=self._settings.min_insync_replicas,
        )
        if records:
            self._step(Submitted(records))

    def _join(self, directory_ids: list[Uuid], addresses: list[BrokerAddress]) -> None:
        """Register this controller and this broker, and let the broker serve."""
        settings, rng = self._settings, self._rng
        if self._fold.image.metadata_version >= CONTROLLER_REGISTRATIONS_FROM:
            self._step(Submitted(register_controller(registration.controller_request(settings, rng)).records))
        before = self._fold.image.brokers.get(settings.node_id)
        request = registration.broker_request(settings, rng, self._cluster_id, directory_ids, addresses)
        registered = register_broker(self._fold.image, self._cluster_id, request, self._log.end_offset)
        self._step(Submitted(registered.records))
        # A broker that stops says so in its last record; one that did not may have lost what it had not synced.
        crashed = before is not None and not before.fenced
        self._step(Submitted(unfence(self._fold.image, settings.node_id, crashed=crashed)))
        self._sync.now()

    # ---- the quorum's effects

    def _step(self, event: Event) -> None:
        """Tell the quorum, and do what it wants but for syncs, which `_sync` does once for all."""
        effects = self._quorum.step(event, self._clock.monotonic_ms())
        for index, effect in enumerate(effects):
            # Of two elections in a row only the second needs to be on the disk: nothing left the node in between.
            if isinstance(effect, SaveElection) and any(
                isinstance(each, SaveElection) for each in effects[index + 1 :]
            ):
                continue
            self._carry_out(effect)

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case SaveElection():
                self._files.save_election(effect.election, self._membership.kraft_version, self._voters)
            case AppendLeaderChange():
                self._append_leader_change(effect)
            case AppendEntries():
                self._append(effect.records, effect.epoch)
            case AppendNoOp():
                self._append([NoOpRecord()], effect.epoch)
            case Sync():
                self._sync.want()
            case Commit():
                self._commit(effect.high_watermark)
            case WriteSnapshot():
                self._write_snapshot(effect.end_offset)
            case CleanLog():
                self._clean()

    def _synced(self, end_offset: int) -> None:
        """The log is durable up to here, which commits it."""
        self._step(Synced(end_offset))
        while self._waiting and self._waiting[0][0] <= end_offset:
            self._waiting.popleft()[1](None)

    def _failed(self, error: OSError) -> None:
        self.on_failure(error)
        waiting, self._waiting = self._waiting, deque()
        for _, done in waiting:
            done(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the metadata log failed: {error}"))

    def _append_leader_change(self, effect: AppendLeaderChange) -> None:
        records = [leader_change_record(effect.leader_id, effect.voters, effect.granting)]
        mine = with_own_address(self._membership, self._settings)
        if mine != self._membership or not self._log.end_offset:
            records += membership_records(mine)
            self._membership = mine
        self._append_control(records, effect.epoch)

    def _append_control(self, records: list[tuple[ControlRecordType, bytes]], epoch: int) -> None:
        now_ms = self._clock.now_ms()
        data = control_batch(records, epoch=epoch, now_ms=now_ms)
        self._log.append(data, leader_epoch=epoch, now_ms=now_ms, origin=Origin.COORDINATOR)
        self._fold.publish(self._log.end_offset - 1, epoch, now_ms)
        self._appended(len(data))

    def _append(self, records: Sequence[Any], epoch: int) -> None:
        now_ms = self._clock.now_ms()
        level = self._fold.image.metadata_version
        values = [pack(record, record_version(record, level)) for record in records]
        data = record_batch(values, epoch=epoch, now_ms=now_ms)
        try:
            appended = self._log.append(data, leader_epoch=epoch, now_ms=now_ms, origin=Origin.COORDINATOR)
        except OSError as error:
            # Nothing has changed yet, in the log or in memory: with room on the disk the next one may pass.
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the metadata log cannot be written: {error}") from error
        for offset, record in enumerate(records, appended.base_offset):
            self._fold.replay(record, offset, epoch, now_ms)
        self._fold.publish(appended.last_offset, epoch, now_ms)
        self._appended(len(data))

    def _appended(self, size: int) -> None:
        self._uncommitted.append((self._log.end_offset, self._fold.image))
        self._step(EntriesAppended(self._log.end_offset, size))

    def _commit(self, high_watermark: int) -> None:
        # Batch by batch: an image knows what has changed since the one right before it.
        while self._uncommitted and self._uncommitted[0][0] <= high_watermark:
            old, new = self._image, self._uncommitted.popleft()[1]
            self._image = new
            for subscriber in self._subscribers:
                subscriber(old, new)

    def _write_snapshot(self, end_offset: int) -> None:
        image = self._image
        # Every metadata transaction is within one batch, so none is open between commits.
        assert image.offset == end_offset - 1
        write = partial(self._files.write_image, image, self._membership, self._clock.now_ms())
        if self._beside is None:
            write()
            return self._step(SnapshotWritten(end_offset))
        # Of 10,000 partitions it takes 50 ms, and a sync.
        loop, pool = self._beside
        pool.submit(write).add_done_callback(
            lambda finished: loop.call_soon_threadsafe(self._snapshot_ended, end_offset, finished)
        )
        return None

    def _clean(self) -> None:
        """Drop what is past its retention; what cannot be dropped now goes with the next snapshot."""
        settings = self._settings
        bytes_max, age_ms_max = settings.metadata_max_retention_bytes, settings.metadata_max_retention_ms
        try:
            self._files.clean(self._log, self._clock.now_ms(), bytes_max=bytes_max, age_ms_max=age_ms_max)
        except (OSError, OttlaError):
            _log.exception("old metadata cannot be removed; it is tried again after the next snapshot")

    def _snapshot_ended(self, end_offset: int, finished: Future[None]) -> None:
        error = finished.exception()
        if error is not None:
            _log.error("a snapshot of the metadata cannot be written; it is tried again later", exc_info=error)
        if not self._log.closed:
            self._step(SnapshotWritten(end_offset) if error is None else SnapshotFailed())
