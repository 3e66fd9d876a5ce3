"""Delegation tokens: made, renewed, ended and described by those who may, and signed in with."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ottla
from ottla.client import (
    Acl,
    AclOperation,
    AclResource,
    Admin,
    AuthenticationFailed,
    DelegationToken,
    KafkaError,
)
from ottla.kernel.error import ErrorCode
from ottla.wire.api.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from ottla.wire.api.describe_delegation_token import DescribeDelegationTokenRequest
from ottla.wire.api.expire_delegation_token import ExpireDelegationTokenRequest
from ottla.wire.api.metadata import MetadataRequest
from ottla.wire.api.renew_delegation_token import RenewDelegationTokenRequest
from tests.broker.sasl_scene import PASSWORD, SETTINGS, plaintext, secured, sign_in
from tests.broker.wire_client import WireClient

_HOUR_MS = 3_600_000
_LINE = SETTINGS["listener.name.sasl_plaintext.plain.sasl.jaas.config"]
TOKENS = SETTINGS | {
    "delegation.token.secret.key": "a secret of all nodes",
    "delegation.token.expiry.time.ms": str(_HOUR_MS),
    "delegation.token.max.lifetime.ms": str(3 * _HOUR_MS),
}
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.fixture(scope="module")
def node() -> Iterator[ottla.Node]:
    with ottla.Node(settings=TOKENS) as node:
        yield node


def as_user(node: ottla.Node, user: str = "ann", password: str = PASSWORD) -> dict[str, Any]:
    return {
        "bootstrap.servers": secured(node),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": password,
    }


def by_token(node: ottla.Node, token: DelegationToken, mechanism: str = MECHANISMS[0], **wrong: str) -> dict[str, Any]:
    said = {"username": token.id, "password": b64encode(token.hmac).decode()} | wrong
    options = " ".join(f'{name}="{value}"' for name, value in said.items())
    line = f'org.apache.kafka.common.security.scram.ScramLoginModule required {options} tokenauth="true";'
    address = {"bootstrap.servers": secured(node), "security.protocol": "SASL_PLAINTEXT"}
    return {**address, "sasl.mechanism": mechanism, "sasl.jaas.config": line}


def refusal(act: Any) -> int:
    with pytest.raises(KafkaError) as error:
        act()
    return int(error.value.code)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_client_signs_in_by_a_token_as_its_owner(node: ottla.Node, mechanism: str) -> None:
    with Admin(as_user(node)) as admin:
        token = admin.create_delegation_token(renewers=["User:bob"])
        assert (token.owner, token.requester, token.renewers) == ("User:ann", "User:ann", ("User:bob",))
        assert token.expiry_timestamp == token.issued_timestamp + _HOUR_MS
        assert token.max_timestamp == token.issued_timestamp + 3 * _HOUR_MS
    with Admin(by_token(node, token, mechanism)) as admin:
        assert admin.describe_cluster().nodes
        # Who came by a token makes and sees none.
        not_allowed = int(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
        assert refusal(admin.create_delegation_token) == not_allowed
        assert refusal(lambda: admin.renew_delegation_token(token.hmac)) == not_allowed
        assert refusal(lambda: admin.expire_delegation_token(token.hmac)) == not_allowed
        assert refusal(admin.describe_delegation_tokens) == not_allowed
    for wrong in ({"password": "wrong"}, {"username": "unknown"}, {"username": "ann", "password": PASSWORD}):
        with Admin(by_token(node, token, mechanism, **wrong)) as admin, pytest.raises(AuthenticationFailed):
            admin.describe_cluster()


@pytest.mark.parametrize("version", [1, 2, 3])
def test_tokens_are_described_in_every_version(node: ottla.Node, version: int) -> None:
    with Admin(as_user(node)) as admin:
        token = admin.create_delegation_token()
    with WireClient(secured(node)) as client:
        assert not sign_in(client, "PLAIN", "ann").error_code
        answer = client.ask(DescribeDelegationTokenRequest(owners=None), version)
        (found,) = (each for each in answer.tokens if each.token_id == token.id)
        assert (found.principal_name, found.token_requester_principal_name) == ("ann", "ann" if version > 2 else "")


def test_a_token_is_no_password_of_a_user(node: ottla.Node) -> None:
    with Admin(as_user(node)) as admin:
        token = admin.create_delegation_token()
    with WireClient(secured(node)) as client:
        answer = sign_in(client, "SCRAM-SHA-256", token.id, b64encode(token.hmac).decode())
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_a_token_is_renewed_and_ended_by_its_owner_and_renewers(node: ottla.Node) -> None:
    with Admin(as_user(node)) as ann, Admin(as_user(node, "bob", "bobs")) as bob:
        token = ann.create_delegation_token(max_lifetime_ms=2 * _HOUR_MS)
        mismatch = int(ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH)
        assert refusal(lambda: bob.renew_delegation_token(token.hmac)) == mismatch
        assert refusal(lambda: bob.expire_delegation_token(token.hmac)) == mismatch
        unknown = int(ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        assert refusal(lambda: ann.renew_delegation_token(b"x")) == unknown
        assert refusal(lambda: ann.expire_delegation_token(b"")) == unknown
        shared = ann.create_delegation_token(renewers=["User:bob"])
        assert bob.renew_delegation_token(shared.hmac, renew_period_ms=1000) < shared.expiry_timestamp
        assert ann.renew_delegation_token(token.hmac, renew_period_ms=1 << 62) <= token.max_timestamp
        assert ann.expire_delegation_token(token.hmac, expiry_period_ms=1 << 62) == token.max_timestamp
        assert ann.expire_delegation_token(token.hmac) < token.max_timestamp
        assert refusal(lambda: ann.renew_delegation_token(token.hmac)) == unknown
    with Admin(by_token(node, token)) as admin, pytest.raises(AuthenticationFailed):
        admin.describe_cluster()


def test_a_session_ends_with_its_token_and_the_controller_removes_it() -> None:
    # The controller looks for tokens that have ended every two hours.
    slow = TOKENS | {"delegation.token.expiry.check.interval.ms": str(2 * _HOUR_MS)}
    with ottla.Node(settings=slow) as node, Admin(as_user(node)) as admin:
        token = admin.create_delegation_token()
        with WireClient(secured(node)) as client:
            lifetime_ms = _sign_in(client, token)
            assert 0 < lifetime_ms <= _HOUR_MS
            assert client.ask(MetadataRequest(topics=[]), 12).brokers
            node.clock.advance(_HOUR_MS + 2)
            client.send(MetadataRequest(topics=[]), 12)
            with pytest.raises(ConnectionError):
                client.receive_frame()
        with Admin(by_token(node, token)) as late, pytest.raises(AuthenticationFailed):
            late.describe_cluster()
        assert [each.id for each in admin.describe_delegation_tokens()] == [token.id]
        assert refusal(lambda: admin.renew_delegation_token(token.hmac)) == ErrorCode.DELEGATION_TOKEN_EXPIRED
        node.clock.advance(_HOUR_MS)
        for _ in range(5000):
            if not admin.describe_delegation_tokens():
                break
        assert admin.describe_delegation_tokens() == []


def _sign_in(client: WireClient, token: DelegationToken) -> int:
    from ottla.security.scram import scram
    from ottla.wire.api.sasl_authenticate import SaslAuthenticateRequest
    from ottla.wire.api.sasl_handshake import SaslHandshakeRequest

    assert client.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-512"), 1).error_code == 0
    exchange = scram("SCRAM-SHA-512", token.id, b64encode(token.hmac).decode(), "nonce", "tokenauth=true")
    said = next(exchange)
    while True:
        answer = client.ask(SaslAuthenticateRequest(auth_bytes=said), 2)
        assert answer.error_code == 0, answer
        try:
            said = exchange.send(bytes(answer.auth_bytes))
        except StopIteration:
            return int(answer.session_lifetime_ms)


def test_tokens_stay_over_a_restart_and_another_secret_key_makes_them_worthless(tmp_path: Path) -> None:
    with ottla.Node(tmp_path, settings=TOKENS) as node, Admin(as_user(node)) as admin:
        token = admin.create_delegation_token()
    with ottla.Node(tmp_path, settings=TOKENS) as node:
        with Admin(by_token(node, token)) as admin:
            assert admin.describe_cluster().nodes
        with Admin(as_user(node)) as admin:
            assert admin.describe_delegation_tokens() == [token]
    for other in (TOKENS | {"delegation.token.secret.key": "another"}, SETTINGS):
        with (
            ottla.Node(tmp_path, settings=other) as node,
            Admin(by_token(node, token)) as admin,
            pytest.raises(AuthenticationFailed),
        ):
            admin.describe_cluster()


def _answers(client: WireClient) -> list[int]:
    renewers = [CreatableRenewers(principal_type="Group", principal_name="x")]
    requests: list[tuple[Any, int]] = [
        (CreateDelegationTokenRequest(), 3),
        (CreateDelegationTokenRequest(renewers=renewers), 1),
        (RenewDelegationTokenRequest(hmac=b"x"), 2),
        (ExpireDelegationTokenRequest(hmac=b"x"), 2),
        (DescribeDelegationTokenRequest(owners=[]), 3),
    ]
    return [int(client.ask(request, version).error_code) for request, version in requests]


def test_without_a_secret_key_or_a_sign_in_there_are_no_tokens(node: ottla.Node) -> None:
    not_allowed = [int(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)] * 5
    with WireClient(plaintext(node)) as client:
        assert _answers(client) == not_allowed
    with ottla.Node(settings=SETTINGS) as off:
        with WireClient(plaintext(off)) as client:
            assert _answers(client) == not_allowed
        with WireClient(secured(off)) as client:
            assert sign_in(client, "PLAIN", "ann").error_code == 0
            disabled = int(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
            assert _answers(client) == [disabled, int(ErrorCode.INVALID_PRINCIPAL_TYPE), disabled, disabled, disabled]


def test_tokens_of_others_take_a_rule() -> None:
    secured_by_rules = TOKENS | {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:ann",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": _LINE[:-1] + ' user_cid="cids";',
    }
    with (
        ottla.Node(settings=secured_by_rules) as node,
        Admin(as_user(node)) as ann,
        Admin(as_user(node, "bob", "bobs")) as bob,
        Admin(as_user(node, "cid", "cids")) as cid,
    ):
        own = bob.create_delegation_token()
        denied = int(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
        assert refusal(lambda: bob.create_delegation_token(owner="User:ann")) == denied
        of_cid = ann.create_delegation_token(owner="User:cid", renewers=["User:bob"])
        assert (of_cid.owner, of_cid.requester) == ("User:cid", "User:ann")
        ids = {own.id, of_cid.id}
        assert {each.id for each in ann.describe_delegation_tokens()} == ids
        assert {each.id for each in bob.describe_delegation_tokens()} == ids
        assert [each.id for each in cid.describe_delegation_tokens()] == [of_cid.id]
        assert cid.describe_delegation_tokens(["User:bob"]) == [of_cid]
        assert bob.describe_delegation_tokens(["User:ann"]) == [of_cid]
        ann.create_acls([Acl(AclResource.USER, "User:bob", "User:cid", AclOperation.DESCRIBE_TOKENS)]).check()
        for _ in range(5000):
            if len(cid.describe_delegation_tokens()) == 2:
                break
        assert {each.id for each in cid.describe_delegation_tokens()} == ids
