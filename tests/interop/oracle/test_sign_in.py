"""Signing in, beside Apache Kafka: raw requests, the Java client and librdkafka, right and wrong."""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka.admin
import pytest

from ottla.client import Admin, ScramCredential, ScramMechanism
from ottla.security.sasl import plain
from ottla.security.scram import scram
from tests.client.conftest import eventually
from tests.interop import server as servers
from tests.interop.apache_tool import ApacheTools
from tests.interop.oracle.side import CLOSED, Connection, Oracle, Side, frame, message
from tests.interop.secured import PASSWORD, SaslServer, jaas

pytestmark = pytest.mark.interop

MECHANISMS = ("PLAIN", "SCRAM-SHA-256")


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SaslServer, SaslServer]]:
    directory = tmp_path_factory.mktemp("sasl")
    found = [SaslServer(kind, directory / kind.name, servers.HELD) for kind in (servers.apache(), servers.ottla())]
    try:
        for server in found:
            server.start()
            with Admin(server.bootstrap) as admin:
                admin.alter_scram_credentials([ScramCredential("ann", ScramMechanism.SCRAM_SHA_256, PASSWORD)]).check()
                # Apache's broker knows a credential a moment after its controller.
                await_credential(server)
        yield found[0], found[1]
    finally:
        for server in found:
            server.stop()


@pytest.fixture
def pair(both: tuple[SaslServer, SaslServer]) -> Iterator[Oracle]:
    one = Oracle(*both)
    yield one
    one.close()


def await_credential(server: SaslServer) -> None:
    def lets_in() -> bool:
        connection = Connection(server.sasl_port)
        try:
            return sign_in(connection, "SCRAM-SHA-256", "ann", PASSWORD) == 0
        finally:
            connection.close()

    eventually(lets_in)


def sign_in(connection: Connection, mechanism: str, user: str, password: str) -> int:
    """The error code that ended it, 0 when it is through."""
    connection.ask(message("SaslHandshake", mechanism=mechanism), 1)
    exchange = plain(user, password) if mechanism == "PLAIN" else scram(mechanism, user, password, "nonce")
    token = next(exchange)
    while True:
        answer = connection.ask(message("SaslAuthenticate", auth_bytes=token), 2)
        if answer == CLOSED or answer.error_code:
            return -1 if answer == CLOSED else int(answer.error_code)
        try:
            token = exchange.send(bytes(answer.auth_bytes))
        except StopIteration:
            return 0


class Way:
    """One connection to a side's SASL listener, whose answers are noted."""

    def __init__(self, side: Side, port: int | None = None) -> None:
        if port is None:
            assert isinstance(side.server, SaslServer)
            port = side.server.sasl_port
        self.side = side
        self.connection = Connection(port)

    def ask(self, name: str, version: int, **values: Any) -> Any:
        reply = self.connection.ask(message(name, **values), version)
        if name == "SaslAuthenticate" and reply != CLOSED and bytes(reply.auth_bytes)[:2] in (b"r=", b"v="):
            # Nonces and salts differ.
            reply.auth_bytes = reply.auth_bytes[:2]
        if getattr(reply, "session_lifetime_ms", 0):
            # A token's life counts from when it is looked at.
            reply.session_lifetime_ms = round(reply.session_lifetime_ms, -5)
        if name in ("Metadata", "ApiVersions") and reply != CLOSED:
            reply = "answered" if not getattr(reply, "error_code", 0) else reply.error_code
        self.side.note(f"{name} v{version}", reply, version)
        return reply

    def end(self) -> None:
        """What comes after all that was asked: the side closes, or it does not."""
        self.connection.send(frame(message("Metadata", topics=[]), 12, 99))
        try:
            said = self.connection.reply()
        except (BrokenPipeError, ConnectionResetError):
            said = None
        self.side.note("at the end", "closed" if said is None else "open")
        self.connection.close()


def first(user: str) -> bytes:
    return f"n,,n={user},r=x".encode()


