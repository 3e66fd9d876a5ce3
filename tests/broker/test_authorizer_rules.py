"""What an authorizer follows, asks and logs, without a node: rules of the metadata, and those of a package."""

from __future__ import annotations

import logging
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.dispatch.dispatch import HANDLERS
from ottla.broker.guard.authorizer import Authorizer
from ottla.broker.guard.plugin import Action, PluggedRules
from ottla.broker.guard.refusal import _SHAPES, error_response_of
from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.kernel.ids import Uuid
from ottla.metadata.image import Image
from ottla.security.acl import AclOperation, AclPermission, AclResource, PatternType
from ottla.settings.server.settings import ServerSettings
from ottla.settings.server.unserved import STANDARD_AUTHORIZER
from ottla.wire.api import ApiKey
from ottla.wire.record.security import AccessControlEntryRecord
from tests.broker.guard_scene import filled
from tests.settings.test_server_settings import COMBINED

READ, TOPIC = AclOperation.READ, AclResource.TOPIC


def authorizer(**given: str) -> Authorizer:
    named = {name.replace("_", "."): value for name, value in given.items()}
    return Authorizer(ServerSettings.parse(COMBINED | {"authorizer.class.name": STANDARD_AUTHORIZER} | named))


def call_of(principal: str = "User:ann", address: str = "10.0.0.1") -> Any:
    return SimpleNamespace(principal=principal, client_address=address)


def rule(number: int, name: str, permission: AclPermission = AclPermission.ALLOW) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=Uuid(number.to_bytes(16, "big")),
        resource_type=TOPIC,
        resource_name=name,
        pattern_type=PatternType.LITERAL,
        principal="User:ann",
        host="*",
        operation=READ,
        permission_type=permission,
    )


def image_of(offset: int, *rules: AccessControlEntryRecord) -> Image:
    return replace(Image.empty(), offset=offset, acls={each.id: each for each in rules})


def readable(made: Authorizer, names: str = "abc") -> str:
    return "".join(name for name in names if made.allows(call_of(), READ, TOPIC, name))


def test_rules_of_the_start_give_way_to_what_is_committed() -> None:
    made = authorizer()
    assert readable(made) == ""
    # The end of the log at the start may never be committed.
    made.begin(image_of(7, rule(1, "a"), rule(2, "b")))
    assert readable(made) == "ab"
    committed = image_of(5, rule(1, "a"), rule(3, "c"))
    made.follow(committed)
    assert readable(made) == "ac"
    made.follow(image_of(6, rule(1, "a", AclPermission.DENY), rule(3, "c")))
    assert readable(made) == "c"
    made.follow(image_of(8))
    assert readable(made) == ""


def test_a_change_of_other_metadata_leaves_the_rules_alone() -> None:
    made = authorizer()
    first = image_of(5, rule(1, "a"))
    made.follow(first)
    made.follow(replace(first, offset=6))
    assert readable(made) == "a"


@pytest.mark.parametrize(
    "kind", [AclResource.TOPIC, AclResource.GROUP, AclResource.CLUSTER, AclResource.TRANSACTIONAL_ID]
)
def test_a_denial_has_the_code_of_its_resource(kind: AclResource) -> None:
    with pytest.raises(KafkaError) as denied:
        authorizer().check(call_of(), READ, kind, "x")
    assert denied.value.code is ErrorCode[f"{kind.name}_AUTHORIZATION_FAILED"]


@pytest.mark.parametrize(
    ("level", "lines"),
    [
        (logging.INFO, ["User:ann is denied READ on TOPIC b from 10.0.0.1"]),
        (
            logging.DEBUG,
            ["User:ann is allowed READ on TOPIC a from 10.0.0.1", "User:ann is denied READ on TOPIC b from 10.0.0.1"],
        ),
        (logging.WARNING, []),
    ],
)
def test_denials_are_logged_and_permissions_to_who_looks_closer(
    caplog: pytest.LogCaptureFixture, level: int, lines: list[str]
) -> None:
    """The levels of Kafka's kafka.authorizer.logger. A question that filters a list is never logged."""
    made = authorizer()
    made.follow(image_of(1, rule(1, "a")))
    with caplog.at_level(level, "ottla.authorizer"):
        for logged in (True, False):
            for name in "ab":
                made.allows(call_of(), READ, TOPIC, name, logged=logged)
        made.describes(call_of(), "b")
    assert [each.getMessage() for each in caplog.records] == lines
    assert {each.levelno for each in caplog.records} <= {logging.INFO, logging.DEBUG}


