"""Nodes with listeners of TLS, and certificates for their clients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ottla
from tests.client import certificate
from tests.client.certificate import Certificates

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
USERS = f'{MODULE} user_ann="anns secret";'


def settings(certificates: Certificates, **more: str) -> dict[str, str]:
    """A node with PLAINTEXT, SSL that wants certificates, OPEN (SSL that may do without) and SASL_SSL."""
    names = ("PLAINTEXT", "SSL", "OPEN", "SASL_SSL")
    return {
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in (*names, "CONTROLLER")),
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,OPEN:SSL,SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.broker),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.ca),
        "ssl.client.auth": "required",
        "listener.name.open.ssl.client.auth": "requested",
        "listener.name.ssl.ssl.principal.mapping.rules": "RULE:^CN=cl(.*)$/$1/U,DEFAULT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "connection.failed.authentication.delay.ms": "0",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": USERS,
        "authorizer.class.name": AUTHORIZER,
        "super.users": "User:ANONYMOUS;User:ann",
        **more,
    }


def address(node: ottla.Node, listener: str) -> str:
    return node.bootstrap_servers.split(",")[("PLAINTEXT", "SSL", "OPEN", "SASL_SSL").index(listener)]


def client(node: ottla.Node, listener: str, certificates: Certificates, **more: Any) -> dict[str, Any]:
    """The settings of a client without a certificate of its own."""
    return {
        "bootstrap.servers": address(node, listener),
        "security.protocol": "SASL_SSL" if listener == "SASL_SSL" else "SSL",
        "ssl.truststore.location": str(certificates.ca),
        **more,
    }


def signed(
    directory: Path,
    name: str,
    *,
    days: tuple[str, ...] = ("-days", "30"),
    ca: str = "ca",
    names: str = "subjectAltName=IP:127.0.0.1\n",
) -> Path:
    """A certificate with its key, made by a CA of `certificate.make`; `name` is its CN."""
    certificate.run(
        directory, "openssl", "req", *NEW_KEY, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}"
    )
    (directory / f"{name}.ext").write_text(f"{names}authorityKeyIdentifier=keyid\n")
    by = ("-CA", f"{ca}.pem", "-CAkey", f"{ca}.key", "-CAcreateserial", "-extfile", f"{name}.ext", *days)
    certificate.run(directory, "openssl", "x509", "-req", "-in", f"{name}.csr", "-out", f"{name}.crt", *by)
    both = directory / f"{name}.pem"
    both.write_text((directory / f"{name}.key").read_text() + (directory / f"{name}.crt").read_text())
    return both


NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
EXPIRED = certificate.EXPIRED
