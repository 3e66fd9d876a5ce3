"""The replicas that this node hosts according to the metadata image: leaders and followers.

Rules:
- This node leads or follows a partition as long as the image says so, in the image's leader epoch. Each epoch has its
  own object, so a reference kept from an earlier epoch never passes for the current replica.
- The high watermark of a replica starts at the checkpointed value; without other replicas it starts at the log end.
- A log that should already exist is never created: it lies in a directory that failed or was replaced, and an empty log
  in its place would lose acknowledged records. Its partition stays offline until the directory is back.
- Threads create a topic's logs while the loop goes on, before its partitions are hosted. Until then clients of the
  partitions get NOT_LEADER_OR_FOLLOWER and retry; the request that created the topic is answered when the logs exist.
- A topic has one creation in progress at a time. When it ends, the topic is compared with the current image again.
- A deleted log leaves the store at once, but its directory is renamed in a later turn of the loop: a topic may have
  10,000. Until then no log of its topic's name is created, because it would get the same directory.
- Housekeeping retries a log that could not be created (a full disk).
- A metadata change costs in proportion to what changed, not to the number of partitions.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.metadata.images import raise_error
from ottla.controller.placement import directory_of, is_offline
from ottla.kernel.callbacks import call_each
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import NO_UUID, TopicPartition, uuid_text
from ottla.kernel.lazy import LazyModule
from ottla.log.directory.new_log import CreateResult, create_files
from ottla.log.log import Log
from ottla.metadata.image import BROKER, NO_LEADER, TOPIC, Image, PartitionImage, TopicImage
from ottla.replica.commit_queue import CommitWaiter
from ottla.replica.hosted import HostedReplica
from ottla.replica.leader import MetadataFollowed, PartitionState
from ottla.replica.partition import Partition

if TYPE_CHECKING:
    from ottla.broker.partitions.flush import Flusher
    from ottla.broker.partitions.log_dirs import LogDirs
    from ottla.broker.partitions.log_settings import LogSettingsByTopic
    from ottla.broker.partitions.replication import Replication
    from ottla.broker.runtime import Runtime
    from ottla.log.directory.store import Store
    from ottla.replica import followed
else:
    followed = LazyModule("ottla.replica.followed")

_log = logging.getLogger("ottla.broker")
#: Logs that one job of the thread pool creates.
_LOGS_PER_JOB = 6
#: Directories of deleted logs that one turn of the loop renames, at some 25 us each.
_DELETIONS_PER_TURN = 200


class _TopicCreation:
    """The creation of one topic's logs on threads."""

    __slots__ = ("jobs", "topic", "waiting")

    def __init__(self, topic: TopicImage, jobs: Iterable[Future[list[CreateResult]]]) -> None:
        self.topic = topic
        #: The jobs whose logs have not been adopted yet.
        self.jobs = deque(jobs)
        self.waiting: list[Callable[[], None]] = []


class _TopicDeletion:
    """The deletion of logs of one topic."""

    __slots__ = ("left", "waiting")

    def __init__(self) -> None:
        #: The logs whose directories are still to be renamed.
        self.left = 0
        self.waiting: list[Callable[[], None]] = []


