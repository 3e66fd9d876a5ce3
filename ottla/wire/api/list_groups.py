"""ListGroups (key 16): the groups that this broker coordinates.

Version 4: filter by state (KIP-518); 5 filter by type, and the type in the response (KIP-848).
"""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import Int16, Int32, String


@wire(versions="0-5", flexible="3+")
class ListGroupsRequest:
    states_filter: list[String] = on("4+", factory=list)
    types_filter: list[String] = on("5+", factory=list)


@wire
class ListedGroup:
    group_id: String = on("0+", default="")
    protocol_type: String = on("0+", default="")
    group_state: String = on("4+", default="", ignorable=True)
    group_type: String = on("5+", default="", ignorable=True)


@wire(versions="0-5", flexible="3+")
class ListGroupsResponse:
    throttle_time_ms: Int32 = on("1+", default=0, ignorable=True)
    error_code: Int16 = on("0+", default=0)
    groups: list[ListedGroup] = on("0+", factory=list)
