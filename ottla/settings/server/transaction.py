"""Idempotent and transactional producers, and the state of share groups."""

from ottla.kernel.validators import NOT_NEGATIVE, POSITIVE, AtLeast, Between
from ottla.settings.schema import CLUSTER_WIDE, HIGH, LOW, boolean, integer, short


class TransactionDeclaration:
    """Idempotent and transactional producers, and the state of share groups."""

    producer_id_expiration_ms = integer(
        "producer.id.expiration.ms",
        86_400_000,
        "How long a partition keeps the state of an inactive producer.",
        POSITIVE,
        LOW,
        CLUSTER_WIDE,
    )
    producer_id_expiration_check_interval_ms = integer(
        "producer.id.expiration.check.interval.ms",
        600_000,
        "How often inactive producers are removed.",
        POSITIVE,
        LOW,
        internal=True,
    )
    transaction_max_timeout_ms = integer(
        "transaction.max.timeout.ms",
        900_000,
        "The maximum transaction timeout that a producer may request.",
        POSITIVE,
        HIGH,
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms = integer(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        10_000,
        "How often timed-out transactions are aborted.",
        POSITIVE,
        LOW,
    )
    transaction_remove_expired_transaction_cleanup_interval_ms = integer(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        3_600_000,
        "How often expired transactional ids are removed.",
        POSITIVE,
        LOW,
    )
    transactional_id_expiration_ms = integer(
        "transactional.id.expiration.ms",
        604_800_000,
        "How long the coordinator keeps an inactive transactional id.",
        POSITIVE,
        HIGH,
    )
    transaction_partition_verification_enable = boolean(
        "transaction.partition.verification.enable",
        True,
        "Whether a transactional append is checked with the transaction coordinator (KIP-890).",
        importance=LOW,
        mode=CLUSTER_WIDE,
    )
    transaction_two_phase_commit_enable = boolean(
        "transaction.two.phase.commit.enable",
        False,
        "Whether external coordinators may use two-phase commit (KIP-939).",
        importance=LOW,
    )
    transaction_state_log_load_buffer_size = integer(
        "transaction.state.log.load.buffer.size",
        5_242_880,
        "How many bytes are read at a time when transactions are loaded.",
        POSITIVE,
        HIGH,
        served=False,
    )
    transaction_state_log_min_isr = integer(
        "transaction.state.log.min.isr",
        2,
        "min.insync.replicas of __transaction_state; a single node needs 1.",
        POSITIVE,
        HIGH,
    )
    transaction_state_log_num_partitions = integer(
        "transaction.state.log.num.partitions",
        50,
        "Partitions of __transaction_state; it cannot change once the topic exists.",
        POSITIVE,
        HIGH,
    )
    transaction_state_log_replication_factor = short(
        "transaction.state.log.replication.factor",
        3,
        "Replicas of __transaction_state; a single node needs 1.",
        POSITIVE,
        HIGH,
    )
    transaction_state_log_segment_bytes = integer(
        "transaction.state.log.segment.bytes", 104_857_600, "Segment size of __transaction_state.", POSITIVE, HIGH
    )
    add_partitions_to_txn_retry_backoff_ms = integer(
        "add.partitions.to.txn.retry.backoff.ms",
        20,
        "How long a broker waits before it asks again to add partitions to a transaction.",
        POSITIVE,
        HIGH,
    )
    add_partitions_to_txn_retry_backoff_max_ms = integer(
        "add.partitions.to.txn.retry.backoff.max.ms",
        100,
        "How long a broker holds a producer's batch to ask again, while the last transaction still ends.",
        NOT_NEGATIVE,
        HIGH,
    )
    share_coordinator_append_linger_ms = integer(
        "share.coordinator.append.linger.ms",
        -1,
        "How long the share coordinator collects records before it writes them; -1 adapts.",
        AtLeast(-1),
        served=False,
    )
    share_coordinator_cached_buffer_max_bytes = integer(
        "share.coordinator.cached.buffer.max.bytes",
        1_048_588,
        "The largest buffer that the share coordinator keeps for its writes.",
        AtLeast(524_288),
        mode=CLUSTER_WIDE,
        served=False,
    )
    share_coordinator_cold_partition_snapshot_interval_ms = integer(
        "share.coordinator.cold.partition.snapshot.interval.ms",
        300_000,
        "How often a snapshot is written for inactive share partitions.",
        POSITIVE,
        LOW,
        internal=True,
    )
    share_coordinator_load_buffer_size = integer(
        "share.coordinator.load.buffer.size",
        5_242_880,
        "How many bytes are read at a time when share state is loaded.",
        POSITIVE,
        HIGH,
        served=False,
    )
    share_coordinator_snapshot_update_records_per_snapshot = integer(
        "share.coordinator.snapshot.update.records.per.snapshot",
        500,
        "The number of share state updates between two snapshots.",
        Between(0, 500),
    )
    share_coordinator_state_topic_compression_codec = integer(
        "share.coordinator.state.topic.compression.codec",
        0,
        "The codec of __share_group_state, as Kafka's number; 0 is none.",
        importance=HIGH,
        served=False,
    )
    share_coordinator_state_topic_min_isr = short(
        "share.coordinator.state.topic.min.isr",
        2,
        "min.insync.replicas of __share_group_state; a single node needs 1.",
        POSITIVE,
        HIGH,
    )
    share_coordinator_state_topic_num_partitions = integer(
        "share.coordinator.state.topic.num.partitions",
        50,
        "Partitions of __share_group_state; it cannot change once the topic exists.",
        POSITIVE,
        HIGH,
    )
    share_coordinator_state_topic_prune_interval_ms = integer(
        "share.coordinator.state.topic.prune.interval.ms",
        300_000,
        "How often records that are no longer needed are deleted from __share_group_state.",
        POSITIVE,
        LOW,
        internal=True,
    )
    share_coordinator_state_topic_replication_factor = short(
        "share.coordinator.state.topic.replication.factor",
        3,
        "Replicas of __share_group_state; a single node needs 1.",
        POSITIVE,
        HIGH,
    )
    share_coordinator_state_topic_segment_bytes = integer(
        "share.coordinator.state.topic.segment.bytes",
        104_857_600,
        "Segment size of __share_group_state.",
        POSITIVE,
        HIGH,
    )
    share_coordinator_threads = integer(
        "share.coordinator.threads", 1, "Apache Kafka's threads for the share coordinator.", POSITIVE, served=False
    )
    share_coordinator_write_timeout_ms = integer(
        "share.coordinator.write.timeout.ms",
        5000,
        "How long a write of share state may wait for its replicas.",
        POSITIVE,
        HIGH,
        served=False,
    )
