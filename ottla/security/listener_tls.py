"""The TLS of a node's listener, from its settings: the server's context, and the one for connecting to other nodes.

Rules:
- A listener's own settings (`listener.name.X.ssl.*`) override the node's (`ssl.*`). The stores are read once, when a
  `ListenerTls` is created.
- `ssl.client.auth` without the listener's prefix is ignored where clients authenticate by SASL (KIP-684).
- Without a trust store, the system's CAs are trusted.
- Errors repeat no value of a setting except file names.

Not obvious: Python's ssl cannot choose among the suites of TLS 1.3, so either all of them are allowed, or TLS 1.3 is
disabled.

KIPs: 103 (listeners), 651 (PEM), 684. Messages are Kafka's where it has them (DefaultSslEngineFactory, SslFactory).
"""

from __future__ import annotations

import re
import ssl
from pathlib import Path
from typing import Any

from ottla.kernel.error import OttlaError
from ottla.kernel.named import NamedTuple
from ottla.security.certificate import Identity, identity_of
from ottla.security.keystore import KeyStore, read_store
from ottla.security.principal_mapping import PrincipalMapping
from ottla.security.tls import ANY_ANCHOR, VERSIONS, file_of
from ottla.settings.schema import Setting
from ottla.settings.server.settings import ServerSettings

_CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_STEPS_MAX = 10
_CERTIFICATE = re.compile(r"-----BEGIN ((?:X509 |TRUSTED )?CERTIFICATE)-----(?P<body>[^-]*)-----END \1-----")
_TLS13_SUITES = frozenset({"TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256"})


class KeyPair(NamedTuple):
    """A private key and its certificates, as PEM."""

    key: str
    chain: str
    password: str | None
    #: The file or setting that they come from, for messages.
    where: str

    def __repr__(self) -> str:
        return f"KeyPair({self.where})"


class ListenerTls:
    """The TLS contexts of a listener, recreated when its settings change. OttlaError."""

    def __init__(self, settings: ServerSettings, listener: str) -> None:
        self.listener = listener
        config = _ListenerSettings(settings, listener)
        self._is_sasl = settings.protocols[listener].startswith("SASL")
        pair, trusted = _key_pair(config), _trusted(config)
        #: The node's own certificate; None if there is none.
        self.own: Identity | None = None
        self.trusts = trusted is not None
        self.server = _context(config, ssl.PROTOCOL_TLS_SERVER, pair, trusted)
        self.client = _context(config, ssl.PROTOCOL_TLS_CLIENT, pair, trusted)
        if pair is not None:
            self.own = _identity(config, pair)
        auth = config.text(ServerSettings.ssl_client_auth)
        if self._is_sasl and not settings.has_listener_value(listener, ServerSettings.ssl_client_auth.name):
            auth = "none"
        self.server.verify_mode = _CLIENT_AUTH[auth]
        self.client.check_hostname = _checks_names(config)
        try:
            self.mapping = PrincipalMapping(config.text(ServerSettings.ssl_principal_mapping_rules))
        except OttlaError as error:
            raise OttlaError(f"the listener {listener}: {error}") from error

    def check_serves(self) -> None:
        """OttlaError if there is no certificate to serve clients with."""
        if self.own is None:
            raise OttlaError(
                f"the listener {self.listener} has no certificate: name its key store in "
                f"listener.name.{self.listener.lower()}.ssl.keystore.location, or in ssl.keystore.location"
            )

    def check_reaches(self, other: ListenerTls) -> None:
        """OttlaError unless a node with `other` can connect to this listener: key and trust stores must match."""
        ends = ssl.MemoryBIO(), ssl.MemoryBIO()
        # Check the stores only, not the host name.
        named, other.client.check_hostname = other.client.check_hostname, False
        client = other.client.wrap_bio(*ends)
        other.client.check_hostname = named
        server = self.server.wrap_bio(ends[1], ends[0], server_side=True)
        try:
            _run_handshake(client, server)
        except ssl.SSLError as error:
            why = getattr(error, "verify_message", "") or error.reason or str(error)
            raise OttlaError(
                f"the listener {self.listener}: a client with the node's own stores cannot connect to it ({why}); the "
                "trust store must hold the CA of the node's certificate"
            ) from error

    def principal(self, certificate: bytes | None) -> str | None:
        """The principal of a client certificate in DER; None if no mapping rule matches. ValueError."""
        if certificate is None:
            return "User:ANONYMOUS"
        user = self.mapping.user(identity_of(certificate).name)
        return None if user is None else f"User:{user}"


