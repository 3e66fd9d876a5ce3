"""A client's metrics, pushed to the cluster where its operator asks for them (KIP-714).

Rules:
- The broker says which metrics it wants, how often, and under which subscription; a client that is not asked for any
  asks again once an interval. A broker without the two APIs is left alone.
- The first push comes after 0.5 to 1.5 intervals, so that clients that start together do not push together. The last
  one, marked as such, is sent when the client closes.
- A sum since the last push is told at most once, as by Kafka's client: a push that gets no answer may have been
  counted, so what it told is not told again. A push that the broker refuses is.
- Nothing here touches a record: one task a client reads what `metrics()` gives, once an interval.
- Names are Kafka's: `org.apache.kafka.`, the group of the metric without `-metrics`, its name; dots for dashes.
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
#: Until a broker has said another one, and after a push that got no answer.
_INTERVAL_MS: int = ClientMetricsSettings.interval_ms.default
#: How long the last push may hold up a client that closes.
_CLOSE_SECONDS_MAX = 1.0
_CODECS = frozenset(map(int, Codec))
#: Codes after which nothing is pushed any more, and those after which the subscription is asked for at once.
_ENDS = frozenset({ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_RECORD, ErrorCode.UNSUPPORTED_VERSION})
_ASKS_AGAIN = frozenset({ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE})
_WAITS = frozenset({ErrorCode.TELEMETRY_TOO_LARGE, ErrorCode.THROTTLING_QUOTA_EXCEEDED})

Points = Callable[[], Iterator[Point]]
#: By name and attributes.
Sums = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def points_of(group: str, named: Mapping[str, Any], **attributes: str) -> Iterator[Point]:
    """The figures of one snapshot under Kafka's names for this group; what was never measured is left out."""
    labels = tuple(attributes.items())
    for name, value in named.items():
        if isinstance(value, int | float) and not math.isnan(value):
            yield Point(f"{_PREFIX}{group}.{name.replace('-', '.')}", labels, float(value), name.endswith("-total"))


def connection_points(group: str, cluster: Cluster, nodes: Mapping[int, NodeMetrics]) -> Iterator[Point]:
    """The connections that were opened, and what was measured of each broker."""
    opened = cluster.connections_opened
    figures = {"connection-creation-total": opened.count, "connection-creation-rate": opened.frequency(now_ms())}
    yield from points_of(group, figures)
    for node_id, node in nodes.items():
        yield from points_of(f"{group}.node", node.named(), node_id=f"node-{node_id}")


class TelemetryPush:
    """A client's pushes. The client makes it on its loop, before it asks the cluster for anything, and closes it."""

    def __init__(
        self, cluster: Cluster, points: Points, resource: Callable[[], Mapping[str, str]], *, enabled: bool
    ) -> None:
        """`resource` is what the client is called by: its group, its transactional id."""
        self._cluster = cluster
        self._points = points
        self._resource = resource
        self._task: asyncio.Task[None] | None = None
        #: What the broker last said; None while it must be asked.
        self._subscription: GetTelemetrySubscriptionsResponse | None = None
        self._instance_id = GetTelemetrySubscriptionsRequest().client_instance_id
        #: The sums of the last push, and when that was.
        self._told: Sums = {}
        self._told_ns = wall_ms() * 1_000_000
        self._closed = False
        if enabled:
            cluster.on_update.append(self._begin)

    def _begin(self) -> None:
        """The cluster is known: a broker can be asked."""
        if self._task is None and not self._closed:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        pause_ms: float | None = 0
        while pause_ms is not None:
            await asyncio.sleep(pause_ms / 1000)
            pause_ms = await self._turn()

    async def _turn(self) -> float | None:
        """Ask, or push. ms until the next turn, or None when there is none."""
        interval_ms = _INTERVAL_MS if self._subscription is None else self._subscription.push_interval_ms
        try:
            if self._subscription is None:
                return await self._ask()
            await self._push(self._subscription, terminating=False)
            return interval_ms
        except Unsupported:
            return None
        except KafkaError as error:
            if error.code in _ENDS:
                _log.warning("metrics are not pushed any more: the broker answers %s", error.code.name)
                self._subscription = None
                return None
            if error.code in _ASKS_AGAIN:
                self._subscription = None
                return 0
            if error.code not in _WAITS:
                # Perhaps another broker will answer, under another subscription.
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
            return answer.push_interval_ms
        self._subscription = answer
        return randomness().uniform(0.5, 1.5) * answer.push_interval_ms

    async def _push(self, wanted: GetTelemetrySubscriptionsResponse, *, terminating: bool) -> None:
        now_ns = wall_ms() * 1_000_000
        data, told = self._data(wanted, now_ns)
        codec = next((Codec(each) for each in wanted.accepted_compression_types if each in _CODECS), Codec.NONE)
        connection = await self._cluster.any()
        before, self._told, self._told_ns = (self._told, self._told_ns), told, now_ns
        answer = await connection.call(
            PushTelemetryRequest(
                client_instance_id=wanted.client_instance_id,
                subscription_id=wanted.subscription_id,
                terminating=terminating,
                compression_type=codec,
                metrics=compress(codec, data),
            ),
            PushTelemetryResponse,
            timeout_ms=self._cluster.settings.request_timeout_ms,
        )
        if answer.error_code:
            self._told, self._told_ns = before
            check(answer.error_code)

    def _data(self, wanted: GetTelemetrySubscriptionsResponse, now_ns: int) -> tuple[bytes, Sums]:
        """What is asked for, as it stands now, and its sums: those since the last push where the broker wants it so."""
        prefixes = tuple("" if each == "*" else each for each in wanted.requested_metrics)
        points: list[Point] = []
        told: Sums = {}
        for point in self._points():
            if point.name.startswith(prefixes):
                if point.is_sum:
                    told[point.name, point.attributes] = point.value
                    if wanted.delta_temporality:
                        before = self._told.get((point.name, point.attributes), 0.0)
                        point = point._replace(value=point.value - before)
                points.append(point)
        resource = {name: value for name, value in self._resource().items() if value}
        delta = wanted.delta_temporality
        return metrics_data(resource, points, began_ns=self._told_ns, now_ns=now_ns, delta=delta), told

    async def close(self) -> None:
        """End, with a last push where metrics are wanted. It fails in silence, and in a second."""
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
