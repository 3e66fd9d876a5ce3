"""Signing in at a node: who comes in, who does not, what that costs, and how sessions end."""

from __future__ import annotations

import base64
import socket
from collections.abc import Iterator
from typing import Any

import pytest

import ottla
from ottla.client import (
    Admin,
    AuthenticationFailed,
    ConfigResource,
    Consumer,
    Producer,
    ResourceType,
    ScramCredential,
    ScramMechanism,
)
from ottla.kernel.error import ErrorCode, OttlaError
from ottla.settings.server.settings import ServerSettings
from ottla.settings.server.single_node import single_node
from ottla.wire.api.api_versions import ApiVersionsRequest
from ottla.wire.api.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.wire.api.create_delegation_token import CreateDelegationTokenRequest
from ottla.wire.api.metadata import MetadataRequest
from ottla.wire.api.sasl_authenticate import SaslAuthenticateRequest
from ottla.wire.api.sasl_handshake import SaslHandshakeRequest
from tests.broker.sasl_scene import PASSWORD, SETTINGS, plaintext, secured, sign_in
from tests.broker.wire_client import WireClient

_SESSION_MS = 60_000


@pytest.fixture(scope="module")
def node() -> Iterator[ottla.Node]:
    with ottla.Node(settings=SETTINGS) as node, Admin(plaintext(node)) as admin:
        for mechanism in ScramMechanism:
            admin.alter_scram_credentials([ScramCredential("ann", mechanism, PASSWORD)]).check()
        yield node


@pytest.fixture
def client(node: ottla.Node) -> Iterator[WireClient]:
    with WireClient(secured(node)) as client:
        yield client


def settings(node: ottla.Node, mechanism: str, password: str = PASSWORD) -> dict[str, Any]:
    return {
        "bootstrap.servers": secured(node),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": "ann",
        "sasl.password": password,
    }


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_client_signs_in_and_does_all_its_work(node: ottla.Node, mechanism: str) -> None:
    topic = f"signed-in-{mechanism}"
    with Admin(settings(node, mechanism)) as admin, Producer(settings(node, mechanism)) as producer:
        admin.create_topic(topic, 2)
        deliveries = [producer.send(topic, b"%d" % n) for n in range(50)]
        producer.flush()
        assert all(delivery.result(30).offset >= 0 for delivery in deliveries)
    wanted = settings(node, mechanism) | {"group.id": topic, "auto.offset.reset": "earliest"}
    with Consumer(wanted) as consumer:
        consumer.subscribe([topic])
        found: list[bytes] = []
        while len(found) < 50:
            found += [one.value for one in consumer.poll(10)]
    assert sorted(found) == sorted(b"%d" % n for n in range(50))


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_wrong_password_is_refused(node: ottla.Node, mechanism: str) -> None:
    with Admin(settings(node, mechanism, "wrong")) as admin, pytest.raises(AuthenticationFailed):
        admin.list_topics()


def test_a_refused_connection_is_closed_after_its_answer(client: WireClient) -> None:
    answer = sign_in(client, "PLAIN", "ann", "wrong")
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.error_message == "Authentication failed: Invalid username or password"
    with pytest.raises(ConnectionError):
        client.receive_frame()


def test_a_mechanism_that_is_not_enabled_is_refused_with_those_that_are(client: WireClient) -> None:
    hello = client.ask(SaslHandshakeRequest(mechanism="GSSAPI"), 1)
    assert hello.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert hello.mechanisms == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
    with pytest.raises(ConnectionError):
        client.receive_frame()


@pytest.mark.parametrize(
    ("request_", "version"),
    [
        (SaslHandshakeRequest(mechanism="PLAIN"), 1),
        (MetadataRequest(topics=[]), 13),
        (ConsumerGroupDescribeRequest(group_ids=["g"]), 1),
    ],
)
def test_another_request_in_the_middle_of_a_sign_in_is_told_so(
    client: WireClient, request_: object, version: int
) -> None:
    assert client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
    answer = client.ask(request_, version)
    said = answer.groups[0] if hasattr(answer, "groups") else answer
    assert said.error_code == ErrorCode.ILLEGAL_SASL_STATE
    with pytest.raises(ConnectionError):
        client.receive_frame()


