"""The group coordinator: classic and consumer groups, and committed offsets."""

from ottla.kernel.validators import FULL_LIST, INT_MAX, NOT_NEGATIVE, POSITIVE, AtLeast, ListOf, OneOf
from ottla.settings.schema import CLUSTER_WIDE, HIGH, integer, listing, long, short, string


class GroupDeclaration:
    """The group coordinator: classic and consumer groups, and committed offsets."""

    group_coordinator_rebalance_protocols = listing(
        "group.coordinator.rebalance.protocols",
        ("classic", "consumer", "streams"),
        "The enabled group protocols; classic is required.",
        ListOf("consumer", "classic", "share", "streams", empty=False),
    )
    group_coordinator_threads = integer(
        "group.coordinator.threads",
        4,
        "Apache Kafka's threads for groups; this node serves groups on its event loop.",
        POSITIVE,
        HIGH,
        served=False,
    )
    group_coordinator_background_threads = integer(
        "group.coordinator.background.threads",
        2,
        "Apache Kafka's threads for assigning partitions.",
        POSITIVE,
        HIGH,
        served=False,
    )
    group_coordinator_append_linger_ms = integer(
        "group.coordinator.append.linger.ms",
        -1,
        "How long the coordinator collects records before it writes them; -1 adapts.",
        AtLeast(-1),
        served=False,
    )
    group_coordinator_cached_buffer_max_bytes = integer(
        "group.coordinator.cached.buffer.max.bytes",
        1_048_588,
        "The largest buffer that the coordinator keeps for its writes.",
        AtLeast(524_288),
        mode=CLUSTER_WIDE,
        served=False,
    )
    group_min_session_timeout_ms = integer(
        "group.min.session.timeout.ms", 6000, "The minimum session timeout that a classic member may request."
    )
    group_max_session_timeout_ms = integer(
        "group.max.session.timeout.ms", 1_800_000, "The maximum session timeout that a classic member may request."
    )
    group_initial_rebalance_delay_ms = integer(
        "group.initial.rebalance.delay.ms",
        3000,
        "How long an empty classic group waits for more members before its first assignment.",
    )
    group_max_size = integer("group.max.size", INT_MAX, "The maximum number of members in a classic group.", POSITIVE)
    group_consumer_session_timeout_ms = integer(
        "group.consumer.session.timeout.ms",
        45_000,
        "How long a member of a consumer group may be silent (KIP-848).",
        POSITIVE,
    )
    group_consumer_min_session_timeout_ms = integer(
        "group.consumer.min.session.timeout.ms",
        45_000,
        "The minimum of consumer.session.timeout.ms of a consumer group.",
        POSITIVE,
    )
    group_consumer_max_session_timeout_ms = integer(
        "group.consumer.max.session.timeout.ms",
        60_000,
        "The maximum of consumer.session.timeout.ms of a consumer group.",
        POSITIVE,
    )
    group_consumer_heartbeat_interval_ms = integer(
        "group.consumer.heartbeat.interval.ms",
        5000,
        "How often a member of a consumer group sends its heartbeat.",
        POSITIVE,
    )
    group_consumer_min_heartbeat_interval_ms = integer(
        "group.consumer.min.heartbeat.interval.ms",
        5000,
        "The minimum of consumer.heartbeat.interval.ms of a consumer group.",
        POSITIVE,
    )
    group_consumer_max_heartbeat_interval_ms = integer(
        "group.consumer.max.heartbeat.interval.ms",
        15_000,
        "The maximum of consumer.heartbeat.interval.ms of a consumer group.",
        POSITIVE,
    )
    group_consumer_assignment_interval_ms = integer(
        "group.consumer.assignment.interval.ms",
        1000,
        "How long a consumer group waits between two assignments.",
        NOT_NEGATIVE,
        mode=CLUSTER_WIDE,
    )
    group_consumer_min_assignment_interval_ms = integer(
        "group.consumer.min.assignment.interval.ms",
        0,
        "The minimum of consumer.assignment.interval.ms of a consumer group.",
        NOT_NEGATIVE,
    )
    group_consumer_max_assignment_interval_ms = integer(
        "group.consumer.max.assignment.interval.ms",
        15_000,
        "The maximum of consumer.assignment.interval.ms of a consumer group.",
        NOT_NEGATIVE,
    )
    group_consumer_max_size = integer(
        "group.consumer.max.size", INT_MAX, "The maximum number of members in a consumer group.", POSITIVE
    )
    group_consumer_assignors = listing(
        "group.consumer.assignors",
        ("uniform", "range"),
        "The assignors of consumer groups; the first is the default.",
        FULL_LIST,
    )
    group_consumer_migration_policy = string(
        "group.consumer.migration.policy",
        "bidirectional",
        "Whether a group may convert from classic to consumer (upgrade), back (downgrade), both or neither.",
        OneOf("DISABLED", "DOWNGRADE", "UPGRADE", "BIDIRECTIONAL", any_case=True),
    )
    group_consumer_regex_refresh_interval_ms = integer(
        "group.consumer.regex.refresh.interval.ms",
        600_000,
        "How often the topics that match a group's pattern are refreshed.",
        AtLeast(10_000),
        internal=True,
    )
    offset_metadata_max_bytes = integer(
        "offset.metadata.max.bytes",
        4096,
        "The maximum length of the metadata of a committed offset, in UTF-16 code units.",
        importance=HIGH,
    )
    offsets_commit_timeout_ms = integer(
        "offsets.commit.timeout.ms",
        5000,
        "How long a commit may wait for the replicas of __consumer_offsets.",
        POSITIVE,
        HIGH,
    )
    offsets_load_buffer_size = integer(
        "offsets.load.buffer.size",
        5_242_880,
        "How many bytes are read at a time when groups are loaded.",
        POSITIVE,
        HIGH,
        served=False,
    )
    offsets_retention_check_interval_ms = long(
        "offsets.retention.check.interval.ms",
        600_000,
        "How often expired offsets are searched for.",
        POSITIVE,
        HIGH,
    )
    offsets_retention_minutes = integer(
        "offsets.retention.minutes", 10_080, "How long offsets are kept after their group is empty.", POSITIVE, HIGH
    )
    offsets_topic_compression_codec = integer(
        "offsets.topic.compression.codec",
        0,
        "The codec of __consumer_offsets, as Kafka's number; 0 is none.",
        importance=HIGH,
        served=False,
    )
    offsets_topic_num_partitions = integer(
        "offsets.topic.num.partitions",
        50,
        "Partitions of __consumer_offsets; it cannot change once the topic exists.",
        POSITIVE,
        HIGH,
    )
    offsets_topic_replication_factor = short(
        "offsets.topic.replication.factor",
        3,
        "Replicas of __consumer_offsets; a single node needs 1.",
        POSITIVE,
        HIGH,
    )
    offsets_topic_segment_bytes = integer(
        "offsets.topic.segment.bytes", 104_857_600, "Segment size of __consumer_offsets.", POSITIVE, HIGH
    )
