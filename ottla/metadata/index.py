"""The partitions by broker, directory and state, so that a decision costs only what it touches.

Rules:
- The index is separate from the images: the active controller creates one and calls `follow` with the image that it
  decides on. It is never stored.
- `follow` costs what differs: topics that are the same object in both images are skipped.
- Results are sorted by (topic id, partition), so that the order does not depend on the index's history.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from ottla.kernel.ids import Uuid
from ottla.kernel.named import NamedTuple
from ottla.metadata.image import NO_LEADER, Image, PartitionImage, TopicImage


class PartitionKey(NamedTuple):
    """A partition by its topic's id."""

    topic_id: Uuid
    partition: int


_Key = TypeVar("_Key")
_Sets = dict[_Key, set[PartitionKey]]


class PartitionIndex:
    """The partitions of one image by ISR member, ELR member, leader, directory and state."""

    def __init__(self, image: Image) -> None:
        self._image = Image.empty()
        self._isr: _Sets[int] = {}
        self._elr: _Sets[int] = {}
        #: By leader; leaderless partitions under NO_LEADER.
        self._led: _Sets[int] = {}
        self._directories: _Sets[Uuid] = {}
        self._unpreferred: set[PartitionKey] = set()
        self._reassigning: set[PartitionKey] = set()
        self.follow(image)

    def follow(self, image: Image) -> None:
        """Update the index to this image."""
        old, self._image = self._image, image
        for name in image.touched_topics(old):
            before, after = old.topics.get(name), image.topics.get(name)
            if before is not after:
                self._topic(before, after)

    def in_isr(self, broker_id: int) -> list[PartitionKey]:
        """Return the partitions that have the broker in their ISR."""
        return sorted(self._isr.get(broker_id, ()))

    def in_elr(self, broker_id: int) -> list[PartitionKey]:
        """Return the partitions that have the broker among their eligible leader replicas."""
        return sorted(self._elr.get(broker_id, ()))

    def leaderless(self) -> list[PartitionKey]:
        """Return the partitions without a leader."""
        return sorted(self._led.get(NO_LEADER, ()))

    def leads(self, broker_id: int) -> bool:
        """Return True if the broker leads any partition."""
        return bool(self._led.get(broker_id))

    def in_directory(self, directory: Uuid) -> list[PartitionKey]:
        """Return the partitions with a replica in the directory."""
        return sorted(self._directories.get(directory, ()))

    def unpreferred(self) -> list[PartitionKey]:
        """Return the partitions that their first replica does not lead."""
        return sorted(self._unpreferred)

    def reassigning(self) -> list[PartitionKey]:
        """Return the partitions with an ongoing reassignment."""
        return sorted(self._reassigning)

    def validate(self) -> None:
        """Assert that the index equals a fresh one. For tests: it visits everything."""
        fresh = PartitionIndex(self._image)
        for name in ("_isr", "_elr", "_led", "_directories", "_unpreferred", "_reassigning"):
            assert getattr(fresh, name) == getattr(self, name), name

    def _topic(self, before: TopicImage | None, after: TopicImage | None) -> None:
        if before is None or after is None or before.topic_id != after.topic_id:
            for topic, sign in ((before, self._drop), (after, self._add)):
                for index, partition in enumerate(topic.partitions if topic is not None else ()):
                    assert topic is not None
                    sign(PartitionKey(topic.topic_id, index), partition)
            return
        for index, partition in enumerate(after.partitions):
            old = before.partitions[index] if index < len(before.partitions) else None
            if old is not partition:
                key = PartitionKey(after.topic_id, index)
                if old is not None:
                    self._drop(key, old)
                self._add(key, partition)

    def _add(self, key: PartitionKey, partition: PartitionImage) -> None:
        _put(self._isr, partition.isr, key)
        _put(self._elr, partition.eligible_leader_replicas, key)
        _put(self._led, (partition.leader,), key)
        _put(self._directories, partition.directories, key)
        if partition.leader != partition.replicas[0]:
            self._unpreferred.add(key)
        if partition.is_reassigning:
            self._reassigning.add(key)

    def _drop(self, key: PartitionKey, partition: PartitionImage) -> None:
        _take(self._isr, partition.isr, key)
        _take(self._elr, partition.eligible_leader_replicas, key)
        _take(self._led, (partition.leader,), key)
        _take(self._directories, partition.directories, key)
        self._unpreferred.discard(key)
        self._reassigning.discard(key)


def _put(sets: _Sets[_Key], names: Iterable[_Key], key: PartitionKey) -> None:
    for name in names:
        sets.setdefault(name, set()).add(key)


def _take(sets: _Sets[_Key], names: Iterable[_Key], key: PartitionKey) -> None:
    for name in names:
        keys = sets.get(name)
        if keys is not None:
            keys.discard(key)
            if not keys:
                del sets[name]
