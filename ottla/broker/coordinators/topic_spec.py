"""Specs of topics that the node creates itself: its internal topics, and topics created by a Metadata request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.settings.schema import SettingSource
from ottla.wire.api.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsResponse

if TYPE_CHECKING:
    from ottla.broker.runtime import Runtime
    from ottla.settings.server.settings import ServerSettings


def new_topic(
    name: str, partitions: int = -1, configs: Mapping[str, str] | None = None, replicas: int = -1
) -> CreatableTopic:
    """The spec of a new topic; -1 stands for the controller's default."""
    entries = [CreatableTopicConfig(name=key, value=text) for key, text in (configs or {}).items()]
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas, configs=entries)


def missing_topic(name: str, settings: ServerSettings) -> CreatableTopic:
    """A topic that a client's Metadata request creates: as this node's file has it, or else as the controller's."""

    def own(setting: str, value: int) -> int:
        return -1 if settings.source_of(setting) is SettingSource.DEFAULT else value

    replicas = own("default.replication.factor", settings.default_replication_factor)
    return new_topic(name, own("num.partitions", settings.num_partitions), replicas=replicas)


def internal_replicas(runtime: Runtime, name: str, value: int) -> int:
    """The replication factor of an internal topic whose setting `name` has this value.

    Kafka's default of three does not bind a single-broker cluster, which could never create the topic.
    """
    by_default = runtime.settings.source_of(name) is SettingSource.DEFAULT
    return 1 if by_default and len(runtime.image.brokers) <= 1 else value


def errors_of(response: CreateTopicsResponse) -> dict[str, KafkaError]:
    """Topic name -> the error that prevented its creation."""
    return {
        topic.name: KafkaError(ErrorCode.of(topic.error_code), topic.error_message or "")
        for topic in response.topics
        if topic.error_code
    }
