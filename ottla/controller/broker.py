"""Registrations: ControllerRegistration (key 70), BrokerRegistration (key 62), UnregisterBroker (key 64).

Rules:
- A new incarnation of a broker is registered fenced; its epoch is the offset of its first record.
- Unfencing a broker and electing it for its partitions are one decision: no client sees a broker that serves but leads
  nothing.
- A broker must support every feature at its finalized level.

KIPs: 631 registration, 858 directories, 919 controllers, 966 clean shutdowns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ottla.controller.decision import Decision
from ottla.controller.draft import Draft
from ottla.controller.election import take_over
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import Uuid
from ottla.kernel.lazy import LazyModule
from ottla.metadata.feature import CONTROLLER_REGISTRATIONS_FROM, DIRECTORIES_FROM, KRAFT_VERSION
from ottla.metadata.image import METADATA_VERSION, Image
from ottla.wire.api.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from ottla.wire.api.controller_registration import ControllerRegistrationRequest, ControllerRegistrationResponse
from ottla.wire.record.metadata import (
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnregisterBrokerRecord,
)
from ottla.wire.record.registration import BrokerEndpoint, BrokerFeature, ControllerEndpoint, ControllerFeature

if TYPE_CHECKING:
    from ottla.wire.api import unregister_broker as unregister
else:
    unregister = LazyModule("ottla.wire.api.unregister_broker")

#: Kafka reserves the first hundred ids (DirectoryId).
_RESERVED_BELOW = 100
_UNFENCE = -1
#: The first version of BrokerRegistration that has the broker epoch of the last clean shutdown.
_CLEAN_STOP_FROM = 3


def register_controller(image: Image, request: ControllerRegistrationRequest) -> Decision:
    """Register a controller with its endpoints and supported features."""
    if image.metadata_version < CONTROLLER_REGISTRATIONS_FROM:
        why = "The current MetadataVersion is too old to support controller registrations."
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, why)
    record = RegisterControllerRecord(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        end_points=[
            ControllerEndpoint(
                name=listener.name, host=listener.host, port=listener.port, security_protocol=listener.security_protocol
            )
            for listener in request.listeners
        ],
        features=[
            ControllerFeature(
                name=feature.name,
                min_supported_version=feature.min_supported_version,
                max_supported_version=feature.max_supported_version,
            )
            for feature in request.features
        ],
    )
    return Decision([record], ControllerRegistrationResponse(error_message=""))


def register_and_clean_up(
    draft: Draft,
    cluster_id: str,
    kraft_version: int,
    request: BrokerRegistrationRequest,
    version: int,
    now_ms: int,
) -> Decision:
    """Register a broker and clean up after its previous incarnation.

    DUPLICATE_BROKER_REGISTRATION while another incarnation is alive. An incarnation that did not shut down cleanly may
    have lost records, so it is no longer an eligible leader replica (KIP-966).
    """
    image, broker_id = draft.image, request.broker_id
    before = image.brokers.get(broker_id)
    _check_cluster(cluster_id, request)
    new = before is None or before.incarnation_id != request.incarnation_id
    is_remote = new and broker_id != draft.active.node_id
    if is_remote and before is not None and draft.active.sessions.is_alive(broker_id, before.epoch, now_ms):
        raise KafkaError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            "Another broker is registered with that broker id. If the broker was recently restarted this should "
            "self-resolve once the heartbeat manager expires the broker's session.",
        )
    decision = register_broker(image, cluster_id, request, image.offset + 1, kraft_version=kraft_version)
    if new:
        clean = version >= _CLEAN_STOP_FROM and before is not None and before.epoch == request.previous_broker_epoch
        if image.has_elr and not clean:
            draft.update(draft.index.in_isr(broker_id) + draft.index.in_elr(broker_id), crashed=broker_id)
        else:
            draft.update(draft.index.in_isr(broker_id), gone=broker_id)
    records = [*draft.records, *decision.records]
    draft.active.registered(broker_id, decision.response.broker_epoch, image.offset + len(records))
    return Decision(records, decision.response, atomic=False)


def register_broker(
    image: Image, cluster_id: str, request: BrokerRegistrationRequest, next_offset: int, *, kraft_version: int = 0
) -> Decision:
    """Register a broker's incarnation. `next_offset` is the offset that its record will get."""
    _check_cluster(cluster_id, request)
    if request.is_migrating_zk_broker:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, "Controller does not support registering ZK brokers.")
    if image.metadata_version >= DIRECTORIES_FROM:
        _check_directories(image, request)
    _check_features(image, request, kraft_version)
    existing = image.brokers.get(request.broker_id)
    same = existing is not None and existing.incarnation_id == request.incarnation_id
    record = RegisterBrokerRecord(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        broker_epoch=existing.epoch if same and existing else next_offset,
        end_points=[
            BrokerEndpoint(
                name=listener.name, host=listener.host, port=listener.port, security_protocol=listener.security_protocol
            )
            for listener in request.listeners
        ],
        features=[
            BrokerFeature(
                name=feature.name,
                min_supported_version=feature.min_supported_version,
                max_supported_version=feature.max_supported_version,
            )
            for feature in request.features
        ],
        rack=request.rack,
    )
    if image.metadata_version >= DIRECTORIES_FROM:
        record.log_dirs = list(request.log_dirs)
    if same and existing:
        record.fenced, record.in_controlled_shutdown = existing.fenced, existing.in_controlled_shutdown
    return Decision([record], BrokerRegistrationResponse(broker_epoch=record.broker_epoch))


