"""The rules of the authorizer, against a plain reading of them all, and what a decision costs."""

import sys
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.kernel.ids import Uuid
from ottla.security.acl import (
    AccessDecision,
    AclOperation,
    AclPermission,
    AclResource,
    PatternType,
    RuleFilter,
    Rules,
    authorized_operations,
    is_principal,
)
from ottla.wire.record.security import AccessControlEntryRecord

NAMES = ("a", "ab", "abc", "b", "*")
WHO = ("User:ann", "User:bob", "User:*")
HOSTS = ("*", "10.0.0.1", "10.0.0.2")

_rule: st.SearchStrategy[dict[str, Any]] = st.builds(
    dict,
    resource_type=st.sampled_from((2, 2, 3)),
    resource_name=st.sampled_from(NAMES),
    pattern_type=st.sampled_from((PatternType.LITERAL, PatternType.PREFIXED)),
    principal=st.sampled_from(WHO),
    host=st.sampled_from(HOSTS),
    operation=st.sampled_from((2, 3, 4, 7, 8, 10, 11)),
    permission_type=st.sampled_from((AclPermission.DENY, AclPermission.ALLOW, AclPermission.ALLOW)),
)


def record(number: int, **values: Any) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(id=Uuid(number.to_bytes(16, "big")), **values)


def plainly(rules: list[AccessControlEntryRecord], who: str, host: str, operation: int, kind: int, name: str) -> str:
    """The verdict by a walk over all rules, as the documentation of Kafka has it."""

    def speaks_of(rule: AccessControlEntryRecord) -> bool:
        if rule.resource_type != kind:
            return False
        if rule.pattern_type == PatternType.PREFIXED:
            return name.startswith(rule.resource_name)
        return rule.resource_name in (name, "*")

    of_resource = [rule for rule in rules if speaks_of(rule)]
    to_client = [rule for rule in of_resource if rule.principal in (who, "User:*") and rule.host in (host, "*")]
    if any(rule.permission_type == AclPermission.DENY and rule.operation in (2, operation) for rule in to_client):
        return "denied"
    implied = {8: {8, 3, 4, 6, 7}, 10: {10, 11}}.get(operation, {operation}) | {2}
    if any(rule.permission_type == AclPermission.ALLOW and rule.operation in implied for rule in to_client):
        return "allowed"
    return "denied" if of_resource else "nothing known"


def said(verdict: AccessDecision) -> str:
    if not verdict.is_known:
        return "nothing known"
    return "allowed" if verdict.allowed else "denied"


@given(st.lists(_rule, max_size=12), st.data())
def test_a_decision_is_that_of_a_walk_over_all_rules(values: list[dict[str, Any]], data: st.DataObject) -> None:
    made = [record(number, **each) for number, each in enumerate(values, 1)]
    rules, gone = Rules(), set()
    for each in made:
        rules.add(each)
    for each in made:
        if data.draw(st.booleans(), "goes"):
            rules.remove(each)
            gone.add(each.id)
    left = [each for each in made if each.id not in gone]
    for who in WHO[:2]:
        for name in ("a", "abc", "abcd", "b", "c"):
            operation = data.draw(st.sampled_from((3, 4, 7, 8, 10, 11)))
            expected = plainly(left, who, "10.0.0.1", operation, 2, name)
            verdict = rules.decide(who, "10.0.0.1", operation, 2, name)
            assert said(verdict) == expected
            if verdict.rule is not None:
                assert verdict.rule in left


@given(st.lists(_rule, max_size=10), st.sampled_from((3, 4)))
def test_any_resource_is_one_that_a_decision_allows(values: list[dict[str, Any]], operation: int) -> None:
    rules = Rules()
    for number, each in enumerate(values, 1):
        rules.add(record(number, **each))
    # Every name that a rule can tell from others.
    names = [name + more for name in ("a", "ab", "abc", "b", "hardcode", "z") for more in ("", "x")]
    if rules.allows_any("User:ann", "10.0.0.1", operation, 2):
        return
    # As Kafka's own, it may miss a name between patterns; it must not miss what no rule denies.
    denies = any(each["permission_type"] == AclPermission.DENY for each in values)
    assert denies or not any(rules.allows("User:ann", "10.0.0.1", operation, 2, name) for name in names)


_DENY, _ALLOW = AclPermission.DENY, AclPermission.ALLOW
_LITERAL, _PREFIXED = PatternType.LITERAL, PatternType.PREFIXED


