"""FindCoordinator (key 10): the broker that coordinates a group, a transactional id or a share partition.

Key types: 0 group, 1 transaction, 2 share (version 6, key `group:topicId:partition`, KIP-932). Version 4 has many keys
in one request (KIP-699).
"""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import Int8, Int16, Int32, String


@wire(versions="0-6", flexible="3+")
class FindCoordinatorRequest:
    key: String = on("0-3", default="")
    key_type: Int8 = on("1+", default=0)
    coordinator_keys: list[String] = on("4+", factory=list)


@wire
class Coordinator:
    key: String = on("4+", default="")
    node_id: Int32 = on("4+", default=0)
    host: String = on("4+", default="")
    port: Int32 = on("4+", default=0)
    error_code: Int16 = on("4+", default=0)
    error_message: String | None = on("4+", default="", ignorable=True)


@wire(versions="0-6", flexible="3+")
class FindCoordinatorResponse:
    throttle_time_ms: Int32 = on("1+", default=0, ignorable=True)
    error_code: Int16 = on("0-3", default=0)
    error_message: String | None = on("1-3", default="", ignorable=True)
    node_id: Int32 = on("0-3", default=0)
    host: String = on("0-3", default="")
    port: Int32 = on("0-3", default=0)
    coordinators: list[Coordinator] = on("4+", factory=list)
