"""Servers with a listener of each protocol, an authorizer, SCRAM credentials, tokens of a provider and their own."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from ottla.client import Acl, AclOperation, AclResource, Admin, NewTopic, ScramCredential, ScramMechanism
from tests.broker.tls_scene import AUTHORIZER, EXPIRED, signed
from tests.client import certificate
from tests.client.conftest import eventually
from tests.interop import server as servers
from tests.interop.secured import jaas
from tests.security.token_scene import AUDIENCE, ISSUER, Provider

PROVIDER = Provider()
USERS = {"ann": "anns secret", "bob": "bobs secret", "cid": "cids secret", "admin": "admins secret"}
TOPIC = "secured"
#: Of a client that no one knows: what it may only write to, and what it may not see.
WRITTEN, APART = "written", "apart"
LISTENERS = {"PLAINTEXT": "PLAINTEXT", "SSL": "SSL", "MUTUAL": "SSL", "SASL_PLAINTEXT": "", "SASL_SSL": ""}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_VALIDATOR = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
_ALLOWED = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
#: How a node comes in at its controller.
_NODE = {"username": "admin", "password": USERS["admin"], "user_admin": USERS["admin"]}


class SecuredServer(servers.Server):
    """A server with a listener of each protocol, SSL with and without certificates of clients, and an authorizer.

    Its controller wants a password: Apache's refuses requests about tokens that are forwarded over PLAINTEXT.
    """

    files: Path
    ports: dict[str, int]
    #: A delegation token's id and secret by its owner, and one that has ended.
    tokens: dict[str, tuple[str, str]]
    ended: tuple[str, str]

    def _properties(self, controller_port: int) -> str:
        self.ports = dict(zip(LISTENERS, [self.port, *servers.free_ports(len(LISTENERS) - 1)], strict=True))
        listeners = ",".join(f"{name}://127.0.0.1:{port}" for name, port in self.ports.items())
        protocols = ",".join(f"{name}:{protocol or name}" for name, protocol in LISTENERS.items())
        lines = {
            "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": listeners,
            "listener.security.protocol.map": f"{protocols},CONTROLLER:SASL_PLAINTEXT",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.controller.plain.sasl.jaas.config": jaas("plain.PlainLoginModule", _NODE),
            "delegation.token.secret.key": "a secret of all nodes",
            "delegation.token.expiry.check.interval.ms": "1000",
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
            "super.users": "User:admin",
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

    def client(self, user: str) -> dict[str, str]:
        """The settings of a client of ours."""
        return {
            "bootstrap.servers": f"127.0.0.1:{self.ports['SASL_PLAINTEXT']}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": USERS[user],
        }

    def prepare(self) -> None:
        """The topics, the users of SCRAM, what each user may do, and tokens."""
        acls = [Acl(AclResource.TOPIC, WRITTEN, "User:ANONYMOUS", AclOperation.WRITE)]
        for user in ("ann", "CN=client", "ANONYMOUS"):
            acls += [
                Acl(AclResource.TOPIC, TOPIC, f"User:{user}", AclOperation.ALL),
                Acl(AclResource.GROUP, TOPIC, f"User:{user}", AclOperation.ALL),
            ]
        for user in ("cid", "CN=cid"):
            acls += [
                Acl(AclResource.TOPIC, TOPIC, f"User:{user}", AclOperation.WRITE),
                Acl(AclResource.GROUP, TOPIC, f"User:{user}", AclOperation.READ),
            ]
        with Admin(self.client("admin")) as admin:
            admin.create_topics([NewTopic(TOPIC), NewTopic(WRITTEN), NewTopic(APART)]).check()
            for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
                users = [ScramCredential(user, mechanism, password) for user, password in USERS.items()]
                admin.alter_scram_credentials(users).check()
            admin.create_acls(acls).check()
        self.tokens = {user: self._token(user) for user in ("ann", "bob", "cid")}
        self.ended = self._token("ann", 1)

    def _token(self, user: str, lifetime_ms: int = -1) -> tuple[str, str]:
        with Admin(self.client(user)) as admin:
            token = admin.create_delegation_token(max_lifetime_ms=lifetime_ms)
        return token.id, b64encode(token.hmac).decode()


def make_files(directory: Path) -> Path:
    """The certificates of the servers and the clients, and the provider's keys."""
    certificate.make(directory)
    signed(directory, "late", days=EXPIRED)
    signed(directory, "unknown", ca="stranger")
    for user in ("bob", "cid"):
        signed(directory, user)
    PROVIDER.write(directory / "keys.json", "rsa")
    return directory


@contextmanager
def started(directory: Path, files: Path, knows: Callable[[SecuredServer], bool]) -> Iterator[list[SecuredServer]]:
    """Apache's server and ours, when `knows` says of each that its broker has followed its controller."""
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
                eventually(partial(knows, server))
            yield found
        finally:
            for server in found:
                server.stop()
