"""What a share consumer has in hand, and what its program has said of it. Pure.

Rules:
- A record that a poll gave is in hand until it is acknowledged. Implicit mode accepts all of them when the next poll or
  commit comes; explicit mode wants a word about each before the next poll.
- Acknowledgements wait here until they are sent; each is sent once. What fails is told, not repeated: the broker gives
  the record to another member when its lock ends.
- A renewed record stays in hand: it has more time, and is to be acknowledged again.

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
    """What becomes of a record."""

    #: The record was processed.
    ACCEPT = 1
    #: Not processed: give it to a member again.
    RELEASE = 2
    #: The record cannot be processed: do not deliver it again.
    REJECT = 3
    #: Processing takes longer: the lock begins again.
    RENEW = 4


#: An acquired offset without a record: nothing is there to be processed.
GAP = 0


class ShareRecord(NamedTuple, Generic[K, V]):
    """A record of a share group. `delivery_count` is 1 at the first delivery; the rest is as in `ConsumerRecord`."""

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
    """Consecutive offsets, and what is said of each of them; one word stands for all."""

    first: int
    last: int
    types: list[int]


class Acknowledgements:
    """A share consumer's acknowledgements. Their owner serialises the calls."""

    def __init__(self, *, explicit: bool) -> None:
        self._explicit = explicit
        #: By partition and offset what the program said; None while it has said nothing.
        self.in_hand: dict[TopicPartition, dict[int, Acknowledge | None]] = {}
        #: To be sent.
        self.ready: dict[TopicPartition, dict[int, int]] = {}

    def give(self, records: Iterable[ShareRecord]) -> None:
        """A poll gives these to the program."""
        for one in records:
            self.in_hand.setdefault(TopicPartition(one.topic, one.partition), {})[one.offset] = None

    def withdraw(self, records: Iterable[ShareRecord]) -> None:
        """These did not reach the program: it has nothing to say of them, and nothing is said in its name."""
        for one in records:
            partition = TopicPartition(one.topic, one.partition)
            some = self.in_hand.get(partition, {})
            some.pop(one.offset, None)
            if not some:
                self.in_hand.pop(partition, None)

    def acknowledge(self, partition: TopicPartition, offset: int, word: Acknowledge) -> None:
        """The program says what becomes of a record; the last word counts. OttlaError if it is not in hand."""
        if not self._explicit:
            raise OttlaError("acknowledge needs share.acknowledgement.mode=explicit: now a poll accepts the last one's")
        if offset not in self.in_hand.get(partition, ()):
            raise OttlaError(f"the record of {partition} at offset {offset} is not in hand: acknowledged before?")
        self.in_hand[partition][offset] = word

    def say(self, partition: TopicPartition, offsets: Iterable[int], word: int) -> None:
        """Acknowledge offsets that the program never saw."""
        ready = self.ready.setdefault(partition, {})
        for offset in offsets:
            ready[offset] = word
        if not ready:
            del self.ready[partition]

    def settle(self, *, for_poll: bool) -> None:
        """A poll or commit begins: what was said becomes ready to be sent."""
        if self._explicit and for_poll:
            left = sum(word is None for some in self.in_hand.values() for word in some.values())
            if left:
                raise OttlaError(f"{left} records of the last poll are not acknowledged: say what becomes of each")
        for partition, some in list(self.in_hand.items()):
            for offset, word in list(some.items()):
                said = word if self._explicit else Acknowledge.ACCEPT
                if said is None:
                    continue
                self.ready.setdefault(partition, {})[offset] = int(said)
                if said is Acknowledge.RENEW:
                    some[offset] = None
                else:
                    del some[offset]
            if not some:
                del self.in_hand[partition]

    def take(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, list[Range]]:
        """What is ready of these, in ranges; it counts as sent."""
        return {one: ranges(self.ready.pop(one)) for one in list(partitions) if one in self.ready}


def ranges(words: dict[int, int]) -> list[Range]:
    """Offsets in order, those that follow each other together."""
    found: list[Range] = []
    for offset in sorted(words):
        word = words[offset]
        if found and found[-1].last == offset - 1:
            last = found[-1]
            found[-1] = Range(last.first, offset, [*last.types, word])
        else:
            found.append(Range(offset, offset, [word]))
    return [Range(one.first, one.last, one.types if len(set(one.types)) > 1 else one.types[:1]) for one in found]
