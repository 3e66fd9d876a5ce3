"""A produce request that is held for its coordinator: when it goes on, and that its connection is read again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from ottla.broker.call.reply import Later
from ottla.broker.coordinators.held_produce import Verified, hold
from ottla.broker.handlers.produce import produce
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import TopicPartition
from ottla.net.inbound import PeerError
from ottla.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.batch import build
from ottla.wire.codec import Codec
from tests.broker.table_node import called, done

_T0, _T1 = TopicPartition("t", 0), TopicPartition("t", 1)
_DEFAULTS = {
    "add_partitions_to_txn_retry_backoff_ms": 20,
    "add_partitions_to_txn_retry_backoff_max_ms": 100,
    "request_timeout_ms": 30_000,
}
_ABORTABLE, _BUSY, _RETRY = (
    ErrorCode.TRANSACTION_ABORTABLE,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NOT_ENOUGH_REPLICAS,
)


def _called(version: int) -> Any:
    """A call to a node whose metadata has the topic."""
    return called(version, image=SimpleNamespace(topics={"t": SimpleNamespace(partitions=range(300))}))


class _Scene:
    """A producer's batches for two partitions, and what its connection and coordinator are told."""

    def __init__(self, version: int = 11, *, second: int = 7, settings: dict[str, int] | None = None) -> None:
        self.told: list[str] = []
        self.questions: list[Any] = []
        self.timers: list[tuple[float, Any]] = []
        self.now = 100.0
        self.prepared = 0
        #: Partitions in which the transaction is open, or that are led elsewhere.
        self.open: set[int] = set()
        self.gone: set[int] = set()
        self.connection = SimpleNamespace(
            closed=False, pause=lambda: self.told.append("pause"), resume=lambda: self.told.append("resume")
        )
        node = SimpleNamespace(
            transactions=SimpleNamespace(
                prepare=self._prepare, verification=SimpleNamespace(ask=self.questions.append)
            ),
            settings=SimpleNamespace(**(_DEFAULTS | (settings or {}))),
            loop=SimpleNamespace(
                time=lambda: self.now, call_later=lambda seconds, do: self.timers.append((seconds, do))
            ),
        )
        self.call: Any = SimpleNamespace(version=version, connection=self.connection, node=node)
        batches = [
            build([(1, b"k", b"v", [])], producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True)
            for producer in (7, second)
        ]
        data = [PartitionProduceData(index=index, records=batch) for index, batch in enumerate(batches)]
        self.request = ProduceRequest(
            transactional_id="x", acks=-1, topic_data=[TopicProduceData(name="t", partition_data=data)]
        )

    def _prepare(self, partition: Any, *producer: int, sequence: int, implicit: bool) -> object:
        assert (producer, sequence, implicit) == ((7, 0), 0, self.call.version >= 12)
        if partition.tp.partition in self.open:
            return None
        self.prepared += 1
        return f"token {self.prepared}"

    def hold(self, go_on: Any) -> Any:
        def partition_of(call: Any, topic: Any, index: int) -> Any:
            if index in self.gone:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return SimpleNamespace(tp=TopicPartition(topic.name, index))

        return hold(self.call, self.request, partition_of, go_on)

    def held(self) -> list[Verified]:
        """Hold the request; the list has what it goes on with."""
        passed: list[Verified] = []
        self.hold(lambda verified: passed.append(dict(verified)))
        return passed

    def answer(self, *codes: ErrorCode) -> None:
        """Answer the oldest question, partition by partition."""
        question = self.questions.pop(0)
        question.done(dict(zip(question.partitions, codes, strict=True)))


def test_one_question_covers_the_partitions_of_a_request() -> None:
    scene = _Scene()
    passed = scene.held()
    (question,) = scene.questions
    assert question[:5] == ("x", 7, 0, (_T0, _T1), False)
    assert (passed, scene.told) == ([], ["pause"])
    scene.answer(ErrorCode.NONE, ErrorCode.INVALID_TXN_STATE)
    assert passed == [{_T0: ("token 1", ErrorCode.NONE), _T1: ("token 2", ErrorCode.INVALID_TXN_STATE)}]
    assert scene.told == ["pause", "resume"]


def test_a_request_waits_for_nothing_where_its_transaction_is_open() -> None:
    scene = _Scene()
    scene.open, scene.gone = {0}, {1}
    assert (scene.held(), scene.questions, scene.told) == ([{}], [], [])


