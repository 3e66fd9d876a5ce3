"""The Kafka client in pure Python: `Producer`, `Consumer`, `ShareConsumer` and `Admin`, each also in an `Async` form.

Invariant: the asyncio clients do the work; a synchronous client runs the same calls on one background loop thread and
waits for them. The logic (batching, metadata, membership, sessions, transactions) is pure and takes the time as an
argument; `connection` and the clients do the I/O. Works against Ottla and Apache Kafka; never imports `ottla.broker`.

Read `connection.cluster` first, then `admin.client`, `producer.producer` and
`consumer.consumer`. Users import from here.
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
    from ottla.client.admin.result import ConfigResource as ConfigResource
    from ottla.client.admin.result import Downgrade as Downgrade
    from ottla.client.admin.result import GroupType as GroupType
    from ottla.client.admin.result import NewTopic as NewTopic
    from ottla.client.admin.result import OffsetSpec as OffsetSpec
    from ottla.client.admin.result import ResourceType as ResourceType
    from ottla.client.admin.result import Results as Results
    from ottla.client.admin.result import UncheckedErrors as UncheckedErrors
    from ottla.client.consumer.consumer import AsyncConsumer as AsyncConsumer
    from ottla.client.consumer.listener import RebalanceListener as RebalanceListener
    from ottla.client.consumer.metric import ConsumerMetrics as ConsumerMetrics
    from ottla.client.consumer.sync import Consumer as Consumer
    from ottla.client.membership.commit import CommittedOffset as CommittedOffset
    from ottla.client.membership.commit import GroupMetadata as GroupMetadata
    from ottla.client.producer.delivery import Delivery as Delivery
    from ottla.client.producer.delivery import RecordMetadata as RecordMetadata
    from ottla.client.producer.metric import ProducerMetrics as ProducerMetrics
    from ottla.client.producer.producer import AsyncProducer as AsyncProducer
    from ottla.client.producer.sync import Producer as Producer
    from ottla.client.share.consumer import AsyncShareConsumer as AsyncShareConsumer
    from ottla.client.share.sync import ShareConsumer as ShareConsumer
    from ottla.client.transaction.state import PreparedTransaction as PreparedTransaction
    from ottla.columns.record import ConsumerRecord as ConsumerRecord
    from ottla.kernel.client_error import AuthenticationFailed as AuthenticationFailed
    from ottla.kernel.client_error import BufferFull as BufferFull
    from ottla.kernel.client_error import ClientClosed as ClientClosed
    from ottla.kernel.client_error import ConcurrentTransactions as ConcurrentTransactions
    from ottla.kernel.client_error import ConnectionLost as ConnectionLost
    from ottla.kernel.client_error import Fenced as Fenced
    from ottla.kernel.client_error import InvalidProducerEpoch as InvalidProducerEpoch
    from ottla.kernel.client_error import InvalidProducerIdMapping as InvalidProducerIdMapping
    from ottla.kernel.client_error import InvalidTxnState as InvalidTxnState
    from ottla.kernel.client_error import LogTruncation as LogTruncation
    from ottla.kernel.client_error import NotReachable as NotReachable
    from ottla.kernel.client_error import ProducerFenced as ProducerFenced
    from ottla.kernel.client_error import RecordDeserializationError as RecordDeserializationError
    from ottla.kernel.client_error import RequestTimedOut as RequestTimedOut
    from ottla.kernel.client_error import TlsFailed as TlsFailed
    from ottla.kernel.client_error import TransactionAbortable as TransactionAbortable
    from ottla.kernel.client_error import TransactionAborted as TransactionAborted
    from ottla.kernel.client_error import Unsupported as Unsupported
    from ottla.kernel.error import ErrorCode as ErrorCode
    from ottla.kernel.error import KafkaError as KafkaError
    from ottla.kernel.error import OttlaError as OttlaError
    from ottla.kernel.ids import TopicPartition as TopicPartition
    from ottla.serde.serializer_avro import avro_deserializer as avro_deserializer
    from ottla.serde.serializer_avro import avro_serializer as avro_serializer
    from ottla.serde.serializer_json_schema import json_schema_deserializer as json_schema_deserializer
    from ottla.serde.serializer_json_schema import json_schema_serializer as json_schema_serializer
    from ottla.serde.serializer_protobuf import protobuf_deserializer as protobuf_deserializer
    from ottla.serde.serializer_protobuf import protobuf_serializer as protobuf_serializer

#: The module of each public name. A module is imported when one of its names is first accessed.
_HOME = {
    "avro_serializer": "ottla.serde.serializer_avro",
    "avro_deserializer": "ottla.serde.serializer_avro",
    "json_schema_serializer": "ottla.serde.serializer_json_schema",
    "json_schema_deserializer": "ottla.serde.serializer_json_schema",
    "protobuf_serializer": "ottla.serde.serializer_protobuf",
    "protobuf_deserializer": "ottla.serde.serializer_protobuf",
    "ShareRecord": "ottla.client.acknowledgement",
    "ShareConsumer": "ottla.client.share.sync",
    "ProducerMetrics": "ottla.client.producer.metric",
    "ConsumerMetrics": "ottla.client.consumer.metric",
    "AsyncShareConsumer": "ottla.client.share.consumer",
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
    "TransactionAborted": "ottla.kernel.client_error",
    "TransactionAbortable": "ottla.kernel.client_error",
    "PreparedTransaction": "ottla.client.transaction.state",
    "ProducerFenced": "ottla.kernel.client_error",
    "InvalidTxnState": "ottla.kernel.client_error",
    "InvalidProducerEpoch": "ottla.kernel.client_error",
    "GroupMetadata": "ottla.client.membership.commit",
    "Fenced": "ottla.kernel.client_error",
    "AuthenticationFailed": "ottla.kernel.client_error",
    "BufferFull": "ottla.kernel.client_error",
    "ClientClosed": "ottla.kernel.client_error",
    "ConcurrentTransactions": "ottla.kernel.client_error",
    "ConnectionLost": "ottla.kernel.client_error",
    "InvalidProducerIdMapping": "ottla.kernel.client_error",
    "LogTruncation": "ottla.kernel.client_error",
    "NotReachable": "ottla.kernel.client_error",
    "RecordDeserializationError": "ottla.kernel.client_error",
    "RequestTimedOut": "ottla.kernel.client_error",
    "TlsFailed": "ottla.kernel.client_error",
    "Unsupported": "ottla.kernel.client_error",
    "Admin": "ottla.client.admin.client",
    "AlterOperation": "ottla.client.admin.result",
    "AsyncAdmin": "ottla.client.admin.client",
    "AsyncProducer": "ottla.client.producer.producer",
    "Delivery": "ottla.client.producer.delivery",
    "Producer": "ottla.client.producer.sync",
    "RecordMetadata": "ottla.client.producer.delivery",
    "AsyncConsumer": "ottla.client.consumer.consumer",
    "Consumer": "ottla.client.consumer.sync",
    "ConsumerRecord": "ottla.columns.record",
    "RebalanceListener": "ottla.client.consumer.listener",
    "CommittedOffset": "ottla.client.membership.commit",
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
    "TopicPartition": "ottla.kernel.ids",
}

__all__ = [
    "avro_serializer",
    "avro_deserializer",
    "json_schema_serializer",
    "json_schema_deserializer",
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
    "PreparedTransaction",
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
    "LogTruncation",
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
