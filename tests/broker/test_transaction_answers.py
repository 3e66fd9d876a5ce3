"""What a node answers about transactions: partitions that join, offsets of a group, and markers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.handlers.transaction import add_offsets, add_partitions, write_txn_markers
from ottla.broker.handlers.transaction_offsets import txn_offset_commit
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import NO_UUID, OFFSETS_TOPIC, TopicPartition, Uuid
from ottla.wire.api import add_partitions_to_txn as add
from ottla.wire.api import txn_offset_commit as commit
from ottla.wire.api import write_txn_markers as markers
from ottla.wire.api.add_offsets_to_txn import AddOffsetsToTxnRequest

NONE, FENCED, OLD = ErrorCode.NONE, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH
UNKNOWN, REST = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED
_ID = Uuid(b"t" * 16)


class _Node:
    """A node of topic "t" with partitions 0 and 1, whose coordinators and leaders the test answers for."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.waiting: list[Any] = []
        self.coordinator: Any = SimpleNamespace(join=self._join, verify=self._verify)
        self.code = NONE
        self.guarded: KafkaError | None = None
        self.token: Any = "token"
        self.group: Any = SimpleNamespace(
            partition=SimpleNamespace(tp=TopicPartition(OFFSETS_TOPIC, 4)), ask=self._commit
        )
        self.of_group: Any = self.group
        self.image = SimpleNamespace(topics={"t": None}, has=lambda tp: tp.topic == "t" and tp.partition in (0, 1))
        self.topic_name = {_ID: "t"}.get
        self.transactions = SimpleNamespace(
            driver_of=lambda name: self._or_raise(self.coordinator),
            prepare=lambda *given, **more: self._guard("prepare", *given, **more),
            pass_verified=lambda *given, **more: self._guard("pass_verified", *given, **more),
            verification=SimpleNamespace(ask=self.waiting.append),
            marker_writer=SimpleNamespace(write=self._write),
        )
        self.groups = SimpleNamespace(driver_of=lambda group: self._or_raise(self.of_group), partition_of=len)
        self.led: dict[TopicPartition, Any] = {}
        self.timers: list[Any] = []
        self.loop = self

    def _or_raise(self, what: Any) -> Any:
        if isinstance(what, KafkaError):
            raise what
        return what

    def _join(self, *given: Any, client_version: int, done: Any) -> None:
        self.told.append(("join", *given, client_version))
        done(self.code)

    def _verify(self, *given: Any) -> None:
        *asked, done = given
        self.told.append(("verify", *asked))
        done({tp: ErrorCode.TRANSACTION_ABORTABLE if tp.partition else NONE for tp in asked[-1]})

    def _guard(self, what: str, *given: Any, **more: Any) -> Any:
        self.told.append((what, given, more))
        if self.guarded is not None:
            raise self.guarded
        return self.token

    def _commit(self, request: Any, version: int, done: Any, *, prepared: Any, **client: str) -> None:
        self.told.append(("commit", version, client))
        self.waiting.append(done)

    def leader_of(self, topic: str, index: int) -> Any:
        tp = TopicPartition(topic, index)
        if tp not in self.led:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self.led[tp]

    def _write(self, partition: Any, *given: Any, **more: Any) -> None:
        self.told.append((partition.tp, given, more))
        if partition.refuses is not None:
            raise KafkaError(partition.refuses)

    def call_later(self, seconds: float, do: Any) -> Any:
        timer = SimpleNamespace(seconds=seconds, do=do, cancelled=False)
        timer.cancel = lambda: setattr(timer, "cancelled", True)
        self.timers.append(timer)
        return timer

    def call(self, version: int) -> Any:
        client = {"client_id": "c", "client_host": "/h", "principal": "User:p"}
        return SimpleNamespace(version=version, node=self, connection=None, is_long=False, **client)


def _value(reply: Any) -> Any:
    return getattr(reply, "value", reply)


