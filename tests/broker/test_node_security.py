"""Which new TLS stores a running node takes for a listener, and which it refuses (Apache Kafka: SslFactory)."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from ottla.broker.node_security import NodeSecurity, _set_principal
from ottla.kernel.error import OttlaError
from ottla.net.authentications import Authentications
from ottla.net.inbound import PeerError
from ottla.settings.server.settings import ServerSettings
from tests.broker.tls_scene import signed
from tests.client import certificate

_NODE = {
    "process.roles": "broker",
    "node.id": "1",
    "controller.quorum.voters": "9@127.0.0.1:9093",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "INNER",
    "listeners": "OPEN://127.0.0.1:9092,INNER://127.0.0.1:9094,PLAIN://127.0.0.1:9095",
    "advertised.listeners": "OPEN://127.0.0.1:9092,INNER://127.0.0.1:9094,PLAIN://127.0.0.1:9095",
    "listener.security.protocol.map": "OPEN:SSL,INNER:SSL,CONTROLLER:SSL,PLAIN:PLAINTEXT",
    "log.dirs": "/nowhere",
    "ssl.keystore.type": "PEM",
    "ssl.truststore.type": "PEM",
}
_TWO_NAMES = "subjectAltName=IP:127.0.0.1,DNS:one\n"
_DN = "Keystore DistinguishedName does not match: existing=CN=broker, new=CN=other"
_SAN = "Keystore SubjectAltNames do not match: the new certificate lacks 1 of the old one's names"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Certificates by what they are, the CAs, and a file with both CAs."""
    directory = tmp_path_factory.mktemp("stores")
    made = certificate.make(directory)
    found = {"ca": made.ca, "stranger": made.stranger}
    for name, cn, ca, names in (
        ("broker", "broker", "ca", _TWO_NAMES),
        ("again", "broker", "ca", _TWO_NAMES),
        ("capital", "Broker", "ca", _TWO_NAMES),
        ("more", "broker", "ca", "subjectAltName=IP:127.0.0.1,DNS:one,DNS:two\n"),
        ("less", "broker", "ca", "subjectAltName=IP:127.0.0.1\n"),
        ("other", "other", "ca", _TWO_NAMES),
        ("foreign", "broker", "stranger", _TWO_NAMES),
    ):
        found[name] = directory / f"{name}-store.pem"
        found[name].write_text(signed(directory, cn, ca=ca, names=names).read_text())
    found["both"] = directory / "both.pem"
    found["both"].write_text(made.ca.read_text() + made.stranger.read_text())
    return found


def _settings(files: dict[str, Path], *stores: str, **more: str) -> ServerSettings:
    """`stores`: listener=key store/trust store, either of which may be left out; `more`: `allow_dn`, `allow_san`."""
    texts = dict(_NODE)
    for store in stores:
        listener, _, both = store.partition("=")
        for kind, name in zip(("keystore", "truststore"), both.split("/"), strict=True):
            if name:
                texts[f"listener.name.{listener.lower()}.ssl.{kind}.location"] = str(files[name])
    for name, value in more.items():
        texts[f"listener.name.open.ssl.{name.replace('_', '.')}.changes"] = value
    return ServerSettings.parse(texts)


def _security(settings: ServerSettings) -> NodeSecurity:
    return NodeSecurity(Mock(), Mock(), settings)


def _shown(security: NodeSecurity, listener: str = "OPEN") -> str:
    """The owner of the certificate that a client of this listener is shown."""
    return security._tls[listener].own.name  # type: ignore[union-attr]


_USUAL = ("OPEN=broker/ca", "INNER=broker/ca", "CONTROLLER=/ca")


