"""Markers that other brokers write: whose answer counts, and which of those that wait are sent."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from ottla.broker.coordinators.marker_queue import Ending
from ottla.broker.coordinators.markers import Markers
from ottla.kernel.error import ErrorCode
from ottla.kernel.ids import TopicPartition
from ottla.metadata.image import NO_LEADER
from ottla.sim.clock import SimClock
from ottla.sim.loop import SimLoop
from ottla.txn.event import MarkersWritten, WriteMarkers
from ottla.wire.api.write_txn_markers import WriteTxnMarkersRequest

TP = TopicPartition("t", 0)
ELSEWHERE = (2, 3)


class Scene:
    """Markers of a node that leads nothing; `asked` are the requests to other brokers, with who hears the answer."""

    def __init__(self) -> None:
        self.loop = SimLoop(SimClock(), Mock())
        self.led = SimpleNamespace(leader=ELSEWHERE[0])
        self.topics = {TP.topic: SimpleNamespace(partitions=[self.led])}
        self.brokers = {1: 1, 2: 2, 3: 3}
        image = SimpleNamespace(has=lambda tp: tp.topic in self.topics, topics=self.topics, brokers=self.brokers)
        runtime = SimpleNamespace(image=image, node_id=1, loop=self.loop, closed=False)
        parts: Any = SimpleNamespace(runtime=runtime, leadership=SimpleNamespace(partitions={}))
        self.peers, self.driver = Mock(), Mock()
        self.driver.when_writable = lambda do: do()
        self.markers = Markers(parts, Mock(), self.peers)

    def write(self, producer_epoch: int = 0, partitions: tuple[TopicPartition, ...] = (TP,)) -> None:
        self.markers.write(self.driver, WriteMarkers("x", 7, producer_epoch, True, partitions, 2))

    @property
    def ending(self) -> Ending:
        return self.markers._waiting[TP]["x"]

    def move(self, leader: int) -> None:
        self.led.leader = leader
        self.markers.follow([TP.topic])

    def settle(self) -> None:
        while self.loop.busy:
            self.loop.turn()

    @property
    def asked(self) -> list[tuple[int, WriteTxnMarkersRequest]]:
        self.settle()
        return [(call.args[0], call.args[1]) for call in self.peers.ask.call_args_list]

    @property
    def timers(self) -> int:
        return sum(not handle.cancelled() for _, _, handle in self.loop._timers)


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER, None])
def test_an_earlier_leaders_answer_does_not_count(code: int | None) -> None:
    scene = Scene()
    scene.write()
    ending = scene.ending
    scene.settle()
    scene.move(3)
    assert [broker for broker, _ in scene.asked] == [2, 3]
    scene.markers.answered(TP, ending, 2, code)
    assert not scene.driver.step.called and not scene.timers
    scene.markers.answered(TP, ending, 3, ErrorCode.NONE)
    scene.driver.step.assert_called_once_with(MarkersWritten("x"))


def test_a_marker_is_sent_once_to_a_leader_and_again_after_a_time_without_one() -> None:
    scene = Scene()
    scene.write()
    scene.move(2)
    assert [broker for broker, _ in scene.asked] == [2]
    scene.move(2)
    assert len(scene.asked) == 1
    scene.move(NO_LEADER)
    assert list(scene.markers._queues) == [2]
    scene.peers.ask.call_args.args[2](Mock(markers=[]))
    assert not scene.timers, "the answer of a broker that no longer leads does not count"
    scene.move(2)
    assert [broker for broker, _ in scene.asked] == [2, 2]


def test_a_transaction_without_partitions_needs_no_marker() -> None:
    scene = Scene()
    scene.write(partitions=())
    scene.driver.step.assert_called_once_with(MarkersWritten("x"))
    scene.write()
    assert scene.driver.step.call_count == 1, "the partition's marker is not written yet"


def test_a_coordinator_that_has_ended_sends_no_more_markers_and_hears_no_answer() -> None:
    scene = Scene()
    scene.write()
    ending = scene.ending
    scene.markers.forget(scene.driver)
    assert not scene.asked
    scene.markers.answered(TP, ending, 2, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert not scene.driver.step.called and not scene.timers


def test_the_marker_of_an_earlier_end_is_neither_sent_nor_written_again() -> None:
    scene = Scene()
    scene.write()
    earlier = scene.ending
    # Both have one key in the queue of a broker, but these are two queues.
    scene.led.leader = 3
    scene.write(producer_epoch=1)
    assert [(broker, request.markers[0].producer_epoch) for broker, request in scene.asked] == [(3, 1)]
    scene.markers.answered(TP, earlier, 2, None)
    assert not scene.timers


def test_a_marker_that_was_not_written_goes_to_the_leader_of_that_time() -> None:
    scene = Scene()
    scene.write()
    ending = scene.ending
    assert len(scene.asked) == 1
    scene.markers.answered(TP, ending, 2, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    scene.led.leader = 3
    assert scene.timers == 1
    scene.loop.turn()
    assert [broker for broker, _ in scene.asked] == [2, 3]
    scene.markers.answered(TP, ending, 3, None)
    assert scene.timers == 1, "the second failure has its own retry"


def test_a_marker_is_not_needed_once_its_topic_is_deleted() -> None:
    scene = Scene()
    scene.write()
    scene.topics.clear()
    scene.markers.follow([TP.topic])
    scene.driver.step.assert_called_once_with(MarkersWritten("x"))
    assert not scene.markers._waiting


def test_the_queue_of_a_broker_that_is_gone_goes_when_it_is_empty() -> None:
    scene = Scene()
    scene.write()
    ending = scene.ending
    assert scene.asked
    del scene.brokers[2]
    scene.markers.follow_brokers()
    scene.peers.follow.assert_called_once_with()
    assert list(scene.markers._queues) == [2], "its answer has not come"
    scene.peers.ask.call_args.args[2](Mock(markers=[]))
    scene.settle()
    scene.markers.follow_brokers()
    assert not scene.markers._queues
    assert ending.left


def test_a_close_ends_the_retries() -> None:
    scene = Scene()
    scene.write()
    ending = scene.ending
    scene.markers.answered(TP, ending, 2, None)
    assert scene.timers == 1
    scene.markers.close()
    assert not scene.timers
    scene.peers.close.assert_called_once_with()


def test_after_a_close_nothing_is_sent() -> None:
    scene = Scene()
    scene.write()
    scene.markers.close()
    assert not scene.asked
