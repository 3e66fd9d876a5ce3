"""A token for a client's id and secret, from the endpoint that `sasl.oauthbearer.token.endpoint.url` names.

The client credentials grant of OAuth 2.0 (RFC 6749, 4.4); KIPs 768 and 1139. It runs in a thread: it waits for a server
that is not ours.
"""

from __future__ import annotations

import asyncio
import base64
import json
import time
from urllib.error import HTTPError
from urllib.parse import quote_plus, urlencode
from urllib.request import Request, urlopen

from ottla.kernel.client_error import AuthenticationFailed, NotReachable
from ottla.kernel.error import OttlaError
from ottla.settings.client.security import SecuritySettings

_TIMEOUT_S = 10.0
#: Answers of a token endpoint are a few KiB.
_BYTES_MAX = 1 << 20


async def fetch(settings: SecuritySettings) -> tuple[str, float]:
    """The token, and its end in s since 1970 (0 if the endpoint does not say).

    NotReachable if the endpoint may give one later, AuthenticationFailed if it does not like the id or the secret.
    """
    return await asyncio.to_thread(_fetch, settings)


def _fetch(settings: SecuritySettings) -> tuple[str, float]:
    url = settings.sasl_oauthbearer_token_endpoint_url or ""
    if not url.startswith(("https://", "http://")):
        raise OttlaError(f"sasl.oauthbearer.token.endpoint.url={url} is no http or https address")
    client_id = settings.sasl_oauthbearer_client_credentials_client_id or ""
    secret = settings.sasl_oauthbearer_client_credentials_client_secret or ""
    form = {"grant_type": "client_credentials"}
    if settings.sasl_oauthbearer_scope:
        form["scope"] = settings.sasl_oauthbearer_scope
    basic = base64.b64encode(f"{quote_plus(client_id)}:{quote_plus(secret)}".encode()).decode()
    headers = {"Authorization": f"Basic {basic}", "Accept": "application/json"}
    began = time.time()
    try:
        with urlopen(Request(url, urlencode(form).encode(), headers), timeout=_TIMEOUT_S) as answer:
            said = json.loads(answer.read(_BYTES_MAX))
        token = said["access_token"]
        lifetime = float(said.get("expires_in", 0))
    except HTTPError as error:
        error.close()
        why = f"{url} gives no token: it answers {error.code} {error.reason}"
        raise (NotReachable(why) if error.code >= 500 else AuthenticationFailed(why)) from error
    except OSError as error:
        raise NotReachable(f"{url} gives no token: {error}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise NotReachable(f"{url} gives no token: its answer has no access_token") from error
    return token, began + lifetime if lifetime else 0.0
