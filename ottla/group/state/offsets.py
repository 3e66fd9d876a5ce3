"""The committed offsets of all groups of a partition, and the pending ones of open transactions.

Rules:
- Between a transactional and a plain commit to the same partition the later one in the log wins, whenever the
  transaction ends: compaction may have kept either.
- A tombstone also removes the pending offsets of the partition.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from ottla.kernel.frozen import frozen
from ottla.kernel.ids import NO_UUID, Uuid


@frozen
class Committed:
    """A committed offset, as in its record."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    #: Set only by old clients (OffsetCommit 2-4); -1 otherwise.
    expire_timestamp_ms: int = -1
    #: NO_UUID in records of old brokers and of clients that commit by topic name.
    topic_id: Uuid = NO_UUID
    #: The offset of the record in the log.
    record_offset: int = -1


#: Topic name -> partition -> offset.
TopicOffsets = dict[str, dict[int, Committed]]


@dataclass(slots=True)
class OffsetStore:
    """The offsets. Only replay changes them."""

    #: By group id.
    committed: dict[str, TopicOffsets] = field(default_factory=dict)
    #: Producer id -> group id -> the offsets of its open transaction.
    pending: dict[int, dict[str, TopicOffsets]] = field(default_factory=dict)
    #: Group id -> (topic, partition) -> the producers with a pending offset; no level is ever empty.
    open: dict[str, dict[tuple[str, int], dict[int, None]]] = field(default_factory=dict)

    def get(self, group_id: str, topic: str, partition: int) -> Committed | None:
        return self.committed.get(group_id, {}).get(topic, {}).get(partition)

    def has_pending(self, group_id: str, topic: str, partition: int) -> bool:
        return (topic, partition) in self.open.get(group_id, {})

    def of_group(self, group_id: str) -> TopicOffsets:
        return self.committed.get(group_id, {})

    def pending_partitions(self, group_id: str) -> list[tuple[str, int]]:
        return list(self.open.get(group_id, {}))

    def all_partitions(self, group_id: str) -> Iterator[tuple[str, int]]:
        """Every partition with a committed or pending offset, once."""
        offsets = self.of_group(group_id)
        for topic, partitions in offsets.items():
            for partition in partitions:
                yield topic, partition
        for topic, partition in self.open.get(group_id, {}):
            if partition not in offsets.get(topic, {}):
                yield topic, partition

    # -- replay

    def put(self, group_id: str, topic: str, partition: int, committed: Committed, producer_id: int = -1) -> None:
        if producer_id == -1:
            _put(self.committed, group_id, topic, partition, committed)
        else:
            _put(self.pending.setdefault(producer_id, {}), group_id, topic, partition, committed)
            self.open.setdefault(group_id, {}).setdefault((topic, partition), {})[producer_id] = None

    def remove(self, group_id: str, topic: str, partition: int) -> None:
        _drop(self.committed, group_id, topic, partition)
        producers = self.open.get(group_id, {}).pop((topic, partition), None)
        if producers is None:
            return
        if not self.open[group_id]:
            del self.open[group_id]
        for producer_id in producers:
            pending = self.pending[producer_id]
            _drop(pending, group_id, topic, partition)
            if not pending:
                del self.pending[producer_id]

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """Apply a transaction's marker: its offsets become committed or are dropped."""
        for group_id, topics in self.pending.pop(producer_id, {}).items():
            for topic, partitions in topics.items():
                for partition, value in partitions.items():
                    self._release(group_id, topic, partition, producer_id)
                    present = self.get(group_id, topic, partition)
                    if committed and (present is None or value.record_offset > present.record_offset):
                        _put(self.committed, group_id, topic, partition, value)

    def _release(self, group_id: str, topic: str, partition: int, producer_id: int) -> None:
        held = self.open[group_id]
        producers = held[topic, partition]
        del producers[producer_id]
        if not producers:
            del held[topic, partition]
        if not held:
            del self.open[group_id]

    def validate(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        held: dict[str, dict[tuple[str, int], set[int]]] = {}
        for producer_id, groups in self.pending.items():
            assert groups
            for group_id, topics in groups.items():
                assert topics
                for topic, partitions in topics.items():
                    assert partitions
                    for partition in partitions:
                        held.setdefault(group_id, {}).setdefault((topic, partition), set()).add(producer_id)
        assert held == {
            group_id: {key: set(producers) for key, producers in partitions.items()}
            for group_id, partitions in self.open.items()
        }
        assert all(partitions for topics in self.committed.values() for partitions in topics.values())
        assert all(self.committed.values())


def _put(groups: dict[str, TopicOffsets], group_id: str, topic: str, partition: int, value: Committed) -> None:
    groups.setdefault(group_id, {}).setdefault(topic, {})[partition] = value


def _drop(groups: dict[str, TopicOffsets], group_id: str, topic: str, partition: int) -> None:
    topics = groups.get(group_id, {})
    partitions = topics.get(topic, {})
    if partitions.pop(partition, None) is None:
        return
    if not partitions:
        del topics[topic]
    if not topics:
        del groups[group_id]
