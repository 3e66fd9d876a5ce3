"""GSSAPI beside Apache Kafka, with MIT's KDC: our client at both servers, Java's client at both, and raw tokens.

Rules of both servers make `User:ann` of ann and of cid, and `ann` alone may see the topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import ottla
from ottla.client import Acl, AclOperation, AclResource, Admin, Consumer, NewTopic, NotReachable, Producer
from ottla.kernel.client_error import AuthenticationFailed
from ottla.kernel.error import OttlaError
from ottla.security.kerberos import Initiator, KerberosContext, library
from tests.broker.tls_scene import AUTHORIZER
from tests.client.conftest import eventually
from tests.interop import server as servers
from tests.interop.apache_tool import ApacheTools
from tests.interop.kdc import HOST, REALM, SERVICE, Kdc, keyed, krb5, realm
from tests.interop.oracle.side import CLOSED, Oracle, Side, message
from tests.interop.oracle.test_sign_in import Way

pytestmark = [pytest.mark.interop, pytest.mark.long, pytest.mark.timeout(300)]

TOPIC = "of-ann"
RULES = r"RULE:[1:$1@$0](cid@.*\.TEST)s/C?(.*)@.*/ANN/L,RULE:[1:$1@$0](dan@.*),DEFAULT"


class KerberosServer(servers.Server):
    """A server with PLAINTEXT, and KERBEROS for the realm's principals."""

    kdc: Kdc
    kerberos_port: int

    def _properties(self, controller_port: int) -> str:
        (self.kerberos_port,) = servers.free_ports(1)
        listeners = f"PLAINTEXT://127.0.0.1:{self.port},KERBEROS://127.0.0.1:{self.kerberos_port}"
        lines = {
            "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller_port}",
            # Clients in Go ask for a ticket for the host as they are told of it.
            "advertised.listeners": listeners.replace("KERBEROS://127.0.0.1", f"KERBEROS://{HOST}"),
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,KERBEROS:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
            "sasl.enabled.mechanisms": "GSSAPI",
            "sasl.kerberos.service.name": "kafka",
            "sasl.kerberos.principal.to.local.rules": RULES.replace("\\", "\\\\"),
            "listener.name.kerberos.gssapi.sasl.jaas.config": keyed(self.kdc, SERVICE, storeKey="true"),
            "connection.failed.authentication.delay.ms": "0",
            "connections.max.reauth.ms": "600000",
            "authorizer.class.name": AUTHORIZER,
            "super.users": "User:ANONYMOUS",
        }
        return super()._properties(controller_port) + "".join(f"{name}={value}\n" for name, value in lines.items())

    @property
    def kerberos(self) -> str:
        return f"127.0.0.1:{self.kerberos_port}"


@pytest.fixture(scope="module")
def kdc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kdc]:
    with realm(
        tmp_path_factory.mktemp("kerberos") / "kdc", SERVICE, "ann", "bob", "cid", "dan", f"other/{HOST}"
    ) as found:
        yield found


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory, kdc: Kdc) -> Iterator[tuple[KerberosServer, KerberosServer]]:
    directory = tmp_path_factory.mktemp("servers")
    found = [KerberosServer(kind, directory / kind.name) for kind in (servers.apache(), servers.ottla())]
    try:
        for server in found:
            server.kdc = kdc
            server.start()
            with Admin(server.bootstrap) as admin:
                admin.create_topics([NewTopic(TOPIC)]).check()
                admin.create_acls(
                    [
                        Acl(AclResource.TOPIC, TOPIC, "User:ann", AclOperation.ALL),
                        Acl(AclResource.GROUP, TOPIC, "User:ann", AclOperation.ALL),
                    ]
                ).check()
            await_rules(server, kdc)
        yield found[0], found[1]
    finally:
        for server in found:
            server.stop()


def await_rules(server: KerberosServer, kdc: Kdc) -> None:
    """Apache's broker knows a rule a moment after its controller."""
    eventually(lambda: topics(server, keyed(kdc, "ann")) == [TOPIC], timeout_s=60)


@pytest.fixture(params=[0, 1], ids=["apache", "ottla"])
def peer(both: tuple[KerberosServer, KerberosServer], request: pytest.FixtureRequest) -> KerberosServer:
    return both[request.param]


