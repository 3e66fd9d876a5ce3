"""Metrics that clients push (KIP-714), shown at `/metrics` of the node they push to.

    client_org_apache_kafka_producer_record_send_total{client_id="billing",client_instance_id="...",topic="orders"} 70

Apache Kafka passes the metrics to a plug-in; here they are kept in memory until the next push. `client-metrics`
subscriptions decide what each client pushes (`ottla configs set metrics NAME metrics='*' interval.ms=60000`).

Rules:
- Everything is bounded, because a client may push anything: `_CLIENTS_MAX`, `_POINTS_PER_CLIENT`, `_POINTS_MAX` in
  total, the lengths of names and values, and the bytes waiting to be parsed. Any excess is dropped and counted.
- A push is parsed in steps, so that the loop serves others.
- Names begin with `client_`, so that a client cannot forge the node's own metrics. A name has one metric type.
- Delta sums are added up. A client is dropped when it has not pushed for three intervals, at least a minute, so that
  the last push of a client that has ended is still seen.
"""

from __future__ import annotations

import math
import re
import struct
from collections import Counter, deque
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

from ottla.broker.limits.telemetry import ClientMetrics
from ottla.broker.observe.otlp import NotOtlp, PushedPoint, read_points
from ottla.kernel.exposition import family, labels
from ottla.kernel.ids import Uuid, uuid_text

if TYPE_CHECKING:
    import asyncio

    from ottla.kernel.ports import Clock

_CLIENTS_MAX = 1000
_POINTS_PER_CLIENT = 500
_POINTS_MAX = 20_000
_WAITING_BYTES_MAX = 8 << 20
_NAME_MAX, _TEXT_MAX, _ATTRIBUTES_MAX = 120, 80, 4
_STEP = 50
_KEPT_MS_MIN, _INTERVALS_KEPT = 60_000, 3
_ILLEGAL_IN_NAME = re.compile(r"[^a-zA-Z0-9_]")
#: Label names that begin with two underscores are reserved by Prometheus.
_LABEL = re.compile(r"(?!__)[a-zA-Z_]\w*")
#: Resource attributes that identify a client.
_RESOURCES = frozenset({"client_rack", "group_id", "group_instance_id", "transactional_id"})

#: (name, labels) of a series of one client.
_Series = tuple[str, tuple[tuple[str, str], ...]]


class _Client:
    """The last push of one client."""

    __slots__ = ("keep_until_ms", "labels", "points")

    def __init__(self) -> None:
        self.labels: dict[str, str] = {}
        #: Series -> (value, whether it is a sum).
        self.points: dict[_Series, tuple[float, bool]] = {}
        self.keep_until_ms = 0


