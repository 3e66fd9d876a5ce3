"""The log directories of a node: their locks, ids, checkpoints at startup, and failures."""

import threading
from collections.abc import Iterable, Sequence
from itertools import count
from typing import Protocol

from ottla.kernel.error import OttlaError
from ottla.kernel.ids import TopicPartition
from ottla.kernel.ports import Disk, File
from ottla.log import checkpoint


class Lock(Protocol):
    """A held lock file, which also gives access to its volume."""

    def covers(self, files: Iterable[File]) -> bool:
        """Can `sync_volume` replace syncing these files one by one: does it report every failure, and is it fast?

        The answer must hold for everything in the files' directories.
        """

    def sync_volume(self) -> None:
        """Return when everything on the volume, bytes and names, survives a power failure.

        Raises OSError if a write failed at any time since the lock was taken.
        """

    def close(self) -> None: ...


class LockingDisk(Disk, Protocol):
    """A disk with lock files, for directories that several processes may open."""

    def lock(self, path: str) -> Lock | None:
        """Take the lock file, or None if another process holds it."""


class Directory:
    """A log directory: its lock, its ids, and its checkpoints at startup."""

    __slots__ = (
        "clean",
        "cleaner_offsets",
        "cleaner_stale",
        "cluster_id",
        "directory_id",
        "distrust",
        "failure",
        "load",
        "lock",
        "numbers",
        "path",
        "points",
        "stale",
        "starts",
        "told",
        "watermarks",
        "writing",
        "written",
    )

    def __init__(self, path: str, lock: Lock | None) -> None:
        self.path = path
        self.lock = lock
        self.cluster_id = ""
        self.directory_id = ""
        #: Why the directory is offline; None while it works.
        self.failure: OSError | None = None
        #: Why `close` must not call the directory clean, although it is online; None while nothing speaks against it.
        self.distrust: OSError | None = None
        #: The number of its logs, and of those that are about to be created there.
        self.load = 0
        #: Was the last shutdown clean?
        self.clean = False
        self.points: dict[TopicPartition, int] = {}
        self.starts: dict[TopicPartition, int] = {}
        self.watermarks: dict[TopicPartition, int] = {}
        self.cleaner_offsets: dict[TopicPartition, int] = {}
        #: Checkpoint -> the offsets in it that matter to a start, as last written.
        self.told: dict[str, dict[TopicPartition, int]] = {}
        #: Whether the checkpoint of cleaner offsets on disk may name a log that went.
        self.cleaner_stale = False
        #: Partitions whose log went, so that the checkpoints on disk may still name it.
        self.stale: set[TopicPartition] = set()
        #: The numbers of what is noted for checkpoints, and checkpoint -> the number of what is there.
        self.numbers = count(1)
        self.written: dict[str, int] = {}
        #: Held while a checkpoint is written, by the loop or a thread.
        self.writing = threading.Lock()


def take(disk: LockingDisk, path: str, node_id: int, cluster_id: str | None) -> Directory:
    """Lock a log directory and check its owner. Raises OttlaError if it is not ours, OSError if the disk fails."""
    try:
        disk.list(path)
    except (FileNotFoundError, NotADirectoryError):
        raise OttlaError(f"the log directory {path} does not exist: format it first (ottla storage format)") from None
    lock = disk.lock(f"{path}/{checkpoint.LOCK}")
    if lock is None:
        raise OttlaError(f"the log directory {path} is in use by another broker")
    try:
        directory = Directory(path, lock)
        properties = checkpoint.read_properties(disk, f"{path}/{checkpoint.META_PROPERTIES}")
        if properties is None:
            raise OttlaError(f"the log directory {path} is not formatted: run ottla storage format first")
        owner = properties.get("node.id", properties.get("broker.id", ""))
        if owner != str(node_id):
            raise OttlaError(
                f"the log directory {path} belongs to node {owner}, and this is node {node_id}; "
                f"set node.id={owner}, or give this node log.dirs of its own"
            )
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


class Directories:
    """The log directories of a node; the base of `Store`."""

    def __init__(self) -> None:
        self._directories: list[Directory] = []
        #: The directory of the metadata log, if it is none of them: it has no partitions.
        self._apart: list[Directory] = []
        #: The path of the metadata log's directory, one of all these.
        self._metadata_path = ""

    @property
    def directories(self) -> list[str]:
        """The paths of the online log directories."""
        return [directory.path for directory in self._online()]

    @property
    def failed_directories(self) -> dict[str, OSError]:
        """The paths of the failed log directories, each with its error."""
        return {directory.path: directory.failure for directory in self._all if directory.failure is not None}

    @property
    def cluster_id(self) -> str:
        # Also when all disks have failed.
        return next(directory.cluster_id for directory in self._all if directory.cluster_id)

    @property
    def _all(self) -> list[Directory]:
        return [*self._directories, *self._apart]

    def works(self, path: str) -> bool:
        """Whether this is an online log directory, or the online directory of the metadata log."""
        return any(directory.path == path and directory.failure is None for directory in self._all)

    def _online(self) -> list[Directory]:
        return [directory for directory in self._directories if directory.failure is None]

    def _directory(self, path: str) -> Directory:
        return next(directory for directory in self._directories if directory.path == path)

    def directory_id(self, path: str) -> str:
        """The id (text) of a log directory or of the metadata log's directory (KIP-858)."""
        return next(directory.directory_id for directory in self._all if directory.path == path)

    def unlock(self) -> None:
        """Release the locks."""
        self._release_locks()

    def _lock_all(
        self,
        disk: LockingDisk,
        paths: Sequence[str],
        node_id: int,
        cluster_id: str | None,
        metadata_path: str | None = None,
    ) -> None:
        """Lock and check the directories; one whose disk fails is marked as failed."""
        *data, last = (path.rstrip("/") or "/" for path in (*paths, metadata_path or paths[0]))
        self._metadata_path = last
        for path in data if last in data else [*data, last]:
            among = self._directories if path in data else self._apart
            try:
                among.append(take(disk, path, node_id, cluster_id))
            except OSError as error:
                directory = Directory(path, None)
                directory.failure = error
                among.append(directory)
        self._check_ids()

    def _check_ids(self) -> None:
        if not self._online():
            raise OttlaError(f"all log directories failed: {'; '.join(map(str, self.failed_directories.values()))}")
        online = [directory for directory in self._all if directory.failure is None]
        first = online[0]
        for other in online[1:]:
            if other.cluster_id != first.cluster_id:
                raise OttlaError(
                    f"the log directories belong to two clusters: {first.path} to {first.cluster_id}, "
                    f"{other.path} to {other.cluster_id}; remove one of them from log.dirs or metadata.log.dir"
                )

    def _release_locks(self) -> None:
        for directory in self._all:
            if directory.lock is not None:
                directory.lock.close()
        self._directories, self._apart = [], []


def lock_directories(
    disk: LockingDisk, paths: Sequence[str], node_id: int, metadata_path: str | None = None
) -> Directories:
    """Lock and check the directories of a node without partitions; `unlock` releases them."""
    directories = Directories()
    try:
        directories._lock_all(disk, paths, node_id, None, metadata_path)
    except BaseException:
        directories.unlock()
        raise
    return directories