def test_a_long_request_in_the_middle_of_a_sign_in_is_not_read(client: WireClient) -> None:
    assert client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
    client.send(ConsumerGroupDescribeRequest(group_ids=["g" * 100] * 50), 1)
    with pytest.raises(ConnectionError):
        client.receive_frame()


def test_bare_tokens_follow_an_old_handshake(client: WireClient) -> None:
    assert client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 0).error_code == 0
    token = f"\0ann\0{PASSWORD}".encode()
    client.send_raw(len(token).to_bytes(4, "big") + token)
    assert client.receive_frame() == b""
    assert client.ask(MetadataRequest(topics=[]), 12).brokers


def test_the_principal_is_the_user_who_signed_in(client: WireClient) -> None:
    assert sign_in(client, "SCRAM-SHA-512", "ann").error_code == 0
    told = client.ask(CreateDelegationTokenRequest(), 3)
    assert (told.principal_type, told.principal_name) == ("User", "ann")
    late = client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    assert late.error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert client.ask(ConsumerGroupDescribeRequest(group_ids=[]), 1).groups == []


def test_the_versions_may_be_asked_once_before_the_handshake(client: WireClient) -> None:
    asked = ApiVersionsRequest(client_software_name="t", client_software_version="1")
    assert client.ask(asked, 3).api_keys
    client.send(asked, 3)
    with pytest.raises(ConnectionError):
        client.receive_frame()


def test_an_odd_name_or_version_of_the_first_question_may_be_mended(client: WireClient) -> None:
    odd = ApiVersionsRequest(client_software_name=" ", client_software_version="1")
    assert client.ask(odd, 3).error_code == ErrorCode.INVALID_REQUEST
    assert client.ask(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3).api_keys
    assert sign_in(client, "PLAIN", "ann").error_code == 0


@pytest.mark.parametrize(
    "data",
    [
        b"\0\x03\0\x0c" + bytes(20),
        b"\0\x00\0\x09" + bytes(20),
        b"\0\x11\0\x09" + bytes(20),
        b"\0\x24\0\x02" + bytes(20),
        b"\0\x11\0\x01" + b"\xff" * 20,
        b"\0",
        b"",
    ],
)
def test_nothing_else_is_answered_before_the_sign_in(client: WireClient, data: bytes) -> None:
    client.send_raw(len(data).to_bytes(4, "big") + data)
    with pytest.raises(ConnectionError):
        client.receive_frame()


