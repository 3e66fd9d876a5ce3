"""OAUTHBEARER beside Apache Kafka: the same tokens at both servers, of raw frames, librdkafka and the Java client."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka.admin
import pytest

from ottla.client import Admin
from ottla.security.sasl import bearer
from tests.interop import server as servers
from tests.interop.apache_tool import ApacheTools
from tests.interop.oracle.side import CLOSED, Oracle, Side
from tests.interop.oracle.test_sign_in import Way
from tests.interop.secured import jaas
from tests.security.token_endpoint import Asked, TokenEndpoint
from tests.security.token_scene import AUDIENCE, ISSUER, Provider, made_claims, part, unsecured

pytestmark = pytest.mark.interop

PROVIDER = Provider()
_PACKAGE = "org.apache.kafka.common.security.oauthbearer"
_MODULE = "oauthbearer.OAuthBearerLoginModule"
_ALLOWED = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
_ALLOWED_FILES = "org.apache.kafka.sasl.oauthbearer.allowed.files"


class TokenServer(servers.Server):
    """A server with PLAINTEXT, SIGNED (keys in a file), LOOSE (the same, anyone's audience) and UNSECURED."""

    ports: dict[str, int]
    key_url = ""

    def _properties(self, controller_port: int) -> str:
        names = ("SIGNED", "LOOSE", "UNSECURED")
        self.ports = dict(zip(names, servers.free_ports(3), strict=True))
        listeners = ",".join(
            f"{name}://127.0.0.1:{port}" for name, port in [("PLAINTEXT", self.port), *self.ports.items()]
        )
        lines = {
            "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": listeners,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,"
            + ",".join(f"{name}:SASL_PLAINTEXT" for name in names),
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "connection.failed.authentication.delay.ms": "0",
            "listener.name.signed.oauthbearer.sasl.oauthbearer.expected.audience": f"other,{AUDIENCE}",
            "listener.name.signed.oauthbearer.sasl.oauthbearer.expected.issuer": ISSUER,
            "sasl.oauthbearer.jwks.endpoint.url": self.key_url,
            _ALLOWED: self.key_url,
        }
        for name in names:
            own = f"listener.name.{name.lower()}.oauthbearer.sasl"
            inner, options = "OAuthBearerValidatorCallbackHandler", {}
            if name == "UNSECURED":
                inner = "internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
                options = {"unsecuredValidatorRequiredScope": "kafka more", "unsecuredLoginStringClaim_sub": "server"}
            lines[f"{own}.server.callback.handler.class"] = f"{_PACKAGE}.{inner}"
            lines[f"{own}.jaas.config"] = jaas(_MODULE, options)
        return super()._properties(controller_port) + "".join(f"{name}={value}\n" for name, value in lines.items())


@pytest.fixture(scope="module")
def token_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("token") / "token"


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory, token_file: Path) -> Iterator[tuple[TokenServer, TokenServer]]:
    directory = tmp_path_factory.mktemp("bearer")
    key_url = f"file:{directory}/keys.json"
    PROVIDER.write(directory / "keys.json", "rsa", "ec", "weak")
    found = [TokenServer(kind, directory / kind.name, servers.HELD) for kind in (servers.apache(), servers.ottla())]
    with pytest.MonkeyPatch.context() as patch:
        # Of Java's server, and of Java's client, which reads its token from a file.
        patch.setenv("JAVA_TOOL_OPTIONS", f"-D{_ALLOWED}={key_url},{token_file.as_uri()}")
        try:
            for server in found:
                server.key_url = key_url
                server.start()
            yield found[0], found[1]
        finally:
            for server in found:
                server.stop()


@pytest.fixture
def pair(both: tuple[TokenServer, TokenServer]) -> Iterator[Oracle]:
    one = Oracle(*both)
    yield one
    one.close()


def now() -> int:
    return int(time.time())


def raw(head: Any, said: Any, signature: str = "AAAA") -> str:
    return f"{part(head)}.{part(said)}.{signature}"


