"""What can be committed for a group, and by whom. Consumers commit it, and producers within a transaction."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.columns.record import ConsumerRecord
from ottla.kernel.argument import by_partition, text_of, whole
from ottla.kernel.frozen import frozen
from ottla.kernel.ids import TopicPartition
from ottla.wire.batch import NO_LEADER_EPOCH


@frozen
class CommittedOffset:
    """What a group has committed, or commits, for a partition: the offset of the next record to read.

    `leader_epoch` is that of the record before it, None where it is not known. A consumer that goes on from here finds
    out by it whether the log was cut below the offset meanwhile (KIP-320).
    """

    offset: int
    metadata: str = ""
    leader_epoch: int | None = None


#: What a program gives for a partition: the offset of the next record to read, alone, with metadata, or with its epoch.
Commit = int | tuple[int, str] | CommittedOffset
#: The offsets of partitions, or a record: all of its partition up to it.
Offsets = Mapping[TopicPartition, Commit] | ConsumerRecord
#: (offset, leader epoch or -1, metadata) of a partition.
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


def committed_offset(at: CommittedAt) -> CommittedOffset:
    """The same as programs see it."""
    offset, epoch, metadata = at
    return CommittedOffset(offset, metadata, None if epoch < 0 else epoch)


def _committed_at(at: object) -> CommittedAt:
    if isinstance(at, CommittedOffset):
        epoch = NO_LEADER_EPOCH if at.leader_epoch is None else whole(at.leader_epoch, "a leader epoch", 0, 1 << 31)
        return whole(at.offset, "an offset to commit", 0), epoch, text_of(at.metadata, "a commit's metadata")
    if isinstance(at, tuple) and len(at) == 2:
        offset, metadata = at
        return whole(offset, "an offset to commit", 0), NO_LEADER_EPOCH, text_of(metadata, "a commit's metadata")
    return whole(at, "an offset to commit", 0), NO_LEADER_EPOCH, ""