def test_what_is_sent_behind_a_failed_sign_in_is_not_looked_at(node: ottla.Node) -> None:
    with WireClient(secured(node)) as client:
        # At once: what lies unread when a connection is closed may take its last answer with it.
        right = SaslAuthenticateRequest(auth_bytes=f"\0ann\0{PASSWORD}".encode())
        client.send_raw(
            client.framed(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            + client.framed(SaslAuthenticateRequest(auth_bytes=b"\0ann\0wrong"), 2)
            + client.framed(right, 2)
            + client.framed(MetadataRequest(topics=[]), 12)
        )
        assert client.receive(17, 1).error_code == 0
        assert client.receive(36, 2).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        with pytest.raises(ConnectionError):
            client.receive_frame()


def test_a_sign_in_is_bounded_and_what_follows_is_not() -> None:
    with ottla.Node(settings=SETTINGS | {"sasl.server.max.receive.size": "200"}) as node:
        with WireClient(secured(node)) as client:
            client.send_raw((201).to_bytes(4, "big"))
            with pytest.raises(ConnectionError):
                client.receive_frame()
        with WireClient(secured(node), client_id="c" * 1000) as client:
            client.client_id = "c"
            assert sign_in(client, "PLAIN", "ann").error_code == 0
            client.client_id = "c" * 1000
            assert client.ask(MetadataRequest(topics=[]), 12).brokers


def test_a_thousand_wrong_guesses_cost_their_own_connections(node: ottla.Node) -> None:
    with WireClient(secured(node)) as well_behaved:
        assert sign_in(well_behaved, "PLAIN", "ann").error_code == 0
        for _ in range(10):
            guessing = [WireClient(secured(node)) for _ in range(100)]
            for number, each in enumerate(guessing):
                mechanism = ("PLAIN", "SCRAM-SHA-256")[number % 2]
                each.send(SaslHandshakeRequest(mechanism=mechanism), 1)
                token = b"\0ann\0guess" if mechanism == "PLAIN" else b"n,,n=guess,r=x"
                each.send(SaslAuthenticateRequest(auth_bytes=token), 2)
            assert well_behaved.ask(MetadataRequest(topics=[]), 12).brokers
            for each in guessing:
                with each:
                    assert each.receive(17, 1).error_code == 0
                    assert each.receive(36, 2).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
                    with pytest.raises(ConnectionError):
                        each.receive_frame()
        assert well_behaved.ask(MetadataRequest(topics=[]), 12).brokers


def test_a_failed_sign_in_is_answered_after_the_delay() -> None:
    # The node's clock is the test's: without a push the answer never comes.
    delayed = SETTINGS | {"connection.failed.authentication.delay.ms": "300000"}
    with ottla.Node(settings=delayed) as node, WireClient(secured(node)) as client:
        assert client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
        client.send(SaslAuthenticateRequest(auth_bytes=b"\0ann\0wrong"), 2)
        with WireClient(secured(node)) as other:
            # By then the failed one was looked at.
            assert sign_in(other, "PLAIN", "ann").error_code == 0
        client.sock.setblocking(False)
        with pytest.raises(BlockingIOError):
            client.sock.recv(1, socket.MSG_PEEK)
        client.sock.settimeout(20)
        node.clock.advance(300_001)
        assert client.receive(36, 2).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


# ---- sessions


def test_a_session_is_renewed_or_ends() -> None:
    limited = SETTINGS | {
        "connections.max.reauth.ms": "1",
        "listener.name.sasl_plaintext.plain.connections.max.reauth.ms": str(_SESSION_MS),
    }
    with ottla.Node(settings=limited) as node, WireClient(secured(node)) as client:
        assert sign_in(client, "PLAIN", "ann").session_lifetime_ms == _SESSION_MS
        node.clock.advance(_SESSION_MS // 2)
        assert sign_in(client, "PLAIN", "ann").session_lifetime_ms == _SESSION_MS
        node.clock.advance(_SESSION_MS - 5000)
        assert client.ask(MetadataRequest(topics=[]), 12).brokers
        # Too soon after the last one, it is a request like others.
        assert sign_in(client, "PLAIN", "ann").session_lifetime_ms == _SESSION_MS
        assert client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == ErrorCode.ILLEGAL_SASL_STATE
        node.clock.advance(_SESSION_MS + 5000)
        client.send(MetadataRequest(topics=[]), 12)
        with pytest.raises(ConnectionError):
            client.receive_frame()


def test_a_session_keeps_its_user_and_its_mechanism() -> None:
    limited = SETTINGS | {"connections.max.reauth.ms": str(_SESSION_MS)}
    with ottla.Node(settings=limited) as node:
        with WireClient(secured(node)) as client:
            assert sign_in(client, "PLAIN", "ann").error_code == 0
            answer = sign_in(client, "PLAIN", "bob", "bobs")
            assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
            assert answer.error_message == ("Cannot change principals during re-authentication from User.ann: User.bob")
            with pytest.raises(ConnectionError):
                client.receive_frame()
        with WireClient(secured(node)) as client:
            assert sign_in(client, "PLAIN", "ann").error_code == 0
            assert client.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1).error_code == 0
            client.send(SaslAuthenticateRequest(auth_bytes=b"n,,n=ann,r=x"), 2)
            with pytest.raises(ConnectionError):
                client.receive_frame()
        with WireClient(secured(node)) as client:
            assert sign_in(client, "PLAIN", "ann").error_code == 0
            answer = sign_in(client, "PLAIN", "ann", "wrong")
            assert answer.error_message == "Authentication failed: Invalid username or password"


# ---- credentials and settings


def test_a_credential_counts_from_when_it_is_there_until_it_goes(node: ottla.Node) -> None:
    def outcome() -> int:
        with WireClient(secured(node)) as client:
            return int(sign_in(client, "SCRAM-SHA-256", "cid", "one").error_code)

    refused = int(ErrorCode.SASL_AUTHENTICATION_FAILED)
    assert outcome() == refused
    with Admin(plaintext(node)) as admin:
        mechanism = ScramMechanism.SCRAM_SHA_256
        admin.alter_scram_credentials([ScramCredential("cid", mechanism, "one")]).check()
        assert outcome() == 0
        admin.alter_scram_credentials([ScramCredential("cid", mechanism, "two")]).check()
        assert outcome() == refused


def test_users_of_a_line_may_change_while_the_node_runs(node: ottla.Node) -> None:
    name = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"

    own = ConfigResource(ResourceType.BROKER, "1")

    def outcome(user: str, password: str) -> int:
        with WireClient(secured(node)) as client:
            return int(sign_in(client, "PLAIN", user, password).error_code)

    with Admin(plaintext(node)) as admin:
        admin.alter_configs({own: {name: f'{module} user_dan="dans";'}})
        assert outcome("dan", "dans") == 0
        assert outcome("bob", "bobs") == ErrorCode.SASL_AUTHENTICATION_FAILED
        admin.alter_configs({own: {name: f"{module} user_eve="}})
        assert outcome("dan", "dans") == 0, "a line that cannot be read changes nothing"
        admin.alter_configs({own: {name: None}})
        assert outcome("bob", "bobs") == 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sasl.enabled.mechanisms": "DIGEST-MD5"}, "does not serve DIGEST-MD5; it serves PLAIN, SCRAM"),
        ({"sasl.enabled.mechanisms": "GSSAPI"}, r"gssapi\.sasl\.jaas\.config is missing: the listener"),
        ({"listener.name.sasl_plaintext.sasl.enabled.mechanisms": "PLAIN,NTLM"}, "does not serve NTLM"),
        ({"listener.name.sasl_plaintext.plain.sasl.jaas.config": "x"}, r"plain\.sasl\.jaas\.config: a JAAS line is"),
    ],
)
def test_settings_that_let_nobody_in_stop_the_start(change: dict[str, str], words: str) -> None:
    with pytest.raises(OttlaError, match=words) as error, ottla.Node(settings=SETTINGS | change):
        pass
    assert "\n" not in str(error.value)


