"""Tokens from a provider's endpoint: grants, assertions, refusals, and the thread that renews a node's token."""

from __future__ import annotations

import base64
import io
import json
import ssl
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from urllib.request import ProxyHandler

import pytest

from ottla.kernel.client_error import AuthenticationFailed, NotReachable
from ottla.kernel.error import OttlaError
from ottla.security.oauth import TokenRequest, end_of
from ottla.security.provider import bounded
from ottla.security.sasl import SignIn
from ottla.security.token_watch import Renewal, TokenWatch
from ottla.settings.client.security import SecuritySettings
from tests.client.conftest import eventually
from tests.security.token_endpoint import BEARER, CLIENT_ASSERTION, TokenEndpoint
from tests.security.token_scene import Provider, part

PROVIDER = Provider()
_PACKAGE = "org.apache.kafka.common.security.oauthbearer"
_ASSERTION = "sasl.oauthbearer.assertion"
_RENEWAL = Renewal(0.8, 0.05, 60, 300, 1, 20)


@pytest.fixture
def endpoint() -> Iterator[TokenEndpoint]:
    with TokenEndpoint(PROVIDER) as found:
        yield found


def settings(endpoint: TokenEndpoint | str, given: dict[str, Any]) -> SecuritySettings:
    url = endpoint if isinstance(endpoint, str) else endpoint.url
    return SecuritySettings.read(
        {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": url,
            **given,
        },
        {},
    )


def request(endpoint: TokenEndpoint | str, given: dict[str, Any], *, for_node: bool = False) -> TokenRequest:
    read = settings(endpoint, given)
    return TokenRequest(read, read.jaas_options, ssl.create_default_context, for_node=for_node)


def by_secret(user: str = "ann", secret: str = "anns secret") -> dict[str, Any]:
    own = "sasl.oauthbearer.client.credentials.client"
    return {f"{own}.id": user, f"{own}.secret": secret}


def by_assertion(endpoint: TokenEndpoint, directory: Path, **more: Any) -> dict[str, Any]:
    found = {
        "sasl.oauthbearer.jwt.retriever.class": f"{_PACKAGE}.JwtBearerJwtRetriever",
        f"{_ASSERTION}.private.key.file": PROVIDER.key_file(directory, "new"),
        f"{_ASSERTION}.claim.aud": endpoint.url,
        f"{_ASSERTION}.claim.iss": "ann's program",
        f"{_ASSERTION}.claim.sub": "ann",
    }
    return found | {f"{_ASSERTION}.{name.replace('_', '.')}": value for name, value in more.items()}


# ---- grants


def test_an_id_and_a_secret_give_a_token_and_its_end(endpoint: TokenEndpoint) -> None:
    token, ends_at = request(endpoint, by_secret() | {"sasl.oauthbearer.scope": "a b"}).fetch()
    assert end_of(token) == ends_at == pytest.approx(time.time() + 3600, abs=60)
    assert endpoint.asked[0].form == {"grant_type": "client_credentials", "scope": "a b"}


def test_a_jaas_line_may_hold_what_the_settings_do_not(endpoint: TokenEndpoint) -> None:
    line = 'o.a.k.OAuthBearerLoginModule required clientId="ann" clientSecret="anns secret" scope="x";'
    assert request(endpoint, {"sasl.jaas.config": line}, for_node=True).fetch()[0]
    said = base64.b64decode((endpoint.asked[0].authorization or "").removeprefix("Basic "))
    assert (said, endpoint.asked[0].form["scope"]) == (b"ann:anns secret", "x")


def test_a_client_encodes_the_two_and_a_node_does_as_apaches_broker(endpoint: TokenEndpoint) -> None:
    """RFC 6749, 2.3.1, which Apache follows by sasl.oauthbearer.header.urlencode alone."""
    for for_node in (False, True):
        request(endpoint, by_secret("a:b c", "ä%"), for_node=for_node).fetch()
    said = [base64.b64decode((each.authorization or "").removeprefix("Basic ")).decode() for each in endpoint.asked]
    assert said == ["a%3Ab+c:%C3%A4%25", "a:b c:ä%"]


