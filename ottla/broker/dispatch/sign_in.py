"""Sign-in at a SASL listener: frames go to an `Authenticator` until there is a principal, then to the dispatch.

Rules:
- Before that a connection may send ApiVersions, SaslHandshake and SaslAuthenticate, none longer than
  `sasl.server.max.receive.size`. Any other request closes the connection. During an exchange a short readable request
  first gets ILLEGAL_SASL_STATE, as in Apache Kafka.
- After a failure no more frames of the connection are read. Its response waits for
  `connection.failed.authentication.delay.ms`, and then the connection is closed.
- An expired session closes its connection at the next request, unless that request renews it (KIP-368).
- Settings and credentials are read when a sign-in begins, so changes apply to the next one. The tokens that OAUTHBEARER
  accepts depend on the file alone (`token_check`).
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.broker.call.error_response import build_error_response
from ottla.broker.dispatch.dispatch import Dispatch
from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.net.authentications import Authentications
from ottla.net.inbound import Connection, PeerError, Slot
from ottla.security.authenticator import Authenticator, SignInFailed, SignInState
from ottla.security.jaas import parse_jaas
from ottla.security.verify import KeptToken, Mechanism, verify_plain, verify_scram
from ottla.settings.server.settings import ServerSettings
from ottla.wire.api import API, ApiKey
from ottla.wire.compile import decode, encode
from ottla.wire.header import RequestHeader, ResponseHeader, request_header_version, response_header_version
from ottla.wire.type import Malformed

if TYPE_CHECKING:
    from ottla.broker.dispatch.principals import Principals
    from ottla.broker.dispatch.token_check import TokenCheck
    from ottla.broker.runtime import Runtime
    from ottla.metadata.image import Image
    from ottla.security.token_keys import TokenKeys
    from ottla.settings.listener import Listener

_log = logging.getLogger("ottla.security")
_KEY_AND_VERSION = struct.Struct(">hh")
#: Mechanism -> its number in the metadata.
_SCRAM = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
_BEARER = "OAUTHBEARER"
_KERBEROS = "GSSAPI"
SERVED = ("PLAIN", *_SCRAM, _BEARER, _KERBEROS)
_NAMED_FROM = 3
_NONCE_BYTES = 24
_SALT_BYTES = 20
#: During an exchange a longer request closes the connection without a response.
_ANSWERED_BYTES_MAX = 4096
_HANDSHAKE = int(ApiKey.SASL_HANDSHAKE).to_bytes(2, "big")


class SignIns:
    """The sign-ins of one listener. The node creates it; OttlaError if the settings do not define valid mechanisms."""

    def __init__(
        self,
        runtime: Runtime,
        committed_image: Callable[[], Image],
        token_keys: TokenKeys | None,
        dispatch: Dispatch,
        listener: Listener,
        principals: Principals | None = None,
        authentications: Authentications | None = None,
    ) -> None:
        self._runtime = runtime
        #: Credentials and delegation tokens count once they are committed, before the node has applied them.
        self._committed_image = committed_image
        self._token_keys = token_keys
        self.dispatch = dispatch
        #: Replaces the principals of those who have signed in; None keeps them.
        self._principals = principals
        self.authentications = authentications or Authentications()
        self._name = listener.name
        self._settings = self._file_settings = runtime.settings
        self._token_check: TokenCheck | None = None
        self._serves = False
        self._mechanisms = self._read(runtime.settings)
        self._serves = True

    def on_frame(self, connection: Connection, frame: memoryview, slot: Slot) -> None:
        """Take the first frame of a connection."""
        sign_in = _SignIn(self, connection)
        connection.replace_handler(sign_in.on_frame)
        sign_in.on_frame(connection, frame, slot)

    def begin(self, connection: Connection) -> Authenticator:
        """An authenticator for this connection, with the current settings."""
        if self._settings is not self._runtime.settings:
            self._settings = self._runtime.settings
            try:
                self._mechanisms = self._read(self._settings)
            except OttlaError as error:
                _log.warning("the listener %s keeps its previous sign-in settings: %s", self._name, error)
        return Authenticator(self._mechanisms, self._session_ms, partial(self._principal_of, connection))

    def _principal_of(self, connection: Connection, user: str) -> str:
        principal = f"User:{user}"
        return principal if self._principals is None else self._principals.of(connection, principal)

    def _session_ms(self, mechanism: str) -> int:
        return int(self._settings.for_mechanism(self._name, mechanism, ServerSettings.connections_max_reauth_ms.name))

    @property
    def now_ms(self) -> int:
        return self._runtime.clock.monotonic_ms()

    @property
    def frame_bytes_max(self) -> int:
        return self._runtime.settings.socket_request_max_bytes

    @property
    def delay_seconds(self) -> float:
        return self._runtime.settings.connection_failed_authentication_delay_ms / 1000

    @property
    def later(self) -> Callable[..., Any]:
        return self._runtime.loop.call_later

    def _read(self, settings: ServerSettings) -> dict[str, Mechanism]:
        return {each: self._mechanism(settings, each) for each in enabled(settings, self._name)}

    def _mechanism(self, settings: ServerSettings, mechanism: str) -> Mechanism:
        _check_handler(settings, self._name, mechanism)
        if mechanism in _SCRAM:
            return partial(self._verify_scram, mechanism)
        if mechanism == _BEARER:
            return self._bearer()
        if mechanism == _KERBEROS:
            return _kerberos(settings, self._name)
        return partial(verify_plain, _passwords(settings, self._name))

    def _bearer(self) -> Mechanism:
        from ottla.broker.dispatch.token_check import TokenCheck
        from ottla.security.bearer import verify_bearer

        now_ms = self._runtime.clock.now_ms
        if self._token_check is None:
            self._token_check = TokenCheck(self._file_settings, self._name, now_ms, at_start=not self._serves)
        return partial(verify_bearer, self._token_check, now_ms)

    def close(self) -> None:
        """Stop the refresh of the provider's keys."""
        if self._token_check is not None:
            self._token_check.close()

    def _verify_scram(self, mechanism: str) -> Any:
        number, scram = _SCRAM[mechanism], self._committed_image().scram
        nonce = self._runtime.rng.randbytes(_NONCE_BYTES).hex()
        find_token = partial(self._find_token, mechanism)
        return verify_scram(mechanism, lambda user: scram.get((user, number)), nonce, find_token)

    def _find_token(self, mechanism: str, token_id: str) -> KeptToken | None:
        keys, tokens = self._token_keys, self._committed_image().tokens
        token = tokens.get(token_id)
        if keys is None or token is None:
            return None
        lifetime_ms = min(token.expiration_timestamp, token.max_timestamp) - self._runtime.clock.now_ms()
        if lifetime_ms < 0:
            return None
        credential = keys.credential(tokens, token_id, mechanism, self._runtime.rng.randbytes(_SALT_BYTES))
        return KeptToken(credential, token.owner.partition(":")[2], lifetime_ms)