SIGNED: dict[str, Any] = {
    "right": lambda: PROVIDER.token(),
    "right, EC": lambda: PROVIDER.token("ec", "ES256"),
    "right, PSS": lambda: PROVIDER.token("rsa", "PS384"),
    "right, several audiences": lambda: PROVIDER.token(aud=["x", AUDIENCE]),
    "right, scopes": lambda: PROVIDER.token(scope=["a", "b"]),
    "right, spaces around": lambda: PROVIDER.token(sub=" ann "),
    "no key id": lambda: PROVIDER.token(header={"kid": None}),
    "unknown key": lambda: PROVIDER.token("new"),
    "another's key id": lambda: PROVIDER.token("new", header={"kid": "rsa"}),
    "a key id of another kind": lambda: PROVIDER.token("rsa", header={"kid": "ec"}),
    "a weak key": lambda: PROVIDER.token("weak"),
    "ended": lambda: PROVIDER.token(exp=now() - 31),
    "ended within the skew": lambda: PROVIDER.token(iat=now() - 100, exp=now() - 5),
    "not yet": lambda: PROVIDER.token(nbf=now() + 300),
    "ends before it begins": lambda: PROVIDER.token(iat=now() + 3700),
    "issued in times to come": lambda: PROVIDER.token(iat=now() + 300),
    "no end": lambda: PROVIDER.token(exp=None),
    "no beginning": lambda: PROVIDER.token(iat=None),
    "an end that is a text": lambda: PROVIDER.token(exp=str(now() + 300)),
    "an end with a fraction": lambda: PROVIDER.token(exp=now() + 300.5),
    "another audience": lambda: PROVIDER.token(aud="x"),
    "no audience": lambda: PROVIDER.token(aud=None),
    "an audience that is a number": lambda: PROVIDER.token(aud=7),
    "another issuer": lambda: PROVIDER.token(iss="https://evil.example"),
    "no issuer": lambda: PROVIDER.token(iss=None),
    "no user": lambda: PROVIDER.token(sub=None),
    "a blank user": lambda: PROVIDER.token(sub=" "),
    "a blank scope": lambda: PROVIDER.token(scope=""),
    "a scope twice": lambda: PROVIDER.token(scope=["a", "a"]),
    "a scope that is a number": lambda: PROVIDER.token(scope=7),
    "unsecured": lambda: unsecured(),
    "no algorithm": lambda: raw({"kid": "rsa"}, made_claims()),
    "an algorithm of secrets": lambda: raw({"alg": "HS256", "kid": "rsa"}, made_claims()),
    "two parts": lambda: "e30.e30",
    "four parts": lambda: "e30.e30.e30.e30",
    "no token": lambda: "x",
    "no JSON": lambda: raw(b"{", b"{"),
}
UNSECURED: dict[str, Any] = {
    "right": lambda: unsecured(scope=["more", "kafka"]),
    "a scope is missing": lambda: unsecured(scope=["more"]),
    "scopes in one text": lambda: unsecured(scope="kafka more"),
    "no scope": lambda: unsecured(),
    "ended": lambda: unsecured(iat=1, exp=now() - 5, scope=["more", "kafka"]),
    "issued in times to come": lambda: unsecured(iat=now() + 300, scope=["more", "kafka"]),
    "no end": lambda: unsecured(exp=None, scope=["more", "kafka"]),
    "no user": lambda: unsecured(sub=None, scope=["more", "kafka"]),
    "signed": lambda: PROVIDER.token(scope=["more", "kafka"]),
}


def take(side: Side, listener: str, message: bytes, *, over: bool = False) -> None:
    """One sign-in by a message, the byte that ends a refused one, and what comes after it.

    `over`: the token let the client in after its end. Its session is over a moment later, so whether a request still
    comes in time depends on the machine.
    """
    assert isinstance(side.server, TokenServer)
    way = Way(side, side.server.ports[listener])
    way.ask("SaslHandshake", 1, mechanism="OAUTHBEARER")
    answer = way.ask("SaslAuthenticate", 2, auth_bytes=message)
    if answer == CLOSED or answer.error_code:
        return way.connection.close()
    if answer.auth_bytes and way.ask("SaslAuthenticate", 2, auth_bytes=b"\x01") == CLOSED:
        return way.connection.close()
    return way.connection.close() if over else way.end()


@pytest.mark.parametrize("name", SIGNED)
def test_a_signed_token_has_the_same_answer(pair: Oracle, name: str) -> None:
    message = next(bearer(SIGNED[name](), {"group": "blue"}))
    pair.compare(lambda side: take(side, "SIGNED", message, over=name == "ended within the skew"))


@pytest.mark.parametrize(
    "name", ["right", "no audience", "no issuer", "another issuer", "an audience that is a number"]
)
def test_a_token_that_no_one_expects_has_the_same_answer(pair: Oracle, name: str) -> None:
    message = next(bearer(SIGNED[name](), {}))
    pair.compare(lambda side: take(side, "LOOSE", message))


@pytest.mark.parametrize("name", UNSECURED)
def test_an_unsecured_token_has_the_same_answer(pair: Oracle, name: str) -> None:
    message = next(bearer(UNSECURED[name](), {}))
    pair.compare(lambda side: take(side, "UNSECURED", message))


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,\x01auth=Bearer TOKEN\x01",
        b"n,,\x01auth=Bearer TOKEN TOKEN\x01\x01",
        b"n,,\x01group=x\x01\x01",
        b"n,,\x01group=x\x01auth=bearer   TOKEN\x01\x01",
        b"n,a=ann,\x01auth=Bearer TOKEN\x01\x01",
        b"n,a=bob,\x01auth=Bearer TOKEN\x01\x01",
        b"y,,\x01auth=Bearer TOKEN\x01\x01",
    ],
)
def test_a_message_has_the_same_answer(pair: Oracle, message: bytes) -> None:
    right = message.replace(b"TOKEN", PROVIDER.token().encode())
    pair.compare(lambda side: take(side, "SIGNED", right))


