"""A log that is about to be made: its files on any thread, its place in the store on the loop's."""

from typing import TYPE_CHECKING

from ottla.kernel.frozen import mutable
from ottla.kernel.ids import TopicPartition, Uuid
from ottla.kernel.ports import Disk
from ottla.log.directory.directory import Directory
from ottla.log.log import Log
from ottla.log.setting import LogSettings

if TYPE_CHECKING:
    from ottla.log.directory.store import Store


@mutable
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

    @property
    def directory(self) -> str:
        """The log directory that it is to be in."""
        return self._directory.path

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
            # Left over from a deleted topic of the same name.
            self._store.cleaner_task(self.tp)()
        return self._log
