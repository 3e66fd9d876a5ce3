"""JoinGroup (key 11): join the next generation of a classic group.

Versions: 4 a new member first gets its id, with MEMBER_ID_REQUIRED (KIP-394); 5 static members (KIP-345); 7 the
protocol type in the response (KIP-559); 8 the reason (KIP-800); 9 the leader can skip the assignment (KIP-814).
"""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import Boolean, Bytes, Int16, Int32, String


@wire
class JoinGroupRequestProtocol:
    name: String = on("0+", default="")
    metadata: Bytes = on("0+", default=b"")


@wire(versions="0-9", flexible="6+")
class JoinGroupRequest:
    group_id: String = on("0+", default="")
    session_timeout_ms: Int32 = on("0+", default=0)
    rebalance_timeout_ms: Int32 = on("1+", default=-1, ignorable=True)
    member_id: String = on("0+", default="")
    group_instance_id: String | None = on("5+", default=None)
    protocol_type: String = on("0+", default="")
    protocols: list[JoinGroupRequestProtocol] = on("0+", factory=list)
    reason: String | None = on("8+", default=None, ignorable=True)


@wire
class JoinGroupResponseMember:
    member_id: String = on("0+", default="")
    group_instance_id: String | None = on("5+", default=None, ignorable=True)
    metadata: Bytes = on("0+", default=b"")


@wire(versions="0-9", flexible="6+")
class JoinGroupResponse:
    throttle_time_ms: Int32 = on("2+", default=0, ignorable=True)
    error_code: Int16 = on("0+", default=0)
    generation_id: Int32 = on("0+", default=-1)
    protocol_type: String | None = on("7+", default=None, ignorable=True)
    protocol_name: String | None = on("0+", default="", nullable="7+")
    leader: String = on("0+", default="")
    skip_assignment: Boolean = on("9+", default=False)
    member_id: String = on("0+", default="")
    members: list[JoinGroupResponseMember] = on("0+", factory=list)