# ---- partitions that join


def _topics(**topics: list[int]) -> list[add.AddPartitionsToTxnTopic]:
    return [add.AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in topics.items()]


def _codes(results: Any) -> dict[str, list[tuple[int, int]]]:
    return {
        topic.name: [(each.partition_index, each.partition_error_code) for each in topic.results_by_partition]
        for topic in results
    }


def _joined(node: _Node, version: int, topics: list[add.AddPartitionsToTxnTopic]) -> Any:
    request = add.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=7,
        v3_and_below_producer_epoch=3,
        v3_and_below_topics=topics,
    )
    return _codes(_value(add_partitions(node.call(version), request)).results_by_topic_v3_and_below)


def test_a_producers_partitions_join_together_or_not_at_all() -> None:
    node = _Node()
    assert _joined(node, 3, _topics(t=[1, 0])) == {"t": [(1, NONE), (0, NONE)]}
    assert node.told == [("join", "x", 7, 3, [TopicPartition("t", 1), TopicPartition("t", 0)], 1)]
    # A topic that is named twice, or without partitions, has one entry, or none.
    assert _joined(node, 3, [*_topics(t=[0, 0], u=[0], v=[]), *_topics(t=[1, 2])]) == {
        "t": [(0, REST), (1, REST), (2, UNKNOWN)],
        "u": [(0, UNKNOWN)],
    }
    assert len(node.told) == 1
    node.coordinator = KafkaError(ErrorCode.NOT_COORDINATOR)
    assert _joined(node, 3, _topics(t=[0])) == {"t": [(0, ErrorCode.NOT_COORDINATOR)]}


@pytest.mark.parametrize(("version", "code"), [(1, OLD), (2, FENCED)])
def test_a_fenced_producer_is_told_so_by_versions_that_know_it(version: int, code: ErrorCode) -> None:
    node = _Node()
    node.code = FENCED
    assert _joined(node, version, _topics(t=[0])) == {"t": [(0, code)]}
    request = AddOffsetsToTxnRequest(transactional_id="x", producer_id=7, producer_epoch=3, group_id="four")
    assert _value(add_offsets(node.call(version), request)).error_code == code
    assert node.told[-1] == ("join", "x", 7, 3, [TopicPartition(OFFSETS_TOPIC, 4)], 1)


def test_a_brokers_batch_is_answered_entry_by_entry() -> None:
    node = _Node()

    def entry(name: str, topics: list[add.AddPartitionsToTxnTopic], *, verify_only: bool) -> Any:
        return add.AddPartitionsToTxnTransaction(
            transactional_id=name, producer_id=7, producer_epoch=3, verify_only=verify_only, topics=topics
        )

    batch = [
        entry("verified", [*_topics(t=[0]), *_topics(t=[1, 0])], verify_only=True),
        entry("added", _topics(t=[1]), verify_only=False),
        entry("unknown", _topics(t=[1], u=[0]), verify_only=False),
    ]
    answer = _value(add_partitions(node.call(4), add.AddPartitionsToTxnRequest(transactions=batch)))
    assert [(each.transactional_id, _codes(each.topic_results)) for each in answer.results_by_transaction] == [
        ("verified", {"t": [(0, NONE), (1, ErrorCode.TRANSACTION_ABORTABLE)]}),
        ("added", {"t": [(1, NONE)]}),
        ("unknown", {"t": [(1, REST)], "u": [(0, UNKNOWN)]}),
    ]
    zero, one = TopicPartition("t", 0), TopicPartition("t", 1)
    assert node.told == [("verify", "verified", 7, 3, [zero, one]), ("join", "added", 7, 3, [one], 2)]
    node.coordinator = KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    answer = _value(add_partitions(node.call(4), add.AddPartitionsToTxnRequest(transactions=batch[:2])))
    assert [_codes(each.topic_results) for each in answer.results_by_transaction] == [
        {"t": [(0, 14), (1, 14)]},
        {"t": [(1, 14)]},
    ]
    assert _value(add_partitions(node.call(4), add.AddPartitionsToTxnRequest())).results_by_transaction == []


