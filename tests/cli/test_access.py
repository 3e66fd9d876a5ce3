"""ottla acls grant, revoke, explain: roles as rules, and which rule decides, beside what the node itself decides."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

import ottla
from ottla.client import Admin, Consumer, KafkaError, Producer, TopicPartition
from ottla.client.admin.acl import Acl, AclOperation, AclPermission, AclResource, PatternType
from ottla.operations.access import explained, granted, speaking_of
from ottla.settings.server.unserved import STANDARD_AUTHORIZER
from ottla.wire.api.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker.sasl_scene import PASSWORD, SETTINGS, plaintext, secured, sign_in
from tests.broker.wire_client import WireClient
from tests.cli.tool import Tool, in_process

SECURED = SETTINGS | {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:ANONYMOUS"}
READ, WRITE, DESCRIBE, ALL = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.ALL
ALLOW, DENY = AclPermission.ALLOW, AclPermission.DENY
TOPIC, PREFIXED = AclResource.TOPIC, PatternType.PREFIXED


@pytest.fixture(scope="module")
def node() -> Iterator[ottla.Node]:
    with ottla.Node(settings=SECURED) as node:
        for name in ("orders", "orders-late", "other"):
            node.create_topic(name, 1)
        yield node


@pytest.fixture
def tool(node: ottla.Node, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Iterator[Tool]:
    tool = Tool(plaintext(node), monkeypatch, capfd)
    yield tool
    tool("acls", "remove", "ann", "-y")


@pytest.mark.parametrize("words", ["topics list", "consume orders -e", "cluster health"])
def test_a_client_without_a_sign_in_is_told_at_once(node: ottla.Node, tool: Tool, words: str) -> None:
    """A client would try again for a minute: the broker closes its connections and says nothing."""
    said = tool(*words.split(), "-b", secured(node))
    assert said.code == (2 if "health" in words else 1)
    assert f"{secured(node)} requires authentication: set security.protocol=SASL_PLAINTEXT" in said.out + said.err
    assert "ottla start" not in said.out


@pytest.mark.parametrize(
    "words",
    [
        "topics list",
        "consume orders -e",
        "consume orders --share workers",
        "produce orders -f /dev/null",
        "perf produce orders -n 1",
        "perf latency orders -n 1",
        "groups",
        "cluster health",
    ],
)
def test_a_wrong_password_is_told_once(node: ottla.Node, tmp_path: Path, words: str) -> None:
    said = in_process(*words.split(), "--profile", "wrong", OTTLA_CONFIG=_wrong_password(node, tmp_path))
    assert said.code == (2 if "health" in words else 1)
    assert (said.out + said.err).count("refuses to let this client in") == 1
    assert said.err.count("\n") == ("health" not in words)


def test_a_bundle_with_a_wrong_password_says_what_is_missing(node: ottla.Node, tmp_path: Path) -> None:
    path = tmp_path / "bundle.tar.gz"
    words = ("debug", "bundle", "-o", str(path), "--profile", "wrong")
    said = in_process(*words, OTTLA_CONFIG=_wrong_password(node, tmp_path))
    assert said.code == 1
    assert path.exists()
    assert said.err.count("refuses to let this client in") == 1
    assert "cluster.json" in said.err and "groups.jsonl" in said.err


def test_a_bundle_hides_the_password_of_the_profile_wherever_it_stands(
    node: ottla.Node, tool: Tool, tmp_path: Path
) -> None:
    """Here it is the name of a group, too."""
    with Admin(plaintext(node)) as admin:
        admin.alter_group_offsets(PASSWORD, {TopicPartition("orders", 0): 0}).check()
    assert tool("acls", "allow", "ann", "all", "group", PASSWORD).code == 0
    path = tmp_path / "bundle.tar.gz"
    words = ("debug", "bundle", "-o", str(path), "--profile", "right")
    in_process(*words, OTTLA_CONFIG=_profile(node, tmp_path, "right", PASSWORD))
    with tarfile.open(path) as tar:
        files = [file.read().decode() for each in tar if (file := tar.extractfile(each))]
    assert any('"group": "[hidden]"' in text for text in files)
    assert not any(part in text for text in files for part in (PASSWORD, json.dumps(PASSWORD)[1:-1]))


def _wrong_password(node: ottla.Node, tmp_path: Path) -> str:
    """The path of a config file whose profile `wrong` has a wrong password."""
    return _profile(node, tmp_path, "wrong", "nothing")


def _profile(node: ottla.Node, tmp_path: Path, profile: str, password: str) -> str:
    file = tmp_path / "config.toml"
    file.touch(0o600)
    settings = {"bootstrap.servers": secured(node), "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    settings |= {"sasl.username": "ann", "sasl.password": password}
    lines = "".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items())
    file.write_text(f"[profiles.{profile}]\n{lines}")
    return str(file)


def test_a_producer_and_a_consumer_get_by_with_what_they_are_granted(node: ottla.Node, tool: Tool) -> None:
    said = tool("acls", "grant", "ann", "--produce", "orders", "--transactional-id", "ann-1")
    assert "User:ann: allow write topic orders" in said.err
    ann = {"bootstrap.servers": secured(node), "sasl.username": "ann", "sasl.password": PASSWORD}
    ann |= {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    with Producer(ann | {"transactional.id": "ann-1"}) as producer, producer.transaction():
        producer.send("orders", b"1")
    with pytest.raises(KafkaError, match="TOPIC_AUTHORIZATION_FAILED"), Producer(ann) as producer:
        producer.send("other", b"1").result()
    assert tool("acls", "grant", "ann", "--consume", "ord", "--group", "billing", "--prefixed").code == 0
    settings = ann | {"group.id": "billing", "auto.offset.reset": "earliest"}
    with Consumer(settings) as consumer:
        consumer.subscribe(["orders"])
        assert next(iter(consumer)).value == b"1"
        consumer.commit()
    removed = tool("acls", "revoke", "ann", "--consume", "ord", "--group", "billing", "--prefixed", "-y", "--json")
    assert {(each["operation"], each["resource"]) for each in removed.json} == {
        ("read", "topic"),
        ("describe", "topic"),
        ("read", "group"),
    }
    left = {(each["operation"], each["resource"]) for each in tool("acls", "list", "-p", "ann", "--json").json}
    assert ("write", "topic") in left
    assert ("read", "group") not in left


def test_roles_that_say_nothing_are_refused(tool: Tool) -> None:
    assert "expected --produce TOPIC" in tool("acls", "grant", "ann").err
    assert "add --group" in tool("acls", "grant", "ann", "--consume", "orders").err
    assert tool("acls", "revoke", "ann", "--produce", "orders").code == 2


def test_revoke_takes_only_what_was_granted(tool: Tool) -> None:
    tool("acls", "grant", "ann", "--produce", "orders", "--host", "10.0.0.1")
    tool("acls", "grant", "ann", "--produce", "orders")
    tool("acls", "deny", "ann", "write", "topic", "orders")
    removed = tool("acls", "revoke", "ann", "--produce", "orders", "-y", "--json").json
    assert {(each["host"], each["permission"]) for each in removed} == {("*", "allow")}
    left = tool("acls", "list", "-p", "ann", "--json").json
    assert {(each["host"], each["permission"]) for each in left} == {("10.0.0.1", "allow"), ("*", "deny")}


def test_an_address_is_written_as_brokers_compare_it(tool: Tool) -> None:
    """A denial for ::1 would deny nothing: brokers call that address 0:0:0:0:0:0:0:1."""
    tool("acls", "deny", "ann", "read", "topic", "orders", "--host", "::1")
    tool("acls", "grant", "ann", "--produce", "orders", "--host", "::ffff:10.0.0.1")
    there = tool("acls", "list", "-p", "ann", "--json").json
    assert {each["host"] for each in there} == {"0:0:0:0:0:0:0:1", "10.0.0.1"}
    assert "may not read topic orders" in tool("acls", "explain", "ann", "read", "orders", "--host", "0::1").out
    for words in (("deny", "ann", "read", "topic", "orders"), ("explain", "ann", "read", "orders")):
        said = tool("acls", *words, "--host", "example.com")
        assert said.code and "invalid value for --host: example.com (expected an IP address" in said.err


def test_an_administrator_may_do_everything() -> None:
    acls = granted("User:ann", administer=True)
    assert {each.resource for each in acls} == set(AclResource) - {AclResource.ANY}
    for operation, name in product((READ, AclOperation.ALTER), ("orders", "x")):
        assert explained(acls, "User:ann", operation, TOPIC, name).is_allowed
    assert explained(acls, "User:ann", AclOperation.ALTER, AclResource.CLUSTER, "kafka-cluster").is_allowed
    assert not explained(acls, "User:ben", READ, TOPIC, "orders").is_allowed


def test_what_decides_is_named(tool: Tool) -> None:
    assert "no rule matches the resource" in tool("acls", "explain", "ann", "read", "orders").out
    why = tool("acls", "explain", "ann", "read", "orders", "--json").json
    assert (why["allowed"], why["rule"], why["elsewhere"]) == (False, None, [])
    tool("acls", "allow", "ann", "read", "topic", "ord", "--prefixed")
    assert "rules match the resource, but none allows this" in tool("acls", "explain", "ann", "write", "orders").out
    said = tool("acls", "explain", "ann", "describe", "orders").out
    assert said.splitlines() == [
        "User:ann may describe topic orders: a rule allows read, which includes describe",
        "the rule: User:ann: allow read topic ord*",
    ]
    tool("acls", "deny", "ann", "read", "topic", "orders", "--host", "10.0.0.1")
    assert (
        "other rules decide the opposite for 10.0.0.1" in tool("acls", "explain", "ann", "read", "topic", "orders").out
    )
    there = tool("acls", "explain", "ann", "read", "orders", "--host", "10.0.0.1", "--json").json
    assert (there["allowed"], there["rule"]["permission"]) == (False, "deny")
    assert "may not alter the cluster" in tool("acls", "explain", "ann", "alter", "cluster").out
    assert "unknown operation: fly" in tool("acls", "explain", "ann", "fly", "orders").err
    assert tool("acls", "explain", "ann", "read", "a", "b").code == 2


def test_explanations_agree_with_the_node(node: ottla.Node) -> None:
    """The node says what ann may do with each topic (KIP-430), whatever rules there are."""
    rules = [
        Acl(TOPIC, "orders", "User:ann", READ),
        Acl(TOPIC, "orders", "User:ann", READ, DENY, PREFIXED),
        Acl(TOPIC, "*", "User:*", WRITE),
        Acl(TOPIC, "orders-", "User:ann", WRITE, DENY, PREFIXED),
        Acl(TOPIC, "o", "User:ben", ALL, pattern=PREFIXED),
        Acl(TOPIC, "orders", "User:ann", ALL, DENY, host="10.9.9.9"),
        Acl(TOPIC, "other", "User:ann", DESCRIBE),
    ]
    names = ("orders", "orders-late", "other")
    asked = MetadataRequest(
        topics=[MetadataRequestTopic(name=each) for each in names], include_topic_authorized_operations=True
    )
    differences = []
    with Admin(plaintext(node)) as admin, WireClient(secured(node)) as ann:
        assert sign_in(ann, "PLAIN", "ann").error_code == 0
        for chosen in range(0, 1 << len(rules), 3):
            made = [rule for at, rule in enumerate(rules) if chosen >> at & 1]
            admin.create_acls([*made, Acl(TOPIC, "*", "User:ann", DESCRIBE)]).check()
            for topic in ann.ask(asked, 12).topics:
                acls = admin.describe_acls(speaking_of(TOPIC, topic.name))
                for operation in (READ, WRITE, DESCRIBE, AclOperation.ALTER) if not topic.error_code else ():
                    found = explained(acls, "User:ann", operation, TOPIC, topic.name, "127.0.0.1").is_allowed
                    if found != bool(topic.topic_authorized_operations >> operation & 1):
                        differences.append((made, topic.name, operation, found))
            admin.delete_acls([speaking_of(TOPIC, name) for name in names]).check()
    assert not differences
