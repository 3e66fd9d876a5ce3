"""A share partition at its leader, with a share coordinator that the test plays."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ottla.broker.share.partition import ShareLeader
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import Uuid
from ottla.share.partition import Acknowledgement, AcknowledgeType, AcquireRequest, Limits, LogBatch, SharePartition
from ottla.share.state import SharePartitionKey
from tests.broker.test_replicated_produce import Pair


class _Shares:
    """The share partitions of a node, and the share coordinator, whose answers the test gives."""

    def __init__(self) -> None:
        self.runtime: Any = SimpleNamespace(clock=SimpleNamespace(monotonic_ms=lambda: 0), loop=self)
        self.current: Any = None
        self.settings_of: Any = None
        self.dropped: list[Any] = []
        self.answers: list[Callable[[Any], None]] = []

    def call_later(self, seconds: float, call: Callable[[], None]) -> Any:
        return SimpleNamespace(cancel=lambda: None)

    def persister(self) -> Any:
        return self

    def write(self, key: Any, state_epoch: int, leader_epoch: int, change: Any, done: Callable[[Any], None]) -> None:
        self.answers.append(done)

    def find(self, key: Any) -> Any:
        return self.current

    def drop(self, key: Any) -> None:
        self.dropped.append(self.current)


@pytest.mark.parametrize("replaced", [True, False])
def test_a_fenced_write_drops_its_own_share_partition_and_not_the_one_of_the_next_epoch(replaced: bool) -> None:
    shares = _Shares()
    partition: Any = SimpleNamespace(leader_epoch=3, log=SimpleNamespace(start_offset=0))
    leader = ShareLeader(cast(Any, shares), SharePartitionKey("g", Uuid(b"t" * 16), 0), partition)
    leader.machine = SharePartition(0, (), Limits())
    leader.machine.acquire("m", [LogBatch(0, 4)], AcquireRequest(5, 5), 0)
    told: list[Any] = []
    leader.acknowledge("m", [Acknowledgement(0, 4, [AcknowledgeType.ACCEPT])], told.append)
    shares.current = object() if replaced else leader
    shares.answers.pop()(KafkaError(ErrorCode.FENCED_LEADER_EPOCH))
    assert [each.code for each in told] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert shares.dropped == ([] if replaced else [leader])


def test_a_new_group_at_a_new_leader_begins_behind_what_the_leader_before_had_committed() -> None:
    """With `latest`: the new leader does not know yet that its records are committed."""
    pair = Pair()
    pair.produce(acks=1)
    pair.change(leader=2)
    pair.change(leader=1)
    shares = _Shares()
    shares.settings_of = lambda _: SimpleNamespace(share_auto_offset_reset="latest")
    leader = ShareLeader(cast(Any, shares), SharePartitionKey("g", Uuid(b"t" * 16), 0), pair.partition)
    found: list[int] = []
    leader._find_start(found.append)
    assert found == []
    pair.follower_has(1)
    assert found == [1]


# ---- the leader's side alone

_KEY = SharePartitionKey("g", Uuid(b"t" * 16), 0)


class _Node:
    """A share partition of a log from 2 to 10; the test gives the coordinator's answers and fires the timers."""

    def __init__(self, **settings: Any) -> None:
        self.told: list[Any] = []
        self.asked: list[tuple[Any, ...]] = []
        self.timers: list[Any] = []
        self.turns: list[Any] = []
        self.looks: list[tuple[Any, Any]] = []
        self.now_ms = 1_000_000
        self.caught_up: list[Any] = []
        usual = {
            "share_auto_offset_reset": "latest",
            "share_isolation_level": "read_uncommitted",
            "share_delivery_count_limit": 5,
            "share_record_lock_duration_ms": 30_000,
            "share_partition_max_record_locks": 2000,
            "share_renew_acknowledge_enable": True,
        }
        self.settings = SimpleNamespace(**usual | settings)
        clock = SimpleNamespace(monotonic_ms=lambda: self.now_ms, now_ms=lambda: self.now_ms)
        shares: Any = SimpleNamespace(
            runtime=SimpleNamespace(clock=clock, loop=self),
            settings_of=lambda group: self.settings,
            persister=lambda: self,
            find=lambda key: self.leader,
            drop=lambda key: self.told.append("drop"),
            log_dirs=SimpleNamespace(guarding=lambda log: nullcontext()),
            look_ups=SimpleNamespace(run=lambda work, done, stopped: self.looks.append((work, done))),
        )
        log = SimpleNamespace(start_offset=2)
        partition: Any = SimpleNamespace(
            leader_epoch=3, log=log, high_watermark=10, when_caught_up=self.caught_up.append
        )
        self.partition = partition
        self.leader: ShareLeader = ShareLeader(shares, _KEY, partition)
        self.leader.waiting[lambda: self.told.append("woken")] = None

    def call_soon(self, do: Any) -> None:
        self.turns.append(do)

    def call_later(self, seconds: float, do: Any) -> Any:
        timer = SimpleNamespace(seconds=seconds, do=do, cancelled=False)
        timer.cancel = lambda: setattr(timer, "cancelled", True)
        self.timers.append(timer)
        return timer

    def read(self, key: Any, leader_epoch: int, done: Any) -> None:
        self.asked.append((key, leader_epoch, done))

    def write(self, key: Any, state_epoch: int, leader_epoch: int, change: Any, done: Any) -> None:
        self.asked.append((key, state_epoch, leader_epoch, done))

    def open(self, start: int = 4, *batches: tuple[int, int, int, int]) -> None:
        """Read this stored state."""
        self.leader.open()
        self.turns.pop()()
        key, epoch, done = self.asked.pop()
        assert (key, epoch) == (_KEY, 3)
        names = ("first_offset", "last_offset", "delivery_state", "delivery_count")
        stored = [SimpleNamespace(**dict(zip(names, each, strict=True))) for each in batches]
        done(SimpleNamespace(start_offset=start, state_epoch=8, state_batches=stored))

    def code(self) -> ErrorCode:
        try:
            self.leader.ready()
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    def acquire(self, count: int = 5) -> Any:
        acquired, change = self.leader.ready().acquire("m", [LogBatch(4, 9)], AcquireRequest(count, count), self.now_ms)
        self.leader.store(change)
        return acquired


