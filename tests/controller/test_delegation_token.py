"""What the controller refuses of requests for delegation tokens."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from ottla.controller.delegation_token import NAMES_LENGTH_MAX, TOKENS_MAX, TokenCommand, TokenControl
from ottla.kernel.error import ErrorCode
from ottla.metadata.feature import TOKENS_FROM
from ottla.metadata.image import METADATA_VERSION, Image
from ottla.settings.server.settings import ServerSettings
from ottla.wire.api.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from ottla.wire.api.expire_delegation_token import ExpireDelegationTokenRequest
from ottla.wire.api.renew_delegation_token import RenewDelegationTokenRequest
from ottla.wire.record.security import DelegationTokenRecord, RemoveDelegationTokenRecord
from tests.settings.test_server_settings import COMBINED

CONTROL = TokenControl(ServerSettings.parse(COMBINED | {"delegation.token.secret.key": "a secret"}), random.Random(7))


def image(tokens: int = 0, requester: str = "User:ann", level: int = TOKENS_FROM) -> Image:
    made = {
        f"t{number}": DelegationTokenRecord(owner="User:bob", requester=requester, token_id=f"t{number}")
        for number in range(tokens)
    }
    return replace(Image.empty(), features={METADATA_VERSION: level}, tokens=made)


def asked(image: Image, request: Any) -> tuple[int, int]:
    """The code of the answer, and how many records it takes."""
    decision = CONTROL.decide(image, TokenCommand(request, "User:ann", 3), 1000)
    return decision.response.error_code, len(decision.records)


def test_a_principal_has_a_bounded_number_of_tokens() -> None:
    request = CreateDelegationTokenRequest(max_lifetime_ms=-1)
    assert asked(image(TOKENS_MAX - 1), request) == (ErrorCode.NONE, 1)
    assert asked(image(TOKENS_MAX), request) == (ErrorCode.POLICY_VIOLATION, 0)
    # Those that others asked for do not count, whoever their owner is.
    assert asked(image(TOKENS_MAX, "User:cid"), request) == (ErrorCode.NONE, 1)


@pytest.mark.parametrize("length", [NAMES_LENGTH_MAX, NAMES_LENGTH_MAX + 1])
def test_the_names_in_a_token_are_bounded(length: int) -> None:
    rest = length - len("User:ann") - len("User") - len("ann") - len("User:")
    renewer = CreatableRenewers(principal_type="User", principal_name="x" * rest)
    request = CreateDelegationTokenRequest(renewers=[renewer], max_lifetime_ms=-1)
    too_much = length > NAMES_LENGTH_MAX
    assert asked(image(), request) == ((ErrorCode.POLICY_VIOLATION, 0) if too_much else (ErrorCode.NONE, 1))


@pytest.mark.parametrize(
    "request_", [CreateDelegationTokenRequest(), RenewDelegationTokenRequest(), ExpireDelegationTokenRequest()]
)
def test_a_level_below_that_of_tokens_has_none(request_: object) -> None:
    assert asked(image(level=TOKENS_FROM - 1), request_) == (ErrorCode.UNSUPPORTED_VERSION, 0)


def test_a_renewer_is_a_user() -> None:
    request = CreateDelegationTokenRequest(
        renewers=[
            CreatableRenewers(principal_type="User", principal_name="bob"),
            CreatableRenewers(principal_type="Group", principal_name="staff"),
        ]
    )
    assert asked(image(), request) == (ErrorCode.INVALID_PRINCIPAL_TYPE, 0)


def test_an_expired_token_can_only_be_removed() -> None:
    made = CONTROL.decide(image(), TokenCommand(CreateDelegationTokenRequest(max_lifetime_ms=-1), "User:ann", 3), 1000)
    [token] = made.records
    hmac = made.response.hmac
    there = replace(image(), tokens={token.token_id: token})
    for now_ms, code in (
        (token.expiration_timestamp - 1, ErrorCode.NONE),
        (token.expiration_timestamp + 1, ErrorCode.DELEGATION_TOKEN_EXPIRED),
    ):
        for request in (
            RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=-1),
            ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=0),
            ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=5),
        ):
            decision = CONTROL.decide(there, TokenCommand(request, "User:ann", 2), now_ms)
            assert (decision.response.error_code, len(decision.records)) == (code, code == ErrorCode.NONE)
        removal = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=-1)
        refused = CONTROL.decide(there, TokenCommand(removal, "User:bob", 2), now_ms)
        assert (refused.response.error_code, refused.records) == (ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH, [])
        decision = CONTROL.decide(there, TokenCommand(removal, "User:ann", 2), now_ms)
        assert decision.records == [RemoveDelegationTokenRecord(token_id=token.token_id)]
