"""Forwards metrics that clients push (KIP-714) as OTLP over HTTP: `client.metrics.otlp.url`.

A push is OpenTelemetry's MetricsData, whose bytes are also those of an ExportMetricsServiceRequest. Each of its
resources gets the attributes `client_id`, `client_instance_id`, `client_software_name` and `client_software_version`,
because clients do not identify themselves in their pushes.

Rules:
- The loop puts a push into a queue of at most `_WAITING_BYTES_MAX`; a separate thread parses, encodes and sends it.
- A push that exceeds the queue, cannot be parsed, or is refused by the receiver is dropped and counted; none is sent
  twice.
- The first failure after a success is logged, and so is the first success after a failure.
- Redirects are not followed, and no proxy from the environment is used.
"""

from __future__ import annotations

import http.client
import logging
import threading
from collections import Counter, deque
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

from ottla.broker.limits.telemetry import ClientMetrics
from ottla.broker.observe.otlp import NotOtlp, with_attributes
from ottla.kernel.error import OttlaError
from ottla.kernel.exposition import family, labels
from ottla.kernel.ids import uuid_text
from ottla.settings.server.own import OwnSettings

_log = logging.getLogger("ottla.broker")
SETTING = OwnSettings.client_metrics_otlp_url.name
_WAITING_BYTES_MAX = 8 << 20
_TIMEOUT_SECONDS = 10.0
_TEXT_MAX = 80
_ERRORS = (OSError, ValueError, http.client.HTTPException)


class OtlpExport:
    """Forwards a node's client metrics to a receiver. The node creates it, and ends it with `close`."""

    def __init__(self, url: str) -> None:
        """Start the thread. OttlaError if `url` is not an HTTP URL, or has a password, which log lines would reveal."""
        split = urlsplit(url)
        if "@" in split.netloc:
            raise OttlaError(
                f"{SETTING} has a user or password in its URL; receivers with authentication are not supported"
            )
        if split.scheme not in ("http", "https") or not split.hostname:
            raise OttlaError(
                f"invalid value {url} for configuration {SETTING}: expected http(s)://HOST:PORT/v1/metrics"
            )
        self._url = url
        self._opener = build_opener(_NoRedirect, ProxyHandler({}))
        self._waiting: deque[ClientMetrics] = deque()
        self._waiting_bytes = 0
        self._changed = threading.Condition()
        self._closed = False
        self._failing = False
        self.sent = 0
        #: Reason -> number of dropped pushes.
        self.dropped: Counter[str] = Counter()
        self._thread = threading.Thread(target=self._run, name="ottla-otlp", daemon=True)
        self._thread.start()

    def take(self, pushed: ClientMetrics) -> None:
        """Queue a client's push without waiting."""
        with self._changed:
            if self._waiting_bytes + len(pushed.data) > _WAITING_BYTES_MAX:
                self.dropped["busy"] += 1
                return
            self._waiting.append(pushed)
            self._waiting_bytes += len(pushed.data)
            self._changed.notify()

    def close(self) -> None:
        """Send no more, and drop what is queued. The thread ends, after its request in flight if there is one."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def lines(self) -> list[str]:
        """The exporter's metric families for `/metrics`."""
        lost = [(labels(reason=reason), count) for reason, count in sorted(self.dropped.copy().items())]
        name = "ottla_client_metrics_otlp"
        return [
            *family(f"{name}_sent_total", "counter", "Pushes of clients handed on as OTLP.", [("", self.sent)]),
            *family(f"{name}_dropped_total", "counter", "Pushes of clients not handed on as OTLP.", lost),
        ]

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closed)
                if self._closed:
                    return
                pushed = self._waiting.popleft()
                self._waiting_bytes -= len(pushed.data)
            try:
                body = _described(pushed)
            except NotOtlp:
                self.dropped["unreadable"] += 1
                continue
            self._send(body)

    def _send(self, body: bytes) -> None:
        request = Request(self._url, body, {"Content-Type": "application/x-protobuf"})
        try:
            with self._opener.open(request, timeout=_TIMEOUT_SECONDS):
                self.sent += 1
        except HTTPError as error:
            error.close()
            self._failed("refused", f"it answers {error.code} {error.reason}")
        except _ERRORS as error:
            self._failed("unreachable", str(error))
        else:
            if self._failing:
                self._failing = False
                _log.info("%s=%s accepts client metrics again", SETTING, self._url)

    def _failed(self, reason: str, why: str) -> None:
        self.dropped[reason] += 1
        if not self._failing:
            self._failing = True
            _log.warning("%s=%s does not accept client metrics; they are dropped: %s", SETTING, self._url, why)


class _NoRedirect(HTTPRedirectHandler):
    def redirect_request(self, *arguments: Any, **named: Any) -> None:
        """Do not follow the redirect: the response is an error."""


def _described(pushed: ClientMetrics) -> bytes:
    """A push with the client's attributes in its resources. NotOtlp."""
    name, version = pushed.client.software
    return with_attributes(
        pushed.data,
        {
            "client_id": pushed.client.client_id[:_TEXT_MAX],
            "client_instance_id": uuid_text(pushed.instance_id),
            "client_software_name": name[:_TEXT_MAX],
            "client_software_version": version[:_TEXT_MAX],
        },
    )
