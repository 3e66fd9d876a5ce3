"""DeleteAcls (key 31): remove the ACLs that match filters, and return them.

Version 1: pattern types (KIP-290); 3 users as a resource (KIP-373).
"""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import Int8, Int16, Int32, String


@wire
class DeleteAclsFilter:
    resource_type_filter: Int8 = on("0+", default=0)
    resource_name_filter: String | None = on("0+", default="")
    pattern_type_filter: Int8 = on("1+", default=3)
    principal_filter: String | None = on("0+", default="")
    host_filter: String | None = on("0+", default="")
    operation: Int8 = on("0+", default=0)
    permission_type: Int8 = on("0+", default=0)


@wire(versions="1-3", flexible="2+")
class DeleteAclsRequest:
    filters: list[DeleteAclsFilter] = on("0+", factory=list)


@wire
class DeleteAclsMatchingAcl:
    error_code: Int16 = on("0+", default=0)
    error_message: String | None = on("0+", default="")
    resource_type: Int8 = on("0+", default=0)
    resource_name: String = on("0+", default="")
    pattern_type: Int8 = on("1+", default=3)
    principal: String = on("0+", default="")
    host: String = on("0+", default="")
    operation: Int8 = on("0+", default=0)
    permission_type: Int8 = on("0+", default=0)


@wire
class DeleteAclsFilterResult:
    error_code: Int16 = on("0+", default=0)
    error_message: String | None = on("0+", default="")
    matching_acls: list[DeleteAclsMatchingAcl] = on("0+", factory=list)


@wire(versions="1-3", flexible="2+")
class DeleteAclsResponse:
    throttle_time_ms: Int32 = on("0+", default=0)
    filter_results: list[DeleteAclsFilterResult] = on("0+", factory=list)
