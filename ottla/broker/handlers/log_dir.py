"""DescribeLogDirs (key 35) and AlterReplicaLogDirs (key 34): where logs are, and where they should be.

KIPs: 113 both, 827 the volume's bytes, 1066 cordoned directories.
"""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator

from ottla.broker.call.handler import Call, handles
from ottla.broker.call.reply import Reply, in_turns
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
#: About a millisecond; each move that begins syncs a directory.
_NAMES_PER_STEP = 2000
_MOVES_PER_STEP = 20
_Parts = dict[str, list[DescribeLogDirsPartition]]


@handles(ApiKey.ALTER_REPLICA_LOG_DIRS)
def alter_replica_log_dirs(call: Call, request: AlterReplicaLogDirsRequest) -> Reply:
    """Start moving each partition; if a request names two directories for one, the last counts."""
    return in_turns(call.connection, _move_in_steps(call, request))


def _move_in_steps(
    call: Call, request: AlterReplicaLogDirsRequest
) -> Generator[None, None, AlterReplicaLogDirsResponse]:
    wanted: dict[TopicPartition, str] = {}
    looked = 0
    for directory in request.dirs:
        looked += 1
        if not looked % _NAMES_PER_STEP:
            yield
        for topic in directory.topics:
            for index in topic.partitions:
                wanted[TopicPartition(topic.name, index)] = directory.path
                looked += 1
                if not looked % _NAMES_PER_STEP:
                    yield
    results: dict[str, AlterReplicaLogDirTopicResult] = {}
    for number, (tp, path) in enumerate(wanted.items(), 1):
        code = call.node.log_dirs.move(tp, path)
        result = results.setdefault(tp.topic, AlterReplicaLogDirTopicResult(topic_name=tp.topic))
        result.partitions.append(AlterReplicaLogDirPartitionResult(partition_index=tp.partition, error_code=code))
        if not number % _MOVES_PER_STEP:
            yield
    return AlterReplicaLogDirsResponse(results=list(results.values()))


@handles(ApiKey.DESCRIBE_LOG_DIRS)
def describe_log_dirs(call: Call, request: DescribeLogDirsRequest) -> Reply:
    """Every log directory with its volume's size and the requested partitions; null requests all of them."""
    return in_turns(call.connection, _describe_in_steps(call, request))


def _describe_in_steps(call: Call, request: DescribeLogDirsRequest) -> Generator[None, None, DescribeLogDirsResponse]:
    wanted: set[tuple[str, int]] | None = None
    if request.topics is not None:
        wanted = set()
        asked = ((topic.topic, index) for topic in request.topics for index in topic.partitions)
        for number, each in enumerate(asked, 1):
            wanted.add(each)
            if not number % _NAMES_PER_STEP:
                yield
    # What is there may have changed meanwhile.
    store = call.node.store
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
