"""Which requests of a node make spans, of which batches, and when: a handler, a slot and a connection of the test's."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.call.handler import Handler
from ottla.broker.call.reply import Later
from ottla.broker.observe import spans as module
from ottla.broker.observe.spans import Spans
from ottla.broker.observe.trace_context import LOOKS_MAX
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import NO_UUID, Uuid
from ottla.log.segment.segment import Slice
from ottla.wire.api import API, ApiKey, share_fetch
from ottla.wire.api.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData, ReplicaState
from ottla.wire.api.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from tests.broker.test_spans import HEADERS, _attribute, batch, fields

_KNOWN = Uuid(b"k" * 16)


class _Scene:
    """What spans are queued, what is left of a slot's hook, and who is told that a response is sent."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        # Nothing is queued for the thread: it has no part in this.
        self.spans = Spans("http://127.0.0.1:9/v1/traces", dict, bytes)
        self.made: list[dict[str, str]] = []
        monkeypatch.setattr(self.spans, "put", lambda span, size: self.made.append(_told(span, size)))
        self.unsent: list[Any] = []
        self.call: Any = SimpleNamespace(
            node=SimpleNamespace(topic_name={_KNOWN: "known"}.get),
            client_id="c" * 100,
            client_address="::1",
            connection=SimpleNamespace(when_sent=self.unsent.append),
        )
        self.slot: Any = SimpleNamespace(on_queued=None)

    def answered(self, key: ApiKey, request: Any, reply: Any) -> list[str]:
        """The names of the spans when the response has left."""
        self.spans.answered(self.call, Handler(API[key], lambda *_: None, None), request, reply, self.slot)
        if self.slot.on_queued is not None:
            self.slot.on_queued()
        assert self.made == [], "not before it is sent"
        for sent in self.unsent:
            sent()
        return [each["name"] for each in self.made]

    def produce(self, reply: Any, *topics: TopicProduceData) -> Any:
        handler = Handler(API[ApiKey.PRODUCE], lambda call, request: reply, None)
        return self.spans.around(handler).function(self.call, ProduceRequest(topic_data=[*topics]))


def _told(data: bytes, size: int) -> dict[str, str]:
    assert size == len(data)
    span = fields(data)
    status = {"status": fields(span[15][0])[3][0].decode()} if 15 in span else {}
    return {**dict(map(_attribute, span[9])), **status, "name": span[5][0].decode()}


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Scene]:
    made = _Scene(monkeypatch)
    yield made
    made.spans.close()


def _fetched(*records: Any, topic: str = "t", topic_id: Uuid = NO_UUID) -> FetchResponse:
    parts = [PartitionData(partition_index=index, records=each) for index, each in enumerate(records)]
    return FetchResponse(responses=[FetchableTopicResponse(topic=topic, topic_id=topic_id, partitions=parts)])


TRACED, PLAIN = batch(*HEADERS), batch()


@pytest.mark.parametrize(
    ("request_", "names"),
    [
        (FetchRequest(), ["fetch t"]),
        (FetchRequest(replica_id=0), []),
        (FetchRequest(replica_state=ReplicaState(replica_id=0)), []),
        (FetchRequest(replica_id=-2), ["fetch t"]),
    ],
)
def test_a_followers_fetch_makes_no_span(scene: _Scene, request_: FetchRequest, names: list[str]) -> None:
    assert scene.answered(ApiKey.FETCH, request_, _fetched(TRACED)) == names
    assert (scene.slot.on_queued is None) is (names == [])


@pytest.mark.parametrize("key", [ApiKey.METADATA, ApiKey.PRODUCE, ApiKey.SHARE_ACKNOWLEDGE])
def test_only_what_reads_records_makes_spans_with_its_answer(scene: _Scene, key: ApiKey) -> None:
    assert scene.answered(key, None, _fetched(TRACED)) == []


@pytest.mark.parametrize("key", [ApiKey.FETCH, ApiKey.SHARE_FETCH])
@pytest.mark.parametrize(
    "reply", [_fetched(PLAIN, None), FetchResponse(), share_fetch.ShareFetchResponse(), KafkaError(ErrorCode.NONE)]
)
def test_an_answer_without_a_trace_is_not_waited_for(scene: _Scene, key: ApiKey, reply: Any) -> None:
    assert scene.answered(key, FetchRequest(), reply) == []
    assert scene.slot.on_queued is None


def test_a_share_group_s_fetch_makes_spans_by_the_ids_of_topics(scene: _Scene) -> None:
    part = share_fetch.PartitionData(partition_index=4, records=TRACED)
    topic = share_fetch.ShareFetchableTopicResponse(topic_id=_KNOWN, partitions=[part])
    names = scene.answered(ApiKey.SHARE_FETCH, None, share_fetch.ShareFetchResponse(responses=[topic]))
    assert names == ["fetch known"]


def test_each_traced_batch_has_a_span_with_its_partition_and_offset(scene: _Scene) -> None:
    reply = _fetched(PLAIN, TRACED + batch(*HEADERS, offset=7), topic="", topic_id=_KNOWN)
    reply.responses += _fetched(batch(*HEADERS, offset=3), topic="", topic_id=Uuid(b"?" * 16)).responses
    scene.answered(ApiKey.FETCH, FetchRequest(), reply)
    assert [
        (each["name"], each["messaging.destination.partition.id"], each["messaging.kafka.offset"])
        for each in scene.made
    ] == [("fetch known", "1", "0"), ("fetch known", "1", "7"), ("fetch ", "0", "3")]
    assert {(each["messaging.client.id"], each["client.address"]) for each in scene.made} == {("c" * 80, "::1")}
    assert not any("error.type" in each or "status" in each for each in scene.made)


