"""Security of a node: TLS of its listeners, and its login at other nodes.

Rules:
- Stores are read when the node starts, and again when brokers' configs change: a listener whose settings or files have
  changed gets new contexts. Open connections keep theirs.
- New stores that are unusable, or belong to another owner, leave the listener as it is (`check`, KIP-226);
  `ssl.allow.dn.changes` and `ssl.allow.san.changes` permit another owner.
- Handshakes take turns on one thread, which is started for the first of them.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import Callable
from concurrent.futures import Executor
from functools import cached_property, partial
from typing import Any

from ottla.kernel.error import OttlaError
from ottla.net.authentications import Authentications
from ottla.net.handshake import Handshakes
from ottla.net.inbound import Connection, PeerError
from ottla.net.listener import TLS_ACCEPTS_AT_ONCE
from ottla.net.outbound import Outbound
from ottla.net.secured_outbound import SecuredOutbound
from ottla.net.tls_inbound import TlsAcceptor
from ottla.security.listener_tls import ListenerTls
from ottla.security.node_login import NodeLogin
from ottla.settings.server.settings import ServerSettings

_log = logging.getLogger("ottla.security")
_STORES = (ServerSettings.ssl_keystore_location.name, ServerSettings.ssl_truststore_location.name)


class NodeSecurity:
    """TLS and logins. The node creates it if a listener, its own or another node's, is secured. OttlaError."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, pool: Callable[[int], Executor], settings: ServerSettings
    ) -> None:
        self._loop = loop
        self._new_pool = pool
        self._settings = settings
        self._served = {listener.name for listener in settings.listeners}
        #: The listeners between nodes.
        self._internal = settings.outbound_listeners()
        self._tls: dict[str, ListenerTls] = {}
        #: Listener name -> fingerprint of the settings and files behind its TLS.
        self._fingerprints: dict[str, tuple[object, ...]] = {}
        self.sides: dict[str, TlsAcceptor] = {}
        self._logins: dict[str, NodeLogin] = {}
        for name, protocol in settings.protocols_in_use().items():
            if protocol.endswith("SSL"):
                self._tls[name] = self._make(settings, name)
                self._fingerprints[name] = _fingerprint(settings, name)
            if name in self._internal:
                context = partial(self._client_context, name) if name in self._tls else None
                self._logins[name] = NodeLogin(settings, name, context)

    # ---- the listeners

    def connection_of(self, listener: str, authentications: Authentications) -> dict[str, Any]:
        """The arguments of `ListeningSocket` that a TLS listener has; empty without TLS."""
        if listener not in self._tls:
            return {}
        tls = self._tls

        def secured(connection: Connection, made: ssl.SSLObject) -> None:
            if not self._settings.protocols[listener].startswith("SASL"):
                _set_principal(connection, tls[listener], made)
                authentications.successful += 1

        side = TlsAcceptor(
            self._loop,
            lambda: self._handshakes,
            lambda: tls[listener].server,
            secured,
            authentications=authentications,
        )
        self.sides[listener] = side
        return {"connection": side.connection, "accepts_at_once": TLS_ACCEPTS_AT_ONCE}

    @cached_property
    def _pool(self) -> Executor:
        return self._new_pool(1)

    @cached_property
    def _handshakes(self) -> Handshakes:
        return Handshakes(self._loop, self._pool)

    def close(self) -> None:
        """End the handshake thread, and the threads that renew tokens."""
        for login in self._logins.values():
            login.close()
        if "_pool" in vars(self):
            self._pool.shutdown()

    # ---- outgoing connections

    def outbound(self, listener: str, *arguments: Any, **options: Any) -> Outbound:
        """A connection to another node's listener; takes the arguments of `Outbound`."""
        return SecuredOutbound(*arguments, login=self._logins[listener], **options)

    def start_logins(self, *, needed: bool) -> None:
        """Prepare to sign in at other nodes. OttlaError if impossible; without `needed` only the first login fails."""
        for login in self._logins.values():
            login.start(needed=needed)

    def _client_context(self, listener: str) -> ssl.SSLContext:
        return self._tls[listener].client

    # ---- changes

    def check(self, settings: ServerSettings) -> None:
        """Raise OttlaError if the stores in these settings cannot replace those in force."""
        for name in self._changed(settings):
            self._replacement(settings, name)

    def follow(self, settings: ServerSettings, *, free: bool) -> None:
        """Apply changed brokers' configs. `free`: the owner may change, because nothing is served yet."""
        self._settings = settings
        for name, login in self._logins.items():
            problem = login.follow(settings, name)
            if problem:
                _log.warning("the new login settings are invalid, so the previous login stays in use: %s", problem)
        for name in self._changed(settings):
            try:
                new = self._make(settings, name) if free else self._replacement(settings, name)
            except OttlaError as error:
                _log.warning("the listener %s keeps its previous stores: %s", name, error)
                continue
            self._tls[name], self._fingerprints[name] = new, _fingerprint(settings, name)
            _log.info("the listener %s has new stores", name)

    def _changed(self, settings: ServerSettings) -> list[str]:
        return [name for name, fingerprint in self._fingerprints.items() if _fingerprint(settings, name) != fingerprint]

    def _make(self, settings: ServerSettings, name: str) -> ListenerTls:
        made = ListenerTls(settings, name)
        if name in self._served:
            made.check_serves()
            if name in self._internal and made.trusts:
                made.check_reaches(made)
        return made

    def _replacement(self, settings: ServerSettings, name: str) -> ListenerTls:
        """New TLS for a listener, checked as in Apache's SslFactory.createNewSslEngineFactory."""
        old, new = self._tls[name], ListenerTls(settings, name)
        if (old.own is None) is not (new.own is None):
            raise OttlaError(f"the listener {name}: a keystore can be replaced, but not added or removed")
        if new.trusts and not old.trusts:
            raise OttlaError(f"the listener {name}: a truststore can be replaced, but not added")
        if old.own is not None and new.own is not None:
            if not settings.for_listener(name, ServerSettings.ssl_allow_dn_changes.name) and _differ(
                old.own.name, new.own.name
            ):
                raise OttlaError(
                    f"the listener {name}: Keystore DistinguishedName does not match: existing={old.own.name}, "
                    f"new={new.own.name}; ssl.allow.dn.changes=true allows it"
                )
            lost = old.own.alternative_names - new.own.alternative_names
            if lost and not settings.for_listener(name, ServerSettings.ssl_allow_san_changes.name):
                raise OttlaError(
                    f"the listener {name}: Keystore SubjectAltNames do not match: the new certificate lacks "
                    f"{len(lost)} of the old one's names; ssl.allow.san.changes=true allows it"
                )
        if name in self._internal and name in self._served:
            # Nodes with the old and with the new stores coexist for a while.
            new.check_reaches(old)
            old.check_reaches(new)
        return new


def _differ(first: str, second: str) -> bool:
    return first.lower() != second.lower()


def _set_principal(connection: Connection, tls: ListenerTls, made: ssl.SSLObject) -> None:
    """Set the principal of an SSL client. PeerError if there is none."""
    try:
        principal = tls.principal(made.getpeercert(binary_form=True))
    except (ValueError, IndexError) as error:
        raise PeerError(f"its certificate has no readable name: {error}") from error
    if principal is None:
        raise PeerError("no rule in ssl.principal.mapping.rules matches its certificate")
    connection.principal = principal


def _fingerprint(settings: ServerSettings, name: str) -> tuple[object, ...]:
    """A fingerprint of everything that a listener's TLS depends on: settings and file states."""
    parts: list[object] = [
        settings.for_listener(name, each) for each in sorted(settings.declared()) if each.startswith("ssl.")
    ]
    for each in _STORES:
        try:
            status = os.stat(settings.for_listener(name, each) or "")
            parts.append((status.st_mtime_ns, status.st_size, status.st_ino))
        except OSError:
            parts.append(None)
    return tuple(parts)