@pytest.mark.parametrize(
    ("patterns", "may"),
    [
        ([], False),
        ([(_ALLOW, _LITERAL, "a")], True),
        ([(_ALLOW, _PREFIXED, "a")], True),
        ([(_ALLOW, _LITERAL, "*")], True),
        ([(_ALLOW, _LITERAL, "a"), (_DENY, _LITERAL, "*")], False),
        ([(_ALLOW, _LITERAL, "*"), (_DENY, _LITERAL, "*")], False),
        ([(_ALLOW, _LITERAL, "*"), (_DENY, _LITERAL, "a")], True),
        ([(_ALLOW, _LITERAL, "a"), (_DENY, _LITERAL, "a")], False),
        ([(_ALLOW, _LITERAL, "a"), (_DENY, _LITERAL, "a"), (_ALLOW, _LITERAL, "b")], True),
        ([(_ALLOW, _LITERAL, "ab"), (_DENY, _PREFIXED, "a")], False),
        ([(_ALLOW, _LITERAL, "ab"), (_DENY, _PREFIXED, "ab")], False),
        ([(_ALLOW, _LITERAL, "ab"), (_DENY, _PREFIXED, "abc")], True),
        ([(_ALLOW, _PREFIXED, "ab"), (_DENY, _PREFIXED, "a")], False),
        ([(_ALLOW, _PREFIXED, "a"), (_DENY, _PREFIXED, "ab")], True),
    ],
)
def test_any_resource_is_allowed_by_a_pattern_that_no_other_denies_as_a_whole(
    patterns: list[tuple[AclPermission, PatternType, str]], may: bool
) -> None:
    rules = Rules()
    for number, (permission, pattern, name) in enumerate(patterns, 1):
        who = {"principal": "User:ann", "host": "*", "operation": AclOperation.READ, "permission_type": permission}
        rules.add(record(number, resource_type=AclResource.TOPIC, resource_name=name, pattern_type=pattern, **who))
    assert rules.allows_any("User:ann", "10.0.0.1", AclOperation.READ, AclResource.TOPIC) is may


def test_super_users_may_do_everything_and_the_unknown_is_as_it_is_set() -> None:
    rules = Rules({"User:root"}, otherwise=True)
    deny = {"host": "*", "operation": 2, "permission_type": AclPermission.DENY}
    rules.add(
        record(1, resource_type=2, resource_name="*", pattern_type=PatternType.LITERAL, principal="User:*", **deny)
    )
    assert rules.allows("User:root", "1.2.3.4", AclOperation.READ, AclResource.TOPIC, "t")
    assert not rules.allows("User:ann", "1.2.3.4", AclOperation.READ, AclResource.TOPIC, "t")
    assert rules.allows("User:ann", "1.2.3.4", AclOperation.READ, AclResource.GROUP, "g")
    assert not Rules().allows("User:ann", "1.2.3.4", AclOperation.READ, AclResource.GROUP, "g")


def test_operations_are_bits() -> None:
    rules = Rules()
    rules.add(
        record(
            1,
            resource_type=2,
            resource_name="t",
            pattern_type=PatternType.LITERAL,
            principal="User:ann",
            host="*",
            operation=AclOperation.WRITE,
            permission_type=AclPermission.ALLOW,
        )
    )
    assert rules.operations("User:ann", "h", AclResource.TOPIC, "t") == (1 << AclOperation.WRITE) | (
        1 << AclOperation.DESCRIBE
    )
    assert rules.operations("User:bob", "h", AclResource.TOPIC, "t") == 0


def test_filters_take_by_name_pattern_and_what_covers_a_name() -> None:
    def matches(pattern: int, name: str | None, rule_name: str, rule_pattern: int) -> bool:
        rule = record(
            1,
            resource_type=2,
            resource_name=rule_name,
            pattern_type=rule_pattern,
            principal="User:a",
            host="*",
            operation=3,
            permission_type=3,
        )
        return RuleFilter(2, name, pattern, None, None, 1, 1).matches(rule)

    assert matches(1, "ab", "ab", PatternType.PREFIXED)
    assert not matches(1, "abc", "ab", PatternType.PREFIXED)
    assert matches(2, "abc", "ab", PatternType.PREFIXED)
    assert matches(2, "abc", "*", PatternType.LITERAL)
    assert not matches(2, "abc", "ab", PatternType.LITERAL)
    assert matches(PatternType.LITERAL, None, "x", PatternType.LITERAL)
    assert not matches(PatternType.LITERAL, "x", "x", PatternType.PREFIXED)


FIELDS = {
    "resource_type": (AclResource.TOPIC, AclResource.GROUP, AclResource.ANY),
    "resource_name": ("t", "u", None),
    "principal": ("User:ann", "User:*", None),
    "host": ("10.0.0.1", "*", None),
    "operation": (AclOperation.READ, AclOperation.ALL, AclOperation.ANY),
    "permission_type": (AclPermission.ALLOW, AclPermission.DENY, AclPermission.ANY),
    "pattern_type": (PatternType.LITERAL, PatternType.PREFIXED, PatternType.ANY),
}


@pytest.mark.parametrize("field", FIELDS)
def test_a_filter_compares_each_field_that_it_names(field: str) -> None:
    """A wild card of a rule is a value like others: only a null, or ANY, matches all."""
    rule = record(1, **{name: own for name, (own, *_) in FIELDS.items()})
    own, other, every = FIELDS[field]
    for value, matches in ((own, True), (other, False), (every, True)):
        wanted: Any = {name: mine for name, (mine, *_) in FIELDS.items()} | {field: value}
        assert RuleFilter(**wanted).matches(rule) is matches
        alone: Any = {name: any_ for name, (*_, any_) in FIELDS.items()} | {field: value}
        assert RuleFilter(**alone).matches(rule) is matches