def enabled(settings: ServerSettings, listener: str) -> list[str]:
    """The mechanisms that a listener offers. OttlaError for an unsupported one."""
    mechanisms = list(dict.fromkeys(settings.for_listener(listener, ServerSettings.sasl_enabled_mechanisms.name)))
    for each in mechanisms:
        if each not in SERVED:
            raise OttlaError(
                f"sasl.enabled.mechanisms={','.join(mechanisms)}: the listener {listener} does not serve {each}; it "
                f"serves {', '.join(SERVED)}"
            )
    return mechanisms


def _check_handler(settings: ServerSettings, listener: str, mechanism: str) -> None:
    """Refuse a Java callback handler: it decides about passwords, so it must not be ignored."""
    name = ServerSettings.sasl_server_callback_handler_class.name
    handler = settings.for_mechanism(listener, mechanism, name)
    if handler and mechanism != _BEARER:
        raise OttlaError(
            f"listener.name.{listener.lower()}.{mechanism.lower()}.{name}={handler}: this node runs no Java "
            f"classes and would check other passwords; remove it, or remove {mechanism} from sasl.enabled.mechanisms"
        )


def _jaas_line(settings: ServerSettings, listener: str, mechanism: str, example: str) -> tuple[str, str]:
    """(setting name, JAAS line) of a listener's mechanism. OttlaError for a missing line shows an example."""
    name = f"listener.name.{listener.lower()}.{mechanism.lower()}.sasl.jaas.config"
    text: str | None = settings.for_mechanism(listener, mechanism, ServerSettings.sasl_jaas_config.name)
    if text is None:
        raise OttlaError(
            f"{name} is missing: the listener {listener} offers {mechanism}, and this line names {example}"
        )
    return name, text


def _passwords(settings: ServerSettings, listener: str) -> Mapping[str, str]:
    example = 'its users (org.apache.kafka.common.security.plain.PlainLoginModule required user_NAME="PASSWORD";)'
    return parse_jaas(*_jaas_line(settings, listener, "PLAIN", example)).users


def _kerberos(settings: ServerSettings, listener: str) -> Mechanism:
    from ottla.security.gss import verify_gssapi
    from ottla.security.kerberos import MODULE, Acceptor, default_realm, options_of, service_name
    from ottla.security.principal_mapping import PrincipalToLocal

    example = f'its keytab ({MODULE} required useKeyTab=true keyTab="FILE" principal="kafka/HOST@REALM";)'
    name, text = _jaas_line(settings, listener, _KERBEROS, example)
    acceptor = Acceptor(name, text)
    setting = partial(settings.for_mechanism, listener, _KERBEROS)
    service_name(setting(ServerSettings.sasl_kerberos_service_name.name), options_of(name, text))
    rules = setting(ServerSettings.sasl_kerberos_principal_to_local_rules.name)
    return partial(verify_gssapi, acceptor.begin, PrincipalToLocal(rules, default_realm()).user)


