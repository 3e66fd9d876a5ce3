"""A node with a listener of every protocol, for the tests of the suites that want TLS or a sign-in."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from ottla.client import Admin
from ottla.operations.passwords import set_password
from tests.client import certificate
from tests.interop import server as servers
from tests.interop.secured import jaas
from tests.interop.server import SINGLE_NODE, Server
from tests.interop.suite import librdkafka
from tests.interop.suite.token_server import CLIENT, KEY_PASSWORD, TokenServer
from tests.security.token_scene import AUDIENCE, ISSUER

#: A test of confluent-kafka-python's gives rules to the user of this name.
USER, PASSWORD = "sasl_user", "the suites' own"
#: A session ends so soon that tests of re-authentication need not wait for long.
SESSION_MS = 10_000
#: Listeners by their security protocol. TOKENS takes a provider's tokens, UNSIGNED those that no key signed.
_LISTENERS = {
    "PLAINTEXT": "PLAINTEXT",
    "SSL": "SSL",
    "SASL_PLAINTEXT": "SASL_PLAINTEXT",
    "SASL_SSL": "SASL_SSL",
    "TOKENS": "SASL_SSL",
    "UNSIGNED": "SASL_PLAINTEXT",
}
_BEARER = "org.apache.kafka.common.security.oauthbearer"
_ALLOWED = "org.apache.kafka.sasl.oauthbearer.allowed.urls"


class SecuredServer(Server):
    """PLAINTEXT, SSL that wants a certificate, SASL with and without TLS for `USER`, and SASL for tokens."""

    certificates: certificate.Certificates
    tokens: TokenServer
    ports: Mapping[str, int]
    #: host:port by the listener, where clients are told of another one than its own
    advertised: Mapping[str, str]

    def _properties(self, controller_port: int) -> str:
        ports = [self.port, *servers.free_ports(len(_LISTENERS) - 1)]
        self.ports = dict(zip(_LISTENERS, ports, strict=True))
        listeners = ",".join(f"{each}://{self.at(each)}" for each in _LISTENERS)
        lines = {
            "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": ",".join(
                f"{each}://{self.advertised.get(each, self.at(each))}" for each in _LISTENERS
            ),
            "listener.security.protocol.map": ",".join(
                f"{name}:{protocol}" for name, protocol in {**_LISTENERS, "CONTROLLER": "PLAINTEXT"}.items()
            ),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.certificates.broker),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.certificates.ca),
            "listener.name.ssl.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "connections.max.reauth.ms": str(SESSION_MS),
            "sasl.oauthbearer.jwks.endpoint.url": self.tokens.keys,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "sasl.oauthbearer.expected.issuer": ISSUER,
            _ALLOWED: self.tokens.keys,
        }
        for name in ("sasl_plaintext", "sasl_ssl"):
            lines[f"listener.name.{name}.plain.sasl.jaas.config"] = jaas(
                "plain.PlainLoginModule", {f"user_{USER}": PASSWORD}
            )
            for mechanism in ("scram-sha-256", "scram-sha-512"):
                lines[f"listener.name.{name}.{mechanism}.sasl.jaas.config"] = jaas("scram.ScramLoginModule", {})
        for name, validator in (
            ("tokens", "OAuthBearerValidatorCallbackHandler"),
            ("unsigned", "internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"),
        ):
            own = f"listener.name.{name}"
            lines[f"{own}.sasl.enabled.mechanisms"] = "OAUTHBEARER"
            lines[f"{own}.oauthbearer.sasl.jaas.config"] = jaas("oauthbearer.OAuthBearerLoginModule", {})
            lines[f"{own}.oauthbearer.sasl.server.callback.handler.class"] = f"{_BEARER}.{validator}"
        return super()._properties(controller_port) + "".join(f"{name}={value}\n" for name, value in lines.items())

    def at(self, listener: str) -> str:
        return f"127.0.0.1:{self.ports[listener]}"


@contextmanager
def serving(
    kind: str, settings: Mapping[str, str], advertised: Mapping[str, str] | None = None
) -> Iterator[SecuredServer]:
    """A node for one suite, that knows `USER`, and the provider whose tokens it takes."""
    with (
        tempfile.TemporaryDirectory(prefix="ottla-suite-") as name,
        TokenServer(Path(name)) as tokens,
        pytest.MonkeyPatch.context() as patch,
    ):
        directory = Path(name)
        server = SecuredServer(servers.kind(kind), directory, settings, base=SINGLE_NODE)
        server.certificates = certificate.make(directory / "certificates")
        server.tokens = tokens
        server.advertised = advertised or {}
        # Of Apache's server.
        patch.setenv("JAVA_TOOL_OPTIONS", f"-D{_ALLOWED}={tokens.keys}")
        server.start()
        try:
            with Admin(server.bootstrap) as admin:
                set_password(admin, USER, PASSWORD)
            yield server
        finally:
            server.stop()


def kgo_settings(server: SecuredServer) -> dict[str, str]:
    """All of franz-go's tests use TLS with a certificate; two of them SCRAM without it."""
    files = server.certificates
    key = files.client_certificate.with_name("client.key")
    return {
        "KGO_TEST_TLS": f"ca:{files.ca},cert:{files.client_certificate},key:{key}",
        "KGO_TEST_SCRAM": f"{USER}:{PASSWORD}:256",
        "KGO_TEST_SCRAM_SEEDS": server.at("SASL_PLAINTEXT"),
    }


