"""The stored state of one share partition: where it begins, and what became of the records behind that.

Rules:
- Only what has changed is stored: an acquired record is not, so after a crash it is delivered again.
- Batches say what they say of their offsets until a later write says more: of two the one with the higher delivery
  count holds, of equal counts the one further on (available, acknowledged, archived).
- Nothing is kept of offsets before the start.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import IntEnum
from itertools import pairwise

from ottla.kernel.frozen import frozen
from ottla.kernel.ids import Uuid, parse_uuid, uuid_text
from ottla.kernel.named import NamedTuple

#: No start offset was set: the partition's leader finds one by `share.auto.offset.reset`.
UNSET_OFFSET = -1
#: How many deliveries are complete was never said.
UNSET_COUNT = -1


class RecordState(IntEnum):
    """What became of a record. The numbers are in the log and on the wire."""

    AVAILABLE = 0
    #: A member has it. Never stored.
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    #: Given up: rejected, delivered too often, or not there at all.
    ARCHIVED = 4


class StateBatch(NamedTuple):
    """Offsets that share a state."""

    first_offset: int
    last_offset: int
    state: int
    delivery_count: int


class SharePartitionKey(NamedTuple):
    """A share group's partition."""

    group_id: str
    topic_id: Uuid
    partition: int

    @property
    def text(self) -> str:
        """As FindCoordinator has it; its hash places the state on a partition of `__share_group_state`."""
        return f"{self.group_id}:{uuid_text(self.topic_id)}:{self.partition}"

    @classmethod
    def parse(cls, text: str) -> SharePartitionKey:
        """The reverse of `text`; ValueError. A group id may have colons in it."""
        group_id, topic_id, partition = text.rsplit(":", 2)
        if not group_id.strip():
            raise ValueError("a share partition's key begins with a group id")
        return cls(group_id, parse_uuid(topic_id), int(partition))


@frozen
class StoredState:
    """What the share coordinator holds of one share partition. Immutable: every change makes another one."""

    start_offset: int
    #: Rises when the group's offsets are set again.
    state_epoch: int = 0
    #: The epoch of the partition's leader that last read the state.
    leader_epoch: int = 0
    delivery_complete_count: int = UNSET_COUNT
    batches: tuple[StateBatch, ...] = ()
    snapshot_epoch: int = 0
    #: When the state was written, and when its snapshot was; equal unless it was only copied on.
    create_ms: int = 0
    write_ms: int = 0

    def updated(
        self, start_offset: int, leader_epoch: int, complete_count: int, batches: Iterable[StateBatch]
    ) -> StoredState:
        """With a write taken in; -1 leaves an offset or an epoch as it is."""
        start = self.start_offset if start_offset == UNSET_OFFSET else start_offset
        return replace(
            self,
            start_offset=start,
            leader_epoch=self.leader_epoch if leader_epoch == -1 else leader_epoch,
            delivery_complete_count=complete_count,
            batches=combine(self.batches, batches, start),
        )


def combine(
    present: Sequence[StateBatch], more: Iterable[StateBatch], start_offset: int = UNSET_OFFSET
) -> tuple[StateBatch, ...]:
    """All batches as one list: sorted, none overlapping another, neighbours that say the same made one."""
    pieces = [*present, *more]
    edges = sorted({edge for each in pieces for edge in (each.first_offset, each.last_offset + 1)})
    if start_offset != UNSET_OFFSET:
        edges = [start_offset, *(edge for edge in edges if edge > start_offset)]
    pieces.sort(key=lambda each: each.first_offset)
    combined: list[StateBatch] = []
    open_batches: list[StateBatch] = []
    index = 0
    for first, end in pairwise(edges):
        while index < len(pieces) and pieces[index].first_offset <= first:
            open_batches.append(pieces[index])
            index += 1
        open_batches = [each for each in open_batches if each.last_offset >= first]
        if not open_batches:
            continue
        _, _, state, count = max(open_batches, key=lambda each: (each.delivery_count, each.state))
        last = combined[-1] if combined else None
        if last is not None and last[1] + 1 == first and last[2:] == (state, count):
            combined[-1] = StateBatch(last.first_offset, end - 1, state, count)
        else:
            combined.append(StateBatch(first, end - 1, state, count))
    return tuple(combined)
