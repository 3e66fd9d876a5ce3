"""A group's own settings (17), each with the server setting it falls back to."""

from ottla.kernel.validators import NOT_NEGATIVE, POSITIVE, AtLeast, OffsetReset, OneOf
from ottla.settings.schema import boolean, integer, string


class GroupOverrideDeclaration:
    """A group's own settings (17), each with the server setting it falls back to."""

    consumer_session_timeout_ms = integer(
        "consumer.session.timeout.ms",
        45_000,
        "How long a member of this group may be silent (KIP-848).",
        POSITIVE,
        broker="group.consumer.session.timeout.ms",
    )
    consumer_heartbeat_interval_ms = integer(
        "consumer.heartbeat.interval.ms",
        5000,
        "How often a member of this group sends its heartbeat.",
        POSITIVE,
        broker="group.consumer.heartbeat.interval.ms",
    )
    consumer_assignment_interval_ms = integer(
        "consumer.assignment.interval.ms",
        1000,
        "How long this group waits between two assignments.",
        NOT_NEGATIVE,
        broker="group.consumer.assignment.interval.ms",
    )
    share_session_timeout_ms = integer(
        "share.session.timeout.ms",
        45_000,
        "How long a member of this share group may be silent (KIP-932).",
        POSITIVE,
        broker="group.share.session.timeout.ms",
    )
    share_heartbeat_interval_ms = integer(
        "share.heartbeat.interval.ms",
        5000,
        "How often a member of this share group sends its heartbeat.",
        POSITIVE,
        broker="group.share.heartbeat.interval.ms",
    )
    share_assignment_interval_ms = integer(
        "share.assignment.interval.ms",
        1000,
        "How long this share group waits between two assignments.",
        NOT_NEGATIVE,
        broker="group.share.assignment.interval.ms",
    )
    share_auto_offset_reset = string(
        "share.auto.offset.reset",
        "latest",
        "Where this share group begins: latest, earliest, or by_duration: and how far back.",
        OffsetReset(),
    )
    share_isolation_level = string(
        "share.isolation.level",
        "read_uncommitted",
        "Whether this share group sees records of transactions that are not committed.",
        OneOf("read_committed", "read_uncommitted"),
    )
    share_delivery_count_limit = integer(
        "share.delivery.count.limit",
        5,
        "How often a record is delivered to this share group before it is given up.",
        AtLeast(2),
        broker="group.share.delivery.count.limit",
    )
    share_record_lock_duration_ms = integer(
        "share.record.lock.duration.ms",
        30_000,
        "How long a record stays with the member that acquired it.",
        AtLeast(1000),
        broker="group.share.record.lock.duration.ms",
    )
    share_partition_max_record_locks = integer(
        "share.partition.max.record.locks",
        2000,
        "How many records of one partition may be acquired at a time.",
        AtLeast(100),
        broker="group.share.partition.max.record.locks",
    )
    share_renew_acknowledge_enable = boolean(
        "share.renew.acknowledge.enable",
        True,
        "Whether a member may renew its lock on a record (KIP-1222).",
    )
    streams_session_timeout_ms = integer(
        "streams.session.timeout.ms",
        45_000,
        "How long a member of this streams group may be silent (KIP-1071).",
        POSITIVE,
        broker="group.streams.session.timeout.ms",
    )
    streams_heartbeat_interval_ms = integer(
        "streams.heartbeat.interval.ms",
        5000,
        "How often a member of this streams group sends its heartbeat.",
        POSITIVE,
        broker="group.streams.heartbeat.interval.ms",
    )
    streams_assignment_interval_ms = integer(
        "streams.assignment.interval.ms",
        1000,
        "How long this streams group waits between two assignments.",
        NOT_NEGATIVE,
        broker="group.streams.assignment.interval.ms",
    )
    streams_initial_rebalance_delay_ms = integer(
        "streams.initial.rebalance.delay.ms",
        3000,
        "How long this streams group waits for more members before its first assignment.",
        NOT_NEGATIVE,
        broker="group.streams.initial.rebalance.delay.ms",
    )
    streams_num_standby_replicas = integer(
        "streams.num.standby.replicas",
        0,
        "How many standby tasks this streams group keeps of each stateful task.",
        NOT_NEGATIVE,
        broker="group.streams.num.standby.replicas",
    )
