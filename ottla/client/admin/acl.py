"""The admin calls for access control lists, with their arguments and results (KIP-140, KIP-290)."""

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
    """An access control entry: a principal may, or may not, perform an operation on a resource from a host."""

    resource: AclResource
    name: str
    principal: str
    operation: AclOperation
    permission: AclPermission = AclPermission.ALLOW
    pattern: PatternType = PatternType.LITERAL
    host: str = "*"


@frozen
class AclFilter:
    """A filter for access control entries; None and ANY match everything."""

    resource: AclResource = AclResource.ANY
    name: str | None = None
    principal: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission: AclPermission = AclPermission.ANY
    pattern: PatternType = PatternType.ANY
    host: str | None = None


class AclCalls(Calls):
    """The part of `AsyncAdmin` for access control lists. SECURITY_DISABLED if the cluster has no authorizer."""

    async def describe_acls(self, which: AclFilter | None = None) -> list[Acl]:
        """The entries that the filter matches (default: all)."""
        which = which or AclFilter()
        request = DescribeAclsRequest(**_filter_fields(which))
        response = await self._any(
            request, DescribeAclsResponse, lambda answer: check(answer.error_code, answer.error_message)
        )
        return [
            _acl(resource.resource_type, resource.resource_name, resource.pattern_type, entry)
            for resource in response.resources
            for entry in resource.acls
        ]

    async def create_acls(self, acls: Iterable[Acl]) -> Results[Acl, None]:
        """Add entries; adding an existing one is no error."""
        wanted = list(acls)
        creations = [
            AclCreation(
                resource_type=int(acl.resource),
                resource_name=acl.name,
                resource_pattern_type=int(acl.pattern),
                principal=acl.principal,
                host=acl.host,
                operation=int(acl.operation),
                permission_type=int(acl.permission),
            )
            for acl in wanted
        ]
        response = await self._any(CreateAclsRequest(creations=creations), CreateAclsResponse)
        # Results carry no names: they are in the order of the request.
        answers = zip(wanted, response.results, strict=False)
        return collect({acl: error_of(result.error_code, result.error_message) for acl, result in answers}, wanted)

    async def delete_acls(self, filters: Iterable[AclFilter]) -> Results[AclFilter, tuple[Acl, ...]]:
        """Delete the entries that each filter matches, and return them by filter."""
        wanted = list(filters)
        acl_filters = [DeleteAclsFilter(**_filter_fields(acl_filter)) for acl_filter in wanted]
        response = await self._any(DeleteAclsRequest(filters=acl_filters), DeleteAclsResponse)
        deleted: dict[AclFilter, tuple[Acl, ...] | KafkaError] = {}
        for acl_filter, result in zip(wanted, response.filter_results, strict=False):
            failed = [
                error_of(entry.error_code, entry.error_message) for entry in result.matching_acls if entry.error_code
            ]
            error = error_of(result.error_code, result.error_message) or (failed[0] if failed else None)
            deleted[acl_filter] = error or tuple(
                _acl(entry.resource_type, entry.resource_name, entry.pattern_type, entry)
                for entry in result.matching_acls
            )
        return collect(deleted, wanted)


def _filter_fields(acl_filter: AclFilter) -> dict[str, Any]:
    """The fields of a filter in the requests to describe and to delete."""
    return {
        "resource_type_filter": int(acl_filter.resource),
        "resource_name_filter": acl_filter.name,
        "pattern_type_filter": int(acl_filter.pattern),
        "principal_filter": acl_filter.principal,
        "host_filter": acl_filter.host,
        "operation": int(acl_filter.operation),
        "permission_type": int(acl_filter.permission),
    }


def _acl(resource: int, name: str, pattern: int, entry: AclDescription | DeleteAclsMatchingAcl) -> Acl:
    return Acl(
        AclResource(resource),
        name,
        entry.principal,
        AclOperation(entry.operation),
        AclPermission(entry.permission_type),
        PatternType(pattern),
        entry.host,
    )
