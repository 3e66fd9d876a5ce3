"""BrokerHeartbeat (key 63): grants a broker's requested state, and fences brokers that are silent.

Rules:
- A broker is unfenced when it requests that and has read its own registration.
- A broker that requests a shutdown first loses its leaderships (controlled shutdown). It may stop when every active
  broker has read these changes. A broker that leads nothing, is fenced, or also requests fencing may stop at once.
- The controller fences one silent broker at a time. A broker in many ISRs leaves them in several steps first.
- A broker that was told to stop has no session any more, so that it can start again at once (0411).

KIPs: 631 heartbeats, 858 directories, 1066 cordoned directories.
"""

from __future__ import annotations

from enum import Enum

from ottla.controller.broker import check_broker_epoch
from ottla.controller.decision import Decision
from ottla.controller.directory import directories_cordoned, directories_offline
from ottla.controller.draft import Draft
from ottla.metadata.image import NO_LEADER, BrokerImage, Image
from ottla.metadata.index import PartitionKey
from ottla.wire.api.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from ottla.wire.record.metadata import BrokerRegistrationChangeRecord

_FENCE, _UNFENCE, _STOPPING = 1, -1, 1


class _TargetState(Enum):
    FENCED = "fenced"
    UNFENCED = "unfenced"
    #: The broker no longer leads; it waits until every active broker has read that.
    STOPPING = "stopping"
    STOPPED = "stopped"


def broker_heartbeat(draft: Draft, request: BrokerHeartbeatRequest, now_ms: int) -> Decision:
    """Renew the broker's session and grant the state it requests."""
    image, active = draft.image, draft.active
    check_broker_epoch(image, request.broker_id, request.broker_epoch)
    broker = image.brokers[request.broker_id]
    active.sessions.touch(broker.broker_id, broker.epoch, now_ms)
    state = active.state(broker)
    current, target = _current_state(draft, broker), _target_state(draft, broker, request)
    if target is not current:
        match target:
            case _TargetState.FENCED | _TargetState.STOPPED:
                fence(draft, broker)
            case _TargetState.UNFENCED:
                unfence(draft, broker)
            case _TargetState.STOPPING:
                _start_shutdown(draft, broker)
    directories_offline(draft, broker, request.offline_log_dirs)
    directories_cordoned(draft, broker, request.cordoned_log_dirs)
    amended = any(isinstance(record, BrokerRegistrationChangeRecord) for record in draft.records)
    if target is _TargetState.STOPPED:
        active.sessions.end(broker.broker_id, broker.epoch)
    state.metadata_offset = -1 if amended else request.current_metadata_offset
    if target is not _TargetState.STOPPING:
        state.shutdown_offset = -1
    elif current is not target:
        state.shutdown_offset = image.offset + len(draft.records)
    return Decision(
        draft.records,
        BrokerHeartbeatResponse(
            is_caught_up=request.current_metadata_offset >= state.registered_at,
            is_fenced=target in (_TargetState.FENCED, _TargetState.STOPPED),
            should_shut_down=target is _TargetState.STOPPED,
        ),
        atomic=False,
    )


def fence(draft: Draft, broker: BrokerImage, at_once: int | None = None) -> bool:
    """Take the broker out of every leadership and ISR, then fence it.

    With `at_once`, change at most that many partitions; return False if others remain and the broker is not yet fenced.
    """
    partitions = draft.index.in_isr(broker.broker_id)
    if at_once is not None:
        partitions = [key for key in partitions if not _is_last_replica(draft.image, key, broker.broker_id)]
    draft.update(partitions[:at_once], gone=broker.broker_id)
    if at_once is not None and len(partitions) > at_once:
        return False
    draft.records.append(
        BrokerRegistrationChangeRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch, fenced=_FENCE)
    )
    return True


def _is_last_replica(image: Image, key: PartitionKey, broker_id: int) -> bool:
    """Return True if the partition is leaderless and the broker remains as the only member of its ISR."""
    topic = image.topic(key.topic_id)
    assert topic is not None, key
    partition = topic.partitions[key.partition]
    return partition.leader == NO_LEADER and partition.isr == (broker_id,)


def unfence(draft: Draft, broker: BrokerImage) -> None:
    """Unfence the broker and elect it for the leaderless partitions that it may lead."""
    draft.records.append(
        BrokerRegistrationChangeRecord(broker_id=broker.broker_id, broker_epoch=broker.epoch, fenced=_UNFENCE)
    )
    draft.update(draft.index.leaderless(), back=broker.broker_id)


def _start_shutdown(draft: Draft, broker: BrokerImage) -> None:
    if not broker.in_controlled_shutdown:
        draft.records.append(
            BrokerRegistrationChangeRecord(
                broker_id=broker.broker_id, broker_epoch=broker.epoch, in_controlled_shutdown=_STOPPING
            )
        )
    draft.update(draft.index.in_isr(broker.broker_id), gone=broker.broker_id)


def _current_state(draft: Draft, broker: BrokerImage) -> _TargetState:
    if draft.active.is_stopping(broker):
        return _TargetState.STOPPING
    return _TargetState.FENCED if broker.fenced else _TargetState.UNFENCED


def _target_state(draft: Draft, broker: BrokerImage, request: BrokerHeartbeatRequest) -> _TargetState:
    leads = draft.index.leads(broker.broker_id)
    state = draft.active.state(broker)
    match _current_state(draft, broker):
        case _TargetState.FENCED:
            if request.want_shut_down:
                return _TargetState.STOPPED
            may_serve = request.current_metadata_offset >= state.registered_at
            return _TargetState.UNFENCED if may_serve and not request.want_fence else _TargetState.FENCED
        case _TargetState.UNFENCED:
            if request.want_shut_down:
                return _TargetState.STOPPING if leads and not request.want_fence else _TargetState.STOPPED
            return _TargetState.FENCED if request.want_fence else _TargetState.UNFENCED
    everyone_knows = state.shutdown_offset <= draft.active.lowest_offset(draft.image)
    return _TargetState.STOPPED if everyone_knows and not leads else _TargetState.STOPPING
