"""Signing in and TLS, against Apache Kafka: its listeners say who may come in."""

import base64
import json
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from ottla.client import (
    Admin,
    AuthenticationFailed,
    Consumer,
    KafkaError,
    OttlaError,
    Producer,
    ScramCredential,
    ScramMechanism,
    TlsFailed,
)
from ottla.security.sasl import SignIn
from tests.client import certificate
from tests.client.certificate import Certificates
from tests.client.conftest import eventually
from tests.interop import server as servers

pytestmark = [pytest.mark.interop, pytest.mark.timeout(180)]

_JAAS = "org.apache.kafka.common.security"
_PASSWORD = 'p,a=s"s'
_SESSION_MS = 1500


class SecuredServer(servers.Server):
    """Apache Kafka with a listener of each security protocol."""

    certificates: Certificates
    ports: dict[str, int]

    def _properties(self, controller_port: int) -> str:
        self.ports = dict(zip(("SSL", "SASL_SSL", "SASL_PLAINTEXT"), servers.free_ports(3), strict=True))
        everyone = {"PLAINTEXT": self.port, **self.ports}
        listeners = ",".join(f"{name}://127.0.0.1:{port}" for name, port in everyone.items())
        known = _PASSWORD.replace('"', '\\"')
        lines: dict[str, str] = {
            "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": listeners,
            "listener.security.protocol.map": ",".join(f"{name}:{name}" for name in everyone) + ",CONTROLLER:PLAINTEXT",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.certificates.broker),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.certificates.ca),
            "listener.name.ssl.ssl.client.auth": "required",
            "delegation.token.secret.key": "secret",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
            "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.connections.max.reauth.ms": str(_SESSION_MS),
        }
        for listener in ("sasl_ssl", "sasl_plaintext"):
            for mechanism, module in {
                "plain": f'{_JAAS}.plain.PlainLoginModule required user_ann="{known}";',
                "scram-sha-256": f"{_JAAS}.scram.ScramLoginModule required;",
                "scram-sha-512": f"{_JAAS}.scram.ScramLoginModule required;",
                "oauthbearer": f"{_JAAS}.oauthbearer.OAuthBearerLoginModule required "
                'unsecuredLoginStringClaim_sub="b";',
            }.items():
                lines[f"listener.name.{listener}.{mechanism}.sasl.jaas.config"] = module.replace("\\", "\\\\")
        return super()._properties(controller_port) + "".join(f"{name}={value}\n" for name, value in lines.items())

    def at(self, listener: str) -> str:
        return f"127.0.0.1:{self.ports[listener]}"


@dataclass
class Place:
    server: SecuredServer
    certificates: Certificates

    def settings(self, mechanism: str, **more: object) -> dict[str, Any]:
        """Of a client that signs in over TLS."""
        return {
            "bootstrap.servers": self.server.at("SASL_SSL"),
            "security.protocol": "SASL_SSL",
            "ssl.truststore.location": str(self.certificates.ca),
            "sasl.mechanism": mechanism,
            **more,
        }


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    directory = tmp_path_factory.mktemp("secured")
    server = SecuredServer(servers.apache(), directory / "apache")
    server.certificates = certificate.make(directory / "certificates")
    server.start()
    try:
        with Admin(server.bootstrap) as admin:
            for mechanism in ScramMechanism:
                admin.alter_scram_credentials([ScramCredential("ann", mechanism, _PASSWORD)]).check()
        yield Place(server, server.certificates)
    finally:
        server.stop()


def jwt(user: str, seconds: float = 3600) -> str:
    """A token that nobody signed: what Apache's broker takes when it is told of no keys."""

    def part(said: Mapping[str, object]) -> str:
        return base64.urlsafe_b64encode(json.dumps(said).encode()).rstrip(b"=").decode()

    # A broker rounds to milliseconds, and may read a token in the one in which it was made.
    now = time.time()
    return f"{part({'alg': 'none'})}.{part({'sub': user, 'iat': now - 1, 'exp': now + seconds})}."


def _secrets(mechanism: str) -> dict[str, Any]:
    if mechanism == "OAUTHBEARER":
        return {"sasl.oauthbearer.token": lambda: jwt("ann")}
    return {"sasl.username": "ann", "sasl.password": _PASSWORD}