def test_a_node_leaves_out_the_blanks_around_the_two(endpoint: TokenEndpoint) -> None:
    request(endpoint, by_secret(" ann\t", " anns secret "), for_node=True).fetch()
    said = base64.b64decode((endpoint.asked[0].authorization or "").removeprefix("Basic "))
    assert said == b"ann:anns secret"


@pytest.mark.parametrize(
    ("said", "token", "life_s"),
    [
        ({"access_token": " a.b \n"}, "a.b", None),
        ({"access_token": "", "id_token": "i"}, "i", None),
        ({"access_token": None, "id_token": "i"}, "i", None),
        ({"access_token": "a", "id_token": "i", "expires_in": 60}, "a", 60),
        ({"access_token": "a", "expires_in": "60"}, "a", 60),
        ({"access_token": "a", "expires_in": None}, "a", None),
        ({"access_token": "a", "expires_in": 1e999}, "a", None),
        ({"access_token": "a", "expires_in": "soon"}, None, None),
        ({"access_token": 5}, None, None),
        ({"id_token": []}, None, None),
        ({}, None, None),
        ([], None, None),
        ("text", None, None),
    ],
)
def test_a_token_and_its_end_are_read_from_what_the_endpoint_says(
    endpoint: TokenEndpoint, monkeypatch: pytest.MonkeyPatch, said: Any, token: str | None, life_s: int | None
) -> None:
    now_s = 1_800_000_000.0
    monkeypatch.setattr("ottla.security.oauth.time.time", lambda: now_s)
    monkeypatch.setattr(TokenRequest, "_ask", lambda request, now: said)
    made = request(endpoint, by_secret())
    if token is None:
        with pytest.raises(NotReachable, match="its answer has no access_token"):
            made.fetch()
    else:
        assert made.fetch() == (token, 0.0 if life_s is None else now_s + life_s)


@pytest.mark.parametrize("by_proxy", [False, True])
def test_a_node_asks_its_provider_and_no_proxy_of_the_environment(
    endpoint: TokenEndpoint, monkeypatch: pytest.MonkeyPatch, by_proxy: bool
) -> None:
    made: list[Any] = []

    def opener(*handlers: Any) -> Any:
        made.extend(handlers)
        return Mock(open=Mock(side_effect=OSError("not asked")))

    monkeypatch.setattr("ottla.security.provider.build_opener", opener)
    with pytest.raises(NotReachable):
        request(endpoint, by_secret(), for_node=not by_proxy).fetch()
    (proxies,) = [vars(each)["proxies"] for each in made if isinstance(each, ProxyHandler)] or [None]
    assert proxies == (None if by_proxy else {})


def test_an_answer_of_a_provider_is_read_up_to_a_mebibyte() -> None:
    assert len(bounded(io.BytesIO(bytes(1 << 20)))) == 1 << 20
    with pytest.raises(ValueError, match="more than 1 MiB"):
        bounded(io.BytesIO(bytes((1 << 20) + 1)))


def test_an_assertion_says_who_asks_and_over_the_settings_stands_the_template(
    endpoint: TokenEndpoint, tmp_path: Path
) -> None:
    template = tmp_path / "template.json"
    template.write_text(
        json.dumps({"header": {"kid": "k", "typ": "x"}, "payload": {"iss": "t", "role": "r", "iat": 1}})
    )
    given = by_assertion(endpoint, tmp_path, template_file=str(template), claim_jti_include=True)
    given |= {f"{_ASSERTION}.claim.exp.seconds": 100, f"{_ASSERTION}.claim.nbf.seconds": 7}
    assert request(endpoint, given).fetch()[0]
    asked = endpoint.asked[0]
    assert (asked.authorization, sorted(asked.form), asked.form["grant_type"]) == (
        None,
        ["assertion", "grant_type"],
        BEARER,
    )
    assert asked.header == {"alg": "RS256", "kid": "k", "typ": "JWT"}
    issued = asked.claims.pop("iat")
    assert len(asked.claims.pop("jti")) == 36
    assert asked.claims == {
        "aud": endpoint.url,
        "iss": "t",
        "sub": "ann",
        "role": "r",
        "exp": issued + 100,
        "nbf": issued - 7,
    }


