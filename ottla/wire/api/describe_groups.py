"""DescribeGroups (key 15): state and members of classic groups.

Version 3: authorized operations; 4 static members; 6 GROUP_ID_NOT_FOUND with a message in place of a dead group
(KIP-1043).
"""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import Boolean, Bytes, Int16, Int32, String


@wire(versions="0-6", flexible="5+")
class DescribeGroupsRequest:
    groups: list[String] = on("0+", factory=list)
    include_authorized_operations: Boolean = on("3+", default=False)


@wire
class DescribedGroupMember:
    member_id: String = on("0+", default="")
    group_instance_id: String | None = on("4+", default=None, ignorable=True)
    client_id: String = on("0+", default="")
    client_host: String = on("0+", default="")
    member_metadata: Bytes = on("0+", default=b"")
    member_assignment: Bytes = on("0+", default=b"")


@wire
class DescribedGroup:
    error_code: Int16 = on("0+", default=0)
    error_message: String | None = on("6+", default=None)
    group_id: String = on("0+", default="")
    group_state: String = on("0+", default="")
    protocol_type: String = on("0+", default="")
    protocol_data: String = on("0+", default="")
    members: list[DescribedGroupMember] = on("0+", factory=list)
    authorized_operations: Int32 = on("3+", default=-2147483648)


@wire(versions="0-6", flexible="5+")
class DescribeGroupsResponse:
    throttle_time_ms: Int32 = on("1+", default=0, ignorable=True)
    groups: list[DescribedGroup] = on("0+", factory=list)
