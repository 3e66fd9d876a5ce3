"""Questions to share coordinators: they are asked again while the node runs, and not after it has closed."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.share.persister import Persister
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import TopicPartition, Uuid
from ottla.net.peer import Disconnected
from ottla.share.state import SharePartitionKey

_KEY = SharePartitionKey("group", Uuid(b"t" * 16), 0)
_TOPIC, _HERE, _ELSEWHERE = "__share_group_state", 1, 2


class _Planned:
    """A timer."""

    def __init__(self, due: list[_Planned], seconds: float, call: Callable[[], None]) -> None:
        self.due, self.seconds, self.call = due, seconds, call
        due.append(self)

    def cancel(self) -> None:
        self.due.remove(self)


class _Scene:
    """A persister whose coordinator is another broker; the test gives that broker's answers and calls what is due."""

    def __init__(self) -> None:
        self.due: list[_Planned] = []
        self.asked: list[Callable[[Any], None]] = []
        self.told: list[Any] = []
        partition = SimpleNamespace(leader=_ELSEWHERE)
        runtime: Any = SimpleNamespace(
            node_id=_HERE,
            loop=self,
            image=SimpleNamespace(topics={_TOPIC: SimpleNamespace(partitions=[partition])}),
        )
        coordinators: Any = SimpleNamespace(topic=_TOPIC, ensure_topic=lambda ask: ask(), partition_of=lambda _: 0)
        peers: Any = SimpleNamespace(ask=lambda broker, request, done: self.asked.append(done), close=lambda: None)
        leadership: Any = None
        self.persister = Persister(runtime, coordinators, leadership, peers)
        self.persister.summary(_KEY, self.told.append)

    def call_later(self, seconds: float, call: Callable[[], None]) -> _Planned:
        return _Planned(self.due, seconds, call)

    def disconnect(self) -> None:
        self.asked[-1](Disconnected("the connection broke", was_sent=True))


def test_a_question_whose_connection_broke_is_asked_again() -> None:
    scene = _Scene()
    scene.disconnect()
    (planned,) = scene.due
    assert planned.seconds == 0.1 and len(scene.asked) == 1
    planned.call()
    assert len(scene.asked) == 2 and scene.told == []


def test_nothing_is_asked_again_once_the_node_has_closed() -> None:
    scene = _Scene()
    scene.persister.close()
    # Closing the connections tells those who wait in the next turn of the loop.
    scene.disconnect()
    assert scene.due == [] and scene.told == []
    waits = _Scene()
    waits.disconnect()
    waits.persister.close()
    assert waits.due == []


# ---- what is asked, and of which coordinator

_OTHER = SharePartitionKey("group", Uuid(b"t" * 16), 1)


class _Node:
    """A persister of node 1; partition 0 of the states is led here, partition 1 elsewhere, partition 2 by no broker."""

    def __init__(self) -> None:
        self.there: list[tuple[int, Any, Any]] = []
        self.here: list[tuple[Any, Any]] = []
        self.due: list[_Planned] = []
        self.turns: list[Any] = []
        self.coordinator: Any = SimpleNamespace(ask=lambda request, version, done: self.here.append((request, done)))
        self.topics: dict[str, Any] = {
            _TOPIC: SimpleNamespace(partitions=[SimpleNamespace(leader=each) for each in (_HERE, _ELSEWHERE, -1)])
        }
        self.marks: dict[tuple[str, int], Any] = {}
        runtime: Any = SimpleNamespace(node_id=_HERE, loop=self, image=SimpleNamespace(topics=self.topics))
        coordinators: Any = SimpleNamespace(
            topic=_TOPIC,
            ensure_topic=lambda ask: ask(),
            partition_of=lambda text: int(text[-1]),
            driver_of=self._driver_of,
        )
        peers: Any = SimpleNamespace(
            ask=lambda broker, request, done: self.there.append((broker, request, done)), close=lambda: None
        )
        leadership: Any = SimpleNamespace(find=self._find)
        self.persister = Persister(runtime, coordinators, leadership, peers)

    def call_later(self, seconds: float, call: Callable[[], None]) -> _Planned:
        return _Planned(self.due, seconds, call)

    def call_soon(self, do: Any, *given: Any) -> None:
        self.turns.append((do, given))

    def turn(self) -> None:
        do, given = self.turns.pop(0)
        do(*given)

    def _driver_of(self, text: str) -> Any:
        if isinstance(self.coordinator, KafkaError):
            raise self.coordinator
        return self.coordinator

    def _find(self, topic: str, index: int) -> Any:
        if (topic, index) not in self.marks:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return SimpleNamespace(high_watermark=self.marks[topic, index])


