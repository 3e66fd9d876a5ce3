"""The server's half of OAUTHBEARER: messages, claims, signatures, and tokens of clients that mean no good."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.kernel.error import OttlaError
from ottla.security.bearer import Bearer, TokenRefused, verify_bearer
from ottla.security.claims import ClaimRules, UnsecuredRules
from ottla.security.key_set import KeySet, NoSuchKey
from ottla.security.sasl import bearer
from ottla.security.scram import ScramRefused
from ottla.security.verify import SignInRefused, Verified
from tests.security.token_scene import AUDIENCE, ISSUER, Provider, made_claims, part, unsecured

NOW_S = 1_800_000_000
NOW_MS = NOW_S * 1000
RULES = ClaimRules((AUDIENCE,), ISSUER, 30, "scope", "sub")
PROVIDER = Provider()
KEYS = KeySet.parse(PROVIDER.key_set())


def claims(**more: Any) -> bytes:
    return json.dumps(made_claims(iat=NOW_S, exp=NOW_S + 60) | more).encode()


def refusal(act: Callable[[], object]) -> str:
    with pytest.raises(TokenRefused) as error:
        act()
    return str(error.value)


# ---- the exchange


def exchange(message: bytes, check: Callable[[str], Bearer], *more: bytes) -> Any:
    """What the server says last."""
    server = verify_bearer(check, lambda: NOW_MS)
    said = next(server)
    try:
        for each in (message, *more):
            said = server.send(each)
    except StopIteration as done:
        return done.value
    return said


def lets_in(token: str) -> Bearer:
    return Bearer("ann", NOW_MS + 60_000)


def refuses(token: str) -> Bearer:
    raise TokenRefused("it is not liked")


def test_a_token_lets_in_until_it_ends() -> None:
    message = next(bearer("a.b.c", {"group": "blue", "more": "x y"}))
    assert exchange(message, lets_in) == Verified("ann", b"", 60_000)
    assert exchange(b"n,a=ann,\x01auth=bEARER   a.b.c=\x01\x01", lets_in).user == "ann"


def test_a_refused_token_is_told_as_kafka_does_and_then_the_sign_in_ends() -> None:
    message = next(bearer("a.b.c", {}))
    assert exchange(message, refuses) == b'{"status":"invalid_token"}'
    with pytest.raises(SignInRefused) as error:
        exchange(message, refuses, b"\x01")
    assert error.value.told == '{"status":"invalid_token"}'
    # One message is one token.
    with pytest.raises(SignInRefused) as error:
        exchange(message, refuses, message)
    assert error.value.told is None


def test_a_token_that_the_clocks_let_in_late_has_no_time_left() -> None:
    found = exchange(next(bearer("a", {})), lambda token: Bearer("ann", NOW_MS - 7))
    assert found == Verified("ann", b"", -7)


def test_another_authorization_id_is_refused() -> None:
    with pytest.raises(SignInRefused, match=r"authorization id \(bob\) that is different from the token's principal"):
        exchange(b"n,a=bob,\x01auth=Bearer a.b.c\x01\x01", lets_in)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer a.b.c\x01",
        b"n,,\x01auth=Basic a.b.c\x01\x01",
        b"n,,\x01auth=Bearer a b\x01\x01",
        b"n,,\x01auth=Bearer\x01\x01",
        b"n,,\x01group=x\x01\x01",
        b"n,,\x011=x\x01auth=Bearer a.b.c\x01\x01",
        b"y,,\x01auth=Bearer a.b.c\x01\x01",
        b"n,,\x01auth=Bearer \xff\x01\x01",
        b"n,a=,\x01auth=Bearer a.b.c\x01\x01",
    ],
)
def test_what_is_no_message_is_refused_without_words(message: bytes) -> None:
    with pytest.raises(SignInRefused) as error:
        exchange(message, lets_in)
    assert error.value.told is None


@given(st.binary(max_size=300))
def test_bytes_never_do_more_than_be_refused(data: bytes) -> None:
    with pytest.raises(SignInRefused):
        exchange(b"n,,\x01auth=" + data, lets_in)


def test_a_token_that_never_ends_is_refused() -> None:
    said = exchange(next(bearer("a", {})), lambda token: Bearer("ann", NOW_MS + (1 << 62)))
    assert said == b'{"status":"invalid_token"}'


# ---- claims


def test_claims_that_are_right() -> None:
    assert RULES.check(claims(), NOW_MS) == Bearer("ann", (NOW_S + 60) * 1000)
    assert RULES.check(claims(aud=["x", AUDIENCE], scope=["a", "b"], sub=" ann\t"), NOW_MS).user == "ann"
    assert RULES.check(claims(exp=NOW_S + 60.9, nbf=NOW_S + 30), NOW_MS).ends_at_ms == (NOW_S + 60) * 1000
    # A token of no time at all, which the difference of the clocks lets in.
    for more in ({"iat": NOW_S}, {"iat": NOW_S, "nbf": NOW_S}, {"iat": 0}):
        assert RULES.check(claims(exp=NOW_S, **more), NOW_MS).user == "ann"
    # The clocks may differ by 30 seconds.
    assert RULES.check(claims(), NOW_MS + 89_999).user == "ann"
    assert refusal(lambda: RULES.check(claims(), NOW_MS + 90_000)) == "it has ended (claim exp)"


def test_the_user_and_the_scope_are_in_other_claims_if_settings_say_so() -> None:
    rules = ClaimRules((), None, 0, "scp", "client_id")
    assert rules.check(claims(aud=None, client_id="orders", scp="x"), NOW_MS).user == "orders"
    assert "client_id names no user" in refusal(lambda: rules.check(claims(aud=None), NOW_MS))
    # A token for an audience is not for a node that expects none.
    assert "aud" in refusal(lambda: rules.check(claims(client_id="orders"), NOW_MS))


BAD_CLAIMS: dict[str, dict[str, Any]] = {
    "no end": {"exp": None},
    "no beginning": {"iat": None},
    "an end that is a text": {"exp": str(NOW_S + 60)},
    "an end that is true": {"exp": True},
    "an end below nothing": {"exp": -1},
    "a beginning below nothing": {"iat": -1},
    "an end before it holds": {"exp": NOW_S + 5, "nbf": NOW_S + 6},
    "an end that no one lives to see": {"exp": 10**30},
    "an end of many digits": {"exp": 10**4000},
    "an infinite end": {"exp": 1e300},
    "a beginning that is a list": {"iat": []},
    "an end before the beginning": {"exp": NOW_S + 5, "iat": NOW_S + 10},
    "not yet": {"nbf": NOW_S + 31},
    "another issuer": {"iss": "https://other.example"},
    "no issuer": {"iss": None},
    "an issuer that is a list": {"iss": [ISSUER]},
    "another audience": {"aud": "other"},
    "no audience": {"aud": None},
    "no audience at all": {"aud": []},
    "an audience of numbers": {"aud": [1, AUDIENCE]},
    "no user": {"sub": None},
    "a blank user": {"sub": "  "},
    "a user without a form in UTF-8": {"sub": "\ud800"},
    "a user that is a number": {"sub": 7},
    "an id that is a number": {"jti": 7},
    "a blank scope": {"scope": ""},
    "a scope twice": {"scope": ["a", "a "]},
    "a scope that is a number": {"scope": [1]},
}


@pytest.mark.parametrize("name", BAD_CLAIMS)
def test_claims_that_are_wrong(name: str) -> None:
    refusal(lambda: RULES.check(claims(**BAD_CLAIMS[name]), NOW_MS))


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"[]",
        b"null",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b'{"exp": NaN}',
        b'{"exp": 1e999, "iat": 1}',
        b'{"exp": ' + b"9" * 10_000 + b"}",
        b'{"sub": "ann", "sub": "bob"}',
    ],
)
def test_claims_that_cannot_be_read(payload: bytes) -> None:
    refusal(lambda: RULES.check(payload, NOW_MS))


# ---- signatures


@pytest.mark.parametrize(("key", "algorithm"), [("rsa", "RS256"), ("rsa", "PS512"), ("ec", "ES256"), ("ed", "EdDSA")])
def test_a_key_checks_what_it_signed_and_nothing_else(key: str, algorithm: str) -> None:
    token = PROVIDER.token(key, algorithm)
    assert json.loads(KEYS.payload(token))["sub"] == "ann"
    head, said, signature = token.split(".")
    other = part(made_claims(sub="admin"))
    assert refusal(lambda: KEYS.payload(f"{head}.{other}.{signature}")) == "its signature is wrong"
    flipped = ("A" if signature[5] != "A" else "B").join((signature[:5], signature[6:]))
    assert refusal(lambda: KEYS.payload(f"{head}.{said}.{flipped}")) == "its signature is wrong"


def test_a_key_that_is_not_in_the_set_is_told_apart() -> None:
    with pytest.raises(NoSuchKey):
        KEYS.payload(PROVIDER.token("new"))
    with pytest.raises(NoSuchKey):
        KEYS.payload(PROVIDER.token("rsa", "RS256", {"kid": "ec"}))
    assert refusal(lambda: KEYS.payload(PROVIDER.token("new", header={"kid": "rsa"}))) == "its signature is wrong"


def test_a_token_without_a_key_id_is_checked_by_the_first_key_of_its_kind() -> None:
    assert KEYS.payload(PROVIDER.token("ec", "ES256", {"kid": None}))
    two = KeySet.parse(PROVIDER.key_set("rsa", "new"))
    assert two.payload(PROVIDER.token("rsa", "RS256", {"kid": None}))
    refusal(lambda: two.payload(PROVIDER.token("new", "RS256", {"kid": None})))


def test_the_algorithm_of_a_key_decides_among_several_and_never_against_the_only_one() -> None:
    """As jose4j's selector, which Kafka uses."""
    token = PROVIDER.token("rsa", "RS256")
    assert KeySet.parse(PROVIDER.key_set("rsa", alg="RS512")).payload(token)

    def listed(**algorithms: str) -> KeySet:
        found = [json.loads(PROVIDER.key_set(key, kid="rsa", alg=alg))["keys"][0] for key, alg in algorithms.items()]
        return KeySet.parse(json.dumps({"keys": found}).encode())

    assert listed(new="RS512", rsa="RS256").payload(token)
    assert refusal(lambda: listed(new="RS256", rsa="RS512").payload(token)) == "its signature is wrong"
    with pytest.raises(NoSuchKey):
        listed(new="RS512", rsa="RS512").payload(token)


