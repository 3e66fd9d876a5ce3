"""The client's side of SASL: the exchange of each mechanism, and the source of its secrets.

An exchange is a generator: it yields messages to send, receives the broker's answers, and ends when the broker is
authenticated. `Connection` runs it after ApiVersions, and again before the session ends (KIP-368).

RFC 4616 (PLAIN), 5802 (SCRAM: `scram`), 7628 (OAUTHBEARER), 4752 (GSSAPI: `gss`).
"""

from __future__ import annotations

import asyncio
import inspect
import json
import secrets
import time
from collections.abc import Generator, Mapping
from typing import TYPE_CHECKING, Any

from ottla.kernel.client_error import NotReachable
from ottla.kernel.error import KafkaError, OttlaError
from ottla.security.gss import sign_in_gssapi
from ottla.security.scram import ScramRefused, scram
from ottla.settings.client.security import SecuritySettings

if TYPE_CHECKING:
    from ottla.security.kerberos import Initiator
    from ottla.security.oauth import TokenRequest

Exchange = Generator[bytes, bytes, None]

#: The fraction of a token's lifetime after which it is fetched again (as `sasl.login.refresh.window.factor`).
_TOKEN_LIFE_USED = 0.8
#: Characters of a broker's reason that an error repeats.
_STATUS_MAX = 200


class SignIn:
    """The credentials of a client, for all its connections. The client's `Cluster` creates it. OttlaError."""

    def __init__(self, settings: SecuritySettings) -> None:
        self.mechanism = settings.sasl_mechanism or ""
        self._settings = settings
        self._token = ""
        #: When the token must be fetched again, in s since 1970.
        self._renew_at = 0.0
        #: The fetch of a token that all connections wait for, whichever of them gives up.
        self._fetching: asyncio.Task[str] | None = None
        self._request: TokenRequest | None = None
        if self.mechanism == "OAUTHBEARER" and settings.sasl_oauthbearer_token is None:
            from ottla.security.oauth import TokenRequest
            from ottla.security.tls import provider_context

            options = settings.jaas_options
            self._request = TokenRequest(settings, options, lambda: provider_context(options), for_node=False)
        self._kerberos: Initiator | None = None
        if self.mechanism == "GSSAPI":
            from ottla.security.kerberos import Initiator

            self._kerberos = Initiator(
                settings.sasl_kerberos_service_name,
                settings.sasl_jaas_config,
                settings.sasl_kerberos_keytab,
                settings.sasl_kerberos_principal,
            )

    async def exchange(self, host: str) -> Exchange:
        """A new exchange with the broker at `host`. OttlaError if there is no token or ticket (NotReachable: now)."""
        if self._kerberos is not None:
            # On a thread, since it waits for the KDC.
            return sign_in_gssapi(*await asyncio.to_thread(self._kerberos.begin, host))
        if self.mechanism == "OAUTHBEARER":
            return bearer(await self._bearer_token(), self._settings.sasl_oauthbearer_extensions or {})
        user, password, token = self._settings.user
        if self.mechanism == "PLAIN":
            return plain(user, password)
        return scram(self.mechanism, user, password, secrets.token_urlsafe(24), "tokenauth=true" if token else "")

    async def _bearer_token(self) -> str:
        if time.time() < self._renew_at:
            return self._token
        given = self._settings.sasl_oauthbearer_token
        if isinstance(given, str):
            return given
        if self._fetching is None or self._fetching.done():
            self._fetching = asyncio.get_running_loop().create_task(self._fetch(given))
            # A connection that gave up does not look at the outcome.
            self._fetching.add_done_callback(lambda fetch: fetch.cancelled() or fetch.exception())
        return await asyncio.shield(self._fetching)

    async def _fetch(self, given: Any) -> str:
        """Fetch a token from the endpoint or the program's function; on a thread, since either may block."""
        began = time.time()
        fetch = given if self._request is None else self._request.fetch
        try:
            found: Any = fetch() if inspect.iscoroutinefunction(fetch) else await asyncio.to_thread(fetch)
            if inspect.isawaitable(found):
                found = await found
        except (OttlaError, KafkaError):
            raise
        except Exception as error:
            # From the program's function, as a rule because its provider is away.
            raise NotReachable(f"sasl.oauthbearer.token gives no token: {type(error).__name__}: {error}") from error
        token, ends_at = found if isinstance(found, tuple) else (found, 0.0)
        if not isinstance(token, str):
            raise OttlaError(f"sasl.oauthbearer.token gave {type(token).__name__}: it gives the token, or (token, end)")
        self._token, self._renew_at = token, began + (ends_at - began) * _TOKEN_LIFE_USED
        return token


def plain(user: str, password: str) -> Exchange:
    """PLAIN. It sends the password unencrypted, so use it over TLS."""
    yield f"\0{user}\0{password}".encode()


def bearer(token: str, extensions: Mapping[str, str]) -> Exchange:
    """OAUTHBEARER. A non-empty answer of the broker is the reason of a refusal."""
    pairs = "".join(f"\x01{name}={value}" for name, value in extensions.items())
    refusal = yield f"n,,{pairs}\x01auth=Bearer {token}\x01\x01".encode()
    if refusal:
        # The broker ends the exchange after this one byte.
        yield b"\x01"
        raise ScramRefused(_status(refusal))


def _status(refusal: bytes) -> str:
    try:
        status = json.loads(refusal).get("status", "no reason")
    except (ValueError, AttributeError, RecursionError):
        return "the broker refuses the token"
    return f"the broker refuses the token ({str(status)[:_STATUS_MAX]})"
