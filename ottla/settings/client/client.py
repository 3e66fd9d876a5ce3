"""The settings shared by producer, consumer and admin, and those of admin, with Kafka's names and defaults."""

from __future__ import annotations

from ottla.kernel.error import OttlaError
from ottla.settings.client.schema import addresses, integer, long, one_of, setting, text
from ottla.settings.client.security import SecuritySettings


class ClientSettings(SecuritySettings):
    """The settings shared by producer, consumer and admin."""

    bootstrap_servers: list[tuple[str, int]] = setting(
        "bootstrap.servers", None, addresses, "The first brokers to contact, as host:port; they name the others."
    )
    client_id: str = setting(
        "client.id",
        "ottla",
        text,
        "The client's name in the broker's logs and quotas.",
        differs="Kafka's default is empty or generated",
    )
    client_rack: str = setting(
        "client.rack",
        "",
        text,
        "The client's rack (broker.rack); a consumer prefers to read from a replica there.",
        differs="Kafka has it for consumers only",
    )
    request_timeout_ms: int = setting(
        "request.timeout.ms", 30_000, integer(1), "How long one request may take before its connection is closed."
    )
    retry_backoff_ms: int = setting(
        "retry.backoff.ms", 100, long(0), "The initial backoff before a request is retried."
    )
    retry_backoff_max_ms: int = setting(
        "retry.backoff.max.ms", 1_000, long(0), "The maximum backoff before a request is retried."
    )
    reconnect_backoff_ms: int = setting(
        "reconnect.backoff.ms", 50, long(0), "The initial backoff before reconnecting to a failed broker."
    )
    reconnect_backoff_max_ms: int = setting(
        "reconnect.backoff.max.ms",
        1_000,
        long(0),
        "The maximum backoff before reconnecting to a failed broker.",
    )
    connections_max_idle_ms: int = setting(
        "connections.max.idle.ms",
        540_000,
        long(-1),
        "An idle connection is closed after this time. -1: never.",
        differs="Kafka's default for admin clients is 300000",
    )
    socket_connection_setup_timeout_ms: int = setting(
        "socket.connection.setup.timeout.ms",
        10_000,
        long(1),
        "How long establishing a connection may take; twice as long after each failure in a row.",
    )
    socket_connection_setup_timeout_max_ms: int = setting(
        "socket.connection.setup.timeout.max.ms",
        30_000,
        long(1),
        "How long establishing a connection may take after failures.",
    )
    metadata_max_age_ms: int = setting(
        "metadata.max.age.ms", 300_000, long(1), "The age at which metadata is refreshed even if nothing failed."
    )
    metadata_max_idle_ms: int = setting(
        "metadata.max.idle.ms",
        300_000,
        long(5_000),
        "A topic that is not used for this time is dropped from the metadata.",
        differs="Kafka has it for producers only",
    )
    metadata_recovery_rebootstrap_trigger_ms: int = setting(
        "metadata.recovery.rebootstrap.trigger.ms",
        300_000,
        long(0),
        "After this time without metadata, the client drops the known brokers and asks bootstrap.servers.",
    )
    metadata_recovery_strategy: str = setting(
        "metadata.recovery.strategy",
        "rebootstrap",
        one_of("rebootstrap", "none"),
        "If no known broker answers: go back to bootstrap.servers, or fail (KIP-899).",
    )

    def check(self, given: frozenset[str]) -> None:
        """Require bootstrap servers, and raise the maximum backoff to a longer first backoff."""
        super().check(given)
        if self.bootstrap_servers is None:
            raise OttlaError("bootstrap.servers is missing: name at least one broker, for example 127.0.0.1:9092")
        if self.retry_backoff_max_ms < self.retry_backoff_ms and "retry_backoff_ms" in given:
            object.__setattr__(self, "retry_backoff_max_ms", self.retry_backoff_ms)


class AdminSettings(ClientSettings):
    """Settings of `Admin` and `AsyncAdmin`."""

    default_api_timeout_ms: int = setting(
        "default.api.timeout.ms", 60_000, integer(1), "How long a call may take, including its retries."
    )
