"""The records that a share consumer has delivered to its program, and their acknowledgements. Pure.

Rules:
- A polled record stays in hand until it is acknowledged. In implicit mode the next poll or commit accepts all of them;
  in explicit mode the program must acknowledge each one before the next poll.
- Acknowledgements wait here until they are sent. A failed acknowledgement is reported; it is sent again only if the
  broker may take it later. The broker redelivers its record to another member when the acquisition lock expires.
- A renewed record stays in hand: its lock is extended, and it must be acknowledged again.

KIPs: 932, 1222 (renew).
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Generic

from ottla.kernel.error import OttlaError
from ottla.kernel.ids import TopicPartition
from ottla.kernel.named import NamedTuple
from ottla.kernel.typevar import K, V
from ottla.wire.batch import Header


class Acknowledge(IntEnum):
    """The ways to acknowledge a record of a share group (KIP-932; RENEW: KIP-1222)."""

    #: The record was processed.
    ACCEPT = 1
    #: Not processed: make the record available for another delivery.
    RELEASE = 2
    #: The record cannot be processed: do not deliver it again.
    REJECT = 3
    #: Processing takes longer: restart the acquisition lock's timeout.
    RENEW = 4


#: Acknowledgement type for an acquired offset that has no record, such as one removed by compaction.
GAP = 0


class ShareRecord(NamedTuple, Generic[K, V]):
    """A record of a share group (KIP-932).

    `delivery_count` is 1 at the first delivery; the other fields are those of `ConsumerRecord`.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: K
    value: V
    headers: tuple[Header, ...]
    leader_epoch: int
    delivery_count: int


class Range(NamedTuple):
    """Consecutive offsets and their acknowledgement types; a single type applies to all of them."""

    first: int
    last: int
    types: list[int]


class Acknowledgements:
    """The acknowledgements of one share consumer. The owner serialises the calls."""

    def __init__(self, *, explicit: bool) -> None:
        self._explicit = explicit
        #: Acknowledgement by partition and offset; None until the program gives one.
        self.in_hand: dict[TopicPartition, dict[int, Acknowledge | None]] = {}
        #: Acknowledgement types to send, by partition and offset.
        self.ready: dict[TopicPartition, dict[int, int]] = {}

    def give(self, records: Iterable[ShareRecord]) -> None:
        """Take records in hand: a poll is about to return them to the program."""
        for record in records:
            self.in_hand.setdefault(TopicPartition(record.topic, record.partition), {})[record.offset] = None

    def withdraw(self, records: Iterable[ShareRecord]) -> None:
        """Drop records that did not reach the program, without acknowledging them."""
        for record in records:
            partition = TopicPartition(record.topic, record.partition)
            pending = self.in_hand.get(partition, {})
            pending.pop(record.offset, None)
            if not pending:
                self.in_hand.pop(partition, None)

    def acknowledge(self, partition: TopicPartition, offset: int, kind: Acknowledge) -> None:
        """Note the acknowledgement of a record; a later one replaces it. OttlaError if the record is not in hand."""
        if not self._explicit:
            raise OttlaError("acknowledge needs share.acknowledgement.mode=explicit: in implicit mode a poll accepts")
        if offset not in self.in_hand.get(partition, ()):
            raise OttlaError(f"{partition}: offset {offset} is not in hand (already acknowledged, or never polled)")
        self.in_hand[partition][offset] = kind

    def acknowledge_unseen(self, partition: TopicPartition, offsets: Iterable[int], kind: int) -> None:
        """Acknowledge offsets that the program never saw."""
        ready = self.ready.setdefault(partition, {})
        for offset in offsets:
            ready[offset] = kind
        if not ready:
            del self.ready[partition]

    def settle(self, *, for_poll: bool) -> None:
        """Move acknowledgements to `ready` at the start of a poll or commit.

        OttlaError at a poll in explicit mode while records are not acknowledged.
        """
        if self._explicit and for_poll:
            left = sum(kind is None for pending in self.in_hand.values() for kind in pending.values())
            if left:
                raise OttlaError(f"{left} records of the last poll are not acknowledged: acknowledge each one first")
        for partition, pending in list(self.in_hand.items()):
            for offset, kind in list(pending.items()):
                acknowledgement = kind if self._explicit else Acknowledge.ACCEPT
                if acknowledgement is None:
                    continue
                self.ready.setdefault(partition, {})[offset] = int(acknowledgement)
                if acknowledgement is Acknowledge.RENEW:
                    pending[offset] = None
                else:
                    del pending[offset]
            if not pending:
                del self.in_hand[partition]

    def take(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, list[Range]]:
        """Remove and return the ready acknowledgements of these partitions, as ranges; they count as sent."""
        return {
            partition: ranges(self.ready.pop(partition)) for partition in list(partitions) if partition in self.ready
        }

    def put_back(self, partition: TopicPartition, sent: Iterable[Range]) -> None:
        """Make acknowledgements ready again that were not taken; newer ones of the same offsets replace them."""
        ready = self.ready.setdefault(partition, {})
        for first, last, types in sent:
            for offset in range(first, last + 1):
                ready.setdefault(offset, types[offset - first] if len(types) > 1 else types[0])
        if not ready:
            del self.ready[partition]


def ranges(kinds: dict[int, int]) -> list[Range]:
    """Merge consecutive offsets into ranges, in offset order."""
    merged: list[Range] = []
    for offset in sorted(kinds):
        kind = kinds[offset]
        if merged and merged[-1].last == offset - 1:
            last = merged[-1]
            merged[-1] = Range(last.first, offset, [*last.types, kind])
        else:
            merged.append(Range(offset, offset, [kind]))
    return [Range(r.first, r.last, r.types if len(set(r.types)) > 1 else r.types[:1]) for r in merged]
