"""How a node signs in at others by tokens: what its settings must say, and what it sends."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping

import pytest

import ottla
from ottla.broker.dispatch.token_check import UNSECURED
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
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER,GSSAPI,EXTERNAL",
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


# ---- passwords, tickets, and changes while the node runs

_MECHANISM = "sasl.mechanism.inter.broker.protocol"
_BY = "listener.name.nodes"


def _jaas(mechanism: str, options: str) -> dict[str, str]:
    line = f"com.sun.security.auth.module.Krb5LoginModule required {options};"
    return {f"{_BY}.{mechanism.lower()}.sasl.jaas.config": line}


def by(mechanism: str, *lines: dict[str, str], **more: str | None) -> dict[str, str]:
    """The settings of a node whose brokers meet by this mechanism, with these JAAS lines."""
    settings = bearer("https://a/b", **{_LINE: None, _HANDLER: None, _URL: None, f"{_ALLOWED}.urls": None})
    for line in lines:
        settings |= line
    return settings | {_MECHANISM: mechanism} | {name: value for name, value in more.items() if value is not None}


_ANN, _BOB = 'username="ann" password="secret-a"', 'username="bob" password="secret-b"'
_KEYTAB = 'useKeyTab=true keyTab="/k" principal="kafka/h@HOME"'


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_node_signs_in_by_the_name_and_password_of_the_line_of_its_mechanism(mechanism: str) -> None:
    lines = [_jaas(each, _ANN if each == mechanism else _BOB) for each in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")]
    made = login(by(mechanism, *lines))
    made.start()
    assert (made.mechanism, made.user, made.waits, made.problem) == (mechanism, "ann", False, "")
    first = next(made.exchange("h", "nonce"))
    assert first == (b"\0ann\0secret-a" if mechanism == "PLAIN" else b"n,,n=ann,r=nonce")
    assert "secret" not in repr(made)
    made.close()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (by("PLAIN"), r"^listener\.name\.nodes\.plain\.sasl\.jaas\.config has no username=.* at the listener NODES"),
        (by("PLAIN", _jaas("PLAIN", 'password="x"')), "has no username="),
        (by("PLAIN", _jaas("PLAIN", 'username="" password="x"')), "has no username="),
        (by("PLAIN", _jaas("PLAIN", 'username="x"')), "has no username="),
        (by("PLAIN", _jaas("SCRAM-SHA-256", _ANN)), "has no username="),
        (by("EXTERNAL"), rf"^{re.escape(_MECHANISM)}=EXTERNAL: nodes sign in .* by PLAIN, .*; give one of them"),
        (by("GSSAPI"), r"gssapi\.sasl\.jaas\.config is missing: this node signs in .* by its keytab"),
        (by("GSSAPI", _jaas("GSSAPI", f"{_KEYTAB} isInitiator=false")), "only lets others in .*leave isInitiator out"),
        (by("GSSAPI", _jaas("GSSAPI", 'useKeyTab=true keyTab="/k" principal="*"')), "only lets others in"),
    ],
)
def test_settings_that_let_a_node_sign_in_nowhere_are_told(settings: dict[str, str], words: str) -> None:
    made = login(settings)
    assert re.search(words, made.problem)
    assert "\n" not in made.problem
    assert made.mechanism is None
    with pytest.raises(OttlaError, match="listener"):
        made.start()
    # Another listener's login may do without it.
    made.start(needed=False)


def test_an_empty_password_is_one() -> None:
    made = login(by("PLAIN", _jaas("PLAIN", 'username="ann" password=""')))
    assert (made.problem, next(made.exchange("h", ""))) == ("", b"\0ann\0")


def test_controllers_have_a_mechanism_of_their_own() -> None:
    given = by("PLAIN", _jaas("PLAIN", _ANN)) | {
        "listener.security.protocol.map": "NODES:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        "sasl.mechanism.controller.protocol": "SCRAM-SHA-512",
        "listener.name.controller.scram-sha-512.sasl.jaas.config": f"x required {_BOB};",
    }
    made = NodeLogin(ServerSettings.parse(given), "CONTROLLER", None)
    assert (made.mechanism, made.user) == ("SCRAM-SHA-512", "bob")
    wrong = NodeLogin(ServerSettings.parse(given | {"sasl.mechanism.controller.protocol": "X"}), "CONTROLLER", None)
    assert wrong.problem.startswith("sasl.mechanism.controller.protocol=X: ")


def test_a_listener_without_sasl_asks_for_no_login() -> None:
    given = by("X") | {"listener.security.protocol.map": "NODES:PLAINTEXT,CONTROLLER:PLAINTEXT"}
    made = login(given)
    assert (made.problem, made.mechanism) == ("", None)
    made.start()


class _Tickets:
    """In the place of the Kerberos library."""

    made: list[tuple[str | None, str]]

    def __init__(self, service: str | None, text: str, *, where: str) -> None:
        assert where == f"{_BY}.gssapi.sasl.jaas.config"
        _Tickets.made.append((service, text))

    def begin(self, host: str) -> tuple[object, bytes]:
        return object(), f"ticket for {host}".encode()


def test_a_problem_is_gone_when_the_settings_are_mended() -> None:
    broken = ServerSettings.parse(by("PLAIN"))
    made = NodeLogin(broken, "NODES", None)
    assert "has no username=" in made.problem
    for _ in range(2):
        assert made.follow(broken, "NODES") == made.problem != ""
    assert made.follow(ServerSettings.parse(by("PLAIN", _jaas("PLAIN", _ANN))), "NODES") == made.problem == ""
    assert made.user == "ann"


@pytest.fixture
def tickets(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str | None, str]]:
    _Tickets.made = []
    monkeypatch.setattr("ottla.security.kerberos.Initiator", _Tickets)
    return _Tickets.made


def test_a_changed_login_counts_and_one_that_cannot_be_does_not(tickets: list[tuple[str | None, str]]) -> None:
    first = ServerSettings.parse(by("PLAIN", _jaas("PLAIN", _ANN), _jaas("GSSAPI", _KEYTAB)))
    made = NodeLogin(first, "NODES", None)
    made.start()

    def follow(**changed: str) -> tuple[str | None, str, str]:
        problem = made.follow(
            first.with_dynamic({name.replace("_", "."): value for name, value in changed.items()}), "NODES"
        )
        assert made.problem == "", "the old login is in use"
        return made.mechanism, made.user, problem

    key = f"{_BY}.plain.sasl.jaas.config".replace(".", "_")
    assert follow(**{key: f"x required {_BOB};"}) == ("PLAIN", "bob", "")
    mechanism, user, problem = follow(**{key: "x required;"})
    assert (mechanism, user) == ("PLAIN", "bob")
    assert "has no username=" in problem
    gssapi = {_MECHANISM.replace(".", "_"): "GSSAPI"}
    assert follow(**gssapi) == ("GSSAPI", "kafka/h@HOME", "")
    assert [made.waits] == [True]
    assert next(made.exchange("host", "")) == b"ticket for host"
    # The same keytab is opened once, also when another mechanism was in use meanwhile.
    assert follow(**gssapi) == ("GSSAPI", "kafka/h@HOME", "")
    assert follow() == ("PLAIN", "ann", "")
    assert [made.waits] == [False]
    assert follow(**gssapi) == ("GSSAPI", "kafka/h@HOME", "")
    assert len(tickets) == 1
    assert follow(**gssapi, sasl_kerberos_service_name="other")[2] == ""
    assert [service for service, _ in tickets] == [None, "other"]


@pytest.mark.parametrize("usable", [True, False])
def test_a_node_that_runs_without_a_token_does_not_begin_to_show_one(endpoint: TokenEndpoint, usable: bool) -> None:
    """Its provider is asked at the start, where a wait holds up no client."""
    given = bearer(endpoint.url) | {_MECHANISM: "PLAIN"} | (_jaas("PLAIN", _ANN) if usable else {})
    settings = ServerSettings.parse(given)
    made = NodeLogin(settings, "NODES", None)
    made.start(needed=False)
    problem = made.follow(settings.with_dynamic({_MECHANISM: "OAUTHBEARER"}), "NODES")
    assert problem == f"{_MECHANISM}=OAUTHBEARER: this node has no token yet; the change needs a restart"
    assert (made.mechanism, endpoint.asked) == ("PLAIN" if usable else None, [])


def test_the_end_of_a_node_ends_the_renewal_of_its_token(endpoint: TokenEndpoint) -> None:
    settings = bearer(endpoint.url) | {
        "listeners": "NODES://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{_OWN}.sasl.server.callback.handler.class": UNSECURED,
    }
    given = {name: value for name, value in settings.items() if name not in COMBINED or name == "listeners"}

    # Of other tests' logins.
    before = set(threading.enumerate())

    def watches() -> list[threading.Thread]:
        return [each for each in threading.enumerate() if each.name == "ottla-token" and each not in before]

    with ottla.Node(settings=given):
        (watch,) = watches()
        assert len(endpoint.asked) == 1
    watch.join(10)
    assert watches() == []