def _answer(code: int = 0, message: str | None = None) -> Any:
    part = SimpleNamespace(error_code=code, error_message=message)
    return SimpleNamespace(results=[SimpleNamespace(partitions=[part])])


def _never() -> bool:
    return False


def test_states_are_set_and_deleted_one_by_one_and_told_together() -> None:
    node, told = _Node(), list[Any]()
    topic, other = _KEY.topic_id, Uuid(b"u" * 16)
    node.persister.initialize("group", 4, {topic: {0: 10, 1: 11}, other: {0: 12}}, told.append, _never)
    node.persister.initialize("group", 4, {}, told.append, _never)
    assert told.pop() == {}
    requests = [each for each, _ in node.here] + [each for _, each, _ in node.there]
    assert [
        (each.group_id, each.topics[0].topic_id, part.partition, part.state_epoch, part.start_offset)
        for each in requests
        for part in each.topics[0].partitions
    ] == [("group", topic, 0, 4, 10), ("group", other, 0, 4, 12), ("group", topic, 1, 4, 11)]
    node.here[0][1](_answer())
    node.there[0][2](_answer(ErrorCode.FENCED_STATE_EPOCH, "old"))
    assert told == []
    node.here[1][1](_answer())
    ((key, error),) = told.pop().items()
    assert (key, error.code, error.message) == ((topic, 1), ErrorCode.FENCED_STATE_EPOCH, "old")
    node.persister.delete("group", {topic: [0, 1]}, told.append, _never)
    node.here[2][1](_answer())
    node.there[1][2](_answer())
    assert told == [{}]
    assert [each.topics[0].partitions[0].partition for each in (node.here[2][0], node.there[1][1])] == [0, 1]


def test_a_state_is_read_by_its_coordinator() -> None:
    node, told = _Node(), list[Any]()
    node.persister.read(_OTHER, 7, told.append)
    ((broker, request, done),) = node.there
    assert (broker, request.group_id, request.topics[0].partitions[0].leader_epoch) == (_ELSEWHERE, "group", 7)
    answer = _answer()
    done(answer)
    assert told == [answer.results[0].partitions[0]]


def test_writes_of_a_share_partition_follow_each_other() -> None:
    node, told = _Node(), list[Any]()
    change: Any = SimpleNamespace(start_offset=3, delivery_complete_count=2, batches=[(3, 5, 2, 1)])
    for number in range(3):
        node.persister.write(_KEY, 4, 7, change, lambda result, number=number: told.append((number, result)))  # type: ignore[misc]
    node.persister.write(_OTHER, 4, 7, change, told.append)
    assert (len(node.here), len(node.there)) == (1, 1), "another share partition does not wait"
    part = node.here[0][0].topics[0].partitions[0]
    assert (part.partition, part.state_epoch, part.leader_epoch, part.start_offset, part.delivery_complete_count) == (
        0,
        4,
        7,
        3,
        2,
    )
    (batch,) = part.state_batches
    assert (batch.first_offset, batch.last_offset, batch.delivery_state, batch.delivery_count) == (3, 5, 2, 1)
    node.here[0][1](_answer(ErrorCode.FENCED_STATE_EPOCH))
    assert [number for number, _ in told] == [0] and len(node.here) == 1
    for number in (1, 2):
        node.turn()
        node.here[number][1](_answer())
    assert [number for number, _ in told] == [0, 1, 2] and node.turns == []
    node.persister.write(_KEY, 4, 7, change, told.append)
    assert len(node.here) == 4


