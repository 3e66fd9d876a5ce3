"""The files of deleted logs, which are removed after `file.delete.delay.ms`.

Rules:
- A thread removes them: each log takes some 200 us, and a file of a gigabyte 40 ms.
- Directories that a thread is removing are in no list. Those that it fails to remove are put back and tried again.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.kernel.ports import Disk

#: When it is due, in ms, and the path of the directory.
Removal = tuple[int, str]


class Removals:
    """The directories of one store that are to be removed."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._waiting: list[Removal] = []
        #: Log directories whose disk has failed.
        self._failed: set[str] = set()

    def add(self, due_ms: int, path: str) -> None:
        """Have a directory removed at this time or later."""
        self._waiting.append((due_ms, path))

    def take(self, now_ms: int) -> list[Removal]:
        """Take those that are due, for `remove`."""
        due = [each for each in self._waiting if each[0] <= now_ms]
        if due:
            self._waiting = [each for each in self._waiting if each[0] > now_ms]
        return due

    def remove(self, due: Sequence[Removal]) -> list[tuple[Removal, OSError]]:
        """Remove directories, on any thread; those that stay, each with the reason."""
        left = []
        for each in due:
            try:
                self._disk.remove_tree(each[1])
            except OSError as error:
                left.append((each, error))
        return left

    def put_back(self, left: Sequence[tuple[Removal, OSError]]) -> None:
        """Have what could not be removed tried again."""
        self._waiting += [each for each, _ in left if each[1].rpartition("/")[0] not in self._failed]

    def fail(self, directory: str) -> None:
        """Leave a failed log directory alone until the next start, which removes what is left there."""
        self._failed.add(directory)
        self._waiting = [each for each in self._waiting if each[1].rpartition("/")[0] != directory]
