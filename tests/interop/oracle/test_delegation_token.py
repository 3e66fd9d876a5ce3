"""Delegation tokens beside Apache Kafka: requests, sign-ins by a token, and kafka-delegation-tokens of Java."""

import re
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.security.sasl import plain
from ottla.security.scram import ScramRefused, scram
from tests.interop import server as servers
from tests.interop.apache_tool import ApacheTools
from tests.interop.oracle.side import Oracle, Side, message
from tests.interop.oracle.test_sign_in import Way
from tests.interop.secured import PASSWORD, USERS, SaslServer, jaas

pytestmark = pytest.mark.interop

_HOUR_MS = 3_600_000
_PLAIN = {"username": "ann", "password": PASSWORD, **{f"user_{user}": password for user, password in USERS.items()}}


class DelegatingServer(SaslServer):
    """One whose controller takes PLAIN as well, with a secret key."""

    def _properties(self, controller_port: int) -> str:
        login = jaas("plain.PlainLoginModule", _PLAIN)
        lines = {
            # Apache's controller refuses requests about tokens that come over PLAINTEXT, forwarded ones as well.
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,"
            "CONTROLLER:SASL_PLAINTEXT",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": login,
            "listener.name.controller.plain.sasl.jaas.config": login,
            "listener.name.controller.scram-sha-256.sasl.jaas.config": jaas("scram.ScramLoginModule", {}),
            "delegation.token.secret.key": "a secret of all nodes",
            "delegation.token.expiry.time.ms": str(_HOUR_MS),
            "delegation.token.max.lifetime.ms": str(3 * _HOUR_MS),
            "connection.failed.authentication.delay.ms": "0",
        }
        return super()._properties(controller_port) + "".join(f"{name}={value}\n" for name, value in lines.items())


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[DelegatingServer, DelegatingServer]]:
    directory = tmp_path_factory.mktemp("tokens")
    found = [
        DelegatingServer(kind, directory / kind.name, servers.HELD) for kind in (servers.apache(), servers.ottla())
    ]
    try:
        for server in found:
            server.start()
        yield found[0], found[1]
    finally:
        for server in found:
            server.stop()


@pytest.fixture
def pair(both: tuple[DelegatingServer, DelegatingServer]) -> Iterator[Oracle]:
    one = Oracle(*both)
    yield one
    one.close()
    while OPENED:
        OPENED.pop().connection.close()


#: The connections of a test.
OPENED: list[Way] = []


def opened(side: Side, port: int) -> Way:
    """A connection that is closed with the test."""
    OPENED.append(Way(side, port))
    return OPENED[-1]


def signed_in(side: Side, exchange: Any, mechanism: str) -> Way | None:
    """A connection that signed in, if it was let in; the answers are noted."""
    assert isinstance(side.server, DelegatingServer)
    way = opened(side, side.server.sasl_port)
    way.connection.ask(message("SaslHandshake", mechanism=mechanism), 1)
    said = next(exchange)
    while True:
        answer = way.connection.ask(message("SaslAuthenticate", auth_bytes=said), 2)
        if answer.error_code:
            side.note("refused", (answer.error_code, answer.error_message))
            return None
        try:
            said = exchange.send(bytes(answer.auth_bytes))
        except StopIteration:
            side.note("signed in for", round(answer.session_lifetime_ms, -5))
            return way
        except ScramRefused:
            side.note("refused", "by the client")
            return None


class Tokens:
    """The requests of one user about tokens, whose answers are noted without what differs by chance."""

    def __init__(self, side: Side, way: Way) -> None:
        self.side, self.way = side, way

    def ask(self, name: str, version: int, **values: Any) -> Any:
        if name == "DescribeDelegationToken":
            # The controller makes and changes tokens; the broker, which describes them, follows.
            self.side.settle()
        answer = self.way.connection.ask(message(name, **values), version)
        shown = (
            dict(vars(answer))
            if hasattr(answer, "__dict__")
            else {each: getattr(answer, each) for each in answer.__slots__}
        )
        begun = shown.get("issue_timestamp_ms", 0)
        for each, value in shown.items():
            if each in ("token_id", "hmac"):
                shown[each] = len(value)
            elif each.endswith("timestamp_ms") and value > 0:
                shown[each] = round(value - begun, -5) if begun else "time"
            elif each == "tokens":
                shown[each] = sorted(
                    (
                        one.principal_name,
                        one.token_requester_principal_name,
                        len(one.hmac),
                        [renewer.principal_name for renewer in one.renewers],
                        one.expiry_timestamp - one.issue_timestamp,
                        one.max_timestamp - one.issue_timestamp,
                    )
                    for one in value
                )
        self.side.note(f"{name} v{version}", shown)
        return answer

    def create(self, **values: Any) -> Any:
        """A token by which a user can sign in."""
        answer = self.ask("CreateDelegationToken", 3, **values)
        self.side.settle()
        return answer


def of_user(side: Side, user: str) -> Tokens:
    way = signed_in(side, plain(user, USERS[user]), "PLAIN")
    assert way is not None
    return Tokens(side, way)