def test_who_waited_for_the_answer_to_be_queued_still_hears_of_it(scene: _Scene) -> None:
    told: list[str] = []
    scene.slot.on_queued = lambda: told.append("queued")
    assert scene.answered(ApiKey.FETCH, FetchRequest(), _fetched(TRACED)) == ["fetch t"]
    assert told == ["queued"]


class _File:
    """A segment's file: its bytes from `start` on, or an error."""

    def __init__(self, data: bytes = b"", error: OSError | None = None) -> None:
        self.data, self.error = data, error
        self.reads: list[tuple[int, int]] = []

    def read(self, size: int, position: int) -> bytes:
        self.reads.append((size, position))
        if self.error is not None:
            raise self.error
        return self.data[position : position + size]


def test_records_that_lie_in_a_file_are_read_from_their_place(scene: _Scene) -> None:
    file = _File(b"before" + PLAIN + TRACED + batch(*HEADERS, offset=9))
    records = Slice(file, 6, len(PLAIN) + len(TRACED), 0)  # type: ignore[arg-type]
    scene.answered(ApiKey.FETCH, FetchRequest(), _fetched(records))
    # What is behind the slice is another answer's.
    assert [each["messaging.kafka.offset"] for each in scene.made] == ["0"]
    assert all(position + size <= 6 + len(records) for size, position in file.reads)


def test_a_file_that_cannot_be_read_fails_the_answer_and_not_its_spans(scene: _Scene) -> None:
    records = Slice(_File(error=OSError(5, "broken")), 0, 1000, 0)  # type: ignore[arg-type]
    assert scene.answered(ApiKey.FETCH, FetchRequest(), _fetched(TRACED, records)) == []
    # It was cut meanwhile.
    assert scene.answered(ApiKey.FETCH, FetchRequest(), _fetched(Slice(_File(), 0, 1000, 0))) == []  # type: ignore[arg-type]


# ---- appends


def _given(*records: bytes | None, topic: str = "t", topic_id: Uuid = NO_UUID) -> TopicProduceData:
    parts = [PartitionProduceData(index=index, records=each) for index, each in enumerate(records)]
    return TopicProduceData(name=topic, topic_id=topic_id, partition_data=parts)


def _wrote(*results: tuple[ErrorCode, int], topic: str = "t", topic_id: Uuid = NO_UUID) -> ProduceResponse:
    parts = [
        PartitionProduceResponse(index=index, error_code=code, base_offset=offset)
        for index, (code, offset) in enumerate(results)
    ]
    return ProduceResponse(responses=[TopicProduceResponse(name=topic, topic_id=topic_id, partition_responses=parts)])


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize(("topic", "topic_id"), [("known", NO_UUID), ("", _KNOWN)])
def test_an_append_has_its_offset_or_its_error(scene: _Scene, topic: str, topic_id: Uuid, later: bool) -> None:
    response = _wrote(
        (ErrorCode.NONE, 5), (ErrorCode.NONE, 6), (ErrorCode.CORRUPT_MESSAGE, -1), topic=topic, topic_id=topic_id
    )
    waits = Later()
    told = scene.produce(waits if later else response, _given(TRACED, PLAIN, TRACED, topic=topic, topic_id=topic_id))
    if later:
        assert scene.made == []
        waits.resolve(response)
        told = told.value
    assert told is response
    assert [
        (
            each["name"],
            each["messaging.destination.partition.id"],
            each.get("messaging.kafka.offset"),
            each.get("error.type"),
            each.get("status"),
        )
        for each in scene.made
    ] == [("append known", "0", "5", None, None), ("append known", "2", None, "CORRUPT_MESSAGE", "2")]


def test_a_request_that_fails_whole_has_spans_with_its_error(scene: _Scene) -> None:
    waits = Later()
    scene.produce(waits, _given(TRACED, TRACED))
    waits.resolve(KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    assert [each["error.type"] for each in scene.made] == ["TRANSACTIONAL_ID_AUTHORIZATION_FAILED"] * 2
    assert not any("messaging.kafka.offset" in each for each in scene.made)


def test_a_request_without_a_trace_is_passed_on_as_it_is(scene: _Scene) -> None:
    waits = Later()
    assert scene.produce(waits, _given(PLAIN, None)) is waits
    other = Handler(API[ApiKey.FETCH], lambda *_: None, None)
    assert scene.spans.around(other) is other


def test_only_the_first_partitions_of_a_request_are_looked_at(scene: _Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PARTS_MAX", 3)
    scene.produce(Later(), _given(PLAIN, PLAIN), _given(None, TRACED, topic="late"))
    waits = Later()
    scene.produce(waits, _given(PLAIN, PLAIN), _given(TRACED, TRACED, topic="late"))
    waits.resolve(ProduceResponse())
    assert [each["name"] for each in scene.made] == ["append late"]
    # And as many batches as there are looks.
    scene.made.clear()
    waits = Later()
    scene.produce(waits, _given(TRACED * (LOOKS_MAX - 1), TRACED * 2, TRACED))
    waits.resolve(ProduceResponse())
    assert [each["messaging.destination.partition.id"] for each in scene.made] == ["0"] * (LOOKS_MAX - 1) + ["1"]
