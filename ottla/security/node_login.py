"""A node's authentication at another node's listener: by TLS, by SASL, or by both.

Rules:
- The mechanism between brokers is `sasl.mechanism.inter.broker.protocol`, towards controllers
  `sasl.mechanism.controller.protocol`; user and password come from the JAAS line of that listener and mechanism.
- PLAIN, SCRAM, OAUTHBEARER and GSSAPI are supported.
- The token of OAUTHBEARER comes from a provider (`oauth`, `token_watch`). Its settings are read from the node's file
  only, which must also allow the URL and the files that they name: dynamic settings cannot send a node's secret
  elsewhere.
- GSSAPI uses the key with which the listener accepts others: keytab and principal of the same JAAS line. Getting its
  ticket waits for the KDC (`waits`).
- Incomplete settings become a `problem`, reported where the login is needed. Valid ones stay until newer ones are
  valid.
- No text here holds the password or the token.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.kernel.error import OttlaError
from ottla.security.gss import sign_in_gssapi
from ottla.security.jaas import parse_jaas
from ottla.security.sasl import bearer, plain
from ottla.security.scram import HASHES, scram
from ottla.settings.server.settings import ServerSettings

if TYPE_CHECKING:
    from ottla.security.kerberos import Initiator
    from ottla.security.oauth import TokenRequest
    from ottla.security.token_watch import TokenWatch

_BEARER = "OAUTHBEARER"
_KERBEROS = "GSSAPI"
_MECHANISMS = ("PLAIN", *HASHES, _BEARER, _KERBEROS)
_PACKAGE = "org.apache.kafka.common.security.oauthbearer"
#: The class that gets a node's token by the settings `sasl.oauthbearer.*`.
LOGIN_HANDLER = f"{_PACKAGE}.OAuthBearerLoginCallbackHandler"
_EXTENSION = "extension_"


class NodeLogin:
    """The login at the other nodes' listeners of one name."""

    def __init__(self, settings: ServerSettings, listener: str, context: Callable[[], ssl.SSLContext] | None) -> None:
        #: Returns the TLS context of a connection; None without TLS.
        self.context = context
        #: The SASL mechanism; None without SASL.
        self.mechanism: str | None = None
        self.user = self._password = ""
        self._file_settings = settings
        self._token_request: TokenRequest | None = None
        self._token_watch: TokenWatch | None = None
        self._extensions: Mapping[str, str] = {}
        self._is_started = False
        self._kerberos: Initiator | None = None
        #: The service name and JAAS line from which `_kerberos` was created.
        self._kerberos_from: tuple[str | None, str | None] | None = None
        #: The last logged complaint by host and port, so that none is repeated.
        self.complaints: dict[tuple[str, int], str] = {}
        #: Why this node cannot sign in; "" if it can.
        self.problem = self.follow(settings, listener)

    def follow(self, settings: ServerSettings, listener: str) -> str:
        """Read new settings; if they are invalid, keep the old ones and return the reason."""
        if settings.protocols[listener].startswith("SASL"):
            try:
                self._read(settings, listener)
            except OttlaError as error:
                return str(error)
        self.problem = ""
        return ""

    def _read(self, settings: ServerSettings, listener: str) -> None:
        name = ServerSettings.sasl_mechanism_inter_broker_protocol.name
        mechanism = settings.sasl_mechanism_inter_broker_protocol
        if listener in settings.controller_listener_names:
            name = ServerSettings.sasl_mechanism_controller_protocol.name
            mechanism = settings.sasl_mechanism_controller_protocol
        if mechanism not in _MECHANISMS:
            raise OttlaError(
                f"{name}={mechanism}: nodes sign in at the listener {listener} of others by {', '.join(_MECHANISMS)}; "
                "give one of them"
            )
        if mechanism == _BEARER:
            if self._is_started and self._token_watch is None:
                raise OttlaError(f"{name}={mechanism}: this node has no token yet; the change needs a restart")
            return self._read_bearer(listener)
        if mechanism == _KERBEROS:
            return self._read_kerberos(settings, listener)
        line, options = _options(settings, listener, mechanism)
        if not options.get("username") or "password" not in options:
            raise OttlaError(
                f'{line} has no username="..." and password="...", by which this node signs in at the listener '
                f"{listener} of others"
            )
        self.mechanism = mechanism
        self.user, self._password = options["username"], options["password"]
        return None

    def _read_bearer(self, listener: str) -> None:
        from ottla.security.oauth import TokenRequest
        from ottla.security.provider import ALLOWED_FILES, ALLOWED_URLS, check_allowed
        from ottla.security.tls import provider_context

        if self._token_request is None:
            settings = self._file_settings
            of = partial(settings.for_mechanism, listener, _BEARER)
            name = ServerSettings.sasl_login_callback_handler_class.name
            if of(name) != LOGIN_HANDLER:
                raise OttlaError(
                    f"listener.name.{listener.lower()}.oauthbearer.{name}={of(name) or ''}: a node gets its token by "
                    f"the settings sasl.oauthbearer.*; give {LOGIN_HANDLER}"
                )
            _, options = _options(settings, listener, _BEARER)
            request = TokenRequest(
                _BearerSettings(settings, listener), options, lambda: provider_context(options), for_node=True
            )
            check_allowed(settings, ALLOWED_URLS, ServerSettings.sasl_oauthbearer_token_endpoint_url.name, request.url)
            for each, path in request.files.items():
                check_allowed(settings, ALLOWED_FILES, each, path)
            self._token_request, self.user = request, request.user
            named = {
                name.removeprefix(_EXTENSION): value for name, value in options.items() if name.startswith(_EXTENSION)
            }
            self._extensions = named
        self.mechanism = _BEARER

    def _read_kerberos(self, settings: ServerSettings, listener: str) -> None:
        from ottla.security.kerberos import MODULE, Initiator, options_of

        of = partial(settings.for_mechanism, listener, _KERBEROS)
        found = of(ServerSettings.sasl_kerberos_service_name.name), of(ServerSettings.sasl_jaas_config.name)
        service, text = found
        line = _line(listener, _KERBEROS)
        if text is None:
            raise OttlaError(
                f"{line} is missing: this node signs in at the listener {listener} of others by its keytab "
                f'({MODULE} required useKeyTab=true keyTab="FILE" principal="kafka/HOST@REALM";)'
            )
        options = options_of(line, text)
        if options.get("isInitiator", "").lower() == "false" or options.get("principal") == "*":
            raise OttlaError(
                f"{line} has a key that only lets others in (isInitiator=false, or principal=*), and this node signs "
                f"in at the listener {listener} of others: name its principal, and leave isInitiator out"
            )
        if found != self._kerberos_from:
            self._kerberos = Initiator(service, text, where=line)
            self._kerberos_from = found
        self.mechanism, self.user = _KERBEROS, options.get("principal", "")

    def start(self, *, needed: bool = True) -> None:
        """Get the first token; may wait for the provider. OttlaError if a login is `needed` and cannot be."""
        self._is_started = True
        if self.problem:
            if needed:
                raise OttlaError(self.problem)
            return
        if self._token_request is None or self._token_watch is not None:
            return
        from ottla.security.token_watch import Renewal, TokenWatch

        settings = self._file_settings
        renewal = Renewal(
            settings.sasl_login_refresh_window_factor,
            settings.sasl_login_refresh_window_jitter,
            settings.sasl_login_refresh_min_period_seconds,
            settings.sasl_login_refresh_buffer_seconds,
            settings.sasl_login_retry_backoff_ms,
            settings.sasl_login_retry_backoff_max_ms,
        )
        self._token_watch = TokenWatch(self._token_request, renewal)

    def close(self) -> None:
        """Stop renewing the token."""
        if self._token_watch is not None:
            self._token_watch.close()

    @property
    def waits(self) -> bool:
        """Whether `exchange` waits for a KDC."""
        return self.mechanism == _KERBEROS

    def exchange(self, host: str, nonce: str) -> Generator[bytes, bytes, None]:
        """The messages of one sign-in at `host`. OttlaError if no ticket can be obtained."""
        assert self.mechanism is not None
        if self.mechanism == _KERBEROS:
            assert self._kerberos is not None
            return sign_in_gssapi(*self._kerberos.begin(host))
        if self.mechanism == "PLAIN":
            return plain(self.user, self._password)
        if self.mechanism == _BEARER:
            assert self._token_watch is not None
            return bearer(self._token_watch.token, self._extensions)
        return scram(self.mechanism, self.user, self._password, nonce)

    def __repr__(self) -> str:
        return f"NodeLogin({self.mechanism}, {self.user!r})"


class _BearerSettings:
    """The settings of OAUTHBEARER at one listener, as attributes."""

    def __init__(self, settings: ServerSettings, listener: str) -> None:
        self._of = partial(settings.for_mechanism, listener, _BEARER)

    def __getattr__(self, attribute: str) -> Any:
        return self._of(getattr(ServerSettings, attribute).name)


def _options(settings: ServerSettings, listener: str, mechanism: str) -> tuple[str, Mapping[str, str]]:
    """The name and the options of a listener's JAAS line for a mechanism."""
    line = _line(listener, mechanism)
    text = settings.for_mechanism(listener, mechanism, ServerSettings.sasl_jaas_config.name)
    return line, {} if text is None else parse_jaas(line, text).options


def _line(listener: str, mechanism: str) -> str:
    return f"listener.name.{listener.lower()}.{mechanism.lower()}.sasl.jaas.config"
