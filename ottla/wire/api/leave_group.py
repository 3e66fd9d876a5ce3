"""LeaveGroup (key 13): members leave a classic group.

Version 3: many members in one request, also by instance id (KIP-345); 5 the reason (KIP-800).
"""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import Int16, Int32, String


@wire
class MemberIdentity:
    member_id: String = on("3+", default="")
    group_instance_id: String | None = on("3+", default=None)
    reason: String | None = on("5+", default=None, ignorable=True)


@wire(versions="0-5", flexible="4+")
class LeaveGroupRequest:
    group_id: String = on("0+", default="")
    member_id: String = on("0-2", default="")
    members: list[MemberIdentity] = on("3+", factory=list)


@wire
class MemberResponse:
    member_id: String = on("3+", default="")
    group_instance_id: String | None = on("3+", default="")
    error_code: Int16 = on("3+", default=0)


@wire(versions="0-5", flexible="4+")
class LeaveGroupResponse:
    throttle_time_ms: Int32 = on("1+", default=0, ignorable=True)
    error_code: Int16 = on("0+", default=0)
    members: list[MemberResponse] = on("3+", factory=list)