def test_an_assertion_may_be_of_an_elliptic_curve_and_its_key_may_have_a_passphrase(
    endpoint: TokenEndpoint, tmp_path: Path
) -> None:
    endpoint.assertion_key = "ec"
    own = {"private_key_file": PROVIDER.key_file(tmp_path, "ec", "open"), "algorithm": "ES256"}
    given = by_assertion(endpoint, tmp_path, **own) | {f"{_ASSERTION}.private.key.passphrase": "open"}
    assert request(endpoint, given).fetch()[0]
    with pytest.raises(OttlaError, match=r"ec\.pem signs no ES256") as error:
        request(endpoint, given | {f"{_ASSERTION}.private.key.passphrase": "guessed"}).fetch()
    assert "guessed" not in str(error.value)
    with pytest.raises(OttlaError, match=r"ec\.pem signs no RS256"):
        request(endpoint, given | {f"{_ASSERTION}.algorithm": "RS256"}).fetch()


def test_an_assertion_may_take_the_place_of_the_secret_and_stand_in_a_file(
    endpoint: TokenEndpoint, tmp_path: Path
) -> None:
    given = by_assertion(endpoint, tmp_path)
    del given["sasl.oauthbearer.jwt.retriever.class"]
    request(endpoint, given | {"sasl.oauthbearer.client.credentials.client.id": "me"}).fetch()
    form = endpoint.asked[0].form
    (tmp_path / "ready").write_text(form.pop("client_assertion") + "\n")
    assert form == {
        "grant_type": "client_credentials",
        "client_assertion_type": CLIENT_ASSERTION,
        "client_id": "me",
    }
    assert request(endpoint, {f"{_ASSERTION}.file": str(tmp_path / "ready")}).fetch()[0]
    assert endpoint.asked[1].claims == endpoint.asked[0].claims


def test_a_file_may_hold_the_token(tmp_path: Path) -> None:
    path = tmp_path / "a token"
    path.write_text(f" {PROVIDER.token(exp=2_000_000_000)}\n")
    assert request(path.as_uri(), {}).fetch() == (path.read_text().strip(), 2_000_000_000)
    path.unlink()
    with pytest.raises(NotReachable, match="gives no token"):
        request(path.as_uri(), {}).fetch()


# ---- what goes wrong


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, AuthenticationFailed), (401, AuthenticationFailed), (302, AuthenticationFailed)]
    + [(each, NotReachable) for each in (408, 429, 500, 503)],
)
def test_an_answer_that_another_try_may_change_is_told_apart(
    endpoint: TokenEndpoint, status: int, kind: type[Exception]
) -> None:
    endpoint.status = status
    with pytest.raises(kind, match=str(status)):
        request(endpoint, by_secret()).fetch()
    # A secret is shown to no other address.
    assert len(endpoint.asked) == 1


@pytest.mark.parametrize(
    "more", [{"access_token": None}, {"access_token": 7}, {"expires_in": "soon"}, {"expires_in": 10**400}]
)
def test_an_answer_without_a_token_is_told(endpoint: TokenEndpoint, more: dict[str, Any]) -> None:
    endpoint.more = more
    with pytest.raises(NotReachable, match="no access_token"):
        request(endpoint, by_secret()).fetch()


_ENDS: list[Any] = [{"exp": "x"}, {"exp": 10**400}, b"[]", b'{"exp": Infinity}', b"[" * 50_000, b"\xff"]


