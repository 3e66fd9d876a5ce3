"""The internal topics of streams groups: one request at a time for each, and a pause after a failure."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.coordinators import internal_topic
from ottla.broker.coordinators.internal_topic import InternalTopics
from ottla.group.topology.configuration import Status
from ottla.group.topology.topology import InternalTopic
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.wire.api import streams_group_heartbeat as heartbeat
from ottla.wire.api.create_topics import CreatableTopicResult, CreateTopicsResponse

INTERVAL_MS = 5_000


class Scene:
    """A controller that answers when the test says so."""

    def __init__(self) -> None:
        self.now_ms = 1_000
        self.asked: list[tuple[list[str], Any]] = []
        controllers: Any = SimpleNamespace(ask=self._ask)
        clock: Any = SimpleNamespace(monotonic_ms=lambda: self.now_ms)
        self.topics = InternalTopics(clock, controllers)

    def _ask(self, request: Any, done: Any) -> None:
        self.asked.append(([each.name for each in request.topics], done))

    def make(self, *names: str) -> heartbeat.Status:
        """Ask for these topics; the status that the member is told at once."""
        missing = heartbeat.Status(status_code=Status.MISSING_INTERNAL_TOPICS, status_detail="missing")
        response = heartbeat.StreamsGroupHeartbeatResponse(heartbeat_interval_ms=INTERVAL_MS, status=[missing])
        self.topics.make([InternalTopic(name, 1, 1, ()) for name in names], response)
        return missing

    def answer(self, *codes: ErrorCode) -> None:
        names, done = self.asked[-1]
        results = zip(names, codes, strict=True)
        done(CreateTopicsResponse(topics=[CreatableTopicResult(name=name, error_code=code) for name, code in results]))


def test_a_topic_is_asked_for_once_until_the_answer() -> None:
    scene = Scene()
    scene.make("a", "b")
    scene.make("b", "c")
    assert [names for names, _ in scene.asked] == [["a", "b"], ["c"]]
    scene.make("a")
    assert len(scene.asked) == 2, "nothing is left to ask for"
    scene.asked[0][1](CreateTopicsResponse())
    scene.make("a", "c")
    assert scene.asked[-1][0] == ["a"]


def test_a_topic_that_exists_by_now_has_not_failed() -> None:
    scene = Scene()
    scene.make("a", "b")
    scene.answer(ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.NONE)
    assert scene.make("a").status_detail == "missing"
    assert len(scene.asked) == 2


@pytest.mark.parametrize("whole", [True, False])
def test_a_topic_that_failed_is_tried_again_after_two_heartbeats(whole: bool) -> None:
    scene = Scene()
    assert scene.make("a").status_detail == "missing"
    # The answer comes late, and the next heartbeat tells the member all the same.
    scene.now_ms += 10 * INTERVAL_MS
    if whole:
        scene.asked[0][1](KafkaError(ErrorCode.NOT_CONTROLLER))
    else:
        scene.answer(ErrorCode.NOT_CONTROLLER)
    assert "failed: a (" in scene.make("a").status_detail
    scene.now_ms += 2 * INTERVAL_MS - 1
    assert "failed: a (" in scene.make("a").status_detail
    assert len(scene.asked) == 1
    scene.now_ms += 1
    assert scene.make("a").status_detail == "missing"
    assert len(scene.asked) == 2


def test_of_many_failures_the_one_that_ends_first_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(internal_topic, "_FAILURES_MAX", 2)
    scene = Scene()
    for name in ("a", "b", "c"):
        scene.make(name)
        scene.answer(ErrorCode.INVALID_CONFIG)
        scene.now_ms += 1
    scene.make("a", "b", "c")
    assert scene.asked[-1][0] == ["a"]
