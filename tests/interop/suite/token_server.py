"""A provider of tokens as librdkafka's test of OIDC wants it: by a secret, an assertion, and as Azure's machines."""

from __future__ import annotations

import base64
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

import jwt

from tests.security.token_endpoint import BEARER
from tests.security.token_scene import Provider

CLIENT = ("a client", "the client's secret")
KEY_PASSWORD = "of the client's key"
#: With a token of a few seconds librdkafka comes in again with the same one, and once more within the second, which
#: both Apache's server and ours refuse.
LIFETIME_S = 60


class TokenServer:
    """Used with `with`. In `directory` are the keys that sign tokens, and the client's, which signs assertions."""

    def __init__(self, directory: Path) -> None:
        self._provider = provider = Provider()
        self.keys = provider.write(directory / "keys.json", "rsa")
        (directory / "encrypted").mkdir()
        self.client_key = provider.key_file(directory, "new")
        self.client_key_encrypted = provider.key_file(directory / "encrypted", "new", KEY_PASSWORD)
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                self._answer(server._may_have(form, self.headers["Authorization"] or ""))

            def do_GET(self) -> None:
                asked = parse_qs(urlsplit(self.path).query)
                named = {"api-version", "resource", "client_id"} <= asked.keys()
                self._answer(named and self.headers["Metadata"] == "true")

            def _answer(self, let_in: bool) -> None:
                said = server._token(urlsplit(self.path).path) if let_in else {"error": "invalid_request"}
                body = json.dumps(said).encode()
                self.send_response(200 if let_in else 400)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    def url(self, kind: str) -> str:
        """Where tokens of a kind are given: valid, forged or expired."""
        return f"http://127.0.0.1:{self._server.server_port}/{kind}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _may_have(self, form: dict[str, list[str]], authorization: str) -> bool:
        if form.get("scope", ["test"]) != ["test"]:
            return False
        if form["grant_type"] != [BEARER]:
            said = base64.b64decode(authorization.removeprefix("Basic ")).decode()
            return said == ":".join(CLIENT)
        key = self._provider.keys["new"].public_key()
        try:
            jwt.decode(form["assertion"][0], key, ["RS256"], options={"verify_aud": False})
        except jwt.PyJWTError:
            return False
        return True

    def _token(self, path: str) -> dict[str, Any]:
        now = int(time.time()) - (3600 if path == "/expired" else 0)
        key = "new" if path == "/forged" else "rsa"
        token = self._provider.token(key, header={"kid": "rsa"}, iat=now, exp=now + LIFETIME_S, client_id=CLIENT[0])
        return {"access_token": token, "token_type": "Bearer", "expires_in": LIFETIME_S}