class _ListenerSettings:
    """The settings of one listener."""

    def __init__(self, settings: ServerSettings, listener: str) -> None:
        self._settings = settings
        self.listener = listener

    def text(self, setting: Setting[str]) -> str:
        return str(self._settings.for_listener(self.listener, setting.name))

    def optional(self, setting: Setting[Any]) -> str | None:
        found = self._settings.for_listener(self.listener, setting.name)
        return None if found in (None, "") else str(found)

    def words(self, setting: Setting[Any]) -> tuple[str, ...]:
        return tuple(self._settings.for_listener(self.listener, setting.name))

    def invalid(self, why: str) -> OttlaError:
        return OttlaError(f"the listener {self.listener}: {why}")


def _key_pair(config: _ListenerSettings) -> KeyPair | None:
    """The key pair of the key store. Rules and messages are those of DefaultSslEngineFactory.createKeystore."""
    kind, where = (
        config.text(ServerSettings.ssl_keystore_type).upper(),
        config.optional(ServerSettings.ssl_keystore_location),
    )
    password, key_password = (
        config.optional(ServerSettings.ssl_keystore_password),
        config.optional(ServerSettings.ssl_key_password),
    )
    key, chain = (
        config.optional(ServerSettings.ssl_keystore_key),
        config.optional(ServerSettings.ssl_keystore_certificate_chain),
    )
    if key is not None or chain is not None:
        if kind != "PEM":
            raise config.invalid(f"ssl.keystore.key is taken with ssl.keystore.type=PEM only, and the type is {kind}")
        if key is None or chain is None:
            raise config.invalid("ssl.keystore.key and ssl.keystore.certificate.chain come together")
        if where is not None:
            raise config.invalid("ssl.keystore.location and ssl.keystore.key are both given; remove one")
        return KeyPair(key, chain, key_password, "ssl.keystore.key")
    if where is None:
        if password is not None:
            raise config.invalid("ssl.keystore.password is given, and ssl.keystore.location is not")
        return None
    if kind == "PEM":
        if password is not None:
            raise config.invalid("a PEM key store has no ssl.keystore.password; its key may have one: ssl.key.password")
        text = _read(config, where)
        return KeyPair(text, text, key_password, where)
    if password is None:
        raise config.invalid(f"ssl.keystore.location={where} needs ssl.keystore.password")
    store = _store(config, where, password, key_password)
    if not store.key:
        raise config.invalid(f"the key store {where} has no private key")
    return KeyPair(store.key, store.chain, None, where)


def _trusted(config: _ListenerSettings) -> str | None:
    """The trusted certificates as PEM; None for the system's."""
    kind, where = (
        config.text(ServerSettings.ssl_truststore_type).upper(),
        config.optional(ServerSettings.ssl_truststore_location),
    )
    password, certificates = (
        config.optional(ServerSettings.ssl_truststore_password),
        config.optional(ServerSettings.ssl_truststore_certificates),
    )
    if certificates is not None:
        if kind != "PEM":
            raise config.invalid(
                f"ssl.truststore.certificates is taken with ssl.truststore.type=PEM only, not with {kind}"
            )
        if where is not None:
            raise config.invalid("ssl.truststore.location and ssl.truststore.certificates are both given; remove one")
        return certificates
    if where is None:
        if password is not None:
            raise config.invalid("ssl.truststore.password is given, and ssl.truststore.location is not")
        return None
    if kind == "PEM":
        if password is not None:
            raise config.invalid("a PEM trust store has no ssl.truststore.password; remove it")
        return _read(config, where)
    found = _store(config, where, password, None).trusted
    if not found:
        raise config.invalid(f"the trust store {where} has no certificate that it trusts")
    return found


def _read(config: _ListenerSettings, where: str) -> str:
    try:
        return Path(where).read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = "it is no PEM file" if isinstance(error, UnicodeDecodeError) else error.strerror
        raise config.invalid(f"the store {where} cannot be read: {why}") from error


def _store(config: _ListenerSettings, where: str, password: str | None, key_password: str | None) -> KeyStore:
    try:
        return read_store(where, password, key_password)
    except OttlaError as error:
        raise config.invalid(str(error)) from error


def _context(config: _ListenerSettings, side: int, pair: KeyPair | None, trusted: str | None) -> ssl.SSLContext:
    context = ssl.SSLContext(side)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.verify_flags |= ANY_ANCHOR
    _set_versions(config, context)
    try:
        if trusted is None:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        else:
            context.load_verify_locations(cadata=trusted)
    except (ssl.SSLError, ValueError) as error:
        raise config.invalid(f"the trusted certificates cannot be used, they are not PEM: {_why(error)}") from error
    if pair is not None:
        _load(config, context, pair)
    return context


