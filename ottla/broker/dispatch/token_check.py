"""Decides which tokens a listener with OAUTHBEARER accepts.

Rules:
- `sasl.server.callback.handler.class` of the listener and mechanism selects the check.
  `OAuthBearerValidatorCallbackHandler` accepts tokens signed by a key of `sasl.oauthbearer.jwks.endpoint.url`;
  `OAuthBearerUnsecuredValidatorCallbackHandler` accepts unsigned tokens. The latter is Kafka's default; here it must be
  named.
- Only the settings in the node's file count: a dynamic change cannot point a listener to other keys.
- The URL of the keys must be allowed (`ottla.security.provider`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

from ottla.kernel.error import OttlaError
from ottla.security.bearer import TOKEN_LENGTH_MAX, Bearer, TokenRefused
from ottla.security.claims import ClaimRules, UnsecuredRules
from ottla.security.jaas import parse_jaas
from ottla.security.provider import ALLOWED_URLS, check_allowed
from ottla.security.tls import provider_context
from ottla.settings.server.settings import ServerSettings

_log = logging.getLogger("ottla.security")
_PACKAGE = "org.apache.kafka.common.security.oauthbearer"
SIGNED = f"{_PACKAGE}.OAuthBearerValidatorCallbackHandler"
UNSECURED = f"{_PACKAGE}.internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
_VALIDATORS = (f"{_PACKAGE}.DefaultJwtValidator", f"{_PACKAGE}.BrokerJwtValidator")
_MECHANISM = "OAUTHBEARER"
_SCHEMES = ("https", "http", "file")


class TokenCheck:
    """A listener's token check. `SignIns` creates it from the node's file; OttlaError if that selects no check."""

    def __init__(self, settings: ServerSettings, listener: str, now_ms: Callable[[], int], *, at_start: bool) -> None:
        """Create the check; `at_start` (nothing is served yet): wait for the first keys."""
        self._listener = listener
        self._now_ms = now_ms
        self._settings = settings
        self.close: Callable[[], None] = lambda: None
        handler = self._of(ServerSettings.sasl_server_callback_handler_class.name)
        if handler == UNSECURED:
            _log.warning(
                "the listener %s accepts unsigned tokens, so anyone can claim any name: use it in tests only", listener
            )
            self._check: Callable[[str, int], Bearer] = UnsecuredRules.of(self._options()).check
        elif handler == SIGNED:
            self._check = self._signed(at_start)
        else:
            raise OttlaError(
                f"{self._name(ServerSettings.sasl_server_callback_handler_class.name)}={handler or ''}: the listener "
                f"{listener} offers OAUTHBEARER and needs a token check: set {SIGNED} for tokens that a "
                f"provider signs, or {UNSECURED} in a test"
            )

    def __call__(self, token: str) -> Bearer:
        """The principal in a token, or TokenRefused."""
        try:
            if len(token) > TOKEN_LENGTH_MAX:
                raise TokenRefused(f"it has {len(token)} characters, and {TOKEN_LENGTH_MAX} are taken")
            return self._check(token, self._now_ms())
        except TokenRefused as refused:
            _log.info("the listener %s refused a token: %s", self._listener, refused)
            raise

    # ---- signed tokens

    def _signed(self, at_start: bool) -> Callable[[str, int], Bearer]:
        if find_spec("jwt") is None or find_spec("cryptography") is None:
            raise OttlaError("OAUTHBEARER needs PyJWT to check signatures: pip install 'ottla[oauth]'")
        from ottla.security.key_watch import KeyWatch

        validator = self._of(ServerSettings.sasl_oauthbearer_jwt_validator_class.name)
        if validator not in _VALIDATORS:
            raise OttlaError(
                f"{self._name(ServerSettings.sasl_oauthbearer_jwt_validator_class.name)}={validator}: this node runs "
                f"no Java validator; set {_VALIDATORS[0]}, or remove it"
            )
        rules = self._rules()
        keys = KeyWatch(self._source(), at_start=at_start)
        self.close = keys.close
        return lambda token, now_ms: rules.check(keys.payload(token), now_ms)

    def _rules(self) -> ClaimRules:
        audiences = self._of(ServerSettings.sasl_oauthbearer_expected_audience.name)
        issuer = self._text(ServerSettings.sasl_oauthbearer_expected_issuer.name)
        for name, value in (("expected.audience", audiences), ("expected.issuer", issuer)):
            if not value:
                _log.warning(
                    "the listener %s accepts any token signed by its keys, because sasl.oauthbearer.%s is not set",
                    self._listener,
                    name,
                )
        claims = (
            self._text(ServerSettings.sasl_oauthbearer_scope_claim_name.name),
            self._text(ServerSettings.sasl_oauthbearer_sub_claim_name.name),
        )
        if None in claims:
            raise OttlaError("sasl.oauthbearer.scope.claim.name and sasl.oauthbearer.sub.claim.name must not be empty")
        scope, user = claims
        skew = self._of(ServerSettings.sasl_oauthbearer_clock_skew_seconds.name)
        return ClaimRules(tuple(audiences), issuer, skew, scope or "", user or "")

    def _source(self) -> Any:
        from ottla.security.key_watch import KeySource

        name = ServerSettings.sasl_oauthbearer_jwks_endpoint_url.name
        url = self._text(name)
        if url is None:
            raise OttlaError(
                f"{self._name(name)} is missing: set it to the URL of the keys that verify token signatures "
                "(https://... or file:...)"
            )
        scheme = urlsplit(url).scheme
        if scheme not in _SCHEMES:
            raise OttlaError(f"{self._name(name)}={url}: a URL with https:// or file: is expected")
        check_allowed(self._settings, ALLOWED_URLS, self._name(name), url)
        if scheme == "http":
            _log.warning("%s is not encrypted: an attacker on the network can substitute the keys", url)
        refresh_ms, backoff_ms, backoff_max_ms = (
            self._of(each)
            for each in (
                ServerSettings.sasl_oauthbearer_jwks_endpoint_refresh_ms.name,
                ServerSettings.sasl_oauthbearer_jwks_endpoint_retry_backoff_ms.name,
                ServerSettings.sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms.name,
            )
        )
        if min(refresh_ms, backoff_ms, backoff_max_ms) <= 0:
            raise OttlaError("sasl.oauthbearer.jwks.endpoint.refresh.ms and .retry.backoff* must be more than 0")
        tls = provider_context(self._options()) if scheme == "https" else None
        return KeySource(url, tls, refresh_ms, backoff_ms, backoff_max_ms)

    # ---- settings

    def _of(self, name: str) -> Any:
        return self._settings.for_mechanism(self._listener, _MECHANISM, name)

    def _text(self, name: str) -> str | None:
        return (self._of(name) or "").strip() or None

    def _name(self, name: str) -> str:
        return f"listener.name.{self._listener.lower()}.oauthbearer.{name}"

    def _options(self) -> Mapping[str, str]:
        line = ServerSettings.sasl_jaas_config.name
        text = self._of(line)
        return {} if text is None else parse_jaas(self._name(line), text).options
