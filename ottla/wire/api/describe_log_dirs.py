"""DescribeLogDirs (key 35): log directories, the replicas in them and their sizes (KIP-113).

Version 4: size of the volume (KIP-827); 5 whether a directory is cordoned (KIP-1066).
"""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import Boolean, Int16, Int32, Int64, String


@wire
class DescribableLogDirTopic:
    topic: String = on("0+", default="")
    partitions: list[Int32] = on("0+", factory=list)


@wire(versions="1-5", flexible="2+")
class DescribeLogDirsRequest:
    topics: list[DescribableLogDirTopic] | None = on("0+", factory=list)


@wire
class DescribeLogDirsPartition:
    partition_index: Int32 = on("0+", default=0)
    partition_size: Int64 = on("0+", default=0)
    offset_lag: Int64 = on("0+", default=0)
    is_future_key: Boolean = on("0+", default=False)


@wire
class DescribeLogDirsTopic:
    name: String = on("0+", default="")
    partitions: list[DescribeLogDirsPartition] = on("0+", factory=list)


@wire
class DescribeLogDirsResult:
    error_code: Int16 = on("0+", default=0)
    log_dir: String = on("0+", default="")
    topics: list[DescribeLogDirsTopic] = on("0+", factory=list)
    total_bytes: Int64 = on("4+", default=-1, ignorable=True)
    usable_bytes: Int64 = on("4+", default=-1, ignorable=True)
    is_cordoned: Boolean = on("5+", default=False, ignorable=True)


@wire(versions="1-5", flexible="2+")
class DescribeLogDirsResponse:
    throttle_time_ms: Int32 = on("0+", default=0)
    error_code: Int16 = on("3+", default=0, ignorable=True)
    results: list[DescribeLogDirsResult] = on("0+", factory=list)
