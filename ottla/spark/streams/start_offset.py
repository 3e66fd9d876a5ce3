"""Where a program begins to read: at the committed offsets of its group, otherwise as `offset_reset` says.

Rules (Kafka Streams: StreamThread.resetOffsets):
- A committed offset that the log does not have gives way to `offset_reset`, with a warning.
- A committed offset beyond the end that has a leader epoch stays: the consumer compares the epochs (LogTruncation).
- "latest" is the last stable offset: a transaction that is open now will be read. "by_duration" is the first record of
  that age or newer, and "latest" if there is none.
- With "none" the program ends.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from ottla.client.admin.client import Admin
from ottla.client.admin.result import OffsetSpec
from ottla.client.membership.commit import CommittedOffset
from ottla.flow.error import TopologyError
from ottla.flow.topology import BY_DURATION
from ottla.kernel.ids import TopicPartition
from ottla.kernel.validators import duration_ms

log = logging.getLogger(__name__)
Committed = Mapping[TopicPartition, CommittedOffset]


def initial_offsets(
    admin: Admin, resets: Mapping[TopicPartition, str], committed: Committed, now: int
) -> dict[TopicPartition, int]:
    """The offsets of the partitions that cannot go on at a committed offset. `resets`: all source partitions, each with
    its offset reset; `now` in ms since 1970. TopologyError if it is "none" for such a partition.
    """
    begins = _list(admin, dict.fromkeys(resets, OffsetSpec.EARLIEST))
    gone = _gone(admin, {partition: at for partition, at in committed.items() if partition in resets}, begins)
    new = {partition: reset for partition, reset in resets.items() if partition not in committed or partition in gone}
    for partition, reset in new.items():
        if reset == "none":
            raise TopologyError(
                f"{partition}: {gone.get(partition, 'no offset is committed')}, and offset_reset is none; commit one, "
                "or set offset_reset to earliest or latest"
            )
        if partition in gone:
            log.warning("%s: %s; offset_reset applies", partition, gone[partition])
    later = {partition: reset for partition, reset in new.items() if reset != "earliest"}
    ages = {partition: reset.removeprefix(BY_DURATION) for partition, reset in later.items() if reset != "latest"}
    found = _list(admin, {partition: max(0, now - duration_ms(age)) for partition, age in ages.items()})
    starts = {partition: begins[partition] for partition in new.keys() - later.keys()}
    starts |= _list(admin, dict.fromkeys(later, OffsetSpec.LATEST), read_committed=True)
    return starts | {partition: offset for partition, offset in found.items() if offset >= 0}


def _gone(admin: Admin, committed: Committed, begins: Mapping[TopicPartition, int]) -> dict[TopicPartition, str]:
    """The partitions whose log does not have the committed offset, and why."""
    # All records count here, also those of open transactions: a tool may have committed an offset after them.
    ends = _list(admin, dict.fromkeys(_without_epoch(committed), OffsetSpec.LATEST))
    gone = {}
    for partition, at in committed.items():
        offset, begin, end = at.offset, begins[partition], ends.get(partition)
        if offset < begin:
            gone[partition] = f"records from offset {offset} to {begin - 1} were deleted before they were processed"
        elif end is not None and offset > end:
            gone[partition] = (
                f"the committed offset {offset} is beyond the end, {end}: the topic lost records or is another one"
            )
    return gone


def _without_epoch(committed: Committed) -> Iterable[TopicPartition]:
    return [partition for partition, at in committed.items() if at.leader_epoch is None]


def _list(
    admin: Admin, at: Mapping[TopicPartition, OffsetSpec | int], *, read_committed: bool = False
) -> dict[TopicPartition, int]:
    if not at:
        return {}
    return {place: one.offset for place, one in admin.list_offsets(at, read_committed=read_committed).check().items()}