@pytest.mark.parametrize(("algorithm", "known"), [("ES256", True), ("ES384", False), ("ES512", False)])
def test_a_key_on_another_curve_is_none_for_a_token(algorithm: str, known: bool) -> None:
    signed = f"{part({'alg': algorithm, 'kid': 'ec'})}.{part(made_claims())}.AAAA"
    with pytest.raises(TokenRefused) as refused:
        KEYS.payload(signed)
    assert isinstance(refused.value, NoSuchKey) is not known, "the provider is asked for newer keys, or not"


def test_a_token_whose_header_demands_what_is_not_known_is_refused() -> None:
    """RFC 7515, 4.1.11: PyJWT before 2.12 took such tokens."""
    demanding = PROVIDER.token(header={"crit": ["x"], "x": 1})
    assert refusal(lambda: KEYS.payload(demanding)) == "its signature is wrong"


def test_no_public_key_serves_as_a_secret() -> None:
    """The confusion of RS256 with HS256: the attacker signs with what everyone can read."""
    for secret in (PROVIDER.key_set(), json.loads(PROVIDER.key_set())["keys"][0]["n"].encode()):
        signed = f"{part({'alg': 'HS256', 'kid': 'rsa'})}.{part(made_claims())}"
        token = f"{signed}.{part(hmac.digest(secret, signed.encode(), hashlib.sha256))}"
        assert refusal(lambda token=token: KEYS.payload(token)) == "its algorithm (alg) is none that is taken"  # type: ignore[misc]


