"""Quotas of users, clients and addresses (KIP-13, 124, 599, 612), and replication rates (KIP-73).

The names are Kafka's, with underscores for users and dots for nodes. Without a quota there is no limit.
"""

from __future__ import annotations

from ottla.kernel.validators import INT_MAX, LONG_MAX, NOT_NEGATIVE
from ottla.settings.schema import CLUSTER_WIDE, MEDIUM, Settings, double, integer, long


class UserQuotas(Settings):
    """Quotas of a user, a client id, or both."""

    kind = "quota"

    producer_byte_rate = long("producer_byte_rate", LONG_MAX, "Bytes per second that a node accepts from producers.")
    consumer_byte_rate = long("consumer_byte_rate", LONG_MAX, "Bytes per second that a node sends to consumers.")
    request_percentage = double("request_percentage", float(INT_MAX), "The request time as a percentage of one thread.")
    controller_mutation_rate = double(
        "controller_mutation_rate", float(INT_MAX), "Partitions created, added or deleted per second."
    )


class AddressQuotas(Settings):
    """Quotas of an address."""

    kind = "quota"

    connection_creation_rate = integer(
        "connection_creation_rate", INT_MAX, "New connections per second that a node accepts.", NOT_NEGATIVE
    )


class ReplicationRates(Settings):
    """The byte rates of throttled replicas and of moves between directories; only set dynamically."""

    kind = "replication rate"

    leader_replication_throttled_rate = long(
        "leader.replication.throttled.rate",
        LONG_MAX,
        "Bytes per second that a leader sends to throttled replicas.",
        NOT_NEGATIVE,
        MEDIUM,
        CLUSTER_WIDE,
    )
    follower_replication_throttled_rate = long(
        "follower.replication.throttled.rate",
        LONG_MAX,
        "Bytes per second that throttled replicas fetch.",
        NOT_NEGATIVE,
        MEDIUM,
        CLUSTER_WIDE,
    )
    replica_alter_log_dirs_io_max_bytes_per_second = long(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        LONG_MAX,
        "Bytes per second of moves between log directories.",
        NOT_NEGATIVE,
        MEDIUM,
        CLUSTER_WIDE,
    )
