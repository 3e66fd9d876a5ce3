"""The token by which a node signs in at others, renewed before it ends: by a thread, and never by the loop.

Rules:
- The first token is waited for at the node's start, up to `sasl.login.retry.backoff.max.ms`, as by Apache Kafka: a
  node that has none cannot join its cluster.
- A token is renewed when `sasl.login.refresh.window.factor` of its life is over, and up to `...jitter` of it more. It
  is used for `...refresh.min.period.seconds` at least, and renewed `...refresh.buffer.seconds` before its end at the
  latest; a token too short for both goes by its life alone.
- A provider that gives none leaves the token as it was, and is asked again after `sasl.login.retry.backoff.ms`, twice
  that, up to `sasl.login.retry.backoff.max.ms`.

`close` ends the thread. KIPs: 255, 768.
"""

from __future__ import annotations

import logging
import random
import threading
import time

from ottla.kernel.client_error import AuthenticationFailed
from ottla.kernel.error import OttlaError
from ottla.kernel.frozen import frozen
from ottla.security.oauth import TokenRequest

_log = logging.getLogger("ottla.security")
_PAUSE_MIN_S, _PAUSE_MAX_S = 1.0, 60.0


@frozen
class Renewal:
    """When a token is fetched; `factor` and `jitter` are parts of its life."""

    factor: float
    jitter: float
    min_period_seconds: int
    buffer_seconds: int
    backoff_ms: int
    backoff_max_ms: int

    def at(self, now_s: float, ends_at_s: float, share: float) -> float:
        """When the token that is had since now is renewed, in s since 1970. `share`: which part of the jitter."""
        life = ends_at_s - now_s
        renewed = now_s + life * (self.factor + self.jitter * share)
        if life < self.min_period_seconds + self.buffer_seconds:
            return renewed
        return max(min(renewed, ends_at_s - self.buffer_seconds), now_s + self.min_period_seconds)

    def backoff_s(self, failures: int) -> float:
        """How long after so many failures in a row the provider is asked again."""
        return min(self.backoff_ms << min(failures - 1, 30), self.backoff_max_ms) / 1000


class TokenWatch:
    """The token of one listener. A `NodeLogin` makes it at the node's start, and closes it."""

    def __init__(self, request: TokenRequest, renewal: Renewal) -> None:
        """Waits for the first token. OttlaError if it cannot be had."""
        self._request, self._renewal = request, renewal
        self._closed = threading.Event()
        self._failures = 0
        self._renew_at_s = 0.0
        self.token = ""
        deadline = time.monotonic() + renewal.backoff_max_ms / 1000
        while not self.token:
            try:
                self._fetch()
            except AuthenticationFailed as error:
                raise OttlaError(str(error)) from error
            except OttlaError:
                self._failures += 1
                wait_s = self._renewal.backoff_s(self._failures)
                if time.monotonic() + wait_s > deadline:
                    raise
                time.sleep(wait_s)
        self._thread = threading.Thread(target=self._run, name="ottla-token", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread: at once, or when the provider's answer is there."""
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.wait(self._pause_s()):
            if self._failures or time.time() >= self._renew_at_s:
                self._renew()

    def _pause_s(self) -> float:
        """The wall clock may be set meanwhile, and a provider may give tokens that end at once."""
        if self._failures:
            return self._renewal.backoff_s(self._failures)
        return min(max(_PAUSE_MIN_S, self._renew_at_s - time.time()), _PAUSE_MAX_S)

    def _renew(self) -> None:
        try:
            self._fetch()
            _log.info("this node has a new token of %s", self._request.url)
        except (OttlaError, AuthenticationFailed) as error:
            if not self._failures:
                _log.warning("this node keeps its token until it ends: %s", error)
            self._failures += 1

    def _fetch(self) -> None:
        token, ends_at_s = self._request.fetch()
        now_s = time.time()
        if ends_at_s <= now_s:
            raise OttlaError(f"{self._request.url} gives a token that has ended, or that says no end (claim exp)")
        self.token, self._failures = token, 0
        self._renew_at_s = self._renewal.at(now_s, ends_at_s, random.random())
