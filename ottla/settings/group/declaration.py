"""A group's own settings (17), each with the server setting it falls back to."""

from ottla.kernel.validators import NOT_NEGATIVE, POSITIVE, AtLeast, OffsetReset, OneOf
from ottla.settings.schema import boolean, integer, string
from ottla.settings.server.group import GroupDeclaration
from ottla.settings.server.share_group import ShareGroupDeclaration


class GroupOverrideDeclaration:
    """A group's own settings (17), each with the server setting it falls back to."""

    consumer_session_timeout_ms = integer(
        "consumer.session.timeout.ms",
        GroupDeclaration.group_consumer_session_timeout_ms,
        "How long a member of this group may be silent (KIP-848).",
        POSITIVE,
    )
    consumer_heartbeat_interval_ms = integer(
        "consumer.heartbeat.interval.ms",
        GroupDeclaration.group_consumer_heartbeat_interval_ms,
        "How often a member of this group sends its heartbeat.",
        POSITIVE,
    )
    consumer_assignment_interval_ms = integer(
        "consumer.assignment.interval.ms",
        GroupDeclaration.group_consumer_assignment_interval_ms,
        "How long this group waits between two assignments.",
        NOT_NEGATIVE,
    )
    share_session_timeout_ms = integer(
        "share.session.timeout.ms",
        ShareGroupDeclaration.group_share_session_timeout_ms,
        "How long a member of this share group may be silent (KIP-932).",
        POSITIVE,
    )
    share_heartbeat_interval_ms = integer(
        "share.heartbeat.interval.ms",
        ShareGroupDeclaration.group_share_heartbeat_interval_ms,
        "How often a member of this share group sends its heartbeat.",
        POSITIVE,
    )
    share_assignment_interval_ms = integer(
        "share.assignment.interval.ms",
        ShareGroupDeclaration.group_share_assignment_interval_ms,
        "How long this share group waits between two assignments.",
        NOT_NEGATIVE,
    )
    share_auto_offset_reset = string(
        "share.auto.offset.reset",
        "latest",
        "Where this share group starts: latest, earliest, or by_duration:DURATION back.",
        OffsetReset(),
    )
    share_isolation_level = string(
        "share.isolation.level",
        "read_uncommitted",
        "Whether this share group reads records of uncommitted transactions.",
        OneOf("read_committed", "read_uncommitted"),
    )
    share_delivery_count_limit = integer(
        "share.delivery.count.limit",
        ShareGroupDeclaration.group_share_delivery_count_limit,
        "How often a record is delivered to this share group before it is archived.",
        AtLeast(2),
    )
    share_record_lock_duration_ms = integer(
        "share.record.lock.duration.ms",
        ShareGroupDeclaration.group_share_record_lock_duration_ms,
        "How long a record stays with the member that acquired it.",
        AtLeast(1000),
    )
    share_partition_max_record_locks = integer(
        "share.partition.max.record.locks",
        ShareGroupDeclaration.group_share_partition_max_record_locks,
        "How many records of one partition may be acquired at a time.",
        AtLeast(100),
    )
    share_renew_acknowledge_enable = boolean(
        "share.renew.acknowledge.enable",
        True,
        "Whether a member may renew its lock on a record (KIP-1222).",
    )
    streams_session_timeout_ms = integer(
        "streams.session.timeout.ms",
        ShareGroupDeclaration.group_streams_session_timeout_ms,
        "How long a member of this streams group may be silent (KIP-1071).",
        POSITIVE,
    )
    streams_heartbeat_interval_ms = integer(
        "streams.heartbeat.interval.ms",
        ShareGroupDeclaration.group_streams_heartbeat_interval_ms,
        "How often a member of this streams group sends its heartbeat.",
        POSITIVE,
    )
    streams_assignment_interval_ms = integer(
        "streams.assignment.interval.ms",
        ShareGroupDeclaration.group_streams_assignment_interval_ms,
        "How long this streams group waits between two assignments.",
        NOT_NEGATIVE,
    )
    streams_initial_rebalance_delay_ms = integer(
        "streams.initial.rebalance.delay.ms",
        ShareGroupDeclaration.group_streams_initial_rebalance_delay_ms,
        "How long this streams group waits for more members before its first assignment.",
        NOT_NEGATIVE,
    )
    streams_num_standby_replicas = integer(
        "streams.num.standby.replicas",
        ShareGroupDeclaration.group_streams_num_standby_replicas,
        "How many standby tasks this streams group keeps of each stateful task.",
        NOT_NEGATIVE,
    )
