"""CreateTopics (key 19): create topics.

Version 4: the broker's defaults for partition count and replication factor (KIP-464); 5 the created topic in the
response (KIP-525); 6 THROTTLING_QUOTA_EXCEEDED (KIP-599); 7 topic ids (KIP-516).
"""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import NO_UUID, Boolean, Int8, Int16, Int32, String, Uuid


@wire
class CreatableReplicaAssignment:
    partition_index: Int32 = on("0+", default=0)
    broker_ids: list[Int32] = on("0+", factory=list)


@wire
class CreatableTopicConfig:
    name: String = on("0+", default="")
    value: String | None = on("0+", default="")


@wire
class CreatableTopic:
    name: String = on("0+", default="")
    num_partitions: Int32 = on("0+", default=0)
    replication_factor: Int16 = on("0+", default=0)
    assignments: list[CreatableReplicaAssignment] = on("0+", factory=list)
    configs: list[CreatableTopicConfig] = on("0+", factory=list)


@wire(versions="2-7", flexible="5+")
class CreateTopicsRequest:
    topics: list[CreatableTopic] = on("0+", factory=list)
    timeout_ms: Int32 = on("0+", default=60000)
    validate_only: Boolean = on("1+", default=False)


@wire
class CreatableTopicConfigs:
    name: String = on("5+", default="")
    value: String | None = on("5+", default="")
    read_only: Boolean = on("5+", default=False)
    config_source: Int8 = on("5+", default=-1, ignorable=True)
    is_sensitive: Boolean = on("5+", default=False)


@wire
class CreatableTopicResult:
    name: String = on("0+", default="")
    topic_id: Uuid = on("7+", default=NO_UUID, ignorable=True)
    error_code: Int16 = on("0+", default=0)
    error_message: String | None = on("1+", default="", ignorable=True)
    topic_config_error_code: Int16 = on("5+", default=0, tag=0, ignorable=True)
    num_partitions: Int32 = on("5+", default=-1, ignorable=True)
    replication_factor: Int16 = on("5+", default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = on("5+", factory=list, ignorable=True)


@wire(versions="2-7", flexible="5+")
class CreateTopicsResponse:
    throttle_time_ms: Int32 = on("2+", default=0, ignorable=True)
    topics: list[CreatableTopicResult] = on("0+", factory=list)
