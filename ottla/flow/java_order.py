"""The iteration orders of Java collections that Kafka Streams' text exposes: HashSet, and TreeSet with a comparison
that changes while the set grows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any


def java_set(names: Iterable[str]) -> list[str]:
    """The names in the iteration order of a java.util.HashSet that they are added to one after another."""
    names = list(dict.fromkeys(names))
    size = 16
    while len(names) > size * 3 // 4:
        size *= 2
    buckets: dict[int, list[str]] = {}
    for name in names:
        code = java_hash(name)
        buckets.setdefault((code ^ code >> 16) & (size - 1), []).append(name)
    return [name for bucket in sorted(buckets) for name in buckets[bucket]]


def java_hash(text: str) -> int:
    """Java's String.hashCode() as an unsigned 32-bit number."""
    code = 0
    data = text.encode("utf-16-be")
    for at in range(0, len(data), 2):
        code = (31 * code + int.from_bytes(data[at : at + 2], "big")) & 0xFFFFFFFF
    return code


class _Entry:
    __slots__ = ("left", "name", "parent", "red", "right")

    def __init__(self, name: str, parent: _Entry | None) -> None:
        self.name = name
        self.parent = parent
        self.left: _Entry | None = None
        self.right: _Entry | None = None
        self.red = True


class TreeSet:
    """A java.util.TreeSet: a red-black tree that compares by the current results of `rank`."""

    def __init__(self, rank: Callable[[str], Any]) -> None:
        self._rank = rank
        self._root: _Entry | None = None

    def __iter__(self) -> Iterator[str]:
        def walk(entry: _Entry | None) -> Iterator[str]:
            if entry is not None:
                yield from walk(entry.left)
                yield entry.name
                yield from walk(entry.right)

        return walk(self._root)

    def add(self, name: str) -> None:
        """Add a string, unless the descent meets it."""
        parent, entry = None, self._root
        while entry is not None:
            if entry.name == name:
                return
            parent = entry
            entry = entry.left if self._rank(name) < self._rank(entry.name) else entry.right
        added = _Entry(name, parent)
        if parent is None:
            self._root = added
        elif self._rank(name) < self._rank(parent.name):
            parent.left = added
        else:
            parent.right = added
        self._balance(added)

    def _balance(self, entry: _Entry) -> None:
        # The color of the root does not matter: nothing looks at it.
        while entry.parent is not None and entry.parent.red and entry.parent.parent is not None:
            parent, above = entry.parent, entry.parent.parent
            is_left = parent is above.left
            uncle = above.right if is_left else above.left
            if uncle is not None and uncle.red:
                parent.red = uncle.red = False
                above.red = True
                entry = above
                continue
            if entry is (parent.right if is_left else parent.left):
                self._rotate(parent, to_left=is_left)
                entry, parent = parent, entry
            parent.red, above.red = False, True
            self._rotate(above, to_left=not is_left)

    def _rotate(self, entry: _Entry, *, to_left: bool) -> None:
        up = entry.right if to_left else entry.left
        assert up is not None
        inner = up.left if to_left else up.right
        if to_left:
            entry.right, up.left = inner, entry
        else:
            entry.left, up.right = inner, entry
        if inner is not None:
            inner.parent = entry
        up.parent = entry.parent
        if entry.parent is None:
            self._root = up
        elif entry.parent.left is entry:
            entry.parent.left = up
        else:
            entry.parent.right = up
        entry.parent = up
