"""ACLs: the rules and their decisions. Pure.

    rules = Rules(super_users={"User:admin"}, otherwise=False)
    rules.add(record)
    rules.decide("User:ann", "10.0.0.1", READ, TOPIC, "orders")     # AccessDecision(allowed=True, rule=record)

Rules:
- A super user may do everything. Otherwise a DENY rule wins over every ALLOW rule, and an operation that no rule allows
  is denied. Where no rule covers a resource at all, `otherwise` decides (allow.everyone.if.no.acl.found).
- A rule names a resource by its name, by "*" or by a prefix of the name, a principal by its name or by `User:*`, and a
  host by its address or by "*".
- Allowing Read, Write, Delete or Alter also allows Describe; allowing AlterConfigs also allows DescribeConfigs. Denying
  an operation implies nothing.

A decision reads the principal's rules and those of `User:*`, for the resource's name, for "*" and for each existing
prefix length: its cost does not grow with the rules of other principals.

KIPs: 11, 290 (prefixes). The semantics are those of Kafka's StandardAuthorizer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

from ottla.kernel.open_enum import OpenEnum

WILDCARD = "*"
EVERY_USER = "User:*"
CLUSTER_NAME = "kafka-cluster"


class AclResource(OpenEnum):
    """Kinds of resources (ResourceType). ANY is for filters."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(OpenEnum):
    """How a rule's resource name matches. For filters only: ANY, and MATCH (every pattern that covers the name)."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(OpenEnum):
    """Operations on resources. ANY is for filters."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


def authorized_operations(bits: int) -> frozenset[AclOperation] | None:
    """The operations whose bits are set in a response (KIP-430); None if the request did not ask for them.

    Bits of operations that this version does not know are ignored.
    """
    if bits == _NOT_REQUESTED:
        return None
    return frozenset(each for each in AclOperation if each > AclOperation.ALL and bits >> each & 1)


class AclPermission(OpenEnum):
    """Whether a rule allows or denies; DENY wins. ANY is for filters."""

    ANY = 1
    DENY = 2
    ALLOW = 3


#: "Authorized operations" in the response to a request that did not ask for them.
_NOT_REQUESTED = -(1 << 31)
#: The operations of each kind of resource: the bits of "authorized operations" (KIP-430).
OPERATIONS = {
    AclResource.TOPIC: (3, 4, 5, 6, 7, 8, 10, 11),
    AclResource.GROUP: (3, 6, 8, 10, 11),
    AclResource.CLUSTER: (5, 7, 8, 9, 10, 11, 12),
}
#: AclOperation -> the operations whose permission implies it.
_IMPLIED: dict[int, frozenset[int]] = {
    AclOperation.DESCRIBE: frozenset(
        (AclOperation.DESCRIBE, AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER)
    ),
    AclOperation.DESCRIBE_CONFIGS: frozenset((AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS)),
}


