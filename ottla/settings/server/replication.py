"""Replicas, leaders and what they cost."""

from ottla.kernel.validators import NOT_NEGATIVE, POSITIVE
from ottla.settings.schema import CLUSTER_WIDE, HIGH, LOW, Setting, boolean, derived, integer, long, string


class ReplicationDeclaration:
    """Replicas, leaders and what they cost."""

    num_replica_fetchers = integer(
        "num.replica.fetchers",
        1,
        "How many fetchers copy from one other broker.",
        POSITIVE,
        HIGH,
        CLUSTER_WIDE,
        served=False,
    )
    num_replica_alter_log_dirs_threads: Setting[int] = derived(
        integer(
            "num.replica.alter.log.dirs.threads",
            None,
            "How many partitions move between this node's directories at a time.",
            importance=HIGH,
            served=False,
        )
    )
    replica_fetch_backoff_ms = integer(
        "replica.fetch.backoff.ms",
        1000,
        "The pause after a failed fetch of a follower.",
        NOT_NEGATIVE,
    )
    replica_fetch_max_bytes = integer(
        "replica.fetch.max.bytes",
        1_048_576,
        "The most bytes of one partition in a follower's fetch.",
        NOT_NEGATIVE,
    )
    replica_fetch_min_bytes = integer(
        "replica.fetch.min.bytes",
        1,
        "How many bytes a follower's fetch waits for.",
        importance=HIGH,
    )
    replica_fetch_response_max_bytes = integer(
        "replica.fetch.response.max.bytes",
        10_485_760,
        "The most bytes of one follower's fetch.",
        NOT_NEGATIVE,
    )
    replica_fetch_wait_max_ms = integer(
        "replica.fetch.wait.max.ms",
        500,
        "How long a follower's fetch waits for bytes.",
        importance=HIGH,
    )
    replica_high_watermark_checkpoint_interval_ms = long(
        "replica.high.watermark.checkpoint.interval.ms",
        5000,
        "How often the high watermarks are written to the disk.",
        importance=HIGH,
        served=False,
    )
    replica_lag_time_max_ms = long(
        "replica.lag.time.max.ms",
        30_000,
        "A follower that has not caught up for this long leaves the in-sync replicas.",
        importance=HIGH,
    )
    replica_selector_class = string(
        "replica.selector.class",
        None,
        "The Java class that chooses the replica a consumer reads from: RackAwareReplicaSelector or LeaderSelector of "
        "org.apache.kafka.common.replica. Another one is as none.",
    )
    replica_socket_receive_buffer_bytes = integer(
        "replica.socket.receive.buffer.bytes",
        65_536,
        "The receive buffer of a follower's connections.",
        importance=HIGH,
        served=False,
    )
    replica_socket_timeout_ms = integer(
        "replica.socket.timeout.ms",
        30_000,
        "How long a follower waits for the answer to a fetch.",
        importance=HIGH,
    )
    auto_leader_rebalance_enable = boolean(
        "auto.leader.rebalance.enable",
        True,
        "Whether partitions go back to their preferred leaders by themselves.",
        importance=HIGH,
    )
    leader_imbalance_check_interval_seconds = long(
        "leader.imbalance.check.interval.seconds",
        300,
        "How often it is checked whether partitions have their preferred leaders.",
        POSITIVE,
        HIGH,
    )
    unclean_leader_election_enable = boolean(
        "unclean.leader.election.enable",
        False,
        "Whether a replica that is not in sync may lead when no other can: records may be lost.",
        importance=HIGH,
        mode=CLUSTER_WIDE,
    )
    unclean_leader_election_interval_ms = long(
        "unclean.leader.election.interval.ms",
        300_000,
        "How often it is checked whether an unclean election is needed.",
        POSITIVE,
        internal=True,
    )
    follower_fetch_last_tiered_offset_enable = boolean(
        "follower.fetch.last.tiered.offset.enable",
        False,
        "Whether a new follower of a tiered topic starts at the last tiered offset.",
        mode=CLUSTER_WIDE,
        served=False,
    )
    replication_quota_window_num = integer(
        "replication.quota.window.num",
        11,
        "How many windows the replication quota is measured over.",
        POSITIVE,
        LOW,
    )
    replication_quota_window_size_seconds = integer(
        "replication.quota.window.size.seconds",
        1,
        "How long one window of the replication quota is.",
        POSITIVE,
        LOW,
    )
    alter_log_dirs_replication_quota_window_num = integer(
        "alter.log.dirs.replication.quota.window.num",
        11,
        "How many windows the quota of moves between directories is measured over.",
        POSITIVE,
        LOW,
    )
    alter_log_dirs_replication_quota_window_size_seconds = integer(
        "alter.log.dirs.replication.quota.window.size.seconds",
        1,
        "How long one window of the quota of moves between directories is.",
        POSITIVE,
        LOW,
    )
