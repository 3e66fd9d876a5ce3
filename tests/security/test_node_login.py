"""How a node signs in at others by tokens: what its settings must say, and what it sends."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import pytest

from ottla.kernel.error import OttlaError
from ottla.security.node_login import NodeLogin
from ottla.settings.server.settings import ServerSettings
from tests.security.token_endpoint import SECRETS, TokenEndpoint
from tests.security.token_scene import Provider
from tests.settings.test_server_settings import COMBINED

_PACKAGE = "org.apache.kafka.common.security.oauthbearer"
_OWN = "listener.name.nodes.oauthbearer"
_HANDLER = f"{_OWN}.sasl.login.callback.handler.class"
_LINE = f"{_OWN}.sasl.jaas.config"
_ALLOWED = "org.apache.kafka.sasl.oauthbearer.allowed"
_URL = "sasl.oauthbearer.token.endpoint.url"


@pytest.fixture
def endpoint() -> Iterator[TokenEndpoint]:
    with TokenEndpoint(Provider()) as found:
        yield found


def bearer(url: str, **more: str | None) -> dict[str, str]:
    """The settings of a node whose brokers meet by OAUTHBEARER, and those of `more` by the part of their name."""
    found: dict[str, str | None] = {
        **COMBINED,
        "listeners": "NODES://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
        "listener.security.protocol.map": "NODES:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "NODES",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        _HANDLER: f"{_PACKAGE}.OAuthBearerLoginCallbackHandler",
        _LINE: f'x required clientId="node" clientSecret="{SECRETS["node"]}" extension_group="blue";',
        _URL: url,
        f"{_ALLOWED}.urls": f"https://other,{url}",
        "sasl.login.retry.backoff.max.ms": "100",
    }
    found |= more
    return {name: value for name, value in found.items() if value is not None}


def login(settings: Mapping[str, str]) -> NodeLogin:
    return NodeLogin(ServerSettings.parse(settings), "NODES", None)


def test_a_node_shows_the_token_of_the_id_and_secret_in_its_jaas_line(endpoint: TokenEndpoint) -> None:
    made = login(bearer(endpoint.url))
    try:
        made.start()
        made.start()
        message = next(made.exchange("127.0.0.1", "nonce"))
        assert message.startswith(b"n,,\x01group=blue\x01auth=Bearer ey")
        assert len(endpoint.asked) == 1
        assert (made.mechanism, made.user) == ("OAUTHBEARER", "node")
        assert SECRETS["node"] not in repr(made)
    finally:
        made.close()


def test_the_settings_go_before_the_jaas_line_and_a_listeners_own_before_all(endpoint: TokenEndpoint) -> None:
    own = "sasl.oauthbearer.client.credentials.client"
    given: dict[str, str | None] = {
        f"{own}.id": "nobody",
        f"{_OWN}.{own}.id": "ann",
        f"{own}.secret": SECRETS["ann"],
        "sasl.oauthbearer.scope": "s",
    }
    made = login(bearer(endpoint.url, **given))
    made.start()
    made.close()
    assert (made.user, endpoint.asked[0].form["scope"]) == ("ann", "s")


def test_what_is_set_while_the_node_runs_leads_its_secret_to_no_other_address(endpoint: TokenEndpoint) -> None:
    settings = ServerSettings.parse(bearer("https://127.0.0.1:1/token"))
    made = NodeLogin(settings, "NODES", None)
    changed = {_LINE: 'x required clientId="evil" clientSecret="x";', _URL: endpoint.url}
    assert made.follow(settings.with_dynamic({**changed, f"{_ALLOWED}.urls": endpoint.url}), "NODES") == ""
    with pytest.raises(OttlaError, match="1/token gives no token"):
        made.start()
    assert (made.user, endpoint.asked) == ("node", [])


_KEY = "sasl.oauthbearer.assertion.private.key.file"
_BEARER = {"sasl.oauthbearer.jwt.retriever.class": f"{_PACKAGE}.JwtBearerJwtRetriever", _KEY: "/key.pem"}


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({_HANDLER: None}, rf"{_HANDLER}=: a node gets its token by .* give .*OAuthBearerLoginCallbackHandler"),
        ({_HANDLER: "com.example.Own"}, r"=com\.example\.Own: a node gets its token by"),
        ({_URL: None}, r"token\.endpoint\.url= is no http or https address"),
        ({_LINE: None}, r"needs sasl\.oauthbearer\.client\.credentials\.client\.id and \.client\.secret, or"),
        ({f"{_ALLOWED}.urls": None}, r"url=https://a/b is not among the addresses .*allowed\.urls=https://a/b"),
        (_BEARER, r"private\.key\.file=/key\.pem is not among the files .*allowed\.files=/key\.pem"),
        ({"sasl.oauthbearer.jwt.retriever.class": "com.example.Own"}, "no Java class is run here"),
    ],
)
def test_settings_that_give_a_node_no_token_are_told(more: dict[str, str | None], words: str) -> None:
    problem = login(bearer("https://a/b", **more)).problem
    assert re.search(words, problem)
    assert "\n" not in problem
    assert SECRETS["node"] not in problem
