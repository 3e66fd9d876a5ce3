"""The share coordinators' APIs for other brokers (keys 83 to 87, KIP-932).

Rules:
- A request may name many share partitions; each goes to the coordinator that holds its state, and fails alone.
- A request without a group or partitions gets an empty response, as in Apache Kafka.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from ottla.broker.call.handler import Call, handles
from ottla.broker.call.reply import Later, Reply
from ottla.kernel.error import KafkaError
from ottla.share import answer
from ottla.wire.api import ApiKey


def _error_response(request: Any, version: int, error: KafkaError) -> Any:
    return answer.merged(request, [answer.failure(request, key, error) for key, _ in answer.split(request)])


@handles(ApiKey.INITIALIZE_SHARE_GROUP_STATE, error_response=_error_response)
@handles(ApiKey.READ_SHARE_GROUP_STATE, error_response=_error_response)
@handles(ApiKey.WRITE_SHARE_GROUP_STATE, error_response=_error_response)
@handles(ApiKey.DELETE_SHARE_GROUP_STATE, error_response=_error_response)
@handles(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, error_response=_error_response)
def share_state(call: Call, request: Any) -> Reply:
    """Pass each part to its coordinator; after the last answer, respond in the order of the request."""
    parts = answer.split(request)
    if not request.group_id or not all(topic.partitions for topic in request.topics):
        parts = []
    answers: list[Any] = [None] * len(parts)
    left = len(parts)
    later = Later()

    def answered(index: int, response: Any) -> None:
        nonlocal left
        key, part = parts[index]
        answers[index] = answer.failure(part, key, response) if isinstance(response, KafkaError) else response
        left -= 1
        if not left:
            later.resolve(answer.merged(request, answers))

    for index, (key, part) in enumerate(parts):
        try:
            driver = call.node.share_states.driver_of(key.text)
        except KafkaError as error:
            answered(index, error)
        else:
            driver.ask(part, call.version, partial(answered, index))
    return later if parts else answer.merged(request, [])
