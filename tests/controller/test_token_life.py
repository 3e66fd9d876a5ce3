"""Delegation tokens from their creation to their removal: who may do what with them, and how long they are valid."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from ottla.controller.delegation_token import REMOVED_AT_ONCE, TokenCommand, TokenControl, expired_tokens
from ottla.kernel.error import ErrorCode
from ottla.metadata.image import Image
from ottla.security.token_keys import TokenKeys
from ottla.wire.api.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from ottla.wire.api.expire_delegation_token import ExpireDelegationTokenRequest
from ottla.wire.api.renew_delegation_token import RenewDelegationTokenRequest
from ottla.wire.record.security import DelegationTokenRecord, RemoveDelegationTokenRecord
from tests.controller.scene import Cluster, server_settings

LIFETIME_MS, EXPIRY_MS, NOW_MS = 10_000, 3_000, 1_000
SETTINGS: dict[str, Any] = {
    "delegation_token_secret_key": "a secret",
    "delegation_token_max_lifetime_ms": str(LIFETIME_MS),
    "delegation_token_expiry_time_ms": str(EXPIRY_MS),
}
SERVER = server_settings(**SETTINGS)
CONTROL = TokenControl(SERVER, random.Random(7))


def ask(image: Image, request: Any, requester: str = "User:ann", version: int = 3, now_ms: int = NOW_MS) -> Any:
    return CONTROL.decide(image, TokenCommand(request, requester, version), now_ms)


def with_token(**fields: Any) -> tuple[Image, bytes]:
    """An image with one token of ann's, which bob may renew; its secret."""
    token = DelegationTokenRecord(
        **{
            "owner": "User:ann",
            "requester": "User:eve",
            "renewers": ["User:bob"],
            "issue_timestamp": NOW_MS,
            "max_timestamp": NOW_MS + LIFETIME_MS,
            "expiration_timestamp": NOW_MS + EXPIRY_MS,
            "token_id": "t",
            **fields,
        }
    )
    return replace(EMPTY, tokens={"t": token}), TokenKeys(SERVER.delegation_token_secret_key or "").hmac("t")


EMPTY = Cluster(**SETTINGS).image


def test_a_token_is_made_as_it_is_told() -> None:
    renewers = [CreatableRenewers(principal_type="User", principal_name=name) for name in ("bob", "cid")]
    decision = ask(EMPTY, CreateDelegationTokenRequest(renewers=renewers, max_lifetime_ms=-1))
    (record,) = decision.records
    assert record == DelegationTokenRecord(
        owner="User:ann",
        requester="User:ann",
        renewers=["User:bob", "User:cid"],
        issue_timestamp=NOW_MS,
        max_timestamp=NOW_MS + LIFETIME_MS,
        expiration_timestamp=NOW_MS + EXPIRY_MS,
        token_id=record.token_id,
    )
    said = decision.response
    assert (said.principal_type, said.principal_name) == ("User", "ann")
    assert (said.issue_timestamp_ms, said.expiry_timestamp_ms, said.max_timestamp_ms) == (
        record.issue_timestamp,
        record.expiration_timestamp,
        record.max_timestamp,
    )
    assert said.token_id == record.token_id and not record.token_id.startswith("-")
    assert ask(replace(EMPTY, tokens={record.token_id: record}), RenewDelegationTokenRequest(hmac=said.hmac)).records


def test_no_token_looks_like_an_option_of_a_command() -> None:
    dash, other = b"\xfb" + bytes(15), b"\x01" + bytes(15)
    drawn = iter([dash, dash, other])

    class Rng(random.Random):
        def randbytes(self, count: int) -> bytes:
            return next(drawn)

    control = TokenControl(SERVER, Rng())
    request = CreateDelegationTokenRequest(max_lifetime_ms=-1)
    (record,) = control.decide(EMPTY, TokenCommand(request, "User:ann", 3), NOW_MS).records
    assert not record.token_id.startswith("-") and next(drawn, None) is None


@pytest.mark.parametrize(
    ("wanted_ms", "lives_ms"),
    [(-1, LIFETIME_MS), (0, LIFETIME_MS), (1, 1), (500, 500), (LIFETIME_MS + 1, LIFETIME_MS)],
)
def test_a_token_lives_as_long_as_it_is_asked_for_but_no_longer_than_it_may(wanted_ms: int, lives_ms: int) -> None:
    (record,) = ask(EMPTY, CreateDelegationTokenRequest(max_lifetime_ms=wanted_ms)).records
    assert record.max_timestamp == NOW_MS + lives_ms
    assert record.expiration_timestamp == NOW_MS + min(lives_ms, EXPIRY_MS)


