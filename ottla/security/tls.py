"""The TLS of a client's connections, from its settings: an `ssl.SSLContext`, and the explanation of its errors.

Rules:
- The client always verifies the broker's certificate against the trusted CAs, and against the host name unless
  ssl.endpoint.identification.algorithm is empty.
- A refused certificate will be refused again, so it ends a call at once (`TlsFailed`) instead of a retry.
"""

from __future__ import annotations

import contextlib
import os
import ssl
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast

from ottla.kernel.client_error import TlsFailed
from ottla.kernel.error import OttlaError
from ottla.security.keystore import read_store
from ottla.settings.client.security import SecuritySettings

#: As in Java, a chain may end at any trusted certificate: also at an intermediate CA, or at the peer's own certificate.
ANY_ANCHOR = ssl.VERIFY_X509_PARTIAL_CHAIN
VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


def context(settings: SecuritySettings) -> ssl.SSLContext:
    """The TLS context by a client's settings. OttlaError for an unusable file."""
    if settings.ssl_context is not None:
        return cast(ssl.SSLContext, settings.ssl_context)
    tls_context = _trusting_context(settings)
    # Since Python 3.13 the default refuses CAs without a key usage, which Java and OpenSSL accept.
    tls_context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    tls_context.verify_flags |= ANY_ANCHOR
    tls_context.check_hostname = settings.ssl_endpoint_identification_algorithm == "https"
    versions = sorted(VERSIONS[name] for name in settings.ssl_enabled_protocols)
    tls_context.minimum_version, tls_context.maximum_version = versions[0], versions[-1]
    _load_certificate(settings, tls_context)
    return tls_context


def provider_context(jaas_options: Mapping[str, str]) -> ssl.SSLContext:
    """The TLS context to a provider of tokens or keys, by the options ssl.* of a JAAS line. OttlaError."""
    options = {name: value for name, value in jaas_options.items() if name.startswith("ssl.")}
    if "ssl.truststore.location" in options:
        from ottla.settings.server.settings import ServerSettings

        # As in Kafka, the default type in this line is Java's JKS.
        kind = ServerSettings.ssl_truststore_type
        options = {kind.name: str(kind.default), **options}
    return context(SecuritySettings.read({"security.protocol": "SSL", **options}, {}))


def _trusting_context(settings: SecuritySettings) -> ssl.SSLContext:
    where = settings.ssl_truststore_location or settings.ssl_ca_location
    if where is None and settings.ssl_truststore_certificates is None:
        return ssl.create_default_context()
    try:
        if settings.ssl_truststore_type != "PEM":
            assert where is not None
            found = read_store(where, settings.ssl_truststore_password)
            if not found.trusted:
                raise OttlaError(f"the trust store {where} has no certificate that it trusts")
            return ssl.create_default_context(cadata=found.trusted)
        if where is None:
            return ssl.create_default_context(cadata=settings.ssl_truststore_certificates)
        if Path(where).is_dir():
            return ssl.create_default_context(capath=where)
        return ssl.create_default_context(cafile=where)
    except FileNotFoundError:
        raise OttlaError(f"the CAs to trust: there is no file {where}") from None
    except (ssl.SSLError, OSError, ValueError) as error:
        raise OttlaError(
            f"the CAs to trust ({where or 'ssl.truststore.certificates'}) are not certificates in PEM: {error}"
        ) from error


def _load_certificate(settings: SecuritySettings, tls_context: ssl.SSLContext) -> None:
    """Load the client's own certificate, if it has one."""
    chain = settings.ssl_keystore_location or settings.ssl_certificate_location
    key = settings.ssl_key_location
    inline = settings.ssl_keystore_key is not None
    if chain is None and not inline:
        return
    # An empty password makes an encrypted key an error; None would ask at the terminal.
    password = settings.ssl_key_password or ""
    try:
        if settings.ssl_keystore_type != "PEM":
            assert chain is not None
            store = read_store(chain, settings.ssl_keystore_password, settings.ssl_key_password)
            if not store.key:
                raise OttlaError(f"the key store {chain} has no private key")
            with file_of(store.key + store.chain) as path:
                tls_context.load_cert_chain(path, None, "")
        elif inline:
            text = f"{settings.ssl_keystore_key}\n{settings.ssl_keystore_certificate_chain}\n"
            with file_of(text) as path:
                tls_context.load_cert_chain(path, None, password)
        else:
            assert chain is not None
            tls_context.load_cert_chain(chain, key, password)
    except FileNotFoundError:
        raise OttlaError(f"the client's certificate: there is no file {chain}, or no {key}") from None
    except (ssl.SSLError, OSError, ValueError) as error:
        raise OttlaError(
            f"the client's key and certificate ({chain or 'ssl.keystore.key'}) cannot be used: {error}. Both are PEM; "
            "is ssl.key.password right?"
        ) from error


@contextlib.contextmanager
def file_of(text: str) -> Iterator[str]:
    """A temporary file, in memory where the system supports it: the ssl module reads keys from files only."""
    if hasattr(os, "memfd_create"):
        with os.fdopen(os.memfd_create("ottla-key"), "w") as file:
            file.write(text)
            file.flush()
            yield f"/proc/self/fd/{file.fileno()}"
        return
    handle, path = tempfile.mkstemp(prefix="ottla-", suffix=".pem")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
        yield path
    finally:
        os.unlink(path)


def failed_tls(host: str, port: int, error: ssl.SSLError) -> TlsFailed:
    """Explain an error of the handshake to the user."""
    if isinstance(error, ssl.SSLCertVerificationError):
        why = error.verify_message
        hint = "name its CA in ssl.truststore.location"
        if "mismatch" in why.lower() or "not valid for" in why.lower():
            hint = "connect by a name that the certificate bears"
        return TlsFailed(f"{host}:{port} shows a certificate that is not trusted ({why}): {hint}")
    reason = str(error.reason or error).replace("_", " ").lower()
    if "alert" in reason or "certificate" in reason:
        return TlsFailed(
            f"{host}:{port} ended the TLS handshake ({reason}): does it ask for a certificate of the client "
            "(ssl.keystore.location)?"
        )
    return TlsFailed(f"{host}:{port} refuses TLS ({reason}): is security.protocol right?")
