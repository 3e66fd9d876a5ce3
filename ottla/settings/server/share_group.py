"""The group coordinator: share groups (KIP-932) and streams groups (KIP-1071)."""

from ottla.kernel.validators import FULL_LIST, INT_MAX, NOT_NEGATIVE, POSITIVE, Between
from ottla.settings.schema import CLUSTER_WIDE, LOW, integer, listing, string


class ShareGroupDeclaration:
    """The group coordinator: share groups (KIP-932) and streams groups (KIP-1071)."""

    group_share_session_timeout_ms = integer(
        "group.share.session.timeout.ms",
        45_000,
        "How long a member of a share group may be silent (KIP-932).",
        POSITIVE,
    )
    group_share_min_session_timeout_ms = integer(
        "group.share.min.session.timeout.ms",
        45_000,
        "The minimum of share.session.timeout.ms of a share group.",
        POSITIVE,
    )
    group_share_max_session_timeout_ms = integer(
        "group.share.max.session.timeout.ms",
        60_000,
        "The maximum of share.session.timeout.ms of a share group.",
        POSITIVE,
    )
    group_share_heartbeat_interval_ms = integer(
        "group.share.heartbeat.interval.ms",
        5000,
        "How often a member of a share group sends its heartbeat.",
        POSITIVE,
    )
    group_share_min_heartbeat_interval_ms = integer(
        "group.share.min.heartbeat.interval.ms",
        5000,
        "The minimum of share.heartbeat.interval.ms of a share group.",
        POSITIVE,
    )
    group_share_max_heartbeat_interval_ms = integer(
        "group.share.max.heartbeat.interval.ms",
        15_000,
        "The maximum of share.heartbeat.interval.ms of a share group.",
        POSITIVE,
    )
    group_share_assignment_interval_ms = integer(
        "group.share.assignment.interval.ms",
        1000,
        "How long a share group waits between two assignments.",
        NOT_NEGATIVE,
        mode=CLUSTER_WIDE,
    )
    group_share_min_assignment_interval_ms = integer(
        "group.share.min.assignment.interval.ms",
        0,
        "The minimum of share.assignment.interval.ms of a share group.",
        NOT_NEGATIVE,
    )
    group_share_max_assignment_interval_ms = integer(
        "group.share.max.assignment.interval.ms",
        15_000,
        "The maximum of share.assignment.interval.ms of a share group.",
        NOT_NEGATIVE,
    )
    group_share_max_size = integer(
        "group.share.max.size",
        200,
        "The maximum number of members in a share group.",
        Between(1, 1000),
    )
    group_share_assignors = listing(
        "group.share.assignors",
        ("simple",),
        "The assignors of share groups.",
        FULL_LIST,
        served=False,
    )
    group_share_delivery_count_limit = integer(
        "group.share.delivery.count.limit",
        5,
        "How often a record is delivered to a share group before it is archived.",
        Between(2, 10),
    )
    group_share_min_delivery_count_limit = integer(
        "group.share.min.delivery.count.limit",
        2,
        "The minimum of share.delivery.count.limit of a share group.",
        Between(2, 5),
    )
    group_share_max_delivery_count_limit = integer(
        "group.share.max.delivery.count.limit",
        10,
        "The maximum of share.delivery.count.limit of a share group.",
        Between(5, 25),
    )
    group_share_record_lock_duration_ms = integer(
        "group.share.record.lock.duration.ms",
        30_000,
        "How long a record stays with the member that acquired it.",
        Between(1000, 3_600_000),
    )
    group_share_min_record_lock_duration_ms = integer(
        "group.share.min.record.lock.duration.ms",
        15_000,
        "The minimum of share.record.lock.duration.ms of a share group.",
        Between(1000, 30_000),
    )
    group_share_max_record_lock_duration_ms = integer(
        "group.share.max.record.lock.duration.ms",
        60_000,
        "The maximum of share.record.lock.duration.ms of a share group.",
        Between(30_000, 3_600_000),
    )
    group_share_partition_max_record_locks = integer(
        "group.share.partition.max.record.locks",
        2000,
        "How many records of one partition may be acquired at a time.",
        Between(100, 10_000),
    )
    group_share_min_partition_max_record_locks = integer(
        "group.share.min.partition.max.record.locks",
        100,
        "The minimum of share.partition.max.record.locks of a share group.",
        Between(100, 2000),
    )
    group_share_max_partition_max_record_locks = integer(
        "group.share.max.partition.max.record.locks",
        4000,
        "The maximum of share.partition.max.record.locks of a share group.",
        Between(2000, 10_000),
    )
    group_share_max_share_sessions = integer(
        "group.share.max.share.sessions",
        2000,
        "The maximum number of share sessions.",
        POSITIVE,
    )
    group_share_initialize_retry_interval_ms = integer(
        "group.share.initialize.retry.interval.ms",
        30_000,
        "How long a share group waits before it retries to initialize a partition's state.",
        POSITIVE,
        LOW,
        internal=True,
    )
    group_share_persister_class_name = string(
        "group.share.persister.class.name",
        "org.apache.kafka.server.share.persister.DefaultStatePersister",
        "The Java class that keeps the state of share groups.",
        internal=True,
        served=False,
    )
    group_streams_session_timeout_ms = integer(
        "group.streams.session.timeout.ms",
        45_000,
        "How long a member of a streams group may be silent (KIP-1071).",
        POSITIVE,
    )
    group_streams_min_session_timeout_ms = integer(
        "group.streams.min.session.timeout.ms",
        45_000,
        "The minimum of streams.session.timeout.ms of a streams group.",
        POSITIVE,
    )
    group_streams_max_session_timeout_ms = integer(
        "group.streams.max.session.timeout.ms",
        60_000,
        "The maximum of streams.session.timeout.ms of a streams group.",
        POSITIVE,
    )
    group_streams_heartbeat_interval_ms = integer(
        "group.streams.heartbeat.interval.ms",
        5000,
        "How often a member of a streams group sends its heartbeat.",
        POSITIVE,
    )
    group_streams_min_heartbeat_interval_ms = integer(
        "group.streams.min.heartbeat.interval.ms",
        5000,
        "The minimum of streams.heartbeat.interval.ms of a streams group.",
        POSITIVE,
    )
    group_streams_max_heartbeat_interval_ms = integer(
        "group.streams.max.heartbeat.interval.ms",
        15_000,
        "The maximum of streams.heartbeat.interval.ms of a streams group.",
        POSITIVE,
    )
    group_streams_assignment_interval_ms = integer(
        "group.streams.assignment.interval.ms",
        1000,
        "How long a streams group waits between two assignments.",
        NOT_NEGATIVE,
        mode=CLUSTER_WIDE,
    )
    group_streams_min_assignment_interval_ms = integer(
        "group.streams.min.assignment.interval.ms",
        0,
        "The minimum of streams.assignment.interval.ms of a streams group.",
        NOT_NEGATIVE,
    )
    group_streams_max_assignment_interval_ms = integer(
        "group.streams.max.assignment.interval.ms",
        15_000,
        "The maximum of streams.assignment.interval.ms of a streams group.",
        NOT_NEGATIVE,
    )
    group_streams_initial_rebalance_delay_ms = integer(
        "group.streams.initial.rebalance.delay.ms",
        3000,
        "How long an empty streams group waits for more members before its first assignment.",
        NOT_NEGATIVE,
    )
    group_streams_max_size = integer(
        "group.streams.max.size", INT_MAX, "The maximum number of members in a streams group.", POSITIVE
    )
    group_streams_num_standby_replicas = integer(
        "group.streams.num.standby.replicas",
        0,
        "How many standby tasks a streams group keeps of each stateful task.",
        NOT_NEGATIVE,
    )
    group_streams_max_standby_replicas = integer(
        "group.streams.max.standby.replicas",
        2,
        "The maximum of streams.num.standby.replicas of a streams group.",
        NOT_NEGATIVE,
    )
