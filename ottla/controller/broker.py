"""How nodes come and go: ControllerRegistration (key 70), BrokerRegistration (key 62), UnregisterBroker (key 64).

Rules:
- A new incarnation of a broker is registered fenced; its epoch is the offset of its first record.
- Unfencing it and giving it its partitions go together: nobody sees a broker that serves and leads nothing.
- A broker must run every feature at its finalized level.

KIPs: 631 registration, 858 directories, 919 controllers, 966 clean stops.
"""

from __future__ import annotations

from typing import Any

from ottla.controller.decision import Decision
from ottla.controller.election import take_over
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import Uuid
from ottla.metadata.feature import DIRECTORIES_FROM
from ottla.metadata.image import METADATA_VERSION, NO_LEADER, Image
from ottla.wire.api.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from ottla.wire.api.controller_registration import ControllerRegistrationRequest, ControllerRegistrationResponse
from ottla.wire.api.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from ottla.wire.record.metadata import (
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnregisterBrokerRecord,
)
from ottla.wire.record.registration import BrokerEndpoint, BrokerFeature, ControllerEndpoint, ControllerFeature

#: The first hundred ids are Kafka's own (DirectoryId).
_RESERVED_BELOW = 100
_UNFENCE = -1


def register_controller(request: ControllerRegistrationRequest) -> Decision:
    """A controller tells where it is and what it can run."""
    record = RegisterControllerRecord(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        end_points=[
            ControllerEndpoint(name=each.name, host=each.host, port=each.port, security_protocol=each.security_protocol)
            for each in request.listeners
        ],
        features=[
            ControllerFeature(
                name=each.name,
                min_supported_version=each.min_supported_version,
                max_supported_version=each.max_supported_version,
            )
            for each in request.features
        ],
    )
    return Decision([record], ControllerRegistrationResponse(error_message=None))


def register_broker(image: Image, cluster_id: str, request: BrokerRegistrationRequest, next_offset: int) -> Decision:
    """A broker's new incarnation. `next_offset` is where its record will stand."""
    if request.cluster_id != cluster_id:
        raise KafkaError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"Expected cluster ID {cluster_id}, but got cluster ID {request.cluster_id}",
        )
    if request.is_migrating_zk_broker:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, "Controller does not support registering ZK brokers.")
    if image.metadata_version >= DIRECTORIES_FROM:
        _check_directories(image, request)
    _check_features(image, request)
    existing = image.brokers.get(request.broker_id)
    same = existing is not None and existing.incarnation_id == request.incarnation_id
    record = RegisterBrokerRecord(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        broker_epoch=existing.epoch if same and existing else next_offset,
        end_points=[
            BrokerEndpoint(name=each.name, host=each.host, port=each.port, security_protocol=each.security_protocol)
            for each in request.listeners
        ],
        features=[
            BrokerFeature(
                name=each.name,
                min_supported_version=each.min_supported_version,
                max_supported_version=each.max_supported_version,
            )
            for each in request.features
        ],
        rack=request.rack,
    )
    if image.metadata_version >= DIRECTORIES_FROM:
        record.log_dirs = list(request.log_dirs)
    if same and existing:
        record.fenced, record.in_controlled_shutdown = existing.fenced, existing.in_controlled_shutdown
    return Decision([record], BrokerRegistrationResponse(broker_epoch=record.broker_epoch))


def unfence(image: Image, broker_id: int, *, crashed: bool) -> list[Any]:
    """The records that let a registered broker serve. `crashed`: its last incarnation did not stop cleanly."""
    broker = image.brokers[broker_id]
    change = BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=broker.epoch, fenced=_UNFENCE)
    return [change, *take_over(image, broker_id, crashed=crashed)]


def unregister_broker(image: Image, node_id: int, request: UnregisterBrokerRequest) -> Decision:
    """Forget a broker that will not come back; what it led has no leader any more.

    This node is refused: Apache Kafka takes it, and the broker is then of no use until it is started again.
    """
    broker = image.brokers.get(request.broker_id)
    if broker is None:
        why = f"Broker ID {request.broker_id} is not currently registered"
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, why)
    if request.broker_id == node_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker {node_id} is the node that you ask; stop it first")
    records: list[Any] = [
        PartitionChangeRecord(topic_id=topic.topic_id, partition_id=index, leader=NO_LEADER)
        for topic in image.topics.values()
        for index, partition in enumerate(topic.partitions)
        if partition.leader == request.broker_id
    ]
    records.append(UnregisterBrokerRecord(broker_id=request.broker_id, broker_epoch=broker.epoch))
    return Decision(records, UnregisterBrokerResponse(error_message=None))


def check_broker_epoch(image: Image, broker_id: int, broker_epoch: int) -> None:
    """STALE_BROKER_EPOCH unless the broker is registered with this epoch."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"No broker registration found for broker id {broker_id}")
    if broker.epoch != broker_epoch:
        raise KafkaError(
            ErrorCode.STALE_BROKER_EPOCH, f"Expected broker epoch {broker.epoch}, but got broker epoch {broker_epoch}"
        )


def _check_directories(image: Image, request: BrokerRegistrationRequest) -> None:
    own = list(request.log_dirs)
    if not own:
        raise _invalid("No directories specified in request")
    if any(int.from_bytes(directory) < _RESERVED_BELOW for directory in own):
        raise _invalid("Reserved directory ID in request")
    if len(set(own)) != len(own):
        raise _invalid("Duplicate directory ID in request")
    for broker in image.brokers.values():
        shared = [directory for directory in own if Uuid(directory) in broker.log_dirs]
        if broker.broker_id != request.broker_id and shared:
            raise _invalid(f"Broker {broker.broker_id} is already registered with directory {shared[0]!r}")


def _check_features(image: Image, request: BrokerRegistrationRequest) -> None:
    ranges = {each.name: (each.min_supported_version, each.max_supported_version) for each in request.features}
    if METADATA_VERSION not in ranges:
        raise _invalid(f"Request features do not contain '{METADATA_VERSION}'")
    for name in {**ranges, **image.features}:
        level = image.features.get(name, 0)
        low, high = ranges.get(name, (0, 0))
        if not low <= level <= high:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Unable to register because the broker does not support finalized version {level} of {name}. The "
                f"broker wants a version between {low} and {high}, inclusive.",
            )


def _invalid(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REGISTRATION, why)
