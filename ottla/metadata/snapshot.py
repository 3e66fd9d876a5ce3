"""Image -> records, in Kafka's order: metadata.version first, because it determines how to read the rest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ottla.kernel.ids import Uuid
from ottla.metadata.feature import (
    CONTROLLER_REGISTRATIONS_FROM,
    CORDONED_DIRECTORIES_FROM,
    DIRECTORIES_FROM,
    ELR_FROM,
    feature_records,
)
from ottla.metadata.image import BrokerImage, Image, PartitionImage
from ottla.wire.record import metadata as record
from ottla.wire.record.registration import BrokerEndpoint, BrokerFeature


def snapshot_records(image: Image) -> Iterator[Any]:
    """Yield records whose replay gives an image equal to this one, except for its offset."""
    yield from feature_records(dict(image.features))
    for broker in image.brokers.values():
        yield _broker(image, broker)
    if image.metadata_version >= CONTROLLER_REGISTRATIONS_FROM:
        yield from image.controllers.values()
    for topic in image.topics.values():
        yield record.TopicRecord(name=topic.name, topic_id=topic.topic_id)
        for index, partition in enumerate(topic.partitions):
            yield _partition(image, topic.topic_id, index, partition)
    for (kind, name), values in image.configs.items():
        for key, value in values.items():
            yield record.ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value)
    for entity, quotas in image.quotas.items():
        parts = [record.EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
        for key, number in quotas.items():
            yield record.ClientQuotaRecord(entity=list(parts), key=key, value=number)
    if image.next_producer_id >= 0:
        yield record.ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=image.next_producer_id)
    yield from image.acls.values()
    yield from image.scram.values()
    yield from image.tokens.values()


def _broker(image: Image, broker: BrokerImage) -> record.RegisterBrokerRecord:
    registration = record.RegisterBrokerRecord(
        broker_id=broker.broker_id,
        is_migrating_zk_broker=broker.is_migrating_zk_broker,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=[
            BrokerEndpoint(
                name=endpoint.name, host=endpoint.host, port=endpoint.port, security_protocol=endpoint.security_protocol
            )
            for endpoint in broker.endpoints
        ],
        features=[
            BrokerFeature(name=name, min_supported_version=low, max_supported_version=high)
            for name, low, high in broker.features
        ],
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
    )
    if image.metadata_version >= DIRECTORIES_FROM:
        registration.log_dirs = list(broker.log_dirs)
    if image.metadata_version >= CORDONED_DIRECTORIES_FROM and broker.cordoned_log_dirs is not None:
        registration.cordoned_log_dirs = list(broker.cordoned_log_dirs)
    return registration


def _partition(image: Image, topic_id: Uuid, index: int, partition: PartitionImage) -> record.PartitionRecord:
    partition_record = record.PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        removing_replicas=list(partition.removing_replicas),
        adding_replicas=list(partition.adding_replicas),
        leader=partition.leader,
        leader_recovery_state=partition.leader_recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
    )
    if image.metadata_version >= DIRECTORIES_FROM:
        partition_record.directories = list(partition.directories)
    if image.metadata_version >= ELR_FROM:
        partition_record.eligible_leader_replicas = list(partition.eligible_leader_replicas) or None
        partition_record.last_known_elr = list(partition.last_known_elr) or None
    return partition_record