def sarama_settings(server: SecuredServer) -> dict[str, str]:
    return {
        "SARAMA_TEST_CA": str(server.certificates.ca),
        "SARAMA_TEST_USER": USER,
        "SARAMA_TEST_PASSWORD": PASSWORD,
    }


def by_password(server: SecuredServer, mechanism: str = "PLAIN") -> dict[str, str]:
    """How a client of librdkafka's settings comes in at SASL_SSL."""
    return {
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": mechanism,
        "sasl.username": USER,
        "sasl.password": PASSWORD,
        "ssl.ca.location": str(server.certificates.ca),
    }


def librdkafka_brokers(server: SecuredServer) -> Callable[[str], librdkafka.Broker]:
    """The broker by a test's number: SASL_SSL; the test of certificates has SSL, and stores of each form; the test of
    OIDC has TOKENS, and a provider.
    """
    found = dict.fromkeys(librdkafka.TLS_ALONE, _by_certificate(server))
    found |= dict.fromkeys(librdkafka.OIDC, _by_token(server))
    lines = by_password(server, "SCRAM-SHA-512")
    by_name = librdkafka.Broker(server.at("SASL_SSL"), "classic", lines=lines, tools=server.bootstrap)
    return lambda number: found.get(number, by_name)


def _by_certificate(server: SecuredServer) -> librdkafka.Broker:
    files = server.certificates
    return librdkafka.Broker(
        server.at("SSL"),
        "classic",
        lines={
            "security.protocol": "ssl",
            "ssl.ca.location": str(files.ca),
            "ssl.key.location": str(files.client_key),
            "ssl.key.password": files.key_password,
            "ssl.certificate.location": str(files.client_certificate),
        },
        environment=_forms(files),
        tools=server.bootstrap,
    )


def _by_token(server: SecuredServer) -> librdkafka.Broker:
    tokens = server.tokens
    return librdkafka.Broker(
        server.at("TOKENS"),
        "classic",
        lines={
            "security.protocol": "sasl_ssl",
            "ssl.ca.location": str(server.certificates.ca),
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "OIDC",
            "sasl.oauthbearer.token.endpoint.url": tokens.url("valid"),
            "sasl.oauthbearer.client.id": CLIENT[0],
            "sasl.oauthbearer.client.secret": CLIENT[1],
            "sasl.oauthbearer.scope": "test",
            # Its sub-tests together have the time of one.
            "test.timeout.multiplier": "10",
        },
        environment={
            "VALID_OIDC_URL": tokens.url("valid"),
            "INVALID_OIDC_URL": tokens.url("forged"),
            "EXPIRED_TOKEN_OIDC_URL": tokens.url("expired"),
            "OAUTHBEARER_CLIENT_PRIVATE_KEY": tokens.client_key,
            "OAUTHBEARER_CLIENT_PRIVATE_KEY_ENCRYPTED": tokens.client_key_encrypted,
            "OAUTHBEARER_CLIENT_PRIVATE_KEY_PASSWORD": KEY_PASSWORD,
        },
        tools=server.bootstrap,
    )


def confluent_clusters(server: SecuredServer) -> dict[str, dict[str, str]]:
    """The settings of clients by what the suite's fixtures call the cluster."""
    return {
        "byo": {"bootstrap.servers": server.at("SASL_SSL"), **by_password(server, "SCRAM-SHA-256")},
        "sasl": {"bootstrap.servers": server.at("SASL_SSL"), **by_password(server)},
        "trivup": {
            "bootstrap.servers": server.at("UNSIGNED"),
            "security.protocol": "sasl_plaintext",
            "sasl.mechanism": "OAUTHBEARER",
        },
    }


def java_settings(server: SecuredServer) -> dict[str, str]:
    """How a Java client comes in at SASL_SSL, by SCRAM."""
    return {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(server.certificates.ca),
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": jaas("scram.ScramLoginModule", {"username": USER, "password": PASSWORD}).replace(
            "\\\\", "\\"
        ),
    }


def _forms(files: certificate.Certificates) -> dict[str, str]:
    """The client's key and certificate, and the authority's, in the forms and under the names of librdkafka's tests."""
    directory = files.ca.parent
    every, pkcs = directory / "every-ca.pem", directory / "client.p12"
    every.write_text(files.ca.read_text() + files.stranger.read_text())
    password = ("-passout", f"pass:{files.key_password}")
    for words in (
        ("pkcs12", "-export", "-in", "client.pem", "-certfile", "ca.pem", "-out", pkcs.name, *password),
        ("x509", "-in", "client.crt", "-outform", "DER", "-out", "client.crt.der"),
        ("x509", "-in", "ca.pem", "-outform", "DER", "-out", "ca.der"),
        ("pkey", "-in", "client.key", "-outform", "DER", "-out", "client.key.der"),
    ):
        subprocess.run(("openssl", *words), cwd=directory, check=True, capture_output=True)
    return {
        "SSL_pkcs": str(pkcs),
        "SSL_pub_der": f"{directory}/client.crt.der",
        "SSL_pub_pem": str(files.client_certificate),
        "SSL_priv_der": f"{directory}/client.key.der",
        "SSL_priv_pem": str(files.client_key),
        "SSL_ca_der": f"{directory}/ca.der",
        "SSL_all_cas_pem": str(every),
        "SSL_password": files.key_password,
    }
