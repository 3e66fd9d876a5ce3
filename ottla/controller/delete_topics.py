"""DeleteTopics (key 20): by name and, from version 6 on, by id (KIP-516)."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ottla.controller.decision import Decision, MutationQuota, unlimited
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import NO_UUID, Uuid
from ottla.metadata.image import Image
from ottla.settings.server.settings import ServerSettings
from ottla.wire.api.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from ottla.wire.record.metadata import RemoveTopicRecord

_DISABLED_FROM = 3


def delete_topics(
    image: Image,
    settings: ServerSettings,
    request: DeleteTopicsRequest,
    version: int,
    charge: MutationQuota = unlimited,
) -> Decision:
    """Delete the topics of a request."""
    if not settings.delete_topic_enable:
        return Decision([], DeleteTopicsResponse(responses=_disabled(request, version)))
    results: list[DeletableTopicResult] = []
    names: list[str] = list(request.topic_names)
    ids: list[Uuid] = []
    for topic in request.topics:
        if topic.name is None:
            if topic.topic_id == NO_UUID:
                results.append(_failed(None, NO_UUID, "Neither topic name nor id were specified."))
            else:
                ids.append(Uuid(topic.topic_id))
        elif topic.topic_id == NO_UUID:
            names.append(topic.name)
        else:
            results.append(
                _failed(topic.name, Uuid(topic.topic_id), "You may not specify both topic name and topic id.")
            )
    deleted = _by_id(image, ids, results)
    _by_name(image, names, deleted, Counter(ids), results)
    records: list[Any] = []
    for topic_id, name in deleted.items():
        try:
            charge(len(image.topics[name].partitions))
        except KafkaError as error:
            results.append(_failed(name, topic_id, error.message, error.code))
            continue
        results.append(DeletableTopicResult(name=name, topic_id=topic_id, error_message=None))
        records.append(RemoveTopicRecord(topic_id=topic_id))
    return Decision(records, DeleteTopicsResponse(responses=results))


def _disabled(request: DeleteTopicsRequest, version: int) -> list[DeletableTopicResult]:
    code, why = ErrorCode.TOPIC_DELETION_DISABLED, "Topic deletion is disabled."
    if version < _DISABLED_FROM:
        code, why = ErrorCode.INVALID_REQUEST, "This version does not support topic deletion."
    named = [_failed(name, NO_UUID, why, code) for name in request.topic_names]
    return named + [_failed(topic.name, topic.topic_id, why, code) for topic in request.topics]


def _by_id(image: Image, ids: list[Uuid], results: list[DeletableTopicResult]) -> dict[Uuid, str]:
    deleted: dict[Uuid, str] = {}
    for topic_id, times in Counter(ids).items():
        name = image.topic_names.get(topic_id)
        if times > 1:
            results.append(_failed(None, topic_id, "Duplicate topic id."))
        elif name is None:
            why = "This server does not host this topic ID."
            results.append(_failed(None, topic_id, why, ErrorCode.UNKNOWN_TOPIC_ID))
        else:
            deleted[topic_id] = name
    return deleted


def _by_name(
    image: Image,
    names: list[str],
    deleted: dict[Uuid, str],
    id_counts: Counter[Uuid],
    results: list[DeletableTopicResult],
) -> None:
    for name, times in Counter(names).items():
        topic = image.topics.get(name)
        if times > 1:
            results.append(_failed(name, NO_UUID, "Duplicate topic name."))
        elif topic is None:
            why = "This server does not host this topic-partition."
            results.append(_failed(name, NO_UUID, why, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        elif id_counts[topic.topic_id]:
            deleted.pop(topic.topic_id, None)
            why = "The provided topic name maps to an ID that was already supplied."
            results.append(_failed(name, topic.topic_id, why))
        else:
            deleted[topic.topic_id] = name


def _failed(
    name: str | None, topic_id: Uuid, why: str, code: ErrorCode = ErrorCode.INVALID_REQUEST
) -> DeletableTopicResult:
    return DeletableTopicResult(name=name, topic_id=topic_id, error_code=code, error_message=why)
