"""Client metrics (KIP-714): subscriptions, push intervals and export.

Rules:
- A subscription is a `client-metrics` resource: metrics, an interval, and patterns that match clients. A client gets
  the metrics of all subscriptions that match it, and the shortest of their intervals.
- A client asks for its subscription and then pushes once per interval. A push that is too early, or under an outdated
  subscription, gets the error code that makes the client ask again.
- Decompressed metrics go to `exporter`. Without an exporter the two APIs are not offered, as in Apache Kafka without a
  receiver plug-in, but a client that uses them anyway is served.

An instance lives as long as its connection, which has one. At most `_INSTANCES_MAX` are kept; beyond that the one that
was heard of the longest ago is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import NO_UUID, Uuid, random_uuid, uuid_text
from ottla.kernel.lazy import LazyModule
from ottla.kernel.named import NamedTuple
from ottla.kernel.ports import Rng
from ottla.kernel.validators import whole_number
from ottla.metadata.image import CLIENT_METRICS, Image
from ottla.settings.client_metrics import ClientMetricsSettings, matched
from ottla.wire.checksum import crc32c
from ottla.wire.codec import codec_of, decompress

if TYPE_CHECKING:
    from ottla.kernel.re2 import pattern as expression
else:
    expression = LazyModule("ottla.kernel.re2.pattern")

_INSTANCES_MAX = 16_384
#: Earlier than any interval: monotonic time may begin at 0.
_NEVER_MS = -(1 << 62)
_INTERVAL_MS: int = ClientMetricsSettings.interval_ms.default
_ALL_METRICS = "*"
#: The factor of `telemetry.max.bytes` up to which a push may decompress.
_PLAIN_TO_PUSHED = 4
#: Kafka's order: zstd, lz4, gzip, snappy.
ACCEPTED_COMPRESSION_TYPES = (4, 3, 1, 2)
_RESUBSCRIBE_ERRORS = frozenset({ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE})
_RESERVED_ID_LAST = 1


class Client(NamedTuple):
    """A client's attributes for `match`."""

    client_id: str
    software: tuple[str, str]
    address: tuple[str, int]


class ClientMetrics(NamedTuple):
    """A push of a client."""

    instance_id: Uuid
    client: Client
    #: True if the client is about to close.
    terminating: bool
    #: OpenTelemetry's MetricsData, in protobuf.
    data: bytes
    #: The client's push interval.
    interval_ms: int = _INTERVAL_MS


class TelemetrySubscription(NamedTuple):
    """A `client-metrics` resource."""

    metrics: tuple[str, ...]
    interval_ms: int
    match: Mapping[str, str]

    @classmethod
    def of(cls, config: Mapping[str, str]) -> TelemetrySubscription:
        """A subscription from its configs, which the controller has checked."""
        pairs = map(matched, config.get("match", "").split(","))
        names = (part.strip() for part in config.get("metrics", "").split(","))
        return cls(
            tuple(name for name in names if name),
            whole_number(config.get("interval.ms", ""), 32) or _INTERVAL_MS,
            dict(pair for pair in pairs if pair is not None),
        )


def _matches(pattern: str, attribute: str) -> bool:
    try:
        return expression.Expression(pattern, attribute).matches(attribute)
    except expression.InvalidExpression:
        # Written by an older version of this program, or the match is too expensive.
        return False


class Instance:
    """A client instance. `Telemetry` creates it on the first request."""

    def __init__(self, instance_id: Uuid, client: Client) -> None:
        self.instance_id = instance_id
        self.client = client
        self.metrics: tuple[str, ...] = ()
        self.interval_ms = _INTERVAL_MS
        self.subscription_id = 0
        self.asked_ms = self.pushed_ms = _NEVER_MS
        self.terminating = False
        self.error = ErrorCode.NONE

    def subscribe(self, subscriptions: list[TelemetrySubscription]) -> None:
        """Take over the subscriptions that match this client."""
        attributes = {
            "client_instance_id": uuid_text(self.instance_id),
            "client_id": self.client.client_id,
            "client_software_name": self.client.software[0],
            "client_software_version": self.client.software[1],
            "client_source_address": self.client.address[0],
            "client_source_port": str(self.client.address[1]),
        }
        matching = [
            subscription
            for subscription in subscriptions
            if all(_matches(pattern, attributes[name]) for name, pattern in subscription.match.items())
        ]
        metrics = sorted({name for each in matching for name in each.metrics})
        self.metrics = (_ALL_METRICS,) if _ALL_METRICS in metrics else tuple(metrics)
        self.interval_ms = min([_INTERVAL_MS, *(each.interval_ms for each in matching)])
        text = f"{','.join(self.metrics)} {self.interval_ms}".encode()
        number = crc32c(text) ^ int.from_bytes(self.instance_id[-4:], "big")
        self.subscription_id = number - (1 << 32) if number >> 31 else number
        # A client with a new subscription may ask for it and push at once.
        self.asked_ms = self.pushed_ms = _NEVER_MS


