"""Open the logs of a directory at startup: read its checkpoints, recover on threads, and report the progress.

Rules:
- After a clean shutdown one thread opens all logs. After a crash the threads of a pool
  (`num.recovery.threads.per.data.dir`) share them, since recovery waits for the disk and computes checksums.
- A log is opened on one thread; once open it belongs to the loop's thread.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from functools import partial
from threading import Lock

from ottla.kernel.error import KafkaError, OttlaError
from ottla.kernel.ids import NO_UUID, TopicPartition, Uuid
from ottla.kernel.ports import Disk
from ottla.log import checkpoint
from ottla.log.directory.directory import Directory
from ottla.log.log import Log
from ottla.log.setting import LogSettings

#: (partition, call that returns its open log or raises the error of opening it).
PendingLogs = list[tuple[TopicPartition, Callable[[], Log]]]


class Opening:
    """The progress of opening a directory's logs. Several threads report to it, and each calls the listener.

    A listener that raises OttlaError aborts the startup: opening fails for every log.
    """

    def __init__(
        self, directory: str, total: int, listener: "Callable[[Opening], None] | None", *, clean: bool
    ) -> None:
        self.directory = directory
        #: The number of logs, and of those that are open.
        self.total = total
        self.done = 0
        self.clean = clean
        #: The bytes that recovery must read of the logs it has begun, and the bytes read so far.
        self.bytes_total = 0
        self.bytes_read = 0
        self._listener = listener
        self._lock = Lock()

    def add_bytes(self, more: int, done: int) -> None:
        """Add to the bytes to read and the bytes read."""
        with self._lock:
            self.bytes_total += more
            self.bytes_read += done
        self._tell()

    def count_open(self) -> None:
        """Count another open log."""
        with self._lock:
            self.done += 1
        self._tell()

    def _tell(self) -> None:
        if self._listener is not None:
            self._listener(self)

    @property
    def line(self) -> str:
        """The progress as a line of text."""
        if self.clean:
            return f"{self.directory}: opening, {self.done:,} of {self.total:,} logs"
        left_mib = (self.bytes_total - self.bytes_read) / (1 << 20)
        return (
            f"{self.directory}: recovering after an unclean shutdown, {self.done:,} of {self.total:,} logs, "
            f"{self.bytes_read / (1 << 20):,.0f} MiB read, {left_mib:,.0f} MiB left in the logs begun"
        )


def read_checkpoints(disk: Disk, directory: Directory) -> None:
    """Read the checkpoints of the last run, and remove its clean shutdown marker."""
    directory.clean, _ = checkpoint.take_clean_shutdown(disk, directory.path)
    if not directory.clean:
        # The last process may have died after a rename and before its sync.
        disk.sync_directory(directory.path)
    for name, attribute in (
        (checkpoint.RECOVERY_POINTS, "points"),
        (checkpoint.START_OFFSETS, "starts"),
        (checkpoint.HIGH_WATERMARKS, "watermarks"),
        (checkpoint.CLEANER_OFFSETS, "cleaner_offsets"),
    ):
        try:
            setattr(directory, attribute, checkpoint.read_offsets(disk, f"{directory.path}/{name}"))
        except checkpoint.CorruptCheckpoint:
            # As in Kafka, a lost checkpoint costs only work: without recovery points everything is read, without start
            # offsets the log starts at its first segment, without cleaner offsets everything is dirty.
            setattr(directory, attribute, {})


def begin(
    disk: Disk,
    directory: Directory,
    partitions: Iterable[tuple[TopicPartition, str, LogSettings]],
    now_ms: int,
    listener: Callable[[Opening], None] | None,
    pool: Executor | None,
) -> PendingLogs:
    """Open the partitions' logs: now on the pool's threads, or each when its call in the result is made."""
    partitions = list(partitions)
    opening = Opening(directory.path, len(partitions), listener, clean=directory.clean)
    begun: PendingLogs = []
    for tp, path, settings in partitions:
        opens = partial(_open, disk, directory, tp, path, settings, now_ms, opening)
        begun.append((tp, opens if pool is None or directory.clean else pool.submit(opens).result))
    return begun


def _open(
    disk: Disk,
    directory: Directory,
    tp: TopicPartition,
    path: str,
    settings: LogSettings,
    now_ms: int,
    opening: Opening,
) -> Log:
    try:
        log = Log.open(
            disk,
            path,
            settings,
            now_ms=now_ms,
            recovery_point=directory.points.get(tp, 0),
            log_start_offset=directory.starts.get(tp, 0),
            clean=directory.clean,
            cleaner_offset=directory.cleaner_offsets.get(tp),
            on_progress=opening.add_bytes,
        )
    except checkpoint.CorruptCheckpoint as error:
        raise OttlaError(f"{error}; restore {path} from a backup, or move it out of {directory.path}") from error
    try:
        opening.count_open()
    except OttlaError:
        log.discard()
        raise
    return log


def await_logs(logs: PendingLogs) -> list[tuple[TopicPartition, Log]]:
    """Wait for all logs of a directory; then raise the first error, or return the logs."""
    failure: Exception | None = None
    opened = []
    for tp, result in logs:
        try:
            opened.append((tp, result()))
        except (OSError, KafkaError, OttlaError) as error:
            failure = failure or error
    if failure is not None:
        for _, log in opened:
            log.discard()
        raise failure
    return opened


def sort_copies(
    tp: TopicPartition,
    copies: list[tuple[Log, Directory]],
    named: Callable[[TopicPartition], str | None],
    topic_id: Uuid | None,
) -> None:
    """Sort the logs of one partition so that the one with the latest acknowledged records comes last.

    `topic_id` is that of the topic now (NO_UUID: there is none), or None if the metadata is not known.
    """
    if len(copies) == 1:
        return
    name = named(tp)
    # Within a leader epoch there is one history, so the longer log has everything that the shorter one has.
    copies.sort(key=lambda copy: (copy[0].epochs.latest, copy[0].end_offset, copy[1].directory_id == name))
    if len({log.topic_id for log, _ in copies if log.topic_id != NO_UUID}) > 1:
        # A full disk has kept the name of a deleted log. The metadata has all topics that this node has ever followed.
        if topic_id is None:
            places = " and ".join(directory.path for _, directory in copies)
            raise OttlaError(f"{tp} has logs of two topics with that name, in {places}: remove one of them")
        copies.sort(key=lambda copy: copy[0].topic_id == topic_id)