@pytest.fixture
def pair(both: tuple[KerberosServer, KerberosServer]) -> Iterator[Oracle]:
    one = Oracle(*both)
    yield one
    one.close()


def settings(line: str | None, **more: str) -> dict[str, Any]:
    given = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "GSSAPI", "sasl_kerberos_service_name": "kafka"}
    return given | ({} if line is None else {"sasl_jaas_config": line}) | more


def topics(server: KerberosServer, line: str | None, **more: str) -> list[str]:
    """The topics that a client may see."""
    with Admin(server.kerberos, **settings(line, **more)) as admin:
        return sorted(each.name for each in admin.list_topics())


# ---- our client


def test_records_go_through(peer: KerberosServer, kdc: Kdc) -> None:
    given = settings(keyed(kdc, "ann"))
    with Producer(peer.kerberos, **given) as producer:
        producer.send(TOPIC, b"by a ticket").result()
    with Consumer(peer.kerberos, group_id=TOPIC, auto_offset_reset="earliest", **given) as consumer:
        consumer.subscribe([TOPIC])
        assert next(iter(consumer)).value == b"by a ticket"


def test_the_principal_s_user_is_found_by_the_rules(peer: KerberosServer, kdc: Kdc) -> None:
    assert topics(peer, keyed(kdc, "cid")) == [TOPIC]
    assert topics(peer, keyed(kdc, "bob")) == []


def test_a_ticket_cache_and_librdkafka_s_names_serve_too(peer: KerberosServer, kdc: Kdc) -> None:
    cache = kdc.ticket("ann")
    assert topics(peer, krb5(useTicketCache="true", ticketCache=cache.removeprefix("FILE:"))) == [TOPIC]
    own = {"sasl_kerberos_keytab": str(kdc.keytab("ann")), "sasl_kerberos_principal": f"ann@{REALM}"}
    assert topics(peer, None, **own) == [TOPIC]


# ---- Java's client


def test_java_s_client_is_let_in_or_told_the_same(
    both: tuple[KerberosServer, KerberosServer], kdc: Kdc, tmp_path: Path
) -> None:
    file = tmp_path / "client.properties"
    with ApacheTools() as tool:
        for principal, seen in (("ann", [TOPIC]), ("cid", [TOPIC]), ("bob", [])):
            file.write_text(
                "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=GSSAPI\nsasl.kerberos.service.name=kafka\n"
                f"sasl.jaas.config={keyed(kdc, principal)}\n"
            )
            for server in both:
                said = tool(
                    "kafka-topics", "--bootstrap-server", server.kerberos, "--list", "--command-config", str(file)
                )
                assert (said.code, said.out.split()) == (0, seen), (server.name, said.err)


# ---- raw tokens


def begun(kdc: Kdc, principal: str = "ann", service: str = "kafka") -> tuple[KerberosContext, bytes]:
    return Initiator(service, keyed(kdc, principal)).begin(HOST)


class Attempt:
    """A sign-in by raw tokens, up to the server's offer of layers."""

    def __init__(self, way: Way, kdc: Kdc, principal: str = "ann") -> None:
        self._way = way
        way.ask("SaslHandshake", 1, mechanism="GSSAPI")
        self.context, token = begun(kdc, principal)
        assert not self.context.step(self._unnoted(token))
        #: the layers that the server offers, and its longest message
        self.offer = self.context.unwrap(self._unnoted(b""))
        way.side.note("offer", self.offer)

    def _unnoted(self, token: bytes) -> bytes:
        """The token that answers: no two are equal."""
        reply = self._way.connection.ask(message("SaslAuthenticate", auth_bytes=token), 2)
        assert reply != CLOSED and not reply.error_code, reply
        return bytes(reply.auth_bytes)

    def choose(self, layer: bytes, user: bytes = b"") -> bool:
        """Choose a layer; did the server end the connection?"""
        token = self.context.wrap(layer + user)
        reply = self._way.ask("SaslAuthenticate", 2, auth_bytes=token)
        return bool(reply == CLOSED or reply.error_code)


