"""What a node counts of those who sign in: by SASL, by a certificate, again, and not at all."""

from __future__ import annotations

import contextlib
import socket
import ssl
from pathlib import Path

import pytest

import ottla
from ottla.client import Admin, AuthenticationFailed, TlsFailed
from ottla.kernel.error import ErrorCode, OttlaError
from ottla.wire.api.metadata import MetadataRequest
from tests.broker import sasl_scene, tls_scene
from tests.broker.test_observe import SETTINGS, scraped
from tests.broker.wire_client import WireClient
from tests.client import certificate

_PREFIX = "kafka_server_socket_server_metrics_"
_NAMES = (
    "successful_authentication_total",
    "failed_authentication_total",
    "successful_reauthentication_total",
    "failed_reauthentication_total",
    "expired_connections_killed_count",
)
_SESSION_MS = 60_000


def counted(node: ottla.Node) -> dict[str, tuple[float, ...]]:
    """Listener -> its counts, in the order of `_NAMES`."""
    samples = {(name, dict(words).get("listener")): value for (name, words), value in scraped(node).items()}
    listeners = {listener for name, listener in samples if name == _PREFIX + _NAMES[0] and listener}
    return {listener: tuple(samples[_PREFIX + name, listener] for name in _NAMES) for listener in listeners}


def test_sign_ins_count_once_and_each_for_its_listener() -> None:
    with ottla.Node(settings=sasl_scene.SETTINGS | SETTINGS) as node:
        assert counted(node) == {"SASL_PLAINTEXT": (0, 0, 0, 0, 0)}
        for mechanism, password in (("PLAIN", sasl_scene.PASSWORD), ("PLAIN", "wrong"), ("SCRAM-SHA-256", "none")):
            with WireClient(sasl_scene.secured(node)) as client:
                sasl_scene.sign_in(client, mechanism, "ann", password)
        with WireClient(sasl_scene.secured(node)) as client:
            assert sasl_scene.sign_in(client, "GSSAPI", "ann").error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        with WireClient(sasl_scene.plaintext(node)) as client:
            assert client.ask(MetadataRequest(topics=[]), 12).brokers
        assert counted(node) == {"SASL_PLAINTEXT": (1, 3, 0, 0, 0)}


def test_renewals_and_ends_of_sessions_are_counted_apart() -> None:
    limited = sasl_scene.SETTINGS | SETTINGS | {"connections.max.reauth.ms": str(_SESSION_MS)}
    with ottla.Node(settings=limited) as node:
        with WireClient(sasl_scene.secured(node)) as client:
            assert sasl_scene.sign_in(client, "PLAIN", "ann").error_code == 0
            node.clock.advance(_SESSION_MS // 2)
            assert sasl_scene.sign_in(client, "PLAIN", "ann").error_code == 0
            assert counted(node)["SASL_PLAINTEXT"] == (1, 0, 1, 0, 0)
            node.clock.advance(_SESSION_MS + 5000)
            client.send(MetadataRequest(topics=[]), 12)
            with pytest.raises(ConnectionError):
                client.receive_frame()
        assert counted(node)["SASL_PLAINTEXT"] == (1, 0, 1, 0, 1)
        with WireClient(sasl_scene.secured(node)) as client:
            assert sasl_scene.sign_in(client, "PLAIN", "ann").error_code == 0
            assert sasl_scene.sign_in(client, "PLAIN", "ann", "wrong").error_code
        assert counted(node)["SASL_PLAINTEXT"] == (2, 0, 1, 1, 1)


def test_handshakes_count_where_no_sasl_follows(tmp_path: Path) -> None:
    files = certificate.make(tmp_path)
    shown = {"ssl.keystore.location": str(files.client)}
    users = {"sasl.mechanism": "PLAIN", "sasl.username": "ann", "sasl.password": "anns secret"}
    with ottla.Node(settings=tls_scene.settings(files) | SETTINGS) as node:
        with WireClient(tls_scene.address(node, "PLAINTEXT")) as client:
            assert client.ask(MetadataRequest(topics=[]), 12).brokers
        with Admin(tls_scene.client(node, "SSL", files, **shown)) as admin:
            admin.list_topics()
        with Admin(tls_scene.client(node, "SSL", files)) as admin, pytest.raises(TlsFailed):
            admin.list_topics()
        with Admin(tls_scene.client(node, "SASL_SSL", files, **users)) as admin:
            admin.list_topics()
        wrong = tls_scene.client(node, "SASL_SSL", files, **users | {"sasl.password": "wrong"})
        with Admin(wrong) as admin, pytest.raises(AuthenticationFailed):
            admin.list_topics()
        found = counted(node)
        assert set(found) == {"SSL", "OPEN", "SASL_SSL"}
        for listener in ("SSL", "SASL_SSL"):
            successful, failed, *others = found[listener]
            assert successful >= 1 and failed >= 1 and others == [0, 0, 0]
        assert found["OPEN"] == (0, 0, 0, 0, 0)


def client_hello() -> bytes:
    """The beginning of a handshake, and a peer's word that it leaves (close_notify)."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="node")
    with contextlib.suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read() + b"\x15\x03\x03\x00\x02\x01\x00"


@pytest.mark.parametrize(("said", "failed"), [(b"", 0), (client_hello(), 0), (b"GET / HTTP/1.1\r\n\r\n", 1)])
def test_who_leaves_before_the_end_of_a_handshake_is_not_refused(tmp_path: Path, said: bytes, failed: int) -> None:
    files = certificate.make(tmp_path)
    settings = tls_scene.settings(files) | SETTINGS | {"ssl.enabled.protocols": "TLSv1.2"}
    with ottla.Node(settings=settings) as node:
        host, _, port = tls_scene.address(node, "OPEN").rpartition(":")
        with socket.create_connection((host, int(port)), timeout=20) as sock:
            sock.sendall(said)
            sock.shutdown(socket.SHUT_WR)
            # The node has closed the connection by then.
            while sock.recv(1000):
                pass
        assert counted(node)["OPEN"] == (0, failed, 0, 0, 0)


def test_a_certificate_that_no_rule_names_is_refused(tmp_path: Path) -> None:
    files = certificate.make(tmp_path)
    rules = {"listener.name.ssl.ssl.principal.mapping.rules": "RULE:^CN=nobody$/nobody/"}
    with ottla.Node(settings=tls_scene.settings(files, **rules) | SETTINGS) as node:
        shown = {"ssl.keystore.location": str(files.client), "default.api.timeout.ms": 1000, "request.timeout.ms": 500}
        with Admin(tls_scene.client(node, "SSL", files, **shown)) as admin, pytest.raises(OttlaError):
            admin.list_topics()
        successful, failed, *_ = counted(node)["SSL"]
        assert successful == 0 and failed >= 1
