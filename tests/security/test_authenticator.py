"""The states of a connection's sign-in: what each request leads to, who is in, and for how long. Without a socket."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.kernel.error import ErrorCode
from ottla.security.authenticator import RENEWAL_MS_MIN, Authenticator, SignInFailed, SignInState
from ottla.security.verify import SignInRefused, Verification, Verified
from ottla.wire.api.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.wire.api.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

NOW = 10_000


def played(name: str, lifetime_ms: int | None = None, *, by_token: bool = False) -> Any:
    """A mechanism that asks once more before `user`, and lets everybody in but "evil" (with a reason) and "shy"."""

    def begin() -> Verification:
        token = yield b"the client speaks first"
        if token == b"more":
            token = yield name.encode() + b" goes on"
        if token == b"evil":
            raise SignInRefused("go away", why="it is evil")
        if token == b"shy":
            raise SignInRefused
        return Verified(token.decode(), b"welcome", lifetime_ms, by_token)

    return begin


def authenticator(**session_ms: int) -> Authenticator:
    return Authenticator(
        {"PLAIN": played("PLAIN"), "SCRAM": played("SCRAM", 5_000), "TOKEN": played("TOKEN", by_token=True)},
        lambda mechanism: session_ms.get(mechanism, 0),
        "Person:{}".format,
    )


def shake(made: Authenticator, mechanism: str = "PLAIN", version: int = 1) -> SaslHandshakeResponse:
    return made.handshake(SaslHandshakeRequest(mechanism=mechanism), version)


def say(made: Authenticator, token: str, now_ms: int = NOW) -> SaslAuthenticateResponse:
    return made.authenticate(SaslAuthenticateRequest(auth_bytes=token.encode()), now_ms)


def failure(call: Any, *arguments: Any) -> tuple[str, Any]:
    with pytest.raises(SignInFailed) as failed:
        call(*arguments)
    return str(failed.value), failed.value.response


@pytest.mark.parametrize("asks", [False, True])
def test_a_client_may_ask_for_versions_once_before_it_signs_in(asks: bool) -> None:
    made = authenticator()
    assert (made.state, made.may_ask_versions) == (SignInState.BEGUN, True)
    assert (made.mechanism, made.principal, made.by_token) == ("", None, False)
    if asks:
        made.asked_versions()
        assert (made.state, made.may_ask_versions) == (SignInState.ASKED, False)
    assert shake(made).mechanisms == ["PLAIN", "SCRAM", "TOKEN"]
    assert (made.state, made.principal, made.mechanism) == (SignInState.EXCHANGING, None, "PLAIN")
    assert not made.may_ask_versions
    assert say(made, "more").auth_bytes == b"PLAIN goes on"
    assert (made.state, made.principal) == (SignInState.EXCHANGING, None)
    last = say(made, "ann")
    assert (last.auth_bytes, last.error_code, last.session_lifetime_ms) == (b"welcome", ErrorCode.NONE, 0)
    assert (made.state, made.principal, made.by_token) == (SignInState.DONE, "Person:ann", False)
    assert (made.ends_at_ms, made.is_over(NOW * 1000)) == (None, False)
    assert not made.may_ask_versions


@pytest.mark.parametrize(("version", "bare"), [(0, True), (1, False)])
def test_an_old_handshake_is_followed_by_bare_tokens(version: int, bare: bool) -> None:
    made = authenticator()
    assert not made.bare
    shake(made, version=version)
    assert made.bare == bare
    assert made.token(b"more", NOW) == b"PLAIN goes on"
    assert made.token(b"ann", NOW) == b"welcome"
    assert made.state is SignInState.DONE


def test_a_mechanism_that_is_not_enabled_is_answered_with_those_that_are() -> None:
    why, response = failure(shake, authenticator(), "x" * 50)
    assert why == f"it asks for the mechanism {'x' * 40!r}, which is not enabled"
    assert response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert response.mechanisms == ["PLAIN", "SCRAM", "TOKEN"]


@pytest.mark.parametrize(("version", "answered"), [(0, False), (1, True)])
def test_a_second_handshake_before_the_first_is_over_ends_the_connection(version: int, answered: bool) -> None:
    made = authenticator()
    shake(made, version=version)
    why, response = failure(shake, made)
    assert why == "a handshake in the middle of a sign-in"
    assert (response is not None) == answered, "a client that sends bare tokens would take it for one"
    assert response is None or response.error_code == ErrorCode.ILLEGAL_SASL_STATE


@pytest.mark.parametrize("done", [False, True])
def test_a_token_without_a_handshake_ends_the_connection(done: bool) -> None:
    made = authenticator()
    if done:
        shake(made)
        say(made, "ann")
    for call in (say, lambda made, token: made.token(token.encode(), NOW)):
        assert failure(call, made, "ann") == ("a token without a handshake", None)


REFUSED = [
    ("evil", "go away", "its PLAIN sign-in failed: it is evil"),
    (
        "shy",
        "Authentication failed during {} due to invalid credentials with SASL mechanism PLAIN",
        "its PLAIN sign-in failed",
    ),
]


@pytest.mark.parametrize("renews", [False, True])
@pytest.mark.parametrize(("user", "told", "logged"), REFUSED)
def test_a_refused_client_learns_what_it_may(user: str, told: str, logged: str, renews: bool) -> None:
    made = authenticator()
    if renews:
        shake(made)
        say(made, "ann")
    shake(made)
    why, response = failure(say, made, user)
    assert (why, response.error_code) == (logged, ErrorCode.SASL_AUTHENTICATION_FAILED)
    assert response.error_message == told.format("re-authentication" if renews else "authentication")


@pytest.mark.parametrize(("user", "told", "logged"), REFUSED)
def test_a_client_that_sends_bare_tokens_is_refused_without_an_answer(user: str, told: str, logged: str) -> None:
    made = authenticator()
    shake(made, version=0)
    assert failure(made.token, user.encode(), NOW) == (logged, None)
    assert (made.principal, made.state) == (None, SignInState.EXCHANGING)


@pytest.mark.parametrize(
    ("mechanism", "session_ms", "lifetime_ms"),
    [
        ("PLAIN", 0, None),
        ("PLAIN", 3_000, 3_000),
        ("SCRAM", 0, 5_000),
        ("SCRAM", 3_000, 3_000),
        ("SCRAM", 9_000, 5_000),
        ("PLAIN", -1, None),
        ("PLAIN", 1, 1),
    ],
)
def test_a_session_ends_with_its_credential_or_after_the_listeners_time(
    mechanism: str, session_ms: int, lifetime_ms: int | None
) -> None:
    made = authenticator(**{mechanism: session_ms})
    shake(made, mechanism)
    assert say(made, "ann").session_lifetime_ms == (lifetime_ms or 0)
    if lifetime_ms is None:
        assert (made.ends_at_ms, made.is_over(1 << 62)) == (None, False)
    else:
        assert made.ends_at_ms == NOW + lifetime_ms
        assert [made.is_over(NOW + lifetime_ms + more) for more in (-1, 0, 1)] == [False, False, True]


def test_a_credential_that_is_over_already_ends_the_session_now() -> None:
    made = Authenticator({"LATE": played("LATE", -7)}, lambda _: 0)
    shake(made, "LATE")
    assert (say(made, "ann").session_lifetime_ms, made.ends_at_ms, made.principal) == (0, NOW, "User:ann")


def test_an_answer_before_the_last_names_no_lifetime() -> None:
    made = authenticator()
    shake(made, "SCRAM")
    say(made, "ann")
    shake(made, "SCRAM")
    assert say(made, "more", NOW + 100).session_lifetime_ms == 0, "of the session that is being renewed"


def test_a_renewed_session_keeps_its_mechanism() -> None:
    made = authenticator()
    shake(made, "SCRAM")
    say(made, "ann")
    assert shake(made).error_code == ErrorCode.NONE, "the first token fails, as with Kafka"
    assert failure(say, made, "ann") == ("it renews its session by another mechanism than SCRAM", None)


def test_a_renewed_session_keeps_its_principal() -> None:
    made = authenticator()
    shake(made)
    say(made, "ann")
    shake(made)
    why, response = failure(say, made, "bob")
    assert why == "its PLAIN sign-in failed"
    told = "Cannot change principals during re-authentication from Person.ann: Person.bob"
    assert response.error_message == told
    assert made.principal == "Person:ann"


def test_a_renewal_begins_a_new_session() -> None:
    made = authenticator()
    shake(made, "SCRAM")
    say(made, "ann", NOW)
    shake(made, "SCRAM")
    assert made.state is SignInState.EXCHANGING and made.principal == "Person:ann"
    assert say(made, "ann", NOW + 4_000).session_lifetime_ms == 5_000
    assert (made.ends_at_ms, made.state) == (NOW + 9_000, SignInState.DONE)


def test_only_a_session_that_ends_is_renewed_and_not_too_often() -> None:
    made = authenticator()
    shake(made)
    say(made, "ann")
    assert not made.may_renew(NOW), "it does not end"
    made = authenticator()
    shake(made, "SCRAM")
    say(made, "ann")
    pauses = [0, 1, RENEWAL_MS_MIN - 1, RENEWAL_MS_MIN, RENEWAL_MS_MIN + 1, 2 * RENEWAL_MS_MIN]
    assert [made.may_renew(NOW + pause) for pause in pauses] == [True, False, False, True, False, True]


def test_a_login_with_a_delegation_token_is_known() -> None:
    made = authenticator()
    shake(made, "TOKEN")
    say(made, "ann")
    assert made.by_token
