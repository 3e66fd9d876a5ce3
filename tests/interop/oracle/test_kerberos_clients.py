"""Foreign clients that come in by GSSAPI: let in, or refused with the same error as by Apache.

kafkajs has no GSSAPI, and confluent-kafka's wheels leave it out: Debian's kcat stands for librdkafka.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ottla.client import Acl, AclOperation, AclResource, Admin, NewTopic
from tests.broker.tls_scene import signed
from tests.client import certificate
from tests.client.conftest import eventually
from tests.interop import server as servers
from tests.interop.kdc import HOST, REALM, SERVICE, Kdc, realm
from tests.interop.oracle.test_kerberos import TOPIC, KerberosServer
from tests.interop.peer import KINDS, Crew, Peer, PeerError

pytestmark = [pytest.mark.interop, pytest.mark.long, pytest.mark.timeout(300)]

#: Who is let in, and why the others are not. The rules of the servers have no name for dan; the keytab of `old` holds a
#: key that the KDC no longer takes.
CASES = {"let in": "ann", "no name": "dan", "no ACL": "bob", "no ACL to read": "eve", "old key": "old"}
LET_IN = (None, "", "let in")


class Server(KerberosServer):
    """One with SECURE, too: GSSAPI over TLS."""

    files: Path
    secure_port: int

    def _properties(self, controller_port: int) -> str:
        (self.secure_port,) = servers.free_ports(1)
        lines = dict(line.split("=", 1) for line in super()._properties(controller_port).splitlines())
        lines["listeners"] += f",SECURE://127.0.0.1:{self.secure_port}"
        lines["advertised.listeners"] += f",SECURE://{HOST}:{self.secure_port}"
        lines["listener.security.protocol.map"] += ",SECURE:SASL_SSL"
        own = "gssapi.sasl.jaas.config"
        lines[f"listener.name.secure.{own}"] = lines[f"listener.name.kerberos.{own}"]
        lines |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(self.files / "here.pem")}
        return "".join(f"{name}={value}\n" for name, value in lines.items())

    def at(self, protocol: str) -> str:
        return f"{HOST}:{self.secure_port if protocol == 'SASL_SSL' else self.kerberos_port}"


@pytest.fixture(scope="module")
def kdc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    with realm(tmp_path_factory.mktemp("kerberos") / "kdc", SERVICE, *CASES.values()) as found:
        found.command("cpw -randkey old")
        yield found


@pytest.fixture(scope="module")
def crew(tmp_path_factory: pytest.TempPathFactory, kdc: Kdc) -> Iterator[Crew]:
    """Programs that know the realm: of the session's, some may run already."""
    one = Crew(tmp_path_factory.mktemp("peers"))
    yield one
    one.close()


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory, kdc: Kdc, crew: Crew) -> Iterator[list[Server]]:
    directory = tmp_path_factory.mktemp("servers")
    files = tmp_path_factory.mktemp("certificates")
    certificate.make(files)
    signed(files, "here", names=f"subjectAltName=DNS:{HOST}\n")
    found = [Server(kind, directory / kind.name, servers.HELD) for kind in (servers.apache(), servers.ottla())]
    try:
        for server in found:
            server.kdc, server.files = kdc, files
            server.start()
            with Admin(server.bootstrap) as admin:
                admin.create_topics([NewTopic(TOPIC)]).check()
                for user, operation in (("eve", AclOperation.WRITE), ("ann", AclOperation.ALL)):
                    admin.create_acls([Acl(AclResource.TOPIC, TOPIC, f"User:{user}", operation)]).check()
                    admin.create_acls([Acl(AclResource.GROUP, TOPIC, f"User:{user}", AclOperation.READ)]).check()
            eventually(partial(_knows, server, crew), timeout_s=60)
        yield found
    finally:
        for server in found:
            server.stop()