def test_a_token_that_would_outlive_time_ends_with_it() -> None:
    settings = server_settings(**SETTINGS | {"delegation_token_max_lifetime_ms": str((1 << 63) - 1)})
    control = TokenControl(settings, random.Random(7))
    request = CreateDelegationTokenRequest(max_lifetime_ms=-1)
    (record,) = control.decide(EMPTY, TokenCommand(request, "User:ann", 3), NOW_MS).records
    assert record.max_timestamp == (1 << 63) - 1


@pytest.mark.parametrize(("version", "told"), [(2, ("", "")), (3, ("User", "ann"))])
def test_a_token_may_be_made_for_another_owner(version: int, told: tuple[str, str]) -> None:
    request = CreateDelegationTokenRequest(owner_principal_type="User", owner_principal_name="dan", max_lifetime_ms=-1)
    decision = ask(EMPTY, request, version=version)
    (record,) = decision.records
    assert (record.owner, record.requester) == ("User:dan", "User:ann")
    said = decision.response
    assert (said.principal_type, said.principal_name) == ("User", "dan")
    assert (said.token_requester_principal_type, said.token_requester_principal_name) == told


def test_a_controller_without_a_secret_key_makes_and_changes_no_tokens() -> None:
    control = TokenControl(server_settings(), random.Random(7))
    image, secret = with_token()
    for request in (
        CreateDelegationTokenRequest(),
        RenewDelegationTokenRequest(hmac=secret),
        ExpireDelegationTokenRequest(hmac=secret, expiry_time_period_ms=-1),
    ):
        decision = control.decide(image, TokenCommand(request, "User:ann", 3), NOW_MS)
        assert decision.response.error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
        assert decision.records == []


@pytest.mark.parametrize("kind", [RenewDelegationTokenRequest, ExpireDelegationTokenRequest])
def test_only_the_owner_and_the_renewers_change_a_token_that_there_is(kind: Any) -> None:
    image, secret = with_token()
    for requester, code in (
        ("User:ann", ErrorCode.NONE),
        ("User:bob", ErrorCode.NONE),
        ("User:eve", ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH),
        ("Group:ann", ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH),
    ):
        decision = ask(image, kind(hmac=secret), requester)
        assert (decision.response.error_code, len(decision.records)) == (code, code == ErrorCode.NONE)
    for unknown in (b"", b"x" * len(secret), secret[:-1]):
        decision = ask(image, kind(hmac=unknown))
        assert decision.response.error_code == ErrorCode.DELEGATION_TOKEN_NOT_FOUND and decision.records == []


@pytest.mark.parametrize(
    ("period_ms", "now_ms", "expires_ms"),
    [
        (-1, NOW_MS + 100, NOW_MS + 100 + EXPIRY_MS),
        (0, NOW_MS + 100, NOW_MS + 100 + EXPIRY_MS),
        (7, NOW_MS + 100, NOW_MS + 107),
        (EXPIRY_MS + 1, NOW_MS, NOW_MS + EXPIRY_MS),
        (-1, NOW_MS + LIFETIME_MS - 5, NOW_MS + LIFETIME_MS),
    ],
)
def test_a_renewal_counts_from_now_and_ends_with_the_token(period_ms: int, now_ms: int, expires_ms: int) -> None:
    image, secret = with_token(expiration_timestamp=NOW_MS + LIFETIME_MS)
    decision = ask(image, RenewDelegationTokenRequest(hmac=secret, renew_period_ms=period_ms), now_ms=now_ms)
    (record,) = decision.records
    assert decision.response.expiry_timestamp_ms == record.expiration_timestamp == expires_ms
    assert record == replace_expiry(image.tokens["t"], expires_ms)


@pytest.mark.parametrize(
    ("period_ms", "expires_ms"), [(0, NOW_MS), (50, NOW_MS + 50), (LIFETIME_MS * 9, NOW_MS + LIFETIME_MS)]
)
def test_an_expiry_that_is_set_leaves_the_rest_of_the_token(period_ms: int, expires_ms: int) -> None:
    image, secret = with_token()
    decision = ask(image, ExpireDelegationTokenRequest(hmac=secret, expiry_time_period_ms=period_ms))
    (record,) = decision.records
    assert decision.response.expiry_timestamp_ms == expires_ms
    assert record == replace_expiry(image.tokens["t"], expires_ms)


