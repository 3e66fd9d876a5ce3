"""The keys of a provider as they are now: read from a file or an address by a thread, and never by the loop.

Rules:
- A file is looked at every second, an address asked every `sasl.oauthbearer.jwks.endpoint.refresh.ms`. What cannot be
  read leaves the keys as they were, and is tried again after `...retry.backoff.ms`, twice that, up to `....max.ms`.
- A token that no key fits has an address asked at once, but not again within `...retry.backoff.max.ms` of the last
  time: those who make up key ids do not make this node ask without end.

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
#: What reading a source may raise.
_ERRORS = (OSError, ValueError, http.client.HTTPException, OttlaError)


@frozen
class KeySource:
    """Where keys are, and how often that is looked at; times in ms."""

    url: str
    context: ssl.SSLContext | None
    refresh_ms: int
    backoff_ms: int
    backoff_max_ms: int

    @property
    def path(self) -> str | None:
        """The file of a `file:` address."""
        split = urlsplit(self.url)
        return unquote(split.path) if split.scheme.lower() == "file" else None

    def read(self) -> bytes:
        """The key set as it stands. Raises some of _ERRORS."""
        if self.path is not None:
            with open(self.path, "rb") as file:
                return bounded(file)
        try:
            return ask(self.url, self.context)
        except HTTPError as error:
            error.close()
            raise OttlaError(f"it answers {error.code} {error.reason}") from None

    def stamp(self) -> object:
        """What changes when a file does; None for an address."""
        if self.path is None:
            return None
        status = os.stat(self.path)
        return status.st_mtime_ns, status.st_size, status.st_ino


class KeyWatch:
    """The keys of one source. The listener makes it, and closes it."""

    def __init__(self, source: KeySource, *, at_start: bool) -> None:
        """`at_start`: read the keys here, OttlaError if they cannot be had; otherwise the thread reads them."""
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
        """What a token says, if one of the keys signed it. TokenRefused. It waits for nothing."""
        try:
            return self._keys.payload(token)
        except NoSuchKey:
            self._wanted.set()
            raise

    def close(self) -> None:
        """End the thread: at once, or when the provider's answer is there."""
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
        """Wait until the source is to be looked at again."""
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
        # A token that comes from here on was not seen before these keys were read.
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