@pytest.mark.parametrize("token", ["", "a.b.c", "a", *(f"a.{part(each)}.c" for each in _ENDS)])
def test_a_token_that_tells_no_end_has_none(token: str) -> None:
    assert end_of(token) == 0


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"sasl.oauthbearer.token.endpoint.url": "ldap://a/b"}, r"ldap://a/b is no http or https address"),
        ({"sasl.oauthbearer.client.credentials.client.secret": "x"}, r"client\.secret, or an assertion"),
        ({"sasl.oauthbearer.jwt.retriever.class": f"{_PACKAGE}.FileJwtRetriever"}, "is no file: address"),
        ({"sasl.oauthbearer.jwt.retriever.class": f"{_PACKAGE}.JwtBearerJwtRetriever"}, r"private\.key\.file"),
        ({"sasl.oauthbearer.jwt.retriever.class": "Mine"}, "one of"),
        ({f"{_ASSERTION}.claim.iss": "me"}, r"private\.key\.file"),
        ({f"{_ASSERTION}.algorithm": "none"}, "one of RS256, ES256"),
        ({f"{_ASSERTION}.claim.exp.seconds": 86_401}, "86400"),
    ],
)
def test_settings_that_say_no_way_to_a_token_are_refused(given: dict[str, Any], why: str) -> None:
    with pytest.raises(OttlaError, match=why):
        SignIn(settings("https://a/b", given))


