"""Rules are created once, refused one at a time in Kafka's words, deleted by filters and shown by resource."""

from __future__ import annotations

import random
from typing import Any
from unittest.mock import Mock

import pytest

from ottla.controller import decision
from ottla.controller.acl import create_acls, delete_acls, describe_acls, filter_of
from ottla.controller.decision import RECORDS_MAX
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.wire.api.create_acls import AclCreation, CreateAclsRequest
from ottla.wire.api.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from ottla.wire.api.describe_acls import DescribeAclsRequest
from ottla.wire.record.security import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from tests.controller.scene import Cluster, ended

NO_COLON = "no colon is present separating the principal type from the principal name"
TOPIC, GROUP, CLUSTER = 2, 3, 4
READ, WRITE, ALLOW, DENY = 3, 4, 3, 2


def creation(**changes: Any) -> AclCreation:
    fields: dict[str, Any] = {
        "resource_type": TOPIC,
        "resource_name": "t",
        "resource_pattern_type": 3,
        "principal": "User:a",
        "host": "*",
        "operation": READ,
        "permission_type": ALLOW,
    }
    return AclCreation(**(fields | changes))


def create(*creations: AclCreation, rules: Any = (), rng: Any = None) -> Any:
    image: Any = Mock(acls={rule.id: rule for rule in rules})
    return create_acls(image, rng or random.Random(1), CreateAclsRequest(creations=list(creations)))


def filter_by(**changes: Any) -> DeleteAclsFilter:
    fields: dict[str, Any] = {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    return DeleteAclsFilter(**(fields | changes))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"resource_name": ""}, "Invalid empty resource name"),
        ({"resource_type": CLUSTER}, "The only valid name for the CLUSTER resource is kafka-cluster"),
        (
            {"resource_type": CLUSTER, "resource_name": ""},
            "The only valid name for the CLUSTER resource is kafka-cluster",
        ),
        ({"resource_type": 0}, "Invalid resourceType UNKNOWN"),
        ({"resource_type": 1}, "Invalid resourceType ANY"),
        ({"resource_type": 8}, "Invalid resourceType UNKNOWN"),
        ({"resource_pattern_type": 1}, "Invalid patternType ANY"),
        ({"resource_pattern_type": 2}, "Invalid patternType MATCH"),
        ({"resource_pattern_type": 5}, "Invalid patternType UNKNOWN"),
        ({"operation": 1}, "Invalid operation ANY"),
        ({"operation": 16}, "Invalid operation UNKNOWN"),
        ({"permission_type": 1}, "Invalid permissionType ANY"),
        ({"permission_type": 4}, "Invalid permissionType UNKNOWN"),
        (
            {"principal": "a"},
            f"Could not parse principal from `a` ({NO_COLON})",
        ),
    ],
)
def test_a_rule_that_is_none_is_refused_alone(changes: dict[str, Any], why: str) -> None:
    decision = create(creation(**changes), creation())
    refused, made = decision.response.results
    assert (refused.error_code, refused.error_message) == (ErrorCode.INVALID_REQUEST, why)
    assert (made.error_code, made.error_message) == (0, None)
    assert [record.resource_name for record in decision.records] == ["t"]


@pytest.mark.parametrize(
    "changes",
    [
        {"resource_type": CLUSTER, "resource_name": "kafka-cluster"},
        {"resource_type": 7},
        {"resource_pattern_type": 4},
        {"operation": 2},
        {"operation": 15},
        {"permission_type": DENY},
        {"principal": "a:"},
    ],
)
def test_a_rule_of_every_kind_is_created_with_each_of_its_fields(changes: dict[str, Any]) -> None:
    asked = creation(**changes)
    (record,) = create(asked).records
    assert record == AccessControlEntryRecord(
        id=record.id,
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
        pattern_type=asked.resource_pattern_type,
        principal=asked.principal,
        host=asked.host,
        operation=asked.operation,
        permission_type=asked.permission_type,
    )


def test_a_rule_is_created_once() -> None:
    (known,) = create(creation()).records
    decision = create(creation(), creation(host="h"), creation(host="h"), rules=[known])
    assert [record.host for record in decision.records] == ["h"]
    assert [result.error_code for result in decision.response.results] == [0, 0, 0]


@pytest.mark.parametrize("taken", [bytes(16), bytes(15) + b"\1", b"\1" * 16])
def test_a_rules_id_is_new_and_none_of_kafkas_own(taken: bytes) -> None:
    known = replace_id(create(creation()).records[0], b"\1" * 16)
    rng = Mock(randbytes=Mock(side_effect=[taken, b"\2" * 16]))
    (record,) = create(creation(host="h"), rules=[known], rng=rng).records
    assert record.id == b"\2" * 16


def replace_id(record: AccessControlEntryRecord, new: bytes) -> Any:
    return AccessControlEntryRecord(**{**{name: getattr(record, name) for name in FIELDS}, "id": new})


FIELDS = ("resource_type", "resource_name", "pattern_type", "principal", "host", "operation", "permission_type")


