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
        "What this node is: broker, controller or both.",
        ListOf("broker", "controller", empty=False),
        HIGH,
    )
    node_id: Setting[int] = integer(
        "node.id", REQUIRED, "The number of this node; no other node of the cluster has it.", NOT_NEGATIVE, HIGH
    )
    broker_id = integer(
        "broker.id", -1, "The old name of node.id; when both are given they must be equal.", importance=HIGH
    )
    broker_rack = string(
        "broker.rack", None, "Where this node stands (a rack, a zone): replicas of one partition are kept apart by it."
    )
    broker_heartbeat_interval_ms = integer(
        "broker.heartbeat.interval.ms", 2000, "How often a broker tells the controller that it is alive."
    )
    broker_session_timeout_ms = integer(
        "broker.session.timeout.ms",
        9000,
        "How long the controller waits for a broker's heartbeat before it fences it.",
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
        "controlled.shutdown.enable", True, "Whether a stopping broker hands its partitions over first."
    )
    controller_listener_names: Setting[tuple[str, ...]] = listing(
        "controller.listener.names",
        REQUIRED,
        "The listeners that controllers serve each other and the brokers on; the first one is the one in use.",
        FULL_LIST,
        HIGH,
    )
    controller_quorum_voters: Setting[tuple[VoterAddress, ...]] = derived(
        listing(
            "controller.quorum.voters",
            (),
            "A fixed quorum, as id@host:port of each controller, separated by commas.",
            Addresses(with_id=True),
            HIGH,
        )
    )
    controller_quorum_bootstrap_servers = listing(
        "controller.quorum.bootstrap.servers",
        (),
        "Controllers, as host:port, that a node asks where the quorum is.",
        Addresses(with_id=False),
        HIGH,
    )
    controller_quorum_auto_join_enable = boolean(
        "controller.quorum.auto.join.enable",
        False,
        "Whether a controller that is not a voter asks to become one.",
        importance=LOW,
    )
    controller_quorum_append_linger_ms = integer(
        "controller.quorum.append.linger.ms",
        25,
        "How long the quorum's leader gathers records before it writes them.",
        NOT_NEGATIVE,
        served=False,
    )
    controller_quorum_election_backoff_max_ms = integer(
        "controller.quorum.election.backoff.max.ms",
        1000,
        "The longest pause after an election without a winner.",
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
        "The most bytes one fetch of the metadata log brings.",
        POSITIVE,
        LOW,
    )
    controller_quorum_fetch_snapshot_max_bytes = integer(
        "controller.quorum.fetch.snapshot.max.bytes",
        1_048_576,
        "The most bytes one fetch of a metadata snapshot brings.",
        POSITIVE,
        LOW,
    )
    controller_quorum_fetch_timeout_ms = integer(
        "controller.quorum.fetch.timeout.ms",
        2000,
        "How long a voter hears nothing from its leader before it stands for election.",
        NOT_NEGATIVE,
        HIGH,
    )
    controller_quorum_request_timeout_ms = integer(
        "controller.quorum.request.timeout.ms",
        2000,
        "How long one node of the quorum waits for another's reply.",
        NOT_NEGATIVE,
    )
    controller_quorum_retry_backoff_ms = integer(
        "controller.quorum.retry.backoff.ms",
        20,
        "The pause before a request to a quorum node is sent again.",
        NOT_NEGATIVE,
        LOW,
    )
    controller_performance_always_log_threshold_ms = long(
        "controller.performance.always.log.threshold.ms",
        2000,
        "Controller events slower than this are always reported.",
        NOT_NEGATIVE,
        internal=True,
        served=False,
    )
    controller_performance_sample_period_ms = long(
        "controller.performance.sample.period.ms",
        60_000,
        "How often the controller's event times are summed up.",
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
            "Where the metadata log lives; the first of log.dirs when not given.",
            importance=HIGH,
        )
    )
    metadata_log_max_record_bytes_between_snapshots = long(
        "metadata.log.max.record.bytes.between.snapshots",
        20_971_520,
        "A snapshot of the metadata is taken when this many bytes of records are not in one.",
        POSITIVE,
        HIGH,
    )
    metadata_log_max_snapshot_interval_ms = long(
        "metadata.log.max.snapshot.interval.ms",
        3_600_000,
        "A snapshot of the metadata is taken at least this often while there are changes; 0 never by time.",
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
        "How often the active controller writes a no-op record when nothing else happens; 0 never.",
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
        "Whether versions of requests that are still being designed are served.",
        importance=HIGH,
        internal=True,
    )
    unstable_feature_versions_enable = boolean(
        "unstable.feature.versions.enable",
        False,
        "Whether feature versions that are still being designed may be used.",
        importance=HIGH,
        internal=True,
    )
    create_topic_policy_class_name = class_name(
        "create.topic.policy.class.name",
        None,
        "A Java class that may refuse a new topic.",
        importance=LOW,
        served=False,
    )
    alter_config_policy_class_name = class_name(
        "alter.config.policy.class.name",
        None,
        "A Java class that may refuse a change of settings.",
        importance=LOW,
        served=False,
    )
    config_providers = listing(
        "config.providers",
        (),
        "Names of sources that ${...} in other settings is looked up in.",
        LIST,
        LOW,
        CLUSTER_WIDE,
        served=False,
    )
    metric_reporters = listing(
        "metric.reporters",
        ("org.apache.kafka.common.metrics.JmxReporter",),
        "Java classes that metrics are reported through.",
        LIST,
        LOW,
        CLUSTER_WIDE,
        served=False,
    )
    kafka_metrics_reporters = listing(
        "kafka.metrics.reporters", (), "Java classes for the metrics of Kafka's older kind.", LIST, LOW, served=False
    )
    kafka_metrics_polling_interval_secs = integer(
        "kafka.metrics.polling.interval.secs",
        10,
        "How often the reporters of kafka.metrics.reporters look.",
        POSITIVE,
        LOW,
        served=False,
    )
    metrics_num_samples = integer(
        "metrics.num.samples", 2, "How many windows a metric is kept over.", POSITIVE, LOW, served=False
    )
    metrics_recording_level = string(
        "metrics.recording.level", "INFO", "How much is measured: INFO, DEBUG or TRACE.", importance=LOW, served=False
    )
    metrics_sample_window_ms = long(
        "metrics.sample.window.ms", 30_000, "How long one window of a metric is.", POSITIVE, LOW, served=False
    )
    telemetry_max_bytes = integer(
        "telemetry.max.bytes",
        1_048_576,
        "The most bytes of metrics that a client may push at once.",
        POSITIVE,
        LOW,
    )
