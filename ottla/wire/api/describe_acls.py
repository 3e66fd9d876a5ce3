"""DescribeAcls (key 29): the ACLs that match a filter.

Version 1: pattern types (KIP-290); 3 users as a resource (KIP-373).
"""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import Int8, Int16, Int32, String


@wire(versions="1-3", flexible="2+")
class DescribeAclsRequest:
    resource_type_filter: Int8 = on("0+", default=0)
    resource_name_filter: String | None = on("0+", default="")
    pattern_type_filter: Int8 = on("1+", default=3)
    principal_filter: String | None = on("0+", default="")
    host_filter: String | None = on("0+", default="")
    operation: Int8 = on("0+", default=0)
    permission_type: Int8 = on("0+", default=0)


@wire
class AclDescription:
    principal: String = on("0+", default="")
    host: String = on("0+", default="")
    operation: Int8 = on("0+", default=0)
    permission_type: Int8 = on("0+", default=0)


@wire
class DescribeAclsResource:
    resource_type: Int8 = on("0+", default=0)
    resource_name: String = on("0+", default="")
    pattern_type: Int8 = on("1+", default=3)
    acls: list[AclDescription] = on("0+", factory=list)


@wire(versions="1-3", flexible="2+")
class DescribeAclsResponse:
    throttle_time_ms: Int32 = on("0+", default=0)
    error_code: Int16 = on("0+", default=0)
    error_message: String | None = on("0+", default="")
    resources: list[DescribeAclsResource] = on("0+", factory=list)
