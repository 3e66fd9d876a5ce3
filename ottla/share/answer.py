"""Build a share coordinator's response for one share partition; split requests and merge responses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ottla.kernel.error import KafkaError
from ottla.kernel.error_message import words
from ottla.kernel.ids import Uuid
from ottla.share.state import SharePartitionKey, StoredState
from ottla.wire.api import delete_share_group_state as delete
from ottla.wire.api import initialize_share_group_state as initialize
from ottla.wire.api import read_share_group_state as read_state
from ottla.wire.api import read_share_group_state_summary as read_summary
from ottla.wire.api import write_share_group_state as write
from ottla.wire.compile import deferred

#: Request class -> the classes of the response, of its topics, and of their partitions.
_CLASSES: dict[type, tuple[type, type, type]] = {
    initialize.InitializeShareGroupStateRequest: (
        initialize.InitializeShareGroupStateResponse,
        initialize.InitializeStateResult,
        initialize.PartitionResult,
    ),
    read_state.ReadShareGroupStateRequest: (
        read_state.ReadShareGroupStateResponse,
        read_state.ReadStateResult,
        read_state.PartitionResult,
    ),
    write.WriteShareGroupStateRequest: (
        write.WriteShareGroupStateResponse,
        write.WriteStateResult,
        write.PartitionResult,
    ),
    delete.DeleteShareGroupStateRequest: (
        delete.DeleteShareGroupStateResponse,
        delete.DeleteStateResult,
        delete.PartitionResult,
    ),
    read_summary.ReadShareGroupStateSummaryRequest: (
        read_summary.ReadShareGroupStateSummaryResponse,
        read_summary.ReadStateSummaryResult,
        read_summary.PartitionResult,
    ),
}


def _response_to(request: type, key: SharePartitionKey, **fields: Any) -> Any:
    response, topic, partition = _CLASSES[request]
    result = partition(partition=key.partition, **fields)
    return response(results=[topic(topic_id=key.topic_id, partitions=[result])])


def failure(request: Any, key: SharePartitionKey, error: KafkaError) -> Any:
    """The response with an error."""
    return _response_to(type(request), key, error_code=error.code, error_message=words(error))


def initialized(key: SharePartitionKey) -> Any:
    """The response to an initialization."""
    return _response_to(initialize.InitializeShareGroupStateRequest, key)


def written(key: SharePartitionKey) -> Any:
    """The response to a write."""
    return _response_to(write.WriteShareGroupStateRequest, key)


def deleted(key: SharePartitionKey) -> Any:
    """The response to a deletion, also if there was no state."""
    return _response_to(delete.DeleteShareGroupStateRequest, key)


def read(key: SharePartitionKey, state: StoredState) -> Any:
    """The response with the whole state."""
    return _response_to(
        read_state.ReadShareGroupStateRequest,
        key,
        state_epoch=state.state_epoch,
        start_offset=state.start_offset,
        state_batches=[
            read_state.StateBatch(first_offset=first, last_offset=last, delivery_state=kind, delivery_count=count)
            for first, last, kind, count in state.batches
        ],
    )


def summary(key: SharePartitionKey, state: StoredState) -> Any:
    """The response with the state but not its batches; an unset start offset stands for no state."""
    return _response_to(
        read_summary.ReadShareGroupStateSummaryRequest,
        key,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.delivery_complete_count,
    )


def split(request: Any) -> Iterator[tuple[SharePartitionKey, Any]]:
    """Split a request into one for each share partition."""
    kind = type(request)
    for topic in request.topics:
        for partition in topic.partitions:
            key = SharePartitionKey(request.group_id, topic.topic_id, partition.partition)
            topic_part = type(topic)(topic_id=topic.topic_id, partitions=[partition])
            yield key, kind(group_id=request.group_id, topics=[topic_part])


def merged(request: Any, topics: Mapping[Uuid, Sequence[Any]]) -> Any:
    """The response with these results of partitions; many topics are created while it is written."""
    response, topic_class, _ = _CLASSES[type(request)]

    def results() -> Iterator[Any]:
        return (topic_class(topic_id=topic_id, partitions=partitions) for topic_id, partitions in topics.items())

    return response(results=deferred(len(topics), results))


def failed(request: Any, error: KafkaError) -> Any:
    """The response with this error for every partition of the request."""
    response, topic_class, partition = _CLASSES[type(request)]
    indexes: dict[Uuid, list[int]] = {}
    for topic in request.topics:
        if topic.partitions:
            indexes.setdefault(topic.topic_id, []).extend(each.partition for each in topic.partitions)
    code, message = error.code, words(error)

    def results(asked: list[int]) -> list[Any]:
        return deferred(
            len(asked),
            lambda: (partition(partition=index, error_code=code, error_message=message) for index in asked),
        )

    return response(
        results=deferred(
            len(indexes),
            lambda: (topic_class(topic_id=each, partitions=results(asked)) for each, asked in indexes.items()),
        )
    )
