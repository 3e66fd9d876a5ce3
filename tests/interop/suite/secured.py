"""A node with a listener of every protocol, for the tests of the suites that want TLS or a sign-in.

Suites are run at it whose clients are told of TLS and SASL by settings or the environment: franz-go's and librdkafka's.
sarama's functional tests have no such setting, and confluent-kafka-python's start a cluster of their own for SASL.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ottla.client import Admin
from ottla.operations.passwords import set_password
from tests.client import certificate
from tests.interop import server as servers
from tests.interop.secured import jaas
from tests.interop.server import SINGLE_NODE, Server
from tests.interop.suite import librdkafka

USER, PASSWORD = "suite", "the suites' own"
#: A session ends so soon that tests of re-authentication need not wait for long.
SESSION_MS = 10_000
_NAMES = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")


class SecuredServer(Server):
    """PLAINTEXT, SSL that wants a certificate, and SASL with and without TLS for `USER`."""

    certificates: certificate.Certificates
    ports: Mapping[str, int]

    def _properties(self, controller_port: int) -> str:
        self.ports = dict(zip(_NAMES, servers.free_ports(len(_NAMES)), strict=True))
        listeners = ",".join([f"PLAINTEXT://127.0.0.1:{self.port}", *(f"{each}://{self.at(each)}" for each in _NAMES)])
        protocols = ",".join(f"{each}:{each}" for each in ("PLAINTEXT", *_NAMES))
        lines = {
            "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": listeners,
            "listener.security.protocol.map": f"{protocols},CONTROLLER:PLAINTEXT",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.certificates.broker),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.certificates.ca),
            "listener.name.ssl.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
            "connections.max.reauth.ms": str(SESSION_MS),
        }
        for name in ("sasl_plaintext", "sasl_ssl"):
            for mechanism in ("scram-sha-256", "scram-sha-512"):
                lines[f"listener.name.{name}.{mechanism}.sasl.jaas.config"] = jaas("scram.ScramLoginModule", {})
        return super()._properties(controller_port) + "".join(f"{name}={value}\n" for name, value in lines.items())

    def at(self, listener: str) -> str:
        return f"127.0.0.1:{self.ports[listener]}"


@contextmanager
def serving(kind: str, settings: Mapping[str, str]) -> Iterator[SecuredServer]:
    """A node for one suite, that knows `USER`."""
    with tempfile.TemporaryDirectory(prefix="ottla-suite-") as name:
        directory = Path(name)
        server = SecuredServer(servers.kind(kind), directory, settings, base=SINGLE_NODE)
        server.certificates = certificate.make(directory / "certificates")
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


def librdkafka_brokers(server: SecuredServer) -> Callable[[str], librdkafka.Broker]:
    """The broker by a test's number: SASL_SSL; the test of certificates has SSL, and stores of each form."""
    files = server.certificates
    by_name = librdkafka.Broker(
        server.at("SASL_SSL"),
        "classic",
        lines={
            "security.protocol": "sasl_ssl",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
            "ssl.ca.location": str(files.ca),
        },
        tools=server.bootstrap,
    )
    by_certificate = librdkafka.Broker(
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
    return lambda number: by_certificate if number in librdkafka.TLS_ALONE else by_name


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
