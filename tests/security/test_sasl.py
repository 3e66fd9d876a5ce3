"""How a client signs in by a ticket, and where its settings go; the other mechanisms: tests/client/test_security.py."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from ottla.kernel.client_error import NotReachable
from ottla.kernel.error import OttlaError
from ottla.security.sasl import SignIn, bearer
from ottla.security.scram import ScramRefused
from ottla.settings.client.security import SecuritySettings


class _Tickets:
    """In the place of the Kerberos library."""

    made: list[tuple[Any, ...]]
    threads: list[int]
    fails: Exception | None

    def __init__(self, *given: Any) -> None:
        _Tickets.made.append(given)

    def begin(self, host: str) -> tuple[object, bytes]:
        _Tickets.threads.append(threading.get_ident())
        if _Tickets.fails is not None:
            raise _Tickets.fails
        return object(), f"ticket for {host}".encode()


@pytest.fixture
def tickets(monkeypatch: pytest.MonkeyPatch) -> type[_Tickets]:
    _Tickets.made, _Tickets.threads, _Tickets.fails = [], [], None
    monkeypatch.setattr("ottla.security.kerberos.Initiator", _Tickets)
    return _Tickets


def _settings(**given: Any) -> SecuritySettings:
    return SecuritySettings.read(
        {"security.protocol": "SASL_PLAINTEXT"} | {name.replace("_", "."): value for name, value in given.items()}, {}
    )


def test_a_client_s_tickets_come_from_what_its_settings_say(tickets: type[_Tickets]) -> None:
    line = "com.sun.security.auth.module.Krb5LoginModule required useTicketCache=true;"
    SignIn(_settings(sasl_mechanism="GSSAPI", sasl_kerberos_service_name="kafka", sasl_jaas_config=line))
    SignIn(
        _settings(
            sasl_mechanism="GSSAPI",
            sasl_kerberos_service_name="broker",
            sasl_kerberos_keytab="/k",
            sasl_kerberos_principal="ann@HOME",
        )
    )
    assert tickets.made == [("kafka", line, None, None), ("broker", None, "/k", "ann@HOME")]
    SignIn(_settings(sasl_mechanism="PLAIN", sasl_username="u", sasl_password="p"))
    assert len(tickets.made) == 2


def test_a_ticket_is_asked_for_beside_the_loop_at_every_sign_in(tickets: type[_Tickets]) -> None:
    made = SignIn(_settings(sasl_mechanism="GSSAPI", sasl_kerberos_service_name="kafka"))

    async def begin() -> list[bytes]:
        return [next(await made.exchange(host)) for host in ("one", "two")]

    assert asyncio.run(begin()) == [b"ticket for one", b"ticket for two"]
    assert threading.get_ident() not in tickets.threads
    tickets.fails = NotReachable("no KDC")
    with pytest.raises(NotReachable, match="no KDC"):
        asyncio.run(begin())


def test_a_token_function_gives_a_token_or_a_token_and_its_end() -> None:
    def shown(given: Any) -> bytes:
        async def begin() -> bytes:
            made = SignIn(_settings(sasl_mechanism="OAUTHBEARER", sasl_oauthbearer_token=given))
            return next(await made.exchange("host"))

        return asyncio.run(begin())

    async def later() -> tuple[str, float]:
        return "later", 0.0

    for given, token in (
        ("text", b"text"),
        (lambda: "made", b"made"),
        (lambda: ("both", 9e9), b"both"),
        (later, b"later"),
        (lambda: later(), b"later"),
    ):
        assert shown(given) == b"n,,\x01auth=Bearer " + token + b"\x01\x01"
    for wrong, word in ((lambda: b"bytes", "bytes"), (lambda: (None, 1.0), "NoneType")):
        with pytest.raises(OttlaError, match=rf"gave {word}: it gives the token, or \(token, end\)"):
            shown(wrong)


@pytest.mark.parametrize(
    ("life_s", "after_s", "asked"),
    [(100, 79.9, 1), (100, 80.0, 2), (None, 0.0, 2), (-5, 0.0, 2)],
)
def test_a_token_is_shown_until_most_of_its_life_is_over(
    monkeypatch: pytest.MonkeyPatch, life_s: float | None, after_s: float, asked: int
) -> None:
    now_s = [1_800_000_000.0]
    monkeypatch.setattr("ottla.security.sasl.time.time", lambda: now_s[0])
    given: list[int] = []

    def token() -> object:
        given.append(0)
        return "t" if life_s is None else ("t", now_s[0] + life_s)

    async def twice() -> None:
        made = SignIn(_settings(sasl_mechanism="OAUTHBEARER", sasl_oauthbearer_token=token))
        await made.exchange("host")
        now_s[0] += after_s
        await made.exchange("host")

    asyncio.run(twice())
    assert len(given) == asked


@pytest.mark.parametrize(
    ("refusal", "words"),
    [
        (b'{"status": "expired"}', r"refuses the token \(expired\)$"),
        (b'{"other": 1}', r"refuses the token \(no reason\)$"),
        (b'{"status": {"code": 5}}', r"refuses the token \(\{'code': 5\}\)$"),
        (b"[]", "refuses the token$"),
        (b"no json", "refuses the token$"),
        (b"\xff", "refuses the token$"),
        (b"[" * 100_000, "refuses the token$"),
        (b'{"status": "' + b"x" * 9_999 + b'"}', r"refuses the token \(x{200}\)$"),
    ],
)
def test_a_refusal_of_a_token_has_its_reason_as_far_as_it_is_readable(refusal: bytes, words: str) -> None:
    exchange = bearer("t", {"a": "b"})
    assert next(exchange) == b"n,,\x01a=b\x01auth=Bearer t\x01\x01"
    assert exchange.send(refusal) == b"\x01"
    with pytest.raises(ScramRefused, match=words):
        exchange.send(b"")
    # An empty answer is the end of a sign-in that succeeded.
    exchange = bearer("t", {})
    next(exchange)
    with pytest.raises(StopIteration):
        exchange.send(b"")
