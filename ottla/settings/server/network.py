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
            "The listeners of this node, as comma-separated NAME://host:port. Without a host: all addresses. Only in "
            "the file: a dynamic value is refused.",
            FULL_LIST,
            HIGH,
            PER_BROKER,
        )
    )
    advertised_listeners: Setting[tuple[Listener, ...] | None] = derived(
        listing(
            "advertised.listeners",
            None,
            "The addresses that clients get; by default those of listeners.",
            FULL_LIST_OR_NULL,
            HIGH,
        )
    )
    listener_security_protocol_map = string(
        "listener.security.protocol.map",
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "The security protocol of each listener name, as comma-separated NAME:PROTOCOL. Only in the file: a dynamic "
        "value is refused.",
        importance=LOW,
        mode=PER_BROKER,
    )
    early_start_listeners = listing(
        "early.start.listeners",
        None,
        "Listeners that open before the broker has started; by default those of controllers.",
        LIST_OR_NULL,
        HIGH,
        served=False,
    )
    inter_broker_listener_name: Setting[str] = derived(
        string(
            "inter.broker.listener.name",
            None,
            "The listener between brokers; max.connections of the node does not apply to it.",
        )
    )
    security_inter_broker_protocol = string(
        "security.inter.broker.protocol",
        "PLAINTEXT",
        "The protocol between brokers if inter.broker.listener.name is not set.",
        OneOf("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    )
    socket_listen_backlog_size = integer(
        "socket.listen.backlog.size", 50, "How many connections may wait to be accepted.", POSITIVE, served=False
    )
    socket_receive_buffer_bytes = integer(
        "socket.receive.buffer.bytes",
        102_400,
        "The receive buffer of a connection; -1 uses the operating system's default.",
        importance=HIGH,
        served=False,
    )
    socket_send_buffer_bytes = integer(
        "socket.send.buffer.bytes",
        102_400,
        "The send buffer of a connection; -1 uses the operating system's default.",
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
        "How long establishing this node's outbound connections may take at first.",
    )
    socket_connection_setup_timeout_max_ms = long(
        "socket.connection.setup.timeout.max.ms",
        30_000,
        "How long establishing this node's outbound connections may take after failures.",
    )
    connections_max_idle_ms = long(
        "connections.max.idle.ms", 600_000, "A connection that is idle for this long is closed; -1 never."
    )
    connections_max_reauth_ms = long(
        "connections.max.reauth.ms",
        0,
        "How long a SASL session lasts before the client must authenticate again; 0 forever.",
    )
    connection_failed_authentication_delay_ms = integer(
        "connection.failed.authentication.delay.ms",
        100,
        "The delay of the response to a failed authentication.",
        NOT_NEGATIVE,
        LOW,
    )
    max_connections = integer(
        "max.connections",
        INT_MAX,
        "The maximum number of connections of this node.",
        NOT_NEGATIVE,
        mode=CLUSTER_WIDE,
    )
    max_connections_per_ip = integer(
        "max.connections.per.ip",
        INT_MAX,
        "The maximum number of connections from one address.",
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
        "The maximum number of new connections per second.",
        NOT_NEGATIVE,
        mode=CLUSTER_WIDE,
    )
    num_network_threads = integer(
        "num.network.threads",
        3,
        "Apache Kafka's network threads; this node serves all connections on one event loop.",
        POSITIVE,
        HIGH,
        CLUSTER_WIDE,
        served=False,
    )
    num_io_threads = integer(
        "num.io.threads",
        8,
        "Apache Kafka's request threads; this node serves all requests on one event loop.",
        POSITIVE,
        HIGH,
        CLUSTER_WIDE,
        served=False,
    )
    background_threads = integer(
        "background.threads",
        10,
        "Apache Kafka's background threads; this node uses its event loop and a small pool.",
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
        "The most bytes that incomplete requests may take on all listeners; further ones wait. -1 means no limit.",
    )
    request_timeout_ms = integer(
        "request.timeout.ms",
        30_000,
        "How long this node waits for the response to its own requests.",
        importance=HIGH,
    )
    max_request_partition_size_limit = integer(
        "max.request.partition.size.limit",
        2000,
        "The maximum number of partitions in a DescribeTopicPartitions response.",
        POSITIVE,
    )
    fetch_max_bytes = integer(
        "fetch.max.bytes",
        57_671_680,
        "The maximum bytes of one fetch response, whatever the client requests.",
        AtLeast(1024),
    )
    max_incremental_fetch_session_cache_slots = integer(
        "max.incremental.fetch.session.cache.slots",
        1000,
        "The maximum number of incremental fetch sessions (KIP-227).",
        NOT_NEGATIVE,
    )
    fetch_purgatory_purge_interval_requests = integer(
        "fetch.purgatory.purge.interval.requests",
        1000,
        "How often Apache Kafka purges completed fetches; this node drops them at once.",
        served=False,
    )
    producer_purgatory_purge_interval_requests = integer(
        "producer.purgatory.purge.interval.requests",
        1000,
        "How often Apache Kafka purges completed produce requests; this node drops them at once.",
        served=False,
    )
    delete_records_purgatory_purge_interval_requests = integer(
        "delete.records.purgatory.purge.interval.requests",
        1,
        "How often Apache Kafka purges completed DeleteRecords requests; this node drops them at once.",
        served=False,
    )
    share_fetch_purgatory_purge_interval_requests = integer(
        "share.fetch.purgatory.purge.interval.requests",
        1000,
        "How often Apache Kafka purges completed share fetches.",
        served=False,
    )
    authorizer_class_name = string(
        "authorizer.class.name",
        "",
        "Kafka's StandardAuthorizer, or an entry point of ottla.authorizers; empty allows everyone everything.",
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
    quota_window_num = integer(
        "quota.window.num", 11, "The number of windows over which a quota is measured.", POSITIVE, LOW
    )
    quota_window_size_seconds = integer(
        "quota.window.size.seconds", 1, "The length of one window of a quota.", POSITIVE, LOW
    )
    controller_quota_window_num = integer(
        "controller.quota.window.num",
        11,
        "The number of windows over which the controller's quota is measured.",
        POSITIVE,
        LOW,
    )
    controller_quota_window_size_seconds = integer(
        "controller.quota.window.size.seconds",
        1,
        "The length of one window of the controller's quota.",
        POSITIVE,
        LOW,
    )
