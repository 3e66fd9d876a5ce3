"""Clusters whose nodes meet by GSSAPI: an Apache broker among them, a KDC that is away, keys that are missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from ottla.security.node_login import NodeLogin
from ottla.settings.server.settings import ServerSettings
from tests.interop.kdc import HOST, REALM, SERVICE, Kdc, keyed, krb5, realm
from tests.interop.mixed.nodes import MixedNode, until
from tests.interop.mixed.test_secured import SecuredCluster, nodes, works
from tests.settings.test_server_settings import COMBINED

pytestmark = [pytest.mark.interop, pytest.mark.long, pytest.mark.timeout(400)]

_OWN = "gssapi.sasl.jaas.config"


@pytest.fixture(scope="module")
def kdc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    with realm(tmp_path_factory.mktemp("kerberos") / "kdc", SERVICE, f"other/{HOST}") as found:
        yield found


class KerberosCluster(SecuredCluster):
    """Nodes sign in at each other by their keytab, and again every few seconds; clients by PLAIN."""

    def __init__(self, directory: Path, nodes: list[MixedNode], kdc: Kdc) -> None:
        self.kdc = kdc
        super().__init__(directory, nodes, "SASL_PLAINTEXT")

    def _common(self) -> Mapping[str, str]:
        login = keyed(self.kdc, SERVICE, storeKey="true")
        return {
            **super()._common(),
            "sasl.enabled.mechanisms": "PLAIN,GSSAPI",
            "sasl.mechanism.inter.broker.protocol": "GSSAPI",
            "sasl.mechanism.controller.protocol": "GSSAPI",
            "sasl.kerberos.service.name": "kafka",
            f"listener.name.nodes.{_OWN}": login,
            f"listener.name.controller.{_OWN}": login,
            "connections.max.reauth.ms": "5000",
            "super.users": "User:kafka;User:ann",
        }


def test_nodes_register_replicate_and_elect_by_their_keytabs(tmp_path: Path, kdc: Kdc) -> None:
    with KerberosCluster(tmp_path, nodes("ottla", "ottla", "ottla", "apache"), kdc) as cluster:
        works(cluster, "first", 4)
        cluster.restart(1)
        cluster.restart(2)
        works(cluster, "elected", 4)
        kdc.stop()
        try:
            # Nodes that have their tickets need no KDC.
            works(cluster, "without", 4)
            cluster.stop(3)
            cluster.start(3)
            away = f"there is no Kerberos ticket for kafka@127.0.0.1: Cannot contact any KDC for realm '{REALM}'"
            until(lambda: away in cluster.output(3).read_text(), lambda: cluster.tail(3))
        finally:
            kdc.start()
        cluster.until_ready(3)
        works(cluster, "back", 4)
        said = "".join(cluster.output(each).read_text() for each in (1, 2, 3))
        assert "Traceback" not in said


def test_a_node_without_its_keytab_does_not_start(tmp_path: Path, kdc: Kdc) -> None:
    cluster = KerberosCluster(tmp_path, nodes("ottla", "ottla", "ottla", "ottla"), kdc)
    lost = krb5(useKeyTab="true", keyTab="/nowhere/key", principal=f"{SERVICE}@{REALM}")
    # It goes to the controllers' listener and serves none of them.
    cluster.nodes[4].settings = {f"listener.name.controller.{_OWN}": lost}
    cluster.format(cluster.nodes[4])
    processes = cluster._processes
    try:
        cluster.start(4)
        until(lambda: 4 in processes.ended(), "a node without a key goes on")
        words = f"listener.name.controller.{_OWN}: the keytab /nowhere/key cannot be read: No such file or directory"
        assert words in cluster.output(4).read_text()
    finally:
        processes.close()


@pytest.mark.parametrize(
    ("options", "service", "words"),
    [
        ({"keyTab": "/nowhere/key"}, "kafka", "the keytab /nowhere/key cannot be read: No such file or directory"),
        ({"principal": f"other/{HOST}@{REALM}"}, "kafka", f"cannot be used for other/{HOST}@{REALM}: No key table"),
        ({"principal": "*"}, "kafka", "a key that only lets others in (isInitiator=false, or principal=*)"),
        ({"isInitiator": "false"}, "kafka", "a key that only lets others in (isInitiator=false, or principal=*)"),
        ({"principal": ""}, "kafka", "names a keytab and no principal"),
        ({"serviceName": "http"}, "kafka", "sasl.kerberos.service.name=kafka and serviceName=http"),
        ({}, "", "GSSAPI needs sasl.kerberos.service.name"),
        (None, "kafka", f"listener.name.nodes.{_OWN} is missing: this node signs in at the listener NODES"),
    ],
)
def test_a_node_says_what_its_login_lacks(kdc: Kdc, options: dict[str, str] | None, service: str, words: str) -> None:
    given = {
        **COMBINED,
        "listeners": "NODES://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
        "listener.security.protocol.map": "NODES:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "NODES",
        "sasl.mechanism.inter.broker.protocol": "GSSAPI",
    }
    if service:
        given["sasl.kerberos.service.name"] = service
    if options is not None:
        full = {"useKeyTab": "true", "keyTab": str(kdc.keytab(SERVICE)), "principal": f"{SERVICE}@{REALM}"}
        given[f"listener.name.nodes.{_OWN}"] = krb5(**full | options)
    problem = NodeLogin(ServerSettings.parse(given), "NODES", None).problem
    assert words in problem
    assert "\n" not in problem