_names = iter(range(1_000_000))


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_a_client_signs_in_and_does_all_its_work(place: Place, mechanism: str) -> None:
    topic = f"signed-in-{next(_names)}"
    settings = place.settings(mechanism, **_secrets(mechanism))
    with Admin(settings) as admin, Producer(settings) as producer:
        admin.create_topic(topic, 2)
        deliveries = [producer.send(topic, b"%d" % n) for n in range(50)]
        producer.flush()
        assert all(delivery.result(30).offset >= 0 for delivery in deliveries)
    settings |= {"group.id": topic, "auto.offset.reset": "earliest"}
    with Consumer(settings) as consumer:
        consumer.subscribe([topic])
        found: list[bytes] = []

        def all_there() -> bool:
            found.extend(one.value for one in consumer.poll(0.5))
            return len(found) >= 50

        eventually(all_there, 60)
        assert sorted(found) == sorted(b"%d" % n for n in range(50))


def test_the_java_clients_own_words_for_user_and_password_are_understood(place: Place) -> None:
    words = _PASSWORD.replace('"', '\\"')
    jaas = f'{_JAAS}.scram.ScramLoginModule required username="ann" password="{words}";'
    with Admin(place.settings("SCRAM-SHA-512", **{"sasl.jaas.config": jaas})) as admin:
        assert admin.describe_cluster().nodes


def test_a_delegation_token_signs_in(place: Place) -> None:
    with Admin(place.settings("SCRAM-SHA-256", **_secrets("SCRAM-SHA-256"))) as admin:
        token = admin.create_delegation_token()
    jaas = (
        f'{_JAAS}.scram.ScramLoginModule required username="{token.id}" '
        f'password="{base64.b64encode(token.hmac).decode()}" tokenauth="true";'
    )

    def lets_in() -> bool:
        # The broker learns of a token after it was confirmed.
        try:
            with Admin(place.settings("SCRAM-SHA-256", **{"sasl.jaas.config": jaas})) as admin:
                return bool(admin.describe_cluster().nodes)
        except AuthenticationFailed:
            return False

    eventually(lets_in)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"])
def test_a_wrong_secret_is_refused_at_once_everywhere(place: Place, mechanism: str) -> None:
    wrong: dict[str, Any] = {"sasl.username": "ann", "sasl.password": "wrong"}
    if mechanism == "OAUTHBEARER":
        wrong = {"sasl.oauthbearer.token": lambda: jwt("ann", -3600)}
    settings = place.settings(mechanism, **wrong)
    began = time.monotonic()
    with Admin(settings) as admin, pytest.raises(AuthenticationFailed, match=r"refuse|failed"):
        admin.list_topics()
    producer = Producer(settings)
    with pytest.raises(AuthenticationFailed):
        producer.send("t", b"v")
    producer.close()
    for more in ({"group.protocol": "classic"}, {"group.protocol": "consumer"}):
        consumer = Consumer({**settings, "group.id": "g", **more})
        consumer.subscribe(["t"])
        with pytest.raises(AuthenticationFailed):
            consumer.poll(60)
        consumer.close()
    assert time.monotonic() - began < 50, "each of them would try for a minute"


def test_a_mechanism_that_the_broker_does_not_offer_is_named_with_those_it_does(place: Place) -> None:
    settings = {
        "bootstrap.servers": place.server.at("SASL_PLAINTEXT"),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        **_secrets("SCRAM-SHA-256"),
    }
    with Admin(settings) as admin, pytest.raises(AuthenticationFailed, match=r"SCRAM-SHA-256: it offers PLAIN$"):
        admin.list_topics()


