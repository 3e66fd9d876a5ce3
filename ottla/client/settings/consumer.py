"""The consumer's settings, with Kafka's names and defaults."""

from __future__ import annotations

from ottla.client.assignment.assignor import ASSIGNORS
from ottla.kernel.argument import topic_fault
from ottla.kernel.error import OttlaError
from ottla.kernel.validators import duration_ms
from ottla.serde.serializer import Deserializer, deserializer
from ottla.settings.client.client import ClientSettings
from ottla.settings.client.schema import Reader, flag, integer, one_of, optional_text, reads, setting
from ottla.settings.schema import ConfigType

#: Prefix of the reset policy that starts a duration ago (KIP-1106); an ISO 8601 duration follows, as Java writes it.
BY_DURATION = "by_duration:"


@reads(ConfigType.LIST)
def _assignors(value: object) -> list[str]:
    """Short names of assignors, or the names of Java's classes, which contain the short name."""
    items = value.split(",") if isinstance(value, str) else value
    names = []
    for item in items if isinstance(items, (list, tuple)) else []:
        name = str(item).strip()
        if name.endswith("Assignor"):
            name = name.rpartition(".")[2].removesuffix("Assignor").lower().replace("cooperative", "cooperative-")
        if name not in ASSIGNORS:
            raise ValueError(f"some of {', '.join(ASSIGNORS)}")
        names.append(name)
    if not names:
        raise ValueError(f"some of {', '.join(ASSIGNORS)}")
    return names


@reads(ConfigType.STRING)
def _reset(value: object) -> str:
    expected = "earliest, latest, none, or by_duration: and a duration, such as by_duration:PT1H or by_duration:P7D"
    if isinstance(value, str) and value in ("earliest", "latest", "none"):
        return value
    if isinstance(value, str) and value.startswith(BY_DURATION):
        try:
            duration_ms(value.removeprefix(BY_DURATION))
        except ValueError:
            raise ValueError(expected) from None
        return value
    raise ValueError(expected)


@reads(ConfigType.STRING)
def _topic(value: object) -> str | None:
    if value is None or (isinstance(value, str) and topic_fault(value) is None):
        return value
    raise ValueError("a topic name: 1 to 249 letters, digits, dots, _ and -")


_DESERIALIZER = Reader(ConfigType.CLASS, deserializer)


