"""OAUTHBEARER at a node: who comes in, how sessions end, keys that change, settings, and tokens that cost."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import ottla
from ottla.broker.dispatch import token_check
from ottla.client import Admin, AuthenticationFailed, ConfigResource, ResourceType
from ottla.kernel.error import ErrorCode, OttlaError
from ottla.security.sasl import bearer
from ottla.wire.api.heartbeat import HeartbeatRequest
from ottla.wire.api.metadata import MetadataRequest
from ottla.wire.api.sasl_authenticate import SaslAuthenticateRequest
from ottla.wire.api.sasl_handshake import SaslHandshakeRequest
from tests.broker.sasl_scene import SETTINGS, plaintext, secured
from tests.broker.wire_client import WireClient
from tests.client import certificate
from tests.security.token_scene import AUDIENCE, ISSUER, Provider, made_claims, part, unsecured

INVALID = b'{"status":"invalid_token"}'
_PREFIX = "listener.name.sasl_plaintext.oauthbearer."
_HANDLER = f"{_PREFIX}sasl.server.callback.handler.class"
_PACKAGE = "org.apache.kafka.common.security.oauthbearer."
_LINE = f"{_PREFIX}sasl.jaas.config"
_ALLOWED = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
_URL = f"{_PREFIX}sasl.oauthbearer.jwks.endpoint.url"
UNSECURED = SETTINGS | {
    "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
    _HANDLER: f"{_PACKAGE}internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler",
    _LINE: f'{_PACKAGE}OAuthBearerLoginModule required unsecuredValidatorRequiredScope="kafka";',
}
SIGNED = SETTINGS | {
    "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
    _HANDLER: f"{_PACKAGE}OAuthBearerValidatorCallbackHandler",
    f"{_PREFIX}sasl.oauthbearer.expected.audience": AUDIENCE,
    "sasl.oauthbearer.expected.issuer": ISSUER,
}
PROVIDER = Provider()


def signed(url: str) -> dict[str, str]:
    return SIGNED | {_URL: url, _ALLOWED: f"https://other.example, {url}"}


@pytest.fixture(scope="module")
def key_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "keys.json"
    PROVIDER.write(path, "rsa", "ec")
    return path


@pytest.fixture(scope="module")
def node(key_file: Path) -> Iterator[ottla.Node]:
    with ottla.Node(settings=signed(key_file.as_uri())) as node:
        yield node


def sign_in(client: WireClient, token: str) -> Any:
    """The answer to the token."""
    assert client.ask(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1).error_code == 0
    return client.ask(SaslAuthenticateRequest(auth_bytes=next(bearer(token, {}))), 2)


def outcome(node: ottla.Node, token: str) -> bytes:
    """The bytes of the answer: none if the token lets in."""
    with WireClient(secured(node)) as client:
        answer = sign_in(client, token)
        assert answer.error_code == 0
        return bytes(answer.auth_bytes)


def settings(node: ottla.Node, token: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": secured(node),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token": token,
    }


def test_our_client_comes_in_by_a_token_and_is_told_when_it_does_not(node: ottla.Node) -> None:
    with Admin(settings(node, PROVIDER.token("ec", "ES256"))) as admin:
        assert admin.describe_cluster().nodes
    with Admin(settings(node, PROVIDER.token(aud="other"))) as admin, pytest.raises(AuthenticationFailed) as error:
        admin.describe_cluster()
    assert "invalid_token" in str(error.value)


def test_a_refused_token_is_told_and_the_connection_closed(node: ottla.Node) -> None:
    with WireClient(secured(node)) as client:
        assert bytes(sign_in(client, PROVIDER.token(exp=1)).auth_bytes) == INVALID
        assert client.ask(HeartbeatRequest(group_id="g"), 4).error_code == ErrorCode.ILLEGAL_SASL_STATE
        with pytest.raises(ConnectionError):
            client.receive_frame()
    with WireClient(secured(node)) as client:
        assert bytes(sign_in(client, PROVIDER.token(exp=1)).auth_bytes) == INVALID
        answer = client.ask(SaslAuthenticateRequest(auth_bytes=b"\x01"), 2)
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert answer.error_message == INVALID.decode()
        with pytest.raises(ConnectionError):
            client.receive_frame()


def test_tokens_of_clients_that_mean_no_good_are_refused(node: ottla.Node) -> None:
    tokens = [
        unsecured(scope="kafka"),
        PROVIDER.token("new"),
        PROVIDER.token("new", header={"kid": "rsa"}),
        PROVIDER.token(exp=10**25),
        PROVIDER.token(exp=10**12),
        PROVIDER.token(more="x" * 70_000),
        f"{part(b'[' * 45_000)}.{part(made_claims())}.AAAA",
        f"{part({'alg': 'RS256', 'kid': 'x' * 40_000})}.{part(made_claims())}.AAAA",
        "a" * 500_000,
        "." * 50_000,
    ]
    with WireClient(secured(node)) as well_behaved:
        assert bytes(sign_in(well_behaved, PROVIDER.token()).auth_bytes) == b""
        for each in tokens:
            assert outcome(node, each) == INVALID
        assert well_behaved.ask(MetadataRequest(topics=[]), 12).brokers


def test_a_token_is_in_no_line_of_the_log(node: ottla.Node, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(5)
    for token in (PROVIDER.token(), PROVIDER.token(iss="https://evil.example"), PROVIDER.token("new")):
        outcome(node, token)
        for piece in token.split("."):
            assert piece not in caplog.text
    assert "refused a token: its claim iss is not sasl.oauthbearer.expected.issuer" in caplog.text


def test_a_session_ends_with_its_token_unless_another_renews_it(key_file: Path) -> None:
    longest = signed(key_file.as_uri()) | {f"{_PREFIX}connections.max.reauth.ms": "2000000"}
    with ottla.Node(settings=longest) as node:
        with WireClient(secured(node)) as client:
            assert sign_in(client, PROVIDER.token()).session_lifetime_ms == 2_000_000
        with WireClient(secured(node)) as client:
            token = PROVIDER.token(exp=made_claims()["exp"] - 3000)
            lifetime_ms = sign_in(client, token).session_lifetime_ms
            assert 0 < lifetime_ms <= 600_000
            assert client.ask(MetadataRequest(topics=[]), 12).brokers
            assert 600_000 < sign_in(client, PROVIDER.token()).session_lifetime_ms <= 2_000_000
            node.clock.advance(1_900_000)
            # The wall clock has moved as well, and the token has not ended.
            assert client.ask(MetadataRequest(topics=[]), 12).brokers
            node.clock.advance(100_001)
            client.send(MetadataRequest(topics=[]), 12)
            with pytest.raises(ConnectionError):
                client.receive_frame()
        assert outcome(node, token) == INVALID


def test_a_session_keeps_its_user(node: ottla.Node) -> None:
    with WireClient(secured(node)) as client:
        assert sign_in(client, PROVIDER.token()).error_code == 0
        answer = sign_in(client, PROVIDER.token(sub="bob"))
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert answer.error_message == "Cannot change principals during re-authentication from User.ann: User.bob"


# ---- keys that change


def await_outcome(node: ottla.Node, token: str, wanted: bytes) -> None:
    for _ in range(20_000):
        if outcome(node, token) == wanted:
            return
    raise AssertionError(f"it is never answered {wanted!r}")


def test_a_key_file_that_changes_counts_soon_and_one_that_is_broken_does_not(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    with ottla.Node(settings=signed(PROVIDER.write(path, "rsa"))) as node:
        assert outcome(node, PROVIDER.token("new")) == INVALID
        path.write_bytes(b"{")
        assert outcome(node, PROVIDER.token()) == b""
        PROVIDER.write(path, "new")
        await_outcome(node, PROVIDER.token("new"), b"")
        assert outcome(node, PROVIDER.token()) == INVALID


class Endpoint(BaseHTTPRequestHandler):
    """A provider's address: what the server's `answer` says, and how often that was asked."""

    def do_GET(self) -> None:
        server: Any = self.server
        server.asked += 1
        status, body = server.answer
        self.send_response(status)
        if status == 302:
            self.send_header("Location", body.decode())
            body = b""
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: Any) -> None:
        """Say nothing."""


@pytest.fixture
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A provider over TLS. `url`, `trusted` (a PEM file), `answer`, `asked`."""
    certificates = certificate.make(tmp_path_factory.mktemp("tls"))
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(certificates.broker)
    server.socket = made.wrap_socket(server.socket, server_side=True)
    server.asked, server.answer = 0, (200, PROVIDER.key_set("rsa"))
    server.url, server.trusted = f"https://127.0.0.1:{server.server_port}/keys", certificates.ca
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def from_endpoint(endpoint: Any, **more: str) -> dict[str, str]:
    line = f'{_PACKAGE}OAuthBearerLoginModule required ssl.truststore.location="{endpoint.trusted}" '
    return signed(endpoint.url) | {_LINE: f'{line} ssl.truststore.type="PEM";', **more}


