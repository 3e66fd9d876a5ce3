"""HTTP requests to a token provider, an external server.

Rules:
- A response has at most 1 MiB, and each step a timeout of 10 s.
- A node requests only URLs and reads only files that its own file allows: `ALLOWED_URLS` and `ALLOWED_FILES` are Java
  system properties in Apache Kafka, and lines of the node's file here.
- Redirects are not followed: only the configured address sees a secret.
"""

from __future__ import annotations

import ssl
from typing import IO, TYPE_CHECKING, Any
from urllib.request import HTTPRedirectHandler, HTTPSHandler, ProxyHandler, Request, build_opener

from ottla.kernel.error import OttlaError

if TYPE_CHECKING:
    from ottla.settings.server.settings import ServerSettings

ALLOWED_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
ALLOWED_FILES = "org.apache.kafka.sasl.oauthbearer.allowed.files"
_BYTES_MAX = 1 << 20
_TIMEOUT_SECONDS = 10.0


class _NoRedirect(HTTPRedirectHandler):
    def redirect_request(self, *arguments: Any, **named: Any) -> None:
        """Do not follow: the response becomes an error."""


def ask(request: str | Request, context: ssl.SSLContext | None, *, by_proxy: bool = False) -> bytes:
    """The body of the response. HTTPError for a status other than 200, OSError, ValueError, http.client.HTTPException.

    `by_proxy`: use the proxies that the environment names.
    """
    proxies = [] if by_proxy else [ProxyHandler({})]
    opener = build_opener(_NoRedirect, *proxies, HTTPSHandler(context=context))
    with opener.open(request, timeout=_TIMEOUT_SECONDS) as answer:
        return bounded(answer)


def bounded(file: IO[bytes]) -> bytes:
    """Read a file or response. ValueError if it is longer than 1 MiB."""
    data = file.read(_BYTES_MAX + 1)
    if len(data) > _BYTES_MAX:
        raise ValueError("it has more than 1 MiB")
    return data


def check_allowed(settings: ServerSettings, allowed: str, name: str, value: str) -> None:
    """OttlaError if the setting `name` has a value that the node's file does not allow."""
    found = (settings.plain_text(allowed) or "").split(",")
    if value not in {each.strip() for each in found}:
        kind = "addresses" if allowed == ALLOWED_URLS else "files"
        raise OttlaError(f"{name}={value} is not among the {kind} that are allowed: {allowed}={value}")
