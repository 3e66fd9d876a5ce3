"""What a listener's stores must not leave out, and what they must not say twice: each refusal, in words."""

from __future__ import annotations

import re
import ssl
from pathlib import Path

import pytest

from ottla.kernel.error import OttlaError
from ottla.security.listener_tls import ListenerTls, openssl_name
from ottla.security.tls import failed_tls
from ottla.settings.server.settings import ServerSettings
from tests.client import certificate
from tests.client.certificate import Certificates

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


# ---- versions, suites, names

_NEW = "TLS_AES_256_GCM_SHA384,TLS_CHACHA20_POLY1305_SHA256,TLS_AES_128_GCM_SHA256"
_OLD = "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"
_TLS12, _TLS13 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3


@pytest.mark.parametrize(
    ("given", "versions"),
    [
        ({}, (_TLS12, _TLS13)),
        ({"enabled__protocols": "TLSv1.3,TLSv1.2"}, (_TLS12, _TLS13)),
        ({"enabled__protocols": "TLSv1.2"}, (_TLS12, _TLS12)),
        ({"enabled__protocols": "TLSv1.3"}, (_TLS13, _TLS13)),
        ({"protocol": "TLSv1.2"}, (_TLS12, _TLS12)),
        ({"protocol": "TLS"}, (_TLS12, _TLS13)),
        ({"cipher__suites": _NEW}, (_TLS13, _TLS13)),
        ({"cipher__suites": _OLD}, (_TLS12, _TLS12)),
        ({"cipher__suites": f"{_NEW},{_OLD}"}, (_TLS12, _TLS13)),
        ({"cipher__suites": f"{_NEW},{_OLD}", "protocol": "TLSv1.2"}, (_TLS12, _TLS12)),
        ({"cipher__suites": _OLD, "enabled__protocols": "TLSv1.3"}, "leave no version of TLS"),
        ({"protocol": "TLSv1.2", "enabled__protocols": "TLSv1.3"}, "leave no version of TLS"),
        ({"cipher__suites": "TLS_AES_256_GCM_SHA384"}, "ssl.cipher.suites names some suites of TLS 1.3"),
        ({"cipher__suites": "TLS_RSA_WITH_NONE"}, "ssl.cipher.suites: OpenSSL has no suite TLS_RSA_WITH_NONE"),
        ({"enabled__protocols": "TLSv1.1"}, "the TLS version TLSv1.1 is not served"),
        ({"protocol": "SSLv3"}, "the TLS version SSLv3 is not served"),
    ],
)
def test_versions_are_those_that_all_settings_leave(given: dict[str, str], versions: tuple[int, int] | str) -> None:
    if isinstance(versions, str):
        with pytest.raises(OttlaError, match=re.escape(versions)):
            listener(**given)
        return
    made = listener(**given)
    for context in (made.server, made.client):
        assert (context.minimum_version, context.maximum_version) == versions
        # A peer cannot make this node compute keys again and again.
        assert context.options & ssl.OP_NO_RENEGOTIATION
        assert context.options & ssl.OP_NO_COMPRESSION
    if given.get("cipher__suites") == _OLD:
        old = {each["name"] for each in made.server.get_ciphers() if each["protocol"] != "TLSv1.3"}
        assert old == {"ECDHE-RSA-AES256-GCM-SHA384"}


@pytest.mark.parametrize(
    ("suite", "name"),
    [
        (_OLD, "ECDHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ("TLS_DHE_RSA_WITH_AES_128_CBC_SHA256", "DHE-RSA-AES128-SHA256"),
        ("TLS_RSA_WITH_AES_128_CBC_SHA", "AES128-SHA"),
        ("TLS_RSA_WITH_AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
    ],
)
def test_a_suite_has_another_name_in_openssl(suite: str, name: str) -> None:
    assert openssl_name(suite) == name
    every = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    every.set_ciphers("ALL:@SECLEVEL=0")
    assert name in {each["name"] for each in every.get_ciphers()}


@pytest.mark.parametrize(("algorithm", "checks"), [(None, True), ("https", True), ("HTTPS", True), ("", False)])
def test_names_of_other_nodes_are_checked_unless_the_setting_is_empty(algorithm: str | None, checks: bool) -> None:
    given = {} if algorithm is None else {"endpoint__identification__algorithm": algorithm}
    assert listener(**given).client.check_hostname is checks


def test_names_are_checked_by_one_algorithm() -> None:
    with pytest.raises(
        OttlaError, match=r"invalid value for ssl\.endpoint\.identification\.algorithm: LDAPS \(expected"
    ):
        listener(endpoint__identification__algorithm="LDAPS")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return certificate.make(tmp_path_factory.mktemp("certificates"))


def test_a_node_reaches_itself_by_its_stores_whatever_its_name_is(files: Certificates) -> None:
    own = {"keystore__type": "PEM", "keystore__location": str(files.broker), "truststore__type": "PEM"}
    made = listener(**own, truststore__location=str(files.ca))
    made.check_reaches(made)
    assert made.client.check_hostname, "the names of others are checked afterwards"
    strange = listener(**own, truststore__location=str(files.stranger), client__auth="required")
    for one, other in ((made, strange), (strange, made)):
        with pytest.raises(OttlaError, match="a client with the node's own stores cannot connect to it"):
            one.check_reaches(other)


def test_every_certificate_of_a_trust_store_is_trusted_for_itself(files: Certificates) -> None:
    """As in Java: also one that another CA has signed, or that has its name in common with another."""
    directory = files.ca.parent
    new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=localhost")
    for name in ("one", "two"):
        certificate.run(directory, "openssl", "req", "-x509", *new, "-keyout", f"{name}.key", "-out", f"{name}.crt")
    both = "".join((directory / f"{name}.crt").read_text() for name in ("one", "two"))
    alone = (directory / "broker.crt").read_text()
    for name, trusted, asked in (("broker", alone, "none"), ("one", both, "required"), ("two", both, "required")):
        made = listener(
            keystore__type="PEM",
            keystore__key=(directory / f"{name}.key").read_text(),
            keystore__certificate__chain=(directory / f"{name}.crt").read_text(),
            truststore__type="PEM",
            truststore__certificates=trusted,
            client__auth=asked,
        )
        made.check_reaches(made)


# ---- what a client's user is told


@pytest.mark.parametrize(
    ("verify_message", "hint"),
    [
        ("Hostname mismatch, certificate is not valid for 'b'.", "connect by a name that the certificate bears"),
        ("IP address mismatch, certificate is not valid for '::1'.", "connect by a name that the certificate bears"),
        ("self-signed certificate", "name its CA in ssl.truststore.location"),
        ("unable to get local issuer certificate", "name its CA in ssl.truststore.location"),
    ],
)
def test_a_certificate_that_is_not_trusted_is_told_with_what_to_do(verify_message: str, hint: str) -> None:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_message = verify_message
    said = str(failed_tls("b", 9093, error))
    assert said == f"b:9093 shows a certificate that is not trusted ({verify_message}): {hint}"


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("TLSV13_ALERT_CERTIFICATE_REQUIRED", "ended the TLS handshake (tlsv13 alert certificate required)"),
        ("SSLV3_ALERT_HANDSHAKE_FAILURE", "ended the TLS handshake (sslv3 alert handshake failure)"),
        ("WRONG_VERSION_NUMBER", "refuses TLS (wrong version number): is security.protocol right?"),
    ],
)
def test_a_handshake_that_fails_is_told_by_who_ended_it(reason: str, words: str) -> None:
    error = ssl.SSLError("odd")
    error.reason = reason
    assert words in str(failed_tls("b", 9093, error))