def test_a_session_that_ends_is_renewed_in_the_middle_of_the_work(
    place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    exchanges = []
    before = SignIn.exchange

    async def counted(sign_in: SignIn, host: str) -> Any:
        exchanges.append(sign_in)
        return await before(sign_in, host)

    monkeypatch.setattr(SignIn, "exchange", counted)
    topic = f"renewed-{next(_names)}"
    with Producer(
        {
            "bootstrap.servers": place.server.at("SASL_PLAINTEXT"),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            **_secrets("PLAIN"),
        },
        linger_ms=0,
    ) as producer:
        producer.send(topic, b"first").result(30)
        first, sent = len(exchanges), 1
        deadline = time.monotonic() + 30
        while len(exchanges) < first + 3 and time.monotonic() < deadline:
            # Many are on their way while the client signs in again.
            several = [producer.send(topic, b"v") for _ in range(20)]
            assert [one.result(30).offset for one in several] == list(range(sent, sent + 20))
            sent += 20
        assert len(exchanges) >= first + 3
        assert producer.metrics().record_retry_total == 0, "a session that ended closed the connection"
    assert not [one for one in caplog.records if one.name == "ottla.client" and "closed" in one.getMessage()]


def test_a_client_shows_its_certificate_where_the_broker_asks_for_one(place: Place) -> None:
    files = place.certificates
    base = {
        "bootstrap.servers": place.server.at("SSL"),
        "security.protocol": "SSL",
        "ssl.truststore.certificates": files.ca.read_text(),
    }
    text = files.client.read_text()
    end = text.index("-----BEGIN CERTIFICATE")
    for shown in (
        {"ssl.keystore.location": str(files.client)},
        {"ssl.keystore.key": text[:end], "ssl.keystore.certificate.chain": text[end:]},
        {
            "ssl.key.location": str(files.client_key),
            "ssl.certificate.location": str(files.client_certificate),
            "ssl.key.password": files.key_password,
        },
    ):
        with Admin({**base, **shown}) as admin:
            assert admin.describe_cluster().nodes
    with Admin(base) as admin, pytest.raises(TlsFailed, match="certificate of the client"):
        admin.list_topics()


def test_a_broker_whose_certificate_is_not_trusted_is_refused_at_once(place: Place) -> None:
    began = time.monotonic()
    settings = place.settings("PLAIN", **_secrets("PLAIN"))
    with (
        Admin({**settings, "ssl.truststore.location": str(place.certificates.stranger)}) as admin,
        pytest.raises(TlsFailed, match=r"not trusted .*ssl\.truststore\.location"),
    ):
        admin.list_topics()
    port = place.server.ports["SASL_SSL"]
    named = {**settings, "bootstrap.servers": f"localhost:{port}"}
    with Admin(named) as admin, pytest.raises(TlsFailed, match="a name that the certificate bears"):
        admin.list_topics()
    assert time.monotonic() - began < 30
    with Admin({**named, "ssl.endpoint.identification.algorithm": ""}) as admin:
        assert admin.describe_cluster().nodes


def test_a_client_on_the_wrong_port_is_told_what_that_port_speaks(place: Place) -> None:
    def said(listener: str, **settings: Any) -> str:
        where = place.server.bootstrap if listener == "PLAINTEXT" else place.server.at(listener)
        with (
            Admin(where, default_api_timeout_ms=3000, **settings) as admin,
            pytest.raises((OttlaError, KafkaError)) as error,
        ):
            admin.list_topics()
        return str(error.value)

    assert "security.protocol" in said("SASL_SSL")
    assert "require authentication (security.protocol)" in said("SASL_PLAINTEXT")
    assert "wants no sign-in" in said(
        "PLAINTEXT", security_protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN", sasl_username="a", sasl_password="b"
    )
    tls = said("PLAINTEXT", security_protocol="SSL", ssl_truststore_location=str(place.certificates.ca))
    assert "security.protocol" in tls


class _TokenEndpoint(BaseHTTPRequestHandler):
    asked: list[tuple[str, str]] = []

    def do_POST(self) -> None:
        form = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.asked.append((self.headers["Authorization"], form))
        good = self.headers["Authorization"] == "Basic " + base64.b64encode(b"me:s%2Fecret").decode()
        body = json.dumps({"access_token": jwt("ann"), "expires_in": 3600} if good else {"error": "invalid_client"})
        self.send_response(200 if good else 401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[str]:
    _TokenEndpoint.asked.clear()
    with HTTPServer(("127.0.0.1", 0), _TokenEndpoint) as http:
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}/token"
        http.shutdown()
        thread.join()


def test_a_token_is_fetched_for_an_id_and_a_secret_once(place: Place, endpoint: str) -> None:
    words: dict[str, Any] = {
        "sasl.oauthbearer.token.endpoint.url": endpoint,
        "sasl.oauthbearer.client.credentials.client.id": "me",
        "sasl.oauthbearer.client.credentials.client.secret": "s/ecret",
        "sasl.oauthbearer.scope": "kafka",
    }
    topic = f"token-{next(_names)}"
    with Producer(place.settings("OAUTHBEARER", **words)) as producer:
        producer.send(topic, b"v").result(30)
    assert [form for _, form in _TokenEndpoint.asked] == ["grant_type=client_credentials&scope=kafka"]
    wrong = words | {"sasl.oauthbearer.client.credentials.client.secret": "wrong"}
    with Admin(place.settings("OAUTHBEARER", **wrong)) as admin, pytest.raises(KafkaError, match="401"):
        admin.list_topics()


def test_a_secret_stands_in_no_representation_of_the_settings(place: Place, tmp_path: Path) -> None:
    with Producer(place.settings("PLAIN", **_secrets("PLAIN"))) as producer:
        assert _PASSWORD not in repr(producer.settings)
