"""Writing the checkpoints of the log directories: recovery points, start offsets, high watermarks, cleaner offsets.

Rules:
- A checkpoint names a partition by its topic's name only. Before a log is created, its directory's checkpoints are
  freed of what they say of an earlier log of that name: its start offset would hide the new records, its recovery
  point leave them unchecked, its cleaner offset leave them uncleaned. For all deleted logs together that is one write.
- Offsets are noted on the loop and perhaps written later, on a thread: those of a log that was deleted in the meantime
  are left out. Threads may write in another order: what was noted first never replaces what was noted later.
"""

from collections.abc import Callable
from functools import partial

from ottla.kernel.ids import TopicPartition
from ottla.kernel.named import NamedTuple
from ottla.log import checkpoint
from ottla.log.directory.directory import Directories, Directory, LockingDisk
from ottla.log.log import Log


class Arrival:
    """A log that is about to be swapped for its copy in another directory, as that directory's checkpoints name it."""

    __slots__ = ("_cleaner_offset", "_copy", "_generation", "came", "directory", "is_written", "log", "point", "start")

    def __init__(self, log: Log, copy: Log, directory: Directory) -> None:
        self.log, self.directory = log, directory
        #: What is durable of the copy, and the start offset of the log.
        self.point, self.start = copy.recovery_point, log.start_offset
        self._copy, self._generation, self._cleaner_offset = copy, copy.generation, log.cleaner_offset
        self.is_written = False
        #: The log in the directory after the swap.
        self.came: Log | None = None

    @property
    def holds(self) -> bool:
        """Whether the checkpoints name it, and nothing that they say is wrong by now."""
        log = self.log
        unchanged = self._copy.generation == self._generation and log.cleaner_offset == self._cleaner_offset
        return self.is_written and unchanged and log.start_offset == self.start


#: A log's partition, the log, and an offset of it.
Offsets = list[tuple[TopicPartition, Log | Arrival, int]]


class Noted(NamedTuple):
    """Offsets of a directory's logs, noted for one of its checkpoints."""

    #: Taken before the offsets are read, and larger than that of what was noted before.
    number: int
    offsets: Offsets