@pytest.mark.parametrize(
    ("changes", "may"),
    [
        ({}, True),
        ({"principal": "User:*"}, True),
        ({"principal": "User:bob"}, False),
        ({"host": "*"}, True),
        ({"host": "10.0.0.2"}, False),
        ({"operation": AclOperation.ALL}, True),
        ({"operation": AclOperation.DESCRIBE}, False),
        # Unlike a decision about a name: an operation that implies another does not count, as in Kafka.
        ({"operation": AclOperation.ALTER}, False),
        ({"resource_type": AclResource.GROUP}, False),
    ],
)
def test_a_rule_allows_any_resource_by_each_of_its_fields(changes: dict[str, Any], may: bool) -> None:
    asked = (AclOperation.WRITE, AclResource.TOPIC)
    usual = {"principal": "User:ann", "host": "10.0.0.1", "operation": AclOperation.WRITE, "resource_type": 2}
    pattern = {"resource_name": "t", "pattern_type": PatternType.LITERAL}
    allowing, denying = (
        record(number, **usual, **pattern, permission_type=permission)
        for number, permission in ((1, AclPermission.ALLOW), (2, AclPermission.DENY))
    )
    for field, value in changes.items():
        setattr(allowing, field, value)
    rules = Rules()
    rules.add(allowing)
    assert rules.allows_any("User:ann", "10.0.0.1", *asked) is may
    # The same fields of a rule that denies: it takes away what a rule for all allows, or does not concern the client.
    allowing.permission_type, denying.permission_type = AclPermission.DENY, AclPermission.ALLOW
    rules = Rules()
    for rule in (allowing, denying):
        rules.add(rule)
    assert rules.allows_any("User:ann", "10.0.0.1", *asked) is not may


def test_any_resource_is_allowed_to_super_users_and_where_nothing_is_known_as_it_is_set() -> None:
    asked = ("10.0.0.1", AclOperation.WRITE, AclResource.TOPIC)
    for otherwise in (False, True):
        rules = Rules({"User:root"}, otherwise=otherwise)
        assert rules.allows_any("User:ann", *asked) is otherwise
        assert rules.allows_any("User:root", *asked)
        deny = {"host": "*", "operation": AclOperation.ALL, "permission_type": AclPermission.DENY}
        rules.add(record(1, principal="User:*", resource_type=2, resource_name="*", pattern_type=3, **deny))
        assert not rules.allows_any("User:ann", *asked)
        assert rules.allows_any("User:root", *asked)


def test_operations_are_those_that_kafka_has_for_each_kind() -> None:
    """AclEntry.supportedOperations of Apache Kafka, by the names of AdminClient."""
    rules = Rules({"User:root"})
    expected = {
        AclResource.TOPIC: "READ WRITE CREATE DESCRIBE DELETE ALTER DESCRIBE_CONFIGS ALTER_CONFIGS",
        AclResource.GROUP: "READ DESCRIBE DELETE DESCRIBE_CONFIGS ALTER_CONFIGS",
        AclResource.CLUSTER: "CREATE CLUSTER_ACTION DESCRIBE_CONFIGS ALTER_CONFIGS IDEMPOTENT_WRITE ALTER DESCRIBE",
    }
    for kind, names in expected.items():
        found = authorized_operations(rules.operations("User:root", "h", kind, "x"))
        assert found is not None
        assert {each.name for each in found} == set(names.split())


@pytest.mark.parametrize(
    ("bits", "found"),
    [
        (-(1 << 31), None),
        (0, set()),
        # Bits without an operation, and those of filters, are none.
        (0b1111, {AclOperation.READ}),
        (1 << 15 | 1 << 16, {AclOperation.TWO_PHASE_COMMIT}),
    ],
)
def test_bits_of_a_response_are_operations(bits: int, found: set[AclOperation] | None) -> None:
    assert authorized_operations(bits) == found


@pytest.mark.parametrize(
    ("text", "is_one"),
    [("User:ann", True), ("Group:a:b", True), ("User:*", True), ("User:", False), (":ann", False), ("ann", False)],
)
def test_a_principal_has_a_type_and_a_name(text: str, is_one: bool) -> None:
    assert is_principal(text) is is_one


def lines_of(call: Any) -> int:
    """How many lines of Python a call runs."""
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


def test_a_decision_does_not_grow_with_the_rules_of_others() -> None:
    def cost(rules_count: int) -> int:
        rules = Rules()
        common = {"host": "*", "operation": 3, "permission_type": AclPermission.ALLOW}
        for number in range(rules_count):
            topic = {"resource_type": 2, "resource_name": f"t{number % 977}", "pattern_type": 3 + number % 2}
            rules.add(record(number + 1, principal=f"User:u{number}", **topic, **common))
        return lines_of(lambda: rules.decide("User:u5", "h", 3, 2, "t5"))

    assert cost(10_000) <= cost(2_000) + 5