@pytest.mark.parametrize("name", ["right", "ended"])
def test_librdkafka_is_let_in_or_told_the_same(both: tuple[TokenServer, TokenServer], name: str) -> None:
    def outcome(server: TokenServer) -> list[str]:
        address = f"127.0.0.1:{server.ports['SIGNED']}"
        errors: list[str] = []
        client = confluent_kafka.admin.AdminClient(
            {
                "bootstrap.servers": address,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "OAUTHBEARER",
                "oauth_cb": lambda config: (SIGNED[name](), time.time() + 300),  # type: ignore[dict-item]
                "error_cb": lambda error: errors.append(f"{error.name()} {error.str()}"),  # type: ignore[dict-item]
            }
        )
        if name == "right":
            client.poll(0)
            return [str(len(client.list_topics(timeout=30).brokers))]
        for _ in range(100):
            client.poll(0.3)
            if errors:
                break
        return [each.replace(address, "server").split("(after")[0] for each in errors[:1]]

    theirs, ours = map(outcome, both)
    assert theirs == ours
    assert theirs


def test_the_java_client_is_let_in_or_told_the_same(
    both: tuple[TokenServer, TokenServer], token_file: Path, tmp_path: Path
) -> None:
    with ApacheTools() as tool:
        for name in ("right", "another audience"):
            token_file.write_text(SIGNED[name]())
            file = tmp_path / "client.properties"
            file.write_text(
                "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
                f"sasl.jaas.config={jaas(_MODULE, {})}\nsasl.oauthbearer.token.endpoint.url={token_file.as_uri()}\n"
                f"sasl.login.callback.handler.class={_PACKAGE}.OAuthBearerLoginCallbackHandler\n"
            )
            said = []
            for each in both:
                address = f"127.0.0.1:{each.ports['SIGNED']}"
                found = tool("kafka-topics", "--bootstrap-server", address, "--list", "--command-config", str(file))
                said.append((found.code, found.out.splitlines()[:1], found.err.splitlines()[:1]))
            assert said[0] == said[1], name
            assert (said[0][0] == 0) is (name == "right"), said


def test_java_and_our_client_ask_for_a_token_in_the_same_way(
    both: tuple[TokenServer, TokenServer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By assertions (KIP-1139): JWT bearer, and client credentials with an assertion in place of the secret."""
    with TokenEndpoint(PROVIDER) as endpoint:
        template = tmp_path / "template.json"
        template.write_text('{"header": {"kid": "mine"}, "payload": {"role": "reader", "iss": "over"}}')
        keys = {each: PROVIDER.key_file(tmp_path, each) for each in ("new", "ec")}
        allowed = f"-D{_ALLOWED}={endpoint.url} -D{_ALLOWED_FILES}={keys['new']},{keys['ec']},{template}"
        monkeypatch.setenv("JAVA_TOOL_OPTIONS", allowed)
        own = "sasl.oauthbearer"
        common = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            f"{own}.token.endpoint.url": endpoint.url,
            f"{own}.assertion.claim.aud": endpoint.url,
            f"{own}.assertion.claim.iss": "a program",
            f"{own}.assertion.claim.sub": "ann",
        }
        ways = {
            "new": {
                f"{own}.jwt.retriever.class": f"{_PACKAGE}.JwtBearerJwtRetriever",
                f"{own}.assertion.template.file": str(template),
                f"{own}.assertion.claim.exp.seconds": "100",
                f"{own}.assertion.claim.nbf.seconds": "7",
                f"{own}.scope": "a b",
            },
            "ec": {
                f"{own}.assertion.algorithm": "ES256",
                f"{own}.assertion.claim.jti.include": "true",
                f"{own}.client.credentials.client.id": "the client",
            },
        }
        file = tmp_path / "client.properties"
        java = {
            "sasl.jaas.config": jaas(_MODULE, {}),
            "sasl.login.callback.handler.class": f"{_PACKAGE}.OAuthBearerLoginCallbackHandler",
        }
        with ApacheTools() as tool:
            for key, way in ways.items():
                endpoint.assertion_key = key
                settings = common | way | {f"{own}.assertion.private.key.file": keys[key]}
                file.write_text("".join(f"{name}={value}\n" for name, value in (settings | java).items()))
                for server in both:
                    address = f"127.0.0.1:{server.ports['SIGNED']}"
                    found = tool("kafka-topics", "--bootstrap-server", address, "--list", "--command-config", str(file))
                    assert found.code == 0, found.err
                    with Admin({**settings, "bootstrap.servers": address}) as admin:
                        admin.list_topics()
                seen = [_shape(each) for each in endpoint.asked]
                endpoint.asked.clear()
                assert len(seen) >= 4
                assert all(each == seen[0] for each in seen), key


def _shape(asked: Asked) -> dict[str, Any]:
    """What was asked, without what is new each time."""
    issued = asked.claims["iat"]
    times = {name: asked.claims[name] - issued for name in ("exp", "nbf", "iat")}
    random = {"jti": len(asked.claims["jti"])} if "jti" in asked.claims else {}
    form = {name: value for name, value in asked.form.items() if not name.endswith("assertion")}
    return {
        "authorization": asked.authorization,
        "form": form,
        "names": sorted(asked.form),
        "header": asked.header,
        "claims": asked.claims | times | random,
    }
