"""A connection that signs in: what it says of a refusal, and when it signs in again."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Generator
from random import Random
from typing import cast

import pytest

from ottla.net.peer import Disconnected, OutboundOptions
from ottla.net.secured_outbound import SecuredOutbound
from ottla.security.node_login import NodeLogin
from ottla.security.scram import ScramRefused
from ottla.wire.api import ApiKey
from ottla.wire.api.list_groups import ListGroupsResponse
from ottla.wire.api.sasl_authenticate import SaslAuthenticateResponse
from ottla.wire.api.sasl_handshake import SaslHandshakeResponse
from tests.net.test_outbound import FarEnd, Told, ask

_LISTS = (ApiKey.LIST_GROUPS, 0, 4)


class Login:
    """A `NodeLogin` that signs in with two messages, or not at all."""

    user, waits, problem = "admin", False, ""

    def __init__(
        self, mechanism: str | None = "SCRAM-SHA-256", context: Callable[[], ssl.SSLContext] | None = None
    ) -> None:
        self.mechanism = mechanism
        self.context = context
        self.complaints: dict[tuple[str, int], str] = {}
        self.exchanges: list[tuple[str, str]] = []
        self.heard: list[bytes] = []
        self.distrusts = False

    def exchange(self, host: str, nonce: str) -> Generator[bytes, bytes, None]:
        self.exchanges.append((host, nonce))
        return self._messages()

    def _messages(self) -> Generator[bytes, bytes, None]:
        self.heard.append((yield b"first"))
        if self.distrusts:
            raise ScramRefused("the peer does not know the password")
        self.heard.append((yield b"second"))


def outbound(far: FarEnd, login: Login, **options: int) -> SecuredOutbound:
    return SecuredOutbound(
        far.loop,
        "127.0.0.1",
        far.port,
        client_id="me",
        rng=Random(1),
        options=OutboundOptions(**({"backoff_ms": 1, "backoff_max_ms": 4} | options)),
        login=cast(NodeLogin, login),
    )


def shake_hands(far: FarEnd) -> None:
    header, request = far.frame()
    assert (header.request_api_key, request.mechanism) == (ApiKey.SASL_HANDSHAKE, "SCRAM-SHA-256")
    assert header.request_api_version == 1
    far.answer(header, SaslHandshakeResponse(mechanisms=["SCRAM-SHA-256"]))


def token(far: FarEnd, expected: bytes, answer: SaslAuthenticateResponse) -> None:
    header, request = far.frame()
    assert (header.request_api_key, header.request_api_version) == (ApiKey.SASL_AUTHENTICATE, 2)
    assert bytes(request.auth_bytes) == expected
    far.answer(header, answer)


def let_in(far: FarEnd) -> None:
    shake_hands(far)
    token(far, b"first", SaslAuthenticateResponse(auth_bytes=b"go on"))
    token(far, b"second", SaslAuthenticateResponse(auth_bytes=b"welcome"))


def refused(far: FarEnd, told: Told) -> str:
    """The words of a request that was refused without being sent."""
    far.until(lambda: bool(told.values))
    assert isinstance(told.value, Disconnected) and not told.value.was_sent
    return str(told.value)


def answered(far: FarEnd, told: Told) -> None:
    header, _ = far.frame()
    assert header.request_api_key == ApiKey.LIST_GROUPS
    far.answer(header, ListGroupsResponse())
    far.until(lambda: bool(told.values))
    assert isinstance(told.value, ListGroupsResponse)


def test_requests_follow_the_last_message_of_the_sign_in(far: FarEnd) -> None:
    login = Login()
    near = outbound(far, login)
    told = ask(near)
    far.agree(_LISTS)
    shake_hands(far)
    token(far, b"first", SaslAuthenticateResponse(auth_bytes=b"go on"))
    assert not near.is_connected
    token(far, b"second", SaslAuthenticateResponse(auth_bytes=b"welcome"))
    answered(far, told)
    assert login.heard == [b"go on", b"welcome"]
    [(host, nonce)] = login.exchanges
    assert host == "127.0.0.1" and len(bytes.fromhex(nonce)) == 24
    near.close()


def test_two_sign_ins_have_two_nonces(far: FarEnd) -> None:
    login = Login()
    near = outbound(far, login)
    for _ in range(2):
        told = ask(near)
        far.agree(_LISTS)
        let_in(far)
        answered(far, told)
        far.drop()
        far.until(lambda: not near.is_connected)
    assert len({nonce for _, nonce in login.exchanges}) == 2
    near.close()


@pytest.mark.parametrize(
    ("offered", "words"), [(["PLAIN", "GSSAPI"], "it offers PLAIN, GSSAPI"), ([], "it offers none")]
)
def test_a_mechanism_that_is_not_offered_is_told_once_in_the_log(
    far: FarEnd, caplog: pytest.LogCaptureFixture, offered: list[str], words: str
) -> None:
    login = Login()
    near = outbound(far, login)
    for _ in range(2):
        told = ask(near)
        far.agree(_LISTS)
        header, _ = far.frame()
        far.answer(header, SaslHandshakeResponse(error_code=33, mechanisms=offered))
        said = refused(far, told)
        assert f"does not let this node in as admin: it does not take the mechanism SCRAM-SHA-256 ({words})" in said
    assert caplog.text.count("cannot be reached") == 1
    assert not login.exchanges
    near.close()


@pytest.mark.parametrize(("message", "words"), [("no such user", "no such user"), ("", "error 58"), (None, "error 58")])
def test_a_refusal_is_told_in_the_peers_words_and_a_later_sign_in_makes_up_for_it(
    far: FarEnd, caplog: pytest.LogCaptureFixture, message: str | None, words: str
) -> None:
    login = Login()
    near = outbound(far, login)

    def refuse() -> None:
        told = ask(near)
        far.agree(_LISTS)
        shake_hands(far)
        token(far, b"first", SaslAuthenticateResponse(error_code=58, error_message=message))
        assert refused(far, told).endswith(f"cannot be reached: it does not let this node in as admin: {words}")

    refuse()
    refuse()
    assert caplog.text.count("cannot be reached") == 1
    told = ask(near)
    far.agree(_LISTS)
    let_in(far)
    answered(far, told)
    assert not login.complaints
    far.drop()
    far.until(lambda: not near.is_connected)
    refuse()
    assert caplog.text.count("cannot be reached") == 2, "it is news again"
    near.close()


def test_a_peer_that_does_not_prove_itself_is_left(far: FarEnd) -> None:
    login = Login()
    login.distrusts = True
    near = outbound(far, login)
    told = ask(near)
    far.agree(_LISTS)
    shake_hands(far)
    token(far, b"first", SaslAuthenticateResponse(auth_bytes=b"go on"))
    assert "the peer does not know the password" in refused(far, told)
    assert not near.is_connected
    near.close()


def test_settings_with_which_no_sign_in_is_possible_are_told_instead(
    far: FarEnd, caplog: pytest.LogCaptureFixture
) -> None:
    login = Login()
    login.problem = "the password is missing"
    near = outbound(far, login)
    for _ in range(2):
        assert "the password is missing" in refused(far, ask(near))
    assert caplog.text.count("the password is missing") == 1
    far.accept()
    near.close()


def test_a_session_without_an_end_is_not_renewed(far: FarEnd) -> None:
    login = Login()
    near = outbound(far, login)
    for number in range(3):
        told = ask(near)
        if not number:
            far.agree(_LISTS)
            let_in(far)
        answered(far, told)
    assert len(login.exchanges) == 1
    near.close()


def test_a_renewal_waits_for_the_answers_and_holds_new_requests(far: FarEnd) -> None:
    login = Login()
    near = outbound(far, login)
    first = ask(near)
    far.agree(_LISTS)
    shake_hands(far)
    token(far, b"first", SaslAuthenticateResponse(auth_bytes=b"go on"))
    token(far, b"second", SaslAuthenticateResponse(session_lifetime_ms=300))
    signed_in_at = far.loop.time()
    header, _ = far.frame()
    far.until(lambda: far.loop.time() >= signed_in_at + 0.3)
    second = ask(near)
    for _ in range(20):
        far.loop.run_until_complete(asyncio.sleep(0))
    assert len(login.exchanges) == 1 and near.is_connected
    far.answer(header, ListGroupsResponse())
    far.until(lambda: bool(first.values))
    let_in(far)
    answered(far, second)
    assert len(login.exchanges) == 2
    third = ask(near)
    answered(far, third)
    near.close()


def test_a_renewal_that_is_not_answered_ends_the_connection(far: FarEnd) -> None:
    login = Login()
    near = outbound(far, login)
    told = ask(near)
    far.agree(_LISTS)
    shake_hands(far)
    token(far, b"first", SaslAuthenticateResponse(auth_bytes=b"go on"))
    token(far, b"second", SaslAuthenticateResponse(session_lifetime_ms=300))
    signed_in_at = far.loop.time()
    answered(far, told)
    near._options = OutboundOptions(backoff_ms=1, setup_timeout_ms=20, setup_timeout_max_ms=20)
    far.until(lambda: far.loop.time() >= signed_in_at + 0.3)
    assert "took too long" in refused(far, ask(near))
    near.close()
