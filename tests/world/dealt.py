"""Settings of nodes, topics and clients that a seed deals: each history has other times and limits.

What a node does rarely with one set of settings it does all the time with another: small fetches split batches, short
intervals snapshot and roll, long ones leave a follower behind. Nothing is dealt that breaks a promise.
"""

from __future__ import annotations

from random import Random

from ottla.kernel.named import NamedTuple

Table = dict[str, tuple[str, ...]]

_CHOICES: Table = {
    # Elections and fencing.
    "broker.session.timeout.ms": ("3000", "9000"),
    "broker.heartbeat.interval.ms": ("1000", "1500"),
    "controller.quorum.election.timeout.ms": ("500", "1000", "3000"),
    "controller.quorum.election.backoff.max.ms": ("100", "1000", "3000"),
    "controller.quorum.fetch.timeout.ms": ("1000", "2000", "5000"),
    # The metadata log.
    "metadata.max.idle.interval.ms": ("0", "500", "5000"),
    "metadata.log.max.record.bytes.between.snapshots": ("3000", "20000"),
    "metadata.log.max.snapshot.interval.ms": ("60000", "3600000"),
    "metadata.log.segment.ms": ("15000", "604800000"),
    # Replication.
    "min.insync.replicas": ("1", "2"),
    "replica.lag.time.max.ms": ("3000", "10000", "30000"),
    "replica.fetch.wait.max.ms": ("500", "1000", "2000"),
    "replica.fetch.backoff.ms": ("50", "200", "1000"),
    "replica.fetch.max.bytes": ("1", "300", "1048576"),
    "replica.fetch.response.max.bytes": ("1", "1000", "10485760"),
    "replica.socket.timeout.ms": ("3500", "30000"),
    "num.replica.fetchers": ("1", "2"),
    # Logs and their checkpoints.
    "log.roll.ms": ("9000", "60000", "604800000"),
    "log.index.interval.bytes": ("1", "4096"),
    "log.message.timestamp.type": ("CreateTime", "LogAppendTime"),
    "compression.type": ("producer", "gzip", "snappy"),
    "replica.high.watermark.checkpoint.interval.ms": ("500", "5000", "60000"),
    "log.flush.offset.checkpoint.interval.ms": ("1000", "60000"),
    # Reads and coordinators.
    "fetch.max.bytes": ("1024", "57671680"),
    "offsets.load.buffer.size": ("1000", "5242880"),
    "group.coordinator.append.linger.ms": ("0", "5", "100"),
}


