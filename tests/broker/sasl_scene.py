"""A node with a SASL listener and one without, and connections that sign in by raw requests."""

from __future__ import annotations

from typing import Any

import ottla
from ottla.security.sasl import plain
from ottla.security.scram import scram
from ottla.wire.api.sasl_authenticate import SaslAuthenticateRequest
from ottla.wire.api.sasl_handshake import SaslHandshakeRequest
from tests.broker.wire_client import WireClient

PASSWORD = 'p,a=s"s'
_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_KNOWN = PASSWORD.replace('"', '\\"')
SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "connection.failed.authentication.delay.ms": "0",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{_MODULE} user_ann="{_KNOWN}" user_bob="bobs";',
}


def plaintext(node: ottla.Node) -> str:
    return node.bootstrap_servers.split(",")[0]


def secured(node: ottla.Node) -> str:
    return node.bootstrap_servers.split(",")[1]


def sign_in(client: WireClient, mechanism: str, user: str, password: str = PASSWORD) -> Any:
    """The last answer: of the handshake if that fails, else of a token."""
    hello = client.ask(SaslHandshakeRequest(mechanism=mechanism), 1)
    if hello.error_code:
        return hello
    exchange = plain(user, password) if mechanism == "PLAIN" else scram(mechanism, user, password, "nonce")
    token = next(exchange)
    while True:
        answer = client.ask(SaslAuthenticateRequest(auth_bytes=token), 2)
        if answer.error_code:
            return answer
        try:
            token = exchange.send(bytes(answer.auth_bytes))
        except StopIteration:
            return answer
