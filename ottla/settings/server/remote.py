"""Tiered storage (KIP-405)."""

from ottla.kernel.validators import LONG_MAX, NOT_NEGATIVE, POSITIVE, SOME_TEXT, SOME_TEXT_OR_NULL, AtLeast, Between
from ottla.settings.schema import CLUSTER_WIDE, LOW, boolean, double, integer, long, string


class RemoteDeclaration:
    """Tiered storage (KIP-405)."""

    remote_log_storage_system_enable = boolean(
        "remote.log.storage.system.enable", False, "Whether segments may be moved to remote storage.", served=False
    )
    remote_log_storage_manager_class_name = string(
        "remote.log.storage.manager.class.name",
        None,
        "The Java class that stores segments.",
        SOME_TEXT_OR_NULL,
        served=False,
    )
    remote_log_storage_manager_class_path = string(
        "remote.log.storage.manager.class.path", None, "The class path of that class.", served=False
    )
    remote_log_storage_manager_impl_prefix = string(
        "remote.log.storage.manager.impl.prefix",
        "rsm.config.",
        "The prefix of the settings that class gets.",
        SOME_TEXT,
        served=False,
    )
    remote_log_metadata_manager_class_name = string(
        "remote.log.metadata.manager.class.name",
        "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager",
        "The Java class that keeps the metadata of remote segments.",
        SOME_TEXT,
        served=False,
    )
    remote_log_metadata_manager_class_path = string(
        "remote.log.metadata.manager.class.path", None, "The class path of that class.", served=False
    )
    remote_log_metadata_manager_impl_prefix = string(
        "remote.log.metadata.manager.impl.prefix",
        "rlmm.config.",
        "The prefix of the settings that class gets.",
        SOME_TEXT,
        served=False,
    )
    remote_log_metadata_manager_listener_name = string(
        "remote.log.metadata.manager.listener.name",
        None,
        "The listener on which that class connects to this node.",
        SOME_TEXT_OR_NULL,
        served=False,
    )
    remote_log_metadata_custom_metadata_max_bytes = integer(
        "remote.log.metadata.custom.metadata.max.bytes",
        128,
        "The maximum size of remote storage's custom metadata of a segment.",
        NOT_NEGATIVE,
        LOW,
        served=False,
    )
    remote_log_manager_task_interval_ms = long(
        "remote.log.manager.task.interval.ms",
        30_000,
        "How often segments to move or delete are searched for.",
        POSITIVE,
        LOW,
        served=False,
    )
    remote_log_manager_task_retry_backoff_ms = long(
        "remote.log.manager.task.retry.backoff.ms",
        500,
        "The initial backoff after a failed move.",
        POSITIVE,
        LOW,
        internal=True,
        served=False,
    )
    remote_log_manager_task_retry_backoff_max_ms = long(
        "remote.log.manager.task.retry.backoff.max.ms",
        30_000,
        "The maximum backoff after a failed move.",
        POSITIVE,
        LOW,
        internal=True,
        served=False,
    )
    remote_log_manager_task_retry_jitter = double(
        "remote.log.manager.task.retry.jitter",
        0.2,
        "The random jitter of that backoff.",
        Between(0, 0.5),
        LOW,
        internal=True,
        served=False,
    )
    remote_log_manager_thread_pool_size = integer(
        "remote.log.manager.thread.pool.size", 2, "Threads for remote storage.", POSITIVE, served=False
    )
    remote_log_manager_copier_thread_pool_size = integer(
        "remote.log.manager.copier.thread.pool.size",
        10,
        "Threads that move segments to remote storage.",
        POSITIVE,
        mode=CLUSTER_WIDE,
        served=False,
    )
    remote_log_manager_expiration_thread_pool_size = integer(
        "remote.log.manager.expiration.thread.pool.size",
        10,
        "Threads that delete segments in remote storage.",
        POSITIVE,
        mode=CLUSTER_WIDE,
        served=False,
    )
    remote_log_manager_follower_thread_pool_size = integer(
        "remote.log.manager.follower.thread.pool.size",
        2,
        "Threads that follow the leader's remote segments.",
        POSITIVE,
        mode=CLUSTER_WIDE,
        served=False,
    )
    remote_log_manager_copy_max_bytes_per_second = long(
        "remote.log.manager.copy.max.bytes.per.second",
        LONG_MAX,
        "The maximum bytes per second moved to remote storage.",
        POSITIVE,
        mode=CLUSTER_WIDE,
        served=False,
    )
    remote_log_manager_copy_quota_window_num = integer(
        "remote.log.manager.copy.quota.window.num",
        11,
        "The number of windows over which that rate is measured.",
        POSITIVE,
        served=False,
    )
    remote_log_manager_copy_quota_window_size_seconds = integer(
        "remote.log.manager.copy.quota.window.size.seconds",
        1,
        "The length of one of those windows.",
        POSITIVE,
        served=False,
    )
    remote_log_manager_fetch_max_bytes_per_second = long(
        "remote.log.manager.fetch.max.bytes.per.second",
        LONG_MAX,
        "The maximum bytes per second read from remote storage.",
        POSITIVE,
        mode=CLUSTER_WIDE,
        served=False,
    )
    remote_log_manager_fetch_quota_window_num = integer(
        "remote.log.manager.fetch.quota.window.num",
        11,
        "The number of windows over which that rate is measured.",
        POSITIVE,
        served=False,
    )
    remote_log_manager_fetch_quota_window_size_seconds = integer(
        "remote.log.manager.fetch.quota.window.size.seconds",
        1,
        "The length of one of those windows.",
        POSITIVE,
        served=False,
    )
    remote_log_reader_threads = integer(
        "remote.log.reader.threads",
        10,
        "Threads that read from remote storage.",
        POSITIVE,
        mode=CLUSTER_WIDE,
        served=False,
    )
    remote_log_reader_max_pending_tasks = integer(
        "remote.log.reader.max.pending.tasks",
        100,
        "How many reads from remote storage may wait.",
        POSITIVE,
        served=False,
    )
    remote_log_index_file_cache_total_size_bytes = long(
        "remote.log.index.file.cache.total.size.bytes",
        1_073_741_824,
        "The size of the local cache of remote segments' indexes.",
        POSITIVE,
        LOW,
        CLUSTER_WIDE,
        served=False,
    )
    remote_log_index_file_cache_ttl_ms = long(
        "remote.log.index.file.cache.ttl.ms",
        900_000,
        "How long cached indexes are kept.",
        AtLeast(-1),
        LOW,
        internal=True,
        served=False,
    )
    remote_fetch_max_wait_ms = integer(
        "remote.fetch.max.wait.ms",
        500,
        "How long a fetch waits for remote storage.",
        POSITIVE,
        mode=CLUSTER_WIDE,
        served=False,
    )
    remote_list_offsets_request_timeout_ms = long(
        "remote.list.offsets.request.timeout.ms",
        30_000,
        "How long ListOffsets waits for remote storage.",
        POSITIVE,
        mode=CLUSTER_WIDE,
        served=False,
    )
    log_local_retention_bytes = long(
        "log.local.retention.bytes",
        -2,
        "How many bytes of a tiered partition stay on this disk; -2 follows log.retention.bytes.",
        AtLeast(-2),
        mode=CLUSTER_WIDE,
        served=False,
    )
    log_local_retention_ms = long(
        "log.local.retention.ms",
        -2,
        "How long segments of a tiered partition stay on this disk; -2 follows log.retention.ms.",
        AtLeast(-2),
        mode=CLUSTER_WIDE,
        served=False,
    )