class Checkpoints(Directories):
    """The log directories with their logs and checkpoints; the base of `Store`."""

    def __init__(self, disk: LockingDisk) -> None:
        super().__init__()
        self._disk = disk
        self._logs: dict[TopicPartition, Log] = {}
        self._home: dict[TopicPartition, Directory] = {}
        self._arrivals: dict[TopicPartition, Arrival] = {}

    def checkpoint_tasks(self) -> list[Callable[[], None]]:
        """The writing of all checkpoints as calls that may run on another thread and write the values of now."""
        return [self._checkpoint_task(directory) for directory in self._online()]

    def changed_tasks(self, name: str) -> dict[str, Callable[[], None]]:
        """Directory -> the writing of its high watermarks or start offsets (`name`), if these have changed.

        The calls may run on another thread and write the values of now.
        """
        tasks: dict[str, Callable[[], None]] = {}
        for directory in self._online():
            noted = self._watermarks_of(directory) if name == checkpoint.HIGH_WATERMARKS else self._starts_of(directory)
            if _telling(name, noted.offsets) != directory.told.get(name, {}):
                tasks[directory.path] = partial(self._write_changed, directory, name, noted)
        return tasks

    def _write_changed(self, directory: Directory, name: str, noted: Noted) -> None:
        with directory.writing:
            self._write(directory, name, noted)

    def cleaner_task(self, tp: TopicPartition) -> Callable[[], None]:
        """A call that writes the cleaner offsets of the partition's directory. It may run on a thread."""
        directory = self._home[tp]
        return lambda: self._write_cleaner_offsets(directory)

    def recovery_task(self, tp: TopicPartition) -> Callable[[], None]:
        """A call that writes the present recovery points of the partition's directory. It may run on a thread."""
        directory = self._home[tp]
        return partial(self._write_changed, directory, checkpoint.RECOVERY_POINTS, self._points_of(directory))

    def forget_earlier(self, tp: TopicPartition, directory: Directory) -> None:
        """Before a log is created, free the checkpoints of an earlier log of its name. May run on a thread."""
        while tp in directory.stale:
            self._checkpoint_task(directory)()

    def _logs_of(self, directory: Directory) -> list[tuple[TopicPartition, Log]]:
        return [(tp, log) for tp, log in list(self._logs.items()) if self._home.get(tp) is directory]

    def _arrivals_at(self, directory: Directory) -> list[tuple[TopicPartition, Arrival]]:
        return [(tp, each) for tp, each in list(self._arrivals.items()) if each.directory is directory]

    def _starts_of(self, directory: Directory) -> Noted:
        number = next(directory.numbers)
        starts: Offsets = [
            (tp, log, log.start_offset) for tp, log in self._logs_of(directory) if log.start_offset > log.bases[0]
        ]
        return Noted(number, starts + [(tp, each, each.start) for tp, each in self._arrivals_at(directory)])

    def _watermarks_of(self, directory: Directory) -> Noted:
        number = next(directory.numbers)
        return Noted(number, [(tp, log, log.high_watermark) for tp, log in self._logs_of(directory)])

    def _points_of(self, directory: Directory) -> Noted:
        number = next(directory.numbers)
        points: Offsets = [(tp, log, log.recovery_point) for tp, log in self._logs_of(directory)]
        return Noted(number, points + [(tp, each, each.point) for tp, each in self._arrivals_at(directory)])

    def _write_arrival(self, tp: TopicPartition, arrival: Arrival, points: Noted, starts: Noted) -> None:
        directory = arrival.directory
        with directory.writing:
            if self._arrivals.get(tp) is not arrival:
                # The move was cancelled, or its copy began again.
                return
            # What was noted later, if that was written already, names the arrival, too.
            self._write(directory, checkpoint.RECOVERY_POINTS, points)
            self._write(directory, checkpoint.START_OFFSETS, starts)
            if arrival.log.cleaner_offset is not None:
                self._replace_cleaner_offsets(directory)
        arrival.is_written = True

    def _points_lowered(self, directory: Directory) -> None:
        # Recovery points from before a truncation would leave records appended after it unchecked: noted earlier, they
        # are not written any more.
        with directory.writing:
            self._write(directory, checkpoint.RECOVERY_POINTS, self._points_of(directory))
        if any(log.cleaner_offset is not None for _, log in self._logs_of(directory)):
            self._write_cleaner_offsets(directory)

    def _write_cleaner_offsets(self, directory: Directory) -> None:
        with directory.writing:
            self._replace_cleaner_offsets(directory)

    def _replace_cleaner_offsets(self, directory: Directory) -> None:
        """Write them; the caller holds `writing`."""
        # First, because a log may go meanwhile.
        directory.cleaner_stale = False
        logs = self._logs_of(directory) + [(tp, each.log) for tp, each in self._arrivals_at(directory)]
        offsets = {tp: log.cleaner_offset for tp, log in logs if log.cleaner_offset is not None}
        try:
            checkpoint.write_offsets(self._disk, f"{directory.path}/{checkpoint.CLEANER_OFFSETS}", offsets)
        except OSError:
            directory.cleaner_stale = True
            raise

    def _checkpoint_task(self, directory: Directory) -> Callable[[], None]:
        # Before the offsets are noted: a log that is deleted after this line stays stale.
        stale = set(directory.stale)
        points = self._points_of(directory)
        starts = self._starts_of(directory)
        watermarks = self._watermarks_of(directory)

        def write() -> None:
            with directory.writing:
                written = [
                    self._write(directory, checkpoint.RECOVERY_POINTS, points),
                    self._write(directory, checkpoint.START_OFFSETS, starts),
                    self._write(directory, checkpoint.HIGH_WATERMARKS, watermarks),
                ]
                if directory.cleaner_stale:
                    self._replace_cleaner_offsets(directory)
                if all(written):
                    # Otherwise a partition of these may have had a log since, which what is there names.
                    directory.stale -= stale

        return write

    def _belongs(self, tp: TopicPartition, log: Log | Arrival, directory: Directory) -> bool:
        """Whether this log is still in the directory, or about to be, or has come there since it was noted."""
        if isinstance(log, Arrival):
            return self._arrivals.get(tp) is log or (log.came is not None and self._logs.get(tp) is log.came)
        return self._logs.get(tp) is log and self._home.get(tp) is directory

    def _write(self, directory: Directory, name: str, noted: Noted) -> bool:
        """Write a checkpoint, unless something that was noted later is there; whether it was written.

        The caller holds `writing`.
        """
        if noted.number < directory.written.get(name, 0):
            return False
        offsets = [each for each in noted.offsets if self._belongs(each[0], each[1], directory)]
        checkpoint.write_offsets(self._disk, f"{directory.path}/{name}", {tp: offset for tp, _, offset in offsets})
        directory.written[name] = noted.number
        if name != checkpoint.RECOVERY_POINTS:
            directory.told[name] = _telling(name, offsets)
        return True


def _telling(name: str, noted: Offsets) -> dict[TopicPartition, int]:
    """The offsets that a start reads: the high watermark of a sole replica is the end of its log."""
    if name != checkpoint.HIGH_WATERMARKS:
        return {tp: offset for tp, _, offset in noted}
    return {tp: offset for tp, log, offset in noted if isinstance(log, Log) and log.is_replicated}