def test_one_request_has_so_many_lines_and_the_next_has_its_own(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.broker.guard.authorizer._LINES_MAX", 2)
    made, one, two = authorizer(), call_of("User:one"), call_of("User:two")
    with caplog.at_level(logging.INFO, "ottla.authorizer"):
        for name in "abcd":
            made.allows(one, READ, TOPIC, name)
        for name in "ab":
            made.allows(two, READ, TOPIC, name)
    assert [each.getMessage() for each in caplog.records] == [
        "User:one is denied READ on TOPIC a from 10.0.0.1",
        "User:one is denied READ on TOPIC b from 10.0.0.1",
        "further checks of User:one in this request are not logged",
        "User:two is denied READ on TOPIC a from 10.0.0.1",
        "User:two is denied READ on TOPIC b from 10.0.0.1",
    ]


@pytest.mark.parametrize(
    ("text", "users"),
    [("", []), ("User:a", ["User:a"]), (" User:a ; ;User:CN=b,O=c;", ["User:a", "User:CN=b,O=c"])],
)
def test_super_users_are_divided_by_semicolons(text: str, users: list[str]) -> None:
    made = authorizer(super_users=text)
    for user in (*users, "User:x"):
        assert made.allows(call_of(user), READ, TOPIC, "t") is (user != "User:x")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"super_users": "admin"}, "super.users: admin is not TYPE:NAME"),
        ({"super_users": "User:a;User:"}, "super.users: User: is not TYPE:NAME"),
        ({"allow_everyone_if_no_acl_found": "yes"}, "invalid value for allow.everyone.if.no.acl.found: yes"),
    ],
)
def test_settings_that_cannot_be_meant_stop_the_start(given: dict[str, str], words: str) -> None:
    with pytest.raises(OttlaError, match=words):
        authorizer(**given)


@pytest.mark.parametrize(("text", "open_"), [("true", True), (" TRUE ", True), ("false", False), ("False", False)])
def test_what_no_rule_speaks_of_is_open_if_the_node_says_so(text: str, open_: bool) -> None:
    made = authorizer(allow_everyone_if_no_acl_found=text)
    made.follow(image_of(1, rule(1, "a")))
    assert readable(made) == ("abc" if open_ else "a")
    assert made.allows(call_of("User:bob"), READ, TOPIC, "a") is False
    assert made.allows(call_of("User:bob"), READ, TOPIC, "b") is open_


# ---- rules of a package


class _Package:
    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked: list[Action] = []

    def authorize(self, action: Action) -> Any:
        self.asked.append(action)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize(
    ("answer", "allowed"),
    [(True, True), (False, False), (None, False), (1, False), ("yes", False), (ValueError(), False)],
)
def test_a_package_allows_by_true_alone(answer: Any, allowed: bool) -> None:
    package = _Package(answer)
    rules = PluggedRules(package, frozenset({"User:root"}))
    assert rules.allows("User:ann", "::1", READ, TOPIC, "t") is allowed
    assert rules.allows_any("User:ann", "::1", AclOperation.WRITE, AclResource.GROUP) is allowed
    assert package.asked == [
        Action("User:ann", "::1", "READ", "TOPIC", "t"),
        Action("User:ann", "::1", "WRITE", "GROUP", "*"),
    ]
    assert rules.operations("User:ann", "::1", AclResource.GROUP, "g") == (0b110101001000 if allowed else 0)
    package.asked.clear()
    assert rules.allows("User:root", "::1", READ, TOPIC, "t")
    assert rules.allows_any("User:root", "::1", READ, TOPIC)
    assert package.asked == [], "super users are not asked about"


# ---- refusals


@pytest.mark.parametrize("key", sorted(_SHAPES), ids=lambda key: ApiKey(key).name)
def test_only_a_denial_has_the_shape_of_one(key: int) -> None:
    """Any other error of the request as a whole is answered as without an authorizer."""
    handler = HANDLERS[key]
    request = filled(handler.api.request, handler.api.versions.stop - 1)
    version = handler.api.versions.stop - 1
    guarded = error_response_of(handler)
    for code in (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT):
        error = KafkaError(code, "why")
        assert guarded(request, version, error) == handler.error_response(request, version, error)
    denial = KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    assert guarded(request, version, denial) != handler.error_response(request, version, denial)