def test_filters_delete_what_they_match_and_a_rule_that_two_match_goes_once() -> None:
    rules = create(
        creation(), creation(operation=WRITE, host="h"), creation(resource_type=GROUP, principal="User:b")
    ).records
    image: Any = Mock(acls={rule.id: rule for rule in rules})
    filters = [filter_by(resource_type_filter=TOPIC), filter_by(operation=WRITE), filter_by(host_filter="none")]
    decision = delete_acls(image, DeleteAclsRequest(filters=filters))
    assert decision.records == [RemoveAccessControlEntryRecord(id=rule.id) for rule in rules[:2]]
    results = decision.response.filter_results
    assert [[rule.operation for rule in result.matching_acls] for result in results] == [[READ, WRITE], [WRITE], []]
    assert all(result.error_code == 0 and result.error_message is None for result in results)
    (shown,) = results[1].matching_acls
    assert {name: getattr(shown, name) for name in FIELDS} == {name: getattr(rules[1], name) for name in FIELDS}
    assert (shown.error_code, shown.error_message) == (0, None)


def test_rules_are_shown_by_resource() -> None:
    rules = create(
        creation(), creation(operation=WRITE, host="h", permission_type=DENY), creation(resource_type=GROUP)
    ).records
    asked = filter_by()
    request = DescribeAclsRequest(
        **{
            name: getattr(asked, name)
            for name in (
                "resource_type_filter",
                "resource_name_filter",
                "pattern_type_filter",
                "principal_filter",
                "host_filter",
                "operation",
                "permission_type",
            )
        }
    )
    response = ended(describe_acls(rules, filter_of(request)))
    assert [
        (
            each.resource_type,
            each.resource_name,
            each.pattern_type,
            [(acl.principal, acl.host, acl.operation, acl.permission_type) for acl in each.acls],
        )
        for each in response.resources
    ] == [
        (TOPIC, "t", 3, [("User:a", "*", READ, ALLOW), ("User:a", "h", WRITE, DENY)]),
        (GROUP, "t", 3, [("User:a", "*", READ, ALLOW)]),
    ]


@pytest.mark.parametrize("count", [RECORDS_MAX, RECORDS_MAX + 1])
def test_a_request_deletes_a_bounded_number_of_rules(count: int) -> None:
    (rule,) = create(creation()).records
    image: Any = Mock(acls={number: replace_id(rule, number.to_bytes(16, "big")) for number in range(count)})
    request = DeleteAclsRequest(filters=[filter_by(), filter_by()])
    if count > RECORDS_MAX:
        with pytest.raises(KafkaError, match="Cannot remove more than 10000 acls in a single delete") as refused:
            delete_acls(image, request)
        assert refused.value.code is ErrorCode.INVALID_REQUEST
    else:
        assert len(delete_acls(image, request).records) == count


LITERAL, PREFIXED, ANY, MATCH = 3, 4, 1, 2


@pytest.mark.parametrize("name", [None, "t-a", "t-"])
@pytest.mark.parametrize("principal", [None, "User:a", "User:b"])
@pytest.mark.parametrize("pattern", [LITERAL, PREFIXED, ANY, MATCH])
def test_a_filter_deletes_what_it_shows(name: str | None, principal: str | None, pattern: int) -> None:
    patterns = [
        ("t-a", LITERAL),
        ("t-b", LITERAL),
        ("*", LITERAL),
        ("t-", PREFIXED),
        ("t-a", PREFIXED),
        ("u", PREFIXED),
    ]
    rules = create(
        *(
            creation(resource_name=rule_name, resource_pattern_type=kind, principal=whose)
            for rule_name, kind in patterns
            for whose in ("User:a", "User:b")
        )
    ).records
    wanted = filter_by(resource_name_filter=name, pattern_type_filter=pattern, principal_filter=principal)
    image: Any = Mock(acls={rule.id: rule for rule in rules})
    [result] = delete_acls(image, DeleteAclsRequest(filters=[wanted])).response.filter_results
    shown = [rule for rule in rules if filter_of(wanted).matches(rule)]
    assert [(each.resource_name, each.pattern_type, each.principal) for each in result.matching_acls] == [
        (each.resource_name, each.pattern_type, each.principal) for each in shown
    ]


def test_rules_for_more_than_a_batch_are_not_made_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decision, "RECORDS_MAX", 2)
    unread: Any = object()
    rules = [creation(resource_name=name) for name in "aabb"]
    assert len(create(*rules).records) == 2, "the same rule again is no record"
    with pytest.raises(KafkaError) as refused:
        create(*rules, creation(resource_name="c"), unread)
    assert refused.value.code is ErrorCode.POLICY_VIOLATION


def test_the_controller_makes_rules_and_deletes_them() -> None:
    cluster = Cluster()
    cluster.ask(CreateAclsRequest(creations=[creation(), creation(operation=WRITE)]))
    assert [rule.operation for rule in cluster.image.acls.values()] == [READ, WRITE]
    assert len({*cluster.image.acls}) == 2
    answer = cluster.ask(DeleteAclsRequest(filters=[filter_by(operation=READ)]))
    assert len(answer.filter_results[0].matching_acls) == 1
    assert [rule.operation for rule in cluster.image.acls.values()] == [WRITE]
