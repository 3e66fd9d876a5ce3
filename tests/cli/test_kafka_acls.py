"""kafka-acls on a node with an authorizer: what it says, and the rules that are there afterwards."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import ottla
from ottla.client import Admin
from ottla.client.admin.acl import AclFilter
from ottla.settings.server.unserved import STANDARD_AUTHORIZER
from tests.cli.kafka_tool import kafka

SETTINGS = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}


@pytest.fixture(scope="module")
def node() -> Iterator[ottla.Node]:
    with ottla.Node(settings=SETTINGS) as node:
        yield node


@pytest.fixture(scope="module")
def admin(node: ottla.Node) -> Iterator[Admin]:
    with Admin(node.bootstrap_servers) as admin:
        yield admin


@pytest.fixture(autouse=True)
def without_rules(admin: Admin) -> Iterator[None]:
    yield
    admin.delete_acls([AclFilter()]).check()


def acls(node: ottla.Node, words: str, typed: str = "") -> str:
    said = kafka("kafka-acls", "--bootstrap-server", node.bootstrap_servers, *words.split(), typed=typed)
    assert (said.code, said.err) == (0, ""), said.out
    return said.out


def rules(admin: Admin) -> list[str]:
    return sorted(
        f"{acl.resource.name} {acl.name} {acl.pattern.name} {acl.principal} {acl.host} "
        f"{acl.operation.name} {acl.permission.name}"
        for acl in admin.describe_acls()
    )


def test_a_rule_is_added_once_and_shown(node: ottla.Node, admin: Admin) -> None:
    words = "--add --topic a --allow-principal User:ann --operation Read --allow-host 10.0.0.1 --allow-host 10.0.0.2"
    of_a = "ResourcePattern(resourceType=TOPIC, name=a, patternType=LITERAL)"
    first, second = (f"(principal=User:ann, host=10.0.0.{n}, operation=READ, permissionType=ALLOW)" for n in (1, 2))
    assert acls(node, words).startswith(f"Adding ACLs for resource `{of_a}`: \n \t{first}\n\t{second}\n\n")
    assert rules(admin) == [f"TOPIC a LITERAL User:ann 10.0.0.{n} READ ALLOW" for n in (1, 2)]
    again = acls(node, words.replace("10.0.0.2", "10.0.0.3"))
    assert f"Acl (pattern={of_a}, entry={first}) already exists.\n" in again
    assert f": \n \t{first.replace('0.0.1', '0.0.3')}\n\n" in again
    assert [rule.split()[4] for rule in rules(admin)] == ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
    shown = acls(node, "--list --topic a")
    assert shown.startswith(f"Current ACLs for resource `{of_a}`:\n\t(principal=User:ann, host=10.0.0.")
    assert sorted(shown.splitlines()[1:4])[:2] == [f"\t{first}", f"\t{second}"]
    assert acls(node, "--list --topic b") == ""


@pytest.mark.parametrize(
    ("words", "added"),
    [
        ("--producer --topic a", ["TOPIC a LITERAL CREATE DESCRIBE WRITE"]),
        (
            "--producer --topic a --transactional-id x --idempotent",
            [
                "CLUSTER kafka-cluster LITERAL IDEMPOTENT_WRITE",
                "TOPIC a LITERAL CREATE DESCRIBE WRITE",
                "TRANSACTIONAL_ID x LITERAL DESCRIBE WRITE",
            ],
        ),
        (
            "--consumer --topic a --group g --resource-pattern-type prefixed",
            ["GROUP g PREFIXED READ", "TOPIC a PREFIXED DESCRIBE READ"],
        ),
        (
            "--producer --consumer --topic a --group g",
            ["GROUP g LITERAL READ", "TOPIC a LITERAL CREATE DESCRIBE READ WRITE"],
        ),
        ("--cluster", ["CLUSTER kafka-cluster LITERAL ALL"]),
        ("--topic a --operation describeConfigs", ["TOPIC a LITERAL DESCRIBE_CONFIGS"]),
        ("--user-principal User:bob --operation CreateTokens", ["USER User:bob LITERAL CREATE_TOKENS"]),
    ],
)
def test_a_role_is_its_rules(node: ottla.Node, admin: Admin, words: str, added: list[str]) -> None:
    acls(node, f"--add {words} --allow-principal User:ann")
    found: dict[str, list[str]] = {}
    for rule in rules(admin):
        resource, _, what = rule.partition(" User:ann * ")
        found.setdefault(resource, []).append(what.removesuffix(" ALLOW"))
    assert [f"{resource} {' '.join(what)}" for resource, what in found.items()] == added


def test_rules_that_deny_stand_beside_those_that_allow(node: ottla.Node, admin: Admin) -> None:
    acls(node, "--add --topic a --allow-principal User:ann --deny-principal User:eve --deny-host 10.9.9.9")
    assert rules(admin) == [
        "TOPIC a LITERAL User:ann * ALL ALLOW",
        "TOPIC a LITERAL User:eve 10.9.9.9 ALL DENY",
    ]


def test_rules_are_listed_by_principal(node: ottla.Node) -> None:
    acls(node, "--add --topic a --allow-principal User:ann --allow-principal User:bob --operation Read")
    acls(node, "--add --group g --allow-principal User:bob --operation Read")
    bob = acls(node, "--list --principal User:ann --principal User:bob").split("ACLs for principal `User:bob`\n")
    assert bob[0].startswith("ACLs for principal `User:ann`\nCurrent ACLs for resource `")
    assert (bob[0].count("principal=User:ann"), bob[0].count("User:bob"), bob[0].count("GROUP")) == (1, 0, 0)
    assert (bob[1].count("principal=User:bob"), bob[1].count("User:ann"), bob[1].count("GROUP")) == (2, 0, 1)
    everything = acls(node, "--list")
    assert (everything.count("Current ACLs"), everything.count("(principal=")) == (2, 3)


@pytest.mark.parametrize(("typed", "left"), [("y\n", 1), ("Y\n", 1), ("n\n", 3), ("\n", 3), ("", 3)])
def test_rules_are_removed_when_that_is_confirmed(node: ottla.Node, admin: Admin, typed: str, left: int) -> None:
    acls(node, "--add --topic a --allow-principal User:ann --operation Read --operation Write")
    acls(node, "--add --topic b --allow-principal User:ann --operation Read")
    asked = acls(node, "--remove --topic a", typed=typed)
    of_a = "ResourcePattern(resourceType=TOPIC, name=a, patternType=LITERAL)"
    assert asked.startswith(f"Are you sure you want to delete all ACLs for resource filter `{of_a}`? (y/n)\n")
    assert len(rules(admin)) == left


def test_one_rule_is_removed_without_a_question_by_force(node: ottla.Node, admin: Admin) -> None:
    acls(node, "--add --topic a --allow-principal User:ann --operation Read --operation Write")
    assert "Are you sure" not in acls(node, "--remove --topic a --allow-principal User:ann --operation Read --force")
    assert rules(admin) == ["TOPIC a LITERAL User:ann * WRITE ALLOW"]
