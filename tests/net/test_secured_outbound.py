"""A sign-in that begins on a thread, as with a KDC: renewed on its connection, given up with it, told when it fails."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator
from random import Random
from typing import cast

import pytest

from ottla.kernel.client_error import NotReachable
from ottla.net.peer import Disconnected, OutboundOptions
from ottla.net.secured_outbound import SecuredOutbound
from ottla.security.node_login import NodeLogin
from ottla.wire.api import ApiKey
from ottla.wire.api.list_groups import ListGroupsResponse
from ottla.wire.api.sasl_authenticate import SaslAuthenticateResponse
from ottla.wire.api.sasl_handshake import SaslHandshakeResponse
from tests.net.test_outbound import FarEnd, Told, ask

_SESSION_MS = 50
#: of the loop, in which a thread's result is seen
_TURNS = 1000


class Login:
    """A `NodeLogin` whose KDC answers when the test says so."""

    mechanism, user, problem, context, waits = "GSSAPI", "kafka", "", None, True

    def __init__(self) -> None:
        self.complaints: dict[tuple[str, int], str] = {}
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.asked: list[threading.Thread] = []
        self.given = 0
        self.error: Exception | None = None

    def exchange(self, host: str, nonce: str) -> Generator[bytes, bytes, None]:
        self.asked.append(threading.current_thread())
        assert self.may_go_on.wait(60)
        if self.error is not None:
            raise self.error
        self.given += 1
        return self._messages(host)

    def _messages(self, host: str) -> Generator[bytes, bytes, None]:
        yield f"ticket for {host}".encode()


def outbound(far: FarEnd, login: Login) -> SecuredOutbound:
    options = OutboundOptions(backoff_ms=1, backoff_max_ms=4)
    return SecuredOutbound(
        far.loop,
        "127.0.0.1",
        far.port,
        client_id="me",
        rng=Random(1),
        options=options,
        login=cast(NodeLogin, login),
    )


def take_handshake(far: FarEnd) -> None:
    header, request = far.frame()
    assert (header.request_api_key, request.mechanism) == (ApiKey.SASL_HANDSHAKE, "GSSAPI")
    far.answer(header, SaslHandshakeResponse(mechanisms=["GSSAPI"]))


def let_in(far: FarEnd) -> None:
    take_handshake(far)
    header, request = far.frame()
    assert bytes(request.auth_bytes) == b"ticket for 127.0.0.1"
    far.answer(header, SaslAuthenticateResponse(session_lifetime_ms=_SESSION_MS))


def answered(far: FarEnd, told: Told) -> None:
    header, _ = far.frame()
    assert header.request_api_key == ApiKey.LIST_GROUPS
    far.answer(header, ListGroupsResponse())
    far.until(lambda: bool(told.values))


def test_a_session_is_renewed_on_its_connection(far: FarEnd) -> None:
    login = Login()
    near = outbound(far, login)
    told = ask(near)
    far.agree()
    let_in(far)
    answered(far, told)
    ends_at = far.loop.time() + _SESSION_MS / 1000
    far.until(lambda: far.loop.time() >= ends_at)
    told = ask(near)
    let_in(far)
    answered(far, told)
    assert len(login.asked) == 2
    assert threading.main_thread() not in login.asked
    near.close()


def test_a_ticket_that_comes_too_late_is_shown_to_nobody(far: FarEnd) -> None:
    login = Login()
    login.may_go_on.clear()
    near = outbound(far, login)
    told = ask(near)
    far.agree()
    take_handshake(far)
    far.until(lambda: bool(login.asked))
    far.drop()
    far.until(lambda: bool(told.values))
    assert isinstance(told.value, Disconnected)
    told = ask(near)
    far.agree()
    # The first ticket comes while the second connection waits for the answer to its handshake.
    login.may_go_on.set()
    far.until(lambda: bool(login.given))
    for _ in range(_TURNS):
        far.loop.run_until_complete(asyncio.sleep(0))
    let_in(far)
    answered(far, told)
    near.close()


def test_no_ticket_is_told_and_tried_again(far: FarEnd, caplog: pytest.LogCaptureFixture) -> None:
    login = Login()
    login.error = NotReachable("there is no Kerberos ticket: no KDC")
    near = outbound(far, login)
    for _ in range(2):
        told = ask(near)
        far.agree()
        take_handshake(far)
        far.until(lambda told=told: bool(told.values))  # type: ignore[misc]
        assert "there is no Kerberos ticket: no KDC" in str(told.value)
    assert caplog.text.count("no KDC") == 1
    login.error = None
    told = ask(near)
    far.agree()
    let_in(far)
    answered(far, told)
    near.close()
