"""The consumer's settings, by Kafka's names and with Kafka's defaults."""

from __future__ import annotations

from ottla.client.assignment.assignor import ASSIGNORS
from ottla.kernel.argument import topic_fault
from ottla.kernel.error import OttlaError
from ottla.kernel.validators import duration_ms
from ottla.serde.serializer import Deserializer, deserializer
from ottla.settings.client.client import ClientSettings
from ottla.settings.client.schema import Reader, flag, integer, one_of, optional_text, reads, setting
from ottla.settings.schema import ConfigType

#: The reset policy that begins so long ago (KIP-1106); a duration as Java writes it follows.
BY_DURATION = "by_duration:"


@reads(ConfigType.LIST)
def _assignors(value: object) -> list[str]:
    """Names, or the Java classes' names, whose last word says the same."""
    words = value.split(",") if isinstance(value, str) else value
    found = []
    for word in words if isinstance(words, (list, tuple)) else []:
        name = str(word).strip()
        if name.endswith("Assignor"):
            name = name.rpartition(".")[2].removesuffix("Assignor").lower().replace("cooperative", "cooperative-")
        if name not in ASSIGNORS:
            raise ValueError(f"some of {', '.join(ASSIGNORS)}")
        found.append(name)
    if not found:
        raise ValueError(f"some of {', '.join(ASSIGNORS)}")
    return found


@reads(ConfigType.STRING)
def _reset(value: object) -> str:
    takes = "earliest, latest, none, or by_duration: and how far back, such as by_duration:PT1H or by_duration:P7D"
    if isinstance(value, str) and value in ("earliest", "latest", "none"):
        return value
    if isinstance(value, str) and value.startswith(BY_DURATION):
        try:
            duration_ms(value.removeprefix(BY_DURATION))
        except ValueError:
            raise ValueError(takes) from None
        return value
    raise ValueError(takes)


@reads(ConfigType.STRING)
def _topic(value: object) -> str | None:
    if value is None or (isinstance(value, str) and topic_fault(value) is None):
        return value
    raise ValueError("a topic's name: 1 to 249 letters, digits, dots, _ and -")


_DESERIALIZER = Reader(ConfigType.CLASS, deserializer)


