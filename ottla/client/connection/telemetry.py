"""Pushes a client's metrics to the cluster when its operator subscribes to them (KIP-714).

Rules:
- The broker's subscription says which metrics to push, and how often. Without a subscription, the client asks again
  after each interval. A broker without the two APIs is not asked again.
- The first push comes after 0.5 to 1.5 intervals, so that clients that start together do not push together. The last
  push, marked as such, is sent when the client closes.
- As in Kafka's client, a delta is pushed at most once: a push without an answer may have been counted, so its deltas
  are not repeated. Those of a refused push are. A delta begins at the push before it that had the same metric, and a
  cumulative sum where the client began.
- No work per record: one task per client reads `metrics()` once per interval.
- Names are Kafka's: `org.apache.kafka.`, the metric group without `-metrics`, and the name, with dots for dashes.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ottla.client.connection.clock import now_ms, randomness, wall_ms
from ottla.client.connection.cluster import Cluster
from ottla.client.connection.node_metric import NodeMetrics
from ottla.client.connection.otlp import Point, metrics_data
from ottla.kernel.client_error import Unsupported, check
from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.settings.client_metrics import ClientMetricsSettings
from ottla.wire.api.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from ottla.wire.api.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from ottla.wire.codec import Codec, compress

_log = logging.getLogger("ottla.client")

_PREFIX = "org.apache.kafka."
#: The interval until a broker has given another one, and after a push without an answer.
_INTERVAL_MS: int = ClientMetricsSettings.interval_ms.default
#: How long the last push may hold up a client that closes.
_CLOSE_SECONDS_MAX = 1.0
_CODECS = frozenset(map(int, Codec))
#: Errors that end the pushes, and errors after which the subscription is requested again at once.
_ENDS = frozenset({ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_RECORD, ErrorCode.UNSUPPORTED_VERSION})
_ASKS_AGAIN = frozenset({ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE})
_WAITS = frozenset({ErrorCode.TELEMETRY_TOO_LARGE, ErrorCode.THROTTLING_QUOTA_EXCEEDED})

Points = Callable[[], Iterator[Point]]
#: Sums by name and attributes, each with the time at which it was pushed, in ns since 1970.
Sums = dict[tuple[str, tuple[tuple[str, str], ...]], tuple[float, int]]


def points_of(group: str, named: Mapping[str, Any], **attributes: str) -> Iterator[Point]:
    """A snapshot's values under Kafka's names for this metric group, without those never measured."""
    labels = tuple(attributes.items())
    for name, value in named.items():
        if isinstance(value, int | float) and not math.isnan(value):
            yield Point(f"{_PREFIX}{group}.{name.replace('-', '.')}", labels, float(value), name.endswith("-total"))


def connection_points(group: str, cluster: Cluster, nodes: Mapping[int, NodeMetrics]) -> Iterator[Point]:
    """The metrics of opened connections, and of each broker."""
    opened = cluster.connections_opened
    figures = {"connection-creation-total": opened.count, "connection-creation-rate": opened.frequency(now_ms())}
    yield from points_of(group, figures)
    for node_id, node in nodes.items():
        yield from points_of(f"{group}.node", node.named(), node_id=f"node-{node_id}")


class TelemetryPush:
    """The pushes of one client. The client creates it on its loop, before its first request, and closes it."""

    def __init__(
        self, cluster: Cluster, points: Points, resource: Callable[[], Mapping[str, str]], *, enabled: bool
    ) -> None:
        """`resource` returns the labels of the client, such as its group or transactional id."""
        self._cluster = cluster
        self._points = points
        self._resource = resource
        self._task: asyncio.Task[None] | None = None
        #: The broker's subscription; None while it must be requested.
        self._subscription: GetTelemetrySubscriptionsResponse | None = None
        self._instance_id = GetTelemetrySubscriptionsRequest().client_instance_id
        #: The sums of the last push that had them: a metric may be missing for a time, such as those of a broker.
        self._pushed: Sums = {}
        self._began_ns = wall_ms() * 1_000_000
        self._size_logged = False
        self._closed = False
        if enabled:
            cluster.on_update.append(self._begin)

    def _begin(self) -> None:
        """Start when the cluster is known, so that a broker can be asked."""
        if self._task is None and not self._closed:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        pause_ms: float | None = 0
        try:
            while pause_ms is not None:
                await asyncio.sleep(pause_ms / 1000)
                pause_ms = await self._step()
        except Exception:
            self._subscription = None
            _log.exception("metrics are no longer pushed")

    async def _step(self) -> float | None:
        """Request a subscription, or push. Returns the ms until the next step, or None to stop."""
        subscription = self._subscription
        interval_ms = _INTERVAL_MS if subscription is None else _interval_ms(subscription)
        try:
            if subscription is None:
                return await self._ask()
            await self._push(subscription, terminating=False)
            return interval_ms
        except Unsupported:
            return None
        except KafkaError as error:
            if error.code in _ENDS:
                _log.warning("metrics are no longer pushed: the broker answered %s", error.code.name)
                self._subscription = None
                return None
            if error.code in _ASKS_AGAIN and subscription is not None:
                self._subscription = None
                return 0
            if error.code not in _WAITS:
                # Another broker may answer, with another subscription.
                self._subscription = None
            return interval_ms
        except OttlaError:
            self._subscription = None
            return interval_ms

    async def _ask(self) -> float:
        connection = await self._cluster.any()
        answer = await connection.call(
            GetTelemetrySubscriptionsRequest(client_instance_id=self._instance_id),
            GetTelemetrySubscriptionsResponse,
            timeout_ms=self._cluster.settings.request_timeout_ms,
        )
        check(answer.error_code)
        self._instance_id = answer.client_instance_id
        if not answer.requested_metrics:
            return _interval_ms(answer)
        self._subscription = answer
        return randomness().uniform(0.5, 1.5) * _interval_ms(answer)

    async def _push(self, wanted: GetTelemetrySubscriptionsResponse, *, terminating: bool) -> None:
        data, sums = self._data(wanted, wall_ms() * 1_000_000)
        codec = next((Codec(number) for number in wanted.accepted_compression_types if number in _CODECS), Codec.NONE)
        metrics = compress(codec, data)
        if len(metrics) > wanted.telemetry_max_bytes > 0:
            return self._log_size(len(metrics), wanted.telemetry_max_bytes)
        connection = await self._cluster.any()
        before, self._pushed = self._pushed, sums
        answer = await connection.call(
            PushTelemetryRequest(
                client_instance_id=wanted.client_instance_id,
                subscription_id=wanted.subscription_id,
                terminating=terminating,
                compression_type=codec,
                metrics=metrics,
            ),
            PushTelemetryResponse,
            timeout_ms=self._cluster.settings.request_timeout_ms,
        )
        if answer.error_code:
            self._pushed = before
            check(answer.error_code)

    def _log_size(self, size: int, size_max: int) -> None:
        if not self._size_logged:
            self._size_logged = True
            _log.warning(
                "metrics are not pushed: %d bytes are more than the brokers' telemetry.max.bytes=%d; "
                "subscribe to fewer metrics",
                size,
                size_max,
            )

    def _data(self, wanted: GetTelemetrySubscriptionsResponse, now_ns: int) -> tuple[bytes, Sums]:
        """The encoded metrics of the subscription, and all sums pushed so far (before any conversion to deltas)."""
        prefixes = tuple("" if prefix == "*" else prefix for prefix in wanted.requested_metrics)
        points: list[Point] = []
        sums = dict(self._pushed)
        for point in self._points():
            if point.name.startswith(prefixes):
                if point.is_sum:
                    key = point.name, point.attributes
                    before, at_ns = self._pushed.get(key, (0.0, self._began_ns))
                    sums[key] = point.value, now_ns
                    if not wanted.delta_temporality:
                        point = point._replace(began_ns=self._began_ns)
                    else:
                        # A smaller sum was counted from zero again.
                        delta = point.value - before if point.value >= before else point.value
                        point = point._replace(value=delta, began_ns=at_ns)
                points.append(point)
        resource = {name: value for name, value in self._resource().items() if value}
        return metrics_data(resource, points, now_ns=now_ns, delta=wanted.delta_temporality), sums

    async def close(self) -> None:
        """Stop, with a last push if there is a subscription. A failed push is ignored; it takes at most a second."""
        self._closed = True
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._task = None
        if self._subscription is not None:
            try:
                async with asyncio.timeout(_CLOSE_SECONDS_MAX):
                    await self._push(self._subscription, terminating=True)
            except (TimeoutError, KafkaError, OttlaError):
                _log.debug("the last metrics could not be pushed")


def _interval_ms(answer: GetTelemetrySubscriptionsResponse) -> int:
    """The interval of a subscription; without a valid one Kafka's default, as in Kafka's client."""
    return answer.push_interval_ms if answer.push_interval_ms > 0 else _INTERVAL_MS