NONE = bytes([1, 0, 0, 0])
CHOICES = {
    "none": (NONE, b""),
    "none, as itself": (NONE, f"ann@{REALM}".encode()),
    "none, as another": (NONE, b"bob"),
    "integrity": (bytes([2, 0, 16, 0]), b""),
    "privacy": (bytes([4, 0, 16, 0]), b""),
    "no layer at all": (bytes(4), b""),
}


@pytest.mark.parametrize("choice", CHOICES)
def test_a_layer_is_answered_alike(pair: Oracle, kdc: Kdc, choice: str) -> None:
    def script(side: Side) -> None:
        way = kerberos_way(side)
        refused = Attempt(way, kdc).choose(*CHOICES[choice])
        way.connection.close() if refused else way.end()

    pair.compare(script)


TOKENS: dict[str, Callable[[Kdc], bytes]] = {
    "empty": lambda kdc: b"",
    "garbage": lambda kdc: b"`garbage",
    "half": lambda kdc: begun(kdc)[1][:200],
    "turned": lambda kdc: bytes([*begun(kdc)[1][:-1], begun(kdc)[1][-1] ^ 1]),
    "long": lambda kdc: b"`" * 500_000,
    "another service's": lambda kdc: begun(kdc, "ann", "other")[1],
    "negotiation": lambda kdc: negotiation(),
}


def negotiation() -> bytes:
    """A first token of SPNEGO, which offers Kerberos."""
    gssapi = library()
    spnego = gssapi.OID.from_int_seq("1.3.6.1.5.5.2")
    name = gssapi.Name(f"kafka@{HOST}", gssapi.NameType.hostbased_service)
    return bytes(gssapi.SecurityContext(name=name, mech=spnego, usage="initiate").step() or b"")


