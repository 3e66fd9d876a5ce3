"""Settings of nodes that a seed deals: each history has other times and limits, Kafka's defaults among them.

What a node does rarely with one set of settings it does all the time with another: small fetches split batches, short
intervals snapshot and roll, long ones leave a follower behind. Nothing is dealt that breaks a promise.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

_CHOICES: Mapping[str, tuple[str, ...]] = {
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


def dealt(seed: int) -> dict[str, str]:
    """Half of the settings, each with one of its values. The others are the profile's own."""
    rng = Random(f"{seed} settings")
    return {name: rng.choice(values) for name, values in _CHOICES.items() if rng.random() < 0.5}