#: The settings that matter to replicas, coordinators and groups. Names that belong together have values together.
_NODES: Table = {
    # Without power failures, an acknowledgement promises nothing about the disk.
    "log.flush.interval.messages": ("1", "3", "100"),
    "log.flush.interval.ms": ("100", "2000"),
    "log.dirs": ("/data", "/data,/other"),
    "log.segment.delete.delay.ms": ("0", "1000", "60000"),
    "log.index.size.max.bytes": ("16", "400", "10485760"),
    "log.cleaner.backoff.ms log.cleaner.min.cleanable.ratio": ("500 0", "3000 0.2", "15000 0.5"),
    "auto.leader.rebalance.enable leader.imbalance.check.interval.seconds": ("true 3", "true 20", "false 300"),
    "replica.selector.class": ("org.apache.kafka.common.replica.RackAwareReplicaSelector",),
    "max.incremental.fetch.session.cache.slots": ("0", "1", "3"),
    "connections.max.idle.ms": ("9000", "600000"),
    "queued.max.request.bytes socket.request.max.bytes": ("20000 20000", "-1 104857600"),
    "max.request.partition.size.limit": ("1", "2", "2000"),
    "num.partitions": ("1", "2", "5"),
    # Coordinators.
    "offsets.topic.num.partitions": ("1", "3", "7"),
    "offsets.topic.segment.bytes": ("1048576", "104857600"),
    "offsets.commit.timeout.ms": ("1000", "5000"),
    "transaction.state.log.num.partitions": ("1", "3", "7"),
    "transaction.state.log.min.isr": ("1", "2"),
    "transaction.state.log.segment.bytes": ("1048576", "104857600"),
    "transaction.max.timeout.ms": ("15000", "900000"),
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": ("500", "10000"),
    "transactional.id.expiration.ms transaction.remove.expired.transaction.cleanup.interval.ms": (
        "5000 1000",
        "20000 5000",
    ),
    "share.coordinator.state.topic.num.partitions": ("1", "3", "7"),
    "share.coordinator.state.topic.segment.bytes": ("1048576", "104857600"),
    "share.coordinator.snapshot.update.records.per.snapshot": ("0", "1", "10", "500"),
    "share.coordinator.cold.partition.snapshot.interval.ms": ("3000", "300000"),
    "share.coordinator.state.topic.prune.interval.ms": ("2000", "300000"),
    # Groups.
    "group.initial.rebalance.delay.ms": ("500", "3000"),
    "group.consumer.session.timeout.ms group.consumer.min.session.timeout.ms": ("6000 6000", "20000 6000"),
    "group.consumer.heartbeat.interval.ms group.consumer.min.heartbeat.interval.ms": ("300 300", "3000 1000"),
    "group.consumer.assignment.interval.ms": ("0", "300", "5000"),
    "group.consumer.assignors": ("range", "range,uniform"),
    "group.share.session.timeout.ms group.share.min.session.timeout.ms": ("6000 6000", "45000 45000"),
    "group.share.heartbeat.interval.ms group.share.min.heartbeat.interval.ms": ("500 500", "2000 1000"),
    "group.share.assignment.interval.ms": ("0", "300", "5000"),
    "group.share.partition.max.record.locks": ("100", "4000"),
    "group.share.initialize.retry.interval.ms": ("1000", "30000"),
}

#: The settings of topics that the clients write.
_TOPICS: Table = {
    "internal.segment.bytes": ("200", "1000", "10000"),
    "max.message.bytes": ("250", "600"),
    "min.insync.replicas": ("1", "2"),
    "compression.type": ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
    "message.timestamp.type": ("CreateTime", "LogAppendTime"),
}
#: What clients are slowed down by, in bytes per second or as the share of a thread.
_QUOTAS: Table = {
    "producer_byte_rate": ("4000", "20000"),
    "consumer_byte_rate": ("20000", "100000"),
    "request_percentage": ("5", "50"),
    "controller_mutation_rate": ("1", "10"),
}
_CLIENTS: Table = {
    "metadata.max.age.ms": ("500", "3000", "300000"),
    "connections.max.idle.ms": ("500", "5000", "540000"),
    "reconnect.backoff.max.ms": ("50", "5000"),
    "retry.backoff.ms": ("0", "20", "500"),
    # Consumers read from the replica in their rack, if the nodes' hand has replica.selector.class.
    "client.rack": ("rack1", "rack2"),
}
_PRODUCERS = _CLIENTS | {
    "compression.type": ("gzip", "snappy", "lz4", "zstd"),
    "linger.ms": ("0", "50", "500"),
    "batch.size": ("0", "100", "300"),
    "max.in.flight.requests.per.connection": ("1", "2"),
    "buffer.memory": ("2000", "33554432"),
    "max.request.size": ("500", "1048576"),
}
_FETCHES: Table = {
    "fetch.min.bytes": ("300", "100000"),
    "fetch.max.wait.ms": ("100", "3000"),
    "fetch.max.bytes": ("1", "500"),
    "max.partition.fetch.bytes": ("0", "1", "200"),
    "max.poll.records": ("5", "500"),
    "check.crcs": ("true", "false"),
}
_CONSUMERS = (
    _CLIENTS
    | _FETCHES
    | {
        "isolation.level": ("read_uncommitted", "read_committed"),
        "max.poll.interval.ms": ("3000", "300000"),
    }
)
_CLASSIC: Table = {
    "partition.assignment.strategy": (
        "range",
        "roundrobin",
        "sticky",
        "cooperative-sticky",
        "cooperative-sticky,range",
    ),
    "heartbeat.interval.ms": ("300", "2000"),
}
_COMMITS: Table = {
    "enable.auto.commit auto.commit.interval.ms": ("true 50", "true 1000", "false 5000"),
}
_SHARERS = (
    _CLIENTS
    | _FETCHES
    | {
        "share.acknowledgement.mode": ("implicit", "explicit"),
        "share.acquire.mode": ("batch_optimized", "record_limit"),
    }
)
_GROUPS: Table = {
    # A record is given up after so many deliveries: none may be, so a short lock has many.
    "share.record.lock.duration.ms share.delivery.count.limit": ("3000 10", "15000 5", "15000 10"),
    "share.partition.max.record.locks": ("100", "2000"),
    "share.renew.acknowledge.enable": ("true", "false"),
}


