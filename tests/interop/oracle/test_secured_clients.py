"""Foreign clients at every kind of listener, with every mechanism: let in, or refused with the same error as by Apache.

Each case runs at both servers. One case a client is the short form, LONG=1 has them all.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import pytest

from tests.interop.oracle.secured_server import (
    APART,
    LISTENERS,
    MECHANISMS,
    PROVIDER,
    TOPIC,
    USERS,
    WRITTEN,
    SecuredServer,
    make_files,
    started,
)
from tests.interop.peer import KINDS, Crew, Kind, Peer, PeerError

pytestmark = [pytest.mark.interop, pytest.mark.timeout(240)]

#: A delegation token, by SCRAM-SHA-256, and the clients that have it.
TOKEN = "TOKEN"
TOKEN_CLIENTS = {"java", "franz-go"}
LET_IN = (None, "", "let in")
_HANDSHAKES = {"no certificate", "expired certificate", "certificate of another CA", "broker of another CA"}


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
    topic: str = TOPIC

    @property
    def name(self) -> str:
        return " ".join(part for part in (self.listener, self.mechanism, self.refusal or "let in") if part)


def cases() -> Iterator[Case]:
    yield Case("PLAINTEXT")
    yield Case("PLAINTEXT", refusal="no ACL", topic=APART)
    yield Case("PLAINTEXT", refusal="no ACL to read", topic=WRITTEN)
    yield Case("SSL")
    yield Case("SSL", refusal="broker of another CA", ca="stranger")
    yield Case("MUTUAL", own="client")
    yield Case("MUTUAL", refusal="no certificate")
    yield Case("MUTUAL", refusal="expired certificate", own="late")
    yield Case("MUTUAL", refusal="certificate of another CA", own="unknown")
    yield Case("MUTUAL", refusal="no ACL", own="bob")
    yield Case("MUTUAL", refusal="no ACL to read", own="cid")
    for listener in ("SASL_PLAINTEXT", "SASL_SSL"):
        for mechanism in (*MECHANISMS, TOKEN):
            yield Case(listener, mechanism)
            if mechanism != "OAUTHBEARER":
                yield Case(listener, mechanism, "wrong password")
            if mechanism in ("OAUTHBEARER", TOKEN):
                yield Case(listener, mechanism, "expired token")
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
    ("franz-go", "SASL_PLAINTEXT TOKEN expired token"),
    ("sarama", "PLAINTEXT no ACL to read"),
    ("sarama", "SASL_PLAINTEXT SCRAM-SHA-256 wrong password"),
    ("kafkajs", "SASL_SSL PLAIN let in"),
}


@pytest.fixture(scope="module")
def both(crew: Crew, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[SecuredServer]]:
    directory = tmp_path_factory.mktemp("secured")
    files = make_files(tmp_path_factory.mktemp("certificates"))
    # The last credential, the last token, the coordinator of the groups.
    with started(directory, files, partial(_knows, crew=crew)) as found:
        yield found


def job(case: Case, server: SecuredServer) -> dict[str, Any]:
    """What a peer is told."""
    expires: dict[str, Any] = {}
    user, password = server.tokens[case.user] if case.mechanism == TOKEN else (case.user, USERS[case.user])
    if case.refusal == "wrong password":
        password = "guessed"
    if case.refusal == "expired token":
        expires = {"iat": 1, "exp": 1_000_000_000}
        user, password = server.ended
    return {
        "topic": case.topic,
        "group": TOPIC,
        "id": uuid.uuid4().hex,
        "security": LISTENERS[case.listener] or case.listener,
        "mechanism": "SCRAM-SHA-256" if case.mechanism == TOKEN else case.mechanism,
        "tokenauth": case.mechanism == TOKEN,
        "user": user,
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


def _knows(server: SecuredServer, crew: Crew) -> bool:
    """Does the broker know the last credential and the last token, and that a token has ended?"""
    known = [("kafkajs", "SCRAM-SHA-512 let in"), ("franz-go", "TOKEN let in"), ("franz-go", "TOKEN expired token")]
    found = [met(KINDS[client], server, CASES[f"SASL_PLAINTEXT {name}"], crew) for client, name in known]
    return [each == LET_IN for each in found] == [True, True, False]


def _each() -> Iterator[object]:
    for client in CLIENTS:
        for name, case in CASES.items():
            if case.mechanism == TOKEN and client not in TOKEN_CLIENTS:
                continue
            marks = [] if (client, name) in SHORT else [pytest.mark.long]
            yield pytest.param(client, name, marks=marks, id=f"{client} {name}")


@pytest.mark.parametrize(("client", "name"), list(_each()))
def test_a_client_meets_the_same(both: list[SecuredServer], crew: Crew, client: str, name: str) -> None:
    case = CASES[name]
    theirs, ours = (met(KINDS[client], server, case, crew) for server in both)
    assert theirs == ours
    assert (ours == LET_IN) is (not case.refusal), ours