@pytest.mark.parametrize("name", TOKENS)
def test_a_token_that_is_none_is_refused_alike(
    pair: Oracle, kdc: Kdc, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KRB5CCNAME", kdc.ticket("ann"))
    token = TOKENS[name](kdc)

    def script(side: Side) -> None:
        way = kerberos_way(side)
        way.ask("SaslHandshake", 1, mechanism="GSSAPI")
        refused = way.ask("SaslAuthenticate", 2, auth_bytes=token)
        assert refused == CLOSED or refused.error_code, "it must not go on"
        way.connection.close()

    pair.compare(script)


@pytest.mark.parametrize("other", ["ann", "cid", "bob"])
def test_a_session_is_renewed_by_its_own_principal(pair: Oracle, kdc: Kdc, other: str) -> None:
    def script(side: Side) -> None:
        way = kerberos_way(side)
        assert not Attempt(way, kdc).choose(NONE)
        # cid is another principal of the same user.
        assert Attempt(way, kdc, other).choose(NONE) is (other == "bob")
        way.connection.close() if other == "bob" else way.end()

    pair.compare(script)


def kerberos_way(side: Side) -> Way:
    assert isinstance(side.server, KerberosServer)
    return Way(side, side.server.kerberos_port)


# ---- what goes wrong


def one_line(call: Callable[[], object], kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words) as error:
        call()
    assert "\n" not in str(error.value)


def test_a_client_without_a_ticket_says_why(both: tuple[KerberosServer, KerberosServer], kdc: Kdc) -> None:
    ours = both[1]
    kdc.add("gone", "late")
    kdc.command("delprinc -force gone")
    kdc.command("cpw -randkey late")
    cases = {
        keyed(kdc, "gone"): "Client 'gone@OTTLA.TEST' not found in Kerberos database",
        keyed(kdc, "late"): "Decrypt integrity check failed|Preauthentication failed",
        krb5(useTicketCache="true", ticketCache="/nowhere/cache"): "No credentials cache found",
    }
    for line, words in cases.items():
        one_line(lambda line=line: topics(ours, line), AuthenticationFailed, words)  # type: ignore[misc]
    other = {"sasl_kerberos_service_name": "http"}
    words = f"Server http/{HOST}@OTTLA.TEST not found"
    one_line(lambda: topics(ours, keyed(kdc, "ann"), **other), AuthenticationFailed, words)


def test_a_client_says_what_its_settings_lack(kdc: Kdc) -> None:
    absent = krb5(useKeyTab="true", keyTab="/nowhere/key", principal="ann")
    for line, words in (
        (absent, r"the keytab /nowhere/key cannot be read: No such file"),
        (krb5(), "neither useKeyTab=true nor useTicketCache=true"),
        (krb5(useKeyTab="true", keyTab=str(kdc.keytab("ann")), principal="eve"), "for eve: No key table entry"),
        (krb5(useKeyTab="true", keyTab=str(kdc.keytab("ann"))), "names a keytab and no principal"),
        (keyed(kdc, "ann", serviceName="http"), "sasl.kerberos.service.name=kafka and serviceName=http"),
        ('x.PlainLoginModule required username="a";', "names the module x.PlainLoginModule"),
    ):
        one_line(lambda line=line: Admin("127.0.0.1:1", **settings(line)), OttlaError, words)  # type: ignore[misc]


def test_a_client_whose_kdc_is_away_may_try_again(
    both: tuple[KerberosServer, KerberosServer], kdc: Kdc, monkeypatch: pytest.MonkeyPatch
) -> None:
    kdc.add("afar")
    monkeypatch.setenv("KRB5_CONFIG", str(kdc.nowhere))
    initiator = Initiator("kafka", keyed(kdc, "afar"))
    one_line(lambda: initiator.begin(HOST), NotReachable, "Cannot contact any KDC for realm 'OTTLA.TEST'")
    monkeypatch.setenv("KRB5_CONFIG", str(kdc.config))
    assert initiator.begin(HOST)[1]


def test_a_ticket_that_has_ended_is_got_again_from_the_keytab_alone(kdc: Kdc) -> None:
    kdc.add("brief")
    kdc.command("modprinc -maxlife 1second brief")
    keytab = Initiator("kafka", keyed(kdc, "brief"))
    eventually(lambda: begins(keytab), timeout_s=60)
    # This ticket ends after that of the keytab.
    cached = Initiator("kafka", krb5(useTicketCache="true", ticketCache=kdc.ticket("brief")))
    eventually(lambda: not begins(cached), timeout_s=60)
    eventually(lambda: begins(keytab), timeout_s=60)
    assert not begins(cached)


def begins(initiator: Initiator) -> bool:
    """Is there a ticket that holds? A busy machine may let it end before it is shown."""
    try:
        return bool(initiator.begin(HOST)[1])
    except AuthenticationFailed as error:
        if "Ticket expired" in str(error):
            return False
        raise


def test_the_node_says_why_it_lets_no_one_in(both: tuple[KerberosServer, KerberosServer], kdc: Kdc) -> None:
    ours = both[1]
    with pytest.raises(AuthenticationFailed, match="due to invalid credentials with SASL mechanism GSSAPI"):
        topics(ours, keyed(kdc, "dan"))
    assert "GSSAPI sign-in failed: 'dan@OTTLA.TEST' has no user's name: RULE:" in ours.output.read_text()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"keyTab": "/nowhere/key"}, "the keytab /nowhere/key cannot be read: No such file"),
        ({"principal": f"http/localhost@{REALM}"}, "cannot be used for http/localhost@OTTLA.TEST: No key table entry"),
        ({"principal": ""}, r"kerberos\.gssapi\.sasl\.jaas\.config: a listener needs useKeyTab=true"),
        ({"serviceName": "http"}, "sasl.kerberos.service.name=kafka and serviceName=http"),
    ],
)
def test_a_node_without_its_key_does_not_start(kdc: Kdc, change: dict[str, str], words: str) -> None:
    options = {"useKeyTab": "true", "keyTab": str(kdc.keytab(SERVICE)), "principal": f"{SERVICE}@{REALM}"} | change
    given = {
        "listeners": "KERBEROS://127.0.0.1:0,INTERNAL://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "listener.security.protocol.map": "KERBEROS:SASL_PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "INTERNAL",
        "sasl.kerberos.service.name": "kafka",
        "listener.name.kerberos.gssapi.sasl.jaas.config": krb5(**options),
    }

    def start() -> None:
        with ottla.Node(settings=given):
            pass

    one_line(start, OttlaError, words)
