"""DescribeLogDirs (key 35) and AlterReplicaLogDirs (key 34): where logs are, and where they should be.

KIPs: 113 both, 827 the volume's bytes, 1066 cordoned directories.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from ottla.broker.call.handler import Call, handles
from ottla.kernel.error import ErrorCode
from ottla.kernel.ids import TopicPartition
from ottla.metadata.feature import CORDONED_DIRECTORIES_FROM
from ottla.wire.api import ApiKey
from ottla.wire.api.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from ottla.wire.api.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

_log = logging.getLogger("ottla.broker")
_Parts = dict[str, list[DescribeLogDirsPartition]]


@handles(ApiKey.ALTER_REPLICA_LOG_DIRS)
def alter_replica_log_dirs(call: Call, request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
    """Start moving each partition; if a request names two directories for one, the last counts."""
    wanted = {
        TopicPartition(topic.name, index): directory.path
        for directory in request.dirs
        for topic in directory.topics
        for index in topic.partitions
    }
    results: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    for tp, path in wanted.items():
        code = call.node.log_dirs.move(tp, path)
        results.setdefault(tp.topic, []).append(
            AlterReplicaLogDirPartitionResult(partition_index=tp.partition, error_code=code)
        )
    return AlterReplicaLogDirsResponse(
        results=[AlterReplicaLogDirTopicResult(topic_name=name, partitions=parts) for name, parts in results.items()]
    )


@handles(ApiKey.DESCRIBE_LOG_DIRS)
def describe_log_dirs(call: Call, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    """Every log directory with its volume's size and the requested partitions; null requests all of them."""
    store = call.node.store
    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    by_directory: dict[str, _Parts] = {path: {} for path in store.directories}
    for path, tp, part in _parts(call):
        if wanted is None or tp in wanted:
            by_directory[path].setdefault(tp.topic, []).append(part)
    results = [_directory(call, *each) for each in by_directory.items()]
    results += [_failed(path) for path in store.failed_directories]
    return DescribeLogDirsResponse(results=results)


def _parts(call: Call) -> Iterator[tuple[str, TopicPartition, DescribeLogDirsPartition]]:
    """(directory, partition, description) for every log, including future logs of moves."""
    store = call.node.store
    for tp, log in store.logs().items():
        yield (
            store.directory_of(tp),
            tp,
            DescribeLogDirsPartition(partition_index=tp.partition, partition_size=log.size),
        )
        future = store.future(tp)
        if future is not None:
            lag = max(0, log.end_offset - future[0].end_offset)
            yield (
                future[1],
                tp,
                DescribeLogDirsPartition(
                    partition_index=tp.partition, partition_size=future[0].size, offset_lag=lag, is_future_key=True
                ),
            )


def _failed(path: str) -> DescribeLogDirsResult:
    return DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=path)


def _directory(call: Call, path: str, topics: _Parts) -> DescribeLogDirsResult:
    try:
        total_bytes, usable_bytes = call.node.disk.free_bytes(path)
    except OSError as error:
        _log.error("the volume of %s tells no size: %s", path, error)
        return _failed(path)
    return DescribeLogDirsResult(
        log_dir=path,
        topics=[DescribeLogDirsTopic(name=name, partitions=parts) for name, parts in topics.items()],
        total_bytes=total_bytes,
        usable_bytes=usable_bytes,
        is_cordoned=call.node.image.metadata_version >= CORDONED_DIRECTORIES_FROM
        and path in call.node.log_dirs.cordoned(),
    )
