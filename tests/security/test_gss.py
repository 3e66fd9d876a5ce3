"""Both halves of SASL/GSSAPI over played security contexts: what is agreed, and each way in which it is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.security.gss import ROUNDS_MAX, Context, GssFailed, sign_in_gssapi, verify_gssapi
from ottla.security.principal_mapping import NoUser
from ottla.security.verify import SignInRefused, Verified

NO_LAYER, INTEGRITY = 1, 2
#: What Java's server offers: no layer, messages of up to 64 KiB.
OFFER = bytes([NO_LAYER, 1, 0, 0])


class Played:
    """A side that is complete after so many tokens; the last of them is answered by `last`."""

    def __init__(self, tokens: int = 1, last: bytes = b"done", fails: str = "") -> None:
        self.peer = "ann@HOME"
        self.got: list[bytes | None] = []
        self._left, self._last, self._fails = tokens, last, fails

    @property
    def complete(self) -> bool:
        return self._left <= 0

    def step(self, token: bytes | None) -> bytes:
        self._may_fail("step")
        self.got.append(token)
        self._left -= 1
        return self._last if self.complete else b"token %d" % len(self.got)

    def wrap(self, message: bytes) -> bytes:
        self._may_fail("wrap")
        return b"<" + message + b">"

    def unwrap(self, message: bytes) -> bytes:
        self._may_fail("unwrap")
        assert message[:1] == b"<" and message[-1:] == b">"
        return message[1:-1]

    def _may_fail(self, what: str) -> None:
        if what == self._fails:
            raise GssFailed(f"{what} failed")


def user(principal: str) -> str:
    return principal.partition("@")[0]


def verified(context: Context, *messages: bytes, user: Callable[[str], str] = user) -> tuple[list[bytes], Verified]:
    """What the server says to these messages of a client, and how it ends."""
    exchange = verify_gssapi(lambda: context, user)
    assert next(exchange) == b"", "the client speaks first"
    said: list[bytes] = []
    for message in messages:
        try:
            answer = exchange.send(message)
        except StopIteration as end:
            return said, end.value
        said.append(answer)
    raise AssertionError(f"the server waits for more after {said}")


CHOICE = bytes([NO_LAYER, 0, 0, 0])


@pytest.mark.parametrize("tokens", range(1, ROUNDS_MAX + 1))
def test_a_server_offers_no_layer_once_its_context_is_complete(tokens: int) -> None:
    context = Played(tokens)
    given = [b"from the client %d" % number for number in range(tokens)]
    said, outcome = verified(context, *given, b"", b"<" + CHOICE + b">")
    assert context.got == given
    assert said == [b"token %d" % number for number in range(1, tokens)] + [b"done", b"<" + OFFER + b">"]
    assert outcome == Verified("ann", b"")


def test_a_context_that_ends_without_a_token_is_followed_by_the_offer_at_once() -> None:
    said, outcome = verified(Played(last=b""), b"token", b"<" + CHOICE + b"the id of a user, which nobody reads>")
    assert (said, outcome.user) == ([b"<" + OFFER + b">"], "ann")


@pytest.mark.parametrize(
    ("context", "messages", "why"),
    [
        (Played(), (b"token", b"another"), "it sends a token after its context is complete"),
        (Played(), (b"token", b"", b"<" + bytes([INTEGRITY, 0, 0, 0]) + b">"), "it wants a security layer"),
        (Played(), (b"token", b"", b"<" + bytes([NO_LAYER | INTEGRITY, 0, 0, 0]) + b">"), "it wants a security layer"),
        (Played(), (b"token", b"", b"<" + CHOICE[:3] + b">"), "it wants a security layer"),
        (Played(), (b"token", b"", b"<>"), "it wants a security layer"),
        (Played(fails="step"), (b"token",), "step failed"),
        (Played(fails="wrap"), (b"token", b""), "wrap failed"),
        (Played(fails="unwrap"), (b"token", b"", b"<" + CHOICE + b">"), "unwrap failed"),
    ],
)
def test_a_client_that_keeps_to_no_rule_is_refused_with_the_reason(
    context: Context, messages: tuple[bytes, ...], why: str
) -> None:
    with pytest.raises(SignInRefused) as refused:
        verified(context, *messages)
    assert why in str(refused.value.why) and refused.value.told is None


def test_a_principal_without_a_name_is_refused_and_named_as_far_as_it_is_bearable() -> None:
    def nobody(principal: str) -> str:
        raise NoUser("no rule fits")

    context = Played(last=b"")
    context.peer = "a" * 300
    with pytest.raises(SignInRefused) as refused:
        verified(context, b"token", b"<" + CHOICE + b">", user=nobody)
    assert refused.value.why == f"{'a' * 200!r} has no user's name: no rule fits"


def test_a_listener_without_a_context_refuses() -> None:
    def accept() -> Context:
        raise GssFailed("the keytab is gone")

    exchange = verify_gssapi(accept, user)
    assert next(exchange) == b"", "nothing is asked of the library before there is a token"
    with pytest.raises(SignInRefused) as refused:
        exchange.send(b"token")
    assert refused.value.why == "the keytab is gone"


# ---- the client's half


def asked(context: Context, *challenges: bytes) -> list[bytes]:
    """What a client says to these challenges, all of them."""
    exchange = sign_in_gssapi(context, b"first")
    said = [next(exchange), *map(exchange.send, challenges)]
    assert len(said) == 1 + len(challenges)
    with pytest.raises(StopIteration):
        exchange.send(b"")
    return said


@pytest.mark.parametrize("tokens", range(ROUNDS_MAX))
@pytest.mark.parametrize("layers", [NO_LAYER, NO_LAYER | INTEGRITY])
def test_a_client_takes_no_layer_of_those_that_are_offered(tokens: int, layers: int) -> None:
    context = Played(tokens, last=b"")
    given = [b"challenge %d" % number for number in range(tokens)]
    said = asked(context, *given, b"<" + bytes([layers]) + OFFER[1:] + b">")
    answers = [b"token %d" % number for number in range(1, tokens)] + [b""] * (tokens > 0)
    assert said == [b"first", *answers, b"<" + CHOICE + b">"]
    assert context.got == given


@pytest.mark.parametrize(
    ("context", "challenges", "why"),
    [
        (Played(ROUNDS_MAX + 1), [b"more"] * ROUNDS_MAX, "not complete after so many tokens"),
        (Played(0), [b"<" + bytes([INTEGRITY]) + OFFER[1:] + b">"], "the broker wants a security layer"),
        (Played(0), [b"<" + OFFER + b"x>"], "the broker wants a security layer"),
        (Played(0), [b"<" + OFFER[:3] + b">"], "the broker wants a security layer"),
        (Played(0), [b"<>"], "the broker wants a security layer"),
        (Played(fails="step"), [b"challenge"], "step failed"),
        (Played(0, fails="unwrap"), [b"<" + OFFER + b">"], "unwrap failed"),
        (Played(0, fails="wrap"), [b"<" + OFFER + b">"], "wrap failed"),
    ],
)
def test_a_client_gives_up_with_the_reason(context: Context, challenges: list[bytes], why: str) -> None:
    with pytest.raises(GssFailed, match=why):
        asked(context, *challenges)


@pytest.mark.parametrize("tokens", [1, 2])
def test_the_halves_understand_each_other(tokens: int) -> None:
    """The last token of the server comes with or without a token of its own: SASL has one answer to each message."""
    client, server = Played(tokens, last=b""), Played(tokens)
    asks, answers = sign_in_gssapi(client, b"first"), verify_gssapi(lambda: server, user)
    next(answers)
    message = next(asks)
    for _ in range(tokens + 1):
        message = asks.send(answers.send(message))
    with pytest.raises(StopIteration) as end:
        answers.send(message)
    assert end.value.value.user == "ann"
