"""The node itself, the quorum it belongs to and the metadata log."""

from ottla.kernel.validators import FULL_LIST, LIST, LONG_MAX, NOT_NEGATIVE, POSITIVE, Addresses, AtLeast, ListOf
from ottla.settings.listener import VoterAddress
from ottla.settings.schema import (
    CLUSTER_WIDE,
    HIGH,
    LOW,
    REQUIRED,
    Setting,
    boolean,
    class_name,
    derived,
    integer,
    listing,
    long,
    string,
)


class NodeDeclaration:
    """The node itself, the quorum it belongs to and the metadata log."""

    process_roles: Setting[tuple[str, ...]] = listing(
        "process.roles",
        REQUIRED,
        "The roles of this node: broker, controller or both.",
        ListOf("broker", "controller", empty=False),
        HIGH,
    )
    node_id: Setting[int] = integer(
        "node.id", REQUIRED, "The id of this node, unique in the cluster.", NOT_NEGATIVE, HIGH
    )
    broker_id = integer(
        "broker.id", -1, "The old name of node.id; if both are set they must be equal.", importance=HIGH
    )
    broker_rack = string(
        "broker.rack", None, "The rack or zone of this node; replicas of a partition are spread over racks."
    )
    broker_heartbeat_interval_ms = integer(
        "broker.heartbeat.interval.ms", 2000, "The interval between a broker's heartbeats to the controller."
    )
    broker_session_timeout_ms = integer(
        "broker.session.timeout.ms",
        9000,
        "How long the controller waits for a broker's heartbeat before it fences the broker.",
    )
    initial_broker_registration_timeout_ms = integer(
        "initial.broker.registration.timeout.ms",
        60_000,
        "How long a starting broker tries to register with the controller before it gives up.",
    )
    server_max_startup_time_ms = long(
        "server.max.startup.time.ms",
        LONG_MAX,
        "How long a start may take before the node gives up.",
        NOT_NEGATIVE,
        internal=True,
        served=False,
    )
    controlled_shutdown_enable = boolean(
        "controlled.shutdown.enable", True, "Whether a stopping broker first moves its leaderships to other brokers."
    )
    controller_listener_names: Setting[tuple[str, ...]] = listing(
        "controller.listener.names",
        REQUIRED,
        "The listeners of controllers, for other controllers and for brokers; the first is used for connections.",
        FULL_LIST,
        HIGH,
    )
    controller_quorum_voters: Setting[tuple[VoterAddress, ...]] = derived(
        listing(
            "controller.quorum.voters",
            (),
            "A static quorum, as comma-separated id@host:port of each controller.",
            Addresses(with_id=True),
            HIGH,
        )
    )
    controller_quorum_bootstrap_servers = listing(
        "controller.quorum.bootstrap.servers",
        (),
        "Controllers, as host:port, from which a node discovers the quorum.",
        Addresses(with_id=False),
        HIGH,
    )
    controller_quorum_auto_join_enable = boolean(
        "controller.quorum.auto.join.enable",
        False,
        "Whether a controller that is not a voter joins the voters automatically.",
        importance=LOW,
    )
    controller_quorum_append_linger_ms = integer(
        "controller.quorum.append.linger.ms",
        25,
        "How long the quorum's leader collects records before it writes them.",
        NOT_NEGATIVE,
        served=False,
    )
    controller_quorum_election_backoff_max_ms = integer(
        "controller.quorum.election.backoff.max.ms",
        1000,
        "The maximum backoff after an election without a winner.",
        NOT_NEGATIVE,
        HIGH,
    )
    controller_quorum_election_timeout_ms = integer(
        "controller.quorum.election.timeout.ms",
        1000,
        "How long a candidate waits for votes before it tries again.",
        NOT_NEGATIVE,
        HIGH,
    )
    controller_quorum_fetch_max_bytes = integer(
        "controller.quorum.fetch.max.bytes",
        1_048_576,
        "The maximum bytes of one fetch from the metadata log.",
        POSITIVE,
        LOW,
    )
    controller_quorum_fetch_snapshot_max_bytes = integer(
        "controller.quorum.fetch.snapshot.max.bytes",
        1_048_576,
        "The maximum bytes of one fetch from a metadata snapshot.",
        POSITIVE,
        LOW,
    )
    controller_quorum_fetch_timeout_ms = integer(
        "controller.quorum.fetch.timeout.ms",
        2000,
        "How long a voter goes without a successful fetch before it starts an election.",
        NOT_NEGATIVE,
        HIGH,
    )
    controller_quorum_request_timeout_ms = integer(
        "controller.quorum.request.timeout.ms",
        2000,
        "How long a node of the quorum waits for a response from another.",
        NOT_NEGATIVE,
    )
    controller_quorum_retry_backoff_ms = integer(
        "controller.quorum.retry.backoff.ms",
        20,
        "The backoff before a request to a quorum node is retried.",
        NOT_NEGATIVE,
        LOW,
    )
    controller_performance_always_log_threshold_ms = long(
        "controller.performance.always.log.threshold.ms",
        2000,
        "Controller events slower than this are always logged.",
        NOT_NEGATIVE,
        internal=True,
        served=False,
    )
    controller_performance_sample_period_ms = long(
        "controller.performance.sample.period.ms",
        60_000,
        "How often the controller's event times are summarized.",
        AtLeast(100),
        internal=True,
        served=False,
    )
    controller_socket_timeout_ms = integer(
        "controller.socket.timeout.ms",
        30_000,
        "How long a node waits on its connection to the controller.",
    )
    metadata_log_dir: Setting[str] = derived(
        string(
            "metadata.log.dir",
            None,
            "The directory of the metadata log; by default the first of log.dirs.",
            importance=HIGH,
        )
    )
    metadata_log_max_record_bytes_between_snapshots = long(
        "metadata.log.max.record.bytes.between.snapshots",
        20_971_520,
        "A metadata snapshot is written after this many bytes of new records.",
        POSITIVE,
        HIGH,
    )
    metadata_log_max_snapshot_interval_ms = long(
        "metadata.log.max.snapshot.interval.ms",
        3_600_000,
        "A metadata snapshot is written at least this often while there are changes; 0 disables this.",
        NOT_NEGATIVE,
        HIGH,
    )
    metadata_log_segment_bytes = integer(
        "metadata.log.segment.bytes",
        1_073_741_824,
        "The size at which the metadata log starts a new segment.",
        AtLeast(8_388_608),
        HIGH,
    )
    metadata_log_segment_ms = long(
        "metadata.log.segment.ms",
        604_800_000,
        "The age at which the metadata log starts a new segment.",
        importance=HIGH,
    )
    metadata_max_idle_interval_ms = integer(
        "metadata.max.idle.interval.ms",
        500,
        "How often the active controller writes a no-op record when idle; 0 never.",
        NOT_NEGATIVE,
        LOW,
    )
    metadata_max_retention_bytes = long(
        "metadata.max.retention.bytes",
        104_857_600,
        "How many bytes of metadata log and snapshots are kept.",
        importance=HIGH,
    )
    metadata_max_retention_ms = long(
        "metadata.max.retention.ms",
        604_800_000,
        "How long metadata log segments and snapshots are kept.",
        importance=HIGH,
    )
    internal_metadata_delete_delay_millis = long(
        "internal.metadata.delete.delay.millis",
        60_000,
        "How long a deleted metadata segment stays on the disk.",
        importance=LOW,
        internal=True,
        served=False,
    )
    internal_metadata_log_segment_bytes = integer(
        "internal.metadata.log.segment.bytes",
        None,
        "The metadata log's segment size in Apache Kafka's own tests.",
        importance=LOW,
        internal=True,
        served=False,
    )
    internal_metadata_max_batch_size_in_bytes = integer(
        "internal.metadata.max.batch.size.in.bytes",
        8_388_608,
        "The largest batch of metadata records.",
        importance=LOW,
        internal=True,
        served=False,
    )
    unstable_api_versions_enable = boolean(
        "unstable.api.versions.enable",
        False,
        "Whether unstable API versions are served.",
        importance=HIGH,
        internal=True,
    )
    unstable_feature_versions_enable = boolean(
        "unstable.feature.versions.enable",
        False,
        "Whether unstable feature versions may be used.",
        importance=HIGH,
        internal=True,
    )
    create_topic_policy_class_name = class_name(
        "create.topic.policy.class.name",
        None,
        "A Java class that may reject new topics.",
        importance=LOW,
        served=False,
    )
    alter_config_policy_class_name = class_name(
        "alter.config.policy.class.name",
        None,
        "A Java class that may reject changes of settings.",
        importance=LOW,
        served=False,
    )
    config_providers = listing(
        "config.providers",
        (),
        "The names of the providers for ${...} in the other settings of the node's file.",
        LIST,
        LOW,
        CLUSTER_WIDE,
    )
    metric_reporters = listing(
        "metric.reporters",
        ("org.apache.kafka.common.metrics.JmxReporter",),
        "Java classes that report metrics.",
        LIST,
        LOW,
        CLUSTER_WIDE,
        served=False,
    )
    kafka_metrics_reporters = listing(
        "kafka.metrics.reporters",
        (),
        "Java classes that report Kafka's older (Yammer) metrics.",
        LIST,
        LOW,
        served=False,
    )
    kafka_metrics_polling_interval_secs = integer(
        "kafka.metrics.polling.interval.secs",
        10,
        "The polling interval of kafka.metrics.reporters.",
        POSITIVE,
        LOW,
        served=False,
    )
    metrics_num_samples = integer(
        "metrics.num.samples", 2, "The number of windows over which a metric is measured.", POSITIVE, LOW, served=False
    )
    metrics_recording_level = string(
        "metrics.recording.level",
        "INFO",
        "The level of detail of metrics: INFO, DEBUG or TRACE.",
        importance=LOW,
        served=False,
    )
    metrics_sample_window_ms = long(
        "metrics.sample.window.ms", 30_000, "The length of one window of a metric.", POSITIVE, LOW, served=False
    )
    telemetry_max_bytes = integer(
        "telemetry.max.bytes",
        1_048_576,
        "The maximum bytes of one metrics push from a client.",
        POSITIVE,
        LOW,
    )
