"""Creates internal topics of Kafka Streams applications when a heartbeat finds them missing (KIP-1071).

Rules:
- A topic gets the configs of the application's topology, as if the client had created it, and the node's defaults for
  the rest.
- A heartbeat does not wait for its topics, as in Apache Kafka: a controller that is away must not cost the member its
  session.
- After a failure a topic is not retried for two heartbeat intervals; meanwhile heartbeats report the error.
- A topic that is already being created is not requested again.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import TYPE_CHECKING

from ottla.group.topology.configuration import Status
from ottla.group.topology.topology import InternalTopic
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.error_message import words
from ottla.kernel.ids import INTERNAL_TOPICS
from ottla.kernel.topic_name import is_legal_name
from ottla.wire.api.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.wire.api.streams_group_heartbeat import StreamsGroupHeartbeatResponse, Topology

if TYPE_CHECKING:
    from ottla.broker.controllers.controllers import Controllers
    from ottla.kernel.ports import Clock

#: Constants in Apache Kafka, not settings.
_FAILURES_MAX = 1_000
_FAILURES_SHOWN = 3
_BACKOFF_HEARTBEATS = 2
#: About a millisecond.
_NAMES_PER_STEP = 1000


class InternalTopics:
    """Topics being created for applications, and recent failures. The node's group coordinators own one."""

    def __init__(self, clock: Clock, controllers: Controllers) -> None:
        self._clock = clock
        self._controllers = controllers
        self._under_way: set[str] = set()
        #: Topic name -> (why its creation failed, until when that failure counts).
        self._failures: dict[str, tuple[str, int]] = {}

    def make(self, topics: Sequence[InternalTopic], response: StreamsGroupHeartbeatResponse) -> None:
        """Create the topics that may be tried now, and add the recent failures of all of them to the response."""
        now_ms = self._clock.monotonic_ms()
        self._failures = {name: known for name, known in self._failures.items() if known[1] > now_ms}
        wanted = [topic for topic in topics if topic.name not in self._under_way and topic.name not in self._failures]
        if wanted:
            self._create(wanted, _BACKOFF_HEARTBEATS * response.heartbeat_interval_ms)
        failed = [(topic.name, self._failures[topic.name][0]) for topic in topics if topic.name in self._failures]
        if failed:
            _report_failures(response, failed)

    def _create(self, topics: Sequence[InternalTopic], backoff_ms: int) -> None:
        names = {topic.name for topic in topics}
        self._under_way |= names

        def on_created(answer: CreateTopicsResponse | KafkaError) -> None:
            self._under_way -= names
            self._record(names, answer, self._clock.monotonic_ms() + backoff_ms)

        self._controllers.ask(_request(topics), on_created)

    def _record(self, names: set[str], answer: CreateTopicsResponse | KafkaError, until_ms: int) -> None:
        if isinstance(answer, KafkaError):
            failed = dict.fromkeys(names, words(answer))
        else:
            failed = {
                topic.name: topic.error_message or ErrorCode.of(topic.error_code).name
                for topic in answer.topics
                if topic.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
            }
        for name, why in failed.items():
            if len(self._failures) >= _FAILURES_MAX:
                # Drop the failure that expires first.
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


def checked_names(topology: Topology) -> Generator[None, None, list[str]]:
    """All topics that a topology names, each once. STREAMS_INVALID_TOPOLOGY if a topology may not name one of them.

    In steps: a client sends as many as it likes.
    """
    names: dict[str, None] = {}
    prohibited: list[str] = []
    illegal: list[str] = []
    for number, name in enumerate(_names(topology), 1):
        if name not in names:
            names[name] = None
            if name in INTERNAL_TOPICS:
                prohibited.append(name)
            elif not is_legal_name(name):
                illegal.append(name)
        if not number % _NAMES_PER_STEP:
            yield
    if prohibited:
        text = f"Use of Kafka internal topics {','.join(prohibited)} in a Kafka Streams topology is prohibited."
        raise KafkaError(ErrorCode.STREAMS_INVALID_TOPOLOGY, text)
    if illegal:
        text = f"Topic names {','.join(illegal)} are not valid topic names."
        raise KafkaError(ErrorCode.STREAMS_INVALID_TOPOLOGY, text)
    return list(names)


def _names(topology: Topology) -> Iterator[str]:
    for subtopology in topology.subtopologies:
        yield from subtopology.source_topics
        yield from subtopology.repartition_sink_topics
        for topics in (subtopology.repartition_source_topics, subtopology.state_changelog_topics):
            yield from (topic.name for topic in topics)


def report_denied(response: StreamsGroupHeartbeatResponse, names: Sequence[str]) -> None:
    """Tell a member which of its missing internal topics it may not create."""
    _report(response, f"Unauthorized to CREATE on topics {', '.join(names)}.")


def _report_failures(response: StreamsGroupHeartbeatResponse, failed: Sequence[tuple[str, str]]) -> None:
    text = ", ".join(f"{name} ({why})" for name, why in failed[:_FAILURES_SHOWN])
    if len(failed) > _FAILURES_SHOWN:
        text += f" and {len(failed) - _FAILURES_SHOWN} more"
    _report(response, f"Creation failed: {text}.")


def _report(response: StreamsGroupHeartbeatResponse, text: str) -> None:
    """Say more about the missing topics, where the coordinator says that they are missing."""
    for status in response.status or ():
        if status.status_code == Status.MISSING_INTERNAL_TOPICS:
            status.status_detail += f"; {text}"
