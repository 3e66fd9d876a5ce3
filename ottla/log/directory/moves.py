"""Logs that come, go and move between the directories of a node.

Rules:
- A move fills a future log, which is made durable and renamed before the old log is moved aside.
- Before that a thread has the checkpoints of the future log's directory name it (`Arrival`): they list all logs there.
- A deleted log leaves the store at once and is renamed soon; `Leadership` does so in steps. Its files go later:
  after `file.delete.delay.ms`, or when its disk takes that.
- A directory that could not be renamed (a full disk) is tried again, unless a new log may have its name.
- The copy of a move that the last run did not finish stays until the move has begun again: without it, a crash would
  have the next start forget the move, and perhaps make an empty log where the metadata names its target.

KIPs: 113 (moves).
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from ottla.kernel.ids import TopicPartition, Uuid
from ottla.log.directory import kept_copy
from ottla.log.directory.checkpoints import Arrival, Checkpoints
from ottla.log.directory.directory import Directory, LockingDisk
from ottla.log.directory.left_behind import LeftBehind
from ottla.log.directory.removals import Removals
from ottla.log.log import Log
from ottla.log.path import DELETE_DIRECTORY, FUTURE_DIRECTORY, STRAY_DIRECTORY

_log = logging.getLogger("ottla.log")
_NAME_MAX = 255
#: The copy of a move that the last run has left: its partition, topic id, path and directory.
Copy = tuple[TopicPartition, Uuid, str, Directory]


class Moves(Checkpoints):
    """The logs of the directories; the base of `Store`."""

    def __init__(self, disk: LockingDisk) -> None:
        super().__init__(disk)
        #: Logs being filled in another directory.
        self._futures: dict[TopicPartition, tuple[Log, Directory]] = {}
        #: Partition -> target directory of the moves that the last run did not finish and a start must begin again.
        self.unfinished_moves: dict[TopicPartition, str] = {}
        self._copies: list[Copy] = []
        self.removals = Removals(disk)
        self.left_behind = LeftBehind(disk)
        #: Path -> the deleted log whose directory could not be renamed.
        self._unrenamed: dict[str, Log] = {}
        self._now_ms = 0

    def adopt(self, tp: TopicPartition, log: Log, directory: Directory) -> None:
        """Add an open log to the store."""
        self._logs[tp] = log
        self._home[tp] = directory
        directory.load += 1
        log.on_recovery_point_lowered = lambda: self._points_lowered(directory)

    def delete(self, tp: TopicPartition, now_ms: int | None = None) -> None:
        """Delete a log: from the store at once, its files after `file.delete.delay.ms`."""
        self.rename_deleted(self.take_out(tp), now_ms)

    def take_out(self, tp: TopicPartition) -> Log:
        """Take a log to be deleted out of the store. `rename_deleted` is due before another has its name."""
        log = self._drop(tp)
        log.discard()
        if tp in self._futures:
            self.cancel_move(tp)
        return log

    def rename_deleted(self, log: Log, now_ms: int | None = None) -> None:
        """Rename the directory of a log that was taken out, and have it removed after `file.delete.delay.ms`."""
        now_ms = self._now_ms if now_ms is None else now_ms
        target = self.aside_path(log.path, DELETE_DIRECTORY, now_ms)
        # Without writing anything: a topic is often deleted because its disk is full.
        try:
            self._disk.rename(log.path, target)
        except OSError:
            self.rename_later(log)
            raise
        self.removals.add(now_ms + log.settings.file_delete_delay_ms, target)

    def rename_later(self, log: Log) -> None:
        """Have `unrenamed` name a deleted log: its directory could not be renamed, and no log took the name."""
        self._unrenamed[log.path] = log

    def unrenamed(self) -> list[Log]:
        """The deleted logs whose directories could not be renamed."""
        return [*self._unrenamed.values()]

    def rename_again(self, log: Log, now_ms: int) -> None:
        """Retry to rename the directory of a deleted log, unless another may have the name since."""
        if self._unrenamed.get(log.path) is log:
            del self._unrenamed[log.path]
            # An administrator in need of space may have removed it.
            if self._disk.exists(log.path):
                self.rename_deleted(log, now_ms)

    def _drop(self, tp: TopicPartition) -> Log:
        """Take a log out of the store."""
        log, home = self._logs.pop(tp), self._home.pop(tp)
        home.load -= 1
        for points in (home.points, home.starts, home.watermarks):
            points.pop(tp, None)
        home.cleaner_stale = home.cleaner_stale or log.cleaner_offset is not None
        home.stale.add(tp)
        return log

    def aside_path(self, path: str, suffix: str, now_ms: int) -> str:
        """A free path to move a log's directory to."""
        parent, _, name = path.rpartition("/")
        number = 0
        while True:
            mark = f".{now_ms & (1 << 64) - 1:016x}{number:016x}{suffix}"
            target = f"{parent}/{name[: _NAME_MAX - len(mark)]}{mark}"
            if not self._disk.exists(target):
                return target
            number += 1

    # ---- moves

    def future(self, tp: TopicPartition) -> tuple[Log, str] | None:
        """The log that will replace this partition's log, and its directory."""
        move = self._futures.get(tp)
        return None if move is None else (move[0], move[1].path)

    def begin_move(self, tp: TopicPartition, path: str, now_ms: int) -> Log:
        """Create an empty log in another directory, to be filled like a follower's."""
        source, directory = self._logs[tp], self._directory(path)
        if source.on_change is not None:
            # A copy of an earlier move stays marked. The mark of this move's copy would take its place in the log.
            source.on_change()
        log_path = self.aside_path(f"{path}/{tp}", FUTURE_DIRECTORY, now_ms)
        try:
            log = Log.open(self._disk, log_path, source.settings, now_ms=now_ms, clean=True, topic_id=source.topic_id)
            # The directory must survive a crash, so that the next start begins the move again.
            self._disk.sync_directory(path)
        except OSError:
            # The caller hears that the move has not begun, so the next start must not begin it.
            with suppress(OSError):
                self._disk.remove_tree(log_path)
            raise
        self._futures[tp] = (log, directory)
        self._remove_copies(tp)
        return log

    def drop_unfinished(self, tp: TopicPartition) -> None:
        """Give up a move that the last run did not finish, and that could not begin again."""
        if tp in self._logs or not self.failed_directories:
            for each, topic_id, _, directory in self._copies:
                if each == tp:
                    # The metadata may name the directory until it is told otherwise.
                    self.left_behind.add(directory.directory_id, {str(tp): topic_id})
            self._remove_copies(tp)

    def _remove_copies(self, tp: TopicPartition) -> None:
        """Have the copies that the last run has left of a log removed."""
        for each, _, path, directory in self._copies:
            if each == tp and directory.failure is None:
                self.removals.add(self._now_ms, path)
        self._copies = [copy for copy in self._copies if copy[0] != tp]

    def forgetting_task(self, tp: TopicPartition) -> Callable[[], None] | None:
        """A call that frees the checkpoints of an earlier log where the copy is, on any thread; None once they are.

        Nothing that may take the copy for the log comes before: `keep_copy`, or the swap.
        """
        directory = self._futures[tp][1]
        return partial(self.forget_earlier, tp, directory) if tp in directory.stale else None

    def keep_copy(self, tp: TopicPartition, failed: Callable[[OSError], None]) -> None:
        """Have a start take the future log, which has all records, if the log is away and has not changed since.

        `failed` is as in `kept_copy.mark`.
        """
        copy, directory = self._futures[tp]

        def stays_marked(error: OSError) -> None:
            self.left_behind.add(directory.directory_id, {name_of(copy.path): copy.topic_id})
            failed(error)

        kept_copy.mark(self._logs[tp], copy, stays_marked)

    def arrival_task(self, tp: TopicPartition) -> Callable[[], None] | None:
        """A call that has the checkpoints of the copy's directory name the log, on any thread; None once they do.

        After a crash right after the swap, recovery needs the start offset, and should not read the whole log.
        """
        arrival = self._arrivals.get(tp)
        if arrival is not None and arrival.holds:
            return None
        copy, directory = self._futures[tp]
        arrival = self._arrivals[tp] = Arrival(self._logs[tp], copy, directory)
        return partial(self._write_arrival, tp, arrival, self._points_of(directory), self._starts_of(directory))

    def finish_move(self, tp: TopicPartition, now_ms: int) -> Log:
        """Replace the partition's log by the future log, which has all its records. The tasks come first.

        After an OSError, `get` tells which of the two is in use: the old log may only not have been removed.
        """
        future, directory = self._futures[tp]
        old, old_home = self._logs[tp], self._home[tp]
        assert future.end_offset == old.end_offset
        log_path = f"{directory.path}/{tp}"
        future.close()
        for task in (self.forgetting_task(tp), self.arrival_task(tp)):
            if task is not None:
                task()
        self._free_name(tp, directory, now_ms)
        # From here on this log has the name, also where an administrator had removed the old one.
        self._unrenamed.pop(log_path, None)
        self._disk.rename(future.path, log_path)
        self._disk.sync_directory(directory.path)
        try:
            log = Log.open(
                self._disk,
                log_path,
                old.settings,
                now_ms=now_ms,
                recovery_point=old.end_offset,
                log_start_offset=old.start_offset,
                clean=True,
                cleaner_offset=old.cleaner_offset,
            )
        except OSError:
            # The old log goes on. The copy would be in the way of the next move, and of a new topic of this name.
            try:
                self._disk.rename(log_path, future.path)
                self._disk.sync_directory(directory.path)
            except OSError:
                self.left_behind.add(directory.directory_id, {str(tp): old.topic_id})
            raise
        del self._futures[tp]
        try:
            self.delete(tp, now_ms)
            self._disk.sync_directory(old_home.path)
        except OSError:
            self.left_behind.add(old_home.directory_id, {str(tp): old.topic_id})
            raise
        finally:
            # A failure of the old disk, which the move may be a flight from, takes nothing from the new log.
            self.adopt(tp, log, directory)
            # Not before, or a checkpoint that a thread writes now would lack the log. One written later finds `came`.
            self._arrivals[tp].came = log
            del self._arrivals[tp]
        with suppress(OSError):
            kept_copy.unmark(self._disk, log_path)
        return log

    def _free_name(self, tp: TopicPartition, directory: Directory, now_ms: int) -> None:
        """Before a copy has the name of its log, move aside what a move before left there: it could not be removed."""
        log_path = f"{directory.path}/{tp}"
        if self._disk.exists(log_path):
            self._disk.rename(log_path, self.aside_path(log_path, STRAY_DIRECTORY, now_ms))
            self._disk.sync_directory(directory.path)
        # Not before: without the note the next start would take it for the log.
        self.left_behind.forget(directory.directory_id, str(tp))

    def cancel_move(self, tp: TopicPartition, *, is_told: bool = False) -> None:
        """Cancel the move, if there is one. The copy, which may be large, is removed later on a thread.

        `is_told` is whether the metadata may name its target.
        """
        move = self._take_move(tp)
        if move is None:
            return
        log, directory = move
        source = self._logs.get(tp)
        if is_told:
            # Without the copy, a start without the log would make an empty one there.
            self.left_behind.add(directory.directory_id, {str(tp): log.topic_id})
        if directory.failure is not None:
            if source is not None:
                source.on_change = None
        else:
            path, aside = log.path, self.aside_path(f"{directory.path}/{tp}", DELETE_DIRECTORY, self._now_ms)
            try:
                # A copy that stays marked loses its mark before the log changes, like that of a move that goes on.
                kept_copy.unmark(self._disk, path)
                if source is not None:
                    source.on_change = None
                # Under its old name the next start would take what is left of it for a move to begin again.
                self._disk.rename(path, aside)
                path = aside
                self._disk.sync_directory(directory.path)
            except OSError as error:
                # The copy may be on another disk than the log: its failure is not that of the caller's disk.
                _log.error("cannot move %s aside; it is removed later: %s", path, error)
            self.removals.add(self._now_ms, path)

    def _take_move(self, tp: TopicPartition) -> tuple[Log, Directory] | None:
        """Take a move out of the store; its copy stays on the disk. (the copy, its directory), or None."""
        move = self._futures.pop(tp, None)
        if move is None:
            return None
        log, directory = move
        log.discard()
        arrival = self._arrivals.pop(tp, None)
        if arrival is not None:
            directory.stale.add(tp)
            directory.cleaner_stale = directory.cleaner_stale or arrival.log.cleaner_offset is not None
        return move


def name_of(path: str) -> str:
    """The name of a log's directory."""
    return path.rpartition("/")[2]
