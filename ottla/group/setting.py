"""The settings of a coordinator, with Kafka's names and underscores for dots."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from ottla.kernel.frozen import frozen
from ottla.settings.server.group import GroupDeclaration
from ottla.settings.server.share_group import ShareGroupDeclaration
from ottla.settings.view import AS_DECLARED, SettingsView


@frozen
class CoordinatorSettings(SettingsView, of=(GroupDeclaration, ShareGroupDeclaration)):
    """The broker's group settings."""

    group_initial_rebalance_delay_ms: int = AS_DECLARED
    group_min_session_timeout_ms: int = AS_DECLARED
    group_max_session_timeout_ms: int = AS_DECLARED
    group_max_size: int = AS_DECLARED

    offset_metadata_max_bytes: int = AS_DECLARED
    offsets_retention_minutes: int = AS_DECLARED
    offsets_retention_check_interval_ms: int = AS_DECLARED

    group_consumer_session_timeout_ms: int = AS_DECLARED
    group_consumer_heartbeat_interval_ms: int = AS_DECLARED
    group_consumer_assignment_interval_ms: int = AS_DECLARED
    group_consumer_regex_refresh_interval_ms: int = AS_DECLARED
    group_consumer_max_size: int = AS_DECLARED
    #: The first is the default.
    group_consumer_assignors: Sequence[str] = AS_DECLARED
    #: disabled, upgrade (classic to consumer), downgrade, or bidirectional.
    group_consumer_migration_policy: str = AS_DECLARED

    group_share_session_timeout_ms: int = AS_DECLARED
    group_share_heartbeat_interval_ms: int = AS_DECLARED
    group_share_assignment_interval_ms: int = AS_DECLARED
    group_share_initialize_retry_interval_ms: int = AS_DECLARED
    group_share_max_size: int = AS_DECLARED

    group_streams_session_timeout_ms: int = AS_DECLARED
    group_streams_heartbeat_interval_ms: int = AS_DECLARED
    group_streams_assignment_interval_ms: int = AS_DECLARED
    group_streams_initial_rebalance_delay_ms: int = AS_DECLARED
    group_streams_num_standby_replicas: int = AS_DECLARED
    group_streams_max_size: int = AS_DECLARED

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
    """The settings of one group (config resource of type GROUP). None means the broker's value."""

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
        """Copy the settings from an object that has all of a group's settings."""
        return cls(**{field.name: getattr(group, field.name) for field in fields(cls)})