@pytest.mark.parametrize("verify_only", [False, True])
def test_a_brokers_topics_that_are_added_are_answered_as_they_are_named(verify_only: bool) -> None:
    node = _Node()
    topics = [*_topics(t=[0, 0], u=[]), *_topics(t=[1])]
    entry = add.AddPartitionsToTxnTransaction(transactional_id="x", verify_only=verify_only, topics=topics)
    answer = _value(add_partitions(node.call(5), add.AddPartitionsToTxnRequest(transactions=[entry])))
    (result,) = answer.results_by_transaction
    said = [(each.name, [one.partition_index for one in each.results_by_partition]) for each in result.topic_results]
    assert said == ([("t", [0, 1])] if verify_only else [("t", [0, 0]), ("u", []), ("t", [1])])
    assert node.told[-1][4] == [TopicPartition("t", 0), TopicPartition("t", 1)]


# ---- offsets


def _offsets(*topics: tuple[str, Uuid, tuple[int, ...]], group: str = "g") -> commit.TxnOffsetCommitRequest:
    return commit.TxnOffsetCommitRequest(
        transactional_id="x",
        group_id=group,
        producer_id=7,
        producer_epoch=3,
        topics=[
            commit.TxnOffsetCommitRequestTopic(
                name=name,
                topic_id=topic_id,
                partitions=[commit.TxnOffsetCommitRequestPartition(partition_index=index) for index in indexes],
            )
            for name, topic_id, indexes in topics
        ],
    )


def _committed(answer: Any) -> list[list[tuple[int, int]]]:
    return [[(each.partition_index, each.error_code) for each in topic.partitions] for topic in answer.topics]


