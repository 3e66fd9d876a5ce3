"""The settings a coordinator needs, by Kafka's names with underscores for dots."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from ottla.kernel.frozen import frozen


@frozen
class CoordinatorSettings:
    """The broker's group settings. The defaults are Apache Kafka 4.3's."""

    group_initial_rebalance_delay_ms: int = 3_000
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_max_size: int = 2_147_483_647

    offset_metadata_max_bytes: int = 4_096
    offsets_retention_minutes: int = 10_080
    offsets_retention_check_interval_ms: int = 600_000

    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_assignment_interval_ms: int = 1_000
    group_consumer_regex_refresh_interval_ms: int = 600_000
    group_consumer_max_size: int = 2_147_483_647
    #: The first is the default.
    group_consumer_assignors: Sequence[str] = ("uniform", "range")
    #: disabled, upgrade (classic to consumer), downgrade, or bidirectional.
    group_consumer_migration_policy: str = "bidirectional"

    group_share_session_timeout_ms: int = 45_000
    group_share_heartbeat_interval_ms: int = 5_000
    group_share_assignment_interval_ms: int = 1_000
    group_share_initialize_retry_interval_ms: int = 30_000
    group_share_max_size: int = 200

    group_streams_session_timeout_ms: int = 45_000
    group_streams_heartbeat_interval_ms: int = 5_000
    group_streams_assignment_interval_ms: int = 1_000
    group_streams_initial_rebalance_delay_ms: int = 3_000
    group_streams_num_standby_replicas: int = 0
    group_streams_max_size: int = 2_147_483_647

    @classmethod
    def of(cls, server: Any) -> "CoordinatorSettings":
        """Take them from an object that has all of the broker's settings."""
        return cls(**{field.name: getattr(server, field.name) for field in fields(cls)})

    @property
    def offsets_retention_ms(self) -> int:
        return self.offsets_retention_minutes * 60_000

    @property
    def may_upgrade(self) -> bool:
        """May a live classic group become a consumer group?"""
        return self.group_consumer_migration_policy.lower() in ("upgrade", "bidirectional")

    @property
    def may_downgrade(self) -> bool:
        """May a live consumer group become a classic group?"""
        return self.group_consumer_migration_policy.lower() in ("downgrade", "bidirectional")


@frozen
class GroupOverride:
    """What one group sets for itself (config resource of type GROUP). None: the broker's value."""

    consumer_session_timeout_ms: int | None = None
    consumer_heartbeat_interval_ms: int | None = None
    consumer_assignment_interval_ms: int | None = None
    share_session_timeout_ms: int | None = None
    share_heartbeat_interval_ms: int | None = None
    share_assignment_interval_ms: int | None = None
    streams_session_timeout_ms: int | None = None
    streams_heartbeat_interval_ms: int | None = None
    streams_assignment_interval_ms: int | None = None
    streams_initial_rebalance_delay_ms: int | None = None
    streams_num_standby_replicas: int | None = None

    @classmethod
    def of(cls, group: Any) -> "GroupOverride":
        """Take them from an object that has all of a group's settings."""
        return cls(**{field.name: getattr(group, field.name) for field in fields(cls)})