def test_requests_about_tokens_have_the_same_answers(pair: Oracle) -> None:
    def script(side: Side) -> None:
        ann, bob = of_user(side, "ann"), of_user(side, "bob")
        renewers = [{"principal_type": "User", "principal_name": "bob"}]
        token = ann.create(renewers=renewers, max_lifetime_ms=-1)
        short = ann.create(max_lifetime_ms=1_800_000)
        ann.ask("CreateDelegationToken", 2, renewers=[{"principal_type": "Group", "principal_name": "x"}])
        other = ann.create(owner_principal_type="User", owner_principal_name="cid", max_lifetime_ms=0)
        ann.ask("CreateDelegationToken", 1)
        for each in (ann, bob):
            each.ask("DescribeDelegationToken", 3, owners=[])
            for hmac in (token.hmac, short.hmac, other.hmac, b"x", b""):
                each.ask("RenewDelegationToken", 2, hmac=bytes(hmac), renew_period_ms=_HOUR_MS)
                each.ask("ExpireDelegationToken", 2, hmac=bytes(hmac), expiry_time_period_ms=_HOUR_MS // 4)
        bob.ask("ExpireDelegationToken", 1, hmac=bytes(token.hmac), expiry_time_period_ms=-1)
        ann.ask("ExpireDelegationToken", 2, hmac=bytes(short.hmac), expiry_time_period_ms=-1)
        plaintext = Tokens(side, opened(side, side.server.port))
        plaintext.ask("CreateDelegationToken", 3, owner_principal_type="User", owner_principal_name="ann")
        plaintext.ask("RenewDelegationToken", 2, hmac=b"x")
        plaintext.ask("ExpireDelegationToken", 2, hmac=b"x")
        plaintext.ask("DescribeDelegationToken", 3, owners=None)

    pair.compare(script)


def test_a_sign_in_by_a_token_ends_the_same_way(pair: Oracle) -> None:
    def script(side: Side) -> None:
        token = of_user(side, "ann").create()
        password = b64encode(bytes(token.hmac)).decode()
        for user, secret, extension in (
            (token.token_id, password, "tokenauth=true"),
            (token.token_id, "wrong", "tokenauth=true"),
            ("unknown", password, "tokenauth=true"),
            (token.token_id, password, ""),
        ):
            way = signed_in(side, scram("SCRAM-SHA-256", user, secret, "nonce", extension), "SCRAM-SHA-256")
            if way is not None:
                by_token = Tokens(side, way)
                by_token.ask("CreateDelegationToken", 3)
                by_token.ask("RenewDelegationToken", 2, hmac=bytes(token.hmac))
                by_token.ask("ExpireDelegationToken", 2, hmac=bytes(token.hmac))
                by_token.ask("DescribeDelegationToken", 3, owners=None)

    pair.compare(script)


def test_java_makes_a_token_signs_in_by_it_and_ends_it(pair: Oracle, tmp_path: Path) -> None:
    user, by_token = tmp_path / "user.properties", tmp_path / "token.properties"
    common = "security.protocol=SASL_PLAINTEXT\n"
    line = jaas("plain.PlainLoginModule", {"username": "ann", "password": PASSWORD})
    user.write_text(f"{common}sasl.mechanism=PLAIN\nsasl.jaas.config={line}\n")
    with ApacheTools() as tool:

        def outcome(side: Side) -> list[Any]:
            assert isinstance(side.server, DelegatingServer)
            address = ("--bootstrap-server", f"127.0.0.1:{side.server.sasl_port}", "--command-config")
            made = tool(
                "kafka-delegation-tokens",
                *address,
                str(user),
                "--create",
                "--max-life-time-period",
                "-1",
                "--renewer-principal",
                "User:bob",
            )
            token_id, secret = made.out.splitlines()[-1].split()[:2]
            login = jaas("scram.ScramLoginModule", {"username": token_id, "password": secret, "tokenauth": "true"})
            by_token.write_text(f"{common}sasl.mechanism=SCRAM-SHA-256\nsasl.jaas.config={login}\n")
            side.settle()
            found = [made, tool("kafka-topics", *address, str(by_token), "--list", "--topic", "absent")]
            found += [
                tool("kafka-delegation-tokens", *address, str(user), f"--{each}", period, "-1", "--hmac", secret)
                for each, period in (("renew", "--renew-time-period"), ("expire", "--expiry-time-period"))
            ]
            side.settle()
            found.append(tool("kafka-delegation-tokens", *address, str(by_token), "--describe"))
            return [
                (each.code, _shown(each.out, token_id, secret), _shown(each.err, token_id, secret)) for each in found
            ]

        theirs, ours = map(outcome, (pair.reference, pair.subject))
        assert theirs == ours
        assert [code for code, _, _ in theirs[:4]] == [0, 0, 0, 0]


def _shown(text: str, token_id: str, secret: str) -> str:
    """The text without this run's token and moments."""
    text = text.replace(token_id, "ID").replace(secret, "SECRET")
    return re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d", "MOMENT", re.sub(r" +", " ", text)).split("\n\tat ")[0]
