"""Fetches tokens from `sasl.oauthbearer.token.endpoint.url`, for a client and for a node.

Grants:
- client credentials (RFC 6749, 4.4): an id and a secret, or an assertion instead of the secret (RFC 7523, 2.2);
- JWT bearer (RFC 7523, 2.1), by `sasl.oauthbearer.jwt.retriever.class`: an assertion.
A `file:` URL names a file with the token itself.

`fetch` waits for an external server, so it runs in a thread. KIPs: 768, 1139.
"""

from __future__ import annotations

import base64
import http.client
import json
import math
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote_plus, unquote, urlencode, urlsplit
from urllib.request import Request

from ottla.kernel.client_error import AuthenticationFailed, NotReachable
from ottla.kernel.error import OttlaError
from ottla.security.assertion import Assertions
from ottla.security.provider import ask

_PACKAGE = "org.apache.kafka.common.security.oauthbearer"
_BY_ADDRESS, _FILE = f"{_PACKAGE}.DefaultJwtRetriever", f"{_PACKAGE}.FileJwtRetriever"
_CREDENTIALS, _BEARER = f"{_PACKAGE}.ClientCredentialsJwtRetriever", f"{_PACKAGE}.JwtBearerJwtRetriever"
_RETRIEVERS = (_BY_ADDRESS, _CREDENTIALS, _BEARER, _FILE)
_URL = "sasl.oauthbearer.token.endpoint.url"
_GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
#: The 4xx statuses after which a retry may succeed.
_TRY_AGAIN = (408, 429)


class TokenRequest:
    """A request for tokens. OttlaError if the settings are incomplete.

    `settings` has the attributes `sasl_oauthbearer_*`; `options` are those of the JAAS line, used where a setting is
    missing (`clientId`, `clientSecret`, `scope`). `context` creates the TLS context to the provider, for https only.
    """

    def __init__(
        self, settings: Any, options: Mapping[str, str], context: Callable[[], ssl.SSLContext], *, for_node: bool
    ) -> None:
        self.url: str = (settings.sasl_oauthbearer_token_endpoint_url or "").strip()
        self._for_node = for_node
        kind = settings.sasl_oauthbearer_jwt_retriever_class
        if kind not in _RETRIEVERS:
            raise OttlaError(
                f"sasl.oauthbearer.jwt.retriever.class={kind}: no Java class is run here; give one of "
                f"{', '.join(_RETRIEVERS)}"
            )
        scheme = urlsplit(self.url).scheme
        from_file = scheme == "file" and kind in (_BY_ADDRESS, _FILE)
        if not from_file and (kind == _FILE or scheme not in ("https", "http")):
            raise OttlaError(f"{_URL}={self.url} is no {'file:' if kind == _FILE else 'http or https'} address")
        self._context = context() if scheme == "https" else None
        self._file = Path(unquote(urlsplit(self.url).path)) if from_file else None
        self._scope = (settings.sasl_oauthbearer_scope or options.get("scope") or "").strip()
        self._id = settings.sasl_oauthbearer_client_credentials_client_id or options.get("clientId") or ""
        self._secret = settings.sasl_oauthbearer_client_credentials_client_secret or options.get("clientSecret") or ""
        self._is_bearer = kind == _BEARER
        self._assertions: Assertions | None = None
        asserts = settings.sasl_oauthbearer_assertion_file or settings.sasl_oauthbearer_assertion_claim_iss
        if self._is_bearer or (asserts and not from_file):
            self._assertions = Assertions(settings)
        elif not from_file and (not self._id or not self._secret):
            raise OttlaError(
                f"{_URL} needs sasl.oauthbearer.client.credentials.client.id and .client.secret, or an assertion "
                "(sasl.oauthbearer.assertion.*)"
            )
        #: The name of the client or node, for logs.
        self.user: str = self._id or settings.sasl_oauthbearer_assertion_claim_sub or self.url

    @property
    def files(self) -> Mapping[str, str]:
        """Setting -> the file that it names, for files that are read for a token."""
        return {} if self._assertions is None else self._assertions.files

    def fetch(self) -> tuple[str, float]:
        """The token and its expiry in s since 1970 (0 if neither the token nor the endpoint names one).

        NotReachable if a retry may succeed, AuthenticationFailed if the endpoint refuses the credentials, OttlaError
        for unusable files.
        """
        began = time.time()
        said = {"access_token": self._from_file()} if self._file is not None else self._ask(int(began))
        try:
            token: str = (said.get("access_token") or said["id_token"]).strip()
            lifetime = float(said.get("expires_in") or 0)
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
            raise NotReachable(f"{self.url} gives no token: its answer has no access_token") from None
        return token, end_of(token) or (began + lifetime if math.isfinite(lifetime) and lifetime else 0.0)

    def _from_file(self) -> str:
        assert self._file is not None
        try:
            return self._file.read_text()
        except (OSError, ValueError) as error:
            raise NotReachable(f"{self.url} gives no token: {error}") from None

    def _ask(self, now_s: int) -> Any:
        headers = {"Accept": "application/json", "Cache-Control": "no-cache"}
        form: dict[str, str] = {}
        if self._is_bearer:
            assert self._assertions is not None
            form = {"grant_type": _GRANT, "assertion": self._assertions.make(now_s)}
        else:
            form = {"grant_type": "client_credentials"}
            if self._assertions is not None:
                form |= {"client_assertion_type": _ASSERTION_TYPE, "client_assertion": self._assertions.make(now_s)}
                form |= {"client_id": self._id} if self._id else {}
            else:
                headers["Authorization"] = f"Basic {self._basic()}"
        if self._scope:
            form["scope"] = self._scope
        request = Request(self.url, urlencode(form).encode(), headers)
        try:
            return json.loads(ask(request, self._context, by_proxy=not self._for_node))
        except HTTPError as error:
            error.close()
            why = f"{self.url} gives no token: it answers {error.code} {error.reason}"
            refused = error.code < 500 and error.code not in _TRY_AGAIN
            raise (AuthenticationFailed if refused else NotReachable)(why) from None
        except (OSError, ValueError, RecursionError, http.client.HTTPException) as error:
            raise NotReachable(f"{self.url} gives no token: {error}") from error

    def _basic(self) -> str:
        """The credentials of RFC 6749, 2.3.1. A node sends them unencoded, as Apache's broker does by default."""
        if self._for_node:
            said = f"{self._id.strip()}:{self._secret.strip()}"
        else:
            said = f"{quote_plus(self._id)}:{quote_plus(self._secret)}"
        return base64.b64encode(said.encode()).decode()


def end_of(token: str) -> float:
    """The claim exp of a token in s since 1970; 0 if it has none. The token is not verified."""
    try:
        part = token.split(".")[1]
        end = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))["exp"]
        return float(end) if isinstance(end, int | float) and math.isfinite(end) else 0.0
    except (ValueError, KeyError, TypeError, IndexError, OverflowError, RecursionError):
        return 0.0
