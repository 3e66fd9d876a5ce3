"""The share coordinators' APIs for other brokers (keys 83 to 87, KIP-932).

Rules:
- A request may name many share partitions; each goes to the coordinator that holds its state, and fails alone.
- A request without a group or partitions gets an empty response, as in Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import Any

from ottla.broker.call.handler import Call, handles
from ottla.broker.call.reply import Later, Reply, in_turns
from ottla.kernel.error import KafkaError
from ottla.kernel.ids import Uuid
from ottla.share import answer
from ottla.share.state import SharePartitionKey
from ottla.wire.api import ApiKey

#: About a millisecond.
_PARTS_PER_STEP = 25


def _error_response(request: Any, version: int, error: KafkaError) -> Any:
    return answer.failed(request, error)


@handles(ApiKey.INITIALIZE_SHARE_GROUP_STATE, error_response=_error_response)
@handles(ApiKey.READ_SHARE_GROUP_STATE, error_response=_error_response)
@handles(ApiKey.WRITE_SHARE_GROUP_STATE, error_response=_error_response)
@handles(ApiKey.DELETE_SHARE_GROUP_STATE, error_response=_error_response)
@handles(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, error_response=_error_response)
def share_state(call: Call, request: Any) -> Reply:
    """Pass each part to its coordinator; after the last answer, respond in the order of the request."""
    return in_turns(call.connection, _ask_in_steps(call, request))


def _ask_in_steps(call: Call, request: Any) -> Generator[None, None, Reply]:
    if not request.group_id or not all(topic.partitions for topic in request.topics):
        return answer.merged(request, {})
    results: dict[Uuid, list[Any]] = {}
    later = Later()
    # The parts that are not answered, and one more until all are asked.
    left = 1

    def answered(of_topic: list[Any], index: int, key: SharePartitionKey, part: Any, response: Any) -> None:
        whole = answer.failure(part, key, response) if isinstance(response, KafkaError) else response
        of_topic[index] = whole.results[0].partitions[0]
        arrived()

    def arrived() -> None:
        nonlocal left
        left -= 1
        if not left:
            later.resolve(answer.merged(request, results))

    for number, (key, part) in enumerate(answer.split(request), 1):
        of_topic = results.setdefault(key.topic_id, [])
        of_topic.append(None)
        left += 1
        done = partial(answered, of_topic, len(of_topic) - 1, key, part)
        try:
            driver = call.node.share_states.driver_of(key.text)
        except KafkaError as error:
            done(error)
        else:
            driver.ask(part, call.version, done)
        if not number % _PARTS_PER_STEP:
            yield
    arrived()
    return later
