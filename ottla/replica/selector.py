"""Which replica a consumer is told to read from: the one in its rack that has the most (KIP-392).

As Apache Kafka's RackAwareReplicaSelector: the leader when it is in the consumer's rack or no other is; else, of the
in-sync followers there that have what is asked for, the one with the longest log.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.replica.leader import LeaderReplica

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
#: What Apache Kafka does when none is set.
LEADER_ONLY = "org.apache.kafka.common.replica.LeaderSelector"
#: No other replica: read from the leader.
LEADER = -1


def nearest(leader: LeaderReplica, racks: Mapping[int, str | None], rack: str, offset: int) -> int:
    """The broker to read `offset` from for a consumer in `rack`; LEADER when that is this one."""
    if not rack or racks.get(leader.settings.broker_id) == rack:
        return LEADER
    chosen, most = LEADER, -1
    for broker_id, progress in leader.followers.items():
        if broker_id not in leader.state.isr or broker_id not in leader.brokers or racks.get(broker_id) != rack:
            continue
        if progress.log_start_offset <= offset <= progress.end_offset and progress.end_offset > most:
            chosen, most = broker_id, progress.end_offset
    return chosen