def test_a_batch_without_a_producer_is_not_asked_about() -> None:
    scene = _Scene()
    (data,) = scene.request.topic_data
    for part in data.partition_data:
        part.records = build([(1, b"k", b"v", [])], transactional=True, producer_epoch=3)
    assert (scene.held(), scene.questions, scene.told) == ([{}], [], [])


def test_only_transactional_batches_are_asked_about_and_all_of_them_outlive_the_receive_buffer() -> None:
    scene = _Scene()
    (data,) = scene.request.topic_data
    plain = build([(1, b"k", b"v", [])], producer_id=8, producer_epoch=0, base_sequence=0)
    buffers = [bytearray(each) for each in (data.partition_data[0].records or b"", plain)]
    data.partition_data[0].records = memoryview(buffers[0])
    data.partition_data += [
        PartitionProduceData(index=2, records=memoryview(buffers[1])),
        PartitionProduceData(index=3, records=None),
    ]
    passed = scene.held()
    assert scene.questions[0].partitions == (_T0, _T1)
    before = [bytes(buffer) for buffer in buffers]
    for buffer in buffers:
        buffer[:] = bytes(len(buffer))
    scene.answer(ErrorCode.NONE, ErrorCode.NONE)
    assert len(passed) == 1 and data.partition_data[3].records is None
    assert [bytes(data.partition_data[index].records or b"") for index in (0, 2)] == before


def test_a_held_request_of_a_producer_that_has_left_is_not_handled() -> None:
    scene = _Scene()
    passed = scene.held()
    scene.connection.closed = True
    scene.answer(ErrorCode.NONE, ErrorCode.NONE)
    assert (passed, scene.told) == ([], ["pause"])


@pytest.mark.parametrize("fails", [False, True])
def test_a_held_request_is_answered_later_or_ends_its_connection(fails: bool) -> None:
    scene, replicas, answers = _Scene(), Later(), list[Any]()
    scene.connection.close = scene.told.append

    def go_on(verified: Verified) -> Any:
        if fails:
            raise PeerError("acks=0")
        return replicas

    scene.hold(go_on).then(answers.append)
    scene.answer(ErrorCode.NONE, ErrorCode.NONE)
    assert (answers, scene.told) == ([], ["pause", "acks=0" if fails else "resume"])
    replicas.resolve("done")
    assert answers == ([] if fails else ["done"])


@pytest.mark.parametrize(("acks", "error"), [(-1, KafkaError), (0, PeerError)])
def test_a_request_of_two_producers_is_refused(acks: int, error: type[Exception]) -> None:
    scene = _Scene(second=8)
    scene.request.acks = acks
    with pytest.raises(error) as refused:
        scene.held()
    assert getattr(refused.value, "code", None) == (ErrorCode.INVALID_PRODUCER_ID_MAPPING if acks else None)
    assert (scene.questions, scene.told) == ([], [])


def test_a_coordinator_that_still_ends_the_last_transaction_is_asked_again() -> None:
    scene = _Scene(12)
    passed = scene.held()
    for _ in range(2):
        scene.now += 0.04
        scene.answer(_BUSY, ErrorCode.NONE)
        ((seconds, ask_again),) = scene.timers
        assert (seconds, passed, scene.questions) == (0.02, [], [])
        scene.timers.clear()
        ask_again()
    # Everything is found out anew: a marker of the last transaction has ended what was prepared before it.
    (question,) = scene.questions
    assert question[:5] == ("x", 7, 0, (_T0, _T1), True)
    scene.answer(ErrorCode.NONE, ErrorCode.NONE)
    assert passed == [{_T0: ("token 5", ErrorCode.NONE), _T1: ("token 6", ErrorCode.NONE)}]
    assert (scene.timers, scene.told) == ([], ["pause", "resume"])


@pytest.mark.parametrize(
    ("version", "settings", "later"),
    [
        (11, {}, 0.0),
        (12, {}, 0.1),
        (12, {"add_partitions_to_txn_retry_backoff_max_ms": 0}, 0.0),
        (12, {"add_partitions_to_txn_retry_backoff_max_ms": 5000, "request_timeout_ms": 1000}, 1.0),
    ],
)
def test_a_producer_learns_in_the_end_that_its_last_transaction_has_not_ended(
    version: int, settings: dict[str, int], later: float
) -> None:
    scene = _Scene(version, settings=settings)
    passed = scene.held()
    if later:
        scene.now += later - 0.001
        scene.answer(_BUSY, _BUSY)
        assert (passed, len(scene.timers)) == ([], 1)
        scene.now += 0.001
        scene.timers.pop()[1]()
    scene.answer(_BUSY, _BUSY)
    assert [code for _, code in passed[0].values()] == [_BUSY, _BUSY]
    assert (scene.timers, scene.told) == ([], ["pause", "resume"])


