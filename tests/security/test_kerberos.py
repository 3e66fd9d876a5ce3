"""Users' names of Kerberos principals, the bounds of a sign-in, and what is said where the library is missing.

Sign-ins with a KDC: tests/interop/oracle/test_kerberos.py.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.kernel.client_error import AuthenticationFailed, NotReachable
from ottla.kernel.error import OttlaError
from ottla.security.gss import ROUNDS_MAX, verify_gssapi
from ottla.security.kerberos import Acceptor, Initiator
from ottla.security.principal_mapping import NoUser, PrincipalToLocal
from ottla.security.verify import SignInRefused


@pytest.mark.parametrize(
    ("rules", "principal", "user"),
    [
        (["DEFAULT"], "ann@HOME", "ann"),
        (["DEFAULT"], "kafka/host@HOME", "kafka"),
        (["DEFAULT"], "ann", "ann"),
        (["DEFAULT"], "ann@AWAY", None),
        (["RULE:[1:$1](ann)s/n/N/"], "ann@AWAY", "aNn"),
        (["RULE:[1:$1](ann)s/n/N/g"], "ann@AWAY", "aNN"),
        (["RULE:[1:$1]/U"], "ann@AWAY", "ANN"),
        (["RULE:[1:$1]s/A(.*)/b$1/L"], "ANN@AWAY", "bnn"),
        (["RULE:[2:$1-$2-$0]"], "kafka/host@AWAY", "kafka-host-AWAY"),
        (["RULE:[2:$1-$2]"], "ann@AWAY", None),
        (["RULE:[1:$1@$0](.*@AWAY)s/@.*//", "DEFAULT"], "ann@AWAY", "ann"),
        (["RULE:[1:$1@$0](.*@AWA)s/@.*//", "DEFAULT"], "ann@AWAY", None),
        (["RULE:[1:$1@$0]", "DEFAULT"], "ann@HOME", None),
        (["DEFAULT"], "a/b/c@HOME", None),
        (["DEFAULT"], "ann@HOME@HOME", None),
        (["RULE:[1:$1](a.*)s/(a+)+b/x/"], "a" * 60 + "@AWAY", "a" * 60),
        (["RULE:[1:$1](.*)s/a/${nothing}/"], "ann@AWAY", None),
    ],
)
def test_rules_give_the_user_s_name(rules: list[str], principal: str, user: str | None) -> None:
    mapping = PrincipalToLocal(rules, "HOME")
    if user is not None:
        assert mapping.user(principal) == user
    else:
        with pytest.raises(NoUser):
            mapping.user(principal)


@pytest.mark.parametrize(
    "rule", ["", "RULE", "DEFAULT ", "RULE:[:$1]", "RULE:[1:$2]", "RULE:[1:$]", "RULE:[1:$1](()", "RULE:[1:$1]s/a/b"]
)
def test_a_rule_that_cannot_be_read_stops_the_start(rule: str) -> None:
    with pytest.raises(OttlaError, match=r"sasl\.kerberos\.principal\.to\.local\.rules: .* cannot be read"):
        PrincipalToLocal(["DEFAULT", rule], "HOME")


class Endless:
    """A context that always wants one token more."""

    complete = False
    peer = ""
    steps = 0

    def step(self, token: bytes | None) -> bytes:
        self.steps += 1
        return b"more"

    def wrap(self, message: bytes) -> bytes:
        return message

    unwrap = wrap


def test_a_client_has_so_many_tokens() -> None:
    context = Endless()
    exchange = verify_gssapi(lambda: context, str)
    next(exchange)
    for _ in range(ROUNDS_MAX):
        assert exchange.send(b"token") == b"more"
    with pytest.raises(SignInRefused) as refused:
        exchange.send(b"token")
    assert refused.value.told is None
    assert context.steps == ROUNDS_MAX


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(OttlaError, match=r"pip install 'ottla\[kerberos\]'") as error:
        Initiator("kafka", None)
    assert "\n" not in str(error.value)


class _Error(Exception):
    min_code, maj_code = 1, 2

    def get_all_statuses(self, code: int, major: bool) -> list[bytes]:
        return [str(self.args[0]).encode()]


class _Library:
    """python-gssapi as far as a client's credentials need it; notes what it is asked for."""

    def __init__(self) -> None:
        self.exceptions = SimpleNamespace(GSSError=_Error)
        self.NameType = SimpleNamespace(kerberos_principal="principal", hostbased_service="service")
        self.MechType = SimpleNamespace(kerberos="kerberos")
        self.RequirementFlag = SimpleNamespace(mutual_authentication=1, integrity=2)
        self.credentials: list[dict[str, Any]] = []
        #: The principals of the keytab.
        self.keys = {"ann@HOME"}
        #: What the KDC says instead of a ticket.
        self.refusal: str | None = None

    def Name(self, text: str, kind: str) -> tuple[str, str]:
        return kind, text

    def Credentials(self, **given: Any) -> Any:
        if given["usage"] == "accept" and given["name"] is not None and given["name"][1] not in self.keys:
            raise _Error("no key of it")
        self.credentials.append(given)
        return given

    def SecurityContext(self, **given: Any) -> Any:
        if self.refusal is not None:
            raise _Error(self.refusal)
        return SimpleNamespace(given=given, step=lambda token: b"first" if token is None else None)


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> _Library:
    found = _Library()
    monkeypatch.setitem(sys.modules, "gssapi", found)
    return found