@pytest.mark.parametrize(
    "head",
    [
        {"alg": "none"},
        {"alg": "None"},
        {"alg": ""},
        {"alg": ["RS256"]},
        {"alg": None},
        {},
        {"alg": "RS256", "kid": 7},
        {"alg": "RS256", "kid": "rsa", "crit": ["b64"], "b64": False},
        {"alg": "RS256", "kid": "rsa", "crit": ["exp"]},
        [],
        b"[" * 50_000,
        b'{"alg":"none","alg":"RS256"}',
    ],
)
def test_a_header_that_is_not_taken(head: Any) -> None:
    for signature in ("AAAA", "", "AAAA.AAAA"):
        refusal(lambda signature=signature: KEYS.payload(f"{part(head)}.{part(made_claims())}.{signature}"))  # type: ignore[misc]


def test_the_key_that_a_token_brings_with_it_is_not_looked_at() -> None:
    own = json.loads(PROVIDER.key_set("new"))["keys"][0]
    token = PROVIDER.token("new", header={"jwk": own, "jku": "https://evil.example", "kid": "rsa"})
    assert refusal(lambda: KEYS.payload(token)) == "its signature is wrong"


def test_keys_that_check_nothing_are_left_out() -> None:
    secret = {"kty": "oct", "k": part(b"x" * 32), "kid": "secret"}
    strange: list[Any] = [
        7,
        {},
        {"kty": []},
        {"kty": "RSA"},
        {"kty": "RSA", "n": "!", "e": "AQAB"},
        {"kty": "EC", "crv": "X"},
    ]
    listed = [secret, *strange, *json.loads(PROVIDER.key_set("weak", "rsa"))["keys"]]
    assert len(KeySet.parse(json.dumps({"keys": listed}).encode())) == 1
    for data in (
        PROVIDER.key_set("weak"),
        PROVIDER.key_set("rsa", use="enc"),
        PROVIDER.key_set("rsa", key_ops=["sign"]),
    ):
        with pytest.raises(OttlaError, match="no key that checks signatures"):
            KeySet.parse(data)
    for data in (b"", b"{}", b"[]", b'{"keys": 7}', b"[" * 100_000):
        with pytest.raises(OttlaError, match="no JSON Web Key Set"):
            KeySet.parse(data)


