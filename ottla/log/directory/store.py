"""All logs of a node, in all its log directories.

Rules:
- A directory belongs to one process at a time (`.lock`), and to one node id and cluster forever (`meta.properties`).
- After a crash the logs of all directories are recovered on the threads of a pool.
- Recovery starts from the checkpoints, which are written periodically and on close. Close writes the clean shutdown
  marker last; open removes it first.
- A new log goes into the directory with the fewest logs.
- A directory whose disk fails takes only its own logs offline.
- A log that moves to another directory is copied there as `-future` (`moves.py`). A start begins the move again, unless
  the log is away: then it takes a copy that is complete (`kept_copy.py`), and keeps one whose log may lie in a failed
  directory. It takes nothing that is known to be older than the log (`left_behind.py`). A start that finds two logs of
  a partition takes the one with the latest leader epoch, then the longer one, then the one in the directory that the
  metadata names, and moves the other aside (`-stray`).
"""

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import METADATA_TOPIC, NO_UUID, TopicPartition, Uuid
from ottla.log import checkpoint
from ottla.log.directory import kept_copy
from ottla.log.directory.closing import close_logs
from ottla.log.directory.directory import Directory, LockingDisk
from ottla.log.directory.moves import Copy, Moves, name_of
from ottla.log.directory.new_log import NewLog
from ottla.log.directory.opening import Opening, PendingLogs, await_logs, begin, read_checkpoints, sort_copies
from ottla.log.directory.removals import Removal
from ottla.log.log import Log
from ottla.log.path import DELETE_DIRECTORY, FUTURE_DIRECTORY, STRAY_DIRECTORY, parse_partition_name
from ottla.log.setting import LogSettings

_log = logging.getLogger("ottla.log")
_TEMPORARY = re.compile(rf".+\.[0-9a-f]{{32}}({DELETE_DIRECTORY}|{FUTURE_DIRECTORY}|{STRAY_DIRECTORY})")


