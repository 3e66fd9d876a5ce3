"""Stores are exchanged while a node runs: by a setting, or because their file changed; a bad one changes nothing."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

import ottla
from ottla.client import Admin, ConfigResource, ResourceType
from ottla.metadata.image import BROKER, GROUP
from ottla.security.certificate import identity_of
from ottla.wire.record.metadata import ConfigRecord
from tests.broker.disk_scene import Scene
from tests.broker.tls_scene import address, settings, signed
from tests.client import certificate
from tests.client.certificate import Certificates

KEY_STORE = "listener.name.open.ssl.keystore.location"
TRUST_STORE = "listener.name.ssl.ssl.truststore.location"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return certificate.make(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def node(files: Certificates) -> Iterator[ottla.Node]:
    with ottla.Node(settings=settings(files)) as node:
        yield node


@pytest.fixture
def admin(node: ottla.Node) -> Iterator[Admin]:
    with Admin(address(node, "PLAINTEXT")) as admin:
        yield admin


def shown(node: ottla.Node, listener: str = "OPEN") -> bytes:
    """The certificate that a listener shows, as DER."""
    host, _, port = address(node, listener).rpartition(":")
    return ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate((host, int(port)), timeout=60))


def put(admin: Admin, name: str, value: str | Path) -> str:
    """Change a setting of the node; returns what is said against it."""
    results = admin.alter_configs({ConfigResource(ResourceType.BROKER, "1"): {name: str(value)}})
    return "".join(str(error) for error in results.errors.values())


def again(files: Certificates, name: str = "broker", names: str = "subjectAltName=IP:127.0.0.1\n") -> Path:
    """Another certificate of the same owner."""
    old = files.broker.read_text()
    made = signed(files.ca.parent, name, names=names)
    new = made.with_name(f"{name}-again.pem")
    new.write_text(made.read_text())
    files.broker.write_text(old)
    return new


def test_a_new_certificate_of_the_same_owner_is_shown_at_once(
    node: ottla.Node, admin: Admin, files: Certificates
) -> None:
    before = shown(node)
    assert put(admin, KEY_STORE, again(files)) == ""
    after = shown(node)
    assert after != before
    assert identity_of(after).name == "CN=broker"
    assert shown(node, "SASL_SSL") == before, "another listener"


def test_a_file_that_was_exchanged_is_read_when_its_setting_is_given_again(
    node: ottla.Node, admin: Admin, files: Certificates, tmp_path: Path
) -> None:
    store = tmp_path / "store.pem"
    store.write_text(files.broker.read_text())
    assert put(admin, KEY_STORE, store) == ""
    before = shown(node)
    store.write_text(again(files).read_text())
    assert put(admin, KEY_STORE, store) == ""
    assert shown(node) != before


def test_a_node_reads_its_stores_again_whichever_node_was_asked() -> None:
    """When its own configs are written, changed or not: the asked node may be a controller."""
    scene = Scene()
    security = scene.node.security = Mock()

    def reads(name: str, value: str, kind: int = BROKER) -> bool:
        security.reset_mock()
        scene.node.quorum.append([ConfigRecord(resource_type=kind, resource_name=name, name=KEY_STORE, value=value)])
        scene.machine.settle()
        return bool(security.follow.called)

    assert reads("1", "a.pem")
    assert reads("1", "a.pem"), "the file may be another"
    assert reads("2", "b.pem"), "no harm, as any change of a broker's configs"
    assert not reads("2", "b.pem"), "another broker's file"
    assert not reads("1", "a.pem", GROUP)


def test_what_cannot_be_used_is_refused_and_the_old_stays(
    node: ottla.Node, admin: Admin, files: Certificates, tmp_path: Path
) -> None:
    before = shown(node)
    (tmp_path / "garbage.pem").write_text("garbage")
    other = again(files, "other")
    for value, said in (
        ("/nowhere.pem", "the store /nowhere.pem cannot be read"),
        (tmp_path / "garbage.pem", "cannot be used"),
        (files.ca, "cannot be used"),
        (other, "Keystore DistinguishedName does not match: existing=CN=broker, new=CN=other"),
    ):
        refused = put(admin, KEY_STORE, value)
        assert "INVALID_REQUEST" in refused
        assert said in refused
    assert shown(node) == before
    assert "INVALID_REQUEST" in put(admin, TRUST_STORE, "/nowhere.pem")
    assert "INVALID_REQUEST" in put(admin, "ssl.keystore.location", other), "only with the listener's prefix"


def test_another_owner_may_be_allowed(files: Certificates) -> None:
    other = again(files, "another")
    more = {"ssl.allow.dn.changes": "true"}
    with ottla.Node(settings=settings(files, **more)) as node, Admin(address(node, "PLAINTEXT")) as admin:
        assert put(admin, KEY_STORE, other) == ""
        assert identity_of(shown(node)).name == "CN=another"


def test_a_name_that_the_new_certificate_lacks_is_told(node: ottla.Node, admin: Admin, files: Certificates) -> None:
    bare = again(files, "broker", names="subjectAltName=DNS:elsewhere\n")
    assert "Keystore SubjectAltNames do not match" in put(admin, KEY_STORE, bare)


def test_a_node_starts_with_the_stores_that_were_set(files: Certificates, tmp_path: Path) -> None:
    new = again(files)
    for _ in range(2):
        with (
            ottla.Node(tmp_path / "data", settings=settings(files)) as node,
            Admin(address(node, "PLAINTEXT")) as admin,
        ):
            assert put(admin, KEY_STORE, new) == ""
            assert shown(node) == ssl.PEM_cert_to_DER_cert(new.read_text()[new.read_text().index("-----BEGIN CERT") :])