class Rule(Protocol):
    """An ACL rule, with the fields of AccessControlEntryRecord."""

    @property
    def id(self) -> bytes: ...
    @property
    def resource_type(self) -> int: ...
    @property
    def resource_name(self) -> str: ...
    @property
    def pattern_type(self) -> int: ...
    @property
    def principal(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def operation(self) -> int: ...
    @property
    def permission_type(self) -> int: ...


#: The rules of a pattern: principal -> id -> rule.
_RulesByPrincipal = dict[str, dict[bytes, Rule]]
_NONE: dict[bytes, Rule] = {}


class AccessDecision(NamedTuple):
    """A decision and the rule that made it; no rule for a super user, or where no rule allows the operation."""

    allowed: bool
    rule: Rule | None = None
    #: True if any rule covers the resource.
    is_known: bool = True


class RuleFilter(NamedTuple):
    """A filter of rules: null and 1 (ANY) match every value; pattern type 2 (MATCH) matches all that cover a name."""

    resource_type: int
    resource_name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission_type: int

    def matches(self, rule: Rule) -> bool:
        """Whether the filter matches the rule."""
        return (
            self.resource_type in (AclResource.ANY, rule.resource_type)
            and self.pattern_type in (PatternType.ANY, PatternType.MATCH, rule.pattern_type)
            and (self.resource_name is None or self._covers(rule))
            and self.principal in (None, rule.principal)
            and self.host in (None, rule.host)
            and self.operation in (AclOperation.ANY, rule.operation)
            and self.permission_type in (AclPermission.ANY, rule.permission_type)
        )

    def _covers(self, rule: Rule) -> bool:
        name = self.resource_name
        assert name is not None
        if self.pattern_type != PatternType.MATCH:
            return name == rule.resource_name
        if rule.pattern_type == PatternType.PREFIXED:
            return name.startswith(rule.resource_name)
        return rule.resource_name in (name, WILDCARD)


def is_principal(text: str) -> bool:
    """Whether a text has the form TYPE:NAME."""
    return all(text.partition(":"))


class Permissions(ABC):
    """Decides what principals may do: by ACLs, or by a plug-in."""

    @abstractmethod
    def allows(self, principal: str, host: str, operation: int, kind: int, name: str) -> bool:
        """Whether the principal may do the operation on a resource."""

    @abstractmethod
    def allows_any(self, principal: str, host: str, operation: int, kind: int) -> bool:
        """Whether the principal may do the operation on any resource of a kind (Authorizer.authorizeByResourceType)."""

    def operations(self, principal: str, host: str, kind: AclResource, name: str) -> int:
        """The bits of the operations that the principal may do on a resource."""
        return sum(1 << each for each in OPERATIONS[kind] if self.allows(principal, host, each, kind, name))


class Rules(Permissions):
    """All rules, indexed by resource and principal. The authorizer keeps it up to date."""

    def __init__(self, super_users: Iterable[str] = (), *, otherwise: bool = False) -> None:
        self.super_users = frozenset(super_users)
        self.otherwise = otherwise
        self._literal: dict[tuple[int, str], _RulesByPrincipal] = {}
        self._prefixed: dict[tuple[int, str], _RulesByPrincipal] = {}
        #: AclResource -> prefix length -> the number of prefixes of that length.
        self._lengths: dict[int, dict[int, int]] = {}
        self._by_principal: dict[str, dict[bytes, Rule]] = {}

    def add(self, rule: Rule) -> None:
        """Add a rule."""
        key = (rule.resource_type, rule.resource_name)
        if rule.pattern_type == PatternType.PREFIXED:
            if key not in self._prefixed:
                lengths = self._lengths.setdefault(key[0], {})
                lengths[len(key[1])] = lengths.get(len(key[1]), 0) + 1
            pattern_rules = self._prefixed.setdefault(key, {})
        else:
            pattern_rules = self._literal.setdefault(key, {})
        pattern_rules.setdefault(rule.principal, {})[rule.id] = rule
        self._by_principal.setdefault(rule.principal, {})[rule.id] = rule

    def remove(self, rule: Rule) -> None:
        """Remove a rule."""
        key = (rule.resource_type, rule.resource_name)
        patterns = self._prefixed if rule.pattern_type == PatternType.PREFIXED else self._literal
        _drop(patterns[key], rule)
        if not patterns[key]:
            del patterns[key]
            if rule.pattern_type == PatternType.PREFIXED:
                lengths = self._lengths[key[0]]
                lengths[len(key[1])] -= 1
                if not lengths[len(key[1])]:
                    del lengths[len(key[1])]
        _drop(self._by_principal, rule)

    def _covering(self, kind: int, name: str) -> Iterator[_RulesByPrincipal]:
        """The rules, by principal, of every pattern that covers a resource."""
        for own in (name, WILDCARD) if name != WILDCARD else (name,):
            pattern_rules = self._literal.get((kind, own))
            if pattern_rules is not None:
                yield pattern_rules
        for length in self._lengths.get(kind, ()):
            if length <= len(name):
                pattern_rules = self._prefixed.get((kind, name[:length]))
                if pattern_rules is not None:
                    yield pattern_rules

    def decide(self, principal: str, host: str, operation: int, kind: int, name: str) -> AccessDecision:
        """Decide whether the principal may do the operation from the host."""
        if principal in self.super_users:
            return AccessDecision(True)
        allowing = _IMPLIED.get(operation, (operation,))
        allowed: Rule | None = None
        known = False
        for pattern_rules in self._covering(kind, name):
            known = True
            for holder in (principal, EVERY_USER):
                for rule in pattern_rules.get(holder, _NONE).values():
                    if rule.host not in (host, WILDCARD):
                        continue
                    if rule.permission_type == AclPermission.DENY:
                        if rule.operation in (operation, AclOperation.ALL):
                            return AccessDecision(False, rule)
                    elif allowed is None and (rule.operation == AclOperation.ALL or rule.operation in allowing):
                        allowed = rule
        if allowed is not None:
            return AccessDecision(True, allowed)
        return AccessDecision(self.otherwise and not known, None, known)

    def allows(self, principal: str, host: str, operation: int, kind: int, name: str) -> bool:
        """`decide` without the rule."""
        return self.decide(principal, host, operation, kind, name).allowed

    def allows_any(self, principal: str, host: str, operation: int, kind: int) -> bool:
        """Whether the principal may do the operation on any resource of a kind (Authorizer.authorizeByResourceType)."""
        if self.allows(principal, host, operation, kind, "hardcode"):
            return True
        denied: dict[int, set[str]] = {PatternType.LITERAL: set(), PatternType.PREFIXED: set()}
        allowed: dict[int, set[str]] = {PatternType.LITERAL: set(), PatternType.PREFIXED: set()}
        for holder in (principal, EVERY_USER):
            for rule in self._by_principal.get(holder, {}).values():
                applies = rule.resource_type == kind and rule.host in (host, WILDCARD)
                if applies and rule.operation in (operation, AclOperation.ALL):
                    side = denied if rule.permission_type == AclPermission.DENY else allowed
                    side[rule.pattern_type].add(rule.resource_name)
        if WILDCARD in denied[PatternType.LITERAL]:
            return False
        if WILDCARD in allowed[PatternType.LITERAL]:
            return True
        names = [name for name in allowed[PatternType.LITERAL] if name not in denied[PatternType.LITERAL]]
        return any(
            not any(name[:length] in denied[PatternType.PREFIXED] for length in range(1, len(name) + 1))
            for name in (*names, *allowed[PatternType.PREFIXED])
        )


def _drop(pattern_rules: _RulesByPrincipal, rule: Rule) -> None:
    rules = pattern_rules[rule.principal]
    del rules[rule.id]
    if not rules:
        del pattern_rules[rule.principal]
