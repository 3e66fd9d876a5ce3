"""Topics that the node makes itself: for its coordinators, and on a request for the metadata of one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.settings.schema import SettingSource
from ottla.wire.api.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsResponse

if TYPE_CHECKING:
    from ottla.broker.runtime import Runtime


def new_topic(
    name: str, partitions: int = -1, configs: Mapping[str, str] | None = None, replicas: int = -1
) -> CreatableTopic:
    """A topic to be made, with the node's defaults where nothing is said."""
    entries = [CreatableTopicConfig(name=key, value=text) for key, text in (configs or {}).items()]
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas, configs=entries)


def internal_replicas(runtime: Runtime, name: str, value: int) -> int:
    """How many replicas an internal topic is made with, whose setting `name` has this value.

    Kafka's default of three does not bind the only broker of a cluster: it could never make the topic.
    """
    by_default = runtime.settings.source_of(name) is SettingSource.DEFAULT
    return 1 if by_default and len(runtime.image.brokers) <= 1 else value


def errors_of(response: CreateTopicsResponse) -> dict[str, KafkaError]:
    """Why topics were not made, by name."""
    return {
        each.name: KafkaError(ErrorCode(each.error_code), each.error_message or "")
        for each in response.topics
        if each.error_code
    }
