"""A client whose sign-in ends while it works (KIP-368): it signs in again on the connections that it has."""

from collections.abc import Iterator
from time import monotonic

import pytest

import ottla
from ottla.client import Producer

#: A session may be renewed once a second.
SESSION_MS = 1300
SETTINGS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "SASL_PLAINTEXT",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="node" password="p" user_node="p" user_ann="secret";'
    ),
    "listener.name.sasl_plaintext.plain.connections.max.reauth.ms": str(SESSION_MS),
}


@pytest.fixture(scope="module")
def node() -> Iterator[ottla.Node]:
    with ottla.Node(settings=SETTINGS) as node:
        yield node


def test_records_go_on_over_the_same_connections(node: ottla.Node) -> None:
    with Producer(
        node.bootstrap_servers,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_username="ann",
        sasl_password="secret",
    ) as producer:
        producer.send("t", b"first").result(30)
        opened = producer._sender._cluster.connections_opened
        before = opened.count
        end = monotonic() + 3 * SESSION_MS / 1000
        count = 0
        while monotonic() < end:
            # Many at once, so that some are written while the sign-in is under way.
            for sent in [producer.send("t", b"%d" % number) for number in range(20)]:
                sent.result(30)
            count += 1
        assert opened.count == before
        assert producer.send("t", b"last").result(30).offset == 1 + 20 * count
