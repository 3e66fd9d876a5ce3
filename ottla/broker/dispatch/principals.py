"""Principals by a plug-in (`principal.builder.class`): a client gets one before its first request is served."""

from __future__ import annotations

from ottla.broker.dispatch.dispatch import Dispatch
from ottla.broker.guard.plugin import AuthenticationContext, PrincipalBuilderPlugin, built
from ottla.net.inbound import Connection, PeerError, Slot
from ottla.settings.listener import Listener


class Principals:
    """The principals of one listener's clients."""

    def __init__(self, plugin: PrincipalBuilderPlugin, dispatch: Dispatch, listener: Listener) -> None:
        self._plugin = plugin
        self._dispatch = dispatch
        self._listener = listener

    def on_frame(self, connection: Connection, frame: memoryview, slot: Slot) -> None:
        """Take the first frame of a connection without SASL."""
        connection.principal = self.of(connection, connection.principal)
        connection.replace_handler(self._dispatch.on_frame)
        self._dispatch.on_frame(connection, frame, slot)

    def of(self, connection: Connection, principal: str) -> str:
        """The plug-in's principal of a client whose principal is this by Kafka's rules. PeerError if it refuses it."""
        listener = self._listener
        context = AuthenticationContext(
            listener.name,
            listener.security_protocol,
            connection.peer[0],
            principal,
            connection.peer_certificate(),
        )
        try:
            return built(self._plugin, context)
        except ValueError as error:
            raise PeerError(str(error)) from None
