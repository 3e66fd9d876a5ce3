"""Which delegation tokens a principal is told of, and what of each."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest

from ottla.broker.call.reply import Later
from ottla.broker.handlers.security import change_token, change_token_here, describe_tokens
from ottla.kernel.error import ErrorCode
from ottla.security.acl import AclOperation
from ottla.wire.api.create_delegation_token import CreateDelegationTokenRequest
from ottla.wire.api.describe_delegation_token import DescribeDelegationTokenOwner, DescribeDelegationTokenRequest
from ottla.wire.api.expire_delegation_token import ExpireDelegationTokenRequest
from ottla.wire.api.renew_delegation_token import RenewDelegationTokenRequest
from ottla.wire.record.security import DelegationTokenRecord
from tests.broker.table_node import called, done

NONE = ErrorCode.NONE
#: A name may have colons of its own.
ANN, BOB, CID = "User:ann", "User:CN=bob:2:x", "User:cid"


def tokens_seen(
    principal: str, rules: Any, *, owners: list[str] | None = None, version: int = 3, by_token: bool = False
) -> Any:
    """What a principal is told; `rules` is what the authorizer allows, None: there is none."""
    tokens = {
        name: DelegationTokenRecord(
            owner=owner,
            requester=requester,
            renewers=renewers,
            token_id=name,
            issue_timestamp=1,
            expiration_timestamp=2,
            max_timestamp=3,
        )
        for name, owner, requester, renewers in (
            ("owned", ANN, BOB, []),
            ("renewed", BOB, BOB, [ANN]),
            ("requested", BOB, ANN, []),
            ("others", CID, BOB, [BOB]),
        )
    }
    authorizer = None if rules is None else Mock(allows=lambda call, operation, kind, name: (operation, name) in rules)
    call = called(
        version,
        image=Mock(tokens=tokens),
        authorizer=authorizer,
        token_keys=Mock(hmac=lambda name: name.encode()),
    )
    call.principal, call.connection.signed_in_by_token = principal, by_token
    asked = None
    if owners is not None:
        asked = [
            DescribeDelegationTokenOwner(principal_type="User", principal_name=owner.partition(":")[2])
            for owner in owners
        ]
    return describe_tokens(call, DescribeDelegationTokenRequest(owners=asked))


@pytest.mark.parametrize(
    ("rules", "owners", "seen"),
    [
        (None, None, "owned renewed requested others"),
        (set(), None, "owned renewed requested"),
        (set(), [CID], ""),
        (None, [CID], "others"),
        (set(), [BOB], "owned renewed requested"),
        (set(), [], ""),
        ({(AclOperation.DESCRIBE, "others")}, None, "owned renewed requested others"),
        ({(AclOperation.DESCRIBE_TOKENS, CID)}, None, "owned renewed requested others"),
        ({(AclOperation.DESCRIBE_TOKENS, BOB)}, None, "owned renewed requested"),
    ],
)
def test_tokens_of_others_are_told_without_an_authorizer_or_by_its_rules(
    rules: Any, owners: list[str] | None, seen: str
) -> None:
    found = tokens_seen(ANN, rules, owners=owners)
    assert (found.error_code, [each.token_id for each in found.tokens]) == (NONE, seen.split())


def test_many_tokens_are_told_of_in_steps() -> None:
    one = DelegationTokenRecord(owner=ANN, requester=ANN, token_id="t")
    call = called(image=Mock(tokens=dict.fromkeys(range(120), one)), authorizer=None)
    call.node.token_keys.hmac = lambda name: name.encode()
    call.principal, call.connection.signed_in_by_token = ANN, False
    reply = describe_tokens(call, DescribeDelegationTokenRequest(owners=None))
    assert isinstance(reply, Later)
    assert not reply.resolved
    assert len(done(reply, call).tokens) == 120


def test_a_token_is_described_field_by_field_in_the_words_of_its_version() -> None:
    for version, requester in ((2, ("", "")), (3, ("User", BOB.partition(":")[2]))):
        first, second, *_ = tokens_seen(ANN, None, version=version).tokens
        assert (first.principal_type, first.principal_name, first.hmac) == ("User", "ann", b"owned")
        assert (first.issue_timestamp, first.expiry_timestamp, first.max_timestamp) == (1, 2, 3)
        assert (first.token_requester_principal_type, first.token_requester_principal_name) == requester
        assert [(each.principal_type, each.principal_name) for each in second.renewers] == [("User", "ann")]
        assert (second.principal_type, second.principal_name) == ("User", BOB.partition(":")[2])
    (_, _, _, others) = tokens_seen(ANN, None).tokens
    assert [(each.principal_type, each.principal_name) for each in others.renewers] == [("User", BOB.partition(":")[2])]


def test_a_client_that_did_not_sign_in_or_by_a_token_alone_is_told_of_none() -> None:
    refused = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    assert tokens_seen("User:ANONYMOUS", None).error_code == refused
    assert tokens_seen(ANN, None, by_token=True).error_code == refused


@pytest.mark.parametrize(
    ("protocol", "forwarded", "is_refused"),
    [
        ("PLAINTEXT", False, True),
        # The controllers' listener may be open: the broker has looked at its client.
        ("PLAINTEXT", True, False),
        ("SSL", False, False),
        ("SASL_PLAINTEXT", False, False),
        ("SASL_SSL", False, False),
    ],
)
def test_a_client_of_an_open_listener_has_no_tokens_whatever_a_plug_in_calls_it(
    protocol: str, forwarded: bool, is_refused: bool
) -> None:
    call = called(
        image=Mock(tokens={}), authorizer=None, token_keys=Mock(), settings=Mock(protocols={"CLIENTS": protocol})
    )
    call.principal, call.is_forwarded = ANN, forwarded
    call.connection.signed_in_by_token, call.connection.listener_name = False, "CLIENTS"
    refused = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED if is_refused else NONE
    assert describe_tokens(call, DescribeDelegationTokenRequest(owners=None)).error_code == refused
    forward, ask = call.node.controllers.forward, call.node.quorum.ask
    for request in (
        CreateDelegationTokenRequest(),
        RenewDelegationTokenRequest(hmac=b"x"),
        ExpireDelegationTokenRequest(hmac=b"x"),
    ):
        for change, asked in ((change_token, forward), (change_token_here, ask)):
            asked.reset_mock()
            reply = change(call, request)
            assert asked.called is not is_refused
            assert not is_refused or (reply.error_code, reply.expiry_timestamp_ms) == (refused, -1)
