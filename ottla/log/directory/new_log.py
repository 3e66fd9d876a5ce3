"""The creation of a log: its files on any thread, its entry in the store on the loop."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.kernel.frozen import mutable
from ottla.kernel.ids import NO_UUID, TopicPartition, Uuid
from ottla.kernel.ports import Disk
from ottla.log.checkpoint import read_topic_id
from ottla.log.directory.directory import Directory
from ottla.log.log import Log
from ottla.log.path import STRAY_DIRECTORY
from ottla.log.setting import LogSettings

if TYPE_CHECKING:
    from ottla.log.directory.store import Store


@mutable
class NewLog:
    """A log to be created: `begin` creates the files, on any thread; `adopt` adds the log to the store, on the loop."""

    _store: "Store"
    _disk: Disk
    tp: TopicPartition
    topic_id: Uuid
    _directory: Directory
    _settings: LogSettings
    _now_ms: int
    #: The deleted log that still has the name.
    _earlier: Log | None = None
    _log: Log | None = None

    @property
    def directory(self) -> str:
        """The log directory chosen for it."""
        return self._directory.path

    @property
    def failure(self) -> OSError | None:
        """The failure of its directory, perhaps since `begin`: there is nothing to adopt then."""
        return self._directory.failure

    def begin(self) -> "NewLog":
        """Create the directory and the files. Raises OSError if the disk fails; the call may be repeated."""
        self._store.forget_earlier(self.tp, self._directory)
        path = f"{self._directory.path}/{self.tp}"
        found = read_topic_id(self._disk, path)
        if NO_UUID not in (found, self.topic_id) and found != self.topic_id:
            # Left over from a deleted topic of the same name whose directory could not be renamed.
            self._disk.rename(path, self._store.aside_path(path, STRAY_DIRECTORY, self._now_ms))
            found = NO_UUID
        self._store.left_behind.forget(self._directory.directory_id, str(self.tp))
        # The topic's own log, whose directory could not be renamed when the replica went: it was never closed.
        clean = found == NO_UUID
        self._log = Log.open(self._disk, path, self._settings, now_ms=self._now_ms, clean=clean, topic_id=self.topic_id)
        return self

    def give_up(self) -> None:
        """Count the log no more: once, on the loop, if `begin` failed."""
        self._directory.load -= 1
        if self._earlier is not None and self._directory.failure is None:
            self._store.rename_later(self._earlier)

    def adopt(self) -> Log:
        """Add the log to the store."""
        assert self._log is not None, "begin comes first"
        self._directory.load -= 1
        self._store.adopt(self.tp, self._log, self._directory)
        self._directory.watermarks.pop(self.tp, None)
        return self._log


#: A log, and the error that prevented its creation (None: it was created).
CreateResult = tuple[NewLog, OSError | None]


def create_files(batch: Iterable[NewLog]) -> list[CreateResult]:
    """Create the files of these logs on a thread; the failure of one does not affect the others."""
    results: list[CreateResult] = []
    for log in batch:
        try:
            log.begin()
        except OSError as error:
            results.append((log, error))
        else:
            results.append((log, None))
    return results