@pytest.mark.parametrize(
    ("name", "data", "why"),
    [
        ("private.key.file", None, "cannot be read"),
        ("private.key.file", b"no key", "signs no RS256"),
        ("template.file", b"[1]", "payload"),
        ("template.file", b'{"header": 7}', "payload"),
        ("template.file", None, "cannot be read"),
        ("file", None, "cannot be read"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(
    endpoint: TokenEndpoint, tmp_path: Path, name: str, data: bytes | None, why: str
) -> None:
    path = tmp_path / "broken"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(OttlaError, match=f"{name}={path}.*{why}"):
        request(endpoint, by_assertion(endpoint, tmp_path) | {f"{_ASSERTION}.{name}": str(path)}).fetch()


# ---- a node's token


@pytest.mark.parametrize(
    ("life_s", "share", "after_s"),
    [
        (3600, 0.0, 2880),
        (3600, 1.0, 3060),
        # The buffer before its end, and both together.
        (1000, 1.0, 700),
        (361, 0.0, 61),
        (360, 0.0, 60),
        (359, 0.0, 287.2),
        (100, 0.0, 80),
    ],
)
def test_a_token_is_renewed_when_most_of_its_life_is_over(life_s: int, share: float, after_s: float) -> None:
    assert _RENEWAL.at(1000, 1000 + life_s, share) == pytest.approx(1000 + after_s)


def test_a_token_that_is_used_for_a_shorter_time_than_allowed_is_used_longer() -> None:
    assert Renewal(0.5, 0, 60, 0, 1, 2).at(0, 100, 0) == 60


def test_the_pauses_between_tries_grow_to_their_bound() -> None:
    assert [Renewal(0.8, 0, 1, 1, 100, 1000).backoff_s(each) for each in (1, 2, 3, 4, 5, 1000)] == [
        0.1,
        0.2,
        0.4,
        0.8,
        1,
        1,
    ]


def test_a_node_has_its_first_token_at_once_or_says_why_not(endpoint: TokenEndpoint) -> None:
    watch = TokenWatch(request(endpoint, by_secret()), _RENEWAL)
    watch.close()
    assert end_of(watch.token) > time.time()
    with pytest.raises(OttlaError, match="401"):
        TokenWatch(request(endpoint, by_secret(secret="guessed")), _RENEWAL)
    assert len(endpoint.asked) == 2
    endpoint.status = 503
    with pytest.raises(NotReachable, match="503"):
        TokenWatch(request(endpoint, by_secret()), _RENEWAL)
    before, endpoint.status, endpoint.first = len(endpoint.asked), 0, [503, 503]
    TokenWatch(request(endpoint, by_secret()), Renewal(0.8, 0.05, 60, 300, 1, 60_000)).close()
    assert len(endpoint.asked) == before + 3
    endpoint.status, endpoint.lifetime_s = 0, -1
    with pytest.raises(OttlaError, match="has ended"):
        TokenWatch(request(endpoint, by_secret()), _RENEWAL)


def test_a_node_renews_its_token_and_keeps_it_while_the_provider_gives_none(
    endpoint: TokenEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla.security.token_watch._PAUSE_MAX_S", 0.001)
    monkeypatch.setattr("ottla.security.token_watch._PAUSE_MIN_S", 0.001)
    watch = TokenWatch(request(endpoint, by_secret()), Renewal(0.0, 0.0, 0, 0, 1, 1))
    try:
        first = watch.token
        endpoint.lifetime_s = 7200
        eventually(lambda: watch.token != first)
        for status in (500, 401):
            endpoint.status, failures = status, watch._failures
            eventually(lambda failures=failures: watch._failures > failures + 1)  # type: ignore[misc]
        kept = watch.token
        assert kept
        endpoint.status, endpoint.lifetime_s = 0, 9000
        eventually(lambda: watch.token != kept and not watch._failures)
    finally:
        watch.close()
    watch._thread.join(20)
    assert not watch._thread.is_alive()


@pytest.mark.parametrize(
    ("failures", "left_s", "pause_s"),
    [
        (0, 3600.0, 60.0),
        (0, 60.0, 60.0),
        (0, 30.5, 30.5),
        # A token that must be renewed at once is not asked for without end.
        (0, 0.0, 1.0),
        (0, -100.0, 1.0),
        (1, 3600.0, 0.1),
        (3, 3600.0, 0.4),
        (9, 3600.0, 1.0),
    ],
)
def test_a_node_looks_at_its_token_every_minute_at_least(
    monkeypatch: pytest.MonkeyPatch, failures: int, left_s: float, pause_s: float
) -> None:
    watch = TokenWatch.__new__(TokenWatch)
    watch._renewal, watch._failures = Renewal(0.8, 0, 1, 1, 100, 1000), failures
    now_s = 1_800_000_000.0
    monkeypatch.setattr("ottla.security.token_watch.time.time", lambda: now_s)
    watch._renew_at_s = now_s + left_s
    assert watch._pause_s() == pause_s


@pytest.mark.parametrize(
    ("failures", "left_s", "asks"), [(0, 0.5, False), (0, 0.0, True), (0, -0.5, True), (1, 3600.0, True)]
)
def test_a_node_asks_again_when_its_token_is_old_or_it_got_none(
    monkeypatch: pytest.MonkeyPatch, failures: int, left_s: float, asks: bool
) -> None:
    watch = TokenWatch.__new__(TokenWatch)
    watch._renewal, watch._failures, watch._closed = _RENEWAL, failures, Mock()
    watch._closed.wait.side_effect = [False, True]
    now_s = 1_800_000_000.0
    monkeypatch.setattr("ottla.security.token_watch.time.time", lambda: now_s)
    watch._renew_at_s = now_s + left_s
    fetched: list[None] = []
    monkeypatch.setattr(watch, "_renew", lambda: fetched.append(None))
    watch._run()
    assert bool(fetched) is asks


@pytest.mark.parametrize(("ends_in_s", "taken"), [(-1.0, False), (0.0, False), (0.001, True)])
def test_a_token_that_has_ended_takes_the_place_of_none(
    monkeypatch: pytest.MonkeyPatch, ends_in_s: float, taken: bool
) -> None:
    now_s = 1_800_000_000.0
    monkeypatch.setattr("ottla.security.token_watch.time.time", lambda: now_s)
    watch = TokenWatch.__new__(TokenWatch)
    watch._renewal, watch._failures, watch.token = _RENEWAL, 2, "old"
    watch._request = Mock(url="u", fetch=lambda: ("new", now_s + ends_in_s))
    with nullcontext() if taken else pytest.raises(OttlaError, match="has ended"):
        watch._fetch()
    assert (watch.token, watch._failures) == (("new", 0) if taken else ("old", 2))
