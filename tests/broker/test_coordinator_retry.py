"""Coordinators of one kind: loaded piece by piece, and again after a failure, a while later."""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.coordinators.coordinators import Coordinators
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import TopicPartition
from ottla.wire.api.create_topics import CreatableTopic


class _Driver:
    """Loads in so many pieces, and fails at one of them if it is to."""

    goes_on = True

    def __init__(self, partition: Any, pieces: int, fails: bool, error: Exception) -> None:
        self.partition, self._pieces, self._fails, self._error = partition, pieces, fails, error
        self.on_failure: Any = None
        self.refusals: Any = None
        self.told: list[str] = []

    def load(self) -> Iterator[None]:
        for _ in range(self._pieces):
            yield
        if self._fails:
            raise self._error

    def begin(self) -> None:
        self.told.append("begin")
        if self.partition.is_odd:
            raise ValueError("a bug")

    def end(self) -> None:
        self.told.append("end")


class _Scene(Coordinators[Any]):
    """Coordinators of a topic that has three partitions once it exists; the test runs the loop."""

    topic = "__states"

    def __init__(self, pieces: int = 0) -> None:
        self.turns: deque[tuple[Any, tuple[Any, ...]]] = deque()
        self.timers: list[Any] = []
        self.topics: dict[str, Any] = {"__states": SimpleNamespace(partitions=range(3))}
        self.asked: list[Any] = []
        self.led: dict[TopicPartition, Any] = {}
        self.pieces, self.fails = pieces, False
        self.error: Exception = ValueError("a corrupt record")
        self.checked: list[Any] = []
        self.made: list[_Driver] = []
        runtime: Any = SimpleNamespace(image=SimpleNamespace(topics=self.topics), loop=self)
        leadership = SimpleNamespace(
            partitions=self.led, on_created=lambda topics, done: self.asked.append(("created", topics, done))
        )
        super().__init__(
            SimpleNamespace(
                runtime=runtime,
                leadership=leadership,
                log_dirs=SimpleNamespace(check=lambda *of: self.checked.append(of)),
                create_topics=lambda topics, done: self.asked.append(("create", topics, done)),
            )  # type: ignore[arg-type]
        )

    def make(self, partition: Any) -> Any:
        self.made.append(_Driver(partition, self.pieces, self.fails, self.error))
        return self.made[-1]

    def new_topic(self) -> CreatableTopic:
        return CreatableTopic(name=self.topic, num_partitions=5)

    def call_soon(self, do: Any, *given: Any) -> None:
        self.turns.append((do, given))

    def call_later(self, seconds: float, do: Any, *given: Any) -> Any:
        timer = SimpleNamespace(seconds=seconds, fire=lambda: do(*given), cancelled=False)
        timer.cancel = lambda: setattr(timer, "cancelled", True)
        self.timers.append(timer)
        return timer

    def partition(self, index: int) -> Any:
        tp = TopicPartition(self.topic, index)
        partition = self.led[tp] = SimpleNamespace(tp=tp, log=f"log {index}", is_odd=False)
        return partition

    def turn(self) -> None:
        do, given = self.turns.popleft()
        do(*given)

    def code(self, index: int) -> ErrorCode:
        try:
            self.driver_at(index)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE


def test_a_short_log_is_loaded_at_once() -> None:
    scene = _Scene()
    assert scene.code(1) is ErrorCode.NOT_COORDINATOR
    scene.lead(scene.partition(1))
    assert scene.code(1) is ErrorCode.NONE and scene.made[0].told == ["begin"]
    assert scene.find(1) is scene.made[0] and scene.find(2) is None and not scene.turns


