"""Offsets to commit for a group, and the identity that commits them, for consumers and transactional producers."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.columns.record import ConsumerRecord
from ottla.kernel.argument import by_partition, text_of, whole
from ottla.kernel.frozen import frozen
from ottla.kernel.ids import TopicPartition
from ottla.wire.batch import NO_LEADER_EPOCH


@frozen
class CommittedOffset:
    """A committed offset of a group's partition: the offset of the next record to read.

    `leader_epoch` is that of the record before it, or None if unknown. With it, a consumer that continues from here can
    detect that the log was truncated below the offset in the meantime (KIP-320). `metadata` is text of the program.
    """

    offset: int
    metadata: str = ""
    leader_epoch: int | None = None


#: A partition's commit: the offset of the next record to read, alone, with metadata, or as a CommittedOffset.
Commit = int | tuple[int, str] | CommittedOffset
#: Offsets by partition, or a record, to commit its partition up to and including it.
Offsets = Mapping[TopicPartition, Commit] | ConsumerRecord
#: (offset, leader epoch or -1, metadata) of a partition.
CommittedAt = tuple[int, int, str]


@frozen
class GroupMetadata:
    """A consumer's identity in its group, with which the coordinator refuses the offsets of a former member
    (KIP-447).
    """

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


def offsets_of(offsets: Offsets) -> dict[TopicPartition, CommittedAt]:
    """Offsets to commit, in their internal form; a record means the offset after it. Raises TypeError or ValueError."""
    if isinstance(offsets, ConsumerRecord):
        partition = TopicPartition(offsets.topic, offsets.partition)
        return {partition: (offsets.offset + 1, offsets.leader_epoch, "")}
    return {partition: _committed_at(at) for partition, at in by_partition(offsets, "offsets").items()}


def committed_offset(at: CommittedAt) -> CommittedOffset:
    """The public form of a committed offset."""
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
