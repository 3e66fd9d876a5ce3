"""Listeners of SSL and SASL_SSL: who comes in, under which name, and what a node says of settings that cannot be."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ottla
from ottla.client import (
    Acl,
    AclOperation,
    AclResource,
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
from tests.broker.tls_scene import EXPIRED, address, client, settings, signed
from tests.client import certificate
from tests.client.certificate import Certificates


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return certificate.make(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def node(files: Certificates) -> Iterator[ottla.Node]:
    with ottla.Node(settings=settings(files)) as node, Admin(address(node, "PLAINTEXT")) as admin:
        admin.alter_scram_credentials([ScramCredential("ann", ScramMechanism.SCRAM_SHA_512, "anns other")]).check()
        yield node


def does_its_work(settings: dict[str, Any], topic: str) -> None:
    with Producer(settings) as producer:
        deliveries = [producer.send(topic, b"%d" % n * 1000) for n in range(200)]
        producer.flush()
        assert all(delivery.result(30).offset >= 0 for delivery in deliveries)
    with Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe([topic])
        found: list[bytes] = []
        while len(found) < 200:
            found += [one.value for one in consumer.poll(10)]
    assert sorted(found) == sorted(b"%d" % n * 1000 for n in range(200))


def test_a_client_with_a_certificate_has_its_name(node: ottla.Node, files: Certificates) -> None:
    shown = client(node, "SSL", files, **{"ssl.keystore.location": str(files.client)})
    with Admin(address(node, "PLAINTEXT")) as admin:
        admin.create_topic("certified", 2)
        with Producer(shown) as denied, pytest.raises(KafkaError, match="TOPIC_AUTHORIZATION_FAILED"):
            denied.send("certified", b"v").result(20)
        # cl(.*) -> $1/U of CN=client
        for kind, name in ((AclResource.TOPIC, "certified"), (AclResource.GROUP, "certified")):
            admin.create_acls([Acl(kind, name, "User:IENT", AclOperation.ALL)]).check()
    does_its_work(shown, "certified")


def test_without_a_certificate_one_is_anonymous_where_none_is_required(node: ottla.Node, files: Certificates) -> None:
    with Admin(client(node, "OPEN", files)) as admin:
        admin.create_topic("open", 1)
    does_its_work(client(node, "OPEN", files), "open")
    # DEFAULT: the distinguished name itself, which may do nothing.
    shown = client(node, "OPEN", files, **{"ssl.keystore.location": str(files.client)})
    with Admin(shown) as admin:
        assert not admin.list_topics()
    with Admin(address(node, "PLAINTEXT")) as admin:
        admin.create_acls([Acl(AclResource.TOPIC, "open", "User:CN=client", AclOperation.DESCRIBE)]).check()
    with Admin(shown) as admin:
        assert [each.name for each in admin.list_topics()] == ["open"]


@pytest.mark.parametrize(("mechanism", "password"), [("PLAIN", "anns secret"), ("SCRAM-SHA-512", "anns other")])
def test_a_client_signs_in_over_tls(node: ottla.Node, files: Certificates, mechanism: str, password: str) -> None:
    said = {"sasl.mechanism": mechanism, "sasl.username": "ann", "sasl.password": password}
    topic = f"sasl-{mechanism}"
    with Admin(client(node, "SASL_SSL", files, **said)) as admin:
        admin.create_topic(topic, 1)
    does_its_work(client(node, "SASL_SSL", files, **said), topic)
    wrong = {**said, "sasl.password": "wrong"}
    with Admin(client(node, "SASL_SSL", files, **wrong)) as admin, pytest.raises(AuthenticationFailed):
        admin.list_topics()


def test_who_has_no_right_certificate_is_not_let_in(node: ottla.Node, files: Certificates) -> None:
    directory = files.ca.parent
    unknown = signed(directory, "unknown", ca="stranger")
    late = signed(directory, "late", days=EXPIRED)
    for more in ({}, {"ssl.keystore.location": str(unknown)}, {"ssl.keystore.location": str(late)}):
        with Admin(client(node, "SSL", files, **more)) as admin, pytest.raises(TlsFailed):
            admin.list_topics()
    with Admin(client(node, "OPEN", files, **{"ssl.keystore.location": str(late)})) as admin, pytest.raises(TlsFailed):
        admin.list_topics()


def test_a_client_trusts_and_knows_whom_it_meets(node: ottla.Node, files: Certificates) -> None:
    wrong_ca = client(node, "OPEN", files) | {"ssl.truststore.location": str(files.stranger)}
    with Admin(wrong_ca) as admin, pytest.raises(TlsFailed, match="not trusted"):
        admin.list_topics()
    port = address(node, "OPEN").rpartition(":")[2]
    wrong_host = client(node, "OPEN", files) | {"bootstrap.servers": f"localhost:{port}"}
    with Admin(wrong_host) as admin, pytest.raises(TlsFailed, match="a name that the certificate bears"):
        admin.list_topics()


def test_renegotiation_is_refused(node: ottla.Node, files: Certificates) -> None:
    done = certificate.met(address(node, "OPEN"), files.ca, "-tls1_2", said="R\n")
    assert "Cipher is ECDHE" in done.stdout
    assert "no renegotiation" in done.stderr


def test_settings_of_tls_hold(files: Certificates) -> None:
    suite = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
    more = {
        "ssl.enabled.protocols": "TLSv1.2,TLSv1.3",
        "listener.name.open.ssl.cipher.suites": suite,
        "listener.name.ssl.ssl.enabled.protocols": "TLSv1.3",
    }
    with ottla.Node(settings=settings(files, **more)) as node:

        def agreed(listener: str, *words: str) -> str:
            return certificate.met(address(node, listener), files.ca, *words).stdout

        assert "Cipher is ECDHE-ECDSA-AES128-GCM-SHA256" in agreed("OPEN")
        assert "Cipher is (NONE)" in agreed("OPEN", "-cipher", "ECDHE-ECDSA-AES256-GCM-SHA384")
        assert "Cipher is (NONE)" in agreed("SSL", "-tls1_2")
        assert "TLSv1.3, Cipher is TLS_" in agreed("SSL", "-tls1_3")
        assert "Cipher is (NONE)" in agreed("SASL_SSL", "-tls1_1")


def java_stores(files: Certificates, directory: Path) -> dict[str, str]:
    """The broker's key in PKCS12, and its CA in JKS."""
    directory.mkdir()
    word = "store secret"
    command = ("openssl", "pkcs12", "-export", "-in", str(files.broker), "-out", "key.p12", "-passout", f"pass:{word}")
    certificate.run(directory, *command)
    options = ("-noprompt", "-storetype", "JKS", "-keystore", "trust.jks", "-storepass", word)
    certificate.keytool(directory, "-importcert", "-alias", "ca", "-file", str(files.ca), *options)
    return {
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(directory / "key.p12"),
        "ssl.keystore.password": word,
        "ssl.truststore.type": "JKS",
        "ssl.truststore.location": str(directory / "trust.jks"),
        "ssl.truststore.password": word,
    }