def _line(options: str) -> str:
    return f"com.sun.security.auth.module.Krb5LoginModule required {options};"


def _store(library: _Library, initiator: Initiator) -> Any:
    """Where the tickets of a sign-in come from."""
    assert initiator.begin("host")[1] == b"first"
    asked = library.credentials[-1]
    assert (asked["usage"], asked["mechs"]) == ("initiate", ["kerberos"])
    return asked["name"], asked["store"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("", "has neither useKeyTab=true nor useTicketCache=true"),
        ("useKeyTab=false useTicketCache=false", "has neither useKeyTab=true nor useTicketCache=true"),
        ('ticketCache="/tmp/tickets"', "has neither useKeyTab=true nor useTicketCache=true"),
        ("useKeyTab=true", "names a keytab and no principal"),
        ('useKeyTab=true principal="bob@HOME"', "the keytab cannot be used for bob@HOME: no key of it"),
        ('useKeyTab=true keyTab="/no/keytab" principal="ann@HOME"', "/no/keytab cannot be read: No such file"),
        ('useTicketCache=true serviceName="other"', "sasl.kerberos.service.name=kafka and serviceName=other"),
    ],
)
def test_settings_that_lead_to_no_ticket_are_refused_before_a_sign_in(
    library: _Library, options: str, words: str
) -> None:
    with pytest.raises(OttlaError) as error:
        Initiator("kafka", _line(options))
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_a_missing_service_name_is_named(library: _Library) -> None:
    with pytest.raises(OttlaError, match=r"sasl\.kerberos\.service\.name"):
        Initiator(None, _line("useTicketCache=true"))
    initiator = Initiator(None, _line('useTicketCache=true serviceName="kafka"'))
    assert _store(library, initiator) == (None, None)


def test_tickets_come_from_where_the_settings_say(library: _Library, tmp_path: Path) -> None:
    keytab = tmp_path / "keys"
    keytab.touch()
    assert _store(library, Initiator("kafka", None)) == (None, None)
    assert _store(library, Initiator("kafka", _line("useTicketCache=true"))) == (None, None)
    cached = Initiator("kafka", _line('useTicketCache=true ticketCache="/tmp/tickets"'))
    assert _store(library, cached) == (None, {"ccache": "/tmp/tickets"})
    name = ("principal", "ann@HOME")
    line = Initiator("kafka", _line(f'useKeyTab=true keyTab="{keytab}" principal="ann@HOME"'))
    found = _store(library, line)
    assert (found[0], found[1]["client_keytab"]) == (name, f"FILE:{keytab}")
    # librdkafka's settings name the same key: both clients share its tickets, and not another's.
    settings = Initiator("kafka", None, str(keytab), "ann@HOME")
    assert _store(library, settings) == found
    library.keys.add("bob@HOME")
    other = _store(library, Initiator("kafka", None, str(keytab), "bob@HOME"))
    assert other[1]["client_keytab"] == f"FILE:{keytab}"
    assert other[1]["ccache"] != found[1]["ccache"]
    default = _store(library, Initiator("kafka", _line('useKeyTab=true principal="ann@HOME"')))
    assert list(default[1]) == ["ccache"]


@pytest.mark.parametrize(
    ("refusal", "kind"),
    [
        ("Cannot contact any KDC for realm HOME", NotReachable),
        ("Cannot resolve network address for KDC", NotReachable),
        ("Server not found\nin the database", AuthenticationFailed),
    ],
)
def test_a_ticket_that_is_not_given_is_an_error_by_its_reason(
    library: _Library, tmp_path: Path, refusal: str, kind: type[Exception]
) -> None:
    keytab = tmp_path / "keys"
    keytab.touch()
    initiator = Initiator("kafka", None, str(keytab), "ann@HOME")
    library.refusal = refusal
    with pytest.raises(kind) as error:
        initiator.begin("host")
    assert type(error.value) is kind
    assert str(error.value).removeprefix("SASL_AUTHENTICATION_FAILED: ") == (
        f"there is no Kerberos ticket for kafka@host: {refusal.replace(chr(10), ' ')} "
        f"(with the key of ann@HOME in FILE:{keytab})"
    )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ('principal="kafka/host@HOME"', "a listener needs useKeyTab=true"),
        ("useKeyTab=true", "a listener needs useKeyTab=true"),
        ('useKeyTab=true principal="bob@HOME"', "the keytab cannot be used for bob@HOME: no key of it"),
    ],
)
def test_a_listener_without_a_usable_key_does_not_start(library: _Library, options: str, words: str) -> None:
    with pytest.raises(OttlaError, match=words):
        Acceptor("listener.name.l.gssapi.sasl.jaas.config", _line(options))


def test_a_listener_may_use_every_key_of_its_keytab(library: _Library, tmp_path: Path) -> None:
    keytab = tmp_path / "keys"
    keytab.touch()
    for principal, name in (("*", None), ("ann@HOME", ("principal", "ann@HOME"))):
        Acceptor("here", _line(f'useKeyTab=true keyTab="FILE:{keytab}" principal="{principal}"'))
        asked = library.credentials[-1]
        assert (asked["name"], asked["usage"], asked["store"]) == (name, "accept", {"keytab": f"FILE:{keytab}"})
