"""Choose the replica that a consumer should read from: the one in its rack with the longest log (KIP-392).

As Apache Kafka's RackAwareReplicaSelector does: the leader if it is in the consumer's rack or no other replica is;
otherwise the in-sync follower in that rack that has the offset and the longest log.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.replica.leader import LeaderReplica

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
#: Apache Kafka's default.
LEADER_ONLY = "org.apache.kafka.common.replica.LeaderSelector"
#: Read from the leader.
LEADER = -1


def nearest(leader: LeaderReplica, racks: Mapping[int, str | None], rack: str, offset: int) -> int:
    """The broker from which a consumer in `rack` should read `offset`; LEADER for this one."""
    if not rack or racks.get(leader.settings.broker_id) == rack:
        return LEADER
    chosen, longest = LEADER, -1
    for broker_id, progress in leader.followers.items():
        if broker_id not in leader.state.isr or broker_id not in leader.brokers or racks.get(broker_id) != rack:
            continue
        if progress.log_start_offset <= offset <= progress.end_offset and progress.end_offset > longest:
            chosen, longest = broker_id, progress.end_offset
    return chosen