def test_stores_of_java_and_inline_pem_are_read(files: Certificates, tmp_path: Path) -> None:
    text = files.broker.read_text()
    end = text.index("-----BEGIN CERTIFICATE")
    inline = {
        "ssl.keystore.location": "",
        "ssl.keystore.key": text[:end],
        "ssl.keystore.certificate.chain": text[end:],
        "ssl.truststore.location": "",
        "ssl.truststore.certificates": files.ca.read_text(),
    }
    for more in (java_stores(files, tmp_path / "java"), inline):
        with ottla.Node(settings=settings(files, **more)) as node:
            shown = client(node, "OPEN", files)
            with Admin(shown) as admin:
                admin.create_topic("t", 1)
            with Admin(client(node, "SSL", files)) as admin, pytest.raises(TlsFailed):
                admin.list_topics()


#: What is wrong -> what the node says.
MISTAKES = [
    ({"ssl.keystore.location": ""}, r"the listener SSL has no certificate: name its key store in .*ssl\.keystore"),
    ({"ssl.keystore.location": "/nowhere.pem"}, r"the store /nowhere\.pem cannot be read: No such file"),
    ({"ssl.keystore.password": "p"}, r"a PEM key store has no ssl\.keystore\.password"),
    ({"ssl.keystore.type": "JKS"}, r"ssl\.keystore\.location=.* needs ssl\.keystore\.password"),
    ({"ssl.truststore.type": "JKS"}, r"is no PKCS12 or JKS store"),
    ({"ssl.enabled.protocols": "TLSv1.1"}, r"the TLS version TLSv1\.1 is not served; versions are TLSv1\.2, TLSv1\.3"),
    ({"ssl.enabled.protocols": "TLSv1.3", "ssl.protocol": "TLSv1.2"}, r"leave no version of TLS"),
    ({"ssl.cipher.suites": "TLS_RSA_WITH_NOTHING"}, r"OpenSSL has no suite TLS_RSA_WITH_NOTHING"),
    ({"ssl.cipher.suites": "TLS_AES_256_GCM_SHA384"}, r"can be allowed together only"),
    ({"ssl.principal.mapping.rules": "RULE:x"}, r"ssl\.principal\.mapping\.rules: 'RULE:x' cannot be read"),
    ({"ssl.engine.factory.class": "org.example.Engine"}, r"ssl\.engine\.factory\.class is set, .* does not run Java"),
    ({"ssl.client.auth": "maybe"}, r"ssl\.client\.auth"),
    (
        {"ssl.endpoint.identification.algorithm": "htttps"},
        r"invalid value for ssl\.endpoint\.identification\.algorithm: htttps \(expected https, or nothing",
    ),
]