@pytest.mark.parametrize(
    ("before", "after", "allowed", "why"),
    [
        pytest.param("OPEN=broker/ca", "OPEN=again/ca", {}, "", id="the same owner"),
        pytest.param("OPEN=broker/ca", "OPEN=capital/ca", {}, "", id="case does not matter"),
        pytest.param("OPEN=broker/ca", "OPEN=more/ca", {}, "", id="more names"),
        pytest.param("OPEN=broker/ca", "OPEN=less/ca", {}, _SAN, id="fewer names"),
        pytest.param("OPEN=broker/ca", "OPEN=less/ca", {"allow_san": "true"}, "", id="fewer names that may be"),
        pytest.param(
            "OPEN=broker/ca", "OPEN=less/ca", {"allow_dn": "true"}, _SAN, id="another owner may be, not names"
        ),
        pytest.param("OPEN=broker/ca", "OPEN=other/ca", {}, _DN, id="another owner"),
        pytest.param("OPEN=broker/ca", "OPEN=other/ca", {"allow_dn": "true"}, "", id="another owner that may be"),
        pytest.param("OPEN=broker/ca", "OPEN=other/ca", {"allow_san": "true"}, _DN, id="names may be, not the owner"),
        pytest.param("OPEN=broker/ca", "OPEN=/ca", {}, "a keystore can be replaced, but not added", id="no key store"),
        pytest.param("OPEN=broker/", "OPEN=broker/ca", {}, "a truststore can be replaced, but not added", id="trust"),
        pytest.param("OPEN=broker/ca", "OPEN=broker/", {}, "", id="the system's CAs are trusted again"),
        pytest.param("OPEN=broker/ca", "OPEN=broker/stranger", {}, "", id="other clients are trusted"),
        pytest.param("OPEN=broker/ca", "OPEN=foreign/ca", {}, "", id="nodes do not meet at a listener for clients"),
        pytest.param("CONTROLLER=/ca", "CONTROLLER=broker/ca", {}, "a keystore can be replaced, but", id="a key store"),
        pytest.param("CONTROLLER=/ca", "CONTROLLER=/stranger", {}, "", id="other controllers are trusted"),
        pytest.param("INNER=broker/ca", "INNER=again/both", {}, "", id="both CAs while nodes are changed over"),
        pytest.param("INNER=broker/both", "INNER=foreign/both", {}, "", id="a certificate of the new CA"),
        pytest.param(
            "INNER=broker/ca", "INNER=foreign/both", {}, "cannot connect to it", id="the old trust too little"
        ),
        pytest.param(
            "INNER=broker/ca", "INNER=broker/stranger", {}, "cannot connect to it", id="the old are strangers"
        ),
    ],
)
def test_stores_are_replaced_by_such_as_fit(
    files: dict[str, Path], before: str, after: str, allowed: dict[str, str], why: str,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    def settings(changed: str) -> ServerSettings:
        usual = [each for each in _USUAL if not changed.startswith(each.partition("=")[0])]
        return _settings(files, *usual, changed, **allowed)

    listener = before.partition("=")[0]
    security = _security(settings(before))
    was = security._tls[listener]
    others = {name: tls for name, tls in security._tls.items() if name != listener}
    caplog.set_level(logging.INFO, "ottla.security")
    if why:
        for _ in range(2):
            # What was refused stays refused: it is not taken for known.
            with pytest.raises(OttlaError, match=re.escape(why)):
                security.check(settings(after))
            security.follow(settings(after), free=False)
            assert security._tls[listener] is was
        [line, _] = caplog.messages
        assert f"the listener {listener} keeps its previous stores: " in line and why in line
    else:
        security.check(settings(after))
        assert security._tls[listener] is was and not caplog.messages
        for _ in range(2):
            security.follow(settings(after), free=False)
        assert security._tls[listener] is not was
        assert caplog.messages == [f"the listener {listener} has new stores"]
    assert {name: tls for name, tls in security._tls.items() if name != listener} == others


def test_the_first_stores_may_be_anyones_and_must_serve(
    files: dict[str, Path], caplog: pytest.LogCaptureFixture
) -> None:
    """Dynamic settings are read when a node starts: they are stored already, and nobody is served yet."""
    security = _security(_settings(files, *_USUAL))
    security.follow(_settings(files, "OPEN=other/ca", *_USUAL[1:]), free=True)
    assert _shown(security) == "CN=other"
    security.follow(_settings(files, "OPEN=/ca", *_USUAL[1:]), free=True)
    assert _shown(security) == "CN=other"
    assert "the listener OPEN has no certificate" in caplog.text
    security.follow(_settings(files, "OPEN=other/ca", "INNER=broker/stranger", "CONTROLLER=/ca"), free=True)
    assert "the listener INNER: a client with the node's own stores cannot connect to it" in caplog.text


@pytest.mark.parametrize(
    ("stores", "why"),
    [
        (("OPEN=/ca", *_USUAL[1:]), "the listener OPEN has no certificate"),
        ((_USUAL[0], "INNER=broker/stranger", _USUAL[2]), "the listener INNER: a client with the node's own stores"),
    ],
)
def test_a_node_does_not_start_with_stores_that_serve_nobody(
    files: dict[str, Path], stores: tuple[str, ...], why: str
) -> None:
    with pytest.raises(OttlaError, match=why):
        _security(_settings(files, *stores))


def test_a_node_that_trusts_the_systems_cas_does_not_try_itself(files: dict[str, Path]) -> None:
    assert _shown(_security(_settings(files, "OPEN=broker/", "INNER=broker/", "CONTROLLER=/")), "INNER") == "CN=broker"


@pytest.mark.parametrize("kind", ["keystore", "truststore"])
@pytest.mark.parametrize("change", ["time", "size", "file"])
def test_a_store_is_read_again_when_its_file_has_changed(
    files: dict[str, Path], tmp_path: Path, kind: str, change: str
) -> None:
    store, key = tmp_path / "store.pem", kind == "keystore"
    store.write_text(files["broker" if key else "ca"].read_text())
    status = os.stat(store)
    settings = _settings({**files, "mine": store}, "OPEN=mine/ca" if key else "OPEN=broker/mine", *_USUAL[1:])
    security = _security(settings)
    was = security._tls["OPEN"]
    security.follow(settings, free=False)
    assert security._tls["OPEN"] is was
    if change == "file":
        (tmp_path / "new.pem").write_text(store.read_text())
        os.replace(tmp_path / "new.pem", store)
    elif change == "size":
        store.write_text(store.read_text() + "\n")
    seconds = 1 if change == "time" else 0
    os.utime(store, ns=(status.st_atime_ns, status.st_mtime_ns + seconds))
    security.follow(settings, free=False)
    assert security._tls["OPEN"] is not was


def test_a_store_that_is_gone_leaves_the_listener_as_it_is(
    files: dict[str, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = tmp_path / "store.pem"
    store.write_text(files["broker"].read_text())
    settings = _settings({**files, "mine": store}, "OPEN=mine/ca", *_USUAL[1:])
    security = _security(settings)
    store.unlink()
    with pytest.raises(OttlaError, match=f"the store {store} cannot be read"):
        security.check(settings)
    security.follow(settings, free=False)
    assert (_shown(security), len(caplog.messages)) == ("CN=broker", 1)


def test_only_listeners_with_tls_have_a_part_that_shakes_hands(files: dict[str, Path]) -> None:
    security = _security(_settings(files, *_USUAL))
    assert security.connection_of("PLAIN", Authentications()) == {}
    assert set(security.connection_of("OPEN", Authentications())) == {"connection", "accepts_at_once"}
    assert set(security.sides) == {"OPEN"}


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


def test_the_thread_of_handshakes_is_started_for_the_first_and_ends_with_the_node(
    files: dict[str, Path], loop: asyncio.AbstractEventLoop
) -> None:
    pools: list[ThreadPoolExecutor] = []

    def pool(threads: int) -> ThreadPoolExecutor:
        pools.append(ThreadPoolExecutor(threads))
        return pools[-1]

    security = NodeSecurity(loop, pool, _settings(files, *_USUAL))
    security.close()
    assert pools == []
    assert security._handshakes is security._handshakes
    [made] = pools
    security.close()
    with pytest.raises(RuntimeError, match="after shutdown"):
        made.submit(print)


@pytest.mark.parametrize(
    ("principal", "expected"),
    [
        ("User:ann", "User:ann"),
        (None, "no rule in ssl.principal.mapping.rules matches its certificate"),
        (ValueError("cut off"), "its certificate has no readable name: cut off"),
        (IndexError("short"), "its certificate has no readable name: short"),
    ],
)
def test_a_client_has_the_name_of_its_certificate_or_is_sent_away(principal: Any, expected: str) -> None:
    def name(shown: bytes) -> Any:
        assert shown == b"DER"
        if isinstance(principal, Exception):
            raise principal
        return principal

    connection: Any = SimpleNamespace(principal="User:ANONYMOUS")
    tls: Any = SimpleNamespace(principal=name)
    made: Any = Mock(spec=ssl.SSLObject)
    made.getpeercert = lambda *, binary_form: b"DER" if binary_form else {}
    if expected.startswith("User:"):
        _set_principal(connection, tls, made)
        assert connection.principal == expected
    else:
        with pytest.raises(PeerError, match=expected):
            _set_principal(connection, tls, made)
        assert connection.principal == "User:ANONYMOUS"
