"""Foreign clients at every kind of listener, with every mechanism: let in, or refused with the same error as by Apache.

Each case runs at both servers. One case a client is the short form, LONG=1 has them all.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ottla.client import Acl, AclOperation, AclResource, Admin, NewTopic, ScramCredential, ScramMechanism
from tests.broker.tls_scene import AUTHORIZER, EXPIRED, signed
from tests.client import certificate
from tests.client.conftest import eventually
from tests.interop import server as servers
from tests.interop.peer import KINDS, Crew, Kind, Peer, PeerError
from tests.interop.secured import jaas
from tests.security.token_scene import AUDIENCE, ISSUER, Provider

pytestmark = [pytest.mark.interop, pytest.mark.timeout(240)]

PROVIDER = Provider()
USERS = {"ann": "anns secret", "bob": "bobs secret", "cid": "cids secret"}
TOPIC = "secured"
_VALIDATOR = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
_ALLOWED = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
_LISTENERS = {"PLAINTEXT": "PLAINTEXT", "SSL": "SSL", "MUTUAL": "SSL", "SASL_PLAINTEXT": "", "SASL_SSL": ""}
LET_IN = (None, "", "let in")
_HANDSHAKES = {"no certificate", "expired certificate", "certificate of another CA", "broker of another CA"}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


class Case(NamedTuple):
    """Who comes to which listener with what, and why that principal is refused, if at all."""

    listener: str
    mechanism: str = ""
    #: "" for a client that is let in
    refusal: str = ""
    user: str = "ann"
    #: the CA that the client trusts, and its own certificate
    ca: str = "ca"
    own: str = ""

    @property
    def name(self) -> str:
        return " ".join(part for part in (self.listener, self.mechanism, self.refusal or "let in") if part)


def cases() -> Iterator[Case]:
    yield Case("SSL")
    yield Case("SSL", refusal="broker of another CA", ca="stranger")
    yield Case("MUTUAL", own="client")
    yield Case("MUTUAL", refusal="no certificate")
    yield Case("MUTUAL", refusal="expired certificate", own="late")
    yield Case("MUTUAL", refusal="certificate of another CA", own="unknown")
    yield Case("MUTUAL", refusal="no ACL", own="bob")
    yield Case("MUTUAL", refusal="no ACL to read", own="cid")
    for listener in ("SASL_PLAINTEXT", "SASL_SSL"):
        for mechanism in MECHANISMS:
            yield Case(listener, mechanism)
            yield Case(listener, mechanism, "expired token" if mechanism == "OAUTHBEARER" else "wrong password")
            yield Case(listener, mechanism, "no ACL", "bob")
            yield Case(listener, mechanism, "no ACL to read", "cid")
    yield Case("SASL_SSL", "PLAIN", "broker of another CA", ca="stranger")


CASES = {case.name: case for case in cases()}
CLIENTS = ("java", "librdkafka", "franz-go", "sarama", "kafkajs")
#: The short form: together the clients come to each listener and with each mechanism.
SHORT = {
    ("java", "SASL_SSL OAUTHBEARER expired token"),
    ("librdkafka", "MUTUAL no ACL"),
    ("franz-go", "SASL_SSL SCRAM-SHA-512 let in"),
    ("sarama", "SASL_PLAINTEXT SCRAM-SHA-256 wrong password"),
    ("kafkajs", "SASL_SSL PLAIN let in"),
}


class SecuredServer(servers.Server):
    """A server with a listener of each protocol, SSL with and without certificates of clients, and an authorizer."""

    files: Path
    ports: dict[str, int]

    def _properties(self, controller_port: int) -> str:
        self.ports = dict(zip(_LISTENERS, [self.port, *servers.free_ports(len(_LISTENERS) - 1)], strict=True))
        listeners = ",".join(f"{name}://127.0.0.1:{port}" for name, port in self.ports.items())
        protocols = ",".join(f"{name}:{protocol or name}" for name, protocol in _LISTENERS.items())
        lines = {
            "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": listeners,
            "listener.security.protocol.map": f"{protocols},CONTROLLER:PLAINTEXT",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.files / "broker.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.files / "ca.pem"),
            "listener.name.mutual.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "connection.failed.authentication.delay.ms": "0",
            "sasl.oauthbearer.jwks.endpoint.url": (self.files / "keys.json").as_uri(),
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "sasl.oauthbearer.expected.issuer": ISSUER,
            _ALLOWED: (self.files / "keys.json").as_uri(),
            "authorizer.class.name": AUTHORIZER,
            "super.users": "User:ANONYMOUS",
        }
        for listener in ("sasl_plaintext", "sasl_ssl"):
            own = f"listener.name.{listener}"
            users = {f"user_{user}": password for user, password in USERS.items()}
            lines[f"{own}.plain.sasl.jaas.config"] = jaas("plain.PlainLoginModule", users)
            for mechanism in ("scram-sha-256", "scram-sha-512"):
                lines[f"{own}.{mechanism}.sasl.jaas.config"] = jaas("scram.ScramLoginModule", {})
            lines[f"{own}.oauthbearer.sasl.jaas.config"] = jaas("oauthbearer.OAuthBearerLoginModule", {})
            lines[f"{own}.oauthbearer.sasl.server.callback.handler.class"] = _VALIDATOR
        return super()._properties(controller_port) + "".join(f"{name}={value}\n" for name, value in lines.items())

    def prepare(self) -> None:
        """The topic, the users of SCRAM, and what each user may do."""
        acls = []
        for user in ("ann", "CN=client"):
            acls += [
                Acl(AclResource.TOPIC, TOPIC, f"User:{user}", AclOperation.ALL),
                Acl(AclResource.GROUP, TOPIC, f"User:{user}", AclOperation.ALL),
            ]
        for user in ("cid", "CN=cid"):
            acls += [
                Acl(AclResource.TOPIC, TOPIC, f"User:{user}", AclOperation.WRITE),
                Acl(AclResource.GROUP, TOPIC, f"User:{user}", AclOperation.READ),
            ]
        with Admin(self.bootstrap) as admin:
            admin.create_topics([NewTopic(TOPIC)]).check()
            for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
                users = [ScramCredential(user, mechanism, password) for user, password in USERS.items()]
                admin.alter_scram_credentials(users).check()
            admin.create_acls(acls).check()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("certificates")
    certificate.make(directory)
    signed(directory, "late", days=EXPIRED)
    signed(directory, "unknown", ca="stranger")
    for user in ("bob", "cid"):
        signed(directory, user)
    PROVIDER.write(directory / "keys.json", "rsa")
    return directory


@pytest.fixture(scope="module")
def both(files: Path, crew: Crew, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[SecuredServer]]:
    directory = tmp_path_factory.mktemp("secured")
    found = [SecuredServer(kind, directory / kind.name, servers.HELD) for kind in (servers.apache(), servers.ottla())]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", f"-D{_ALLOWED}={(files / 'keys.json').as_uri()}")
        try:
            for server in found:
                server.files = files
            with ThreadPoolExecutor() as pool:
                list(pool.map(SecuredServer.start, found))
            for server in found:
                server.prepare()
                # A broker follows its controller: the last credential, and the coordinator of the groups.
                eventually(partial(_lets_in, server, crew))
            yield found
        finally:
            for server in found:
                server.stop()


def job(case: Case, server: SecuredServer) -> dict[str, str]:
    """What a peer is told."""
    password = USERS[case.user]
    expires: dict[str, Any] = {}
    if case.refusal == "wrong password":
        password = "guessed"
    if case.refusal == "expired token":
        expires = {"iat": 1, "exp": 1_000_000_000}
    return {
        "topic": TOPIC,
        "group": TOPIC,
        "id": uuid.uuid4().hex,
        "security": _LISTENERS[case.listener] or case.listener,
        "mechanism": case.mechanism,
        "user": case.user,
        "password": password,
        "token": PROVIDER.token(sub=case.user, **expires),
        "ca": str(server.files / f"{case.ca}.pem"),
        "certificate": str(server.files / f"{case.own}.crt") if case.own else "",
        "key": str(server.files / f"{case.own}.key") if case.own else "",
    }


def met(kind: Kind, server: SecuredServer, case: Case, crew: Crew) -> tuple[int | None, str, str]:
    """LET_IN for a record that was written and read, else the code, the class and the words of the client's error.

    The words of a failed handshake are left out: they tell the alert, and Java's TLS has other ones than OpenSSL.
    """
    told = job(case, server)
    peer = Peer(kind, f"127.0.0.1:{server.ports[case.listener]}", crew)
    try:
        (answer,) = peer.call("secured", **told)
    except PeerError as problem:
        words = re.sub(r"\S*127\.0\.0\.1:\d+\S*|after \d+ms in state \w+|\d+ identical.*", "", str(problem))
        return problem.code, problem.kind, "" if case.refusal in _HANDSHAKES else words
    assert answer["read"] == told["id"]
    return LET_IN


def _lets_in(server: SecuredServer, crew: Crew) -> bool:
    return met(KINDS["kafkajs"], server, CASES["SASL_PLAINTEXT SCRAM-SHA-512 let in"], crew) == LET_IN


def _each() -> Iterator[object]:
    for client in CLIENTS:
        for name in CASES:
            marks = [] if (client, name) in SHORT else [pytest.mark.long]
            yield pytest.param(client, name, marks=marks, id=f"{client} {name}")


@pytest.mark.parametrize(("client", "name"), list(_each()))
def test_a_client_meets_the_same(both: list[SecuredServer], crew: Crew, client: str, name: str) -> None:
    case = CASES[name]
    theirs, ours = (met(KINDS[client], server, case, crew) for server in both)
    assert theirs == ours
    assert (ours == LET_IN) is (not case.refusal), ours
