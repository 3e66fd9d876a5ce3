"""Metadata (key 3): brokers, topics, partitions and their leaders.

A null list of topics (in version 0, an empty one) requests all. Version 4: whether the request may create topics; 8
authorized operations (KIP-430); 10 topic ids in request and response (KIP-516); 12 topics by id only, with a null name;
13 a top-level error, which tells a client to bootstrap again (KIP-1102).
"""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import NO_UUID, Boolean, Int16, Int32, String, Uuid


@wire
class MetadataRequestTopic:
    topic_id: Uuid = on("10+", default=NO_UUID, ignorable=True)
    name: String | None = on("0+", default="", nullable="10+")


@wire(versions="0-13", flexible="9+")
class MetadataRequest:
    topics: list[MetadataRequestTopic] | None = on("0+", factory=list, nullable="1+")
    allow_auto_topic_creation: Boolean = on("4+", default=True)
    include_cluster_authorized_operations: Boolean = on("8-10", default=False)
    include_topic_authorized_operations: Boolean = on("8+", default=False)


@wire
class MetadataResponseBroker:
    node_id: Int32 = on("0+", default=0)
    host: String = on("0+", default="")
    port: Int32 = on("0+", default=0)
    rack: String | None = on("1+", default=None, ignorable=True)


@wire
class MetadataResponsePartition:
    error_code: Int16 = on("0+", default=0)
    partition_index: Int32 = on("0+", default=0)
    leader_id: Int32 = on("0+", default=0)
    leader_epoch: Int32 = on("7+", default=-1, ignorable=True)
    replica_nodes: list[Int32] = on("0+", factory=list)
    isr_nodes: list[Int32] = on("0+", factory=list)
    offline_replicas: list[Int32] = on("5+", factory=list, ignorable=True)


@wire
class MetadataResponseTopic:
    error_code: Int16 = on("0+", default=0)
    name: String | None = on("0+", default="", nullable="12+")
    topic_id: Uuid = on("10+", default=NO_UUID, ignorable=True)
    is_internal: Boolean = on("1+", default=False, ignorable=True)
    partitions: list[MetadataResponsePartition] = on("0+", factory=list)
    topic_authorized_operations: Int32 = on("8+", default=-2147483648)


@wire(versions="0-13", flexible="9+")
class MetadataResponse:
    throttle_time_ms: Int32 = on("3+", default=0, ignorable=True)
    brokers: list[MetadataResponseBroker] = on("0+", factory=list)
    cluster_id: String | None = on("2+", default=None, ignorable=True)
    controller_id: Int32 = on("1+", default=-1, ignorable=True)
    topics: list[MetadataResponseTopic] = on("0+", factory=list)
    cluster_authorized_operations: Int32 = on("8-10", default=-2147483648)
    error_code: Int16 = on("13+", default=0, ignorable=True)