class Store(Moves):
    """The logs of a node. `Store.open` creates it; the node closes it."""

    def __init__(self, disk: LockingDisk, settings_of: Callable[[TopicPartition], LogSettings]) -> None:
        super().__init__(disk)
        self._settings_of = settings_of
        #: The logs that are away, with their topic ids, although the metadata may name a directory that is not.
        self._elsewhere: set[tuple[TopicPartition, Uuid]] = set()
        #: Have all logs been opened? Before that, `close` writes no checkpoints.
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
        """Lock and check the directories, and open every log. Raises OttlaError if a directory is not usable."""
        store = cls.take(disk, dirs, node_id=node_id, cluster_id=cluster_id, settings_of=settings_of)
        try:
            store.load(now_ms)
        except BaseException:
            store._release()
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
        metadata_dir: str | None = None,
    ) -> "Store":
        """Lock and check the directories. `load` opens the logs, once the settings of the topics are known.

        `metadata_dir` is the directory of the metadata log, which may be none of `dirs`.
        """
        store = cls(disk, settings_of)
        try:
            store._lock_all(disk, dirs, node_id, cluster_id, metadata_dir)
        except BaseException:
            store._release()
            raise
        return store

    def load(
        self,
        now_ms: int,
        progress: Callable[[Opening], None] | None = None,
        pool: Executor | None = None,
        named: Callable[[TopicPartition], str | None] = lambda _: None,
        topic_id_of: Callable[[str], Uuid | None] = lambda _: None,
    ) -> None:
        """Open every log in the directories, on the threads of `pool` after an unclean shutdown.

        `progress` is called on the thread that makes it. `named` gives the id (text) of the directory that the metadata
        names for a partition, or None; `topic_id_of` the id of a topic by its name, as in `sort_copies`.
        """
        self._now_ms = now_ms
        if self.works(self._metadata_path):
            self.left_behind.read(self._metadata_path)
        begun: list[tuple[Directory, PendingLogs]] = []
        for directory in self._online():
            try:
                read_checkpoints(self._disk, directory)
                partitions = [(tp, where, self._settings_of(tp)) for tp, where in self._partitions_in(directory)]
                begun.append((directory, begin(self._disk, directory, partitions, now_ms, progress, pool)))
            except OSError as error:
                self.fail(directory.path, error)
        found_logs: dict[TopicPartition, list[tuple[Log, Directory]]] = {}
        for directory, logs in begun:
            try:
                for tp, log in await_logs(logs):
                    found_logs.setdefault(tp, []).append((log, directory))
            except OSError as error:
                self.fail(directory.path, error)
        for tp, copies in found_logs.items():
            sort_copies(tp, copies, named, topic_id_of(tp.topic))
            self._choose(tp, copies, named)
        for directory in self._directories:
            if directory.failure is not None:
                # The directory failed at one log, perhaps after others of it were adopted.
                self.fail(directory.path, directory.failure)
        self._settle_copies(named)
        self._settle_names(named)
        for directory in self._online():
            known = {*directory.points, *directory.starts, *directory.watermarks, *directory.cleaner_offsets}
            directory.stale = {tp for tp in known if self._home.get(tp) is not directory}
            directory.cleaner_stale = not directory.stale.isdisjoint(directory.cleaner_offsets)
        self._loaded = True

    # ---- queries

    def directory_of(self, tp: TopicPartition) -> str:
        """The log directory that holds a partition."""
        return self._home[tp].path

    def logs(self) -> dict[TopicPartition, Log]:
        return dict(self._logs)

    def get(self, tp: TopicPartition) -> Log | None:
        return self._logs.get(tp)

    def was_moving(self, tp: TopicPartition, topic_id: Uuid) -> bool:
        """Whether the log may lie where the metadata does not say, because the last run did not finish a move of it.

        An earlier topic may have had the name.
        """
        if not self._elsewhere.isdisjoint(((tp, NO_UUID), (tp, topic_id))):
            return True
        if tp not in self.unfinished_moves:
            return False
        return any(each == tp and of in (NO_UUID, topic_id) for each, of, _, _ in self._copies)

    def forget_move(self, tp: TopicPartition, topic_id: Uuid) -> None:
        """Have `was_moving` forget a log that is away, because this node is to have none of the partition."""
        # Called for each partition of a topic without a replica on this node.
        if (self.unfinished_moves or self._elsewhere) and tp not in self._logs:
            self.unfinished_moves.pop(tp, None)
            self._elsewhere -= {(tp, NO_UUID), (tp, topic_id)}

    def checkpointed_high_watermark(self, tp: TopicPartition) -> int | None:
        """The high watermark in `replication-offset-checkpoint` at startup."""
        return self._home[tp].watermarks.get(tp) if tp in self._home else None

    # ---- changes

    def create(self, topic: str, topic_id: Uuid, partition: int) -> Log:
        """The partition's log, created if missing. Raises INCONSISTENT_TOPIC_ID if it belongs to another topic id."""
        tp = TopicPartition(topic, partition)
        log = self.get(tp)
        if log is not None:
            if NO_UUID not in (log.topic_id, topic_id) and log.topic_id != topic_id:
                raise KafkaError(
                    ErrorCode.INCONSISTENT_TOPIC_ID, f"the log of {tp} belongs to another topic of that name"
                )
            return log
        return self.plan([tp], topic_id)[0].begin().adopt()

    def plan(
        self,
        partitions: Sequence[TopicPartition],
        topic_id: Uuid,
        preferred: Mapping[TopicPartition, str] | None = None,
        avoid: Sequence[str] = (),
    ) -> list["NewLog"]:
        """Choose the directories of new logs: the preferred one, or the one with the fewest logs.

        The directories in `avoid` are used only if there are no others.
        """
        online = [directory for directory in self._online() if directory.path not in avoid] or self._online()
        planned = []
        for tp in partitions:
            path = (preferred or {}).get(tp)
            directory = min(online, key=lambda each: each.load) if path is None else self._directory(path)
            directory.load += 1
            earlier = self._unrenamed.pop(f"{directory.path}/{tp}", None)
            settings = self._settings_of(tp)
            planned.append(NewLog(self, self._disk, tp, topic_id, directory, settings, self._now_ms, earlier))
        return planned

    def fail(self, path: str, error: OSError) -> list[TopicPartition]:
        """Take a directory offline until the next start; the partitions whose logs are lost with it."""
        directory = self._directory(path)
        directory.failure = error
        marked = []
        for tp in [tp for tp, (_, home) in self._futures.items() if home is directory]:
            copy, log = self._futures[tp][0], self._logs[tp]
            if log.on_change is not None:
                marked.append(copy)
            self._take_move(tp)
            log.on_change = None
        self.left_behind.add(directory.directory_id, {name_of(copy.path): copy.topic_id for copy in marked})
        lost = [tp for tp, home in self._home.items() if home is directory]
        for tp in lost:
            # The copy stays: the metadata may name its directory, and without it a start would make an empty log there.
            self._take_move(tp)
            del self._home[tp]
            log = self._logs.pop(tp)
            log.on_change = None
            log.discard()
        self.removals.fail(path)
        self._unrenamed = {each: log for each, log in self._unrenamed.items() if each.rpartition("/")[0] != path}
        return lost

    def distrust(self, path: str, error: OSError) -> None:
        """Have the next start check the logs of a directory, however the node stops: its disk has failed."""
        self._directory(path).distrust = error

    def release(self, tp: TopicPartition) -> None:
        """Drop a log from the store and close it; its directory stays."""
        log = self._drop(tp)
        for segment in log.segments:
            segment.close()
        log.discard()

    def delete_strays(
        self, is_stray: Callable[[TopicPartition, Log], bool], failed: Callable[[str, OSError], None]
    ) -> list[TopicPartition]:
        """Move aside the logs that the metadata does not assign to this node; their partitions.

        `failed` is called with the path of a directory whose disk fails at that; its strays stay until the next start.
        """
        strays = sorted(tp for tp, log in self._logs.items() if is_stray(tp, log))
        by_home: dict[str, list[TopicPartition]] = {}
        for tp in strays:
            by_home.setdefault(self._home[tp].path, []).append(tp)
        for directory, partitions in by_home.items():
            try:
                for tp in partitions:
                    self.set_aside(tp)
                # After a crash, a new topic of the same name must not find the old log.
                self._disk.sync_directory(directory)
            except OSError as error:
                _log.error("cannot move strays in %s aside: %s", directory, error)
                failed(directory, error)
        return strays

    def set_aside(self, tp: TopicPartition) -> None:
        """Move a log aside as `-stray`. Its files stay for an administrator to inspect."""
        log = self._drop(tp)
        try:
            log.close()
        except OSError as error:
            # An administrator may miss the last records, if the machine crashes; no client does.
            _log.warning("cannot close %s: %s", log.path, error)
            log.discard()
        self._disk.rename(log.path, self.aside_path(log.path, STRAY_DIRECTORY, self._now_ms))

    def take_deleted(self, now_ms: int) -> list[Removal]:
        """The directories of deleted logs whose delay has passed, for `removals.remove` on a thread."""
        self._now_ms = max(self._now_ms, now_ms)
        return self.removals.take(now_ms)

    def remove_deleted(self, now_ms: int) -> None:
        """Remove the files of deleted logs and segments whose delay has passed. OSError at the end if some stay."""
        left = self.removals.remove(self.take_deleted(now_ms))
        self.removals.put_back(left)
        failures = [error for _, error in left]
        for log in self._logs.values():
            try:
                log.remove_deleted(now_ms)
            except OSError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    # ---- durability

    def checkpoint(self, now_ms: int) -> None:
        """Write the recovery points, start offsets and high watermarks of all logs."""
        self.remove_deleted(now_ms)
        for task in self.checkpoint_tasks():
            task()

    def close(self, broker_epoch: int = -1, pool: Executor | None = None) -> None:
        """Flush and close all logs, write the checkpoints and the clean shutdown marker, release the locks.

        The threads of `pool`, if there is one, sync the logs in parallel. A directory whose disk takes less than all of
        this gets no marker, and one line in the log: its next start recovers, as after a crash.
        The marker has the epoch of the broker's registration, by which the controller recognizes a clean restart
        (KIP-966).
        """
        if not self._loaded:
            return self._release()
        try:
            self._sync_names()
            failed = close_logs([(log, self._home[tp]) for tp, log in self._logs.items()], pool)
            for directory in self._online():
                self._mark_clean(directory, failed.get(directory), broker_epoch)
        finally:
            self._release()

    def _mark_clean(self, directory: Directory, failed: tuple[Log, BaseException] | None, broker_epoch: int) -> None:
        """Write the checkpoints and the marker, unless a log of the directory could not be closed."""
        what = directory.path
        try:
            if directory.distrust is not None:
                raise directory.distrust
            if failed is not None:
                what = failed[0].path
                raise failed[1]
            self._checkpoint_task(directory)()
            checkpoint.write_clean_shutdown(self._disk, directory.path, broker_epoch)
        except OSError as error:
            why = "cannot write what a clean stop adds to %s: %s; the next start checks the logs in %s"
            _log.error(why, what, error, directory.path)

    def _sync_names(self) -> None:
        """Sync the parents of all new logs, once each; if that fails, each log tries again and reports the error."""
        new = [(log, self._home[tp]) for tp, log in self._logs.items() if log.parent_dirty]
        for directory in {home.path: home for _, home in new}.values():
            with suppress(OSError):
                self._disk.sync_directory(directory.path)
                for log, home in new:
                    log.parent_dirty = log.parent_dirty and home is not directory

    def abandon(self) -> None:
        """Close without writing anything, like a crash: the next start recovers."""
        for log in self._logs.values():
            log.discard()
        self._release()

    # ---- opening

    def _partitions_in(self, directory: Directory) -> list[tuple[TopicPartition, str]]:
        """The partitions' directories in a log directory. Removes deleted logs."""
        disk, path, partitions = self._disk, directory.path, []
        for name in disk.list(path):
            log_path = f"{path}/{name}"
            if _TEMPORARY.fullmatch(name):
                moved = parse_partition_name(name.rpartition(".")[0]) if name.endswith(FUTURE_DIRECTORY) else None
                if moved is not None and disk.is_directory(log_path):
                    self._copies.append((moved, kept_copy.topic_id(disk, log_path), log_path, directory))
                elif not name.endswith(STRAY_DIRECTORY) and disk.is_directory(log_path):
                    disk.remove_tree(log_path)
                continue
            tp = parse_partition_name(name)
            if tp is not None and tp.topic != METADATA_TOPIC and disk.is_directory(log_path):
                partitions.append((tp, log_path))
        return partitions

    def _choose(
        self,
        tp: TopicPartition,
        copies: list[tuple[Log, Directory]],
        named: Callable[[TopicPartition], str | None],
    ) -> None:
        """Adopt the log of a partition; of several, the last one."""
        log, directory = copies[-1]
        are_older = all(
            self.left_behind.has(home.directory_id, str(tp), each.topic_id)
            for each, home in copies
            if each.topic_id in (NO_UUID, log.topic_id)
        )
        if are_older and (self.failed_directories or named(tp) not in (None, directory.directory_id)):
            _log.error("%s lacks the latest records of its partition, whose log is away: not used", log.path)
            for other, _ in copies:
                other.discard()
            return
        copies.pop()
        self.adopt(tp, log, directory)
        for other, home in copies:
            other.discard()
            aside = self.aside_path(other.path, STRAY_DIRECTORY, self._now_ms)
            try:
                self._disk.rename(other.path, aside)
                self._disk.sync_directory(home.path)
            except OSError as error:
                self.left_behind.add(home.directory_id, {str(tp): other.topic_id})
                self.fail(home.path, error)
            else:
                _log.warning("%s has logs in two directories: using %s, moved the other to %s", tp, log.path, aside)

    def _settle_copies(self, named: Callable[[TopicPartition], str | None]) -> None:
        """Adopt the complete copies of the logs that are away; find the moves to begin again, and remove the others."""
        # By the time in their names: of several moves of a log the last one goes on.
        self._copies.sort(key=lambda copy: copy[2].rpartition(".")[2])
        self.unfinished_moves = {tp: directory.path for tp, _, _, directory in self._copies}
        # Only then is it known which logs are away.
        for settle in (self._take_copy, self._leave_copy):
            for copy in self._copies:
                tp, topic_id, path, directory = copy
                if directory.failure is None:
                    is_named = named(tp) == directory.directory_id
                    try:
                        settle(copy, is_named)
                    except OSError as error:
                        if tp in self._logs or not is_named:
                            self.left_behind.add(directory.directory_id, {name_of(path): topic_id})
                        self.fail(directory.path, error)

    def _take_copy(self, copy: Copy, is_named: bool) -> None:
        """Adopt a complete copy that the metadata names, if its log is away."""
        tp, _, path, directory = copy
        if tp in self._logs or not self._may_take(copy, is_named) or not kept_copy.is_marked(self._disk, path):
            return
        self._free_name(tp, directory, self._now_ms)
        log = kept_copy.take(self._disk, tp, path, directory, self._settings_of(tp), self._now_ms)
        if log is not None:
            _log.warning("the log of %s is away: using its complete copy in %s", tp, directory.path)
            self.adopt(tp, log, directory)
            del self.unfinished_moves[tp]
        elif not self.failed_directories:
            self._disk.rename(path, self.aside_path(path, STRAY_DIRECTORY, self._now_ms))

    def _leave_copy(self, copy: Copy, is_named: bool) -> None:
        """Have no start take a copy that was not taken: the log may go on without it, or by another copy.

        While the log may lie in a failed directory, every start must know of the move; if it is here, until the move
        has begun again.
        """
        tp, topic_id, path, directory = copy
        is_here = tp in self._logs
        if (is_here or not self._may_take(copy, is_named)) and kept_copy.is_marked(self._disk, path):
            kept_copy.unmark(self._disk, path)
        if is_here and self.unfinished_moves.get(tp) == directory.path == self._home[tp].path:
            # The move has ended by another copy, and does not begin again.
            del self.unfinished_moves[tp]
        stays = self.unfinished_moves.get(tp) == directory.path if is_here else bool(self.failed_directories)
        if not stays:
            if is_named and not is_here:
                # Its disk was replaced. Without the copy, the next start would make an empty log here.
                self.left_behind.add(directory.directory_id, {str(tp): topic_id})
            self._disk.remove_tree(path)

    def _may_take(self, copy: Copy, is_named: bool) -> bool:
        _, topic_id, path, directory = copy
        return is_named and not self.left_behind.has(directory.directory_id, name_of(path), topic_id)

    def _settle_names(self, named: Callable[[TopicPartition], str | None]) -> None:
        """Forget the names that say nothing any more; learn from the others which logs are away."""
        online = {directory.directory_id: directory for directory in self._online()}
        for directory_id, name, topic_id in self.left_behind.names():
            tp, directory = parse_partition_name(name), online.get(directory_id)
            if tp is None:
                # A copy, which is unmarked by now.
                is_over = directory is not None
            elif tp in self._logs:
                is_over = directory is not None and (self._home[tp] is directory or named(tp) != directory_id)
            else:
                is_over = not self.failed_directories and named(tp) is None
                if not is_over:
                    self._elsewhere.add((tp, topic_id))
            if is_over:
                with suppress(OSError):
                    # The next start tries again.
                    self.left_behind.forget(directory_id, name)

    def _release(self) -> None:
        self._release_locks()
        self._logs = {}
