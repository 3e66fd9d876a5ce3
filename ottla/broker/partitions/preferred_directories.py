"""The directories in which AlterReplicaLogDirs wants partitions that are not on this node yet."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ottla.kernel.ids import TopicPartition

#: Beyond this many the oldest wishes are dropped: a request may name partitions that never come.
_WISHES_MAX = 20_000


class PreferredDirectories:
    """Partition -> the directory in which to create it."""

    def __init__(self) -> None:
        self._wishes: dict[TopicPartition, str] = {}

    def __len__(self) -> int:
        return len(self._wishes)

    def prefer(self, tp: TopicPartition, path: str) -> None:
        """Note the directory for a partition, instead of an earlier one."""
        self._wishes.pop(tp, None)
        self._wishes[tp] = path
        if len(self._wishes) > _WISHES_MAX:
            del self._wishes[next(iter(self._wishes))]

    def take(self, partitions: Iterable[TopicPartition], online: Collection[str]) -> dict[TopicPartition, str]:
        """The directories for these partitions, which are about to be created; none that has failed."""
        wished = {tp: self._wishes.pop(tp) for tp in partitions if tp in self._wishes}
        return {tp: path for tp, path in wished.items() if path in online}
