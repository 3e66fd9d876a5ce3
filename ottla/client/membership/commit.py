"""What can be committed for a group, and by whom. Consumers commit it, and producers within a transaction."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.columns.record import ConsumerRecord
from ottla.kernel.argument import by_partition, text_of, whole
from ottla.kernel.frozen import frozen
from ottla.kernel.ids import TopicPartition

#: What a program gives for a partition: the offset of the next record to read, alone or with metadata.
Commit = int | tuple[int, str]
#: The offsets of partitions, or a record: all of its partition up to it.
Offsets = Mapping[TopicPartition, Commit] | ConsumerRecord
#: (offset, leader epoch, metadata) of a partition.
CommittedAt = tuple[int, int, str]


@frozen
class GroupMetadata:
    """A consumer as its group knows it; offsets in a transaction are refused when it is no longer a member."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


def offsets_of(offsets: Offsets) -> dict[TopicPartition, CommittedAt]:
    """Offsets to commit, in one form; a record stands for the offset after it. TypeError, ValueError."""
    if isinstance(offsets, ConsumerRecord):
        partition = TopicPartition(offsets.topic, offsets.partition)
        return {partition: (offsets.offset + 1, offsets.leader_epoch, "")}
    return {one: _committed_at(at) for one, at in by_partition(offsets, "offsets").items()}


def _committed_at(at: object) -> CommittedAt:
    if isinstance(at, tuple) and len(at) == 2:
        offset, metadata = at
        return whole(offset, "an offset to commit", 0), -1, text_of(metadata, "a commit's metadata")
    return whole(at, "an offset to commit", 0), -1, ""