class Leadership:
    """Hosts this node's partitions. The node creates it and passes it every metadata change."""

    def __init__(
        self,
        runtime: Runtime,
        store: Store,
        log_settings: LogSettingsByTopic,
        flusher: Flusher,
        log_dirs: LogDirs,
        replication: Replication,
        *,
        hosted: dict[tuple[str, int], HostedReplica],
        partitions: dict[tuple[str, int], Partition],
        on_led: Callable[[Partition], None],
        on_resigned: Callable[[Partition, bool], None],
        on_readable: Callable[[HostedReplica], None],
    ) -> None:
        self._runtime = runtime
        self._store = store
        self._log_settings = log_settings
        self._flusher = flusher
        self._log_dirs = log_dirs
        self._replication = replication
        #: Every replica that this node hosts, and the ones among them that it leads.
        self.hosted = hosted
        self.partitions = partitions
        #: Called when this node starts and stops leading a partition, and when records of a replica become readable.
        self._on_led = on_led
        self._on_resigned = on_resigned
        self._on_readable = on_readable
        #: Topics with partitions whose logs could not be created (a full disk).
        self.without_log: set[str] = set()
        #: Partitions whose logs may lie in a failed directory, although the metadata does not say so.
        self.offline: set[TopicPartition] = set()
        #: True until the first image has been followed: an earlier run may have created a log that is missing then.
        self._is_starting = True
        #: Topic name -> the creation in progress.
        self._creations: dict[str, _TopicCreation] = {}
        #: Topic name -> the deletion in progress, and the logs of all deletions.
        self._deletions: dict[str, _TopicDeletion] = {}
        self._deleted: deque[tuple[str, Log]] = deque()

    def find(self, topic: str, index: int) -> Partition:
        """The partition led here; otherwise raise the KafkaError that says why it is not."""
        partition = self.partitions.get((topic, index))
        if partition is not None:
            return partition
        image = self._runtime.image.topics.get(topic)
        if image is not None and 0 <= index < len(image.partitions):
            known, node_id = image.partitions[index], self._runtime.node_id
            if not self.is_offline(topic, index, known) and (topic not in self.without_log or known.leader != node_id):
                # Another broker leads it, its log is being created, or it is between two leader epochs.
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            # Its directory has failed, or its log cannot be created (a full disk).
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def is_offline(self, topic: str, index: int, known: PartitionImage) -> bool:
        """Whether this broker is a replica whose log lies in a failed directory."""
        node_id = self._runtime.node_id
        is_lost = (topic, index) in self.offline or is_offline(self._runtime.image, known, node_id)
        return is_lost and node_id in known.replicas

    def on_created(self, topics: Iterable[str], done: Callable[[], None]) -> None:
        """Call `done` as soon as none of these topics is being created; at once when none is.

        A topic whose name an earlier one has not left yet is about to be created.
        """
        works = [self._creations.get(name) or self._deletions.get(name) for name in topics]
        pending = [work for work in works if work is not None]
        left = len(pending)

        def on_topic_created() -> None:
            nonlocal left
            left -= 1
            if not left:
                done()

        for work in pending:
            work.waiting.append(on_topic_created)
        if not pending:
            done()

    # ---- following the metadata

    def configure(self, old: Image, new: Image) -> None:
        """Apply changed configs of topics, or of the node (`ottla.broker.node` has already updated its settings)."""
        changed: Iterable[str] = new.changed_configs(old, TOPIC)
        if new.changed_configs(old, BROKER):
            self._log_settings.clear()
            changed = new.topics
        else:
            for name in changed:
                self._log_settings.forget(name)
        for name in changed:
            topic = new.topics.get(name)
            for index in range(len(topic.partitions) if topic else 0):
                replica = self.hosted.get((name, index))
                if replica is None:
                    continue
                replica.log.settings = self._log_settings.of(replica.tp)
                if isinstance(replica, Partition) and self._flush(replica):
                    self._adjust(replica, new.topics[name].partitions[index])

    def configure_all(self) -> None:
        """Apply the current metadata to every log: configs may have changed while the logs were being opened."""
        self._log_settings.clear()
        for tp, log in self._store.logs().items():
            log.settings = self._log_settings.of(tp)

    def follow(self, name: str) -> None:
        """Bring every partition of a topic in line with the image: lead or follow it in a new epoch, or give it up."""
        node_id, topic = self._runtime.node_id, self._runtime.image.topics[name]
        is_busy = name in self._creations or name in self._deletions
        missing, gone = list[TopicPartition](), list[TopicPartition]()
        for index, known in enumerate(topic.partitions):
            tp = TopicPartition(name, index)
            replica = self.hosted.get(tp)
            if node_id not in known.replicas:
                # A replica that is assigned here again later is a new one, which nothing relies on yet.
                self.offline.discard(tp)
                self._store.forget_move(tp, topic.topic_id)
                self.resign(tp)
                log = self._store.get(tp)
                # Strays found at startup are set aside later.
                if log is not None and log.topic_id == topic.topic_id and not self._is_starting:
                    gone.append(tp)
            elif replica is not None:
                if replica.leader_epoch != known.leader_epoch:
                    leading = self.partitions.get(tp) if known.leader == node_id else None
                    staying = [] if leading is None else leading.commits.take_staying()
                    self.resign(tp, leads_on=leading is not None)
                    self._host(tp, topic, replica.log, replica, staying)
                elif isinstance(replica, Partition):
                    self._adjust(replica, known)
            elif not is_busy:
                log = self._claim(tp, topic)
                if log is not None:
                    self._host(tp, topic, log)
                elif known.leader != NO_LEADER and self._may_create(tp, topic):
                    missing.append(tp)
        self._delete_logs(name, gone)
        if missing:
            self._create_logs(topic, missing)

    def started(self) -> None:
        """Note that the first image has been followed: a log that is missing from now on belongs to a new topic."""
        self._is_starting = False

    def retry_creation(self) -> None:
        """Retry the topics whose logs could not be created."""
        names, self.without_log = self.without_log, set()
        for name in sorted(names & self._runtime.image.topics.keys()):
            self.follow(name)

    def take_offline(self, partitions: Iterable[TopicPartition]) -> None:
        """Take the partitions of a failed directory offline, until a restart finds the directory again."""
        for tp in partitions:
            self.offline.add(tp)
            self.resign(tp, KafkaError(ErrorCode.KAFKA_STORAGE_ERROR))

    def resign(self, tp: TopicPartition, error: KafkaError | None = None, *, leads_on: bool = False) -> None:
        """End this epoch of a partition, and its coordinator unless this node `leads_on`. Waiters get `error`."""
        replica = self.hosted.pop(tp, None)
        if replica is None:
            return
        partition = self.partitions.pop(tp, None)
        ends = [] if partition is None else [partial(self._on_resigned, partition, leads_on)]
        ends.append(partial(replica.end, error or KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)))
        if partition is None and isinstance(replica, followed.FollowedPartition):
            ends.append(partial(self._replication.forget, replica))
        try:
            call_each(ends)
        except Exception as bug:
            # A request that waited has met a bug. The change of the metadata must be followed all the same.
            self._runtime.loop.call_soon(raise_error, bug)

    def drop(self, topic: TopicImage) -> None:
        """Delete the logs of a deleted topic. This node stops leading and following it at once (4 us a partition)."""
        logs, error = [], KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        for index in range(len(topic.partitions)):
            tp = TopicPartition(topic.name, index)
            log = self._store.get(tp)
            if log is not None and log.topic_id in (NO_UUID, topic.topic_id):
                logs.append(tp)
            self.offline.discard(tp)
            self.resign(tp, error)
        self._delete_logs(topic.name, logs)
        self.without_log.discard(topic.name)
        self._log_settings.forget(topic.name)

    def is_stray(self, tp: TopicPartition, log: Log) -> bool:
        """Whether the image assigns this log's replica to no partition of this node."""
        topic = self._runtime.image.topics.get(tp.topic)
        if topic is None or log.topic_id not in (NO_UUID, topic.topic_id) or tp.partition >= len(topic.partitions):
            return True
        return self._runtime.node_id not in topic.partitions[tp.partition].replicas

    # ---- deleting logs

    def _delete_logs(self, name: str, partitions: list[TopicPartition]) -> None:
        """Delete logs of one topic: their directories are renamed in later turns of the loop."""
        # A directory that has failed since the caller saw the logs has taken its own with it.
        logs = [(name, self._store.take_out(tp)) for tp in partitions if self._store.get(tp) is not None]
        if not logs:
            return
        if not self._deleted:
            self._runtime.loop.call_soon(self._delete_some)
        self._deleted += logs
        self._deletions.setdefault(name, _TopicDeletion()).left += len(logs)

    def _delete_some(self) -> None:
        ended = []
        for _ in range(min(_DELETIONS_PER_TURN, len(self._deleted))):
            name, log = self._deleted.popleft()
            self._delete_log(log)
            deletion = self._deletions[name]
            deletion.left -= 1
            if not deletion.left:
                ended.append((name, self._deletions.pop(name)))
        if self._deleted:
            self._runtime.loop.call_soon(self._delete_some)
        call_each(partial(self._go_on, name, deletion.waiting) for name, deletion in ended)

    def _go_on(self, name: str, waiting: Iterable[Callable[[], None]], *, retry: bool = True) -> None:
        """After a creation or a deletion, follow the image, which has gone on: a new topic may have this name."""
        if retry and name in self._runtime.image.topics:
            self.follow(name)
        call_each(partial(self.on_created, [name], done) for done in waiting)

    def finish_deletions(self) -> None:
        """Rename the directories that are left, because the node stops: the next start would call them strays."""
        while self._deleted:
            self._delete_log(self._deleted.popleft()[1])

    def _delete_log(self, log: Log) -> None:
        """Delete a log. A disk that fails at it may take its directory offline, but not the node."""
        directory = log.path.rpartition("/")[0]
        if not self._store.works(directory):
            # The directory has failed since; a start that finds the log sets it aside.
            return
        try:
            self._store.rename_deleted(log)
        except OSError as error:
            _log.error("cannot delete %s: %s", log.path, error)
            self._log_dirs.suspect(directory, error)

    def _may_create(self, tp: TopicPartition, topic: TopicImage) -> bool:
        """Whether a missing log may be created; False when it may exist where this node cannot read it."""
        known = topic.partitions[tp.partition]
        directory = directory_of(known, self._runtime.node_id)
        is_elsewhere = self._store.was_moving(tp, topic.topic_id)
        gone = is_elsewhere or (directory is not None and directory not in self._log_dirs.online_ids())
        if gone and not self._store.failed_directories and self._is_replaceable(known):
            gone = False  # The disk was replaced, or the directory was removed from log.dirs for good.
            self.offline.discard(tp)
        # The log may lie in a failed directory that the controller has not been told about, or is told no more.
        if (is_elsewhere and gone) or (directory is None and self._is_starting and self._store.failed_directories):
            self.offline.add(tp)
        if gone or tp in self.offline:
            _log.error("%s is offline: its log lies in a directory that has failed or is not in log.dirs", tp)
            return False
        return True

    def _is_replaceable(self, known: PartitionImage) -> bool:
        """Whether another replica leads and nothing relies on this node's copy, so that it can be fetched afresh."""
        own = self._runtime.node_id
        counted = own in known.isr or own in known.eligible_leader_replicas or own in known.last_known_elr
        return known.leader not in (NO_LEADER, own) and not counted

    def _claim(self, tp: TopicPartition, topic: TopicImage) -> Log | None:
        """The store's log for this partition, or None when it has none that belongs to this topic."""
        log = self._store.get(tp)
        if log is not None and log.topic_id not in (NO_UUID, topic.topic_id):
            # Left over from a topic of the same name that was deleted while this node was down (KIP-516). Set it aside,
            # because the disk may have corrupted the topic id.
            _log.warning("%s belongs to another topic (%s); set aside", log.path, uuid_text(log.topic_id))
            try:
                self._store.set_aside(tp)
            except OSError as error:
                self._log_dirs.suspect(log.path.rpartition("/")[0], error)
            return None
        if log is not None and log.topic_id == NO_UUID and not log.end_offset:
            # A crash interrupted its creation.
            self._store.release(tp)
            return None
        return log

    def _host(
        self,
        tp: TopicPartition,
        topic: TopicImage,
        log: Log,
        before: HostedReplica | None = None,
        staying: Sequence[CommitWaiter] = (),
    ) -> None:
        """Lead or follow a partition with this log; `before` is this node's replica in an earlier epoch.

        `staying` waited at `before` for records that this node, which leads again, still has.
        """
        known = topic.partitions[tp.partition]
        if len(known.replicas) == 1:
            log.high_watermark = None
        elif before is None:
            checkpoint = self._store.checkpointed_high_watermark(tp) or 0
            log.high_watermark = min(max(checkpoint, log.start_offset), log.end_offset)
        else:
            # From here on other replicas count, also where this one was alone before.
            log.high_watermark = min(log.high_watermark, log.end_offset)
        self._log_dirs.assign_later(tp)
        if known.leader == self._runtime.node_id:
            self._lead(tp, topic, log, staying)
        else:
            replica = followed.FollowedPartition(tp, topic.topic_id, log, known.leader_epoch, known.leader)
            replica.on_readable = self._on_readable
            self.hosted[tp] = replica
            self._replication.follow(replica)

    def _lead(self, tp: TopicPartition, topic: TopicImage, log: Log, staying: Sequence[CommitWaiter]) -> None:
        known = topic.partitions[tp.partition]
        partition = self.hosted[tp] = self.partitions[tp] = Partition(tp, topic.topic_id, log, known.leader_epoch)
        partition.on_readable = self._on_readable
        partition.commits.adopt(staying)
        # Records that a killed process left in the page cache take effect from now on, so flush them first.
        if not self._flush(partition):
            return
        self._adjust(partition, known)
        # They may wait for no other replica any more.
        self._replication.committed(partition)
        self._on_led(partition)

    def _flush(self, partition: Partition) -> bool:
        """Flush if `flush.messages` requires it; False if that failed, and the partition is offline with its directory.

        A disk that fails here must not keep the other changes of the metadata from being followed.
        """
        try:
            self._flusher.flush_now(partition)
        except OSError:
            self.resign(partition.tp, KafkaError(ErrorCode.KAFKA_STORAGE_ERROR))
            if not partition.log.closed:
                # A full disk: housekeeping tries again.
                self.without_log.add(partition.tp.topic)
            return False
        return True

    def _adjust(self, partition: Partition, known: PartitionImage) -> None:
        """Apply a change of the partition's registration within the same leader epoch to a partition led here."""
        if partition.machine is None and len(known.replicas) == 1:
            return
        replication = self._replication
        settings = replication.settings_of(partition.log.settings.min_insync_replicas)
        state = PartitionState(known.leader_epoch, known.partition_epoch, known.replicas, known.isr)
        if partition.machine is None:
            partition.replicate(replication, settings, state, replication.brokers)
        else:
            partition.step(MetadataFollowed(state, settings.min_isr))

    # ---- creating logs

    def _create_logs(self, topic: TopicImage, missing: list[TopicPartition]) -> None:
        runtime, log_dirs = self._runtime, self._log_dirs
        planned = self._store.plan(missing, topic.topic_id, log_dirs.preferred(missing), log_dirs.cordoned())
        batches = [planned[at : at + _LOGS_PER_JOB] for at in range(0, len(planned), _LOGS_PER_JOB)]
        futures = [runtime.pool.submit(create_files, batch) for batch in batches]
        creation = self._creations[topic.name] = _TopicCreation(topic, futures)
        left = len(futures)

        def on_job_done() -> None:
            nonlocal left
            left -= 1
            if not left:
                self._adopt_created(creation)

        for future in futures:
            future.add_done_callback(lambda _: runtime.loop.call_soon_threadsafe(on_job_done))

    def _adopt_created(self, creation: _TopicCreation) -> None:
        """Adopt the created logs, one job's share per turn of the loop (3 to 10 us a log)."""
        if creation.jobs:
            self._adopt_job(creation)
            self._runtime.loop.call_soon(self._adopt_created, creation)
        else:
            self._finish_creation(creation)

    def _adopt_job(self, creation: _TopicCreation) -> None:
        topic, results = creation.topic, creation.jobs.popleft().result()
        current = self._runtime.image.topics.get(topic.name)
        if current is not None and current.topic_id == topic.topic_id:
            self._host_created(current, results)
            return
        # The topic was deleted in the meantime.
        created = []
        for log, error in results:
            if error is None:
                log.adopt()
                created.append(log.tp)
            else:
                log.give_up()
        self._delete_logs(topic.name, created)

    def _finish_creation(self, creation: _TopicCreation) -> None:
        name = creation.topic.name
        del self._creations[name]
        self._go_on(name, creation.waiting, retry=name not in self.without_log)

    def _host_created(self, topic: TopicImage, results: Iterable[CreateResult]) -> None:
        for log, create_error in results:
            error = create_error or log.failure
            if error is None:
                new_log = log.adopt()
                if self._runtime.node_id in topic.partitions[log.tp.partition].replicas:
                    self._host(log.tp, topic, new_log)
            else:
                log.give_up()
                _log.error("cannot create the log of %s: %s; will retry", log.tp, error)
                self.without_log.add(topic.name)
                self._log_dirs.suspect(log.directory, error)
