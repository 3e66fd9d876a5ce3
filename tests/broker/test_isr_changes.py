"""AlterPartition: what a leader asks the controller, one request on its way, and what its answers do."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.partitions.isr_changes import IsrChanges
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import TopicPartition, Uuid
from ottla.replica.leader import IsrAccepted, IsrRefused, ProposeIsr
from ottla.wire.api.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    ResponsePartitionData,
    ResponseTopicData,
)

_TOPIC, _OTHER = Uuid(b"t" * 16), Uuid(b"o" * 16)
Answer = Callable[[AlterPartitionResponse | KafkaError], None]


class _Loop:
    """Calls nothing before it is told to."""

    def __init__(self) -> None:
        self.due: list[tuple[float, Callable[[], None], SimpleNamespace]] = []

    def call_later(self, seconds: float, call: Callable[[], None]) -> SimpleNamespace:
        handle = SimpleNamespace(cancelled=False)
        handle.cancel = lambda: setattr(handle, "cancelled", True)
        self.due.append((seconds, call, handle))
        return handle

    def call_soon(self, call: Callable[[], None]) -> SimpleNamespace:
        return self.call_later(0, call)

    def turn(self) -> list[float]:
        """Call what is due; after how many seconds it was to be called."""
        due, self.due = self.due, []
        live = [(seconds, call) for seconds, call, handle in due if not handle.cancelled]
        for _, call in live:
            call()
        return [seconds for seconds, _ in live]


class _Partition:
    def __init__(self, topic_id: Uuid, index: int) -> None:
        self.topic_id = topic_id
        self.tp = TopicPartition("t" if topic_id == _TOPIC else "o", index)
        self.told: list[IsrAccepted | IsrRefused] = []
        self.machine = SimpleNamespace(state=SimpleNamespace(isr=(4,)))

    def step(self, event: IsrAccepted | IsrRefused) -> None:
        self.told.append(event)


class _Scene:
    def __init__(self) -> None:
        self.loop = _Loop()
        self.asked: list[tuple[AlterPartitionRequest, Answer]] = []
        self.partitions: dict[TopicPartition, Any] = {}
        self.image = SimpleNamespace(brokers={4: SimpleNamespace(epoch=77)})
        runtime: Any = SimpleNamespace(loop=self.loop, node_id=4, image=self.image)
        controllers: Any = SimpleNamespace(ask_forever=lambda request, done: self.asked.append((request, done)))
        partitions: Any = self.partitions
        self.changes = IsrChanges(runtime, controllers, partitions)

    def led(self, topic_id: Uuid = _TOPIC, index: int = 0) -> _Partition:
        partition = _Partition(topic_id, index)
        self.partitions[partition.tp] = partition
        return partition

    def propose(self, partition: _Partition, partition_epoch: int = 30) -> ProposeIsr:
        proposal = ProposeIsr(((4, 77), (5, 88)), 20, partition_epoch)
        self.changes.propose(partition, proposal)  # type: ignore[arg-type]
        return proposal

    def take(self) -> tuple[list[tuple[Uuid, int, int]], Answer]:
        """The one request on its way: (topic, partition, partition epoch) of what it asks for, and how to answer."""
        ((request, answer),) = self.asked
        self.asked.clear()
        assert (request.broker_id, request.broker_epoch) == (4, 77)
        return [
            (topic.topic_id, each.partition_index, each.partition_epoch)
            for topic in request.topics
            for each in topic.partitions
        ], answer


def _answered(*parts: tuple[_Partition, ErrorCode]) -> AlterPartitionResponse:
    return AlterPartitionResponse(
        topics=[
            ResponseTopicData(
                topic_id=partition.topic_id,
                partitions=[
                    ResponsePartitionData(
                        partition_index=partition.tp.partition,
                        error_code=code,
                        leader_id=9,
                        leader_epoch=21,
                        isr=[4, 5],
                        partition_epoch=31,
                    )
                ],
            )
            for partition, code in parts
        ]
    )


def test_a_turn_s_proposals_are_one_request() -> None:
    scene = _Scene()
    one, two, other = scene.led(), scene.led(index=1), scene.led(_OTHER)
    for each in (one, two, other):
        scene.propose(each)
    assert not scene.asked
    assert scene.loop.turn() == [0]
    ((request, _),) = scene.asked
    assert [(topic.topic_id, len(topic.partitions)) for topic in request.topics] == [(_TOPIC, 2), (_OTHER, 1)]
    data = request.topics[0].partitions[1]
    assert (data.partition_index, data.leader_epoch, data.partition_epoch) == (1, 20, 30)
    assert [(each.broker_id, each.broker_epoch) for each in data.new_isr_with_epochs] == [(4, 77), (5, 88)]
    assert (data.leader_recovery_state, data.new_isr) == (0, [])


def test_an_answer_goes_to_its_partition() -> None:
    scene = _Scene()
    one, two = scene.led(), scene.led(index=1)
    first, second = scene.propose(one), scene.propose(two)
    scene.loop.turn()
    _, answer = scene.take()
    answer(_answered((two, ErrorCode.INELIGIBLE_REPLICA), (one, ErrorCode.NONE)))
    assert one.told == [IsrAccepted(first, 21, 31, (4, 5))]
    assert two.told == [IsrRefused(second, ErrorCode.INELIGIBLE_REPLICA)]
    assert (scene.changes.expands, scene.changes.shrinks, scene.changes.failures) == (1, 0, 1)
    assert scene.loop.turn() == [], "nothing is left to ask"


def test_what_is_proposed_while_a_request_is_on_its_way_goes_with_the_next_one() -> None:
    scene = _Scene()
    one, two = scene.led(), scene.led(index=1)
    scene.propose(one)
    scene.loop.turn()
    _, answer = scene.take()
    scene.propose(two)
    scene.loop.turn()
    assert not scene.asked
    answer(_answered((one, ErrorCode.NONE)))
    scene.loop.turn()
    assert scene.take()[0] == [(_TOPIC, 1, 30)]


def test_a_partition_that_is_led_no_more_is_not_asked_for() -> None:
    scene = _Scene()
    one, two = scene.led(), scene.led(index=1)
    scene.propose(one), scene.propose(two)
    # Led in another epoch: another object has taken its place.
    scene.led()
    scene.loop.turn()
    assert scene.take()[0] == [(_TOPIC, 1, 30)]


def test_a_partition_that_is_led_no_more_is_not_told() -> None:
    scene = _Scene()
    one, two = scene.led(), scene.led(index=1)
    scene.propose(one), scene.propose(two)
    scene.loop.turn()
    _, answer = scene.take()
    later = scene.led()
    del scene.partitions[two.tp]
    answer(_answered((one, ErrorCode.NONE), (two, ErrorCode.FENCED_LEADER_EPOCH)))
    assert one.told == two.told == later.told == []
    assert scene.loop.turn() == []


def test_without_anything_to_ask_or_a_registration_nothing_is_sent() -> None:
    scene = _Scene()
    scene.propose(scene.led())
    scene.partitions.clear()
    scene.loop.turn()
    scene.image.brokers.clear()
    scene.propose(scene.led())
    scene.loop.turn()
    assert not scene.asked
    # It was not taken for a request on its way.
    scene.image.brokers[4] = SimpleNamespace(epoch=77)
    scene.propose(scene.led())
    scene.loop.turn()
    assert len(scene.asked) == 1


@pytest.mark.parametrize(
    "failed",
    [
        KafkaError(ErrorCode.REQUEST_TIMED_OUT),
        AlterPartitionResponse(error_code=ErrorCode.NOT_CONTROLLER),
        AlterPartitionResponse(error_code=ErrorCode.STALE_BROKER_EPOCH),
    ],
)
def test_a_request_that_failed_is_asked_again_with_what_is_newer(failed: AlterPartitionResponse | KafkaError) -> None:
    scene = _Scene()
    one, two, three = (scene.led(index=index) for index in range(3))
    scene.propose(one), scene.propose(two)
    scene.loop.turn()
    _, answer = scene.take()
    scene.propose(two, 40), scene.propose(three)
    answer(failed)
    assert one.told == two.told == three.told == []
    assert scene.loop.turn() == [0.05], "a moment later, once"
    assert scene.take()[0] == [(_TOPIC, 0, 30), (_TOPIC, 1, 40), (_TOPIC, 2, 30)]


def test_a_partition_without_an_answer_is_asked_for_again() -> None:
    scene = _Scene()
    one, two = scene.led(), scene.led(index=1)
    scene.propose(one), scene.propose(two)
    scene.loop.turn()
    _, answer = scene.take()
    # What was not asked for is passed over.
    answer(_answered((one, ErrorCode.NONE), (scene.led(_OTHER), ErrorCode.NONE)))
    assert len(one.told) == 1 and not two.told
    assert scene.loop.turn() == [0.05]
    assert scene.take()[0] == [(_TOPIC, 1, 30)]


def test_after_the_close_nothing_is_sent_and_nobody_told() -> None:
    scene = _Scene()
    one = scene.led()
    scene.propose(one)
    scene.loop.turn()
    _, answer = scene.take()
    scene.propose(one)
    scene.changes.close()
    assert scene.loop.turn() == []
    answer(_answered((one, ErrorCode.NONE)))
    answer(KafkaError(ErrorCode.REQUEST_TIMED_OUT))
    assert scene.loop.turn() == [] and not one.told and not scene.asked
