"""The token by which a node signs in at other nodes; a thread renews it before it expires, never the loop.

Rules:
- The node's start waits for the first token, up to `sasl.login.retry.backoff.max.ms`, as in Apache Kafka: a node
  without one cannot join its cluster.
- A token is renewed after `sasl.login.refresh.window.factor` of its lifetime plus up to `...jitter` of it. It is used
  for at least `...refresh.min.period.seconds` and renewed at least `...refresh.buffer.seconds` before its end; if its
  lifetime is too short for both, only the factor counts.
- If a renewal fails, the old token stays, and the thread retries after `sasl.login.retry.backoff.ms`, doubled up to
  `sasl.login.retry.backoff.max.ms`.

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
    """When to renew a token; `factor` and `jitter` are fractions of its lifetime."""

    factor: float
    jitter: float
    min_period_seconds: int
    buffer_seconds: int
    backoff_ms: int
    backoff_max_ms: int

    def at(self, now_s: float, ends_at_s: float, share: float) -> float:
        """When to renew a token fetched now, in s since 1970. `share` is the fraction of the jitter to add."""
        life = ends_at_s - now_s
        renewed = now_s + life * (self.factor + self.jitter * share)
        if life < self.min_period_seconds + self.buffer_seconds:
            return renewed
        return max(min(renewed, ends_at_s - self.buffer_seconds), now_s + self.min_period_seconds)

    def backoff_s(self, failures: int) -> float:
        """The backoff after `failures` consecutive failures."""
        return min(self.backoff_ms << min(failures - 1, 30), self.backoff_max_ms) / 1000


class TokenWatch:
    """The token for one listener. A `NodeLogin` creates it at the node's start, and closes it."""

    def __init__(self, request: TokenRequest, renewal: Renewal) -> None:
        """Wait for the first token. OttlaError if there is none in time."""
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
        """Tell the thread to end: at once, or after the provider's pending answer."""
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.wait(self._pause_s()):
            if self._failures or time.time() >= self._renew_at_s:
                self._renew()

    def _pause_s(self) -> float:
        """The wait until the next check: bounded, since the wall clock may be set and tokens may be short-lived."""
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
