"""DescribeCluster (key 60): the cluster's id, controller and nodes (KIP-700).

Version 1: brokers or controllers (KIP-919); 2 fenced brokers (KIP-1073).
"""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import Boolean, Int8, Int16, Int32, String


@wire(versions="0-2", flexible="0+")
class DescribeClusterRequest:
    include_cluster_authorized_operations: Boolean = on("0+", default=False)
    endpoint_type: Int8 = on("1+", default=1)
    include_fenced_brokers: Boolean = on("2+", default=False)


@wire
class DescribeClusterBroker:
    broker_id: Int32 = on("0+", default=0)
    host: String = on("0+", default="")
    port: Int32 = on("0+", default=0)
    rack: String | None = on("0+", default=None)
    is_fenced: Boolean = on("2+", default=False)


@wire(versions="0-2", flexible="0+")
class DescribeClusterResponse:
    throttle_time_ms: Int32 = on("0+", default=0)
    error_code: Int16 = on("0+", default=0)
    error_message: String | None = on("0+", default=None)
    endpoint_type: Int8 = on("1+", default=1)
    cluster_id: String = on("0+", default="")
    controller_id: Int32 = on("0+", default=-1)
    brokers: list[DescribeClusterBroker] = on("0+", factory=list)
    cluster_authorized_operations: Int32 = on("0+", default=-2147483648)
