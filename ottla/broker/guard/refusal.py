"""Denials that differ from the handler's own error response, API by API as in Apache Kafka."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.broker.call.handler import Handler
from ottla.broker.call.reply import ErrorResponseBuilder
from ottla.broker.guard.authorizer import CODES
from ottla.broker.guard.parts import each_amended
from ottla.kernel.error import KafkaError
from ottla.kernel.error_message import standard
from ottla.wire.api import ApiKey
from ottla.wire.api.alter_partition_reassignments import ReassignablePartitionResponse, ReassignableTopicResponse
from ottla.wire.api.alter_replica_log_dirs import AlterReplicaLogDirPartitionResult, AlterReplicaLogDirTopicResult
from ottla.wire.api.describe_user_scram_credentials import DescribeUserScramCredentialsResult
from ottla.wire.api.list_partition_reassignments import (
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

_CODES = frozenset(CODES.values())
_NO_PROTOCOL_FROM = 7
#: APIs whose denial has the error code's standard message.
_WITH_MESSAGE = {
    ApiKey.DESCRIBE_PRODUCERS,
    ApiKey.DELETE_TOPICS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.ALTER_CLIENT_QUOTAS,
}


def error_response_of(handler: Handler) -> ErrorResponseBuilder:
    """The handler's error response builder, adjusted to Apache Kafka for denials."""
    key = ApiKey(handler.api.key)
    shape = _SHAPES.get(key)

    def error_response(request: Any, version: int, error: KafkaError) -> Any:
        if error.code not in _CODES:
            return handler.error_response(request, version, error)
        if not error.message and key in _WITH_MESSAGE:
            error = KafkaError(error.code, standard(error.code))
        elif not error.message and key == ApiKey.CREATE_TOPICS:
            error = KafkaError(error.code, "Authorization failed.")
        response = handler.error_response(request, version, error)
        if shape is not None:
            shape(request, version, error, response)
        return response

    return error_response


def _delete_records(request: Any, version: int, error: KafkaError, response: Any) -> None:
    for topic in response.topics:
        for partition in topic.partitions:
            partition.low_watermark = -1


def _join_group(request: Any, version: int, error: KafkaError, response: Any) -> None:
    if version >= _NO_PROTOCOL_FROM:
        response.protocol_name = None


def _create_topics(request: Any, version: int, error: KafkaError, response: Any) -> None:
    def hide(topic: Any) -> None:
        topic.configs = []

    response.topics = each_amended(response.topics, hide)


def _log_dirs(request: Any, version: int, error: KafkaError, response: Any) -> None:
    topics: dict[str, list[int]] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            topics.setdefault(topic.name, []).extend(topic.partitions)
    response.results = [
        AlterReplicaLogDirTopicResult(
            topic_name=name,
            partitions=[
                AlterReplicaLogDirPartitionResult(partition_index=index, error_code=error.code)
                for index in dict.fromkeys(indexes)
            ],
        )
        for name, indexes in topics.items()
    ]


def _credentials(request: Any, version: int, error: KafkaError, response: Any) -> None:
    response.results = [DescribeUserScramCredentialsResult(error_code=error.code, error_message=None)]


def _reassignments(request: Any, version: int, error: KafkaError, response: Any) -> None:
    response.topics = [
        OngoingTopicReassignment(
            name=topic.name,
            partitions=[OngoingPartitionReassignment(partition_index=index) for index in topic.partition_indexes],
        )
        for topic in request.topics or ()
    ]


def _reassigned(request: Any, version: int, error: KafkaError, response: Any) -> None:
    response.responses = [
        ReassignableTopicResponse(
            name=topic.name,
            partitions=[
                ReassignablePartitionResponse(
                    partition_index=partition.partition_index, error_code=error.code, error_message=None
                )
                for partition in topic.partitions
            ],
        )
        for topic in request.topics
    ]


_SHAPES: dict[int, Callable[[Any, int, KafkaError, Any], None]] = {
    ApiKey.DELETE_RECORDS: _delete_records,
    ApiKey.JOIN_GROUP: _join_group,
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.ALTER_REPLICA_LOG_DIRS: _log_dirs,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _credentials,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _reassigned,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _reassignments,
}
