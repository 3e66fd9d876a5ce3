"""A share session with one broker (KIP-932). Pure.

The broker remembers the partitions, and the records that this consumer has acquired there.

Rules:
- Epoch 0 starts a session and -1 ends it (the broker then releases what is not acknowledged); in between, each request
  increments the epoch. The first request carries no acknowledgements.
- Requests name only partitions that are new or have acknowledgements, and those to be forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from ottla.client.acknowledgement import Range
from ottla.kernel.error import ErrorCode
from ottla.kernel.ids import TopicPartition, Uuid
from ottla.wire.api import share_acknowledge, share_fetch

FIRST_EPOCH, LAST_EPOCH = 0, -1
_BROKEN = frozenset(
    {
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    }
)

B = TypeVar("B")


class ShareFetchSession:
    """A share consumer's session with one broker. It ends with its connection."""

    def __init__(self) -> None:
        self.epoch = FIRST_EPOCH
        #: Topic ids of the partitions that the broker remembers.
        self.known: dict[TopicPartition, Uuid] = {}

    @property
    def began(self) -> bool:
        """True once the broker knows the session, so that acknowledgements can be sent."""
        return self.epoch != FIRST_EPOCH

    def fetch(
        self, wanted: Mapping[TopicPartition, Uuid], acknowledgements: Mapping[TopicPartition, list[Range]]
    ) -> share_fetch.ShareFetchRequest:
        """Read exactly `wanted`; the caller fills in the rest. A session's first request takes no acknowledgements."""
        topics: dict[Uuid, share_fetch.FetchTopic] = {}
        for partition in {**wanted, **acknowledgements}:
            new = self.known.get(partition) != wanted.get(partition)
            if not new and partition not in acknowledgements:
                continue
            topic_id = wanted.get(partition) or self.known[partition]
            topic = topics.setdefault(topic_id, share_fetch.FetchTopic(topic_id=topic_id))
            batches = [
                _batch(share_fetch.AcknowledgementBatch, offsets) for offsets in acknowledgements.get(partition, ())
            ]
            topic.partitions.append(
                share_fetch.FetchPartition(partition_index=partition.partition, acknowledgement_batches=batches)
            )
        forgotten: dict[Uuid, list[int]] = {}
        for partition, topic_id in self.known.items():
            if wanted.get(partition) != topic_id:
                forgotten.setdefault(topic_id, []).append(partition.partition)
        self.known = dict(wanted)
        return share_fetch.ShareFetchRequest(
            share_session_epoch=self.epoch,
            topics=list(topics.values()),
            forgotten_topics_data=[
                share_fetch.ForgottenTopic(topic_id=topic_id, partitions=numbers)
                for topic_id, numbers in forgotten.items()
            ],
        )

    def acknowledge(
        self,
        ids: Mapping[TopicPartition, Uuid],
        acknowledgements: Mapping[TopicPartition, list[Range]],
        *,
        last: bool = False,
    ) -> share_acknowledge.ShareAcknowledgeRequest:
        """Send acknowledgements alone; `last` ends the session."""
        topics: dict[Uuid, share_acknowledge.AcknowledgeTopic] = {}
        for partition, acknowledged in acknowledgements.items():
            topic_id = ids[partition]
            topic = topics.setdefault(topic_id, share_acknowledge.AcknowledgeTopic(topic_id=topic_id))
            batches = [_batch(share_acknowledge.AcknowledgementBatch, offsets) for offsets in acknowledged]
            topic.partitions.append(
                share_acknowledge.AcknowledgePartition(
                    partition_index=partition.partition, acknowledgement_batches=batches
                )
            )
        return share_acknowledge.ShareAcknowledgeRequest(
            share_session_epoch=LAST_EPOCH if last else self.epoch, topics=list(topics.values())
        )

    def answered(self, error_code: int) -> bool:
        """Apply an answer's error code. False if the session is lost and starts again."""
        if error_code in _BROKEN:
            self.reset()
            return False
        if error_code == ErrorCode.NONE:
            self.epoch = 1 if self.epoch == 0x7FFFFFFF else self.epoch + 1
        return True

    def reset(self) -> None:
        """Start again."""
        self.epoch = FIRST_EPOCH
        self.known = {}


def _batch(kind: type[B], offsets: Range) -> B:
    return kind(first_offset=offsets.first, last_offset=offsets.last, acknowledge_types=offsets.types)  # type: ignore[call-arg]


def offsets_of(acknowledged: Iterable[Range]) -> list[int]:
    """All offsets of these ranges."""
    return [offset for offsets in acknowledged for offset in range(offsets.first, offsets.last + 1)]