def met(client: str, server: Server, protocol: str, case: str, crew: Crew) -> tuple[int | None, str, str]:
    """LET_IN for a record that was written and read, else the code, the class and the words of the client's error."""
    user, value = CASES[case], uuid.uuid4().hex
    job: dict[str, Any] = {
        "topic": TOPIC,
        "group": TOPIC,
        "id": value,
        "security": protocol,
        "mechanism": "GSSAPI",
        "user": user,
        "keytab": str(server.kdc.keytab(user)),
        "realm": REALM,
        "krb5": str(server.kdc.config),
        "certificate": "",
        "ca": str(server.files / "ca.pem"),
        "key": "",
    }
    try:
        (answer,) = Peer(KINDS[client], server.at(protocol), crew).call("secured", **job)
    except PeerError as problem:
        words = re.sub(r"\S*(127\.0\.0\.1|localhost):\d+\S*|after \d+ms in state \w+", "", str(problem))
        return problem.code, problem.kind, re.sub(r"\d+ identical.*|\d{4}-\d\d-\d\d \S+", "", words)
    assert answer["read"] == value
    return LET_IN


def _knows(server: Server, crew: Crew) -> bool:
    """Does the broker know the last rule?"""
    return met("java", server, "SASL_SSL", "let in", crew) == LET_IN


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize("client", ["java", "franz-go", "sarama"])
def test_a_client_meets_the_same(both: list[Server], crew: Crew, client: str, protocol: str, case: str) -> None:
    theirs, ours = (met(client, server, protocol, case, crew) for server in both)
    if case == "no name":
        # Apache closes the connection without an answer, of which these clients say that there is no broker.
        assert "GSSAPI" not in theirs[2] and "invalid credentials with SASL mechanism GSSAPI" in ours[2]
    else:
        assert theirs == ours
    assert (ours == LET_IN) is (case == "let in"), ours


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_librdkafka_meets_the_same(both: list[Server], tmp_path: Path, protocol: str, case: str) -> None:
    theirs, ours = (_kcat(server, protocol, CASES[case], tmp_path) for server in both)
    assert theirs == ours or (case == "no name" and "GSSAPI" not in theirs and ours == "refused")
    assert (ours == "let in") is (case == "let in"), ours


def _kcat(server: Server, protocol: str, user: str, directory: Path) -> str:
    """What kcat's errors say, or "let in" for a record that was written and read."""
    program = shutil.which("kcat")
    assert program is not None, "kcat is not on this machine (Debian: apt-get install kcat libsasl2-modules-gssapi-mit)"
    value = uuid.uuid4().hex
    settings = {
        "security.protocol": protocol,
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.kerberos.keytab": str(server.kdc.keytab(user)),
        "sasl.kerberos.principal": f"{user}@{REALM}",
        "message.timeout.ms": "8000",
        "broker.address.family": "v4",
        "ssl.ca.location": str(server.files / "ca.pem"),
    }
    words = [program, "-b", server.at(protocol), "-t", TOPIC, "-p", "0", "-E"]
    words += [part for name, each in settings.items() for part in ("-X", f"{name}={each}")]
    environment = {
        **server.kdc.environment,
        "KRB5CCNAME": f"FILE:{directory}/{server.name}-{user}",
        "PATH": "/usr/bin:/bin",
    }
    for mode in (["-P"], ["-C", "-o", "beginning", "-e", "-q"]):
        done = subprocess.run(
            [*words, *mode], input=value, capture_output=True, text=True, timeout=60, env=environment, check=False
        )
        if done.returncode:
            return _kind(done.stderr)
        if mode[0] == "-C":
            assert value in done.stdout.split()
    return "let in"


#: What librdkafka says -> what went wrong; which of its brokers it says it of, and how often, is by chance.
_KINDS = {
    "Topic authorization failed": "no ACL",
    "Failed to acquire Kerberos ticket": "no ticket",
    "kinit": "no ticket",
    "Authentication failed": "refused",
}


def _kind(said: str) -> str:
    return next((kind for words, kind in _KINDS.items() if words in said), said)