class PushedClientMetrics:
    """The pushed metrics of a node's clients. The endpoint creates it, and asks it for lines."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock) -> None:
        self._loop = loop
        self._clock = clock
        self._clients: dict[Uuid, _Client] = {}
        self._points = 0
        self._waiting: deque[ClientMetrics] = deque()
        self._waiting_bytes = 0
        self._reading: Iterator[None] | None = None
        self.pushes = 0
        #: Reason -> number of dropped items.
        self.dropped: Counter[str] = Counter()

    def take(self, pushed: ClientMetrics) -> None:
        """Queue a client's push, to be parsed in later turns of the loop."""
        self.pushes += 1
        if self._waiting_bytes + len(pushed.data) > _WAITING_BYTES_MAX:
            self.dropped["busy"] += 1
            return
        self._waiting.append(pushed)
        self._waiting_bytes += len(pushed.data)
        if self._reading is None:
            self._reading = self._read()
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        if self._reading is not None and next(self._reading, self) is not self:
            self._loop.call_soon(self._go_on)
        else:
            self._reading = None

    def _read(self) -> Iterator[None]:
        while self._waiting:
            pushed = self._waiting.popleft()
            self._waiting_bytes -= len(pushed.data)
            client = self._client(pushed)
            if client is None:
                self.dropped["clients"] += 1
                continue
            points: dict[_Series, tuple[float, bool]] = {}
            try:
                for number, point in enumerate(read_points(pushed.data), 1):
                    if point is not None:
                        self._add_point(client, points, point)
                    if point is None or not number % _STEP:
                        yield
            except (NotOtlp, struct.error):
                self.dropped["unreadable"] += 1
            # A gauge that is not pushed again has ended; a sum keeps its value.
            for series, before in client.points.items():
                if before[1] and len(points) < _POINTS_PER_CLIENT:
                    points.setdefault(series, before)
            if pushed.instance_id in self._clients:
                self._points += len(points) - len(client.points)
                client.points = points
            yield

    def _client(self, pushed: ClientMetrics) -> _Client | None:
        now_ms = self._clock.monotonic_ms()
        client = self._clients.get(pushed.instance_id)
        if client is None:
            if len(self._clients) >= _CLIENTS_MAX:
                self._expire(now_ms)
            if len(self._clients) >= _CLIENTS_MAX:
                return None
            client = self._clients[pushed.instance_id] = _Client()
        name, version = pushed.client.software
        client.labels = {
            "client_id": pushed.client.client_id[:_TEXT_MAX],
            "client_instance_id": uuid_text(pushed.instance_id),
            "client_software_name": name[:_TEXT_MAX],
            "client_software_version": version[:_TEXT_MAX],
        }
        client.keep_until_ms = now_ms + max(_KEPT_MS_MIN, _INTERVALS_KEPT * pushed.interval_ms)
        return client

    def _expire(self, now_ms: int) -> None:
        for instance_id, client in list(self._clients.items()):
            if client.keep_until_ms < now_ms:
                del self._clients[instance_id]
                self._points -= len(client.points)

    def _add_point(self, client: _Client, points: dict[_Series, tuple[float, bool]], point: PushedPoint) -> None:
        if not point.name or len(point.name) > _NAME_MAX:
            self.dropped["names"] += 1
            return
        if not math.isfinite(point.value):
            # Apache's clients send NaN for metrics that were never recorded.
            return
        own = {name: value for name, value in point.resource[:16] if name in _RESOURCES}
        own.update(point.attributes[:_ATTRIBUTES_MAX])
        clean = {_ILLEGAL_IN_NAME.sub("_", name[:_TEXT_MAX]): value[:_TEXT_MAX] for name, value in own.items()}
        series = (
            "client_" + _ILLEGAL_IN_NAME.sub("_", point.name),
            tuple(
                (name, value) for name, value in clean.items() if _LABEL.fullmatch(name) and name not in client.labels
            ),
        )
        if series not in points:
            if len(points) >= _POINTS_PER_CLIENT or self._points + len(points) - len(client.points) >= _POINTS_MAX:
                self.dropped["points"] += 1
                return
            before = client.points.get(series)
            base = before[0] if before is not None and before[1] and point.is_sum and point.is_delta else 0.0
        else:
            base = points[series][0] if point.is_delta else 0.0
        points[series] = (base + point.value, point.is_sum)

    def lines(self) -> Generator[list[str], None, None]:
        """The metric families of all clients, in pieces."""
        self._expire(self._clock.monotonic_ms())
        families: dict[str, tuple[bool, list[tuple[str, float]]]] = {}
        for number, client in enumerate(list(self._clients.values()), 1):
            for (name, where), (value, is_sum) in client.points.items():
                kind, samples = families.setdefault(name, (is_sum, []))
                if kind is is_sum:
                    samples.append((labels(**client.labels, **dict(where)), value))
                else:
                    self.dropped["kinds"] += 1
            if not number % 5:
                yield []
        for number, (name, (is_sum, samples)) in enumerate(sorted(families.items()), 1):
            lines = family(name, "counter" if is_sum else "gauge", "Pushed by clients (KIP-714).", samples)
            for first in range(0, len(lines), 200):
                yield lines[first : first + 200]
            if not number % 20:
                yield []
        yield [
            *family("ottla_client_metrics_clients", "gauge", "Clients that push.", [("", len(self._clients))]),
            *family("ottla_client_metrics_pushes_total", "counter", "Pushes of clients.", [("", self.pushes)]),
            *family(
                "ottla_client_metrics_dropped_total",
                "counter",
                "What clients pushed and is not shown.",
                [(labels(reason=reason), count) for reason, count in self.dropped.items()],
            ),
        ]
