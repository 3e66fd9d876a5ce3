"""CreateAcls (key 30): add ACLs.

Version 1: pattern types (KIP-290); 3 users as a resource (KIP-373).
"""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import Int8, Int16, Int32, String


@wire
class AclCreation:
    resource_type: Int8 = on("0+", default=0)
    resource_name: String = on("0+", default="")
    resource_pattern_type: Int8 = on("1+", default=3)
    principal: String = on("0+", default="")
    host: String = on("0+", default="")
    operation: Int8 = on("0+", default=0)
    permission_type: Int8 = on("0+", default=0)


@wire(versions="1-3", flexible="2+")
class CreateAclsRequest:
    creations: list[AclCreation] = on("0+", factory=list)


@wire
class AclCreationResult:
    error_code: Int16 = on("0+", default=0)
    error_message: String | None = on("0+", default="")


@wire(versions="1-3", flexible="2+")
class CreateAclsResponse:
    throttle_time_ms: Int32 = on("0+", default=0)
    results: list[AclCreationResult] = on("0+", factory=list)
