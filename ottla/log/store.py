"""All logs of a node, in all its log directories.

Rules:
- A directory belongs to one node at a time (`.lock`), and to one node id and cluster for ever (`meta.properties`).
- The checkpoints are what recovery starts from; they are written from time to time and on close. The mark of a clean
  shutdown is the last thing written on close and the first thing removed on open.
- A new log goes into the directory that has the fewest.
- A deleted log is renamed at once and removed after `file.delete.delay.ms`.
"""

import re
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Protocol

from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.kernel.name import METADATA_TOPIC, NO_UUID, TopicPartition, Uuid
from ottla.kernel.port import Disk
from ottla.log import checkpoint
from ottla.log.log import Log
from ottla.log.path import DELETE_DIRECTORY, FUTURE_DIRECTORY, STRAY_DIRECTORY, parse_partition_name
from ottla.log.setting import LogSettings

_NAME_MAX = 255
_TEMPORARY = re.compile(rf".+\.[0-9a-f]{{32}}({DELETE_DIRECTORY}|{FUTURE_DIRECTORY}|{STRAY_DIRECTORY})")


class Lock(Protocol):
    """A held lock file."""

    def close(self) -> None: ...


class Progress(Protocol):
    """Told of each log that is about to be opened: its directory, how many of how many are, and whether it is clean."""

    def __call__(self, directory: str, done: int, total: int, *, clean: bool) -> None: ...


class LockingDisk(Disk, Protocol):
    """A disk that several processes may share."""

    def lock(self, path: str) -> Lock | None:
        """Take the lock file, or None if somebody holds it."""


class Directory:
    """One log directory: its lock, its ids, and what its checkpoints said."""

    __slots__ = (
        "clean",
        "cleaner_offsets",
        "cluster_id",
        "directory_id",
        "lock",
        "lowered",
        "path",
        "points",
        "starts",
        "watermarks",
        "writing",
    )

    def __init__(self, path: str, lock: Lock) -> None:
        self.path = path
        self.lock = lock
        self.cluster_id = ""
        self.directory_id = ""
        #: Was it closed in good order?
        self.clean = False
        self.points: dict[TopicPartition, int] = {}
        self.starts: dict[TopicPartition, int] = {}
        self.watermarks: dict[TopicPartition, int] = {}
        self.cleaner_offsets: dict[TopicPartition, int] = {}
        #: Held while a checkpoint is written: the loop and threads both do.
        self.writing = threading.Lock()
        #: How often points were lowered. What was noted before must not be written any more.
        self.lowered = 0


@dataclass(slots=True)
class NewLog:
    """A log that is to be: `begin` makes its files, on any thread; `adopt`, on the loop, makes it the store's."""

    _store: "Store"
    _disk: Disk
    tp: TopicPartition
    topic_id: Uuid
    _directory: Directory
    _settings: LogSettings
    _now_ms: int
    _log: Log | None = None

    def begin(self) -> "NewLog":
        """Make the directory and the files. OSError if the disk does not take them; then it may be tried again."""
        path = f"{self._directory.path}/{self.tp}"
        self._log = Log.open(self._disk, path, self._settings, now_ms=self._now_ms, clean=True, topic_id=self.topic_id)
        return self

    def adopt(self) -> Log:
        """Give it to the store."""
        assert self._log is not None, "begin comes first"
        self._store.adopt(self.tp, self._log, self._directory)
        if self._directory.cleaner_offsets.pop(self.tp, None) is not None:
            # Of an older topic of this name.
            self._store.cleaner_task(self.tp)()
        return self._log