SCENES: dict[str, list[tuple[str, int, dict[str, Any]]]] = {
    "right": [
        ("ApiVersions", 3, {"client_software_name": "t", "client_software_version": "1"}),
        ("SaslHandshake", 1, {"mechanism": "PLAIN"}),
        ("SaslAuthenticate", 2, {"auth_bytes": f"\0ann\0{PASSWORD}".encode()}),
        ("Metadata", 12, {"topics": []}),
        ("SaslHandshake", 1, {"mechanism": "PLAIN"}),
        ("SaslAuthenticate", 2, {"auth_bytes": b""}),
    ],
    "own authorization": [
        ("SaslHandshake", 1, {"mechanism": "PLAIN"}),
        ("SaslAuthenticate", 0, {"auth_bytes": f"ann\0ann\0{PASSWORD}".encode()}),
    ],
    "another's authorization": [
        ("SaslHandshake", 1, {"mechanism": "PLAIN"}),
        ("SaslAuthenticate", 2, {"auth_bytes": f"bob\0ann\0{PASSWORD}".encode()}),
    ],
    "wrong password": [
        ("SaslHandshake", 1, {"mechanism": "PLAIN"}),
        ("SaslAuthenticate", 2, {"auth_bytes": b"\0ann\0wrong"}),
    ],
    "no user": [
        ("SaslHandshake", 1, {"mechanism": "PLAIN"}),
        ("SaslAuthenticate", 1, {"auth_bytes": b"\0\0wrong"}),
    ],
    "no password": [
        ("SaslHandshake", 1, {"mechanism": "PLAIN"}),
        ("SaslAuthenticate", 1, {"auth_bytes": b"\0ann\0"}),
    ],
    "two parts": [
        ("SaslHandshake", 1, {"mechanism": "PLAIN"}),
        ("SaslAuthenticate", 1, {"auth_bytes": b"ann\0secret"}),
    ],
    "unknown user": [
        ("SaslHandshake", 1, {"mechanism": "PLAIN"}),
        ("SaslAuthenticate", 2, {"auth_bytes": b"\0nobody\0wrong"}),
    ],
    "mechanism not enabled": [("SaslHandshake", 1, {"mechanism": "SCRAM-SHA-512"})],
    "mechanism not enabled, old": [("SaslHandshake", 0, {"mechanism": "GSSAPI"})],
    "no mechanism": [("SaslHandshake", 1, {"mechanism": ""})],
    "unauthenticated": [("Metadata", 12, {"topics": []})],
    "unauthenticated after versions": [("ApiVersions", 0, {}), ("Metadata", 12, {"topics": []})],
    "versions twice": [("ApiVersions", 0, {}), ("ApiVersions", 0, {})],
    "a name that is none": [
        ("ApiVersions", 3, {"client_software_name": "", "client_software_version": ""}),
        ("ApiVersions", 3, {"client_software_name": "t", "client_software_version": "1"}),
    ],
    "versions after the handshake": [
        ("SaslHandshake", 1, {"mechanism": "PLAIN"}),
        ("SaslHandshake", 7, {"mechanism": "x"}),
    ],
    "a handshake in the middle": [
        ("SaslHandshake", 1, {"mechanism": "SCRAM-SHA-256"}),
        ("SaslHandshake", 1, {"mechanism": "SCRAM-SHA-256"}),
    ],
    "a heartbeat in the middle": [
        ("SaslHandshake", 1, {"mechanism": "SCRAM-SHA-256"}),
        ("SaslAuthenticate", 2, {"auth_bytes": first("ann")}),
        ("Heartbeat", 4, {"group_id": "g"}),
    ],
    "a coordinator in the middle": [
        ("SaslHandshake", 1, {"mechanism": "PLAIN"}),
        ("FindCoordinator", 6, {"coordinator_keys": ["g", "h"]}),
    ],
    "a coordinator in the middle, old": [
        ("SaslHandshake", 1, {"mechanism": "PLAIN"}),
        ("FindCoordinator", 3, {"key": "g"}),
    ],
    "brokers in the middle": [("SaslHandshake", 1, {"mechanism": "PLAIN"}), ("Metadata", 13, {"topics": []})],
    "versions in the middle": [
        ("SaslHandshake", 1, {"mechanism": "PLAIN"}),
        ("ApiVersions", 3, {"client_software_name": "t", "client_software_version": "1"}),
    ],
    "a request of an unknown version in the middle": [
        ("SaslHandshake", 1, {"mechanism": "PLAIN"}),
        ("Metadata", 0, {"topics": []}),
    ],
    "token without a handshake": [("SaslAuthenticate", 2, {"auth_bytes": b"\0ann\0wrong"})],
    "scram, unknown user": [
        ("SaslHandshake", 1, {"mechanism": "SCRAM-SHA-256"}),
        ("SaslAuthenticate", 2, {"auth_bytes": first("nobody")}),
    ],
    "scram, wrong proof": [
        ("SaslHandshake", 1, {"mechanism": "SCRAM-SHA-256"}),
        ("SaslAuthenticate", 2, {"auth_bytes": first("ann")}),
        ("SaslAuthenticate", 2, {"auth_bytes": b"c=biws,r=x,p=AAAA"}),
    ],
    "scram, garbage": [
        ("SaslHandshake", 1, {"mechanism": "SCRAM-SHA-256"}),
        ("SaslAuthenticate", 2, {"auth_bytes": b"\xff\x00"}),
    ],
    "scram, a token's": [
        ("SaslHandshake", 1, {"mechanism": "SCRAM-SHA-256"}),
        ("SaslAuthenticate", 2, {"auth_bytes": first("ann") + b",tokenauth=true"}),
    ],
}