def test_plain_without_its_line_stops_the_start() -> None:
    without = {name: value for name, value in SETTINGS.items() if "jaas" not in name}
    with pytest.raises(OttlaError, match=r"plain\.sasl\.jaas\.config is missing"), ottla.Node(settings=without):
        pass


def test_tokens_never_show_in_the_log(node: ottla.Node, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(5)
    with WireClient(secured(node)) as client:
        sign_in(client, "PLAIN", "ann", "not-to-be-told")
    with WireClient(secured(node)) as client:
        sign_in(client, "PLAIN", "ann")
        client.ask(MetadataRequest(topics=[]), 12)
    said = caplog.text
    for secret in ("not-to-be-told", PASSWORD, base64.b64encode(PASSWORD.encode()).decode()):
        assert secret not in said


def test_a_listener_s_tickets_are_checked_with_its_line_and_named_by_its_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    from ottla.broker.dispatch import sign_in as module
    from ottla.security import kerberos

    made: list[tuple[str, ...]] = []

    class Acceptor:
        def __init__(self, name: str, text: str) -> None:
            made.append(("acceptor", name, text))

        def begin(self) -> str:
            return "begun"

    monkeypatch.setattr(kerberos, "Acceptor", Acceptor)
    monkeypatch.setattr(kerberos, "default_realm", lambda: "HOME")
    monkeypatch.setattr(kerberos, "service_name", lambda service, options: made.append((service, options["keyTab"])))
    own = "listener.name.sasl_plaintext.gssapi.sasl"
    line = f'{kerberos.MODULE} required useKeyTab=true keyTab="/own" principal="kafka/h@HOME";'
    settings = ServerSettings.parse(
        single_node("/data", "127.0.0.1", 9092)
        | SETTINGS
        | {
            f"{own}.jaas.config": line,
            f"{own}.kerberos.service.name": "own",
            "sasl.kerberos.service.name": "other",
            f"{own}.kerberos.principal.to.local.rules": "RULE:[1:$1]/U,DEFAULT",
        }
    )
    begins, user = module._kerberos(settings, "SASL_PLAINTEXT").args  # type: ignore[attr-defined]
    assert made == [("acceptor", f"{own}.jaas.config", line), ("own", "/own")]
    assert begins() == "begun"
    assert [user(each) for each in ("ann@AWAY", "kafka/h@HOME")] == ["ANN", "kafka"]
    missing = ServerSettings.parse(single_node("/data", "127.0.0.1", 9092) | SETTINGS)
    with pytest.raises(OttlaError, match=rf"{own}\.jaas\.config.*its keytab"):
        module._kerberos(missing, "SASL_PLAINTEXT")
