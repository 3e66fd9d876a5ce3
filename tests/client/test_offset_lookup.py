"""A look-up of offsets asks every leader that there is, and tells what is left and why."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from ottla.client.consumer.offset_lookup import EARLIEST, LATEST, OffsetLookup
from ottla.client.settings.consumer import ConsumerSettings
from ottla.kernel.client_error import NotReachable
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import TopicPartition
from ottla.wire.api.list_offsets import ListOffsetsPartitionResponse, ListOffsetsResponse, ListOffsetsTopicResponse

A0, A1, B0, B1 = (TopicPartition(topic, index) for topic in "ab" for index in (0, 1))
#: Partition -> its leader and leader epoch; b-1 has none.
LEADERS = {A0: (1, 5), A1: (2, 6), B0: (1, 7)}


class Scene:
    """`answers`: what each leader says, an error code by partition; an exception; otherwise offset 10, time 20."""

    def __init__(self, *wanted: TopicPartition, **settings: Any) -> None:
        self.answers: dict[int, Any] = {}
        self.errors: dict[str, ErrorCode] = {}
        self.left_out: set[tuple[str, int]] = set()
        self.asked: dict[int, Any] = {}
        metadata = Mock(topics={"a": None, "b": None}, errors=self.errors)
        metadata.leader.side_effect = lambda *tp: (
            SimpleNamespace(leader=LEADERS[tp][0], leader_epoch=LEADERS[tp][1]) if tp in LEADERS else None
        )
        self.cluster = Mock(metadata=metadata, node=self.node, update=AsyncMock())
        read = ConsumerSettings.read("127.0.0.1:1", {"request_timeout_ms": 77, **settings})
        times = dict(zip(wanted, (EARLIEST, LATEST, 50), strict=False))
        self.lookup = OffsetLookup(self.cluster, read, times)

    async def node(self, node_id: int) -> Any:
        async def call(request: Any, kind: type, *, timeout_ms: int) -> Any:
            assert (kind, timeout_ms, request.timeout_ms, request.replica_id) == (ListOffsetsResponse, 77, 77, -1)
            self.asked[node_id] = request
            said = self.answers.get(node_id, {})
            if isinstance(said, Exception):
                raise said
            if isinstance(said, asyncio.Event):
                await said.wait()
                said = {}
            return ListOffsetsResponse(
                topics=[
                    ListOffsetsTopicResponse(
                        name=topic.name,
                        partitions=[
                            ListOffsetsPartitionResponse(
                                partition_index=each.partition_index,
                                error_code=said.get((topic.name, each.partition_index), 0),
                                offset=10,
                                timestamp=20,
                            )
                            for each in topic.partitions
                            if (topic.name, each.partition_index) not in self.left_out
                        ],
                    )
                    for topic in request.topics
                ]
            )

        return SimpleNamespace(call=call)

    def attempt(self) -> KafkaError | NotReachable | None:
        try:
            asyncio.run(self.lookup.attempt())
        except (KafkaError, NotReachable) as error:
            return error
        return None


def test_every_leader_is_asked_once_for_its_partitions() -> None:
    scene = Scene(A0, A1, B0, isolation_level="read_committed")
    assert scene.attempt() is None
    shown = {
        node: [
            (topic.name, each.partition_index, each.current_leader_epoch, each.timestamp)
            for topic in request.topics
            for each in topic.partitions
        ]
        for node, request in scene.asked.items()
    }
    assert shown == {1: [("a", 0, 5, EARLIEST), ("b", 0, 7, 50)], 2: [("a", 1, 6, LATEST)]}
    assert scene.asked[1].isolation_level == 1
    assert (scene.lookup.found, scene.lookup.left) == (dict.fromkeys((A0, A1, B0), (10, 20)), {})
    assert not scene.cluster.update.called
    plain = Scene(A0)
    plain.attempt()
    assert plain.asked[1].isolation_level == 0


@pytest.mark.parametrize(
    ("said", "left"),
    [
        ({("a", 0): int(ErrorCode.NOT_LEADER_OR_FOLLOWER)}, [A0]),
        ({("a", 0): int(ErrorCode.UNKNOWN_SERVER_ERROR)}, [A0]),
        ({("a", 0): 9999}, [A0]),
        (KafkaError(ErrorCode.NETWORK_EXCEPTION), [A0, B0]),
        (NotReachable("b1:1 cannot be reached"), [A0, B0]),
    ],
)
def test_what_fails_for_now_is_left_and_holds_up_no_other(said: Any, left: list[TopicPartition]) -> None:
    scene = Scene(A0, A1, B0)
    scene.answers[1] = said
    failure = scene.attempt()
    assert isinstance(failure, NotReachable) or (failure is not None and failure.retriable)
    assert list(scene.lookup.left) == left
    assert A1 in scene.lookup.found
    assert scene.cluster.update.called
    scene.answers.clear()
    scene.asked.clear()
    assert scene.attempt() is None
    assert list(scene.asked) == [1], "what was found is not asked for again"


def test_a_partition_that_the_answer_lacks_is_left_and_asked_for_again() -> None:
    scene = Scene(A0, B0)
    scene.left_out = {("b", 0)}
    error = scene.attempt()
    assert isinstance(error, KafkaError)
    assert (error.code, error.retriable) == (ErrorCode.NETWORK_EXCEPTION, True)
    assert "lacks the offset of b-0" in str(error)
    assert (list(scene.lookup.found), list(scene.lookup.left)) == ([A0], [B0])
    scene.left_out.clear()
    assert scene.attempt() is None
    assert not scene.lookup.left


def test_a_log_older_than_timestamps_has_no_record_at_a_time() -> None:
    scene = Scene(A0, A1)
    scene.answers[1] = {("a", 0): int(ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT)}
    assert scene.attempt() is None
    assert scene.lookup.found == {A0: (-1, -1), A1: (10, 20)}


def test_a_broker_that_hangs_holds_up_no_other() -> None:
    async def run() -> None:
        scene = Scene(A0, A1)
        scene.answers[1] = asyncio.Event()
        found: asyncio.Queue[tuple[TopicPartition, int]] = asyncio.Queue()
        scene.lookup._on_found = lambda *each: found.put_nowait(each)
        attempt = asyncio.create_task(scene.lookup.attempt())
        assert await asyncio.wait_for(found.get(), 20) == (A1, 10)
        assert list(scene.lookup.left) == [A0]
        scene.answers[1].set()
        await attempt
        assert await found.get() == (A0, 10)

    asyncio.run(run())


@pytest.mark.parametrize("said", [{("a", 0): 29}, KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)])
def test_what_fails_for_good_ends_the_look_up(said: Any) -> None:
    scene = Scene(A0)
    scene.answers[1] = said
    error = scene.attempt()
    assert isinstance(error, KafkaError)
    assert error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert not scene.cluster.update.called


def test_a_partition_without_a_leader_is_left_unless_its_topic_has_an_error_for_good() -> None:
    scene = Scene(B1, A0)
    error = scene.attempt()
    assert isinstance(error, KafkaError)
    assert error.code is ErrorCode.LEADER_NOT_AVAILABLE
    assert list(scene.lookup.left) == [B1]
    scene.errors["b"] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    scene.asked.clear()
    error = scene.attempt()
    assert isinstance(error, KafkaError)
    assert (error.code, scene.asked) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, {})


def test_topics_that_are_not_known_are_asked_for_first() -> None:
    scene = Scene(A0, B0)
    del scene.cluster.metadata.topics["b"]
    scene.attempt()
    assert scene.cluster.update.call_args.args == ({"a", "b"},)
