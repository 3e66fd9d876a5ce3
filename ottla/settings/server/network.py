"""Listeners, connections, requests and threads."""

from ottla.kernel.validators import (
    FULL_LIST,
    FULL_LIST_OR_NULL,
    INT_MAX,
    LIST_OR_NULL,
    NOT_NEGATIVE,
    NOT_NULL,
    POSITIVE,
    AtLeast,
    OneOf,
)
from ottla.settings.listener import Listener
from ottla.settings.schema import (
    CLUSTER_WIDE,
    HIGH,
    LOW,
    PER_BROKER,
    Setting,
    class_name,
    derived,
    integer,
    listing,
    long,
    string,
)


class NetworkDeclaration:
    """Listeners, connections, requests and threads."""

    listeners: Setting[tuple[Listener, ...]] = derived(
        listing(
            "listeners",
            ("PLAINTEXT://:9092",),
            "Where this node listens: NAME://host:port, separated by commas. No host means all addresses.",
            FULL_LIST,
            HIGH,
            PER_BROKER,
        )
    )
    advertised_listeners: Setting[tuple[Listener, ...] | None] = derived(
        listing(
            "advertised.listeners",
            None,
            "The addresses that clients are told; listeners' own when not given.",
            FULL_LIST_OR_NULL,
            HIGH,
        )
    )
    listener_security_protocol_map = string(
        "listener.security.protocol.map",
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "Which security protocol each listener name means: NAME:PROTOCOL, separated by commas.",
        importance=LOW,
        mode=PER_BROKER,
    )
    early_start_listeners = listing(
        "early.start.listeners",
        None,
        "Listeners that open before the broker has started; the controllers' when not given.",
        LIST_OR_NULL,
        HIGH,
        served=False,
    )
    inter_broker_listener_name: Setting[str] = derived(
        string(
            "inter.broker.listener.name",
            None,
            "The listener that brokers reach each other on; max.connections of the node does not hold there.",
        )
    )
    security_inter_broker_protocol = string(
        "security.inter.broker.protocol",
        "PLAINTEXT",
        "The protocol that brokers reach each other by, when no listener is named for it.",
        OneOf("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    )
    socket_listen_backlog_size = integer(
        "socket.listen.backlog.size", 50, "How many connections may wait to be accepted.", POSITIVE, served=False
    )
    socket_receive_buffer_bytes = integer(
        "socket.receive.buffer.bytes",
        102_400,
        "The receive buffer asked of the operating system for a connection; -1 leaves its own.",
        importance=HIGH,
        served=False,
    )
    socket_send_buffer_bytes = integer(
        "socket.send.buffer.bytes",
        102_400,
        "The send buffer asked of the operating system for a connection; -1 leaves its own.",
        importance=HIGH,
        served=False,
    )
    socket_request_max_bytes = integer(
        "socket.request.max.bytes",
        104_857_600,
        "The largest request in bytes; a connection that announces a larger one is closed.",
        POSITIVE,
        HIGH,
    )
    socket_connection_setup_timeout_ms = long(
        "socket.connection.setup.timeout.ms",
        10_000,
        "How long this node's own connections may take to be made the first time.",
    )
    socket_connection_setup_timeout_max_ms = long(
        "socket.connection.setup.timeout.max.ms",
        30_000,
        "How long this node's own connections may take to be made after failures.",
    )
    connections_max_idle_ms = long(
        "connections.max.idle.ms", 600_000, "A connection without requests for this long is closed; -1 never."
    )
    connections_max_reauth_ms = long(
        "connections.max.reauth.ms",
        0,
        "How long a SASL session lasts before the client must sign in again; 0 forever.",
    )
    connection_failed_authentication_delay_ms = integer(
        "connection.failed.authentication.delay.ms",
        100,
        "How long the answer to a failed sign-in is held back.",
        NOT_NEGATIVE,
        LOW,
    )
    max_connections = integer(
        "max.connections",
        INT_MAX,
        "How many connections this node takes.",
        NOT_NEGATIVE,
        mode=CLUSTER_WIDE,
    )
    max_connections_per_ip = integer(
        "max.connections.per.ip",
        INT_MAX,
        "How many connections one address may have.",
        NOT_NEGATIVE,
        mode=CLUSTER_WIDE,
    )
    max_connections_per_ip_overrides = string(
        "max.connections.per.ip.overrides",
        "",
        "Other limits for some addresses: host:count, separated by commas.",
        mode=CLUSTER_WIDE,
    )
    max_connection_creation_rate = integer(
        "max.connection.creation.rate",
        INT_MAX,
        "How many connections a second this node takes.",
        NOT_NEGATIVE,
        mode=CLUSTER_WIDE,
    )
    num_network_threads = integer(
        "num.network.threads",
        3,
        "Apache Kafka's threads for the network; this node serves all connections on one loop.",
        POSITIVE,
        HIGH,
        CLUSTER_WIDE,
        served=False,
    )
    num_io_threads = integer(
        "num.io.threads",
        8,
        "Apache Kafka's threads for requests; this node serves all requests on one loop.",
        POSITIVE,
        HIGH,
        CLUSTER_WIDE,
        served=False,
    )
    background_threads = integer(
        "background.threads",
        10,
        "Apache Kafka's threads for housekeeping; this node does that on its loop and a small pool.",
        POSITIVE,
        HIGH,
        CLUSTER_WIDE,
        served=False,
    )
    queued_max_requests = integer(
        "queued.max.requests", 500, "How many requests may wait before no more are read.", POSITIVE, HIGH, served=False
    )
    queued_max_request_bytes = long(
        "queued.max.request.bytes",
        -1,
        "How many bytes of requests may wait before no more are read; -1 does not count them.",
        served=False,
    )
    request_timeout_ms = integer(
        "request.timeout.ms",
        30_000,
        "How long this node waits for the answer to a request of its own.",
        importance=HIGH,
    )
    max_request_partition_size_limit = integer(
        "max.request.partition.size.limit",
        2000,
        "How many partitions one answer of DescribeTopicPartitions holds at most.",
        POSITIVE,
    )
    fetch_max_bytes = integer(
        "fetch.max.bytes",
        57_671_680,
        "The most bytes that one fetch brings, whatever the client asks for.",
        AtLeast(1024),
    )
    max_incremental_fetch_session_cache_slots = integer(
        "max.incremental.fetch.session.cache.slots",
        1000,
        "How many incremental fetch sessions are kept (KIP-227).",
        NOT_NEGATIVE,
    )
    fetch_purgatory_purge_interval_requests = integer(
        "fetch.purgatory.purge.interval.requests",
        1000,
        "How often Apache Kafka tidies its waiting fetches; this node forgets them at once.",
        served=False,
    )
    producer_purgatory_purge_interval_requests = integer(
        "producer.purgatory.purge.interval.requests",
        1000,
        "How often Apache Kafka tidies its waiting produce requests; this node forgets them at once.",
        served=False,
    )
    delete_records_purgatory_purge_interval_requests = integer(
        "delete.records.purgatory.purge.interval.requests",
        1,
        "How often Apache Kafka tidies its waiting DeleteRecords; this node forgets them at once.",
        served=False,
    )
    share_fetch_purgatory_purge_interval_requests = integer(
        "share.fetch.purgatory.purge.interval.requests",
        1000,
        "How often Apache Kafka tidies its waiting share fetches.",
        served=False,
    )
    authorizer_class_name = string(
        "authorizer.class.name",
        "",
        "The Java class that decides what a principal may do; empty allows everything to all.",
        NOT_NULL,
        LOW,
    )
    client_quota_callback_class = class_name(
        "client.quota.callback.class",
        None,
        "A Java class that computes the quotas of clients.",
        importance=LOW,
        served=False,
    )
    quota_window_num = integer("quota.window.num", 11, "How many windows a quota is measured over.", POSITIVE, LOW)
    quota_window_size_seconds = integer(
        "quota.window.size.seconds", 1, "How long one window of a quota is.", POSITIVE, LOW
    )
    controller_quota_window_num = integer(
        "controller.quota.window.num",
        11,
        "How many windows the controller's quota is measured over.",
        POSITIVE,
        LOW,
    )
    controller_quota_window_size_seconds = integer(
        "controller.quota.window.size.seconds",
        1,
        "How long one window of the controller's quota is.",
        POSITIVE,
        LOW,
    )
