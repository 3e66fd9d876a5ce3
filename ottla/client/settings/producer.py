"""The producer's settings, by Kafka's names and with Kafka's defaults."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.kernel.error import OttlaError
from ottla.serde.serializer import Serializer, serializer
from ottla.settings.client.client import ClientSettings
from ottla.settings.client.schema import Reader, flag, integer, long, optional_text, reads, setting
from ottla.settings.schema import ConfigType
from ottla.wire.codec import CODEC_BY_NAME, Codec

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
    raise ValueError("default, round_robin, or a function (topic, key, partitions) to a number")


_SERIALIZER = Reader(ConfigType.CLASS, serializer)


class ProducerSettings(ClientSettings):
    """Settings of `Producer` and `AsyncProducer`."""

    acks: int = setting(
        "acks",
        -1,
        _acks,
        "Who must have a record before it counts as sent: no broker (0), the leader (1), all in-sync replicas (all).",
    )
    batch_size: int = setting(
        "batch.size",
        16_384,
        integer(0),
        "Bytes of a batch at which it is sent without lingering. Given, they are the most bytes of a batch of several "
        "records; not given, a batch grows on while the broker is busy, to max.request.size.",
    )
    enable_metrics_push: bool = setting(
        "enable.metrics.push",
        True,
        flag,
        "Push metrics to the cluster when its operator asks for them by a client-metrics subscription (KIP-714).",
    )
    linger_ms: int = setting("linger.ms", 5, long(0), "How long a batch waits for more records.")
    buffer_memory: int = setting("buffer.memory", 33_554_432, long(0), "Bytes of records that wait to be sent.")
    allow_auto_create_topics: bool = setting(
        "allow.auto.create.topics",
        True,
        flag,
        "Asking for a topic may create it, where the broker does that.",
        differs="a producer has it, too",
    )
    max_block_ms: int = setting(
        "max.block.ms", 60_000, long(0), "How long send waits for metadata or for room in buffer.memory."
    )
    max_request_size: int = setting("max.request.size", 1_048_576, integer(1), "The largest request, and record.")
    compression_type: Codec = setting("compression.type", Codec.NONE, _codec, "How batches are compressed.")
    compression_gzip_level: int = setting(
        "compression.gzip.level", -1, integer(-1, 9), "The level of gzip; -1: the library's default."
    )
    compression_lz4_level: int = setting("compression.lz4.level", 9, integer(1, 17), "The level of lz4.")
    compression_zstd_level: int = setting("compression.zstd.level", 3, integer(-131_072, 22), "The level of zstd.")
    delivery_timeout_ms: int = setting(
        "delivery.timeout.ms",
        120_000,
        integer(0),
        "How long delivering a record may take, lingering and retries in it.",
    )
    retries: int = setting(
        "retries",
        2_147_483_647,
        integer(0, 2_147_483_647),
        "How often a batch is sent again; delivery.timeout.ms is the better bound.",
    )
    max_in_flight_requests_per_connection: int = setting(
        "max.in.flight.requests.per.connection", 5, integer(1), "Requests to one broker that wait for their answer."
    )
    enable_idempotence: bool = setting(
        "enable.idempotence", True, flag, "The broker drops what a retry sends twice, and keeps the order (KIP-98)."
    )
    tracing_enable: bool = setting(
        "tracing.enable",
        False,
        flag,
        "Make a span of OpenTelemetry for each record and write W3C's traceparent into its headers (ottla[otel]).",
        differs="Ottla's own",
    )
    transactional_id: str | None = setting(
        "transactional.id",
        None,
        optional_text,
        "The name of a producer with transactions; a newer producer of the same name locks this one out.",
    )
    transaction_timeout_ms: int = setting(
        "transaction.timeout.ms", 60_000, integer(1), "The coordinator aborts a transaction that is open for so long."
    )
    transaction_two_phase_commit_enable: bool = setting(
        "transaction.two.phase.commit.enable",
        False,
        flag,
        "Transactions may be prepared, have no timeout and are decided elsewhere (KIP-939), if brokers allow it.",
    )
    partitioner: Partitioner | str = setting(
        "partitioner",
        "default",
        _partitioner,
        "Where a record goes that names no partition; default: by its key, without one a batch at a time anywhere.",
        differs="Ottla's own, in place of partitioner.class",
    )
    key_serializer: Serializer | None = setting(
        "key.serializer",
        None,
        _SERIALIZER,
        "How a record's part becomes bytes; none: bytes as they are, text as UTF-8.",
        differs="a function, not a class; Kafka has no default",
    )
    value_serializer: Serializer | None = setting(
        "value.serializer",
        None,
        _SERIALIZER,
        "How a record's part becomes bytes; none: bytes as they are, text as UTF-8.",
        differs="a function, not a class; Kafka has no default",
    )

    def check(self, given: frozenset[str]) -> None:
        """Idempotence needs acks=all and few requests in flight; where it was not asked for, it yields."""
        super().check(given)
        asked = "enable_idempotence" in given or self.transactional_id is not None
        if self.transactional_id is not None and not self.enable_idempotence:
            raise OttlaError("transactional.id needs enable.idempotence: leave that out")
        if self.transactional_id == "":
            raise OttlaError("transactional.id is empty: name the producer, or leave it out")
        if self.enable_idempotence and self.acks != -1:
            if asked:
                raise OttlaError("enable.idempotence needs acks=all: leave acks out")
            object.__setattr__(self, "enable_idempotence", False)
        if self.enable_idempotence and self.max_in_flight_requests_per_connection > 5:
            if asked or "max_in_flight_requests_per_connection" not in given:
                raise OttlaError("enable.idempotence needs max.in.flight.requests.per.connection of at most 5")
            object.__setattr__(self, "enable_idempotence", False)

    @property
    def compression_level(self) -> int | None:
        """The level for the codec in use; None where it has none."""
        levels: dict[Codec, Any] = {
            Codec.GZIP: self.compression_gzip_level,
            Codec.LZ4: self.compression_lz4_level,
            Codec.ZSTD: self.compression_zstd_level,
        }
        return levels.get(self.compression_type)
