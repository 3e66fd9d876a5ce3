"""Users' names of Kerberos principals, the bounds of a sign-in, and what is said where the library is missing.

Sign-ins with a KDC: tests/interop/oracle/test_kerberos.py.
"""

from __future__ import annotations

import sys

import pytest

from ottla.kernel.error import OttlaError
from ottla.security.gss import ROUNDS_MAX, verify_gssapi
from ottla.security.kerberos import Initiator
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