def unfence(image: Image, broker_id: int, *, crashed: bool) -> list[Any]:
    """Return the records that unfence a broker. `crashed`: its last incarnation did not shut down cleanly."""
    broker = image.brokers[broker_id]
    change = BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=broker.epoch, fenced=_UNFENCE)
    return [change, *take_over(image, broker_id, crashed=crashed)]


def unregister_broker(draft: Draft, request: unregister.UnregisterBrokerRequest) -> Decision:
    """Unregister a broker that will not come back; other in-sync replicas take over its partitions.

    This node rejects its own id. Apache Kafka accepts it, and the broker is then unusable until it is restarted.
    """
    broker_id, node_id = request.broker_id, draft.settings.node_id
    broker = draft.image.brokers.get(broker_id)
    if broker is None:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {broker_id} is not currently registered")
    if broker_id == node_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker {node_id} is the node that you ask; stop it first")
    draft.update(draft.index.in_isr(broker_id), gone=broker_id)
    draft.update(draft.index.in_elr(broker_id), gone=broker_id)
    draft.records.append(UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=broker.epoch))
    draft.active.forget(broker_id)
    return Decision(draft.records, unregister.UnregisterBrokerResponse(error_message=""), atomic=False)


def check_broker_epoch(image: Image, broker_id: int, broker_epoch: int) -> None:
    """Raise STALE_BROKER_EPOCH unless the broker is registered with this epoch."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"No broker registration found for broker id {broker_id}")
    if broker.epoch != broker_epoch:
        raise KafkaError(
            ErrorCode.STALE_BROKER_EPOCH, f"Expected broker epoch {broker.epoch}, but got broker epoch {broker_epoch}"
        )


def _check_cluster(cluster_id: str, request: BrokerRegistrationRequest) -> None:
    if request.cluster_id != cluster_id:
        raise KafkaError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"Expected cluster ID {cluster_id}, but got cluster ID {request.cluster_id}",
        )


def _check_directories(image: Image, request: BrokerRegistrationRequest) -> None:
    log_dirs = list(request.log_dirs)
    if not log_dirs:
        raise _invalid("No directories specified in request")
    if any(int.from_bytes(directory) < _RESERVED_BELOW for directory in log_dirs):
        raise _invalid("Reserved directory ID in request")
    if len(set(log_dirs)) != len(log_dirs):
        raise _invalid("Duplicate directory ID in request")
    for broker in image.brokers.values():
        shared = [directory for directory in log_dirs if Uuid(directory) in broker.log_dirs]
        if broker.broker_id != request.broker_id and shared:
            raise _invalid(f"Broker {broker.broker_id} is already registered with directory {shared[0]!r}")


def _check_features(image: Image, request: BrokerRegistrationRequest, kraft_version: int) -> None:
    levels = {**image.features, KRAFT_VERSION: kraft_version}
    missing = dict(levels)
    for feature in request.features:
        missing.pop(feature.name, None)
        _check_level(feature.name, levels, feature.min_supported_version, feature.max_supported_version)
    if METADATA_VERSION in missing:
        raise _invalid(f"Request features do not contain '{METADATA_VERSION}'")
    for name in missing:
        _check_level(name, levels, 0, 0)


def _check_level(name: str, levels: Mapping[str, int], low: int, high: int) -> None:
    level = levels.get(name, 0)
    if not low <= level <= high:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"Unable to register because the broker does not support finalized version {level} of {name}. The "
            f"broker wants a version between {low} and {high}, inclusive.",
        )


def _invalid(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REGISTRATION, why)
