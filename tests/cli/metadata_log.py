"""A metadata log of something of everything, for kafka-metadata-shell: ours and Apache's read the same file."""

from pathlib import Path
from typing import Any

from ottla.kernel.ids import Uuid
from ottla.metadata.record_version import record_version
from ottla.wire.batch import build
from ottla.wire.record import metadata as record
from ottla.wire.record.registration import (
    BrokerEndpoint,
    BrokerFeature,
    ControllerEndpoint,
    ControllerFeature,
    RegisterBrokerRecord,
    RegisterControllerRecord,
)
from ottla.wire.record.security import (
    AccessControlEntryRecord,
    DelegationTokenRecord,
    UserScramCredentialRecord,
)

_LEVEL = 30
_TIME_MS = 1_795_272_355_120


def _id(number: int) -> Uuid:
    return Uuid(bytes(range(number, number + 16)))


def _records() -> list[Any]:
    flights, gone = _id(40), _id(60)
    parts = {"user": "ann (the first)", "client-id": "e\\l"}
    return [
        record.FeatureLevelRecord(name="metadata.version", feature_level=_LEVEL),
        record.FeatureLevelRecord(name="transaction.version", feature_level=2),
        RegisterBrokerRecord(
            broker_id=1,
            incarnation_id=_id(1),
            broker_epoch=5,
            end_points=[
                BrokerEndpoint(name="SECURE", host="b", port=9094, security_protocol=3),
                BrokerEndpoint(name="PLAIN", host="b", port=9092, security_protocol=0),
            ],
            features=[
                BrokerFeature(name="metadata.version", min_supported_version=7, max_supported_version=30),
                BrokerFeature(name="group.version", min_supported_version=1, max_supported_version=1),
                BrokerFeature(name="open", min_supported_version=0, max_supported_version=32_767),
            ],
            rack="east",
            fenced=True,
            log_dirs=[_id(20), _id(21)],
            cordoned_log_dirs=[_id(21)],
        ),
        RegisterBrokerRecord(broker_id=10, incarnation_id=_id(2), broker_epoch=6, fenced=False),
        RegisterControllerRecord(
            controller_id=3,
            incarnation_id=_id(3),
            end_points=[ControllerEndpoint(name="CONTROLLER", host="c", port=9093, security_protocol=0)],
            features=[ControllerFeature(name="kraft.version", min_supported_version=0, max_supported_version=1)],
        ),
        record.TopicRecord(name="flights", topic_id=flights),
        record.PartitionRecord(
            partition_id=0,
            topic_id=flights,
            replicas=[1, 10],
            isr=[1],
            removing_replicas=[10],
            leader=1,
            leader_epoch=2,
            partition_epoch=7,
            directories=[_id(20), _id(22)],
            eligible_leader_replicas=[10],
        ),
        record.PartitionRecord(
            partition_id=1, topic_id=flights, replicas=[10], isr=[], leader=-1, leader_recovery_state=1
        ),
        record.TopicRecord(name="gone", topic_id=gone),
        record.PartitionRecord(partition_id=0, topic_id=gone, replicas=[1], isr=[1], leader=1),
        record.RemoveTopicRecord(topic_id=gone),
        record.ConfigRecord(resource_type=2, resource_name="flights", name="retention.ms", value="1000"),
        record.ConfigRecord(resource_type=4, resource_name="", name="log.retention.ms", value="7"),
        record.ConfigRecord(resource_type=4, resource_name="1", name="num.io.threads", value="3"),
        record.ConfigRecord(resource_type=16, resource_name="m", name="interval.ms", value="5"),
        record.ConfigRecord(resource_type=32, resource_name="g", name="share.auto.offset.reset", value="earliest"),
        _quota("producer_byte_rate", 1e6, **parts),
        _quota("request_percentage", 12.5, user="bob"),
        _quota("connection_creation_rate", 1e8, ip="1.2.3.4"),
        record.ProducerIdsRecord(broker_id=1, broker_epoch=5, next_producer_id=2000),
        AccessControlEntryRecord(
            id=_id(70),
            resource_type=2,
            resource_name="fl",
            pattern_type=4,
            principal="User:ann",
            host="*",
            operation=3,
            permission_type=3,
        ),
        UserScramCredentialRecord(
            name="ann", mechanism=2, salt=b"\x01\xfe", stored_key=b"s", server_key=b"k", iterations=4096
        ),
        DelegationTokenRecord(
            owner="User:ann",
            requester="User:bob",
            renewers=["User:eve", "User:dan"],
            issue_timestamp=1,
            max_timestamp=3,
            expiration_timestamp=2,
            token_id="token",
        ),
    ]


def _quota(name: str, value: float, **parts: str) -> record.ClientQuotaRecord:
    entity = [record.EntityData(entity_type=kind, entity_name=each) for kind, each in parts.items()]
    return record.ClientQuotaRecord(entity=entity, key=name, value=value)


def write(directory: Path) -> Path:
    """The file, two batches of it, in the directory of a node that nobody runs."""
    values = [record.pack(each, record_version(each, _LEVEL)) for each in _records()]
    path = directory / "__cluster_metadata-0" / "00000000000000000000.log"
    path.parent.mkdir()
    half = len(values) // 2
    batches = [(0, values[:half], 1), (half, values[half:], 2)]
    path.write_bytes(b"".join(_batch(base, some, epoch) for base, some, epoch in batches))
    return path


def _batch(base: int, values: list[bytes], epoch: int) -> bytes:
    return build([(_TIME_MS, None, value, ()) for value in values], base_offset=base, leader_epoch=epoch)
