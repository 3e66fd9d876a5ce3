"""Errors of a controller of a newer release, whose codes this release does not know."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from ottla.broker.coordinators.internal_topic import InternalTopics
from ottla.broker.coordinators.topic_spec import errors_of
from ottla.group.topology.configuration import Status
from ottla.group.topology.topology import InternalTopic
from ottla.kernel.error import ErrorCode
from ottla.wire.api import streams_group_heartbeat as heartbeat
from ottla.wire.api.create_topics import CreatableTopicResult, CreateTopicsResponse

ANSWER = CreateTopicsResponse(topics=[CreatableTopicResult(name="app-x-changelog", error_code=9_999)])


def test_an_unknown_error_is_reported_to_the_application() -> None:
    controllers = SimpleNamespace(ask=lambda request, done: done(ANSWER))
    topics = InternalTopics(cast(Any, SimpleNamespace(monotonic_ms=lambda: 0)), cast(Any, controllers))
    missing = heartbeat.Status(status_code=Status.MISSING_INTERNAL_TOPICS, status_detail="missing")
    response = heartbeat.StreamsGroupHeartbeatResponse(heartbeat_interval_ms=5_000, status=[missing])
    topics.make([InternalTopic("app-x-changelog", 1, 1, ())], response)
    assert missing.status_detail == "missing; Creation failed: app-x-changelog (UNKNOWN_SERVER_ERROR)."


def test_an_unknown_error_of_a_topic_is_an_unknown_server_error() -> None:
    assert errors_of(ANSWER)["app-x-changelog"].code is ErrorCode.UNKNOWN_SERVER_ERROR