class Store:
    """`Store.open` makes it; the node ends it with `close`."""

    def __init__(self, disk: LockingDisk, settings_of: Callable[[TopicPartition], LogSettings]) -> None:
        self._disk = disk
        self._settings_of = settings_of
        self._directories: list[Directory] = []
        self._logs: dict[TopicPartition, Log] = {}
        self._home: dict[TopicPartition, Directory] = {}
        #: Logs that nobody has asked for since the start.
        self._unclaimed: set[TopicPartition] = set()
        #: Directories to be removed: (when, path).
        self._due: list[tuple[int, str]] = []
        self._now_ms = 0
        #: Have all logs been opened? Before, there is nothing to write down.
        self._loaded = False

    @classmethod
    def open(
        cls,
        disk: LockingDisk,
        dirs: Sequence[str],
        *,
        node_id: int,
        cluster_id: str | None = None,
        now_ms: int,
        settings_of: Callable[[TopicPartition], LogSettings],
    ) -> "Store":
        """Lock and check the directories, and open every log in them. OttlaError says what is wrong with one."""
        store = cls.take(disk, dirs, node_id=node_id, cluster_id=cluster_id, settings_of=settings_of)
        try:
            store.load(now_ms)
        except BaseException:
            store._let_go()
            raise
        return store

    @classmethod
    def take(
        cls,
        disk: LockingDisk,
        dirs: Sequence[str],
        *,
        node_id: int,
        cluster_id: str | None = None,
        settings_of: Callable[[TopicPartition], LogSettings],
    ) -> "Store":
        """Lock and check the directories. `load` opens the logs, once it is known how each topic is set."""
        store = cls(disk, settings_of)
        try:
            for path in dirs:
                store._directories.append(_take(disk, path.rstrip("/") or "/", node_id, cluster_id))
            store._check_ids()
        except BaseException:
            store._let_go()
            raise
        return store

    def load(self, now_ms: int, progress: Progress | None = None) -> None:
        """Open every log in the directories; `progress` is told after each one."""
        self._now_ms = now_ms
        for directory in self._directories:
            self._load(directory, now_ms, progress)
        self._loaded = True

    # ---- what it is

    @property
    def directories(self) -> list[str]:
        """The paths of the log directories."""
        return [directory.path for directory in self._directories]

    @property
    def cluster_id(self) -> str:
        return self._directories[0].cluster_id

    def directory_id(self, path: str) -> str:
        """The id (text) of a log directory (KIP-858)."""
        return next(each.directory_id for each in self._directories if each.path == path)

    def directory_of(self, tp: TopicPartition) -> str:
        """The log directory that holds a partition."""
        return self._home[tp].path

    def logs(self) -> dict[TopicPartition, Log]:
        return dict(self._logs)

    def get(self, tp: TopicPartition) -> Log | None:
        self._unclaimed.discard(tp)
        return self._logs.get(tp)

    def checkpointed_high_watermark(self, tp: TopicPartition) -> int | None:
        """What `replication-offset-checkpoint` said at the start."""
        return self._home[tp].watermarks.get(tp) if tp in self._home else None

    # ---- changes

    def create(self, topic: str, topic_id: Uuid, partition: int) -> Log:
        """A new, empty log. KafkaError INCONSISTENT_TOPIC_ID if there is one of another topic by this name."""
        tp = TopicPartition(topic, partition)
        log = self.get(tp)
        if log is not None:
            if NO_UUID not in (log.topic_id, topic_id) and log.topic_id != topic_id:
                raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID, f"{tp} is another topic's of the same name")
            return log
        return self.plan([tp], topic_id)[0].begin().adopt()

    def plan(self, partitions: Sequence[TopicPartition], topic_id: Uuid) -> list["NewLog"]:
        """Where these logs, which are not there yet, will lie: each in the directory that has the fewest."""
        counts = {directory.path: 0 for directory in self._directories}
        if len(counts) > 1:
            for home in self._home.values():
                counts[home.path] += 1
        planned = []
        for tp in partitions:
            directory = min(self._directories, key=lambda each: counts[each.path])
            counts[directory.path] += 1
            planned.append(NewLog(self, self._disk, tp, topic_id, directory, self._settings_of(tp), self._now_ms))
        return planned

    def delete(self, tp: TopicPartition, now_ms: int | None = None) -> None:
        """Drop a log: gone at once, its files after `file.delete.delay.ms`."""
        log = self._logs.pop(tp, None)
        if log is None:
            return
        home = self._home.pop(tp)
        self._unclaimed.discard(tp)
        for points in (home.points, home.starts, home.watermarks):
            points.pop(tp, None)
        if home.cleaner_offsets.pop(tp, log.cleaner_offset) is not None:
            self._write_cleaner_offsets(home)
        now_ms = self._now_ms if now_ms is None else now_ms
        target = self._aside(log.path, DELETE_DIRECTORY, now_ms)
        log.discard()
        self._disk.rename(log.path, target)
        self._due.append((now_ms + log.settings.file_delete_delay_ms, target))

    def release(self, tp: TopicPartition) -> None:
        """Let go of a log whose directory stays."""
        log = self._logs.pop(tp)
        self._home.pop(tp)
        for segment in log.segments:
            segment.close()
        log.discard()

    def delete_strays(self) -> list[TopicPartition]:
        """Move aside the logs that nobody has asked for: their topics are gone. Their names."""
        strays = sorted(self._unclaimed)
        homes = {self._home[tp].path for tp in strays}
        for tp in strays:
            self.set_aside(tp)
        for directory in homes:
            # A topic that is made by one of these names must not find the old one's log after a crash.
            self._disk.sync_directory(directory)
        return strays

    def set_aside(self, tp: TopicPartition) -> None:
        """Move a log of no topic that there is out of the way. Its files stay, for a person to look at."""
        log = self._logs.pop(tp)
        self._home.pop(tp)
        self._unclaimed.discard(tp)
        log.close()
        self._disk.rename(log.path, self._aside(log.path, STRAY_DIRECTORY, self._now_ms))

    def remove_deleted(self, now_ms: int) -> None:
        """Remove the files of deleted logs and segments that have waited long enough."""
        self._now_ms = max(self._now_ms, now_ms)
        due = [path for due_ms, path in self._due if due_ms <= now_ms]
        self._due = [each for each in self._due if each[0] > now_ms]
        for path in due:
            self._disk.remove_tree(path)
        for log in self._logs.values():
            log.remove_deleted(now_ms)

    # ---- durability

    def checkpoint(self, now_ms: int) -> None:
        """Write recovery points, start offsets and high watermarks of all logs."""
        self.remove_deleted(now_ms)
        for task in self.checkpoint_tasks():
            task()

    def checkpoint_tasks(self) -> list[Callable[[], None]]:
        """The same as calls that may run on another thread: what they write is fixed now."""
        return [self._checkpoint_task(directory) for directory in self._directories]

    def close(self, broker_epoch: int = -1, pool: Executor | None = None) -> None:
        """Flush and close all logs, write the checkpoints and the mark of a clean shutdown, let go of the locks.

        The logs are closed on the threads of `pool`, several at a time, if there is one.

        The mark carries the epoch of the broker's registration: by it the controller knows the same broker again
        (KIP-966).
        """
        if not self._loaded:
            return self._let_go()
        try:
            if pool is None:
                for log in self._logs.values():
                    log.close()
            else:
                # Every one comes to its end before the first failure is told.
                closing = [pool.submit(log.close) for log in self._logs.values()]
                failed = [error for each in closing if (error := each.exception()) is not None]
                if failed:
                    raise failed[0]
            for directory in self._directories:
                self._checkpoint_task(directory)()
            for directory in self._directories:
                checkpoint.write_clean_shutdown(self._disk, directory.path, broker_epoch)
        finally:
            self._let_go()

    def abandon(self) -> None:
        """Let go without a word, as a crash would: the next start recovers."""
        for log in self._logs.values():
            log.discard()
        self._let_go()

    def cleaner_task(self, tp: TopicPartition) -> Callable[[], None]:
        """Write how far the cleaner has been in the logs of this one's directory. It may run on a thread."""
        directory = self._home[tp]
        return lambda: self._write_cleaner_offsets(directory)

    def recovery_task(self, tp: TopicPartition) -> Callable[[], None]:
        """Write the recovery points, as they are now, of this one's directory. It may run on a thread."""
        directory = self._home[tp]
        points, lowered = self._points_of(directory), directory.lowered

        def write() -> None:
            with directory.writing:
                self._write_points(directory, points, lowered)

        return write

    def _logs_of(self, directory: Directory) -> list[tuple[TopicPartition, Log]]:
        return [(tp, log) for tp, log in list(self._logs.items()) if self._home.get(tp) is directory]

    def _points_of(self, directory: Directory) -> dict[TopicPartition, int]:
        return {tp: log.recovery_point for tp, log in self._logs_of(directory)}

    def _points_lowered(self, directory: Directory) -> None:
        directory.lowered += 1
        with directory.writing:
            self._write_points(directory, self._points_of(directory), directory.lowered)
        if any(log.cleaner_offset is not None for _, log in self._logs_of(directory)):
            self._write_cleaner_offsets(directory)

    def _write_points(self, directory: Directory, points: dict[TopicPartition, int], lowered: int) -> None:
        # Points of before a truncation would leave what was appended after it unchecked.
        if lowered == directory.lowered:
            checkpoint.write_offsets(self._disk, f"{directory.path}/{checkpoint.RECOVERY_POINTS}", points)

    def _write_cleaner_offsets(self, directory: Directory) -> None:
        with directory.writing:
            offsets = {tp: log.cleaner_offset for tp, log in self._logs_of(directory) if log.cleaner_offset is not None}
            checkpoint.write_offsets(self._disk, f"{directory.path}/{checkpoint.CLEANER_OFFSETS}", offsets)

    def _checkpoint_task(self, directory: Directory) -> Callable[[], None]:
        mine = self._logs_of(directory)
        points, lowered = self._points_of(directory), directory.lowered
        starts = {tp: log.start_offset for tp, log in mine if log.start_offset > log.bases[0]}
        watermarks = {tp: log.high_watermark for tp, log in mine}
        disk, path = self._disk, directory.path

        def write() -> None:
            with directory.writing:
                self._write_points(directory, points, lowered)
                checkpoint.write_offsets(disk, f"{path}/{checkpoint.START_OFFSETS}", starts)
                checkpoint.write_offsets(disk, f"{path}/{checkpoint.HIGH_WATERMARKS}", watermarks)

        return write

    # ---- opening

    def _load(self, directory: Directory, now_ms: int, progress: Progress | None) -> None:
        disk, path = self._disk, directory.path
        directory.clean, _ = checkpoint.take_clean_shutdown(disk, path)
        for name, attribute in (
            (checkpoint.RECOVERY_POINTS, "points"),
            (checkpoint.START_OFFSETS, "starts"),
            (checkpoint.HIGH_WATERMARKS, "watermarks"),
            (checkpoint.CLEANER_OFFSETS, "cleaner_offsets"),
        ):
            try:
                setattr(directory, attribute, checkpoint.read_offsets(disk, f"{path}/{name}"))
            except checkpoint.CorruptCheckpoint:
                # As Kafka: without recovery points all is read, without start offsets the first segment counts, and
                # without the cleaner's all is dirty.
                setattr(directory, attribute, {})
        found = self._partitions_in(path)
        for done, (tp, where) in enumerate(found):
            if progress is not None:
                progress(path, done, len(found), clean=directory.clean)
            if tp in self._logs:
                raise OttlaError(
                    f"{tp} is in two log directories, {self._home[tp].path} and {path}: take one of them away"
                )
            try:
                log = Log.open(
                    disk,
                    where,
                    self._settings_of(tp),
                    now_ms=now_ms,
                    recovery_point=directory.points.get(tp, 0),
                    log_start_offset=directory.starts.get(tp, 0),
                    clean=directory.clean,
                    cleaner_offset=directory.cleaner_offsets.get(tp),
                )
            except checkpoint.CorruptCheckpoint as error:
                raise OttlaError(f"{error}; restore {where} from a backup, or move it out of {path}") from error
            self.adopt(tp, log, directory)
            self._unclaimed.add(tp)

    def _partitions_in(self, path: str) -> list[tuple[TopicPartition, str]]:
        """The partitions' directories in a log directory. What was left to be deleted goes."""
        disk, found = self._disk, []
        for name in disk.list(path):
            where = f"{path}/{name}"
            if _TEMPORARY.fullmatch(name):
                if name.endswith(DELETE_DIRECTORY) and disk.is_directory(where):
                    disk.remove_tree(where)
                continue
            tp = parse_partition_name(name)
            if tp is not None and tp.topic != METADATA_TOPIC and disk.is_directory(where):
                found.append((tp, where))
        return found

    def adopt(self, tp: TopicPartition, log: Log, directory: Directory) -> None:
        """From now on this log is ours."""
        self._logs[tp] = log
        self._home[tp] = directory
        log.on_recovery_point_lowered = lambda: self._points_lowered(directory)

    def _check_ids(self) -> None:
        first = self._directories[0]
        for each in self._directories[1:]:
            if each.cluster_id != first.cluster_id:
                raise OttlaError(
                    f"log directories of two clusters: {first.path} is of {first.cluster_id}, "
                    f"{each.path} of {each.cluster_id}"
                )

    def _aside(self, path: str, suffix: str, now_ms: int) -> str:
        """A free name to move a log's directory to."""
        parent, _, name = path.rpartition("/")
        number = 0
        while True:
            mark = f".{now_ms & (1 << 64) - 1:016x}{number:016x}{suffix}"
            target = f"{parent}/{name[: _NAME_MAX - len(mark)]}{mark}"
            if not self._disk.exists(target):
                return target
            number += 1

    def _let_go(self) -> None:
        for directory in self._directories:
            directory.lock.close()
        self._directories = []
        self._logs = {}


def _take(disk: LockingDisk, path: str, node_id: int, cluster_id: str | None) -> Directory:
    """Lock one log directory and check whose it is."""
    if not disk.is_directory(path):
        raise OttlaError(f"the log directory {path} is not there: format it first (ottla storage format)")
    lock = disk.lock(f"{path}/{checkpoint.LOCK}")
    if lock is None:
        raise OttlaError(f"the log directory {path} is in use by another broker")
    try:
        directory = Directory(path, lock)
        properties = checkpoint.read_properties(disk, f"{path}/{checkpoint.META_PROPERTIES}")
        if properties is None:
            raise OttlaError(f"the log directory {path} is not formatted (ottla storage format)")
        found = properties.get("node.id", properties.get("broker.id", ""))
        if found != str(node_id):
            raise OttlaError(f"the log directory {path} belongs to node {found}, and this is node {node_id}")
        directory.cluster_id = properties.get("cluster.id", "")
        directory.directory_id = properties.get("directory.id", "")
        if cluster_id is not None and directory.cluster_id != cluster_id:
            raise OttlaError(
                f"the log directory {path} belongs to cluster {directory.cluster_id}, and this is cluster {cluster_id}"
            )
    except BaseException:
        lock.close()
        raise
    return directory
