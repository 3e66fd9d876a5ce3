"""The producer's settings, with Kafka's names and defaults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.kernel.error import OttlaError
from ottla.serde.serializer import Serializer, serializer
from ottla.settings.client.client import ClientSettings
from ottla.settings.client.schema import Reader, flag, integer, long, optional_text, reads, setting
from ottla.settings.schema import ConfigType
from ottla.wire.codec import CODEC_BY_NAME, Codec

#: A custom partitioner: (topic, key, number of partitions) to a partition number. It is called for every record that
#: names no partition itself.
Partitioner = Callable[[str, bytes | None, int], int]


@reads(ConfigType.STRING)
def _acks(value: object) -> int:
    known = {"0": 0, "1": 1, "all": -1, "-1": -1}
    if str(value) not in known:
        raise ValueError("0, 1 or all")
    return known[str(value)]


@reads(ConfigType.STRING)
def _codec(value: object) -> Codec:
    if isinstance(value, str) and value != "uncompressed" and value in CODEC_BY_NAME:
        return CODEC_BY_NAME[value]
    raise ValueError("one of none, gzip, snappy, lz4, zstd")


@reads(ConfigType.CLASS)
def _partitioner(value: object) -> Partitioner | str:
    if callable(value):
        return value
    if value in ("default", "round_robin"):
        return str(value)
    raise ValueError("default, round_robin, or a function from (topic, key, partition count) to a partition number")


_SERIALIZER = Reader(ConfigType.CLASS, serializer)


class ProducerSettings(ClientSettings):
    """Settings of `Producer` and `AsyncProducer`."""

    acks: int = setting(
        "acks",
        -1,
        _acks,
        "The replicas that must have a record before it counts as sent: none (0), the leader (1), all in-sync (all).",
    )
    batch_size: int = setting(
        "batch.size",
        16_384,
        integer(0),
        "The size in bytes at which a batch is sent without lingering. If set, also the largest size of a batch with "
        "several records; if not, batches grow up to max.request.size while the broker is busy.",
    )
    enable_metrics_push: bool = setting(
        "enable.metrics.push",
        True,
        flag,
        "Push metrics to the cluster if its operator has a client-metrics subscription for them (KIP-714).",
    )
    linger_ms: int = setting("linger.ms", 5, long(0), "How long a batch waits for more records.")
    buffer_memory: int = setting(
        "buffer.memory", 33_554_432, long(0), "The most bytes of records that wait to be sent."
    )
    allow_auto_create_topics: bool = setting(
        "allow.auto.create.topics",
        True,
        flag,
        "A metadata request for a missing topic may create it, if the brokers allow that.",
        differs="also for producers",
    )
    max_block_ms: int = setting(
        "max.block.ms", 60_000, long(0), "The longest time that send waits for metadata or for room in buffer.memory."
    )
    max_request_size: int = setting(
        "max.request.size", 1_048_576, integer(1), "The largest request, and so the largest record, in bytes."
    )
    compression_type: Codec = setting("compression.type", Codec.NONE, _codec, "The compression codec of batches.")
    compression_gzip_level: int = setting(
        "compression.gzip.level", -1, integer(-1, 9), "The gzip level; -1: the library's default."
    )
    compression_lz4_level: int = setting("compression.lz4.level", 9, integer(1, 17), "The lz4 level.")
    compression_zstd_level: int = setting("compression.zstd.level", 3, integer(-131_072, 22), "The zstd level.")
    delivery_timeout_ms: int = setting(
        "delivery.timeout.ms",
        120_000,
        integer(0),
        "The longest time to deliver a record, including lingering and retries.",
    )
    retries: int = setting(
        "retries",
        2_147_483_647,
        integer(0, 2_147_483_647),
        "How often a batch is retried; delivery.timeout.ms is the better limit.",
    )
    max_in_flight_requests_per_connection: int = setting(
        "max.in.flight.requests.per.connection", 5, integer(1), "The most requests to one broker without an answer."
    )
    enable_idempotence: bool = setting(
        "enable.idempotence", True, flag, "The broker drops duplicates from retries and keeps the order (KIP-98)."
    )
    tracing_enable: bool = setting(
        "tracing.enable",
        False,
        flag,
        "Make an OpenTelemetry span for each record and add a W3C traceparent header (needs ottla[otel]).",
        differs="Ottla's own",
    )
    transactional_id: str | None = setting(
        "transactional.id",
        None,
        optional_text,
        "Enables transactions under this id; a newer producer with the same id fences this one.",
    )
    transaction_timeout_ms: int = setting(
        "transaction.timeout.ms",
        60_000,
        integer(1),
        "The coordinator aborts a transaction that stays open for this time.",
    )
    transaction_two_phase_commit_enable: bool = setting(
        "transaction.two.phase.commit.enable",
        False,
        flag,
        "Transactions can be prepared, have no timeout, and are decided elsewhere (KIP-939), if brokers allow it.",
    )
    partitioner: Partitioner | str = setting(
        "partitioner",
        "default",
        _partitioner,
        "Chooses the partition of a record that names none; default: by the key's hash, or any for a whole batch.",
        differs="Ottla's own, in place of partitioner.class",
    )
    key_serializer: Serializer | None = setting(
        "key.serializer",
        None,
        _SERIALIZER,
        "Converts keys to bytes; without one, bytes are sent unchanged and text as UTF-8.",
        differs="a function, not a class; Kafka has no default",
    )
    value_serializer: Serializer | None = setting(
        "value.serializer",
        None,
        _SERIALIZER,
        "Converts values to bytes; without one, bytes are sent unchanged and text as UTF-8.",
        differs="a function, not a class; Kafka has no default",
    )

    def check(self, given: frozenset[str]) -> None:
        """Check that idempotence has acks=all and few requests in flight; unless set explicitly, it is turned off."""
        super().check(given)
        explicit = "enable_idempotence" in given or self.transactional_id is not None
        if self.transactional_id is not None and not self.enable_idempotence:
            raise OttlaError("transactional.id needs enable.idempotence=true: remove enable.idempotence")
        if self.transactional_id == "":
            raise OttlaError("transactional.id is empty: name the producer, or remove it")
        if self.enable_idempotence and self.acks != -1:
            if explicit:
                raise OttlaError("enable.idempotence needs acks=all: remove acks")
            object.__setattr__(self, "enable_idempotence", False)
        if self.enable_idempotence and self.max_in_flight_requests_per_connection > 5:
            if explicit or "max_in_flight_requests_per_connection" not in given:
                raise OttlaError("enable.idempotence needs max.in.flight.requests.per.connection of at most 5")
            object.__setattr__(self, "enable_idempotence", False)
        self._check_delivery_timeout(given)

    def _check_delivery_timeout(self, given: frozenset[str]) -> None:
        """Raise the default delivery.timeout.ms to linger.ms and request.timeout.ms, as in Kafka; check a given one."""
        if "delivery_timeout_ms" not in given:
            needed = min(self.linger_ms + self.request_timeout_ms, 0x7FFFFFFF)
            object.__setattr__(self, "delivery_timeout_ms", max(self.delivery_timeout_ms, needed))
        elif self.linger_ms >= self.delivery_timeout_ms > 0:
            raise OttlaError(
                f"delivery.timeout.ms={self.delivery_timeout_ms} must be longer than linger.ms={self.linger_ms}: "
                "records would time out before they are sent"
            )

    @property
    def compression_level(self) -> int | None:
        """The level of the codec in use; None if it has none."""
        levels: dict[Codec, Any] = {
            Codec.GZIP: self.compression_gzip_level,
            Codec.LZ4: self.compression_lz4_level,
            Codec.ZSTD: self.compression_zstd_level,
        }
        return levels.get(self.compression_type)
