"""The driver of this node's quorum machine: feeds events to `ottla.raft` and carries out its effects.

It owns the metadata log, its snapshots and `quorum-state`, and keeps `Images` at the end of the log.

Rules:
- Records are flushed before they count. Several appends may share one flush: append first, then call `sync`.
- This driver opens `__cluster_metadata-0`; the log store skips it.
- After a failed flush it is unknown what is durable: every change is refused until a restart reads the log again.

It runs on the node's loop, its flushes on a thread (docs/decisions/0230).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any

from ottla.broker.metadata.durability import MetadataSync
from ottla.broker.metadata.file import MetadataFiles
from ottla.broker.metadata.followed_log import FollowedLog, ReadSnapshot
from ottla.broker.metadata.images import Images, raise_error
from ottla.broker.metadata.loader import check_servable, load
from ottla.broker.metadata.log_view import MetadataLogView
from ottla.broker.metadata.quorum_settings import quorum_settings_of
from ottla.broker.metadata.raft_network import Dial, RaftNetwork
from ottla.broker.metadata.voters import asks_others, first_voters
from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.kernel.ids import Uuid
from ottla.kernel.ports import Clock, Disk, Rng
from ottla.log.durability import HARMLESS_ERRORS
from ottla.log.log import Log, LogSettings, Origin
from ottla.metadata.feature import supported
from ottla.metadata.record_version import record_version
from ottla.raft.checkpoint import (
    Membership,
    SnapshotId,
    VoterNode,
    control_batch,
    record_batch,
)
from ottla.raft.effect import (
    Answer,
    AnswerFetch,
    AnswerSnapshot,
    AppendControl,
    AppendEntries,
    AppendNoOp,
    AppendReplicated,
    CleanLog,
    Commit,
    Effect,
    InstallSnapshot,
    LeaderChanged,
    SaveElection,
    Send,
    Sync,
    TruncateLog,
    Warn,
    WriteSnapshot,
    WriteSnapshotPiece,
)
from ottla.raft.event import (
    AppendFailed,
    EntriesAppended,
    Event,
    SnapshotFailed,
    SnapshotInstalled,
    SnapshotWritten,
    Started,
    Submitted,
    Synced,
)
from ottla.raft.quorum import Quorum
from ottla.raft.role import QuorumRole, Voter
from ottla.raft.voters import VoterHistory, changes_in, find_voter
from ottla.settings.server.settings import ServerSettings
from ottla.wire.record.control import ControlRecordType
from ottla.wire.record.metadata import NoOpRecord, pack

_log = logging.getLogger("ottla.broker")
#: Kafka's largest batch of metadata (KafkaRaftClient.MAX_BATCH_SIZE_BYTES), and room for its header.
_BATCH_BYTES_MAX = 8 * 1024 * 1024 + 4096


class RaftDriver:
    """Runs the quorum's machine. `MetadataLog` creates it, and ends it with `close`."""

    def __init__(
        self,
        disk: Disk,
        settings: ServerSettings,
        clock: Clock,
        rng: Rng,
        cluster_id: str,
        directory: str,
        directory_id: Uuid,
        dial: Dial,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._rng = rng
        self._cluster_id = cluster_id
        #: The log directory of the metadata log, and its id.
        self.directory, self.directory_id = directory, directory_id
        self.files = MetadataFiles(disk, directory)
        self.images = Images()
        self.sync = MetadataSync(clock.now_ms, self._synced, self._failed)
        self._beside: tuple[asyncio.AbstractEventLoop, Executor] | None = None
        #: Called once when a flush fails; the node stops.
        self.on_failure: Callable[[OSError], None] = lambda _: None
        #: Called after each commit, with the new high watermark.
        self.on_commit: Callable[[int], None] = lambda _: None
        #: Called when the known leader changes.
        self.on_leader: Callable[[], None] = lambda: None
        #: Called when the machine's role or deadline may have changed.
        self.on_stepped: Callable[[], None] = lambda: None
        self.network = RaftNetwork(dial, self.receive)
        self.quorum: Quorum
        self.log: Log
        #: The voters by offset; the machine's own history.
        self._voters: VoterHistory
        self._started: Started

    # ---- lifecycle

    def load(self) -> None:
        """Read the snapshot and the log. OttlaError with a message for the user if they are damaged."""
        settings = self._settings
        log_settings = LogSettings(
            segment_bytes=max(settings.metadata_log_segment_bytes, _BATCH_BYTES_MAX),
            segment_ms=settings.metadata_log_segment_ms,
            max_message_bytes=_BATCH_BYTES_MAX,
            retention_ms=-1,
            retention_bytes=-1,
        )
        self._voters = VoterHistory(first_voters(settings, self.files.election()))
        loaded = load(self.files, log_settings, self._clock.now_ms(), self._voters)
        self.log = self.sync.log = loaded.log
        self.images.load(loaded)
        self._followed = FollowedLog(self.log, self.files, self.images, self.sync, self._clock)
        self._started = Started(loaded.log.end_offset, loaded.snapshot_end_offset, loaded.read.size)
        check_servable(self.images.appended, supported(unstable=settings.unstable_feature_versions_enable))

    def start(self) -> None:
        """Create the quorum's machine and start it; a quorum of this node alone elects it."""
        settings = self._settings
        me = Voter(settings.node_id, self.directory_id)
        if settings.is_controller:
            self._check_voter(me)
        view = MetadataLogView(self.log, self.files)
        quorum_settings = quorum_settings_of(settings, self._cluster_id)
        self.quorum = Quorum(me, self._voters, self.files.election(), quorum_settings, view, self._rng)
        self.step(self._started)

    def _check_voter(self, me: Voter) -> None:
        """Check that a controller is a voter of its quorum, or can follow one."""
        voters = self.membership.voters
        if find_voter(self.membership, me) is not None:
            return
        if not voters and not asks_others(self._settings):
            where = f"{self.directory} is formatted for a node that joins a quorum later"
            raise OttlaError(
                f"{where}, and controller.quorum.bootstrap.servers names no other controller: name one, or format it "
                "with --standalone"
            )
        if voters and {node.voter.node_id for node in voters} <= {me.node_id}:
            # Otherwise it follows the other voters until it is added.
            raise OttlaError(f"node {me.node_id} is not a voter: the quorum has this node id with another directory id")

    def start_threads(self, loop: asyncio.AbstractEventLoop, pool: Executor) -> None:
        """From now on the loop runs, and a thread pool is available for flushes and snapshots."""
        self._beside = loop, pool
        self.images.on_error = lambda error: loop.call_soon(raise_error, error)
        self.sync.start_threads(loop, pool)

    def finish(self) -> None:
        """Before the node stops, commit what was decided and stop using its threads. OSError if the disk fails."""
        try:
            self.sync.now()
        finally:
            self._beside = None
            self.sync.stop_threads()

    def close(self) -> None:
        """Close the log and the connections. The threads have ended. OSError if the disk takes no index files."""
        self.network.close()
        if self.sync.failure is not None:
            return self.log.discard()
        try:
            self.log.close()
        except OSError:
            self.log.discard()
            raise
        return None

    # ---- access

    @property
    def membership(self) -> Membership:
        """The voters according to the last record about them."""
        return self._voters.last

    @property
    def voters(self) -> tuple[VoterNode, ...]:
        """The voters with their addresses: from the log, or with kraft.version 0 from the settings (KIP-595)."""
        return self.membership.voters

    def check_works(self) -> None:
        """Raise KAFKA_STORAGE_ERROR if the log has failed."""
        if self.sync.failure is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the metadata log failed: {self.sync.failure}")

    def submit(self, records: Sequence[Any]) -> None:
        """Append these records as one batch. KAFKA_STORAGE_ERROR if the log cannot be written."""
        self.step(Submitted(records))

    def receive(self, event: Event) -> None:
        """Pass an event from the network to the machine, and flush what it appends."""
        if self.sync.failure is None:
            try:
                self.step(event)
            except KafkaError as error:
                # The client that asked for the change has its answer.
                _log.error("cannot change the voters: %s", error)
            self.sync.later()

    # ---- the quorum's effects

    def step(self, event: Event) -> None:
        """Pass an event to the machine and carry out its effects; flushes are left to `sync`, one for several steps.

        KAFKA_STORAGE_ERROR if there is no room for records; all other effects are carried out nevertheless.
        """
        refused: KafkaError | None = None
        effects = self.quorum.step(event, self._clock.monotonic_ms())
        for index, effect in enumerate(effects):
            # Only the last of several elections in a step must be saved: nothing has left the node in between.
            if isinstance(effect, SaveElection) and any(
                isinstance(each, SaveElection) for each in effects[index + 1 :]
            ):
                continue
            try:
                self._carry_out(effect)
            except KafkaError as error:
                refused = error
            except Exception as error:
                if isinstance(effect, Send | Answer | AnswerFetch | AnswerSnapshot):
                    # A reply that cannot be read or sent changes no state here, so it must not stop the node, nor keep
                    # the effects after it from being carried out.
                    _log.exception("cannot send a message of the quorum")
                    continue
                if not isinstance(error, OSError):
                    raise
                # A vote or an epoch of the machine may not be on disk, so its further messages could be wrong.
                self.sync.fail(error)
            if self.sync.failure is not None:
                return
        self._report(self.on_stepped)
        if refused is not None:
            raise refused

    def _report(self, hook: Callable[..., None], *args: int) -> None:
        """Call a hook; its exception must not keep the rest of a step from being carried out."""
        try:
            hook(*args)
        except Exception as error:
            self.images.on_error(error)

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case SaveElection():
                membership = self.membership
                voters = tuple(node.voter for node in membership.voters)
                self.files.save_election(effect.election, membership.kraft_version, voters)
            case AppendControl():
                self._append_control(effect.records, effect.epoch)
            case AppendEntries():
                self._append_decided(effect.records, effect.epoch)
            case AppendNoOp():
                self._append_decided([NoOpRecord()], effect.epoch)
            case Sync():
                self.sync.want()
            case Commit():
                self.log.high_watermark = effect.high_watermark
                self.images.commit(effect.high_watermark)
                self._report(self.on_commit, effect.high_watermark)
            case WriteSnapshot():
                self._write_snapshot(effect.end_offset)
            case CleanLog():
                self._clean()
            case LeaderChanged():
                self._report(self.on_leader)
            case Warn():
                _log.warning("%s", effect.text)
            case Send():
                self.network.send(effect)
            case Answer():
                self.network.answer(effect.ticket, effect.response)
            case AnswerFetch():
                self.network.answer(effect.ticket, self._followed.fetched(effect))
            case AnswerSnapshot():
                self.network.answer(effect.ticket, self._followed.snapshot_fetched(effect))
            case WriteSnapshotPiece():
                event = self._followed.write_piece(effect)
                if event is not None:
                    self.step(event)
            case AppendReplicated():
                self._follow(partial(self._followed.append, effect))
            case TruncateLog():
                self._follow(partial(self._followed.truncate, effect))
            case InstallSnapshot():
                if self.quorum.is_applying:
                    # Otherwise its last piece had no room.
                    self._install(effect.snapshot)

    def _follow(self, change: Callable[[], Event]) -> None:
        """Change the log on behalf of its leader."""
        try:
            event = change()
        except (OttlaError, ValueError, OSError) as error:
            # A record that this release does not know, or a disk with unknown content.
            self.sync.fail(error if isinstance(error, OSError) else OSError(str(error)))
            return
        self.step(event)
        if isinstance(event, SnapshotInstalled):
            self._report(self.on_commit, event.snapshot.end_offset)

    def _install(self, snapshot: SnapshotId) -> None:
        """Read a fetched snapshot on a thread, then restart the log behind it."""
        # A leader sends it over the network, so the loop runs.
        assert self._beside is not None
        role, (loop, pool) = self.quorum.role, self._beside
        pool.submit(partial(self._followed.read, snapshot)).add_done_callback(
            lambda finished: loop.call_soon_threadsafe(self._snapshot_read, snapshot, role, finished)
        )

    def _snapshot_read(self, snapshot: SnapshotId, role: QuorumRole, finished: Future[ReadSnapshot]) -> None:
        # A role that came in the meantime follows another leader, or none, and may have changed the log.
        if self.quorum.role is role and self.sync.failure is None and not self.log.closed:
            self._follow(partial(self._followed.install, snapshot, finished.result))
            self.sync.later()

    def _synced(self, end_offset: int) -> None:
        self.step(Synced(end_offset))

    def _failed(self, error: OSError) -> None:
        self.on_failure(error)

    def _append_control(self, records: Sequence[tuple[ControlRecordType, bytes]], epoch: int) -> None:
        now_ms = self._clock.now_ms()
        data = control_batch(records, base_offset=self.log.end_offset, epoch=epoch, now_ms=now_ms)
        try:
            appended = self.log.append(data, leader_epoch=epoch, now_ms=now_ms, origin=Origin.COORDINATOR)
        except OSError as error:
            if error.errno not in HARMLESS_ERRORS or records[0][0] is ControlRecordType.LEADER_CHANGE:
                # An epoch must begin with its leader's record: another voter may lead.
                raise
            self.step(AppendFailed())
            raise _refusal(error) from error
        self.images.append((), appended.base_offset, epoch, now_ms)
        self.step(EntriesAppended(self.log.end_offset, len(data), changes_in(data)))

    def _append_decided(self, records: Sequence[Any], epoch: int) -> None:
        """Append a controller's decision, and report a failure to the caller that asked for it."""
        try:
            self._append(records, epoch)
        except OSError as error:
            # Nothing has changed yet, in the log or in memory; once the disk has room, the next append may succeed.
            raise _refusal(error) from error

    def _append(self, records: Sequence[Any], epoch: int) -> None:
        now_ms = self._clock.now_ms()
        level = self.images.appended.metadata_version
        values = [pack(record, record_version(record, level)) for record in records]
        data = record_batch(values, epoch=epoch, now_ms=now_ms)
        appended = self.log.append(data, leader_epoch=epoch, now_ms=now_ms, origin=Origin.COORDINATOR)
        self.images.append(records, appended.base_offset, epoch, now_ms)
        self.step(EntriesAppended(self.log.end_offset, len(data)))

    # ---- snapshots

    def _write_snapshot(self, end_offset: int) -> None:
        image = self.images.committed
        if image.offset != end_offset - 1:
            # A metadata transaction is open; the machine asks again later.
            return self.step(SnapshotFailed())
        write = partial(self.files.write_image, image, self._voters.at(end_offset), self._clock.now_ms())
        if self._beside is None:
            write()
            return self.step(SnapshotWritten(end_offset))
        # With 10,000 partitions this takes 50 ms, and a flush.
        loop, pool = self._beside
        pool.submit(write).add_done_callback(
            lambda finished: loop.call_soon_threadsafe(self._snapshot_ended, end_offset, finished)
        )
        return None

    def _clean(self) -> None:
        """Delete snapshots past their retention; after a failure they go with the next snapshot."""
        settings = self._settings
        bytes_max, age_ms_max = settings.metadata_max_retention_bytes, settings.metadata_max_retention_ms
        try:
            self.files.clean(self.log, self._clock.now_ms(), bytes_max=bytes_max, age_ms_max=age_ms_max)
        except (OSError, OttlaError):
            _log.exception("cannot remove old metadata; will retry after the next snapshot")

    def _snapshot_ended(self, end_offset: int, finished: Future[None]) -> None:
        error = finished.exception()
        if error is not None:
            _log.error("cannot write a metadata snapshot; will retry later", exc_info=error)
        if not self.log.closed:
            self.step(SnapshotWritten(end_offset) if error is None else SnapshotFailed())


def _refusal(error: OSError) -> KafkaError:
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the metadata log cannot be written: {error}")
