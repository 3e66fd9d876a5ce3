"""The Kafka client in pure Python: `Producer`, `Consumer`, `ShareConsumer`, `Admin`, and each with `Async` before it.

Invariant: asyncio below, the synchronous clients are its calls waited for on one background loop thread. What decides
(batching, metadata, membership, sessions, transactions) is pure and gets the time as an argument; `cluster` and the
clients carry it out. Works against Ottla and Apache Kafka alike; never imports `ottla.broker`.

Read `cluster` first, then `admin.client`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.client.acknowledgement import Acknowledge as Acknowledge
    from ottla.client.acknowledgement import ShareRecord as ShareRecord
    from ottla.client.admin.acl import Acl as Acl
    from ottla.client.admin.acl import AclFilter as AclFilter
    from ottla.client.admin.acl import AclOperation as AclOperation
    from ottla.client.admin.acl import AclPermission as AclPermission
    from ottla.client.admin.acl import AclResource as AclResource
    from ottla.client.admin.acl import PatternType as PatternType
    from ottla.client.admin.client import Admin as Admin
    from ottla.client.admin.client import AsyncAdmin as AsyncAdmin
    from ottla.client.admin.credential import DelegationToken as DelegationToken
    from ottla.client.admin.credential import ScramCredential as ScramCredential
    from ottla.client.admin.credential import ScramDeletion as ScramDeletion
    from ottla.client.admin.credential import ScramMechanism as ScramMechanism
    from ottla.client.admin.quota import AnyName as AnyName
    from ottla.client.admin.quota import QuotaEntity as QuotaEntity
    from ottla.client.admin.replica import Reassignment as Reassignment
    from ottla.client.admin.replica import Replica as Replica
    from ottla.client.admin.result import AlterOperation as AlterOperation
    from ottla.client.admin.result import CommittedOffset as CommittedOffset
    from ottla.client.admin.result import ConfigResource as ConfigResource
    from ottla.client.admin.result import Downgrade as Downgrade
    from ottla.client.admin.result import GroupType as GroupType
    from ottla.client.admin.result import NewTopic as NewTopic
    from ottla.client.admin.result import OffsetSpec as OffsetSpec
    from ottla.client.admin.result import ResourceType as ResourceType
    from ottla.client.admin.result import Results as Results
    from ottla.client.admin.result import UncheckedErrors as UncheckedErrors
    from ottla.client.commit import GroupMetadata as GroupMetadata
    from ottla.client.consumer import AsyncConsumer as AsyncConsumer
    from ottla.client.consumer_metric import ConsumerMetrics as ConsumerMetrics
    from ottla.client.consumer_sync import Consumer as Consumer
    from ottla.client.delivery import Delivery as Delivery
    from ottla.client.delivery import RecordMetadata as RecordMetadata
    from ottla.client.error import AuthenticationFailed as AuthenticationFailed
    from ottla.client.error import BufferFull as BufferFull
    from ottla.client.error import ClientClosed as ClientClosed
    from ottla.client.error import ConcurrentTransactions as ConcurrentTransactions
    from ottla.client.error import ConnectionLost as ConnectionLost
    from ottla.client.error import Fenced as Fenced
    from ottla.client.error import InvalidProducerEpoch as InvalidProducerEpoch
    from ottla.client.error import InvalidProducerIdMapping as InvalidProducerIdMapping
    from ottla.client.error import InvalidTxnState as InvalidTxnState
    from ottla.client.error import NotReachable as NotReachable
    from ottla.client.error import ProducerFenced as ProducerFenced
    from ottla.client.error import RecordDeserializationError as RecordDeserializationError
    from ottla.client.error import RequestTimedOut as RequestTimedOut
    from ottla.client.error import TlsFailed as TlsFailed
    from ottla.client.error import TransactionAbortable as TransactionAbortable
    from ottla.client.error import TransactionAborted as TransactionAborted
    from ottla.client.error import Unsupported as Unsupported
    from ottla.client.listener import RebalanceListener as RebalanceListener
    from ottla.client.producer import AsyncProducer as AsyncProducer
    from ottla.client.producer_metric import ProducerMetrics as ProducerMetrics
    from ottla.client.producer_sync import Producer as Producer
    from ottla.client.record import ConsumerRecord as ConsumerRecord
    from ottla.client.serializer_avro import avro_deserializer as avro_deserializer
    from ottla.client.serializer_avro import avro_serializer as avro_serializer
    from ottla.client.serializer_protobuf import protobuf_deserializer as protobuf_deserializer
    from ottla.client.serializer_protobuf import protobuf_serializer as protobuf_serializer
    from ottla.client.share_consumer import AsyncShareConsumer as AsyncShareConsumer
    from ottla.client.share_consumer_sync import ShareConsumer as ShareConsumer
    from ottla.kernel.error import ErrorCode as ErrorCode
    from ottla.kernel.error import KafkaError as KafkaError
    from ottla.kernel.error import OttlaError as OttlaError
    from ottla.kernel.name import TopicPartition as TopicPartition

#: Where each public name lives; modules are imported when one of their names is first asked for.
_HOME = {
    "avro_serializer": "ottla.client.serializer_avro",
    "avro_deserializer": "ottla.client.serializer_avro",
    "protobuf_serializer": "ottla.client.serializer_protobuf",
    "protobuf_deserializer": "ottla.client.serializer_protobuf",
    "ShareRecord": "ottla.client.acknowledgement",
    "ShareConsumer": "ottla.client.share_consumer_sync",
    "ProducerMetrics": "ottla.client.producer_metric",
    "ConsumerMetrics": "ottla.client.consumer_metric",
    "AsyncShareConsumer": "ottla.client.share_consumer",
    "Acknowledge": "ottla.client.acknowledgement",
    "ScramMechanism": "ottla.client.admin.credential",
    "ScramDeletion": "ottla.client.admin.credential",
    "ScramCredential": "ottla.client.admin.credential",
    "Replica": "ottla.client.admin.replica",
    "Reassignment": "ottla.client.admin.replica",
    "QuotaEntity": "ottla.client.admin.quota",
    "PatternType": "ottla.client.admin.acl",
    "Downgrade": "ottla.client.admin.result",
    "DelegationToken": "ottla.client.admin.credential",
    "AnyName": "ottla.client.admin.quota",
    "AclResource": "ottla.client.admin.acl",
    "AclPermission": "ottla.client.admin.acl",
    "AclOperation": "ottla.client.admin.acl",
    "AclFilter": "ottla.client.admin.acl",
    "Acl": "ottla.client.admin.acl",
    "TransactionAborted": "ottla.client.error",
    "TransactionAbortable": "ottla.client.error",
    "ProducerFenced": "ottla.client.error",
    "InvalidTxnState": "ottla.client.error",
    "InvalidProducerEpoch": "ottla.client.error",
    "GroupMetadata": "ottla.client.commit",
    "Fenced": "ottla.client.error",
    "AuthenticationFailed": "ottla.client.error",
    "BufferFull": "ottla.client.error",
    "ClientClosed": "ottla.client.error",
    "ConcurrentTransactions": "ottla.client.error",
    "ConnectionLost": "ottla.client.error",
    "InvalidProducerIdMapping": "ottla.client.error",
    "NotReachable": "ottla.client.error",
    "RecordDeserializationError": "ottla.client.error",
    "RequestTimedOut": "ottla.client.error",
    "TlsFailed": "ottla.client.error",
    "Unsupported": "ottla.client.error",
    "Admin": "ottla.client.admin.client",
    "AlterOperation": "ottla.client.admin.result",
    "AsyncAdmin": "ottla.client.admin.client",
    "AsyncProducer": "ottla.client.producer",
    "Delivery": "ottla.client.delivery",
    "Producer": "ottla.client.producer_sync",
    "RecordMetadata": "ottla.client.delivery",
    "AsyncConsumer": "ottla.client.consumer",
    "Consumer": "ottla.client.consumer_sync",
    "ConsumerRecord": "ottla.client.record",
    "RebalanceListener": "ottla.client.listener",
    "CommittedOffset": "ottla.client.admin.result",
    "ConfigResource": "ottla.client.admin.result",
    "ErrorCode": "ottla.kernel.error",
    "GroupType": "ottla.client.admin.result",
    "KafkaError": "ottla.kernel.error",
    "NewTopic": "ottla.client.admin.result",
    "OffsetSpec": "ottla.client.admin.result",
    "OttlaError": "ottla.kernel.error",
    "ResourceType": "ottla.client.admin.result",
    "Results": "ottla.client.admin.result",
    "UncheckedErrors": "ottla.client.admin.result",
    "TopicPartition": "ottla.kernel.name",
}

__all__ = [
    "avro_serializer",
    "avro_deserializer",
    "protobuf_serializer",
    "protobuf_deserializer",
    "ShareRecord",
    "ShareConsumer",
    "ProducerMetrics",
    "ConsumerMetrics",
    "AsyncShareConsumer",
    "Acknowledge",
    "ScramMechanism",
    "ScramDeletion",
    "ScramCredential",
    "Replica",
    "Reassignment",
    "QuotaEntity",
    "PatternType",
    "Downgrade",
    "DelegationToken",
    "AnyName",
    "AclResource",
    "AclPermission",
    "AclOperation",
    "AclFilter",
    "Acl",
    "TransactionAborted",
    "TransactionAbortable",
    "ProducerFenced",
    "InvalidTxnState",
    "InvalidProducerEpoch",
    "GroupMetadata",
    "Fenced",
    "AuthenticationFailed",
    "BufferFull",
    "ClientClosed",
    "ConcurrentTransactions",
    "ConnectionLost",
    "InvalidProducerIdMapping",
    "NotReachable",
    "RecordDeserializationError",
    "RequestTimedOut",
    "TlsFailed",
    "Unsupported",
    "Admin",
    "AlterOperation",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncProducer",
    "CommittedOffset",
    "ConfigResource",
    "Consumer",
    "ConsumerRecord",
    "Delivery",
    "ErrorCode",
    "GroupType",
    "KafkaError",
    "NewTopic",
    "OffsetSpec",
    "OttlaError",
    "Producer",
    "RebalanceListener",
    "RecordMetadata",
    "ResourceType",
    "Results",
    "TopicPartition",
    "UncheckedErrors",
]


def __getattr__(name: str) -> object:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value