def test_a_share_partition_begins_with_what_was_stored() -> None:
    node = _Node(share_isolation_level="read_committed", share_record_lock_duration_ms=7000)
    assert node.code() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    node.open(4)
    assert node.code() is ErrorCode.NONE and node.told == ["woken"]
    assert (node.leader.isolation_level, node.leader.ready().next_fetch_offset) == (1, 4)
    assert node.leader.ready().limits == Limits(5, 7000, 2000, True)
    node.acquire()
    assert node.timers[-1].seconds == 7.0
    node.settings.share_isolation_level = "read_uncommitted"
    node.leader.settings_changed()
    assert node.leader.isolation_level == 0
    # Retention moves the beginning.
    node.partition.log.start_offset = 9
    assert node.leader.ready().next_fetch_offset >= 9


def test_stored_batches_have_their_place_and_their_count() -> None:
    node = _Node()
    # From 4 to 6 archived, from 7 to 8 available after a first delivery.
    node.open(4, (4, 6, 4, 1), (7, 8, 0, 1))
    acquired = node.acquire()
    assert [tuple(each) for each in acquired] == [(7, 8, 2), (9, 9, 1)]


def test_nothing_is_woken_for_an_empty_share_partition() -> None:
    node = _Node()
    node.open(10)
    assert node.told == []


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.GROUP_ID_NOT_FOUND),
        (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.FENCED_STATE_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_state_that_cannot_be_read_is_told_in_a_members_words_and_read_anew(said: ErrorCode, told: ErrorCode) -> None:
    node = _Node()
    node.leader.open()
    node.turns.pop()()
    node.asked.pop()[-1](KafkaError(said, "why"))
    assert (node.code(), node.told) == (told, ["drop"])
    assert node.leader.error is not None and node.leader.error.message == "why"


@pytest.mark.parametrize("reset", ["earliest", "EARLIEST", "latest", "by_duration:PT5S"])
def test_a_new_group_begins_where_it_is_told_to(reset: str, monkeypatch: pytest.MonkeyPatch) -> None:
    node = _Node(share_auto_offset_reset=reset)
    node.open(-1)
    if reset.lower() == "earliest":
        assert node.leader.ready().next_fetch_offset == 2 and node.caught_up == []
        return
    assert node.code() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the end of the log is not known yet"
    node.caught_up[0](None)
    if reset == "latest":
        assert node.leader.ready().next_fetch_offset == 10
        return
    ((work, done),) = node.looks
    # Five seconds ago, below the high watermark.
    monkeypatch.setattr("ottla.broker.share.partition.offset_for_timestamp", lambda *given: iter([given]))
    assert next(work) == (node.partition.log, 995_000, 10)
    done((999_000, 6, 3))
    assert node.leader.ready().next_fetch_offset == 6


def test_a_duration_without_records_begins_at_the_end_and_a_log_that_fails_is_told() -> None:
    for found, code in (
        (None, ErrorCode.NONE),
        (KafkaError(ErrorCode.KAFKA_STORAGE_ERROR), ErrorCode.KAFKA_STORAGE_ERROR),
    ):
        node = _Node(share_auto_offset_reset="by_duration:PT5S")
        node.open(-1)
        node.caught_up[0](None)
        node.looks[0][1](found)
        assert node.code() is code
        assert node.told == ([] if code is ErrorCode.NONE else ["drop"])


def test_what_ends_before_it_was_loaded_stays_ended() -> None:
    node = _Node(share_auto_offset_reset="latest")
    node.open(-1)
    node.leader.close()
    node.caught_up[0](None)
    assert node.code() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and node.told == ["woken"]
    node = _Node()
    node.leader.open()
    node.leader.close()
    node.turns.pop()()
    assert node.asked == []
    node = _Node()
    node.leader.settings_changed()
    node.leader.open()
    node.turns.pop()()
    node.leader.close()
    node.told.clear()
    node.asked.pop()[-1](KafkaError(ErrorCode.NOT_COORDINATOR))
    assert node.told == [] and node.code() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_a_lock_that_runs_out_is_stored_and_its_records_come_again() -> None:
    node = _Node()
    node.open(4)
    node.acquire()
    (timer,) = [each for each in node.timers if not each.cancelled]
    assert timer.seconds == 30.0
    node.now_ms += 30_000
    node.told.clear()
    timer.do()
    assert node.told == ["woken"]
    assert [(key, state, leader) for key, state, leader, _ in node.asked] == [(_KEY, 8, 3)]
    node.told.clear()
    node.asked.pop()[-1]("stored")
    assert node.told == ["woken"] and node.leader.ready().next_fetch_offset == 4
    node.leader.close()
    assert all(each.cancelled for each in node.timers if each is not timer)


@pytest.mark.parametrize(
    ("said", "drops"),
    [
        (ErrorCode.NOT_COORDINATOR, False),
        (ErrorCode.GROUP_ID_NOT_FOUND, True),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True),
        (ErrorCode.FENCED_STATE_EPOCH, True),
        (ErrorCode.FENCED_LEADER_EPOCH, True),
    ],
)
def test_an_acknowledgement_that_is_not_stored_does_not_count(said: ErrorCode, drops: bool) -> None:
    node = _Node()
    node.open(4)
    node.acquire()
    node.asked.clear()
    node.told.clear()
    told: list[Any] = []
    node.leader.acknowledge("m", [Acknowledgement(4, 8, [AcknowledgeType.ACCEPT])], told.append)
    assert told == []
    node.asked.pop()[-1](KafkaError(said))
    assert [each.code for each in told] == [
        ErrorCode.COORDINATOR_NOT_AVAILABLE
        if said is ErrorCode.NOT_COORDINATOR
        else said
        if not said.name.startswith("FENCED")
        else ErrorCode.NOT_LEADER_OR_FOLLOWER
    ]
    assert node.told == (["drop", "woken"] if drops else ["woken"])
    # They are another member's mistake.
    node.leader.acknowledge("other", [Acknowledgement(4, 8, [AcknowledgeType.ACCEPT])], told.append)
    assert told[-1].code is ErrorCode.INVALID_RECORD_STATE


def test_a_member_that_leaves_gives_back_what_it_has() -> None:
    node = _Node()
    node.leader.release("m")
    node.open(4)
    node.acquire()
    node.asked.clear()
    node.leader.release("m")
    node.asked.pop()[-1]("stored")
    assert node.leader.ready().next_fetch_offset == 4
    node.leader.release("m")
    assert node.asked == []


def test_changed_settings_count_from_the_next_delivery_and_a_closed_share_partition_has_no_timer() -> None:
    node = _Node(share_record_lock_duration_ms=7000)
    node.leader.settings_changed()
    node.open()
    node.acquire(1)
    node.settings.share_record_lock_duration_ms = 9000
    node.leader.settings_changed()
    node.leader.release("m")
    node.asked.pop()[-1](None)
    node.acquire(1)
    timer = node.timers[-1]
    assert ([each.seconds for each in node.timers], timer.cancelled) == ([7.0, 9.0], False)
    node.leader.close()
    assert timer.cancelled