@given(st.text(alphabet="abcdeyJ0XAi.-_=+/~", max_size=200))
def test_texts_never_do_more_than_be_refused(text: str) -> None:
    refusal(lambda: KEYS.payload(text))
    refusal(lambda: UnsecuredRules.of({}).check(text, NOW_MS))


# ---- tokens that nobody signed


def test_an_unsecured_token_is_checked_by_the_options_of_the_line() -> None:
    rules = UnsecuredRules.of({})
    token = unsecured(iat=NOW_S, exp=NOW_S + 60.5)
    assert rules.check(token, NOW_MS) == Bearer("ann", NOW_MS + 60_500)
    refusal(lambda: rules.check(token, NOW_MS + 60_500))
    refusal(lambda: rules.check(token, NOW_MS - 1))
    patient = UnsecuredRules.of({"unsecuredValidatorAllowableClockSkewMs": "10"})
    assert patient.check(token, NOW_MS + 60_509).user == patient.check(token, NOW_MS - 10).user == "ann"
    # A token of no time at all, which the patience of the clocks would let in.
    refusal(lambda: patient.check(unsecured(iat=NOW_S, exp=NOW_S), NOW_MS + 5))
    scoped = UnsecuredRules.of(
        {"unsecuredValidatorRequiredScope": "a b", "unsecuredValidatorPrincipalClaimName": "who"}
    )
    assert scoped.check(unsecured(iat=NOW_S, exp=NOW_S + 60, who="bob", scope=["b", "a"]), NOW_MS).user == "bob"
    with pytest.raises(TokenRefused) as error:
        scoped.check(unsecured(iat=NOW_S, exp=NOW_S + 60, who="bob", scope="a"), NOW_MS)
    assert error.value.answer() == '{"status":"insufficient_scope", "scope":"[a, b]"}'
    blank = unsecured(iat=NOW_S, exp=NOW_S + 60, who="bob", scope=[" a", "b\t", "", "c"])
    assert scoped.check(blank, NOW_MS).user == "bob"
    UnsecuredRules.of({"unsecuredValidatorAllowableClockSkewMs": str((1 << 31) - 1)})
    for wrong in ("-1", "x", "1" * 30, str(1 << 31)):
        with pytest.raises(OttlaError, match="AllowableClockSkewMs"):
            UnsecuredRules.of({"unsecuredValidatorAllowableClockSkewMs": wrong})


@pytest.mark.parametrize(
    "token",
    [
        PROVIDER.token(iat=NOW_S, exp=NOW_S + 60),
        unsecured(iat=NOW_S, exp=NOW_S + 60) + "AAAA",
        unsecured(iat=NOW_S, exp=NOW_S + 60)[:-1],
        unsecured(iat=NOW_S, exp=NOW_S + 60, sub=None),
        unsecured(iat=NOW_S, exp=NOW_S + 60, sub=" "),
        unsecured(iat=NOW_S, exp=NOW_S + 60, sub="\ud800"),
        unsecured(iat=NOW_S, exp="x"),
        f".{part(made_claims(iat=NOW_S, exp=NOW_S + 60))}.",
        f"{part({'alg': 'none'})}..",
        unsecured(iat=NOW_S, exp=10**40),
        unsecured(iat=[], exp=NOW_S + 60),
        "..",
        f"{part([])}.{part({})}.",
    ],
)
def test_an_unsecured_token_that_is_refused(token: str) -> None:
    refusal(lambda: UnsecuredRules.of({}).check(token, NOW_MS))


@pytest.mark.parametrize("said", [b"[1]", b'"no"', b"[" * 100_000, b"\xff", b'{"status":' + b"9" * 5000 + b"}"])
def test_a_broker_that_refuses_in_odd_words_refuses(said: bytes) -> None:
    client = bearer("a.b.c", {})
    next(client)
    assert client.send(said) == b"\x01"
    with pytest.raises(ScramRefused, match="the broker refuses the token") as error:
        client.send(b"")
    assert len(str(error.value)) < 300