def test_a_request_whose_partitions_have_moved_meanwhile_asks_no_more() -> None:
    scene = _Scene(12)
    passed = scene.held()
    scene.answer(_BUSY, _BUSY)
    scene.gone = {0, 1}
    scene.timers.pop()[1]()
    assert (passed, scene.questions, scene.told) == ([{}], [], ["pause", "resume"])


def test_the_coordinator_is_not_asked_again_for_a_producer_that_has_left() -> None:
    scene = _Scene(12)
    passed = scene.held()
    scene.answer(_BUSY, _BUSY)
    scene.connection.closed = True
    scene.timers.pop()[1]()
    assert (passed, scene.questions) == ([], [])


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (KafkaError(ErrorCode.KAFKA_STORAGE_ERROR), ErrorCode.KAFKA_STORAGE_ERROR),
        (ZeroDivisionError(), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_held_request_that_fails_is_answered_and_its_connection_is_read_again(
    error: Exception, code: ErrorCode
) -> None:
    scene = _Scene()

    def go_on(verified: Verified) -> Any:
        raise error

    answers: list[Any] = []
    scene.hold(go_on).then(answers.append)
    scene.answer(ErrorCode.NONE, ErrorCode.NONE)
    (answer,) = answers
    assert (answer.code, scene.told) == (code, ["pause", "resume"])


@pytest.mark.parametrize(
    ("version", "code", "told"),
    [
        (12, _BUSY, _BUSY),
        (11, _BUSY, _RETRY),
        (12, ErrorCode.NOT_COORDINATOR, _RETRY),
        (11, ErrorCode.NETWORK_EXCEPTION, _RETRY),
        (11, _ABORTABLE, _ABORTABLE),
        (10, _ABORTABLE, ErrorCode.INVALID_TXN_STATE),
        (11, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
def test_a_coordinators_error_reaches_a_producer_as_one_that_it_knows(
    version: int, code: ErrorCode, told: ErrorCode
) -> None:
    """An older producer aborts its transaction, or ends, for an error that it does not know to be temporary."""
    request = _Scene().request
    call = _called(version)
    call.is_long = False
    call.node.transactions.prepare.return_value = None
    call.node.transactions.pass_verified.side_effect = KafkaError(code)
    partition = call.node.leader_of.return_value
    partition.machine = None
    answer: Any = produce(call, request)
    (topic,) = answer.responses
    assert [each.error_code for each in topic.partition_responses] == [told, told]
    # The message of the code alone would be one about replicas, which lets an operator look for a dead broker.
    words = {_RETRY: code.name, ErrorCode.INVALID_TXN_STATE: "not added to the transaction"}
    assert all(words.get(told, "") in (each.error_message or "") for each in topic.partition_responses)
    assert not partition.append.called


# ---- what is asked, and when the request is handled


def test_a_request_with_nothing_to_ask_is_handled_at_once() -> None:
    scene = _Scene()
    # The transaction is open in both partitions.
    scene.call.node.transactions.prepare = lambda *_, **__: None
    records = [each.records for each in scene.request.topic_data[0].partition_data]
    assert scene.hold(lambda verified: ("handled", verified)) == ("handled", {})
    assert (scene.questions, scene.told) == ([], [])
    assert [each.records for each in scene.request.topic_data[0].partition_data] == records


def test_a_held_request_keeps_its_records_when_the_buffer_holds_others() -> None:
    scene = _Scene()
    parts = scene.request.topic_data[0].partition_data
    buffers = [bytearray(each.records or b"") for each in parts]
    for each, buffer in zip(parts, buffers, strict=True):
        each.records = memoryview(buffer)
    parts.append(PartitionProduceData(index=2, records=None))
    before = [bytes(each) for each in buffers]
    scene.hold(lambda verified: None)
    for buffer in buffers:
        buffer[:] = bytes(len(buffer))
    assert [bytes(each.records) for each in parts if each.records is not None] == before
    assert parts[2].records is None


def _answer(scene: _Scene) -> None:
    for question in scene.questions:
        question.done(dict.fromkeys(question.partitions, ErrorCode.NONE))


def test_a_request_whose_client_left_meanwhile_is_not_handled() -> None:
    scene, passed = _Scene(), list[Verified]()
    later = scene.hold(passed.append)
    scene.call.connection.closed = True
    _answer(scene)
    assert (passed, later.resolved, scene.told) == ([], False, ["pause"])


def test_a_held_request_without_acks_that_fails_costs_its_connection() -> None:
    scene = _Scene()
    scene.call.connection.close = scene.told.append

    def go_on(verified: Verified) -> Any:
        raise PeerError("it failed")

    later = scene.hold(go_on)
    _answer(scene)
    assert (later.resolved, scene.told) == (False, ["pause", "it failed"])


@pytest.mark.parametrize("at_once", [True, False])
def test_a_held_request_may_be_answered_later(at_once: bool) -> None:
    scene, inner = _Scene(), Later()
    if at_once:
        inner.resolve("answer")
    later = scene.hold(lambda verified: inner)
    _answer(scene)
    assert scene.told == ["pause", "resume"], "the next request need not wait for the answer"
    if not at_once:
        assert not later.resolved
        inner.resolve("answer")
    assert later.value == "answer"


# ---- the handler of a cluster of several brokers


@pytest.mark.parametrize("count", [2, 300], ids=["at once", "in steps"])
def test_a_transaction_s_batch_is_written_with_its_coordinator_s_answer(count: int) -> None:
    scene = _Scene()
    parts = scene.request.topic_data[0].partition_data
    parts += [PartitionProduceData(index=2 + number, records=None) for number in range(count - 2)]
    scene.request.acks = 1
    call = _called(12)
    call.is_long = False
    call.node.settings, call.node.loop = scene.call.node.settings, scene.call.node.loop
    transactions = call.node.transactions
    transactions.prepare = lambda partition, *producer, **_: f"token {partition.tp.partition}"
    transactions.verification.ask = scene.questions.append
    partitions = {index: Mock(machine=None, tp=TopicPartition("t", index)) for index in range(count)}
    for partition in partitions.values():
        partition.append.return_value = Mock(base_offset=5, duplicate=False, log_append_time_ms=-1)
        partition.log = Mock(start_offset=0, wants_flush=False)
    call.node.leader_of = lambda name, index: partitions[index]
    reply: Any = produce(call, scene.request)
    assert not reply.resolved
    while call.turns:
        call.turns.pop(0)()
    assert not any(partition.append.called for partition in partitions.values())
    scene.answer(ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH)
    (topic,) = done(reply, call).responses
    assert [each.error_code for each in topic.partition_responses] == [ErrorCode.NONE] * 2 + [
        ErrorCode.INVALID_RECORD
    ] * (count - 2)
    assert [(given.args, given.kwargs) for given in transactions.pass_verified.call_args_list] == [
        ((partitions[0], 7, 0, ("token 0", ErrorCode.NONE)), {"implicit": True}),
        ((partitions[1], 7, 0, ("token 1", ErrorCode.INVALID_PRODUCER_EPOCH)), {"implicit": True}),
    ]


def test_a_batch_that_was_not_asked_about_is_written_without_an_answer() -> None:
    """Its transaction was open in the partition when the request came."""
    scene = _Scene()
    scene.request.acks = 1
    call = _called(11)
    call.is_long = False
    call.node.transactions.prepare = lambda *_, **__: None
    call.node.transactions.pass_verified.side_effect = KafkaError(ErrorCode.INVALID_TXN_STATE)
    call.node.leader_of.return_value.machine = None
    (topic,) = done(produce(call, scene.request), call).responses
    assert [each.error_code for each in topic.partition_responses] == [ErrorCode.INVALID_TXN_STATE] * 2
    assert [given.args[3] for given in call.node.transactions.pass_verified.call_args_list] == [None, None]


@pytest.mark.parametrize(("version", "refused"), [(6, True), (7, False)])
@pytest.mark.parametrize("codec", [Codec.ZSTD, Codec.LZ4])
def test_zstd_is_for_versions_that_know_it(version: int, refused: bool, codec: Codec) -> None:
    request = ProduceRequest(
        acks=1,
        topic_data=[
            TopicProduceData(
                name="t",
                partition_data=[
                    PartitionProduceData(index=index, records=build([(1, b"k", b"v" * 99, [])], codec=each))
                    for index, each in enumerate((codec, Codec.NONE))
                ],
            )
        ],
    )
    call = _called(version)
    call.is_long = False
    partition = call.node.leader_of.return_value
    partition.machine, partition.log.wants_flush = None, False
    partition.append.return_value = Mock(duplicate=False)
    (topic,) = done(produce(call, request), call).responses
    is_refused = refused and codec is Codec.ZSTD
    assert [each.error_code for each in topic.partition_responses] == [
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE if is_refused else ErrorCode.NONE,
        ErrorCode.NONE,
    ]
    assert partition.append.call_count == (1 if is_refused else 2)
