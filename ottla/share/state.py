"""The stored state of one share partition: its start offset and the states of the records from there on.

Rules:
- Acquired records are not stored, so after a crash they are delivered again.
- If two batches overlap, the one with the higher delivery count wins; at equal counts, the one with the later state
  (available, acknowledged, archived).
- Batches below the start offset are dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import IntEnum
from itertools import pairwise

from ottla.kernel.frozen import frozen
from ottla.kernel.ids import Uuid, parse_uuid, uuid_text
from ottla.kernel.named import NamedTuple

#: No start offset is set: the partition's leader chooses one by `share.auto.offset.reset`.
UNSET_OFFSET = -1
#: The count of complete deliveries is unknown.
UNSET_COUNT = -1


class RecordState(IntEnum):
    """The state of a record. The numbers are in the log and on the wire."""

    AVAILABLE = 0
    #: A member holds the record. Never stored.
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    #: Rejected, delivered too often, hidden, or not in the log.
    ARCHIVED = 4


class StateBatch(NamedTuple):
    """A range of offsets in one state."""

    first_offset: int
    last_offset: int
    state: int
    delivery_count: int


class SharePartitionKey(NamedTuple):
    """The key of a share partition: a partition as read by one share group."""

    group_id: str
    topic_id: Uuid
    partition: int

    @property
    def text(self) -> str:
        """The key as FindCoordinator has it; its hash chooses the partition of `__share_group_state`."""
        return f"{self.group_id}:{uuid_text(self.topic_id)}:{self.partition}"

    @classmethod
    def parse(cls, text: str) -> SharePartitionKey:
        """The reverse of `text`. A group id may contain colons. Raises ValueError."""
        group_id, topic_id, partition = text.rsplit(":", 2)
        if not group_id.strip():
            raise ValueError("a share partition's key begins with a group id")
        return cls(group_id, parse_uuid(topic_id), int(partition))


@frozen
class StoredState:
    """The state of one share partition in the share coordinator. Immutable."""

    start_offset: int
    #: Raised when the group's offsets are reset.
    state_epoch: int = 0
    #: The epoch of the partition's leader that last read the state.
    leader_epoch: int = 0
    delivery_complete_count: int = UNSET_COUNT
    batches: tuple[StateBatch, ...] = ()
    snapshot_epoch: int = 0
    #: The highest epochs of the state since it was first created: a request with a lower one is fenced. The epochs
    #: above may be lower, because an initialization resets them.
    highest_state_epoch: int = 0
    highest_leader_epoch: int = 0
    #: When the state was created, and when its snapshot was written; they differ if the snapshot is a copy.
    create_ms: int = 0
    write_ms: int = 0

    def updated(
        self, start_offset: int, leader_epoch: int, complete_count: int, batches: Iterable[StateBatch]
    ) -> StoredState:
        """The state after a write; -1 leaves an offset or an epoch unchanged."""
        start = self.start_offset if start_offset == UNSET_OFFSET else start_offset
        leader = self.leader_epoch if leader_epoch == -1 else leader_epoch
        return replace(
            self,
            start_offset=start,
            leader_epoch=leader,
            highest_leader_epoch=max(leader, self.highest_leader_epoch),
            delivery_complete_count=complete_count,
            batches=combine(self.batches, batches, start),
        )


def combine(
    present: Sequence[StateBatch], more: Iterable[StateBatch], start_offset: int = UNSET_OFFSET
) -> tuple[StateBatch, ...]:
    """Combine batches: sorted, without overlaps, equal neighbours merged."""
    pieces = [*present, *more]
    edges = sorted({edge for batch in pieces for edge in (batch.first_offset, batch.last_offset + 1)})
    if start_offset != UNSET_OFFSET:
        edges = [start_offset, *(edge for edge in edges if edge > start_offset)]
    pieces.sort(key=lambda batch: batch.first_offset)
    combined: list[StateBatch] = []
    open_batches: list[StateBatch] = []
    index = 0
    for first, end in pairwise(edges):
        while index < len(pieces) and pieces[index].first_offset <= first:
            open_batches.append(pieces[index])
            index += 1
        open_batches = [batch for batch in open_batches if batch.last_offset >= first]
        if not open_batches:
            continue
        _, _, state, count = max(open_batches, key=lambda batch: (batch.delivery_count, batch.state))
        last = combined[-1] if combined else None
        if last is not None and last[1] + 1 == first and last[2:] == (state, count):
            combined[-1] = StateBatch(last.first_offset, end - 1, state, count)
        else:
            combined.append(StateBatch(first, end - 1, state, count))
    return tuple(combined)
