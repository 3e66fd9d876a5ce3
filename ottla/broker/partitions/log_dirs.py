"""Log directories: moves between them, reports to the controller, and disks that fail.

Rules:
- A move fills a log in the other directory like a follower's, one piece per turn of the loop, while the partition stays
  in service. The last piece is copied, flushed and swapped in within one turn.
- The controller knows of a move before the logs are swapped, so that no start takes the old place, empty, for the log's
  while the disk of the new one is away (docs/decisions/0792).
- All moves of a node together respect `replica.alter.log.dirs.io.max.bytes.per.second`; a change of it takes effect
  within a second.
- A directory whose disk fails is not used until the next start. Its partitions are offline (KAFKA_STORAGE_ERROR); all
  others go on. Without the metadata log's directory, or without any other, the node stops.
- A full disk or a lack of file descriptors is no directory failure (docs/decisions/0142).

KIPs: 113 moves, 858 directories in the metadata, 1066 cordoned directories.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from ottla.broker.metadata.topic_view import TopicStep
from ottla.controller.directory import directories_left
from ottla.controller.placement import directory_of
from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.kernel.ids import NO_UUID, TopicPartition, Uuid, parse_uuid, uuid_text
from ottla.kernel.lazy import LazyModule
from ottla.log.durability import HARMLESS_ERRORS
from ottla.log.log import Log
from ottla.metadata.feature import CORDONED_DIRECTORIES_FROM, DIRECTORIES_FROM
from ottla.metadata.image import Image
from ottla.replica.hosted import HostedReplica

if TYPE_CHECKING:
    from ottla.broker.controllers.broker_life import BrokerLife
    from ottla.broker.controllers.controllers import Controllers
    from ottla.broker.limits.throttles import Throttles
    from ottla.broker.metadata.metadata_log import MetadataLog
    from ottla.broker.partitions import copy_flush, copy_piece, preferred_directories
    from ottla.broker.partitions.flush import Flusher
    from ottla.broker.partitions.leadership import Leadership
    from ottla.broker.runtime import Runtime
    from ottla.log.directory.store import Store
    from ottla.wire.api import assign_replicas_to_dirs as assign
else:
    copy_flush = LazyModule("ottla.broker.partitions.copy_flush")
    copy_piece = LazyModule("ottla.broker.partitions.copy_piece")
    preferred_directories = LazyModule("ottla.broker.partitions.preferred_directories")
    assign = LazyModule("ottla.wire.api.assign_replicas_to_dirs")

_log = logging.getLogger("ottla.broker")
_PIECE_BYTES = 1 << 20
_RETRY_SECONDS = 1.0
_NAME_MAX = 255
#: Length of the suffix of a future log: `.`, a unique id of 32 hexadecimal digits and `-future`.
_FUTURE_SUFFIX_LENGTH = 40


class LogDirs:
    """A node's log directories. The node creates it."""

    def __init__(
        self,
        runtime: Runtime,
        store: Store,
        quorum: MetadataLog,
        controllers: Controllers,
        life: BrokerLife,
        flusher: Flusher,
        throttles: Throttles,
        leadership: Callable[[], Leadership],
    ) -> None:
        self._runtime = runtime
        self._store = store
        self._quorum = quorum
        self._controllers = controllers
        self._life = life
        self._flusher = flusher
        self._throttle = throttles.directories
        #: Leadership uses this object, too: it asks where logs may lie, and loses the partitions of a failed directory.
        self._leadership = leadership
        #: Partitions whose directory the controller may not know: newly led, moved, or changed in the metadata.
        self._unassigned: dict[TopicPartition, None] = {}
        #: The cordoned directories as last reported by a heartbeat; None before the first report.
        self._cordons: set[Uuid] | None = None
        self._flushed: dict[TopicPartition, copy_flush.CopyFlush] = {}
        #: The moves that are complete but for the swap -> whether the swap waits for the controller's word.
        self._announced: dict[TopicPartition, bool] = {}
        #: The failed directories of logs that were lost with them.
        self._lost: dict[TopicPartition, Uuid] = {}

    # ---- locations of logs

    @cached_property
    def _preferred(self) -> preferred_directories.PreferredDirectories:
        return preferred_directories.PreferredDirectories()

    def preferred(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, str]:
        """Partition -> directory, as AlterReplicaLogDirs requested before the partition existed."""
        return self._preferred.take(partitions, self._store.directories)

    def cordoned(self) -> list[str]:
        """The directories that get no new partitions (`cordoned.log.dirs`, KIP-1066)."""
        named = [path.rstrip("/") or "/" for path in self._runtime.settings.cordoned_log_dirs or ()]
        return self._store.directories if "*" in named else named

    def online_ids(self) -> list[Uuid]:
        """The ids of the working directories."""
        return [self._id_of(directory) for directory in self._store.directories]

    def named(self, tp: TopicPartition) -> str | None:
        """The id (text) of the partition's directory according to the metadata, or None if it names none."""
        topic = self._runtime.image.topics.get(tp.topic)
        if topic is None or tp.partition >= len(topic.partitions):
            return None
        directory = directory_of(topic.partitions[tp.partition], self._runtime.node_id)
        return None if directory is None else uuid_text(directory)

    def topic_id_of(self, topic: str) -> Uuid:
        """The id of a topic according to the metadata, or NO_UUID if there is none of this name."""
        known = self._runtime.image.topics.get(topic)
        return NO_UUID if known is None else known.topic_id

    def cordon_later(self) -> None:
        """Report the cordoned directories to the controller at the end of this turn of the loop."""
        self._runtime.loop.call_soon(self.cordon)

    def cordon(self) -> None:
        """Report the cordoned directories to the controller, unless it knows them."""
        runtime = self._runtime
        if runtime.closed:
            return
        named = self.cordoned()
        ids = [self._id_of(directory) for directory in self._store.directories if directory in named]
        broker = runtime.image.brokers.get(runtime.node_id)
        if broker is None or runtime.image.metadata_version < CORDONED_DIRECTORIES_FROM:
            return
        # The last report may not be in the metadata yet.
        known = set(broker.cordoned_log_dirs or ()) if self._cordons is None else self._cordons
        if set(ids) != known:
            self._cordons = set(ids)
            self._life.cordoned(ids)

    def follow(self, old: Image, new: Image, step: TopicStep) -> None:
        """Apply a metadata change, which may affect the directories it records."""
        newly = old.metadata_version < DIRECTORIES_FROM <= new.metadata_version
        if old.metadata_version < CORDONED_DIRECTORIES_FROM <= new.metadata_version:
            self.cordon_later()
        broker = new.brokers.get(self._runtime.node_id)
        if newly and broker is not None and not broker.log_dirs and broker.epoch == self._life.epoch:
            self._life.register_again()
        for name in new.topics if newly else step.changed:
            for index in range(len(new.topics[name].partitions)):
                self.assign_later(TopicPartition(name, index))

    def assign_later(self, tp: TopicPartition) -> None:
        """Report a partition's directory to the controller at the end of this turn of the loop."""
        if len(self._runtime.settings.log_dirs) > 1:
            if not self._unassigned:
                self._runtime.loop.call_soon(self._assign)
            self._unassigned[tp] = None

    def _assign(self) -> None:
        unassigned, self._unassigned = self._unassigned, {}
        if self._runtime.closed:
            # The last decisions of a node's own controller are committed as it stops.
            return
        store = self._store
        self._report_places(unassigned)
        for tp in unassigned:
            move = store.future(tp)
            if move is not None and self._announced.get(tp):
                self._announced[tp] = False
                self._copy(tp, move[0])

    def _report_places(self, partitions: Iterable[TopicPartition]) -> None:
        places = {tp: self._place_of(tp) for tp in partitions}
        self._report_directories({tp: place for tp, place in places.items() if place is not None})

    def _place_of(self, tp: TopicPartition) -> Uuid | None:
        """The directory of a log, or the one that it is about to be swapped into; None without a log.

        A log that was lost with its directory is there: a move that the controller was told of may say otherwise.
        """
        if self._store.get(tp) is None:
            return self._lost.get(tp) if tp in self._leadership().offline else None
        move = self._store.future(tp)
        if move is not None and tp in self._announced:
            return self._id_of(move[1])
        return self._id_of(self._store.directory_of(tp))

    def _report_directories(self, places: Mapping[TopicPartition, Uuid]) -> None:
        """Report the directories of those partitions for which the metadata names another."""
        image, node_id = self._runtime.image, self._runtime.node_id
        broker = image.brokers.get(node_id)
        if broker is None or image.metadata_version < DIRECTORIES_FROM or self._runtime.closed:
            return
        by_directory: dict[Uuid, dict[Uuid, list[int]]] = {}
        reported: dict[TopicPartition, Uuid] = {}
        for tp, directory in places.items():
            if not image.has(tp):
                # The topic was deleted. One of its name may have fewer partitions.
                continue
            topic = image.topics[tp.topic]
            known = topic.partitions[tp.partition]
            if node_id in known.replicas and directory_of(known, node_id) != directory:
                by_directory.setdefault(directory, {}).setdefault(topic.topic_id, []).append(tp.partition)
                reported[tp] = directory
        if not by_directory:
            return
        directories = [
            assign.RequestDirectoryData(
                id=directory,
                topics=[
                    assign.RequestTopicData(
                        topic_id=topic_id,
                        partitions=[assign.RequestPartitionData(partition_index=index) for index in indexes],
                    )
                    for topic_id, indexes in topics.items()
                ],
            )
            for directory, topics in by_directory.items()
        ]
        request = assign.AssignReplicasToDirsRequest(
            broker_id=node_id, broker_epoch=broker.epoch, directories=directories
        )
        self._controllers.ask(request, partial(self._assigned, reported))

    def _assigned(self, reported: Mapping[TopicPartition, Uuid], response: Any) -> None:
        """Report the refused partitions again later; by then the controller may know this broker or topic."""
        refused = dict(reported)
        if isinstance(response, KafkaError):
            why: object = response
        else:
            codes = {
                (topic.topic_id, partition.partition_index): partition.error_code
                for directory in response.directories
                for topic in directory.topics
                for partition in topic.partitions
            }
            topics = self._runtime.image.topics
            for tp in reported:
                topic = topics.get(tp.topic)
                if topic is None or codes.get((topic.topic_id, tp.partition)) == ErrorCode.NONE:
                    del refused[tp]
            why = ", ".join(sorted({ErrorCode.of(code).name for code in codes.values() if code})) or "no answer"
        if refused and not self._runtime.closed:
            _log.warning("the controller did not accept the directories of %d logs: %s; will retry", len(refused), why)
            self._runtime.loop.call_later(_RETRY_SECONDS, self._report_places, refused)

    def _id_of(self, path: str) -> Uuid:
        return parse_uuid(self._store.directory_id(path))

    # ---- moves

    def resume(self) -> None:
        """Restart the moves that the last run did not finish, also into a directory that was cordoned since."""
        for tp, path in [*self._store.unfinished_moves.items()]:
            # The start may have met with a failure of the directory.
            if path in self._store.failed_directories or self._move(tp, path) is not ErrorCode.NONE:
                _log.warning("the move of %s to %s is dropped", tp, path)
                self._store.drop_unfinished(tp)

    def move(self, tp: TopicPartition, path: str) -> ErrorCode:
        """Move a partition to another directory; NONE when the move has begun or the partition already lies there."""
        store = self._store
        if len(str(tp)) + _FUTURE_SUFFIX_LENGTH > _NAME_MAX:
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        if path in store.failed_directories:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if path not in store.directories:
            return ErrorCode.LOG_DIR_NOT_FOUND
        if path in self.cordoned():
            return ErrorCode.INVALID_REPLICA_ASSIGNMENT
        return self._move(tp, path)

    def _move(self, tp: TopicPartition, path: str) -> ErrorCode:
        runtime, store = self._runtime, self._store
        replica = self._leadership().hosted.get(tp)
        future = store.future(tp)
        if future is not None and future[1] != path:
            self._cancel(tp)
            future = None
        if replica is None:
            try:
                self._leadership().find(tp.topic, tp.partition)
            except KafkaError as error:
                if error.code is not ErrorCode.KAFKA_STORAGE_ERROR:
                    self._preferred.prefer(tp, path)
                return error.code
        if future is None and store.directory_of(tp) != path:
            # A move before has left these, however it ended.
            self._flushed.pop(tp, None)
            self._announced.pop(tp, None)
            try:
                log = store.begin_move(tp, path, runtime.clock.now_ms())
            except OSError as error:
                self.suspect(path, error)
                return ErrorCode.KAFKA_STORAGE_ERROR
            runtime.loop.call_soon(self._copy, tp, log)
        return ErrorCode.NONE

    def _copy(self, tp: TopicPartition, future: Log, failure: BaseException | None = None) -> None:
        """Copy the next piece, or swap the logs; `failure` is that of the thread which prepared the swap."""
        runtime, store = self._runtime, self._store
        move, replica = store.future(tp), self._leadership().hosted.get(tp)
        if runtime.closed or move is None or move[0] is not future:
            return
        if replica is None:
            _log.warning("the move of %s to %s is dropped: this node no longer has a replica", tp, move[1])
            self._cancel(tp)
            return
        source = replica.log
        again = partial(self._copy, tp, future)
        wait_ms = self._throttle.wait_ms(runtime.clock.monotonic_ms())
        if wait_ms:
            runtime.loop.call_later(min(wait_ms / 1000, _RETRY_SECONDS), again)
            return
        try:
            if failure is not None:
                raise failure
            self._copy_piece(replica, future)
            if future.end_offset < source.end_offset:
                runtime.loop.call_soon(again)
            elif source.being_cleaned:
                # The swaps of a running cleaner use the old log's files.
                runtime.loop.call_later(_RETRY_SECONDS, again)
            elif (self._flushed.get(tp) or copy_flush.CopyFlush()).is_far(future.size):
                self._flush_beside(tp, future)
            elif (task := store.forgetting_task(tp)) or self._is_known(tp, move[1]):
                task = task or store.arrival_task(tp)
                if task is None:
                    return self._swap(tp, replica)
                runtime.pool.submit(task).add_done_callback(
                    lambda ended: runtime.loop.call_soon_threadsafe(again, ended.exception())
                )
            elif tp in self._announced:
                # The next change of the topic's metadata goes on.
                self._announced[tp] = True
            else:
                runtime.loop.call_later(_RETRY_SECONDS, again)
        except OSError as error:
            self._copy_failed(tp, future, error)
        except KafkaError as error:
            _log.error("cannot move %s: %s", tp, error)
            self._cancel(tp)
        except Exception:
            _log.exception("cannot move %s; the move is dropped", tp)
            self._cancel(tp)

    def _flush_beside(self, tp: TopicPartition, future: Log) -> None:
        clock, flushed = self._runtime.clock, self._flushed.setdefault(tp, copy_flush.CopyFlush())

        def done() -> None:
            flushed.end(clock.monotonic_ms())
            self._copy(tp, future)

        flushed.begin(future.size, clock.monotonic_ms())
        if flushed.is_late:
            _log.warning("%s grows faster than its copy is flushed: it moves when it grows more slowly", tp)
        self._flusher.flush([future], done)

    def _cancel(self, tp: TopicPartition) -> None:
        """Cancel a move; a controller that knows of it hears again where the log lies."""
        is_told = self._announced.pop(tp, None) is not None
        self._store.cancel_move(tp, is_told=is_told)
        if is_told:
            self.assign_later(tp)

    def _is_known(self, tp: TopicPartition, path: str) -> bool:
        """Whether the controller knows that a log is about to be in this directory. If not, it is told."""
        runtime = self._runtime
        if runtime.image.metadata_version < DIRECTORIES_FROM or self.named(tp) == self._store.directory_id(path):
            return True
        if tp not in self._announced and runtime.node_id in runtime.image.brokers:
            self._store.keep_copy(tp, partial(self._copy_stays_marked, path))
            self._announced[tp] = False
            self._report_directories({tp: self._id_of(path)})
        return False

    def _copy_stays_marked(self, path: str, error: OSError) -> None:
        """Take the directory of a copy offline, in a turn of its own: the copy's log is about to change."""
        self._runtime.loop.call_soon(self.failed, path, error)

    def _swap(self, tp: TopicPartition, replica: HostedReplica) -> None:
        """Use the copy from now on, also if the old log cannot be removed."""
        store, old, old_path = self._store, replica.log, self._store.directory_of(tp)
        failure: OSError | None = None
        try:
            store.finish_move(tp, self._runtime.clock.now_ms())
        except OSError as error:
            failure = error
            if store.get(tp) is old:
                raise
        log = store.get(tp)
        assert log is not None
        replica.replace_log(log)
        _log.info("%s has moved to %s", tp, store.directory_of(tp))
        self.assign_later(tp)
        if failure is not None:
            _log.error("the old log of %s cannot be removed: %s", tp, failure)
            self.suspect(old_path, failure)

    def _copy_piece(self, replica: HostedReplica, future: Log) -> None:
        """Copy up to `_PIECE_BYTES` from the end of the future log."""
        source, clock = replica.log, self._runtime.clock
        if copy_piece.begin_again(source, future, clock.now_ms()):
            self._flushed.pop(replica.tp, None)
        bytes_max = min(_PIECE_BYTES, self._throttle.bytes_max)
        copied = copy_piece.copy(source, future, replica.leader_epoch, bytes_max, clock.now_ms())
        self._throttle.record(copied, clock.monotonic_ms())

    def _copy_failed(self, tp: TopicPartition, future: Log, error: OSError) -> None:
        _log.error("cannot move %s: %s", tp, error)
        if error.errno in HARMLESS_ERRORS:
            self._cancel(tp)
            return
        # The error's path shows which of the two directories failed; without a path assume the one being written.
        name = error.filename if isinstance(error.filename, str) else ""
        named = [directory for directory in self._store.directories if name.startswith(directory + "/")]
        self.failed(named[0] if named else _parent(future.path), error)

    # ---- failed disks

    def check(self, log: Log, error: OSError) -> None:
        """After a failed use of this log, check whether its directory has failed."""
        if not log.closed:
            self.suspect(_parent(log.path), error)

    @contextmanager
    def guarding(self, log: Log) -> Iterator[None]:
        """Turn an OSError from this log into KAFKA_STORAGE_ERROR, and check whether its directory has failed."""
        try:
            yield
        except OSError as error:
            self.check(log, error)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log cannot be used: {error}") from error

    def suspect(self, path: str, error: OSError) -> None:
        """After a failed use of this directory, take it offline unless the error is harmless."""
        if error.errno not in HARMLESS_ERRORS:
            self.failed(path, error)

    def sync_failed(self, log: Log, error: OSError) -> None:
        """Take the directory of this log offline: after a failed fsync its content on disk is unknown (fsyncgate)."""
        self.failed(_parent(log.path), error)

    def failed(self, path: str, error: OSError) -> None:
        """Take a directory offline."""
        store = self._store
        if path not in store.directories:
            return
        if path == self._quorum.directory:
            # A failed fsync is reported once: those of the stop may succeed without writing what was lost.
            store.distrust(path, error)
            self._runtime.on_failure(f"the log directory {path}, which holds the metadata log, has failed: {error}")
            return
        _log.critical("the log directory %s has failed; its partitions are offline: %s", path, error)
        directory, lost = self._id_of(path), store.fail(path, error)
        self._lost.update(dict.fromkeys(lost, directory))
        if not store.directories:
            self._runtime.on_failure(f"all log directories have failed, the last one {path}: {error}")
            return
        self._leadership().take_offline(lost)
        # The controller cannot tell that a partition is offline unless it knows the partition's directory.
        ended = [tp for tp in self._announced if store.future(tp) is None]
        for tp in ended:
            # Its move ended with the directory. The log itself goes on, where the controller does not look for it.
            del self._announced[tp]
        self._report_places([*lost, *ended])
        self._life.directory_failed(directory)

    def report_failed_directories(self) -> None:
        """At the start, move leadership away from the partitions in failed directories.

        Another node's controller does so on registration, which names the working directories.
        """
        quorum, node_id = self._quorum, self._runtime.node_id
        for path, error in self._store.failed_directories.items():
            if path == quorum.directory:
                raise OttlaError(f"the log directory {path}, which holds the metadata log, has failed: {error}")
        leader = quorum.leader
        if leader is None or leader.node_id != node_id:
            return
        records = directories_left(quorum.decided, node_id, self.online_ids())
        if records:
            quorum.append(records)


def _parent(path: str) -> str:
    return path.rpartition("/")[0]
