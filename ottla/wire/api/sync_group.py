"""SyncGroup (key 14): distribute (the leader) and fetch (all members) the assignment of a classic group's generation.

Version 3: static members (KIP-345); 5 protocol type and name are checked (KIP-559).
"""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import Bytes, Int16, Int32, String


@wire
class SyncGroupRequestAssignment:
    member_id: String = on("0+", default="")
    assignment: Bytes = on("0+", default=b"")


@wire(versions="0-5", flexible="4+")
class SyncGroupRequest:
    group_id: String = on("0+", default="")
    generation_id: Int32 = on("0+", default=0)
    member_id: String = on("0+", default="")
    group_instance_id: String | None = on("3+", default=None)
    protocol_type: String | None = on("5+", default=None, ignorable=True)
    protocol_name: String | None = on("5+", default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = on("0+", factory=list)


@wire(versions="0-5", flexible="4+")
class SyncGroupResponse:
    throttle_time_ms: Int32 = on("1+", default=0, ignorable=True)
    error_code: Int16 = on("0+", default=0)
    protocol_type: String | None = on("5+", default=None, ignorable=True)
    protocol_name: String | None = on("5+", default=None, ignorable=True)
    assignment: Bytes = on("0+", default=b"")
