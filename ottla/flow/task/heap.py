"""A binary heap that breaks ties like java.util.PriorityQueue, to reproduce Kafka Streams' record order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Heap(Generic[T]):
    """A heap ordered by `key`, whose result must not change while an item is in the heap."""

    def __init__(self, key: Callable[[T], Any]) -> None:
        self._key = key
        self._items: list[tuple[Any, T]] = []

    def __len__(self) -> int:
        return len(self._items)

    def offer(self, item: T) -> None:
        """Add an item."""
        items, entry = self._items, (self._key(item), item)
        items.append(entry)
        at = len(items) - 1
        while at > 0:
            parent = (at - 1) // 2
            if entry[0] >= items[parent][0]:
                break
            items[at] = items[parent]
            at = parent
        items[at] = entry

    def poll(self) -> T:
        """Remove and return the least item. IndexError if the heap is empty."""
        items = self._items
        first, last = items[0], items.pop()
        if items:
            at, size = 0, len(items)
            while (child := 2 * at + 1) < size:
                if child + 1 < size and items[child][0] > items[child + 1][0]:
                    child += 1
                if last[0] <= items[child][0]:
                    break
                items[at] = items[child]
                at = child
            items[at] = last
        return first[1]
