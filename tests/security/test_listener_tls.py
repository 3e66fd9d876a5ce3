"""What a listener's stores must not leave out, and what they must not say twice: each refusal, in words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ottla.kernel.error import OttlaError
from ottla.security.listener_tls import ListenerTls
from ottla.settings.server.settings import ServerSettings

_NODE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "inter.broker.listener.name": "SSL",
    "listeners": "SSL://localhost:9092,CONTROLLER://localhost:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@localhost:9093",
    "listener.security.protocol.map": "SSL:SSL,CONTROLLER:PLAINTEXT",
    "log.dirs": "/nowhere",
}
#: A file that exists, and holds neither a key nor a certificate.
_FILE = str(Path(__file__))


def listener(**texts: str) -> ListenerTls:
    stores = {f"ssl.{name.replace('__', '.')}": text for name, text in texts.items()}
    return ListenerTls(ServerSettings.parse(_NODE | stores), "SSL")


@pytest.mark.parametrize(
    ("stores", "why"),
    [
        ({"keystore__key": "k", "keystore__type": "JKS"}, "ssl.keystore.key is taken with ssl.keystore.type=PEM only"),
        ({"keystore__certificate__chain": "c", "keystore__type": "JKS"}, "is taken with ssl.keystore.type=PEM only"),
        ({"keystore__key": "k"}, "ssl.keystore.key and ssl.keystore.certificate.chain come together"),
        ({"keystore__certificate__chain": "c"}, "ssl.keystore.key and ssl.keystore.certificate.chain come together"),
        (
            {"keystore__key": "k", "keystore__certificate__chain": "c", "keystore__location": _FILE},
            "ssl.keystore.location and ssl.keystore.key are both given",
        ),
        ({"keystore__password": "p"}, "ssl.keystore.password is given, and ssl.keystore.location is not"),
        ({"keystore__location": _FILE, "keystore__password": "p"}, "a PEM key store has no ssl.keystore.password"),
        ({"keystore__location": _FILE, "keystore__type": "JKS"}, "needs ssl.keystore.password"),
        ({"keystore__location": "/nowhere/x.pem"}, "the store /nowhere/x.pem cannot be read"),
        ({"keystore__location": _FILE}, f"the key and the certificate in {_FILE} cannot be used"),
        ({"truststore__certificates": "c", "truststore__type": "JKS"}, "is taken with ssl.truststore.type=PEM only"),
        (
            {"truststore__certificates": "c", "truststore__location": _FILE},
            "ssl.truststore.location and ssl.truststore.certificates are both given",
        ),
        ({"truststore__password": "p"}, "ssl.truststore.password is given, and ssl.truststore.location is not"),
        ({"truststore__location": _FILE, "truststore__password": "p"}, "a PEM trust store has no"),
        ({"truststore__certificates": "c"}, "the trusted certificates cannot be used, they are not PEM"),
    ],
)
def test_stores_that_do_not_fit_are_refused(stores: dict[str, str], why: str) -> None:
    usual = {"keystore__type": "PEM", "truststore__type": "PEM"}
    with pytest.raises(OttlaError, match=re.escape(why)):
        listener(**usual | stores)


def test_a_listener_without_stores_cannot_serve() -> None:
    made = listener()
    assert (made.own, made.trusts) == (None, False)
    with pytest.raises(OttlaError, match="the listener SSL has no certificate"):
        made.check_serves()
    assert made.principal(None) == "User:ANONYMOUS"
