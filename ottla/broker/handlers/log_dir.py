"""DescribeLogDirs (key 35) and AlterReplicaLogDirs (key 34): where the bytes are (KIP-113, KIP-827)."""

from __future__ import annotations

from ottla.broker.dispatch import Call, handles
from ottla.wire.api import ApiKey
from ottla.wire.api.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


@handles(ApiKey.DESCRIBE_LOG_DIRS)
def describe_log_dirs(call: Call, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    """Every log directory with its volume's bytes and the partitions asked for; null asks for all."""
    node = call.node
    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    by_directory: dict[str, dict[str, list[DescribeLogDirsPartition]]] = {
        directory: {} for directory in node.store.directories
    }
    for partition in node.partitions.values():
        if wanted is not None and partition.tp not in wanted:
            continue
        topics = by_directory[node.store.directory_of(partition.tp)]
        topics.setdefault(partition.tp.topic, []).append(
            DescribeLogDirsPartition(
                partition_index=partition.tp.partition, partition_size=partition.log.size, offset_lag=0
            )
        )
    return DescribeLogDirsResponse(results=[_directory(call, *each) for each in by_directory.items()])


def _directory(call: Call, directory: str, topics: dict[str, list[DescribeLogDirsPartition]]) -> DescribeLogDirsResult:
    total_bytes, usable_bytes = call.node.disk.free_bytes(directory)
    return DescribeLogDirsResult(
        log_dir=directory,
        topics=[DescribeLogDirsTopic(name=name, partitions=parts) for name, parts in topics.items()],
        total_bytes=total_bytes,
        usable_bytes=usable_bytes,
    )
