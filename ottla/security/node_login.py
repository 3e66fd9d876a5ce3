"""How a node shows who it is at another node's listener: by TLS, by SASL, or by both.

Rules:
- The mechanism between brokers is `sasl.mechanism.inter.broker.protocol`, that towards controllers
  `sasl.mechanism.controller.protocol`; user and password stand in the JAAS line of that listener and mechanism.
- PLAIN and SCRAM are served.
- Settings that do not say it are a `problem`, which is told where the login is needed; once read they are kept until
  others can be read.
- The password is in no text of this.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Generator

from ottla.kernel.error import OttlaError
from ottla.security.jaas import parse_jaas
from ottla.security.sasl import plain
from ottla.security.scram import HASHES, scram
from ottla.settings.server.settings import ServerSettings

_MECHANISMS = ("PLAIN", *HASHES)


class NodeLogin:
    """The login at the listeners of one name."""

    def __init__(self, settings: ServerSettings, listener: str, context: Callable[[], ssl.SSLContext] | None) -> None:
        #: Gives the TLS context of a connection; None without TLS.
        self.context = context
        #: The SASL mechanism; None without SASL.
        self.mechanism: str | None = None
        self.user = self._password = ""
        #: The complaint in the log, by host and port: the same is not told again.
        self.complaints: dict[tuple[str, int], str] = {}
        #: Why this node cannot sign in there; "" if it can.
        self.problem = self.follow(settings, listener)

    def follow(self, settings: ServerSettings, listener: str) -> str:
        """Read the settings again; returns what is wrong with them, and keeps those it had then."""
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
        line = f"listener.name.{listener.lower()}.{mechanism.lower()}.sasl.jaas.config"
        text = settings.of_mechanism(listener, mechanism, ServerSettings.sasl_jaas_config.name)
        options = {} if text is None else parse_jaas(line, text).options
        if not options.get("username") or "password" not in options:
            raise OttlaError(
                f'{line} has no username="..." and password="...", by which this node signs in at the listener '
                f"{listener} of others"
            )
        self.mechanism = mechanism
        self.user, self._password = options["username"], options["password"]

    def exchange(self, nonce: str) -> Generator[bytes, bytes, None]:
        """The messages of one sign-in."""
        assert self.mechanism is not None
        if self.mechanism == "PLAIN":
            return plain(self.user, self._password)
        return scram(self.mechanism, self.user, self._password, nonce)

    def __repr__(self) -> str:
        return f"NodeLogin({self.mechanism}, {self.user!r})"