class Hands(NamedTuple):
    """What a seed deals to one history."""

    nodes: dict[str, str]
    topics: dict[str, str]
    quotas: dict[str, float]
    group: dict[str, str]
    #: Are the topics of moved records compacted? Then each record has a key of its own.
    compacts: bool
    #: Does the share group take the moved records of a transaction, once it is committed?
    shares_moved: bool
    #: Are the movers static members?
    is_static: bool


def hands(seed: int, *, power: bool) -> Hands:
    """Deal settings to a history of replicas, transactions and groups. `power`: the power may fail."""
    nodes = dealt(seed) | _deal(f"{seed} nodes", _NODES, 0.3)
    if power:
        nodes |= {"log.flush.interval.messages": "1"}
    quotas = {name: float(value) for name, value in _deal(f"{seed} quotas", _QUOTAS, 0.15).items()}
    rng = Random(f"{seed} kinds")
    return Hands(
        nodes,
        _deal(f"{seed} topics", _TOPICS, 0.25),
        quotas,
        _deal(f"{seed} group", _GROUPS, 0.5),
        rng.random() < 0.25,
        rng.random() < 0.25,
        rng.random() < 0.25,
    )


def producer(seed: int, name: str) -> dict[str, str]:
    """Settings of a producer."""
    return _deal(f"{seed} {name} producer", _PRODUCERS, 0.25)


def consumer(seed: int, name: str, protocol: str) -> dict[str, str]:
    """Settings of a consumer; `protocol` is its group's."""
    return _deal(f"{seed} {name} consumer", _CONSUMERS | (_CLASSIC if protocol == "classic" else {}), 0.25)


def reader(seed: int, name: str) -> dict[str, str]:
    """Settings of the only member of a group of either protocol, which may commit automatically, too."""
    protocol = Random(f"{seed} {name}").choice(("classic", "consumer"))
    commits = _deal(f"{seed} {name} commits", _COMMITS, 0.5)
    return consumer(seed, name, protocol) | commits | {"group.protocol": protocol}


def watcher(seed: int, name: str) -> dict[str, str]:
    """Settings of a consumer without a group."""
    return _deal(f"{seed} {name} watcher", _CLIENTS | _FETCHES, 0.25)


def sharer(seed: int, name: str) -> dict[str, str]:
    """Settings of a member of a share group."""
    return _deal(f"{seed} {name} sharer", _SHARERS, 0.25)


def dealt(seed: int) -> dict[str, str]:
    """Half of the settings, each with one of its values. The others are the profile's own."""
    rng = Random(f"{seed} settings")
    return {name: rng.choice(values) for name, values in _CHOICES.items() if rng.random() < 0.5}


def _deal(seed: str, table: Table, chance: float) -> dict[str, str]:
    rng = Random(seed)
    found: dict[str, str] = {}
    for names, values in table.items():
        if rng.random() < chance:
            found |= dict(zip(names.split(), rng.choice(values).split(), strict=True))
    return found