def test_a_reader_waits_for_what_was_acknowledged_before() -> None:
    """The last member has closed its session, and the next one opens the share partition anew."""
    node, told = _Node(), list[Any]()
    change: Any = SimpleNamespace(start_offset=3, delivery_complete_count=2, batches=[(3, 5, 2, 1)])
    node.coordinator, there = KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), node.coordinator
    node.persister.write(_KEY, 4, 7, change, told.append)
    node.coordinator = there
    node.persister.read(_KEY, 7, told.append)
    node.persister.read(_OTHER, 7, told.append)
    assert (node.here, len(node.there)) == ([], 1)
    node.due.pop().call()
    (written, answer) = node.here.pop()
    answer(_answer())
    node.turn()
    (read, _) = node.here.pop()
    assert [type(each).__name__ for each in (written, read)] == [
        "WriteShareGroupStateRequest",
        "ReadShareGroupStateRequest",
    ]


@pytest.mark.parametrize("deletes", [False, True])
def test_a_group_coordinator_that_was_replaced_asks_nothing_more(deletes: bool) -> None:
    node, told, over = _Node(), list[Any](), list[bool]()
    node.coordinator, there = KafkaError(ErrorCode.NOT_COORDINATOR), node.coordinator
    if deletes:
        node.persister.delete("group", {_KEY.topic_id: [0]}, told.append, lambda: bool(over))
    else:
        node.persister.initialize("group", 4, {_KEY.topic_id: {0: -1}}, told.append, lambda: bool(over))
    node.coordinator = there
    over.append(True)
    node.due.pop().call()
    assert node.here == [] and node.due == [] and len(told) == 1
    # What its successor asks goes through.
    node.persister.initialize("group", 4, {_KEY.topic_id: {0: -1}}, told.append, _never)
    assert len(node.here) == 1


def test_a_coordinator_that_moves_is_asked_again_for_a_while() -> None:
    node, told = _Node(), list[Any]()
    node.coordinator = KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    node.persister.read(_KEY, 7, told.append)
    seconds = []
    while node.due:
        (planned,) = node.due
        node.due.clear()
        seconds.append(planned.seconds)
        planned.call()
    assert seconds == [0.1, 0.5, 1.0, 2.0, 5.0, 5.0, 5.0] and told == [node.coordinator]
    # Any other error is told at once, also from a coordinator that no broker leads now.
    node.coordinator = KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
    node.persister.read(SharePartitionKey("group", _KEY.topic_id, 2), 7, told.append)
    assert told[1:] == [node.coordinator] and node.due == []
    node.topics.clear()
    node.persister.read(_OTHER, 7, told.append)
    assert told[2:] == [node.coordinator] and node.there == []


def test_a_high_watermark_is_that_of_the_leader() -> None:
    node, told = _Node(), list[Any]()
    node.topics["t"] = SimpleNamespace(partitions=[SimpleNamespace(leader=each) for each in (_HERE, _ELSEWHERE, -1)])
    node.marks["t", 0] = 44
    for index in (0, 2, 3, -1):
        node.persister.high_watermark(TopicPartition("t", index), told.append)
    node.persister.high_watermark(TopicPartition("u", 0), told.append)
    assert told[0] == 44 and [each.code for each in told[1:]] == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 4
    told.clear()
    node.persister.high_watermark(TopicPartition("t", 1), told.append)
    ((broker, request, done),) = node.there
    (topic,) = request.topics
    (part,) = topic.partitions
    assert (broker, request.replica_id, topic.name, part.partition_index, part.timestamp) == (
        _ELSEWHERE,
        -1,
        "t",
        1,
        -1,
    )
    for code, offset in ((0, 55), (ErrorCode.FENCED_LEADER_EPOCH, -1)):
        listed = SimpleNamespace(error_code=code, offset=offset)
        done(SimpleNamespace(topics=[SimpleNamespace(partitions=[listed])]))
    done(Disconnected("gone", was_sent=True))
    assert told[0] == 55
    assert [each.code for each in told[1:]] == [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NETWORK_EXCEPTION]
