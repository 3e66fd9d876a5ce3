"""The internal topics of Kafka Streams' applications: made when a heartbeat finds them missing (KIP-1071).

Rules:
- They are made in the client's name, as it would make them itself: with the configs that its topology says, and the
  node's defaults for the rest.
- A topic that could not be made is not tried again for two heartbeats; meanwhile heartbeats are told why.
- A topic that is being made is not asked for twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ottla.group.topology.configuration import Status
from ottla.group.topology.topology import InternalTopic
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.error_message import words
from ottla.wire.api.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.wire.api.streams_group_heartbeat import StreamsGroupHeartbeatResponse

if TYPE_CHECKING:
    from ottla.broker.controllers.controllers import Controllers
    from ottla.kernel.ports import Clock

#: Apache Kafka's numbers, not settings.
_FAILURES_MAX = 1_000
_FAILURES_TOLD = 3
_BACKOFF_HEARTBEATS = 2


class InternalTopics:
    """What the node is making for applications, and what it could not make. The node's groups own one."""

    def __init__(self, clock: Clock, controllers: Controllers) -> None:
        self._clock = clock
        self._controllers = controllers
        self._under_way: set[str] = set()
        #: Why a topic could not be made, and until when that counts.
        self._failures: dict[str, tuple[str, int]] = {}

    def make(
        self, topics: Sequence[InternalTopic], response: StreamsGroupHeartbeatResponse, then: Callable[[], None]
    ) -> None:
        """Make the topics that can be made; `then` is called when the response says what could not."""
        now_ms = self._clock.monotonic_ms()
        self._failures = {name: known for name, known in self._failures.items() if known[1] > now_ms}
        wanted = [topic for topic in topics if topic.name not in self._under_way and topic.name not in self._failures]
        until_ms = now_ms + _BACKOFF_HEARTBEATS * response.heartbeat_interval_ms

        def told() -> None:
            failed = [(topic.name, self._failures[topic.name][0]) for topic in topics if topic.name in self._failures]
            if failed:
                _tell(response, failed)
            then()

        if not wanted:
            return told()
        names = {topic.name for topic in wanted}
        self._under_way |= names

        def made(answer: CreateTopicsResponse | KafkaError) -> None:
            self._under_way -= names
            self._note(names, answer, until_ms)
            told()

        self._controllers.ask(_request(wanted), made)
        return None

    def _note(self, names: set[str], answer: CreateTopicsResponse | KafkaError, until_ms: int) -> None:
        if isinstance(answer, KafkaError):
            failed = dict.fromkeys(names, words(answer))
        else:
            failed = {
                topic.name: topic.error_message or ErrorCode(topic.error_code).name
                for topic in answer.topics
                if topic.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
            }
        for name, why in failed.items():
            if len(self._failures) >= _FAILURES_MAX:
                # The one that counts the shortest time still.
                del self._failures[min(self._failures, key=lambda known: self._failures[known][1])]
            self._failures[name] = why, until_ms


def _request(topics: Sequence[InternalTopic]) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=topic.name,
                num_partitions=topic.partitions,
                replication_factor=topic.replication_factor or -1,
                configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs],
            )
            for topic in topics
        ]
    )


def _tell(response: StreamsGroupHeartbeatResponse, failed: Sequence[tuple[str, str]]) -> None:
    text = ", ".join(f"{name} ({why})" for name, why in failed[:_FAILURES_TOLD])
    if len(failed) > _FAILURES_TOLD:
        text += f" and {len(failed) - _FAILURES_TOLD} more"
    for status in response.status or ():
        if status.status_code == Status.MISSING_INTERNAL_TOPICS:
            status.status_detail += f"; Creation failed: {text}."