class _SignIn:
    """The sign-in of one connection, and later its session."""

    __slots__ = ("_connection", "_is_renewal", "_sign_ins", "_authenticator")

    def __init__(self, of: SignIns, connection: Connection) -> None:
        self._sign_ins = of
        self._connection = connection
        self._authenticator = of.begin(connection)
        self._is_renewal = False

    def on_frame(self, connection: Connection, frame: memoryview, slot: Slot) -> None:
        """Take a frame before there is a principal, or while the session is being renewed."""
        authenticator = self._authenticator
        try:
            if authenticator.state is SignInState.EXCHANGING and authenticator.bare:
                answer = authenticator.token(bytes(frame), self._sign_ins.now_ms)
                slot.fill((len(answer).to_bytes(4, "big") + answer,))
            else:
                self._request(frame, slot)
        except SignInFailed as failed:
            return self._fail(slot, failed, frame)
        if authenticator.state is SignInState.DONE:
            self._accept()

    def _request(self, frame: memoryview, slot: Slot) -> None:
        try:
            key, version = _KEY_AND_VERSION.unpack_from(frame)
        except struct.error:
            raise PeerError("a request with a truncated header") from None
        authenticator = self._authenticator
        if key == ApiKey.API_VERSIONS and authenticator.may_ask_versions:
            return self._offer(frame, slot, version)
        is_sign_in = key in (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
        answered = is_sign_in or (authenticator.state is SignInState.EXCHANGING and len(frame) <= _ANSWERED_BYTES_MAX)
        if not answered or key not in API or version not in API[key].versions:
            raise PeerError(f"a request (API {key} v{version}) before it signed in")
        try:
            header, position = decode(RequestHeader, request_header_version(key, version), frame)
            request, _ = decode(API[key].request, version, frame, position)
        except Malformed as error:
            raise PeerError(f"an unreadable sign-in request: {error}") from error
        if key == ApiKey.SASL_HANDSHAKE:
            response: Any = authenticator.handshake(request, version)
        elif key == ApiKey.SASL_AUTHENTICATE:
            response = authenticator.authenticate(request, self._sign_ins.now_ms)
        else:
            # kafkajs takes the response to a bad token for success, and continues with such a request.
            refused = build_error_response(
                request, API[key].response, version, KafkaError(ErrorCode.ILLEGAL_SASL_STATE)
            )
            raise SignInFailed(f"a request (API {key} v{version}) in the middle of its sign-in", refused)
        slot.fill((_framed(key, version, header.correlation_id, response),))

    def _offer(self, frame: memoryview, slot: Slot, version: int) -> None:
        connection = self._connection
        self._sign_ins.dispatch.on_frame(connection, frame, slot)
        if version in API[ApiKey.API_VERSIONS].versions and (version < _NAMED_FROM or connection.client_software[0]):
            self._authenticator.asked_versions()

    def _fail(self, slot: Slot, failed: SignInFailed, frame: memoryview) -> None:
        connection, response = self._connection, failed.response
        _log.info("sign-in of %s:%d failed: %s", *connection.peer, failed)
        if self._is_renewal:
            self._sign_ins.authentications.failed_renewals += 1
        else:
            self._sign_ins.authentications.failed += 1
        data = b""
        if response is not None:
            key, version = _KEY_AND_VERSION.unpack_from(frame)
            header, _ = decode(RequestHeader, request_header_version(key, version), frame)
            data = _framed(key, version, header.correlation_id, response)

        def end() -> None:
            if connection.closed:
                return
            if not data:
                return connection.close(str(failed))
            slot.on_queued = connection.close_when_sent
            slot.fill((data,))

        # Read nothing more from this peer.
        connection.pause()
        if self._sign_ins.delay_seconds:
            self._sign_ins.later(self._sign_ins.delay_seconds, end)
        else:
            end()

    def _accept(self) -> None:
        connection, authenticator = self._connection, self._authenticator
        assert authenticator.principal is not None
        connection.principal, connection.signed_in_by_token = authenticator.principal, authenticator.by_token
        if self._is_renewal:
            self._sign_ins.authentications.successful_renewals += 1
        else:
            self._sign_ins.authentications.successful += 1
        whole = self._sign_ins.dispatch.on_frame if authenticator.ends_at_ms is None else self._in_session
        connection.replace_handler(whole, self._sign_ins.frame_bytes_max)

    def _in_session(self, connection: Connection, frame: memoryview, slot: Slot) -> None:
        """Take a frame in a session that expires."""
        is_handshake = bytes(frame[:2]) == _HANDSHAKE
        if is_handshake and self._authenticator.may_renew(self._sign_ins.now_ms):
            self._is_renewal = True
            connection.replace_handler(self.on_frame)
            return self.on_frame(connection, frame, slot)
        if self._authenticator.is_over(self._sign_ins.now_ms):
            self._sign_ins.authentications.expired += 1
            raise PeerError("its session has expired (connections.max.reauth.ms)")
        return self._sign_ins.dispatch.on_frame(connection, frame, slot)


def _framed(key: int, version: int, correlation_id: int, response: Any) -> bytes:
    head = encode(ResponseHeader(correlation_id=correlation_id), response_header_version(key, version))
    body = head + encode(response, version)
    return len(body).to_bytes(4, "big") + body