def test_keys_of_an_address_are_read_again_for_a_key_that_is_new(endpoint: Any) -> None:
    quick = {"sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": "20"}
    with ottla.Node(settings=from_endpoint(endpoint, **quick)) as node:
        assert endpoint.asked == 1
        assert outcome(node, PROVIDER.token()) == b""
        endpoint.answer = (200, PROVIDER.key_set("new"))
        await_outcome(node, PROVIDER.token("new"), b"")
        assert outcome(node, PROVIDER.token()) == INVALID


def test_an_address_that_fails_leaves_the_keys_as_they_were(endpoint: Any) -> None:
    often = {
        "sasl.oauthbearer.jwks.endpoint.refresh.ms": "5",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": "1",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": "4",
    }
    with ottla.Node(settings=from_endpoint(endpoint, **often)) as node:
        for answer in (
            (500, b""),
            (200, b"{}"),
            (200, b" " * (2 << 20)),
            (302, b"file:///etc/passwd"),
            (302, b"/other"),
        ):
            endpoint.answer, before = answer, endpoint.asked
            while endpoint.asked < before + 3:
                assert outcome(node, PROVIDER.token()) == b""
        endpoint.answer = (200, PROVIDER.key_set("new"))
        await_outcome(node, PROVIDER.token("new"), b"")


