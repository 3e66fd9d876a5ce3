"""Sends what a node measures to a receiver of OTLP over HTTP, on a thread: the base of the exporters.

Rules:
- The loop puts an item into a queue of at most `_WAITING_BYTES_MAX`; the thread encodes and sends it.
- An item that exceeds the queue, cannot be encoded, or is refused by the receiver is dropped and counted; none is sent
  twice.
- The first failure after a success is logged, and so is the first success after a failure.
- Redirects are not followed, and no proxy from the environment is used.
"""

from __future__ import annotations

import http.client
import logging
import threading
from abc import ABC, abstractmethod
from collections import Counter, deque
from typing import Any, ClassVar, Generic, TypeVar
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

from ottla.broker.observe.otlp import NotOtlp
from ottla.kernel.error import OttlaError
from ottla.kernel.exposition import family, labels

_log = logging.getLogger("ottla.broker")
_WAITING_BYTES_MAX = 8 << 20
_TIMEOUT_SECONDS = 10.0
_ERRORS = (OSError, ValueError, http.client.HTTPException)
_Item = TypeVar("_Item")


class OtlpSender(ABC, Generic[_Item]):
    """Sends items to one receiver. The node creates it, and ends it with `close`."""

    #: The setting with the receiver's URL, the path of such URLs, and what the items are, for log lines.
    setting: ClassVar[str]
    path: ClassVar[str]
    items: ClassVar[str]
    #: The prefix of the metrics, and what they count.
    metric: ClassVar[str]
    counted: ClassVar[str]
    #: Limit of the items of one request, and how long the thread gathers them, in seconds.
    at_once: ClassVar[int] = 1
    gather_seconds: ClassVar[float] = 0.0

    def __init__(self, url: str) -> None:
        """Start the thread. OttlaError if `url` is not an HTTP URL, or has a password, which log lines would reveal."""
        split = urlsplit(url)
        if "@" in split.netloc:
            raise OttlaError(
                f"{self.setting} has a user or password in its URL; receivers with authentication are not supported"
            )
        if split.scheme not in ("http", "https") or not split.hostname:
            raise OttlaError(
                f"invalid value {url} for configuration {self.setting}: expected http(s)://HOST:PORT{self.path}"
            )
        self._url = url
        self._opener = build_opener(_NoRedirect, ProxyHandler({}))
        self._waiting: deque[tuple[int, _Item]] = deque()
        self._waiting_bytes = 0
        self._changed = threading.Condition()
        self._closed = False
        self._failing = False
        self.sent = 0
        #: Reason -> number of dropped items.
        self.dropped: Counter[str] = Counter()
        self._thread = threading.Thread(target=self._run, name="ottla-otlp", daemon=True)
        self._thread.start()

    @abstractmethod
    def body(self, taken: list[_Item]) -> bytes:
        """The request with these items, encoded on the thread. NotOtlp if they cannot be encoded."""

    def put(self, item: _Item, size: int) -> None:
        """Queue an item of `size` bytes without waiting."""
        with self._changed:
            if self._waiting_bytes + size > _WAITING_BYTES_MAX:
                self.dropped["busy"] += 1
                return
            self._waiting.append((size, item))
            self._waiting_bytes += size
            # Wake the thread to begin, and when a request is full: not for each item in between.
            if len(self._waiting) == 1 or len(self._waiting) == self.at_once:
                self._changed.notify()

    def close(self) -> None:
        """Send no more, and drop what is queued. The thread ends, after its request in flight if there is one."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def lines(self) -> list[str]:
        """The metric families for `/metrics`."""
        lost = [(labels(reason=reason), count) for reason, count in sorted(self.dropped.copy().items())]
        return [
            *family(f"{self.metric}_sent_total", "counter", f"{self.counted} handed on as OTLP.", [("", self.sent)]),
            *family(f"{self.metric}_dropped_total", "counter", f"{self.counted} not handed on as OTLP.", lost),
        ]

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                self._changed.wait_for(
                    lambda: self._closed or len(self._waiting) >= self.at_once, timeout=self.gather_seconds
                )
                if self._closed:
                    return
                taken = [self._waiting.popleft() for _ in range(min(self.at_once, len(self._waiting)))]
                self._waiting_bytes -= sum(size for size, _ in taken)
            try:
                body = self.body([item for _, item in taken])
            except NotOtlp:
                self.dropped["unreadable"] += len(taken)
                continue
            self._send(body, len(taken))

    def _send(self, body: bytes, count: int) -> None:
        request = Request(self._url, body, {"Content-Type": "application/x-protobuf"})
        try:
            with self._opener.open(request, timeout=_TIMEOUT_SECONDS):
                self.sent += count
        except HTTPError as error:
            error.close()
            self._failed("refused", count, f"it answers {error.code} {error.reason}")
        except _ERRORS as error:
            self._failed("unreachable", count, str(error))
        else:
            if self._failing:
                self._failing = False
                _log.info("%s=%s accepts %s again", self.setting, self._url, self.items)

    def _failed(self, reason: str, count: int, why: str) -> None:
        self.dropped[reason] += count
        if not self._failing:
            self._failing = True
            _log.warning("%s=%s does not accept %s; they are dropped: %s", self.setting, self._url, self.items, why)


class _NoRedirect(HTTPRedirectHandler):
    def redirect_request(self, *arguments: Any, **named: Any) -> None:
        """Do not follow the redirect: the response is an error."""