def _load(config: _ListenerSettings, context: ssl.SSLContext, pair: KeyPair) -> None:
    text = pair.key if pair.key == pair.chain else f"{pair.key}\n{pair.chain}\n"
    try:
        with file_of(text) as path:
            # An empty password makes an encrypted key an error; None would ask at the terminal.
            context.load_cert_chain(path, None, pair.password or "")
    except (ssl.SSLError, OSError, ValueError) as error:
        raise config.invalid(
            f"the key and the certificate in {pair.where} cannot be used ({_why(error)}); do they belong together, and "
            "is ssl.key.password right?"
        ) from error


def _why(error: Exception) -> str:
    reason = getattr(error, "reason", None)
    return str(reason).replace("_", " ").lower() if reason else "OpenSSL gives no reason"


def _set_versions(config: _ListenerSettings, context: ssl.SSLContext) -> None:
    names, newest = config.words(ServerSettings.ssl_enabled_protocols), config.text(ServerSettings.ssl_protocol)
    for name in (*names, *(() if newest == "TLS" else (newest,))):
        if name not in VERSIONS:
            raise config.invalid(f"the TLS version {name} is not served; versions are {', '.join(VERSIONS)}")
    allowed = {VERSIONS[name] for name in names or VERSIONS}
    if newest == "TLSv1.2":
        allowed.discard(ssl.TLSVersion.TLSv1_3)
    suites = config.words(ServerSettings.ssl_cipher_suites)
    if suites:
        allowed &= _set_suites(config, context, suites)
    if not allowed:
        raise config.invalid("ssl.enabled.protocols, ssl.protocol and ssl.cipher.suites leave no version of TLS")
    context.minimum_version, context.maximum_version = min(allowed), max(allowed)


def _set_suites(config: _ListenerSettings, context: ssl.SSLContext, suites: tuple[str, ...]) -> set[ssl.TLSVersion]:
    """Allow these suites; returns the TLS versions that they leave."""
    new, old = _TLS13_SUITES & set(suites), [each for each in suites if each not in _TLS13_SUITES]
    versions = set()
    if new:
        if new != _TLS13_SUITES:
            raise config.invalid(
                "ssl.cipher.suites names some suites of TLS 1.3, and they can be allowed together only; name all of "
                f"them ({', '.join(sorted(_TLS13_SUITES))}) or none, which leaves TLS 1.2"
            )
        versions.add(ssl.TLSVersion.TLSv1_3)
    if old:
        known = {each["name"] for each in _all_suites()}
        for each in old:
            if openssl_name(each) not in known:
                raise config.invalid(f"ssl.cipher.suites: OpenSSL has no suite {each}")
        context.set_ciphers(":".join(map(openssl_name, old)))
        versions.add(ssl.TLSVersion.TLSv1_2)
    return versions


def _all_suites() -> list[ssl._Cipher]:
    every = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    every.set_ciphers("ALL")
    return every.get_ciphers()


def openssl_name(suite: str) -> str:
    """OpenSSL's name of a TLS 1.2 suite: ECDHE-RSA-AES256-GCM-SHA384 for TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384."""
    exchange, _, cipher = suite.removeprefix("TLS_").partition("_WITH_")
    cipher = cipher.replace("AES_", "AES").replace("_CBC", "").replace("POLY1305_SHA256", "POLY1305")
    named = cipher if exchange == "RSA" else f"{exchange}-{cipher}"
    return named.replace("_", "-")


def _checks_names(config: _ListenerSettings) -> bool:
    """Whether connections to other nodes verify the host name. Only an empty setting turns it off."""
    algorithm = config.text(ServerSettings.ssl_endpoint_identification_algorithm)
    if algorithm.lower() not in ("https", ""):
        raise config.invalid(
            f"invalid value for ssl.endpoint.identification.algorithm: {algorithm} (expected https, or nothing, which "
            "leaves the names of other nodes unchecked)"
        )
    return bool(algorithm)


def _identity(config: _ListenerSettings, pair: KeyPair) -> Identity:
    """The owner of a key pair's first certificate, which may have any of the PEM labels that OpenSSL reads."""
    found = _CERTIFICATE.search(pair.chain)
    try:
        if found is None:
            raise ValueError("it holds none")
        return identity_of(ssl.PEM_cert_to_DER_cert(f"{ssl.PEM_HEADER}\n{found['body'].strip()}\n{ssl.PEM_FOOTER}"))
    except (ValueError, IndexError) as error:
        raise config.invalid(f"the certificate in {pair.where} cannot be read: {error}") from error


def _run_handshake(client: ssl.SSLObject, server: ssl.SSLObject) -> None:
    """Run the handshake of both ends in memory. ssl.SSLError."""
    left = [client, server]
    for _ in range(_STEPS_MAX):
        for each in list(left):
            try:
                each.do_handshake()
            except ssl.SSLWantReadError:
                continue
            left.remove(each)
        if not left:
            return