class ConsumerSettings(ClientSettings):
    """Settings of `Consumer` and `AsyncConsumer`."""

    group_id: str | None = setting(
        "group.id", None, optional_text, "The group to join. Without one, use assign; nothing is committed."
    )
    enable_metrics_push: bool = setting(
        "enable.metrics.push",
        True,
        flag,
        "Push metrics to the cluster if its operator has a client-metrics subscription for them (KIP-714).",
    )
    group_instance_id: str | None = setting(
        "group.instance.id",
        None,
        optional_text,
        "The id of a static member, which may leave and come back without a rebalance (KIP-345).",
    )
    group_protocol: str = setting(
        "group.protocol",
        "classic",
        one_of("classic", "consumer"),
        "consumer: the broker assigns partitions (KIP-848); classic: a member does.",
    )
    group_remote_assignor: str | None = setting(
        "group.remote.assignor",
        None,
        optional_text,
        "The broker's assignor, uniform or range, with group.protocol=consumer.",
    )
    partition_assignment_strategy: list[str] = setting(
        "partition.assignment.strategy",
        ["range", "cooperative-sticky"],
        _assignors,
        "Assignors in order of preference: range, roundrobin, sticky, cooperative-sticky.",
        differs="short names as well as classes",
    )
    session_timeout_ms: int = setting(
        "session.timeout.ms",
        45_000,
        integer(1),
        "A member without a heartbeat for this time is removed (classic protocol).",
    )
    heartbeat_interval_ms: int = setting(
        "heartbeat.interval.ms", 3_000, integer(1), "How often a member sends a heartbeat (classic protocol)."
    )
    max_poll_interval_ms: int = setting(
        "max.poll.interval.ms", 300_000, integer(1), "A consumer that does not poll for this time leaves its group."
    )
    max_poll_records: int = setting("max.poll.records", 500, integer(1), "The most records that one poll returns.")
    auto_offset_reset: str = setting(
        "auto.offset.reset",
        "latest",
        _reset,
        "Where to start without a committed offset, or if that offset no longer exists.",
    )
    enable_auto_commit: bool = setting(
        "enable.auto.commit", True, flag, "Commit the records of earlier polls every auto.commit.interval.ms."
    )
    auto_commit_interval_ms: int = setting(
        "auto.commit.interval.ms", 5_000, integer(0), "The interval of enable.auto.commit."
    )
    isolation_level: str = setting(
        "isolation.level",
        "read_uncommitted",
        one_of("read_uncommitted", "read_committed"),
        "read_committed skips aborted transactions, and stops before records of open ones.",
    )
    fetch_min_bytes: int = setting(
        "fetch.min.bytes", 1, integer(0), "A fetch waits for this many bytes, at most fetch.max.wait.ms."
    )
    fetch_max_wait_ms: int = setting(
        "fetch.max.wait.ms", 500, integer(0), "The longest time that a fetch waits for fetch.min.bytes."
    )
    fetch_max_bytes: int = setting("fetch.max.bytes", 52_428_800, integer(0), "The most bytes that one fetch returns.")
    max_partition_fetch_bytes: int = setting(
        "max.partition.fetch.bytes", 1_048_576, integer(0), "The most bytes that one fetch returns for a partition."
    )
    check_crcs: bool = setting("check.crcs", True, flag, "Check the CRC of every batch.")
    allow_auto_create_topics: bool = setting(
        "allow.auto.create.topics",
        True,
        flag,
        "A metadata request for a missing topic may create it, if the brokers allow that.",
    )
    exclude_internal_topics: bool = setting(
        "exclude.internal.topics", True, flag, "Patterns do not match Kafka's internal topics."
    )
    default_api_timeout_ms: int = setting(
        "default.api.timeout.ms", 60_000, integer(1), "The longest time for a call with all its retries."
    )
    key_deserializer: Deserializer | None = setting(
        "key.deserializer",
        None,
        _DESERIALIZER,
        "Converts the bytes of keys; without one, they stay bytes.",
        differs="a function, not a class; Kafka has no default",
    )
    value_deserializer: Deserializer | None = setting(
        "value.deserializer",
        None,
        _DESERIALIZER,
        "Converts the bytes of values; without one, they stay bytes.",
        differs="a function, not a class; Kafka has no default",
    )

    tracing_enable: bool = setting(
        "tracing.enable",
        False,
        flag,
        "Make an OpenTelemetry span for each record with a traceparent header (needs ottla[otel]).",
        differs="Ottla's own",
    )
    on_decode_error: str = setting(
        "on.decode.error",
        "raise",
        one_of("raise", "skip", "dead-letter"),
        "If a deserializer fails: raise RecordDeserializationError and stay at the record; skip the record with a "
        "warning; or write it to dead.letter.topic and go on.",
        differs="Ottla's own",
    )
    dead_letter_topic: str | None = setting(
        "dead.letter.topic",
        None,
        _topic,
        "The topic for records that cannot be read, with headers that name the origin of each; implies "
        "on.decode.error=dead-letter.",
        differs="Ottla's own",
    )

    def check(self, given: frozenset[str]) -> None:
        """Check settings that depend on each other; without a group, automatic commits are turned off."""
        super().check(given)
        if self.group_protocol == "consumer":
            for attribute in ("partition_assignment_strategy", "session_timeout_ms", "heartbeat_interval_ms"):
                if attribute in given:
                    name = attribute.replace("_", ".")
                    raise OttlaError(f"{name} is set on the broker with group.protocol=consumer: remove it")
        elif self.group_remote_assignor is not None:
            raise OttlaError("group.remote.assignor needs group.protocol=consumer")
        elif self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise OttlaError(
                f"heartbeat.interval.ms={self.heartbeat_interval_ms} must be shorter than "
                f"session.timeout.ms={self.session_timeout_ms}: the member would be removed between two heartbeats"
            )
        if self.dead_letter_topic is not None:
            if "on_decode_error" in given and self.on_decode_error != "dead-letter":
                raise OttlaError(f"dead.letter.topic has no effect with on.decode.error={self.on_decode_error}")
            object.__setattr__(self, "on_decode_error", "dead-letter")
        elif self.on_decode_error == "dead-letter":
            raise OttlaError("on.decode.error=dead-letter needs dead.letter.topic: set it")
        if self.group_id is None:
            if self.enable_auto_commit and "enable_auto_commit" in given:
                raise OttlaError("enable.auto.commit needs group.id: commits belong to a group")
            object.__setattr__(self, "enable_auto_commit", False)
        elif not self.group_id:
            raise OttlaError("group.id is empty: name a group, or remove it")

    @property
    def partition_full_bytes(self) -> int:
        """So much of a partition is read ahead. Never 0: a fetch returns a batch, however large."""
        return max(1, self.max_partition_fetch_bytes)

    @property
    def read_committed(self) -> bool:
        """True if records of open and aborted transactions are not visible."""
        return self.isolation_level == "read_committed"