class ConsumerSettings(ClientSettings):
    """Settings of `Consumer` and `AsyncConsumer`."""

    group_id: str | None = setting(
        "group.id", None, optional_text, "The group to join; without one, assign partitions and commit nothing."
    )
    enable_metrics_push: bool = setting(
        "enable.metrics.push",
        True,
        flag,
        "Push metrics to the cluster when its operator asks for them by a client-metrics subscription (KIP-714).",
    )
    group_instance_id: str | None = setting(
        "group.instance.id", None, optional_text, "A static member's name: it may go and come back without a rebalance."
    )
    group_protocol: str = setting(
        "group.protocol", "classic", one_of("classic", "consumer"), "consumer: the broker assigns (KIP-848)."
    )
    group_remote_assignor: str | None = setting(
        "group.remote.assignor", None, optional_text, "uniform or range, with group.protocol=consumer."
    )
    partition_assignment_strategy: list[str] = setting(
        "partition.assignment.strategy",
        ["range", "cooperative-sticky"],
        _assignors,
        "Assignors in order of preference: range, roundrobin, sticky, cooperative-sticky.",
        differs="short names as well as classes",
    )
    session_timeout_ms: int = setting(
        "session.timeout.ms", 45_000, integer(1), "A member silent for so long is out (classic protocol)."
    )
    heartbeat_interval_ms: int = setting(
        "heartbeat.interval.ms", 3_000, integer(1), "How often a member shows that it lives (classic protocol)."
    )
    max_poll_interval_ms: int = setting(
        "max.poll.interval.ms", 300_000, integer(1), "A consumer that does not poll for so long leaves its group."
    )
    max_poll_records: int = setting("max.poll.records", 500, integer(1), "The most records of one poll.")
    auto_offset_reset: str = setting(
        "auto.offset.reset", "latest", _reset, "Where to begin without a committed offset, or with one that is gone."
    )
    enable_auto_commit: bool = setting(
        "enable.auto.commit", True, flag, "Commit what the last poll gave, every auto.commit.interval.ms."
    )
    auto_commit_interval_ms: int = setting(
        "auto.commit.interval.ms", 5_000, integer(0), "How often enable.auto.commit commits."
    )
    isolation_level: str = setting(
        "isolation.level",
        "read_uncommitted",
        one_of("read_uncommitted", "read_committed"),
        "read_committed leaves out records of transactions that were aborted or are still open.",
    )
    fetch_min_bytes: int = setting(
        "fetch.min.bytes", 1, integer(0), "A fetch waits until there are so many bytes, at most fetch.max.wait.ms."
    )
    fetch_max_wait_ms: int = setting(
        "fetch.max.wait.ms", 500, integer(0), "The longest that a fetch waits for fetch.min.bytes."
    )
    fetch_max_bytes: int = setting("fetch.max.bytes", 52_428_800, integer(0), "The most bytes of one fetch.")
    max_partition_fetch_bytes: int = setting(
        "max.partition.fetch.bytes", 1_048_576, integer(0), "The most bytes of one partition in a fetch."
    )
    check_crcs: bool = setting("check.crcs", True, flag, "Check every batch's CRC.")
    allow_auto_create_topics: bool = setting(
        "allow.auto.create.topics", True, flag, "Asking for a topic may create it, where the broker does that."
    )
    exclude_internal_topics: bool = setting(
        "exclude.internal.topics", True, flag, "A pattern does not match Kafka's own topics."
    )
    default_api_timeout_ms: int = setting(
        "default.api.timeout.ms", 60_000, integer(1), "How long a call may take with all its retries."
    )
    key_deserializer: Deserializer | None = setting(
        "key.deserializer",
        None,
        _DESERIALIZER,
        "How a record's bytes are read; none: they stay bytes.",
        differs="a function, not a class; Kafka has no default",
    )
    value_deserializer: Deserializer | None = setting(
        "value.deserializer",
        None,
        _DESERIALIZER,
        "How a record's bytes are read; none: they stay bytes.",
        differs="a function, not a class; Kafka has no default",
    )

    tracing_enable: bool = setting(
        "tracing.enable",
        False,
        flag,
        "Make a span of OpenTelemetry for each record that has a traceparent among its headers (ottla[otel]).",
        differs="Ottla's own",
    )
    on_decode_error: str = setting(
        "on.decode.error",
        "raise",
        one_of("raise", "skip", "dead-letter"),
        "When a deserializer fails: raise RecordDeserializationError and stay there; skip the record with a warning; "
        "or write it to dead.letter.topic and go on.",
        differs="Ottla's own",
    )
    dead_letter_topic: str | None = setting(
        "dead.letter.topic",
        None,
        _topic,
        "The topic for records that cannot be read, with headers that say where each came from; implies "
        "on.decode.error=dead-letter.",
        differs="Ottla's own",
    )

    def check(self, given: frozenset[str]) -> None:
        """Settings of one protocol are refused with the other; without a group there is nothing to commit to."""
        super().check(given)
        if self.group_protocol == "consumer":
            for attribute in ("partition_assignment_strategy", "session_timeout_ms", "heartbeat_interval_ms"):
                if attribute in given:
                    name = attribute.replace("_", ".")
                    raise OttlaError(f"{name} is the broker's with group.protocol=consumer: leave it out")
        elif self.group_remote_assignor is not None:
            raise OttlaError("group.remote.assignor needs group.protocol=consumer")
        if self.dead_letter_topic is not None:
            if "on_decode_error" in given and self.on_decode_error != "dead-letter":
                raise OttlaError(f"dead.letter.topic has no effect with on.decode.error={self.on_decode_error}")
            object.__setattr__(self, "on_decode_error", "dead-letter")
        elif self.on_decode_error == "dead-letter":
            raise OttlaError("on.decode.error=dead-letter needs dead.letter.topic: name the topic")
        if self.group_id is None:
            if self.enable_auto_commit and "enable_auto_commit" in given:
                raise OttlaError("enable.auto.commit needs group.id: commits belong to a group")
            object.__setattr__(self, "enable_auto_commit", False)
        elif not self.group_id:
            raise OttlaError("group.id is empty: name a group, or leave it out")

    @property
    def read_committed(self) -> bool:
        """Are open and aborted transactions left out?"""
        return self.isolation_level == "read_committed"
