"""The current keys of a provider, which a thread reads from a file or a URL; the loop never waits for them.

Rules:
- The thread checks a file every second, and fetches a URL every `sasl.oauthbearer.jwks.endpoint.refresh.ms`. If it
  fails, the old keys stay, and it retries after `...retry.backoff.ms`, doubled up to `...retry.backoff.max.ms`.
- A token that no key matches triggers a fetch of the URL, but no sooner than `...retry.backoff.max.ms` after the last
  one, so that invented key ids cannot make this node fetch all the time.

`close` ends the thread. KIP-768.
"""

from __future__ import annotations

import http.client
import logging
import os
import ssl
import threading
from urllib.error import HTTPError
from urllib.parse import unquote, urlsplit

from ottla.kernel.error import OttlaError
from ottla.kernel.frozen import frozen
from ottla.security.key_set import KeySet, NoSuchKey
from ottla.security.provider import ask, bounded

_log = logging.getLogger("ottla.security")
_FILE_SECONDS = 1.0
#: The errors of reading a source.
_ERRORS = (OSError, ValueError, http.client.HTTPException, OttlaError)


@frozen
class KeySource:
    """Where the keys are, and how often to read them; times in ms."""

    url: str
    context: ssl.SSLContext | None
    refresh_ms: int
    backoff_ms: int
    backoff_max_ms: int

    @property
    def path(self) -> str | None:
        """The path of a `file:` URL; None for others."""
        split = urlsplit(self.url)
        return unquote(split.path) if split.scheme == "file" else None

    def read(self) -> bytes:
        """Read the key set. Raises one of _ERRORS."""
        if self.path is not None:
            with open(self.path, "rb") as file:
                return bounded(file)
        try:
            return ask(self.url, self.context)
        except HTTPError as error:
            error.close()
            raise OttlaError(f"it answers {error.code} {error.reason}") from None

    def stamp(self) -> object:
        """A value that changes when the file does; None for other URLs."""
        if self.path is None:
            return None
        status = os.stat(self.path)
        return status.st_mtime_ns, status.st_size, status.st_ino


class KeyWatch:
    """The keys of one source. The listener creates and closes it."""

    def __init__(self, source: KeySource, *, at_start: bool) -> None:
        """`at_start`: read the keys here, OttlaError if that fails; otherwise the thread reads them."""
        self._source = source
        self._keys = KeySet([])
        self._stamp: object = None
        self._failures = 0
        self._wanted, self._closed = threading.Event(), threading.Event()
        if at_start:
            try:
                self._read()
            except _ERRORS as error:
                raise OttlaError(f"sasl.oauthbearer.jwks.endpoint.url={source.url} gives no keys: {error}") from error
        self._thread = threading.Thread(target=self._run, args=(not at_start,), name="ottla-keys", daemon=True)
        self._thread.start()

    def payload(self, token: str) -> bytes:
        """The payload of a token that one of the keys signed. TokenRefused. Does not block."""
        try:
            return self._keys.payload(token)
        except NoSuchKey:
            self._wanted.set()
            raise

    def close(self) -> None:
        """Tell the thread to end: at once, or after the provider's pending answer."""
        self._closed.set()
        self._wanted.set()

    def _run(self, now: bool) -> None:
        while not self._closed.is_set():
            if not now:
                self._pause()
            now = False
            if not self._closed.is_set():
                self._look()

    def _pause(self) -> None:
        """Wait until the next read is due."""
        source = self._source
        backoff_s = min(source.backoff_ms << min(self._failures, 30), source.backoff_max_ms) / 1000
        if self._failures:
            self._closed.wait(backoff_s)
        elif source.path is not None:
            self._closed.wait(_FILE_SECONDS)
        else:
            gap_s = min(source.backoff_max_ms, source.refresh_ms) / 1000
            self._closed.wait(gap_s)
            self._wanted.wait(source.refresh_ms / 1000 - gap_s)

    def _look(self) -> None:
        # Cleared before the read, so that an unknown key id that arrives during it triggers another one.
        self._wanted.clear()
        try:
            if self._source.path is None or self._source.stamp() != self._stamp:
                self._read()
                _log.info("%s gave %d keys", self._source.url, len(self._keys))
        except _ERRORS as error:
            if not self._failures:
                _log.warning("%s gives no keys, those from before hold: %s", self._source.url, error)
            self._failures += 1
        else:
            self._failures = 0

    def _read(self) -> None:
        stamp = self._source.stamp()
        self._keys = KeySet.parse(self._source.read())
        self._stamp = stamp