def test_long_logs_are_loaded_a_piece_in_a_turn_and_one_after_another() -> None:
    scene = _Scene(pieces=2)
    for index in (2, 0):
        scene.lead(scene.partition(index))
    assert [scene.code(index) for index in (2, 0)] == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 2
    assert scene.loading() == scene.made and scene.loaded() == []
    with pytest.raises(KafkaError, match="COORDINATOR_LOAD_IN_PROGRESS"):
        scene.drivers()
    assert len(scene.turns) == 1, "one turn serves all"
    scene.turn()
    assert scene.code(2) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    scene.turn()
    assert (scene.code(2), scene.code(0)) == (ErrorCode.NONE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    scene.turn()
    scene.turn()
    assert scene.drivers() == scene.loaded() == [scene.made[1], scene.made[0]], "in the order of their partitions"
    while scene.turns:
        scene.turn()
    assert scene.loading() == []


def test_a_load_goes_on_in_the_next_leader_epoch_of_the_same_leader() -> None:
    scene = _Scene(pieces=2)
    scene.lead(scene.partition(1))
    (driver,) = scene.made
    scene.turn()
    assert scene.goes_on(1) and not scene.goes_on(0)
    partition = scene.partition(1)
    scene.lead(partition)
    assert scene.made == [driver] and driver.partition is partition
    scene.turn()
    assert scene.find(1) is driver and driver.told == ["begin"]


def test_a_load_whose_coordinator_does_not_go_on_begins_again_in_the_next_leader_epoch() -> None:
    scene = _Scene(pieces=2)
    scene.lead(scene.partition(1))
    scene.made[0].goes_on = False
    scene.turn()
    assert not scene.goes_on(1)
    scene.resign(1)
    scene.lead(scene.partition(1))
    while scene.turns:
        scene.turn()
    assert scene.find(1) is scene.made[1] and scene.made[0].told == []


def test_a_log_that_cannot_be_read_is_tried_again_with_growing_pauses(caplog: pytest.LogCaptureFixture) -> None:
    scene = _Scene()
    scene.fails = True
    partition = scene.partition(1)
    scene.lead(partition)
    assert "cannot load the coordinator of" in caplog.text and scene.code(1) is ErrorCode.NOT_COORDINATOR
    for _ in range(6):
        scene.timers[-1].fire()
    assert [each.seconds for each in scene.timers] == [1, 2, 4, 8, 16, 30, 30]
    assert all(each.told == [] for each in scene.made)
    # In the next leader epoch the pause is short again.
    scene.resign(1)
    assert scene.timers[-1].cancelled
    scene.lead(scene.partition(1))
    assert scene.timers[-1].seconds == 1
    scene.fails = False
    scene.timers[-1].fire()
    assert scene.code(1) is ErrorCode.NONE


def test_a_coordinator_that_fails_while_another_loads_leaves_it_alone() -> None:
    scene = _Scene(pieces=1)
    scene.lead(scene.partition(0))
    scene.pieces, scene.fails = 0, True
    scene.lead(scene.partition(1))
    scene.turn()
    assert (scene.code(0), scene.code(1)) == (ErrorCode.NONE, ErrorCode.NOT_COORDINATOR)


@pytest.mark.parametrize(
    ("error", "is_checked"),
    [(OSError(errno.EIO, "the disk says no"), True), (KafkaError(ErrorCode.CORRUPT_MESSAGE, "damaged"), False)],
)
def test_what_keeps_a_log_from_being_loaded_is_said_in_a_line_and_a_bad_disk_is_looked_at(
    caplog: pytest.LogCaptureFixture, error: Exception, is_checked: bool
) -> None:
    scene = _Scene()
    scene.fails, scene.error = True, error
    scene.lead(scene.partition(1))
    (record,) = caplog.records
    assert str(error) in record.getMessage() and not record.exc_info
    assert scene.checked == ([("log 1", error)] if is_checked else [])
    assert [each.seconds for each in scene.timers] == [1]


def test_a_coordinator_that_fails_as_it_begins_keeps_no_other_from_loading(caplog: pytest.LogCaptureFixture) -> None:
    scene = _Scene(pieces=1)
    odd = scene.partition(0)
    odd.is_odd = True
    scene.lead(odd)
    scene.lead(scene.partition(1))
    while scene.turns:
        scene.turn()
    assert (scene.code(0), scene.code(1)) == (ErrorCode.NOT_COORDINATOR, ErrorCode.NONE)
    assert "a bug" in caplog.text and [each.seconds for each in scene.timers] == [1]


def test_a_coordinator_that_failed_is_replaced_unless_its_partition_has_moved() -> None:
    scene = _Scene()
    partition = scene.partition(1)
    scene.lead(partition)
    (first,) = scene.made
    first.on_failure(first)
    assert first.told == ["begin", "end"] and scene.code(1) is ErrorCode.NOT_COORDINATOR
    scene.timers[0].fire()
    assert scene.find(1) is scene.made[1]
    # The failure of one that was replaced already concerns nobody.
    first.on_failure(first)
    assert scene.find(1) is scene.made[1] and len(scene.timers) == 1
    # Its directory has failed, or another broker leads it.
    del scene.led[partition.tp]
    scene.made[1].on_failure(scene.made[1])
    assert scene.code(1) is ErrorCode.NOT_COORDINATOR and len(scene.timers) == 1


def test_the_end_stops_what_is_loaded_what_loads_and_what_waits() -> None:
    scene = _Scene()
    scene.lead(scene.partition(0))
    scene.fails = True
    scene.lead(scene.partition(1))
    scene.fails, scene.pieces = False, 1
    scene.lead(scene.partition(2))
    scene.close()
    assert scene.made[0].told == ["begin", "end"] and scene.timers[0].cancelled
    while scene.turns:
        scene.turn()
    assert (scene.made[2].told, scene.loading(), scene.loaded()) == ([], [], [])


def test_the_topic_is_made_when_it_is_needed_first() -> None:
    scene = _Scene()
    done: list[str] = []
    assert [scene.has_topic, {scene.partition_of(str(number)) for number in range(50)}] == [True, {0, 1, 2}]
    scene.ensure_topic(lambda: done.append("there"))
    del scene.topics["__states"]
    assert [scene.has_topic, {scene.partition_of(str(number)) for number in range(50)}] == [False, {0, 1, 2, 3, 4}]
    scene.ensure_topic(lambda: done.append("made"))
    (created, topics, first), (create, new, second) = scene.asked
    assert (created, topics, create, [each.name for each in new]) == ("created", ["__states"], "create", ["__states"])
    first()
    second("whatever came of it")
    assert done == ["there", "made"]
