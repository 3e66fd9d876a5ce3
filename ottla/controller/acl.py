"""ACLs in the metadata: CreateAcls (key 30), DeleteAcls (31) and DescribeAcls (29).

Rules:
- A rule that already exists, or appears twice in a request, is created once. Each rule of a request fails alone.
- A filter deletes every rule that it matches. A rule that two filters match is in the results of both.
- The errors and their messages are those of Kafka's AclControlManager.

KIPs: 140, 290 (patterns).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import Any

from ottla.controller.decision import RECORDS_MAX, Decision, check_size
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import Uuid
from ottla.kernel.ports import Rng
from ottla.metadata.image import Image
from ottla.security.acl import CLUSTER_NAME, AclOperation, AclPermission, AclResource, PatternType, RuleFilter
from ottla.wire.api import create_acls as create
from ottla.wire.api import delete_acls as delete
from ottla.wire.api import describe_acls as describe
from ottla.wire.record.security import AccessControlEntryRecord, RemoveAccessControlEntryRecord

#: The values that a rule may have: ANY is for filters only.
_KINDS = frozenset(AclResource) - {AclResource.ANY}
_OPERATIONS = frozenset(AclOperation) - {AclOperation.ANY}
#: A rule without its id.
_Content = tuple[int, str, int, str, str, int, int]
#: About a millisecond.
RULES_PER_STEP = 250
_ENUM_NAMES = {1: "ANY", 2: "MATCH"}


def create_acls(image: Image, rng: Rng, request: create.CreateAclsRequest) -> Decision:
    """Create the rules that do not exist."""
    existing: set[_Content] | None = None
    records: list[Any] = []
    results = []
    for creation in request.creations:
        try:
            _check(creation)
        except KafkaError as error:
            results.append(create.AclCreationResult(error_code=error.code, error_message=error.message))
            continue
        results.append(create.AclCreationResult(error_message=None))
        if existing is None:
            existing = {_content(rule) for rule in image.acls.values()}
        record = AccessControlEntryRecord(
            id=_new_id(image, rng),
            resource_type=creation.resource_type,
            resource_name=creation.resource_name,
            pattern_type=creation.resource_pattern_type,
            principal=creation.principal,
            host=creation.host,
            operation=creation.operation,
            permission_type=creation.permission_type,
        )
        if _content(record) not in existing:
            existing.add(_content(record))
            records.append(record)
            check_size(records)
    return Decision(records, create.CreateAclsResponse(results=results))


def delete_acls(image: Image, request: delete.DeleteAclsRequest) -> Decision:
    """Delete every rule that matches one of the filters."""
    deleted: dict[Uuid, None] = {}
    results = []
    candidates = _Candidates(image.acls.values())
    for entry in request.filters:
        rule_filter = filter_of(entry)
        matching = [rule for rule in candidates.of(rule_filter) if rule_filter.matches(rule)]
        deleted.update((rule.id, None) for rule in matching)
        if len(deleted) > RECORDS_MAX:
            why = f"Cannot remove more than {RECORDS_MAX} acls in a single delete operation."
            raise KafkaError(ErrorCode.INVALID_REQUEST, why)
        results.append(
            delete.DeleteAclsFilterResult(
                error_message=None,
                matching_acls=[
                    delete.DeleteAclsMatchingAcl(
                        error_message=None,
                        resource_type=rule.resource_type,
                        resource_name=rule.resource_name,
                        pattern_type=rule.pattern_type,
                        principal=rule.principal,
                        host=rule.host,
                        operation=rule.operation,
                        permission_type=rule.permission_type,
                    )
                    for rule in matching
                ],
            )
        )
    records = [RemoveAccessControlEntryRecord(id=entry) for entry in deleted]
    return Decision(records, delete.DeleteAclsResponse(filter_results=results))


class _Candidates:
    """The rules by name and by principal: a request with many filters does not try every rule for each of them."""

    def __init__(self, rules: Iterable[AccessControlEntryRecord]) -> None:
        self._all = list(rules)
        self._by_name: dict[str, list[AccessControlEntryRecord]] = {}
        self._by_principal: dict[str, list[AccessControlEntryRecord]] = {}
        for rule in self._all:
            self._by_name.setdefault(rule.resource_name, []).append(rule)
            self._by_principal.setdefault(rule.principal, []).append(rule)

    def of(self, rule_filter: RuleFilter) -> Sequence[AccessControlEntryRecord]:
        """Return the rules that the filter may match, in their order."""
        if rule_filter.resource_name is not None and rule_filter.pattern_type != PatternType.MATCH:
            return self._by_name.get(rule_filter.resource_name, ())
        if rule_filter.principal is not None:
            return self._by_principal.get(rule_filter.principal, ())
        return self._all


def describe_acls(
    rules: Iterable[AccessControlEntryRecord], rule_filter: RuleFilter
) -> Generator[None, None, describe.DescribeAclsResponse]:
    """Return the rules that match a filter, by resource; in steps."""
    resources: dict[tuple[int, str, int], list[describe.AclDescription]] = {}
    for number, rule in enumerate(rules, 1):
        if not number % RULES_PER_STEP:
            yield
        if rule_filter.matches(rule):
            key = (rule.resource_type, rule.resource_name, rule.pattern_type)
            resources.setdefault(key, []).append(
                describe.AclDescription(
                    principal=rule.principal,
                    host=rule.host,
                    operation=rule.operation,
                    permission_type=rule.permission_type,
                )
            )
    return describe.DescribeAclsResponse(
        resources=[
            describe.DescribeAclsResource(resource_type=kind, resource_name=name, pattern_type=pattern, acls=acls)
            for (kind, name, pattern), acls in resources.items()
        ],
    )


def filter_of(request: delete.DeleteAclsFilter | describe.DescribeAclsRequest) -> RuleFilter:
    """Build the filter of either request."""
    return RuleFilter(
        request.resource_type_filter,
        request.resource_name_filter,
        request.pattern_type_filter,
        request.principal_filter,
        request.host_filter,
        request.operation,
        request.permission_type,
    )


def _check(creation: create.AclCreation) -> None:
    def require(holds: bool, why: str) -> None:
        if not holds:
            raise KafkaError(ErrorCode.INVALID_REQUEST, why)

    if creation.resource_type == AclResource.CLUSTER:
        require(
            creation.resource_name == CLUSTER_NAME, f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
        )
    require(bool(creation.resource_name), "Invalid empty resource name")
    require(creation.resource_type in _KINDS, f"Invalid resourceType {_enum_name(creation.resource_type)}")
    require(
        creation.resource_pattern_type in (PatternType.LITERAL, PatternType.PREFIXED),
        f"Invalid patternType {_enum_name(creation.resource_pattern_type)}",
    )
    require(creation.operation in _OPERATIONS, f"Invalid operation {_enum_name(creation.operation, match=False)}")
    require(
        creation.permission_type in (AclPermission.DENY, AclPermission.ALLOW),
        f"Invalid permissionType {_enum_name(creation.permission_type, match=False)}",
    )
    require(
        ":" in creation.principal,
        f"Could not parse principal from `{creation.principal}` (no colon is present separating the principal type "
        "from the principal name)",
    )


def _enum_name(number: int, *, match: bool = True) -> str:
    return _ENUM_NAMES.get(number, "UNKNOWN") if match or number == 1 else "UNKNOWN"


def _content(rule: AccessControlEntryRecord) -> _Content:
    return (
        rule.resource_type,
        rule.resource_name,
        rule.pattern_type,
        rule.principal,
        rule.host,
        rule.operation,
        rule.permission_type,
    )


def _new_id(image: Image, rng: Rng) -> Uuid:
    while True:
        candidate = Uuid(rng.randbytes(16))
        if candidate not in image.acls and any(candidate[:-1]):
            return candidate