def test_key_ids_that_are_made_up_do_not_have_the_address_asked_again_and_again(endpoint: Any) -> None:
    with ottla.Node(settings=from_endpoint(endpoint)) as node:
        for number in range(100):
            assert outcome(node, PROVIDER.token(header={"kid": f"made up {number}"})) == INVALID
        assert endpoint.asked == 1


@pytest.mark.parametrize("answer", [(500, b""), (200, b"{}"), (302, b"/other")])
def test_an_address_without_keys_stops_the_start(endpoint: Any, answer: tuple[int, bytes]) -> None:
    endpoint.answer = answer
    with pytest.raises(OttlaError, match=r"jwks\.endpoint\.url=https.* gives no keys"):
        ottla.Node(settings=from_endpoint(endpoint)).start()


# ---- settings


@pytest.mark.parametrize(("scheme", "warned"), [("http", True), ("https", False)])
def test_only_an_address_that_is_not_encrypted_is_warned_of(
    caplog: pytest.LogCaptureFixture, scheme: str, warned: bool
) -> None:
    with pytest.raises(OttlaError, match="gives no keys"):
        ottla.Node(settings=signed(f"{scheme}://127.0.0.1:1/keys")).start()
    assert (f"{scheme}://127.0.0.1:1/keys is not encrypted" in caplog.text) is warned


def test_unsecured_tokens_come_in_where_the_settings_name_them(key_file: Path) -> None:
    with ottla.Node(settings=UNSECURED) as node:
        assert outcome(node, unsecured(scope="kafka")) == b""
        assert outcome(node, unsecured(scope="other")) == b'{"status":"insufficient_scope", "scope":"[kafka]"}'
        assert outcome(node, PROVIDER.token(scope="kafka")) == INVALID


