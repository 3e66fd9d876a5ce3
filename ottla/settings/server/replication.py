"""Replication and leader election."""

from ottla.kernel.validators import NOT_NEGATIVE, POSITIVE
from ottla.settings.schema import CLUSTER_WIDE, HIGH, LOW, Setting, boolean, derived, integer, long, string


class ReplicationDeclaration:
    """Replication and leader election."""

    num_replica_fetchers = integer(
        "num.replica.fetchers",
        1,
        "The number of fetchers for each other broker.",
        POSITIVE,
        HIGH,
        CLUSTER_WIDE,
        served=False,
    )
    num_replica_alter_log_dirs_threads: Setting[int] = derived(
        integer(
            "num.replica.alter.log.dirs.threads",
            None,
            "The number of concurrent moves between this node's log directories.",
            importance=HIGH,
            served=False,
        )
    )
    replica_fetch_backoff_ms = integer(
        "replica.fetch.backoff.ms",
        1000,
        "The backoff after a follower's failed fetch.",
        NOT_NEGATIVE,
    )
    replica_fetch_max_bytes = integer(
        "replica.fetch.max.bytes",
        1_048_576,
        "The maximum bytes of one partition in a follower's fetch.",
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
        "The maximum bytes of a follower's fetch.",
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
        "How often changed high watermarks of replicated partitions are written to the disk. The recovery points' "
        "interval writes them, too.",
        importance=HIGH,
    )
    replica_lag_time_max_ms = long(
        "replica.lag.time.max.ms",
        30_000,
        "A follower that has not caught up for this long leaves the ISR.",
        importance=HIGH,
    )
    replica_selector_class = string(
        "replica.selector.class",
        None,
        "The Java class that chooses the replica that a consumer reads from: RackAwareReplicaSelector or "
        "LeaderSelector of org.apache.kafka.common.replica. Any other is ignored.",
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
        "How long a follower waits for the response to a fetch.",
        importance=HIGH,
    )
    auto_leader_rebalance_enable = boolean(
        "auto.leader.rebalance.enable",
        True,
        "Whether preferred leaders are elected automatically.",
        importance=HIGH,
    )
    leader_imbalance_check_interval_seconds = long(
        "leader.imbalance.check.interval.seconds",
        300,
        "How often the controller checks for preferred leader elections.",
        POSITIVE,
        HIGH,
    )
    unclean_leader_election_enable = boolean(
        "unclean.leader.election.enable",
        False,
        "Whether an out-of-sync replica may become the leader if no other can; records may be lost.",
        importance=HIGH,
        mode=CLUSTER_WIDE,
    )
    unclean_leader_election_interval_ms = long(
        "unclean.leader.election.interval.ms",
        300_000,
        "How often the controller checks for unclean elections.",
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
        "The number of windows over which the replication quota is measured.",
        POSITIVE,
        LOW,
    )
    replication_quota_window_size_seconds = integer(
        "replication.quota.window.size.seconds",
        1,
        "The length of one window of the replication quota.",
        POSITIVE,
        LOW,
    )
    alter_log_dirs_replication_quota_window_num = integer(
        "alter.log.dirs.replication.quota.window.num",
        11,
        "The number of windows over which the quota of moves between log directories is measured.",
        POSITIVE,
        LOW,
    )
    alter_log_dirs_replication_quota_window_size_seconds = integer(
        "alter.log.dirs.replication.quota.window.size.seconds",
        1,
        "The length of one window of the quota of moves between log directories.",
        POSITIVE,
        LOW,
    )