@pytest.mark.parametrize("scene", SCENES)
def test_the_same_requests_have_the_same_answers(pair: Oracle, scene: str) -> None:
    def script(side: Side) -> None:
        way = Way(side)
        for name, version, values in SCENES[scene]:
            if way.ask(name, version, **values) == CLOSED:
                return way.connection.close()
        way.end()

    pair.compare(script)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("password", [PASSWORD, "wrong"])
def test_a_whole_sign_in_ends_the_same_way(pair: Oracle, mechanism: str, password: str) -> None:
    def script(side: Side) -> None:
        way = Way(side)
        side.note("sign-in", sign_in(way.connection, mechanism, "ann", password))
        way.end()

    pair.compare(script)


@pytest.mark.parametrize("password", [PASSWORD, "wrong"])
def test_bare_tokens_end_the_same_way(pair: Oracle, password: str) -> None:
    def script(side: Side) -> None:
        way = Way(side)
        way.ask("SaslHandshake", 0, mechanism="PLAIN")
        token = f"\0ann\0{password}".encode()
        way.connection.send(struct.pack(">i", len(token)) + token)
        said = way.connection.reply()
        side.note("token", said)
        if said is None:
            return way.connection.close()
        return way.end()

    pair.compare(script)


@pytest.mark.parametrize("mechanism", [*MECHANISMS, "SCRAM-SHA-512"])
@pytest.mark.parametrize("password", [PASSWORD, "wrong"])
def test_librdkafka_is_let_in_or_told_the_same(
    both: tuple[SaslServer, SaslServer], mechanism: str, password: str
) -> None:
    def outcome(server: SaslServer) -> list[str]:
        errors: list[str] = []
        client = confluent_kafka.admin.AdminClient(
            {
                "bootstrap.servers": server.sasl,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": mechanism,
                "sasl.username": "ann",
                "sasl.password": password,
                "error_cb": lambda error: errors.append(f"{error.name()} {error.str()}"),  # type: ignore[dict-item]
            }
        )
        if password == PASSWORD and mechanism in MECHANISMS:
            return [str(len(client.list_topics(timeout=30).brokers))]
        for _ in range(100):
            client.poll(0.3)
            if errors:
                break
        return [each.replace(server.sasl, "server").split("(after")[0] for each in errors[:1]]

    theirs, ours = map(outcome, both)
    assert theirs == ours
    assert theirs


def test_the_java_client_is_let_in_or_told_the_same(both: tuple[SaslServer, SaslServer], tmp_path: Path) -> None:
    modules = {"PLAIN": "plain.PlainLoginModule"}
    with ApacheTools() as tool:
        for mechanism in (*MECHANISMS, "SCRAM-SHA-512"):
            for password in (PASSWORD, "wrong"):
                file = tmp_path / "client.properties"
                line = jaas(modules.get(mechanism, "scram.ScramLoginModule"), {"username": "ann", "password": password})
                file.write_text(
                    f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\nsasl.jaas.config={line}\n"
                )
                said = [
                    tool("kafka-topics", "--bootstrap-server", one.sasl, "--list", "--command-config", str(file))
                    for one in both
                ]
                theirs, ours = ((each.code, plain_text(each.out), plain_text(each.err)) for each in said)
                assert theirs == ours, (mechanism, password)
                assert (theirs[0] == 0) is (password == PASSWORD and mechanism in MECHANISMS)


def plain_text(text: str) -> str:
    """The first line, in which a tool says what went wrong; mechanisms come in any order."""
    return next(iter(text.splitlines()), "").replace("[SCRAM-SHA-256, PLAIN]", "[PLAIN, SCRAM-SHA-256]")
