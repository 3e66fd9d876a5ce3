"""What is counted of each request: by version, by error, by topic; short and long ones alike."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from ottla.broker.call.handler import Handler
from ottla.broker.call.reply import NO_REPLY, Later
from ottla.broker.observe.requests import Requests
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import NO_UUID, Uuid
from ottla.wire.api import API, ApiKey
from ottla.wire.api import fetch as fetching
from ottla.wire.api import produce as producing
from ottla.wire.batch import HEADER_BYTES, build

_ID = Uuid(b"t" * 16)
_GONE = Uuid(b"g" * 16)
_BATCH = build([(1, b"k", b"v" * n, []) for n in range(3)])
_BAD = ErrorCode.NOT_LEADER_OR_FOLLOWER


class _Scene:
    """Requests of a node that knows one topic by its id; time stands still but for `now`."""

    def __init__(self) -> None:
        self.now = 0.0
        self.requests = Requests(lambda: self.now, {_ID: "t"}.get)
        self.turns: list[Any] = []

    def ask(
        self, key: ApiKey, request: Any, reply: Any, *, version: int = 12, long: bool = False, of: bool = True
    ) -> Any:
        def function(call: Any, request: Any) -> Any:
            self.now += 0.25
            if isinstance(reply, KafkaError):
                raise reply
            return reply

        handler = self.requests.around(Handler(API[key], function, None), has_topics=of)
        connection = SimpleNamespace(turns=SimpleNamespace(wait=self.turns.append))
        call: Any = SimpleNamespace(version=version, is_long=long, connection=connection)
        answered = handler.function(call, request)
        # A step at a time: the loop serves others in between.
        while self.turns:
            self.turns.pop(0)()
        return answered

    @property
    def counted(self) -> tuple[Counter[str], Counter[str], Counter[str]]:
        """Records and bytes in, bytes out."""
        return self.requests.messages_in, self.requests.bytes_in, self.requests.bytes_out


def _produce(*parts: tuple[str, Uuid, int, bytes | None]) -> Any:
    return producing.ProduceRequest(
        topic_data=[
            producing.TopicProduceData(
                name=name,
                topic_id=topic_id,
                partition_data=[producing.PartitionProduceData(index=index, records=records)],
            )
            for name, topic_id, index, records in parts
        ]
    )


def _produced(*parts: tuple[str, Uuid, int, ErrorCode]) -> Any:
    return producing.ProduceResponse(
        responses=[
            producing.TopicProduceResponse(
                name=name,
                topic_id=topic_id,
                partition_responses=[producing.PartitionProduceResponse(index=index, error_code=code)],
            )
            for name, topic_id, index, code in parts
        ]
    )


@pytest.mark.parametrize("long", [False, True])
def test_a_batch_that_was_written_counts_for_its_topic(long: bool) -> None:
    scene = _Scene()
    request = _produce(
        ("t", NO_UUID, 0, _BATCH),
        ("t", NO_UUID, 1, _BATCH),
        ("u", NO_UUID, 0, _BATCH),
        ("", _ID, 5, _BATCH),
        ("", _GONE, 0, _BATCH),
        ("t", NO_UUID, 2, None),
        ("t", NO_UUID, 3, _BATCH[: HEADER_BYTES - 1]),
    )
    reply = _produced(
        ("t", NO_UUID, 0, ErrorCode.NONE),
        ("t", NO_UUID, 1, _BAD),
        ("u", NO_UUID, 0, ErrorCode.NONE),
        ("", _ID, 5, ErrorCode.NONE),
        ("t", NO_UUID, 3, ErrorCode.CORRUPT_MESSAGE),
    )
    assert scene.ask(ApiKey.PRODUCE, request, reply, version=13, long=long) is reply
    size = len(_BATCH)
    assert scene.counted == ({"t": 6, "u": 3}, {"t": 2 * size, "u": size}, {})
    assert scene.requests.errors == {("Produce", _BAD.name): 1, ("Produce", "CORRUPT_MESSAGE"): 1}
    assert scene.requests.counts == {("Produce", 13): 1}


@pytest.mark.parametrize("long", [False, True])
def test_without_acks_what_was_sent_counts(long: bool) -> None:
    """There is no response that says what failed."""
    scene = _Scene()
    scene.ask(ApiKey.PRODUCE, _produce(("t", NO_UUID, 0, _BATCH)), NO_REPLY, long=long)
    assert scene.counted == ({"t": 3}, {"t": len(_BATCH)}, {})


def test_a_smallest_batch_is_a_header() -> None:
    scene = _Scene()
    scene.ask(ApiKey.PRODUCE, _produce(("t", NO_UUID, 0, _BATCH[:HEADER_BYTES])), NO_REPLY)
    assert scene.counted == ({"t": 3}, {"t": HEADER_BYTES}, {})


def test_a_long_request_is_counted_in_steps_of_two_hundred_partitions() -> None:
    scene = _Scene()
    parts = [producing.PartitionProduceData(index=n, records=_BATCH) for n in range(401)]
    request = producing.ProduceRequest(topic_data=[producing.TopicProduceData(name="t", partition_data=parts)])
    answers = [producing.PartitionProduceResponse(index=n, error_code=_BAD if n in (0, 400) else 0) for n in range(401)]
    responses = [producing.TopicProduceResponse(name="t", partition_responses=answers)]
    scene.turns = turns = _Counted()
    scene.ask(ApiKey.PRODUCE, request, producing.ProduceResponse(responses=responses), long=True)
    assert scene.counted[0] == {"t": 399 * 3}
    assert scene.requests.errors == {("Produce", _BAD.name): 2}
    # Three pieces of answers, three of batches, and the step that finds the end.
    assert turns.steps == 7


class _Counted(list[Any]):
    steps = 0

    def append(self, step: Any) -> None:
        self.steps += 1
        super().append(step)


def _fetched(version: int, *parts: tuple[str, Uuid, bytes | None, ErrorCode]) -> Any:
    return fetching.FetchResponse(
        responses=[
            fetching.FetchableTopicResponse(
                topic=name, topic_id=topic_id, partitions=[fetching.PartitionData(error_code=code, records=records)]
            )
            for name, topic_id, records, code in parts
        ]
    )


@pytest.mark.parametrize("long", [False, True])
@pytest.mark.parametrize(("version", "by_id"), [(12, False), (13, True)])
@pytest.mark.parametrize(("replica", "state"), [(-1, -1), (0, -1), (-1, 0), (7, -1), (-1, 7)])
def test_bytes_that_were_read_count_for_their_topic_or_for_the_followers(
    long: bool, version: int, by_id: bool, replica: int, state: int
) -> None:
    scene = _Scene()
    request = fetching.FetchRequest(replica_id=replica, replica_state=fetching.ReplicaState(replica_id=state))
    name, topic_id = ("", _ID) if by_id else ("t", NO_UUID)
    reply = _fetched(
        version,
        (name, topic_id, b"x" * 10, ErrorCode.NONE),
        (name, topic_id, b"y" * 7, ErrorCode.NONE),
        (name, topic_id, b"z" * 3, _BAD),
        (name, topic_id, None, ErrorCode.NONE),
        (name, topic_id, b"", ErrorCode.NONE),
        ("", _GONE if by_id else NO_UUID, None, ErrorCode.NONE),
    )
    assert scene.ask(ApiKey.FETCH, request, reply, version=version, long=long) is reply
    is_follower = replica >= 0 or state >= 0
    assert scene.counted == ({}, {}, {} if is_follower else {"t": 17})
    assert scene.requests.replication_bytes_out == (17 if is_follower else 0)
    assert scene.requests.errors == {("Fetch", _BAD.name): 1}


def test_bytes_of_a_topic_that_was_deleted_meanwhile_count_for_none() -> None:
    scene = _Scene()
    reply = _fetched(13, ("", _GONE, b"x" * 10, ErrorCode.NONE))
    scene.ask(ApiKey.FETCH, fetching.FetchRequest(), reply, version=13)
    assert scene.counted == ({}, {}, {})


@pytest.mark.parametrize("key", [ApiKey.FETCH, ApiKey.PRODUCE])
def test_a_controllers_requests_have_no_topics(key: ApiKey) -> None:
    scene = _Scene()
    reply = _fetched(12, ("t", NO_UUID, b"x", ErrorCode.NONE)) if key is ApiKey.FETCH else NO_REPLY
    request = fetching.FetchRequest() if key is ApiKey.FETCH else _produce(("t", NO_UUID, 0, _BATCH))
    scene.ask(key, request, reply, of=False)
    assert scene.counted == ({}, {}, {})
    assert sum(scene.requests.counts.values()) == 1


@pytest.mark.parametrize("way", ["raised", "later", "in the response", "none"])
def test_an_error_of_a_whole_request_is_counted_once(way: str) -> None:
    scene, later = _Scene(), Later()
    error = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if way == "raised":
        with pytest.raises(KafkaError) as raised:
            scene.ask(ApiKey.HEARTBEAT, Mock(), error, version=3)
        assert raised.value is error
    elif way == "later":
        answer = scene.ask(ApiKey.HEARTBEAT, Mock(), later, version=3)
        assert scene.requests.durations["Heartbeat"].count == 0
        scene.now += 1
        later.resolve(error)
        assert answer.value is error
        assert scene.requests.durations["Heartbeat"].sum_ms == 1250
    else:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE if way == "in the response" else ErrorCode.NONE
        scene.ask(ApiKey.HEARTBEAT, Mock(), SimpleNamespace(error_code=code), version=3)
        assert scene.requests.durations["Heartbeat"].sum_ms == 250
    assert scene.requests.counts == {("Heartbeat", 3): 1}
    assert scene.requests.errors == ({} if way == "none" else {("Heartbeat", "COORDINATOR_NOT_AVAILABLE"): 1})
    assert scene.requests.durations["Heartbeat"].count == 1


def test_the_counts_of_deleted_topics_are_dropped() -> None:
    scene = _Scene()
    for counter in scene.counted:
        counter.update(t=1, u=2, v=0)
    scene.requests.keep({"u": object(), "w": object()})
    assert scene.counted == ({"u": 2},) * 3