def without(*names: str) -> dict[str, str]:
    return {name: value for name, value in signed("file:///keys").items() if name not in names}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            without(_HANDLER),
            r"callback\.handler\.class=: the listener SASL_PLAINTEXT offers OAUTHBEARER and needs a token check",
        ),
        (signed("file:///keys") | {_HANDLER: "com.example.Own"}, "needs a token check: set org.apache.kafka"),
        (without(_URL), r"jwks\.endpoint\.url is missing: set it to the URL of the keys"),
        (without(_ALLOWED), r"is not among the addresses that are allowed: org\.apache\.kafka.*=file:///keys"),
        (signed("file:///keys") | {_ALLOWED: "file:///key"}, "is not among the addresses that are allowed"),
        (signed("ftp://x/keys"), "a URL with https:// or file: is expected"),
        (signed("file:///no/keys"), r"jwks\.endpoint\.url=file:///no/keys gives no keys: .*No such file"),
        (signed("https://127.0.0.1:1/keys"), "gives no keys: .*refused"),
        (signed("file:///keys") | {f"{_PREFIX}sasl.oauthbearer.jwt.validator.class": "x.Y"}, "runs no Java validator"),
        (signed("file:///keys") | {"sasl.oauthbearer.sub.claim.name": " "}, "sub.claim.name must not be empty"),
        (signed("file:///keys") | {"sasl.oauthbearer.clock.skew.seconds": "x"}, "clock.skew.seconds"),
        (signed("file:///keys") | {"sasl.oauthbearer.jwks.endpoint.refresh.ms": "0"}, "must be more than 0"),
        (UNSECURED | {_LINE: 'x required unsecuredValidatorAllowableClockSkewMs="-1";'}, "is no time in ms"),
        (
            SETTINGS | {"listener.name.sasl_plaintext.plain.sasl.server.callback.handler.class": "com.example.Ldap"},
            "this node runs no Java classes and would check other passwords",
        ),
    ],
)
def test_settings_that_do_not_say_which_tokens_stop_the_start(settings: dict[str, str], words: str) -> None:
    with pytest.raises(OttlaError, match=words) as error:
        ottla.Node(settings=settings).start()
    assert "\n" not in str(error.value)


def test_what_is_set_while_the_node_runs_leads_to_no_other_keys(node: ottla.Node, tmp_path: Path) -> None:
    evil = Provider()
    url = evil.write(tmp_path / "keys.json")
    own = ConfigResource(ResourceType.BROKER, "1")
    changes: dict[str, str | None] = {_URL: url, _ALLOWED: url, _HANDLER: UNSECURED[_HANDLER]}
    with Admin(plaintext(node)) as admin:
        for name, value in changes.items():
            admin.alter_configs({own: {name: value}})
        try:
            assert outcome(node, evil.token()) == INVALID
            assert outcome(node, unsecured(scope="kafka")) == INVALID
            assert outcome(node, PROVIDER.token()) == b""
        finally:
            admin.alter_configs({own: dict.fromkeys(changes)})


def test_a_listener_may_begin_to_take_tokens_while_it_serves(key_file: Path) -> None:
    later = signed(key_file.as_uri()) | {"sasl.enabled.mechanisms": "PLAIN"}
    with ottla.Node(settings=later) as node, Admin(plaintext(node)) as admin:
        with WireClient(secured(node)) as client:
            refused = client.ask(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
            assert refused.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        name = "listener.name.sasl_plaintext.sasl.enabled.mechanisms"
        admin.alter_configs({ConfigResource(ResourceType.BROKER, "1"): {name: "OAUTHBEARER"}})
        await_outcome(node, PROVIDER.token(), b"")


@pytest.mark.parametrize("missing", ["jwt", "cryptography"])
def test_a_node_without_the_packages_for_signed_tokens_says_how_to_get_them(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_check, "find_spec", lambda name: None if name == missing else name)
    with (
        pytest.raises(OttlaError, match=r"^OAUTHBEARER needs PyJWT to check signatures: pip install 'ottla\[oauth\]'$"),
        ottla.Node(settings=signed("file:/none")),
    ):
        pass
