"""Reading partitions between two offsets, without a group.

Rules:
- Records that are deleted while they are being read are left out, and reading goes on with the first one that is left:
  a reset to the end, the default of consumers, would leave out all that the topic still has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.client import Consumer, TopicPartition
    from ottla.columns.record import ConsumerRecord

#: How long one poll waits: how soon Ctrl-C and the end are noticed.
POLL_S = 0.2


def from_first_left(settings: Mapping[str, object]) -> dict[str, object]:
    """The settings of a consumer that reads between offsets, unless auto.offset.reset is given."""
    return {"auto.offset.reset": "earliest", **settings}


def polls(
    consumer: Consumer, begins: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int] | None
) -> Iterator[list[ConsumerRecord]]:
    """Yield the records of each poll, from `begins` to `ends`; without `ends`, forever."""
    consumer.assign(list(begins))
    for partition, offset in begins.items():
        consumer.seek(partition, offset)
    yield from until_ends(consumer, ends)


def until_ends(consumer: Consumer, ends: Mapping[TopicPartition, int] | None) -> Iterator[list[ConsumerRecord]]:
    """Yield the records of each poll until every assigned partition is read to its end; without `ends`, forever."""
    while True:
        if ends is not None:
            assigned = consumer.assignment()
            if assigned and all(_at_end(consumer, tp, ends) for tp in assigned):
                return
        yield consumer.poll(POLL_S)


def _at_end(consumer: Consumer, partition: TopicPartition, ends: Mapping[TopicPartition, int]) -> bool:
    end = ends.get(partition, 0)
    return end == 0 or consumer.position(partition) >= end