def _response(request: commit.TxnOffsetCommitRequest) -> commit.TxnOffsetCommitResponse:
    """What the group's coordinator says, which knows no topics."""
    return commit.TxnOffsetCommitResponse(
        topics=[
            commit.TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    commit.TxnOffsetCommitResponsePartition(partition_index=each.partition_index)
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


_T = ("t", NO_UUID, (0, 1))


def _ask(version: int, *topics: Any) -> tuple[_Node, commit.TxnOffsetCommitRequest, Any]:
    """A node whose transaction coordinator has admitted the request, and the reply to come."""
    node, request = _Node(), _offsets(*topics)
    reply = txn_offset_commit(node.call(version), request)
    node.waiting.pop().done({node.group.partition.tp: NONE})
    return node, request, reply


def test_offsets_are_committed_by_the_groups_coordinator() -> None:
    node, request, reply = _ask(5, _T, ("u", NO_UUID, (0,)), ("t", NO_UUID, ()), ("v", NO_UUID, ()))
    assert node.told[-1] == ("commit", 5, {"client_id": "c", "client_host": "/h", "principal": "User:p"})
    assert not reply.resolved
    node.waiting[0](_response(request))
    # A topic that exists has an entry if partitions were named; one that does not exist has one in any case.
    assert _committed(reply.value) == [[(0, NONE), (1, NONE)], [(0, UNKNOWN)], []]


def test_offsets_by_id_tell_an_unknown_id() -> None:
    node, request, reply = _ask(6, ("", _ID, (1, 2)), ("t", NO_UUID, (0,)))
    node.waiting[0](_response(request))
    assert _committed(reply.value) == [[(1, NONE), (2, UNKNOWN)], [(0, ErrorCode.UNKNOWN_TOPIC_ID)]]


@pytest.mark.parametrize(
    ("version", "topics", "group", "codes"),
    [
        (5, [("t", NO_UUID, (2,)), ("u", NO_UUID, (0,))], "", [[(2, UNKNOWN)], [(0, UNKNOWN)]]),
        (5, [("t", NO_UUID, (0, 2))], "", [[(0, ErrorCode.INVALID_GROUP_ID), (2, UNKNOWN)]]),
        (5, [], "g", []),
    ],
)
def test_no_coordinator_is_asked_about_what_cannot_be_committed(
    version: int, topics: Any, group: str, codes: Any
) -> None:
    node = _Node()
    assert _committed(_value(txn_offset_commit(node.call(version), _offsets(*topics, group=group)))) == codes
    assert node.told == node.waiting == []


def test_a_coordinator_that_ends_fails_the_commit() -> None:
    node, _, reply = _ask(5, _T, ("u", NO_UUID, (0,)))
    node.waiting[0](KafkaError(ErrorCode.NOT_COORDINATOR))
    assert _committed(reply.value) == [[(0, ErrorCode.NOT_COORDINATOR), (1, ErrorCode.NOT_COORDINATOR)], [(0, UNKNOWN)]]


#: What a leader or a coordinator says of the transaction -> what a group's member is told, by version.
_SAID = [
    (3, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE),
    (4, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.TRANSACTION_ABORTABLE),
    (4, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
    (5, ErrorCode.NETWORK_EXCEPTION, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
    (5, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
]


@pytest.mark.parametrize(("version", "said", "code"), _SAID)
def test_a_transaction_that_is_not_open_refuses_offsets(version: int, said: ErrorCode, code: ErrorCode) -> None:
    node = _Node()
    node.guarded = KafkaError(said)
    answer = _value(txn_offset_commit(node.call(version), _offsets(_T)))
    assert _committed(answer) == [[(0, code), (1, code)]]
    assert [each[0] for each in node.told] == ["prepare"]


@pytest.mark.parametrize(("version", "implicit"), [(4, False), (5, True)])
def test_the_transactions_coordinator_is_asked_first(version: int, implicit: bool) -> None:
    node = _Node()
    request = _offsets(_T)
    reply: Any = txn_offset_commit(node.call(version), request)
    assert node.told == [("prepare", (node.group.partition, 7, 3), {"sequence": 0, "implicit": implicit})]
    (question,) = node.waiting
    tp = node.group.partition.tp
    assert question[:5] == ("x", 7, 3, (tp,), implicit)
    question.done({tp: ErrorCode.TRANSACTION_ABORTABLE})
    assert node.told[1] == (
        "pass_verified",
        (node.group.partition, 7, 3, ("token", ErrorCode.TRANSACTION_ABORTABLE)),
        {"implicit": implicit},
    )
    assert node.told[2][0] == "commit" and not reply.resolved
    node.waiting[1](_response(request))
    assert _committed(reply.value) == [[(0, NONE), (1, NONE)]]


def test_an_open_transaction_needs_no_question() -> None:
    node = _Node()
    node.token = None
    txn_offset_commit(node.call(5), _offsets(_T))
    assert [each[0] for each in node.told] == ["prepare", "pass_verified", "commit"]
    assert node.told[1][1][3] is None


@pytest.mark.parametrize(("version", "said", "code"), _SAID)
def test_offsets_are_refused_for_what_the_coordinator_says(version: int, said: ErrorCode, code: ErrorCode) -> None:
    node = _Node()
    reply: Any = txn_offset_commit(node.call(version), _offsets(_T))
    node.guarded = KafkaError(said)
    node.waiting[0].done({node.group.partition.tp: said})
    assert _committed(reply.value) == [[(0, code), (1, code)]]


@pytest.mark.parametrize("now", [object(), KafkaError(ErrorCode.NOT_COORDINATOR)])
def test_a_group_that_has_moved_meanwhile_takes_no_offsets(now: Any) -> None:
    node = _Node()
    reply: Any = txn_offset_commit(node.call(5), _offsets(_T))
    node.of_group = now
    node.waiting[0].done({node.group.partition.tp: NONE})
    assert _committed(reply.value) == [[(0, ErrorCode.NOT_COORDINATOR), (1, ErrorCode.NOT_COORDINATOR)]]
    assert [each[0] for each in node.told] == ["prepare"]


# ---- markers


class _Partition:
    """A led partition; `waiters` are the markers that wait for its replicas."""

    def __init__(self, index: int, *, at_once: bool = False, refuses: ErrorCode | None = None) -> None:
        self.tp, self.at_once, self.refuses = TopicPartition("t", index), at_once, refuses
        self.log = SimpleNamespace(end_offset=30 + index)
        self.waiters: list[Any] = []

    def when_committed(self, offset: int, done: Any) -> Any:
        assert offset == self.log.end_offset
        if self.at_once:
            done(None)
            return None
        waiter = SimpleNamespace(done=done)
        waiter.cancel = lambda: setattr(waiter, "done", None)
        self.waiters.append(waiter)
        return waiter

    def commit(self, error: KafkaError | None = None) -> None:
        waiter = self.waiters.pop()
        done, waiter.done = waiter.done, None
        done(error)


def _marker(producer: int, **topics: list[int]) -> markers.WritableTxnMarker:
    return markers.WritableTxnMarker(
        producer_id=producer,
        producer_epoch=3,
        transaction_result=True,
        coordinator_epoch=6,
        transaction_version=2,
        topics=[
            markers.WritableTxnMarkerTopic(name=name, partition_indexes=indexes) for name, indexes in topics.items()
        ],
    )


def _written(reply: Any) -> Any:
    return [
        (each.producer_id, {t.name: {p.partition_index: p.error_code for p in t.partitions} for t in each.topics})
        for each in _value(reply).markers
    ]


def test_markers_are_answered_when_the_last_is_committed() -> None:
    node = _Node()
    zero, one, two = _Partition(0), _Partition(1, at_once=True), _Partition(2, refuses=OLD)
    node.led = {each.tp: each for each in (zero, one, two)}
    request = markers.WriteTxnMarkersRequest(markers=[_marker(7, t=[0, 1, 2], u=[0]), _marker(8, t=[1])])
    reply: Any = write_txn_markers(node.call(2), request)
    assert not reply.resolved and [each.seconds for each in node.timers] == [5.0]
    assert node.told[0] == (
        zero.tp,
        (7, 3),
        {"committed": True, "coordinator_epoch": 6, "transaction_version": 2},
    )
    zero.commit()
    assert node.timers[0].cancelled
    assert _written(reply) == [
        (7, {"t": {0: NONE, 1: NONE, 2: OLD}, "u": {0: ErrorCode.NOT_LEADER_OR_FOLLOWER}}),
        (8, {"t": {1: NONE}}),
    ]


def test_a_producer_with_several_markers_has_one_entry() -> None:
    node = _Node()
    node.led = {each.tp: each for each in (_Partition(0, at_once=True), _Partition(1, at_once=True))}
    request = markers.WriteTxnMarkersRequest(markers=[_marker(7, t=[0]), _marker(7, t=[1])])
    assert _written(write_txn_markers(node.call(1), request)) == [(7, {"t": {0: NONE, 1: NONE}})]
    assert node.timers == []


def test_a_marker_waits_for_its_replicas_no_longer_than_its_coordinator_does() -> None:
    node = _Node()
    slow, quick = _Partition(0), _Partition(1)
    node.led = {each.tp: each for each in (slow, quick)}
    request = markers.WriteTxnMarkersRequest(markers=[_marker(7, t=[0, 1])])
    reply: Any = write_txn_markers(node.call(1), request)
    quick.commit(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert not reply.resolved
    node.timers[0].do()
    assert slow.waiters[0].done is None
    assert _written(reply) == [
        (7, {"t": {0: ErrorCode.REQUEST_TIMED_OUT, 1: ErrorCode.NOT_LEADER_OR_FOLLOWER}}),
    ]
