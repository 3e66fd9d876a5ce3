"""Java's stores, made by keytool and openssl, in a client that talks to a TLS listener of Python's ssl module."""

import asyncio
import ssl
from pathlib import Path
from typing import Any

import pytest

from ottla.client import OttlaError
from ottla.security.keystore import read_store
from ottla.security.tls import context
from ottla.settings.client.security import SecuritySettings
from tests.client import certificate
from tests.client.certificate import Certificates, keytool, run

PASSWORD = "open sesame"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return certificate.make(tmp_path_factory.mktemp("stores"))


@pytest.fixture(scope="module")
def stores(made: Certificates) -> Path:
    """trust.jks, trust.p12, key.p12 (of openssl), key.jks with a password of its own for the key."""
    where = made.ca.parent
    for kind in ("jks", "pkcs12"):
        name = "trust.jks" if kind == "jks" else "trust.p12"
        words = ("-importcert", "-noprompt", "-alias", "ca", "-file", str(made.ca))
        keytool(where, *words, "-keystore", name, "-storetype", kind, "-storepass", PASSWORD)
    run(where, "openssl", "pkcs12", "-export", "-in", "client.pem", "-certfile", "ca.pem", "-name", "client",
        "-out", "key.p12", "-passout", f"pass:{PASSWORD}")  # fmt: skip
    keytool(
        where, "-importkeystore", "-srckeystore", "key.p12", "-srcstoretype", "pkcs12", "-srcstorepass", PASSWORD,
        "-destkeystore", "key.jks", "-deststoretype", "jks", "-deststorepass", PASSWORD,
        "-srcalias", "client", "-destkeypass", "of the key",
    )  # fmt: skip
    assert (where / "key.jks").read_bytes()[:4] == b"\xfe\xed\xfe\xed"
    return where


def settings(stores: Path, trust: str, key: str | None, **more: Any) -> SecuritySettings:
    given: dict[str, Any] = {
        "security_protocol": "SSL",
        "ssl_truststore_location": str(stores / trust),
        "ssl_truststore_type": "JKS" if trust.endswith("jks") else "PKCS12",
        "ssl_truststore_password": PASSWORD,
    }
    if key is not None:
        given["ssl_keystore_location"] = str(stores / key)
        given["ssl_keystore_type"] = "JKS" if key.endswith("jks") else "PKCS12"
        given["ssl_keystore_password"] = PASSWORD
    return SecuritySettings.read(None, {**given, **more})


def subject_seen_by_a_server(made: Certificates, client: ssl.SSLContext) -> Any:
    """Shake hands with a listener that wants a certificate of the client; it says whose it saw."""
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(made.ca))
    server.verify_mode = ssl.CERT_REQUIRED
    server.load_cert_chain(made.broker)

    async def main() -> Any:
        seen: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            seen.set_result(dict(one[0] for one in writer.get_extra_info("peercert")["subject"]))
            writer.close()

        async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=server) as listener:
            port = listener.sockets[0].getsockname()[1]
            _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client)
            found = await asyncio.wait_for(seen, 20)
            writer.close()
            return found

    return asyncio.run(main())


@pytest.mark.parametrize(
    ("trust", "key", "more"),
    [
        ("trust.jks", "key.jks", {"ssl_key_password": "of the key"}),
        ("trust.p12", "key.p12", {}),
        ("trust.jks", "key.p12", {"ssl_truststore_password": None}),
        ("trust.p12", "key.p12", {"ssl_truststore_type": "JKS"}),
    ],
)
def test_a_client_with_javas_stores_talks_tls(
    made: Certificates, stores: Path, trust: str, key: str, more: dict[str, Any]
) -> None:
    assert subject_seen_by_a_server(made, context(settings(stores, trust, key, **more))) == {"commonName": "client"}


def test_a_server_that_the_store_does_not_trust_is_refused(made: Certificates, stores: Path) -> None:
    words = ("-importcert", "-noprompt", "-alias", "x", "-file", str(made.stranger), "-keystore", "other.jks")
    keytool(stores, *words, "-storetype", "jks", "-storepass", PASSWORD)
    with pytest.raises(ssl.SSLCertVerificationError):
        subject_seen_by_a_server(made, context(settings(stores, "other.jks", "key.p12")))


@pytest.mark.parametrize(
    ("trust", "key", "more", "said"),
    [
        ("trust.jks", None, {"ssl_truststore_password": "no"}, "was changed, or its password is another"),
        ("trust.p12", None, {"ssl_truststore_password": "no"}, "or its password is another"),
        ("trust.p12", "key.jks", {"ssl_key_password": "no"}, "has another password"),
        ("trust.p12", "trust.jks", {}, "has no private key"),
        ("nosuch.jks", None, {}, "cannot be read: No such file"),
        ("ca.pem", None, {}, "is no PKCS12 or JKS store"),
    ],
)
def test_what_is_wrong_with_a_store_is_said(
    stores: Path, trust: str, key: str | None, more: dict[str, Any], said: str
) -> None:
    with pytest.raises(OttlaError, match=said) as raised:
        context(settings(stores, trust, key, **more))
    assert PASSWORD not in str(raised.value)


def test_a_store_that_is_cut_off_is_an_error_of_its_file(stores: Path, tmp_path: Path) -> None:
    whole = (stores / "key.jks").read_bytes()
    for size in range(4, len(whole) - 20, 13):
        (tmp_path / "cut.jks").write_bytes(whole[:size])
        with pytest.raises(OttlaError):
            read_store(str(tmp_path / "cut.jks"), None, "of the key")
