"""What an OffsetCommit or TxnOffsetCommit would write, before its group is asked.

A request may name very many partitions: the broker works this out in steps (`planned`), and then the group's
coordinator writes all of it as one batch. The response is built while it is written.

Rules:
- More records than a batch of the log has room for are not encoded: the commit fails as a whole, as in Apache Kafka.
- A topic may be deleted between the steps and the commit: `look_again` finds that out.
"""

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import Any

from ottla.coordinator.contract import Entry
from ottla.group.records.encode import offset_entry
from ottla.group.state.offsets import Committed
from ottla.group.topic import TopicView
from ottla.kernel.error import ErrorCode
from ottla.kernel.frozen import frozen
from ottla.kernel.ids import NO_UUID, Uuid
from ottla.wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.wire.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ottla.wire.compile import deferred

#: The largest timestamp of a record: an offset with it never expires.
_TIMESTAMP_MAX = (1 << 63) - 1
#: From this version on topics are identified by id.
_TOPIC_IDS_FROM = 10
_TXN_TOPIC_IDS_FROM = 6
#: About a millisecond.
_PARTITIONS_PER_STEP = 200
_UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

Request = OffsetCommitRequest | TxnOffsetCommitRequest


@dataclass(slots=True)
class PlannedTopic:
    """A topic of the request, and the error of each of its partitions."""

    #: OffsetCommitRequestTopic or TxnOffsetCommitRequestTopic.
    asked: Any
    errors: list[ErrorCode] = field(default_factory=list)


@frozen
class PlannedOffset:
    """An offset that may be written: its record, and where its error stands."""

    topic: PlannedTopic
    at: int
    topic_id: Uuid
    name: str
    partition: int
    entry: Entry


@dataclass(slots=True)
class CommitPlan:
    """`planned` creates it."""

    topics: list[PlannedTopic] = field(default_factory=list)
    offsets: list[PlannedOffset] = field(default_factory=list)
    #: Does any partition of the request exist?
    any_exists: bool = False
    too_large: bool = False

    def look_again(self, topics: TopicView) -> None:
        """Refuse the offsets of topics that are gone by now."""
        kept = []
        for offset in self.offsets:
            if topics.topic_id(offset.name) == offset.topic_id and offset.partition < topics.partition_count(
                offset.name
            ):
                kept.append(offset)
            else:
                offset.topic.errors[offset.at] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        self.offsets = kept

    def response(self, request: Request, refusal: ErrorCode | None = None) -> Any:
        """The response. With a `refusal` nothing was committed; an unknown partition still has its own error."""
        if isinstance(request, TxnOffsetCommitRequest):
            return TxnOffsetCommitResponse(topics=self._topics(_TXN_PARTS, refusal))
        return OffsetCommitResponse(topics=self._topics(_PARTS, refusal))

    def _topics(self, parts: tuple[Any, Any], refusal: ErrorCode | None) -> list[Any]:
        of_topic, of_partition = parts

        def answers(topic: PlannedTopic) -> Iterator[Any]:
            for partition, error in zip(topic.asked.partitions, topic.errors, strict=True):
                code = error if refusal is None or error in _UNKNOWN else refusal
                yield of_partition(partition_index=partition.partition_index, error_code=code)

        def answer(topic: PlannedTopic) -> Any:
            partitions = deferred(len(topic.errors), lambda: answers(topic))
            return of_topic(name=topic.asked.name, topic_id=topic.asked.topic_id, partitions=partitions)

        return deferred(len(self.topics), lambda: map(answer, self.topics))


_PARTS = OffsetCommitResponseTopic, OffsetCommitResponsePartition
_TXN_PARTS = TxnOffsetCommitResponseTopic, TxnOffsetCommitResponsePartition


def planned(
    request: Request, version: int, topics: TopicView, now_ms: int, metadata_max: int, bytes_max: int | None = None
) -> Generator[None, None, CommitPlan]:
    """Work out a commit in steps. `bytes_max`: the size of a batch that the log takes, None if any may fit."""
    is_transactional = isinstance(request, TxnOffsetCommitRequest)
    by_id = version >= (_TXN_TOPIC_IDS_FROM if is_transactional else _TOPIC_IDS_FROM)
    expire_ms = _expiry(request, now_ms)
    plan, size, number = CommitPlan(), 0, 0
    for topic in request.topics:
        number += 1
        if not number % _PARTITIONS_PER_STEP:
            yield
        name = topics.topic_name(topic.topic_id) if by_id else topic.name
        count = 0 if name is None else topics.partition_count(name)
        if count and not topic.partitions and not is_transactional:
            # The response leaves an existing topic without partitions out; the broker has done so for transactions.
            continue
        known_id = (None if name is None else topics.topic_id(name)) or NO_UUID
        of_topic = PlannedTopic(topic)
        plan.topics.append(of_topic)
        for partition in topic.partitions:
            index = partition.partition_index
            plan.any_exists = plan.any_exists or 0 <= index < count
            error = ErrorCode.NONE
            if name is None:
                error = ErrorCode.UNKNOWN_TOPIC_ID
            elif not 0 <= index < count:
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif _units(partition.committed_metadata or "") > metadata_max:
                error = ErrorCode.OFFSET_METADATA_TOO_LARGE
            elif not plan.too_large:
                assert name is not None
                committed = Committed(
                    partition.committed_offset,
                    partition.committed_leader_epoch,
                    partition.committed_metadata or "",
                    now_ms,
                    expire_ms,
                    topic.topic_id if is_transactional else known_id,
                )
                entry = offset_entry(request.group_id, name, index, committed)
                size += len(entry[0]) + len(entry[1] or b"")
                plan.too_large = bytes_max is not None and size > bytes_max
                plan.offsets.append(PlannedOffset(of_topic, len(of_topic.errors), known_id, name, index, entry))
            of_topic.errors.append(error)
            number += 1
            if not number % _PARTITIONS_PER_STEP:
                yield
    return plan


def _expiry(request: Request, now_ms: int) -> int:
    if isinstance(request, TxnOffsetCommitRequest) or request.retention_time_ms == -1:
        return -1
    return min(now_ms + request.retention_time_ms, _TIMESTAMP_MAX)


def _units(text: str) -> int:
    """The text's length as Java counts it: a character beyond U+FFFF counts twice."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2