class Telemetry:
    """A node's client instances and subscriptions. The node creates it."""

    def __init__(self, rng: Rng) -> None:
        self._rng = rng
        self._subscriptions: list[TelemetrySubscription] = []
        #: In the order of their last requests.
        self._instances: dict[Uuid, Instance] = {}
        self._by_connection: dict[object, Uuid] = {}
        #: The receiver of pushed metrics; set it before the node serves.
        self.exporter: Callable[[ClientMetrics], None] | None = None

    def export_to(self, exporter: Callable[[ClientMetrics], None]) -> None:
        """Add a receiver of pushed metrics."""
        before = self.exporter

        def both(metrics: ClientMetrics) -> None:
            exporter(metrics)
            if before is not None:
                before(metrics)

        self.exporter = both

    def follow(self, old: Image, new: Image) -> None:
        """Apply a change of the client metrics subscriptions."""
        if not new.changed_configs(old, CLIENT_METRICS):
            return
        names = new.config_names(CLIENT_METRICS)
        self._subscriptions = [TelemetrySubscription.of(new.config(CLIENT_METRICS, name)) for name in names]
        for instance in self._instances.values():
            instance.subscribe(self._subscriptions)

    def ask(self, connection: object, client: Client, instance_id: Uuid, now_ms: int) -> Instance:
        """A client's subscription. THROTTLING_QUOTA_EXCEEDED if it asked or pushed within the interval."""
        if instance_id == NO_UUID:
            instance_id = random_uuid(self._rng)
        instance = self._instance(connection, client, instance_id)
        last_ms = max(instance.asked_ms, instance.pushed_ms)
        if now_ms - last_ms >= instance.interval_ms:
            instance.asked_ms = now_ms
        elif instance.error not in _RESUBSCRIBE_ERRORS:
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        instance.error = ErrorCode.NONE
        return instance

    def push(
        self,
        connection: object,
        client: Client,
        instance_id: Uuid,
        subscription_id: int,
        compression: int,
        data: bytes,
        *,
        terminating: bool,
        bytes_max: int,
        now_ms: int,
    ) -> None:
        """Accept a client's metrics. KafkaError with the code that tells the client what to do."""
        if int.from_bytes(instance_id, "big") <= _RESERVED_ID_LAST:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        instance = self._instance(connection, client, instance_id)
        try:
            self._check_push(instance, subscription_id, terminating, now_ms)
            if not 0 <= compression <= max(ACCEPTED_COMPRESSION_TYPES):
                raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
            if len(data) > bytes_max:
                raise KafkaError(ErrorCode.TELEMETRY_TOO_LARGE)
            if data and self.exporter is not None:
                self._export(self.exporter, instance, compression, data, terminating, bytes_max)
        except KafkaError as error:
            instance.error = error.code
            raise
        finally:
            instance.terminating = terminating
        instance.error = ErrorCode.NONE

    def _check_push(self, instance: Instance, subscription_id: int, terminating: bool, now_ms: int) -> None:
        if instance.terminating:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        # The first push after a subscription request may come early, because clients add jitter to it.
        if instance.asked_ms > instance.pushed_ms or now_ms - instance.pushed_ms >= instance.interval_ms:
            instance.pushed_ms = now_ms
        elif not terminating:
            raise KafkaError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        if subscription_id != instance.subscription_id:
            raise KafkaError(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)

    def _export(
        self,
        exporter: Callable[[ClientMetrics], None],
        instance: Instance,
        compression: int,
        data: bytes,
        terminating: bool,
        bytes_max: int,
    ) -> None:
        try:
            plain = decompress(codec_of(compression), data, _PLAIN_TO_PUSHED * bytes_max)
        except KafkaError as error:
            raise KafkaError(ErrorCode.INVALID_RECORD, error.message) from error
        exporter(ClientMetrics(instance.instance_id, instance.client, terminating, plain, instance.interval_ms))

    def forget(self, connection: object) -> None:
        """Drop the instance of a closed connection."""
        instance_id = self._by_connection.pop(connection, None)
        if instance_id is not None:
            self._instances.pop(instance_id, None)

    def _instance(self, connection: object, client: Client, instance_id: Uuid) -> Instance:
        instance = self._instances.pop(instance_id, None)
        if instance is not None:
            self._instances[instance_id] = instance
        else:
            # A connection has one instance: a client that invents ids would fill the memory.
            self.forget(connection)
            instance = self._instances[instance_id] = Instance(instance_id, client)
            instance.subscribe(self._subscriptions)
            self._by_connection[connection] = instance_id
            if len(self._instances) > _INSTANCES_MAX:
                del self._instances[next(iter(self._instances))]
        return instance
