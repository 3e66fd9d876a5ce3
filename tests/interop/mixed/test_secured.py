"""Clusters whose nodes meet over TLS and SASL, an Apache broker among them, and nodes that are not let in."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ottla.client import Admin, AuthenticationFailed, Consumer, Producer
from tests.broker.tls_scene import AUTHORIZER, signed
from tests.client import certificate
from tests.interop.mixed.nodes import MixedCluster, MixedNode, until
from tests.interop.secured import jaas
from tests.interop.server import free_ports
from tests.security.token_endpoint import SECRETS, TokenEndpoint
from tests.security.token_scene import AUDIENCE, ISSUER, Provider

pytestmark = [pytest.mark.interop, pytest.mark.long, pytest.mark.timeout(400)]

PASSWORD = 'n,o=d"e s'
SCRAM_PASSWORD = "kept-in-the-metadata"
WRONG = "guessed wrong"
RECORDS = 500


class SecuredCluster(MixedCluster):
    """NODES, for nodes and clients, and CONTROLLER are of one security protocol; PLAINTEXT tells who is there."""

    protocol = "SASL_SSL"

    def __init__(self, directory: Path, nodes: list[MixedNode], protocol: str) -> None:
        self.protocol = protocol
        self.secured = dict(zip((each.node_id for each in nodes), free_ports(len(nodes)), strict=True))
        self.files = directory / "certificates"
        self.certificates = certificate.make(self.files)
        # For clients and servers: a node is both.
        signed(self.files, "broker")
        super().__init__(directory, nodes, self._common(), static=True)

    def _common(self) -> Mapping[str, str]:
        login = {"username": "node", "password": PASSWORD}
        users = {"user_node": PASSWORD, "user_ann": "anns"}
        return {
            "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,NODES:{self.protocol},CONTROLLER:{self.protocol}",
            "inter.broker.listener.name": "NODES",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.certificates.broker),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.certificates.ca),
            "ssl.client.auth": "required",
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "listener.name.nodes.plain.sasl.jaas.config": line(login | users),
            "listener.name.controller.plain.sasl.jaas.config": line(login | users),
            "authorizer.class.name": AUTHORIZER,
            "super.users": "User:node;User:CN=broker;User:ann;User:CN=client",
        }

    def _properties(self, node: MixedNode) -> dict[str, str]:
        found = super()._properties(node)
        if node.is_broker:
            found["listeners"] += f",NODES://127.0.0.1:{self.secured[node.node_id]}"
        return found

    def client(self) -> dict[str, Any]:
        where = ",".join(f"127.0.0.1:{self.secured[each]}" for each in self.brokers())
        found: dict[str, Any] = {"bootstrap.servers": where, "security.protocol": self.protocol}
        if self.protocol.startswith("SASL"):
            found |= {"sasl.mechanism": "PLAIN", "sasl.username": "ann", "sasl.password": "anns"}
        if self.protocol.endswith("SSL"):
            found |= {"ssl.truststore.location": str(self.certificates.ca)}
            found |= {"ssl.keystore.location": str(self.certificates.client)}
        return found


class ScramCluster(SecuredCluster):
    """Brokers sign in at each other by SCRAM, whose user is there from the format on; clients may have tokens."""

    format_arguments = (f"--add-scram=SCRAM-SHA-512=[name=node,password={SCRAM_PASSWORD}]",)

    def _common(self) -> Mapping[str, str]:
        login = jaas("scram.ScramLoginModule", {"username": "node", "password": SCRAM_PASSWORD})
        return {
            **super()._common(),
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
            "listener.name.nodes.scram-sha-512.sasl.jaas.config": login,
            "delegation.token.secret.key": "a secret of all nodes",
        }


class BearerCluster(SecuredCluster):
    """Nodes sign in at each other by tokens of a provider, which end soon; clients by PLAIN."""

    def __init__(self, directory: Path, nodes: list[MixedNode], endpoint: TokenEndpoint) -> None:
        self.endpoint = endpoint
        self.keys = endpoint.provider.write(directory / "keys.json", "rsa")
        super().__init__(directory, nodes, "SASL_PLAINTEXT")

    def _common(self) -> Mapping[str, str]:
        package = "org.apache.kafka.common.security.oauthbearer"
        found = {
            **super()._common(),
            "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
            "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
            "sasl.mechanism.controller.protocol": "OAUTHBEARER",
            "sasl.oauthbearer.token.endpoint.url": self.endpoint.url,
            "sasl.oauthbearer.jwks.endpoint.url": self.keys,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
            "sasl.oauthbearer.expected.issuer": ISSUER,
            # A session ends with its token.
            "connections.max.reauth.ms": "3600000",
            "org.apache.kafka.sasl.oauthbearer.allowed.urls": f"{self.endpoint.url},{self.keys}",
        }
        login = {"clientId": "node", "clientSecret": SECRETS["node"]}
        for name in ("nodes", "controller"):
            own = f"listener.name.{name}.oauthbearer.sasl"
            found[f"{own}.jaas.config"] = jaas("oauthbearer.OAuthBearerLoginModule", login)
            found[f"{own}.login.callback.handler.class"] = f"{package}.OAuthBearerLoginCallbackHandler"
            found[f"{own}.server.callback.handler.class"] = f"{package}.OAuthBearerValidatorCallbackHandler"
        return found


def line(options: Mapping[str, str]) -> str:
    """A JAAS line, for a writer of properties that escapes by itself."""
    return jaas("plain.PlainLoginModule", options).replace("\\\\", "\\")


def nodes(*kinds: str) -> list[MixedNode]:
    return [
        MixedNode(number, kind, "broker,controller" if number <= 3 else "broker")
        for number, kind in enumerate(kinds, 1)
    ]


def works(cluster: SecuredCluster, topic: str, replicas: int) -> None:
    """Records go in with all replicas and come out again, and every replica keeps up."""
    with Admin(cluster.client()) as admin:
        until(lambda: len(admin.describe_cluster().nodes) >= replicas, "not all brokers are there")
        admin.create_topic(topic, 4, replication_factor=replicas)
        with Producer(cluster.client()) as producer:
            deliveries = [producer.send(topic, b"%d" % number) for number in range(RECORDS)]
            producer.flush()
            assert all(each.result(60).offset >= 0 for each in deliveries)
        with Consumer({**cluster.client(), "group.id": topic, "auto.offset.reset": "earliest"}) as consumer:
            consumer.subscribe([topic])
            found: list[bytes] = []
            while len(found) < RECORDS:
                found += [one.value for one in consumer.poll(60)]
        assert sorted(found) == sorted(b"%d" % number for number in range(RECORDS))

        def in_sync() -> bool:
            partitions = admin.describe_topics([topic])[topic].partitions
            return all(len(each.isr) == replicas for each in partitions)

        until(in_sync, "not all replicas keep up")


def test_a_cluster_over_tls_and_sasl_has_an_apache_broker_and_keeps_out_who_guesses(tmp_path: Path) -> None:
    with SecuredCluster(tmp_path, nodes("ottla", "ottla", "ottla", "apache"), "SASL_SSL") as cluster:
        works(cluster, "together", 4)
        intruder = MixedNode(5, "ottla")
        intruder.port = free_ports(1)[0]
        wrong = line({"username": "node", "password": WRONG})
        intruder.settings = {
            "listener.name.nodes.plain.sasl.jaas.config": wrong.replace(";", ' user_node="x";'),
            "listener.name.controller.plain.sasl.jaas.config": wrong,
        }
        cluster.secured[5] = free_ports(1)[0]
        cluster.nodes[5] = intruder
        cluster.format(intruder)
        cluster.start(5)
        refused = "does not let this node in as node: Authentication failed: Invalid username or password"
        until(lambda: refused in cluster.output(5).read_text(), lambda: cluster.tail(5))
        del cluster.nodes[5]
        with Admin(cluster.client()) as admin:
            assert sorted(each.id for each in admin.describe_cluster().nodes) == [1, 2, 3, 4]
        said = "".join(cluster.output(each).read_text() for each in (1, 2, 3, 4, 5))
        assert WRONG not in said
        assert PASSWORD not in said
        cluster.restart(2)
        works(cluster, "again", 4)


@pytest.mark.parametrize("protocol", ["SSL", "SASL_PLAINTEXT"])
def test_a_cluster_over_one_of_them_elects_and_replicates(tmp_path: Path, protocol: str) -> None:
    with SecuredCluster(tmp_path, nodes("ottla", "ottla", "ottla"), protocol) as cluster:
        works(cluster, "one", 3)
        cluster.restart(1)
        works(cluster, "two", 3)


def test_brokers_sign_in_by_scram_and_a_token_is_good_at_every_node(tmp_path: Path) -> None:
    with ScramCluster(tmp_path, nodes("ottla", "ottla", "ottla"), "SASL_SSL") as cluster:
        works(cluster, "before", 3)
        with Admin(cluster.client()) as admin:
            token = admin.create_delegation_token()
        options = {"username": token.id, "password": b64encode(token.hmac).decode(), "tokenauth": "true"}
        user = {
            name: value for name, value in cluster.client().items() if name not in ("sasl.username", "sasl.password")
        }
        login = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": jaas("scram.ScramLoginModule", options)}

        def lets_in(node_id: int) -> bool:
            where = {"bootstrap.servers": f"127.0.0.1:{cluster.secured[node_id]}"}
            try:
                with Admin({**user, **login, **where}) as admin:
                    return len(admin.describe_cluster().nodes) == 3
            except AuthenticationFailed:
                # A node lets in by a token from when it has read of it.
                return False

        for node_id in (1, 2, 3):
            until(lambda node_id=node_id: lets_in(node_id), f"node {node_id} never lets in by the token")  # type: ignore[misc]
        cluster.restart(2)
        assert lets_in(2)
        with Admin(cluster.client()) as admin:
            admin.expire_delegation_token(token.hmac)
            until(lambda: not lets_in(3), "node 3 lets in by a token that has ended")
        works(cluster, "after", 3)


def test_nodes_sign_in_by_tokens_that_are_renewed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with TokenEndpoint(Provider(), lifetime_s=20) as endpoint:
        kinds = nodes("ottla", "ottla", "ottla", "apache")
        made = BearerCluster(tmp_path, kinds, endpoint)
        allowed = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
        monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-D{allowed}={endpoint.url},{made.keys}")
        with made as cluster:
            works(cluster, "first", 4)
            begun = len(endpoint.asked)
            assert {each.form["grant_type"] for each in endpoint.asked} == {"client_credentials"}
            # Three nodes at two listeners, Apache's at two: every session of the beginning has ended by then.
            until(lambda: len(endpoint.asked) >= begun + 24, "the nodes do not renew their tokens")
            works(cluster, "renewed", 4)
            endpoint.status = 503
            cluster.stop(2)
            cluster.start(2)
            refused = f"{endpoint.url} gives no token: it answers 503"
            until(lambda: refused in cluster.output(2).read_text(), lambda: cluster.tail(2))
            until(lambda: 2 in cluster._processes.ended(), "a node without a token goes on")
            endpoint.status = 0
            cluster.start(2)
            cluster.until_ready(2)
            works(cluster, "again", 4)
        said = "".join(cluster.output(each).read_text() for each in (1, 2, 3))
        assert SECRETS["node"] not in said
        assert "Traceback" not in said