@pytest.mark.parametrize(("wrong", "said"), MISTAKES, ids=[str(next(iter(each[0].items()))) for each in MISTAKES])
def test_a_setting_that_cannot_be_is_told_in_a_line(files: Certificates, wrong: dict[str, str], said: str) -> None:
    with pytest.raises(OttlaError, match=said) as told, ottla.Node(settings=settings(files, **wrong)):
        pass
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("label", ["X509 CERTIFICATE", "TRUSTED CERTIFICATE"])
def test_a_certificate_is_read_under_each_name_that_openssl_knows(
    files: Certificates, tmp_path: Path, label: str
) -> None:
    store = tmp_path / "broker.pem"
    store.write_text(files.broker.read_text().replace(" CERTIFICATE-", f" {label}-"))
    with (
        ottla.Node(settings=settings(files, **{"ssl.keystore.location": str(store)})) as node,
        Admin(client(node, "OPEN", files)) as admin,
    ):
        admin.list_topics()


def test_a_key_with_another_password_is_told_without_it(files: Certificates) -> None:
    text = files.client_key.read_text() + files.client_certificate.read_text()
    more = {"ssl.keystore.location": "", "ssl.keystore.key": text, "ssl.keystore.certificate.chain": text}
    with pytest.raises(OttlaError, match=r"is ssl\.key\.password right\?") as told:
        ottla.Node(settings=settings(files, **more, **{"ssl.key.password": "not it"})).start()
    assert "not it" not in str(told.value)
    with ottla.Node(settings=settings(files, **more, **{"ssl.key.password": files.key_password})):
        pass


def test_plaintext_on_a_tls_port_and_half_a_handshake_cost_their_connection_only(
    node: ottla.Node, files: Certificates
) -> None:
    host, _, port = address(node, "OPEN").rpartition(":")
    with contextlib.ExitStack() as held:
        for said in (b"\0\0\0\x10\0\x12\0\x03\0\0\0\1\0\0", b"", b"\x16\x03\x01"):
            sock = held.enter_context(socket.create_connection((host, int(port)), timeout=30))
            sock.sendall(said)
            if said.startswith(b"\0"):
                # An alert, and the end.
                while sock.recv(100):
                    pass
        with Admin(client(node, "OPEN", files)) as admin:
            assert admin.describe_cluster().nodes
