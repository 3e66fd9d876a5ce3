"""Access: the ACLs that a role needs, and what the ACLs of a cluster decide. Pure.

    granted(produce=["orders"]) -> Acls for a producer of the topic
    explained(acls, "User:ann", AclOperation.READ, AclResource.TOPIC, "orders") -> Explanation

`acls` are those that match the resource: `admin.describe_acls(speaking_of(resource, name))`. A client cannot see two
settings of the nodes, super.users and allow.everyone.if.no.acl.found; an explanation names the one that matters.

KIPs: 11, 290. Roles: those of kafka-acls (--producer, --consumer).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count

from ottla.client.admin.acl import Acl, AclFilter, AclOperation, AclPermission, AclResource, PatternType
from ottla.kernel.frozen import frozen
from ottla.security.acl import CLUSTER_NAME, WILDCARD, AccessDecision, Rules

_TOPIC, _GROUP, _TRANSACTIONAL_ID = AclResource.TOPIC, AclResource.GROUP, AclResource.TRANSACTIONAL_ID
#: What a producer does with a topic, and with a transactional id.
PRODUCER = (AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.CREATE)
TRANSACTIONAL_PRODUCER = (AclOperation.WRITE, AclOperation.DESCRIBE)
#: What a consumer does with a topic, and with a group.
CONSUMER = (AclOperation.READ, AclOperation.DESCRIBE)
CONSUMER_GROUP = (AclOperation.READ,)


def granted(
    principal: str,
    *,
    produce: Iterable[str] = (),
    transactional_ids: Iterable[str] = (),
    consume: Iterable[str] = (),
    groups: Iterable[str] = (),
    administer: bool = False,
    pattern: PatternType = PatternType.LITERAL,
    host: str = WILDCARD,
) -> list[Acl]:
    """Return the ACLs of a role, each once. `pattern` applies to all names but `*`; `administer` grants everything."""
    wanted = [
        *((_TOPIC, name, PRODUCER) for name in produce),
        *((_TRANSACTIONAL_ID, name, TRANSACTIONAL_PRODUCER) for name in transactional_ids),
        *((_TOPIC, name, CONSUMER) for name in consume),
        *((_GROUP, name, CONSUMER_GROUP) for name in groups),
    ]
    acls = [
        Acl(kind, name, principal, operation, pattern=PatternType.LITERAL if name == WILDCARD else pattern, host=host)
        for kind, name, operations in wanted
        for operation in operations
    ]
    if administer:
        acls += [
            Acl(kind, CLUSTER_NAME if kind == AclResource.CLUSTER else WILDCARD, principal, AclOperation.ALL, host=host)
            for kind in AclResource
            if kind is not AclResource.ANY
        ]
    return list(dict.fromkeys(acls))


def exactly(acl: Acl) -> AclFilter:
    """The filter that matches this ACL alone."""
    return AclFilter(acl.resource, acl.name, acl.principal, acl.operation, acl.permission, acl.pattern, acl.host)


def speaking_of(resource: AclResource, name: str) -> AclFilter:
    """The filter for all ACLs that match a resource: by its name, by a prefix of it, or by `*`."""
    return AclFilter(resource, name, pattern=PatternType.MATCH)


@frozen
class Explanation:
    """A decision and its reason.

    `rule` is the ACL that decided, or None. `reason` is a sentence. `elsewhere` lists the addresses for which other
    ACLs decide the opposite.
    """

    is_allowed: bool
    rule: Acl | None
    reason: str
    elsewhere: tuple[str, ...] = ()


@frozen
class _Entry:
    """An ACL in the form that the authorizer of a node stores."""

    id: bytes
    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int
    acl: Acl


def explained(
    acls: Sequence[Acl], principal: str, operation: AclOperation, resource: AclResource, name: str, host: str = ""
) -> Explanation:
    """Explain whether `principal` may do `operation` on the resource from `host` ("": an address that no ACL names)."""
    rules = Rules()
    numbers = count()
    for acl in acls:
        rules.add(_entry(acl, next(numbers)))
    decision = rules.decide(principal, host, operation, resource, name)
    hosts = sorted({acl.host for acl in acls} - {WILDCARD, host}) if not host else []
    other = [
        address for address in hosts if rules.allows(principal, address, operation, resource, name) != decision.allowed
    ]
    rule = decision.rule.acl if isinstance(decision.rule, _Entry) else None
    return Explanation(decision.allowed, rule, _reason(decision, rule, operation), tuple(other))


def _entry(acl: Acl, number: int) -> _Entry:
    return _Entry(
        number.to_bytes(16, "big"),
        acl.resource,
        acl.name,
        acl.pattern,
        acl.principal,
        acl.host,
        acl.operation,
        acl.permission,
        acl,
    )


def _reason(decision: AccessDecision, rule: Acl | None, operation: AclOperation) -> str:
    if rule is not None:
        if rule.permission is AclPermission.DENY:
            return "a rule denies it, and a denial takes precedence over every rule that allows"
        if rule.operation not in (operation, AclOperation.ALL):
            return f"a rule allows {_word(rule.operation)}, which includes {_word(operation)}"
        return "a rule allows it"
    if decision.is_known:
        return "rules match the resource, but none allows this; only a super user may (super.users on the nodes)"
    return (
        "no rule matches the resource; only a super user may (super.users on the nodes), or everyone if the nodes have "
        "allow.everyone.if.no.acl.found=true"
    )


def _word(operation: AclOperation) -> str:
    return operation.name.lower().replace("_", "-")
