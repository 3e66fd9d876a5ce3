"""A provider's token endpoint: it gives tokens for an id and a secret, and for assertions."""

from __future__ import annotations

import base64
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import parse_qsl, unquote_plus

import jwt

from tests.security.token_scene import Provider

SECRETS = {"ann": "anns secret", "node": "the nodes' secret", "a:b c": "ä%"}
BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
CLIENT_ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


class Asked(NamedTuple):
    """One request: its header and its form, and what its assertion says."""

    authorization: str | None
    form: dict[str, str]
    header: dict[str, Any]
    claims: dict[str, Any]


class TokenEndpoint:
    """Used with `with`. Tokens are signed by the provider's key `rsa`; assertions are, by `assertion_key`."""

    def __init__(self, provider: Provider, lifetime_s: int = 3600) -> None:
        self.provider = provider
        self.lifetime_s = lifetime_s
        self.assertion_key = "new"
        #: Given in place of a token, if it is not 0.
        self.status = 0
        #: The same for one request each, before that.
        self.first: list[int] = []
        self.asked: list[Asked] = []
        #: What goes beside the token into the answer.
        self.more: dict[str, Any] = {}
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                form = dict(parse_qsl(self.rfile.read(int(self.headers["Content-Length"])).decode()))
                status, said = endpoint._answer(self.headers["Authorization"], form)
                body = json.dumps(said).encode()
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", endpoint.url)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/token"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _answer(self, authorization: str | None, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        assertion = form.get("assertion") or form.get("client_assertion")
        header: dict[str, Any] = {}
        claims: dict[str, Any] = {}
        if assertion is not None:
            try:
                key = self.provider.keys[self.assertion_key].public_key()
                claims = jwt.decode(assertion, key, ["RS256", "ES256"], audience=self.url)
                header = jwt.get_unverified_header(assertion)
            except jwt.PyJWTError:
                claims = {}
        self.asked.append(Asked(authorization, form, header, claims))
        if status := self.first.pop(0) if self.first else self.status:
            return status, {}
        user = self._user(authorization, form, claims)
        if user is None:
            return 401, {"error": "invalid_client"}
        now = int(time.time())
        token = self.provider.token(sub=user, iat=now, exp=now + self.lifetime_s)
        return 200, {"access_token": token, "token_type": "Bearer", "expires_in": self.lifetime_s, **self.more}

    def _user(self, authorization: str | None, form: dict[str, str], claims: dict[str, Any]) -> str | None:
        if form["grant_type"] == BEARER or form.get("client_assertion_type") == CLIENT_ASSERTION:
            return claims.get("sub")
        said = base64.b64decode((authorization or "").removeprefix("Basic ")).decode()
        # RFC 6749 has both encoded, Apache's clients send them as they are.
        both = {said, ":".join(map(unquote_plus, said.split(":", 1)))}
        return next((user for user, secret in SECRETS.items() if f"{user}:{secret}" in both), None)
