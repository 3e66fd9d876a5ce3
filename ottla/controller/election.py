"""Elections: ElectLeaders (key 43), and the partitions that a returning broker takes over.

Rules:
- A leader is active, and the directory of its replica is online: otherwise it would lead an empty log.
- A clean leader is in the ISR or, with KIP-966, one of the eligible leader replicas.
- A broker that returns after a crash may have lost unsynced records, so each partition that it led starts a new leader
  epoch: consumers that read past the new end detect the truncation by the epoch (KIP-101, KIP-320).

KIPs: 460 elections, 704 recovery state, 966 eligible leader replicas.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.controller.decision import Decision, message_or_none
from ottla.controller.draft import Draft
from ottla.controller.partition_change import RECOVERED, RECOVERING, ElectionKind
from ottla.controller.placement import is_offline
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import Uuid
from ottla.kernel.lazy import LazyModule
from ottla.metadata.image import NO_LEADER, Image, PartitionImage, TopicImage
from ottla.wire.record.metadata import PartitionChangeRecord

if TYPE_CHECKING:
    from ottla.wire.api import elect_leaders as elect_api
else:
    elect_api = LazyModule("ottla.wire.api.elect_leaders")

_KINDS = {0: ElectionKind.PREFERRED, 1: ElectionKind.UNCLEAN}
#: The maximum elections in one batch of a periodic check (QuorumController.MAX_ELECTIONS_PER_IMBALANCE).
AT_ONCE = 1000


def elect_leaders(draft: Draft, request: elect_api.ElectLeadersRequest) -> Decision:
    """Elect the preferred leader, or with an unclean election any replica if none is in sync."""
    if request.topic_partitions == []:
        return Decision([], elect_api.ElectLeadersResponse())
    kind = _KINDS.get(request.election_type)
    if kind is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}")
    everything = request.topic_partitions is None
    requested: list[tuple[str, list[int]]] = (
        [(name, list(range(len(topic.partitions)))) for name, topic in draft.image.topics.items()]
        if request.topic_partitions is None
        else [(topic.topic, list(topic.partitions)) for topic in request.topic_partitions]
    )
    response = elect_api.ElectLeadersResponse()
    for name, indexes in requested:
        answers = []
        for index in indexes:
            answer = elect_api.PartitionResult(partition_id=index, error_message=None)
            try:
                _elect(draft, name, index, kind)
            except KafkaError as error:
                if everything and error.code is ErrorCode.ELECTION_NOT_NEEDED:
                    continue
                answer.error_code, answer.error_message = error.code, message_or_none(error)
            answers.append(answer)
        response.replica_election_results.append(elect_api.ReplicaElectionResult(topic=name, partition_result=answers))
    return Decision(draft.records, response, atomic=False)


def _elect(draft: Draft, name: str, index: int, kind: ElectionKind) -> None:
    topic = draft.image.topics.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
    if not 0 <= index < len(topic.partitions):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}")
    partition = draft.partition(topic, index)
    if partition.leader == partition.replicas[0] or (kind is ElectionKind.UNCLEAN and partition.leader != NO_LEADER):
        raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
    if elect(draft, topic, index, kind):
        return
    if kind is ElectionKind.PREFERRED:
        raise KafkaError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available.")
    why = "Eligible topic partition leaders are not available."
    raise KafkaError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, why)


def elect(draft: Draft, topic: TopicImage, index: int, kind: ElectionKind) -> bool:
    """Run an election of this kind; return False if the partition does not change."""
    change = draft.change(topic, index)
    change.election = kind
    record = change.build()
    draft.add(topic, index, record)
    return record is not None


def elect_preferred(draft: Draft) -> None:
    """Elect preferred leaders, at most AT_ONCE."""
    for key in draft.index.unpreferred():
        if len(draft.records) >= AT_ONCE:
            return
        topic = draft.image.topic(key.topic_id)
        assert topic is not None, key
        elect(draft, topic, key.partition, ElectionKind.PREFERRED)


def elect_unclean(draft: Draft) -> None:
    """Elect any replica for leaderless partitions whose topics allow it, at most AT_ONCE."""
    for key in draft.index.leaderless():
        if len(draft.records) >= AT_ONCE:
            return
        topic = draft.image.topic(key.topic_id)
        assert topic is not None, key
        if draft.rules(topic).may_be_unclean:
            elect(draft, topic, key.partition, ElectionKind.UNCLEAN)


def clean_leaders(partition: PartitionImage) -> tuple[int, ...]:
    """Return the replicas that have every committed record, in order of preference."""
    eligible = partition.isr + partition.eligible_leader_replicas
    return tuple(replica for replica in partition.replicas if replica in eligible)


def elected(topic_id: Uuid, index: int, partition: PartitionImage, leader: int) -> PartitionChangeRecord:
    """Return the record with which `leader` starts a leader epoch."""
    record = PartitionChangeRecord(topic_id=topic_id, partition_id=index, leader=leader)
    is_sole = len(partition.replicas) == 1
    if leader not in partition.isr:
        eligible = partition.eligible_leader_replicas
        clean = leader in eligible
        record.isr = [leader]
        if eligible:
            record.eligible_leader_replicas = [replica for replica in eligible if replica != leader] if clean else []
        if partition.last_known_elr:
            record.last_known_elr = []
        if not clean and not is_sole and not partition.leader_recovery_state:
            record.leader_recovery_state = RECOVERING
    # A sole replica has no followers to truncate, so after an unclean election it is recovered at once.
    if is_sole and partition.leader_recovery_state:
        record.leader_recovery_state = RECOVERED
    return record


def take_over(image: Image, broker_id: int, *, crashed: bool) -> list[PartitionChangeRecord]:
    """Return the elections of a newly unfenced broker: leaderless partitions and, after a crash, those it led."""
    records = []
    for topic in image.topics.values():
        for index, partition in enumerate(topic.partitions):
            if is_offline(image, partition, broker_id):
                is_elected = False
            elif partition.leader == broker_id:
                is_elected = crashed
            elif partition.leader == NO_LEADER:
                # The last known leader leads again if no other replica was left (KIP-966).
                is_elected = broker_id in clean_leaders(partition) or (
                    not partition.isr
                    and not partition.eligible_leader_replicas
                    and broker_id in _last_known_leader(partition)
                )
            else:
                is_elected = False
            if is_elected:
                records.append(elected(topic.topic_id, index, partition, broker_id))
    return records


def _last_known_leader(partition: PartitionImage) -> tuple[int, ...]:
    return partition.last_known_elr or (partition.replicas if len(partition.replicas) == 1 else ())
