"""Access control lists: the admin calls about them, and what they take and give (KIP-140, KIP-290)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ottla.client.admin.call import Calls, collect
from ottla.client.admin.result import Results
from ottla.kernel.client_error import check, error_of
from ottla.kernel.error import KafkaError
from ottla.kernel.frozen import frozen
from ottla.security.acl import AclOperation as AclOperation
from ottla.security.acl import AclPermission as AclPermission
from ottla.security.acl import AclResource as AclResource
from ottla.security.acl import PatternType as PatternType
from ottla.wire.api.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from ottla.wire.api.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from ottla.wire.api.describe_acls import AclDescription, DescribeAclsRequest, DescribeAclsResponse


@frozen
class Acl:
    """A line: this principal may, or may not, do this with this resource from this host."""

    resource: AclResource
    name: str
    principal: str
    operation: AclOperation
    permission: AclPermission = AclPermission.ALLOW
    pattern: PatternType = PatternType.LITERAL
    host: str = "*"


@frozen
class AclFilter:
    """Which lines are meant; None and ANY leave a part open."""

    resource: AclResource = AclResource.ANY
    name: str | None = None
    principal: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY
    pattern: PatternType = PatternType.ANY
    host: str | None = None


class AclCalls(Calls):
    """The part of `AsyncAdmin` about access control lists. SECURITY_DISABLED where the cluster has no authorizer."""

    async def describe_acls(self, which: AclFilter | None = None) -> list[Acl]:
        """All lines that the filter matches, or all there are."""
        which = which or AclFilter()
        request = DescribeAclsRequest(**_filter_fields(which))
        response = await self._any(
            request, DescribeAclsResponse, lambda answer: check(answer.error_code, answer.error_message)
        )
        return [
            _acl(resource.resource_type, resource.resource_name, resource.pattern_type, one)
            for resource in response.resources
            for one in resource.acls
        ]

    async def create_acls(self, acls: Iterable[Acl]) -> Results[Acl, None]:
        """Add lines; one that is there already is no error."""
        wanted = list(acls)
        creations = [
            AclCreation(
                resource_type=int(one.resource),
                resource_name=one.name,
                resource_pattern_type=int(one.pattern),
                principal=one.principal,
                host=one.host,
                operation=int(one.operation),
                permission_type=int(one.permission),
            )
            for one in wanted
        ]
        response = await self._any(CreateAclsRequest(creations=creations), CreateAclsResponse)
        # Answers have no names: they come in the order of the request.
        answers = zip(wanted, response.results, strict=False)
        return collect({acl: error_of(one.error_code, one.error_message) for acl, one in answers}, wanted)

    async def delete_acls(self, filters: Iterable[AclFilter]) -> Results[AclFilter, tuple[Acl, ...]]:
        """Remove what each filter matches; gives what was removed."""
        wanted = list(filters)
        asked = [DeleteAclsFilter(**_filter_fields(one)) for one in wanted]
        response = await self._any(DeleteAclsRequest(filters=asked), DeleteAclsResponse)
        found: dict[AclFilter, tuple[Acl, ...] | KafkaError] = {}
        for which, result in zip(wanted, response.filter_results, strict=False):
            failed = [error_of(one.error_code, one.error_message) for one in result.matching_acls if one.error_code]
            error = error_of(result.error_code, result.error_message) or (failed[0] if failed else None)
            found[which] = error or tuple(
                _acl(one.resource_type, one.resource_name, one.pattern_type, one) for one in result.matching_acls
            )
        return collect(found, wanted)


def _filter_fields(which: AclFilter) -> dict[str, Any]:
    """A filter as the requests to describe and to delete have it."""
    return {
        "resource_type_filter": int(which.resource),
        "resource_name_filter": which.name,
        "pattern_type_filter": int(which.pattern),
        "principal_filter": which.principal,
        "host_filter": which.host,
        "operation": int(which.operation),
        "permission_type": int(which.permission),
    }


def _acl(resource: int, name: str, pattern: int, one: AclDescription | DeleteAclsMatchingAcl) -> Acl:
    return Acl(
        AclResource(resource),
        name,
        one.principal,
        AclOperation(one.operation),
        AclPermission(one.permission_type),
        PatternType(pattern),
        one.host,
    )
