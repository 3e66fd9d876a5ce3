"""Authorizers and builders of principals from installed packages, by their entry points."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import ottla
from ottla.client import Acl, AclFilter, Admin, NewTopic, Producer
from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.security.acl import AclOperation, AclResource
from tests.broker.sasl_scene import SETTINGS, secured, sign_in
from tests.broker.tls_scene import AUTHORIZER, address, client, settings
from tests.broker.wire_client import WireClient
from tests.client import certificate
from tests.client.certificate import Certificates

_ACME = """
class Authorizer:
    questions = []

    def __init__(self, settings):
        self.prefix = settings["acme.prefix"]

    def authorize(self, question):
        self.questions.append(question)
        if question.resource_name == "broken":
            raise RuntimeError("no answer")
        if question.resource_name == "odd":
            return "yes"
        if question.resource_type == "CLUSTER":
            return question.operation != "CREATE"
        return question.resource_name.startswith(self.prefix)


class Builder:
    contexts = []
    shared = "Team:d"

    def __init__(self, settings):
        pass

    def build(self, context):
        self.contexts.append(context)
        answers = {"User:bob": 7, "User:eve": "User:", "User:mallory": None}
        if context.principal == "User:carol":
            raise RuntimeError("carol is not here")
        if context.principal in ("User:dave", "User:dora"):
            return self.shared
        return answers.get(context.principal, f"Team:{context.principal[5:]}")


def broken(settings):
    raise RuntimeError("no file of rules")
"""
_POINTS = """
[ottla.authorizers]
acme = acme:Authorizer
broken = acme:broken
absent = acme:Nothing

