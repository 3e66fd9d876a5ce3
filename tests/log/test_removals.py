"""Directories of deleted logs: each is removed once it is due, and again if that failed, unless its disk is away."""

from __future__ import annotations

import errno
from typing import Any

from ottla.log.directory.removals import Removals


class _Disk:
    def __init__(self, *refused: str) -> None:
        self.refused, self.removed = set(refused), list[str]()

    def remove_tree(self, path: str) -> None:
        if path in self.refused:
            raise OSError(errno.EMFILE, "too many open files")
        self.removed.append(path)


def _removals(disk: Any) -> Removals:
    return Removals(disk)


def test_what_a_thread_removes_is_in_no_list_and_what_stays_comes_back() -> None:
    disk = _Disk("/b/u-0")
    removals = _removals(disk)
    for due_ms, path in ((5, "/a/t-0"), (6, "/b/u-0"), (7, "/a/v-0")):
        removals.add(due_ms, path)
    assert not removals.take(4)
    due = removals.take(6)
    assert due == [(5, "/a/t-0"), (6, "/b/u-0")] and not removals.take(6)
    left = removals.remove(due)
    assert disk.removed == ["/a/t-0"] and [each for each, _ in left] == [(6, "/b/u-0")]
    removals.put_back(left)
    assert removals.take(7) == [(7, "/a/v-0"), (6, "/b/u-0")]


def test_a_failed_directory_is_left_alone_also_by_what_a_thread_comes_back_with() -> None:
    disk = _Disk("/a/t-0", "/ab/u-0")
    removals = _removals(disk)
    for path in ("/a/t-0", "/ab/u-0", "/a/v-0"):
        removals.add(5 if path != "/a/v-0" else 9, path)
    left = removals.remove(removals.take(5))
    removals.fail("/a")
    removals.put_back(left)
    assert removals.take(9) == [(5, "/ab/u-0")]