def test_a_token_that_is_removed_has_expired_now() -> None:
    image, secret = with_token()
    decision = ask(image, ExpireDelegationTokenRequest(hmac=secret, expiry_time_period_ms=-1), now_ms=NOW_MS + 9)
    assert decision.records == [RemoveDelegationTokenRecord(token_id="t")]
    assert decision.response.expiry_timestamp_ms == NOW_MS + 9


def replace_expiry(token: DelegationTokenRecord, expires_ms: int) -> DelegationTokenRecord:
    names = ("owner", "requester", "renewers", "issue_timestamp", "max_timestamp", "token_id")
    return DelegationTokenRecord(**{name: getattr(token, name) for name in names}, expiration_timestamp=expires_ms)


def tokens(count: int, expires_ms: int, max_ms: int = NOW_MS * 9) -> dict[str, DelegationTokenRecord]:
    return {
        f"t{number}": DelegationTokenRecord(
            owner="User:ann", expiration_timestamp=expires_ms, max_timestamp=max_ms, token_id=f"t{number}"
        )
        for number in range(count)
    }


@pytest.mark.parametrize(
    ("expires_ms", "max_ms", "goes"),
    [(NOW_MS, NOW_MS, False), (NOW_MS - 1, NOW_MS, True), (NOW_MS, NOW_MS - 1, True), (NOW_MS + 1, NOW_MS + 1, False)],
)
def test_a_token_is_removed_once_it_is_past_either_of_its_times(expires_ms: int, max_ms: int, goes: bool) -> None:
    image = replace(EMPTY, tokens=tokens(1, expires_ms, max_ms))
    assert expired_tokens(image, NOW_MS) == ([RemoveDelegationTokenRecord(token_id="t0")] if goes else [])


def test_expired_tokens_are_removed_in_time_and_many_of_them_in_steps() -> None:
    cluster = Cluster(
        **SETTINGS, delegation_token_expiry_check_interval_ms="60000", auto_leader_rebalance_enable="false"
    )
    cluster.controller.wall_ms = NOW_MS
    cluster.append([*tokens(REMOVED_AT_ONCE + 3, NOW_MS + 5).values()])
    started_ms = cluster.now_ms
    assert cluster.controller.tokens_due_ms() == started_ms + 60_000

    def removed(now_ms: int) -> int:
        decision = cluster.controller.time_passed(cluster.image, now_ms)
        assert decision.response is None and not decision.atomic
        cluster.append(decision.records)
        return sum(isinstance(record, RemoveDelegationTokenRecord) for record in decision.records)

    due_ms = started_ms + 60_000
    assert removed(due_ms) == 0, "they are valid"
    assert cluster.controller.tokens_due_ms() == due_ms + 60_000
    cluster.controller.wall_ms = NOW_MS + 6
    due_ms += 60_000
    assert removed(due_ms) == REMOVED_AT_ONCE
    soon_ms = cluster.controller.tokens_due_ms()
    assert soon_ms is not None and due_ms <= soon_ms < due_ms + 1_000
    assert removed(soon_ms) == 3 and cluster.image.tokens == {}
    assert cluster.controller.tokens_due_ms() == soon_ms + 60_000


def test_a_controller_that_has_no_key_or_does_not_lead_removes_nothing() -> None:
    cluster = Cluster()
    assert cluster.controller.is_active and cluster.controller.tokens_due_ms() is None
    keyed = Cluster(**SETTINGS)
    assert keyed.controller.tokens_due_ms() is not None and keyed.controller.deadline_ms() is not None
    keyed.controller.resign()
    assert not keyed.controller.is_active
    assert keyed.controller.tokens_due_ms() is keyed.controller.deadline_ms() is None


def test_the_controller_makes_tokens_at_the_time_on_the_wall() -> None:
    cluster = Cluster(**SETTINGS)
    cluster.controller.wall_ms = 777
    request = CreateDelegationTokenRequest(max_lifetime_ms=-1)
    first = cluster.ask(TokenCommand(request, "User:ann", 3))
    cluster.controller.wall_ms = 778
    second = cluster.ask(TokenCommand(request, "User:bob", 3))
    assert (first.issue_timestamp_ms, second.issue_timestamp_ms) == (777, 778)
    assert {token.owner for token in cluster.image.tokens.values()} == {"User:ann", "User:bob"}
    assert first.token_id != second.token_id