[ottla.principal_builders]
acme = acme:Builder
"""
#: A refused client gives up soon.
_QUICK = {"default.api.timeout.ms": "2000", "request.timeout.ms": "1000"}
_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_USERS = (
    f"{_MODULE} " + " ".join(f'user_{name}="{name}"' for name in ("ann", "bob", "carol", "eve", "dave", "dora")) + ";"
)


@pytest.fixture(scope="module")
def acme(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """An installed package with plug-ins."""
    place = tmp_path_factory.mktemp("site")
    (place / "acme.py").write_text(_ACME)
    about = place / "acme-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(_POINTS)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(place))
        yield


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return certificate.make(tmp_path_factory.mktemp("certificates"))


def test_an_authorizer_of_a_package_decides(acme: None, caplog: pytest.LogCaptureFixture) -> None:
    import acme as plugins  # type: ignore[import-not-found]

    with ottla.Node(settings={"authorizer.class.name": "acme", "acme.prefix": "open"}) as node:
        with Admin(node.bootstrap_servers) as admin:
            created = admin.create_topics([NewTopic(name) for name in ("open-1", "closed", "broken", "odd")])
            assert {name: type(error).__name__ for name, error in created.errors.items()} == dict.fromkeys(
                ("closed", "broken", "odd"), "KafkaError"
            )
            assert "the authorizer failed; CREATE on TOPIC is denied" in caplog.messages
            for refused in (
                lambda: admin.create_acls([Acl(AclResource.TOPIC, "open-1", "User:ann", AclOperation.READ)]).check(),
                lambda: admin.describe_acls(AclFilter()),
                lambda: admin.delete_acls([AclFilter()]).check(),
            ):
                with pytest.raises(KafkaError, match="The authorizer of this node does not use ACLs"):
                    refused()
        with Producer(node.bootstrap_servers) as producer:
            assert producer.send("open-1", b"x").result(30).offset == 0
    asked = {question for question in plugins.Authorizer.questions if question.resource_name == "open-1"}
    assert ("User:ANONYMOUS", "127.0.0.1", "CREATE", "TOPIC", "open-1") in asked
    assert ("User:ANONYMOUS", "127.0.0.1", "WRITE", "TOPIC", "open-1") in asked


def test_super_users_are_allowed_before_the_authorizer_is_asked(acme: None) -> None:
    given = {"authorizer.class.name": "acme", "acme.prefix": "open", "super.users": "User:ANONYMOUS"}
    with ottla.Node(settings=given) as node, Admin(node.bootstrap_servers) as admin:
        admin.create_topics([NewTopic("closed")]).check()


def test_principals_of_a_package_are_those_that_rules_and_logs_see(
    acme: None, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    import acme as plugins

    given = settings(
        certificates,
        **{
            "principal.builder.class": "acme",
            "super.users": "Team:ANONYMOUS;Team:ann;Team:CN=client",
            "listener.name.sasl_ssl.plain.sasl.jaas.config": _USERS,
            "listener.name.ssl.ssl.principal.mapping.rules": "DEFAULT",
        },
    )
    plugins.Builder.contexts.clear()

    def signed_in(name: str) -> Admin:
        return Admin(
            client(
                node,
                "SASL_SSL",
                certificates,
                **{"sasl.mechanism": "PLAIN", "sasl.username": name, "sasl.password": name, **_QUICK},
            )
        )

    with ottla.Node(settings=given) as node:
        own = {"ssl.keystore.location": str(certificates.client)}
        with (
            Admin(address(node, "PLAINTEXT")) as plain,
            Admin(client(node, "SSL", certificates, **own)) as by_certificate,
        ):
            plain.create_topics([NewTopic("a")]).check()
            by_certificate.create_topics([NewTopic("b")]).check()
        with signed_in("ann") as admin:
            admin.create_topics([NewTopic("c")]).check()
        for name, why in (
            ("bob", "the principal builder returned 7, which is not TYPE:NAME"),
            ("eve", "the principal builder returned 'User:', which is not TYPE:NAME"),
            ("carol", "carol is not here"),
        ):
            caplog.clear()
            with signed_in(name) as admin, pytest.raises(OttlaError):
                admin.list_topics()
            assert why in caplog.text
    seen = {
        (each.listener, each.security_protocol, each.principal, each.certificate is None)
        for each in plugins.Builder.contexts
    }
    assert seen >= {
        ("PLAINTEXT", "PLAINTEXT", "User:ANONYMOUS", True),
        ("SSL", "SSL", "User:CN=client", False),
        ("SASL_SSL", "SASL_SSL", "User:ann", True),
    }


def test_a_renewed_session_keeps_the_principal_that_the_package_gave(
    acme: None, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    import acme as plugins

    given = {
        **SETTINGS,
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": _USERS,
        "principal.builder.class": "acme",
        "connections.max.reauth.ms": "60000",
    }
    with ottla.Node(settings=given) as node, WireClient(secured(node)) as client:
        assert sign_in(client, "PLAIN", "dave", "dave").error_code == 0
        node.clock.advance(5000)
        # Apache Kafka compares principals, not users.
        assert sign_in(client, "PLAIN", "dora", "dora").error_code == 0
        node.clock.advance(5000)
        monkeypatch.setattr(plugins.Builder, "shared", "Team:other")
        answer = sign_in(client, "PLAIN", "dave", "dave")
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert answer.error_message == "Cannot change principals during re-authentication from Team.d: Team.other"
        with pytest.raises(ConnectionError):
            client.receive_frame()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"authorizer.class.name": "nobody"}, r"authorizer\.class\.name=nobody: .*\(installed: absent, acme, broken\)"),
        ({"authorizer.class.name": "broken"}, r"=broken: acme:broken failed: RuntimeError: no file of rules"),
        ({"authorizer.class.name": "absent"}, r"=absent: acme:Nothing failed: AttributeError"),
        ({"principal.builder.class": "org.example.Builder"}, r"principal\.builder\.class=org\.example\.Builder: "),
        ({"authorizer.class.name": AUTHORIZER, "listener.name.plaintext.principal.builder.class": "x"}, "principal"),
    ],
)
def test_a_plug_in_that_is_not_there_stops_the_start(acme: None, given: dict[str, str], words: str) -> None:
    with pytest.raises(OttlaError, match=words), ottla.Node(settings=given):
        pass
