"""Topics that the node makes itself: for its coordinators, and on a request for the metadata of one."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.wire.api.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsResponse


def new_topic(name: str, partitions: int = -1, configs: Mapping[str, str] | None = None) -> CreatableTopic:
    """A topic to be made, with the node's defaults where nothing is said."""
    entries = [CreatableTopicConfig(name=key, value=text) for key, text in (configs or {}).items()]
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=-1, configs=entries)


def errors_of(response: CreateTopicsResponse) -> dict[str, KafkaError]:
    """Why topics were not made, by name."""
    return {
        each.name: KafkaError(ErrorCode(each.error_code), each.error_message or "")
        for each in response.topics
        if each.error_code
    }
