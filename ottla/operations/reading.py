"""Reading partitions between two offsets, without a group.

Rules:
- Records that are deleted while they are being read are left out, and reading goes on with the first one that is left:
  a reset to the end, the default of consumers, would leave out all that the topic still has.
- A read to an end that the partition has no more (its topic is deleted, or another one of that name) is an error, and
  does not create the topic again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ottla.kernel.error import OttlaError

if TYPE_CHECKING:
    from ottla.client import Consumer, TopicPartition
    from ottla.columns.record import ConsumerRecord

#: How long one poll waits: how soon Ctrl-C and the end are noticed.
POLL_S = 0.2
#: Polls without a record after which the ends are looked up again.
_QUIET_POLLS = 25


def from_first_left(settings: Mapping[str, object]) -> dict[str, object]:
    """The settings of a consumer that reads between offsets, unless auto.offset.reset is given."""
    return {"auto.offset.reset": "earliest", **never_creating(settings)}


def never_creating(settings: Mapping[str, object]) -> dict[str, object]:
    """The settings of a client that does not create a topic again that is deleted while the client uses it."""
    return {"allow.auto.create.topics": "false", **settings}


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
    quiet = 0
    while True:
        if ends is not None:
            assigned = consumer.assignment()
            left = [tp for tp in assigned if not _at_end(consumer, tp, ends)]
            if assigned and not left:
                return
            if quiet == _QUIET_POLLS:
                quiet = 0
                _check_ends(consumer, left, ends)
        records = consumer.poll(POLL_S)
        quiet = 0 if records else quiet + 1
        yield records


def _check_ends(consumer: Consumer, left: list[TopicPartition], ends: Mapping[TopicPartition, int]) -> None:
    """Check that the partitions still reach their ends: reading would wait for these records forever."""
    for partition, end in consumer.end_offsets(left).items():
        if end < ends[partition]:
            raise OttlaError(
                f"{partition} ends at offset {end} now, before {ends[partition]}, where it ended at first: its topic "
                "was deleted and created again, or its last records are lost; read it again from its beginning"
            )


def _at_end(consumer: Consumer, partition: TopicPartition, ends: Mapping[TopicPartition, int]) -> bool:
    end = ends.get(partition, 0)
    return end == 0 or consumer.position(partition) >= end
