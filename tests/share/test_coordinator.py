"""The share coordinator: requests, epochs, snapshots, pruning, and a restart from the log."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.coordinator.contract import Answer, Append, Called, Loaded, TimePassed
from ottla.kernel.error import ErrorCode
from ottla.kernel.ids import Uuid
from ottla.kernel.now import Now
from ottla.share.coordinator import ShareCoordinator
from ottla.share.event import Event, Prune, StateSettings, TopicsChanged
from ottla.share.state import SharePartitionKey
from ottla.wire.api import delete_share_group_state as delete
from ottla.wire.api import initialize_share_group_state as initialize
from ottla.wire.api import read_share_group_state as read
from ottla.wire.api import read_share_group_state_summary as summary
from ottla.wire.api import write_share_group_state as write
from ottla.wire.compile import encode
from ottla.wire.record import share as record

TOPIC = Uuid(b"t" * 16)


class Topics:
    """One topic with three partitions."""

    def topic_name(self, topic_id: Uuid) -> str | None:
        return "t" if topic_id == TOPIC else None

    def partition_count(self, name: str) -> int:
        return 3


class Host:
    """One coordinator, its log and its clock."""

    def __init__(self, **settings: int) -> None:
        self.settings = StateSettings(**settings)
        self.now_ms = 1_000
        self.log: list[tuple[bytes, bytes | None]] = []
        self.pruned_to = 0
        self.restart()

    def restart(self) -> None:
        self.coordinator = ShareCoordinator(self.settings, Topics())
        for offset, (key, value) in enumerate(self.log):
            if offset >= self.pruned_to:
                self.coordinator.replay(key, value, offset=offset)
        self.send(Loaded())

    def send(self, event: Event) -> Any:
        answer = None
        for effect in self.coordinator.step(event, Now(self.now_ms, self.now_ms)):
            match effect:
                case Append(entries):
                    for key, value in entries:
                        self.log.append((key, value))
                        self.coordinator.replay(key, value, offset=len(self.log) - 1)
                case Answer(_, response):
                    encode(response, 0)
                    answer = response
                case Prune(offset):
                    assert self.pruned_to < offset <= len(self.log)
                    self.pruned_to = offset
        self.coordinator.validate()
        return answer

    def ask(self, request: Any) -> Any:
        return self.send(Called(1, request)).results[0].partitions[0]

    def pass_ms(self, duration_ms: int) -> None:
        until_ms = self.now_ms + duration_ms
        while (deadline_ms := self.coordinator.deadline_ms()) is not None and deadline_ms <= until_ms:
            self.now_ms = max(self.now_ms, deadline_ms)
            self.send(TimePassed())
        self.now_ms = until_ms

    def begin(self, index: int = 0, epoch: int = 1, start: int = -1, topic_id: Uuid = TOPIC) -> Any:
        partition = initialize.PartitionData(partition=index, state_epoch=epoch, start_offset=start)
        topic = initialize.InitializeStateData(topic_id=topic_id, partitions=[partition])
        return self.ask(initialize.InitializeShareGroupStateRequest(group_id="g", topics=[topic]))

    def read(self, index: int = 0, leader: int = 0) -> Any:
        topic = read.ReadStateData(
            topic_id=TOPIC, partitions=[read.PartitionData(partition=index, leader_epoch=leader)]
        )
        return self.ask(read.ReadShareGroupStateRequest(group_id="g", topics=[topic]))

    def write(
        self,
        start: int,
        batches: list[tuple[int, int, int, int]],
        *,
        index: int = 0,
        epoch: int = 1,
        leader: int = 0,
        complete: int = 0,
    ) -> Any:
        partition = write.PartitionData(
            partition=index,
            state_epoch=epoch,
            leader_epoch=leader,
            start_offset=start,
            delivery_complete_count=complete,
            state_batches=[
                write.StateBatch(first_offset=a, last_offset=b, delivery_state=c, delivery_count=d)
                for a, b, c, d in batches
            ],
        )
        topic = write.WriteStateData(topic_id=TOPIC, partitions=[partition])
        return self.ask(write.WriteShareGroupStateRequest(group_id="g", topics=[topic]))

    def delete(self, index: int = 0) -> Any:
        topic = delete.DeleteStateData(topic_id=TOPIC, partitions=[delete.PartitionData(partition=index)])
        return self.ask(delete.DeleteShareGroupStateRequest(group_id="g", topics=[topic]))

    def summary(self, index: int = 0) -> Any:
        topic = summary.ReadStateSummaryData(topic_id=TOPIC, partitions=[summary.PartitionData(partition=index)])
        return self.ask(summary.ReadShareGroupStateSummaryRequest(group_id="g", topics=[topic]))


def batches_of(result: Any) -> list[tuple[int, int, int, int]]:
    return [
        (each.first_offset, each.last_offset, each.delivery_state, each.delivery_count) for each in result.state_batches
    ]


def test_what_was_written_is_read_again_after_a_restart() -> None:
    host = Host()
    host.begin(start=10)
    host.write(10, [(10, 14, 0, 1), (15, 19, 2, 1)], complete=5)
    host.write(12, [(12, 12, 4, 2)], complete=6)
    expected = [(12, 12, 4, 2), (13, 14, 0, 1), (15, 19, 2, 1)]
    for _ in range(2):
        found = host.read()
        assert (found.start_offset, found.state_epoch) == (12, 1)
        assert batches_of(found) == expected
        assert host.summary().delivery_complete_count == 6
        host.restart()


@pytest.mark.parametrize("leader", [0, 3])
def test_a_creation_that_is_sent_again_late_takes_nothing_back(leader: int) -> None:
    host = Host()
    host.begin()
    assert host.begin().error_code == 0
    host.read(leader=leader)
    host.write(12, [(15, 19, 2, 1)], leader=leader, complete=5)
    for _ in range(2):
        assert host.begin().error_code == 0
        found = host.read(leader=leader)
        assert (found.start_offset, batches_of(found)) == (12, [(15, 19, 2, 1)])
        host.restart()
    # A later epoch begins anew.
    host.begin(epoch=2)
    assert host.read(leader=leader).start_offset == -1


def test_offsets_that_nobody_has_read_from_may_be_set_again_in_the_same_epoch() -> None:
    host = Host()
    for start in (5, 7, -1):
        host.begin(start=start)
        assert host.summary().start_offset == start


def test_only_what_was_begun_can_be_read_and_written() -> None:
    host = Host()
    assert host.read().error_code == ErrorCode.INVALID_REQUEST
    assert host.write(0, []).error_message == "Write operation on uninitialized share partition not allowed."
    assert host.begin(index=3).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert host.begin(topic_id=Uuid(b"x" * 16)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert host.begin(index=-1).error_code == ErrorCode.INVALID_REQUEST
    missing = host.summary()
    assert (missing.error_code, missing.start_offset, missing.delivery_complete_count) == (0, -1, -1)
    assert host.log == []


def test_an_older_leader_and_an_older_epoch_are_fenced() -> None:
    host = Host()
    host.begin(epoch=2)
    host.read(leader=5)
    assert host.write(0, [], epoch=2, leader=4).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert host.read(leader=4).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert host.write(0, [], epoch=1, leader=5).error_code == ErrorCode.FENCED_STATE_EPOCH
    assert host.begin(epoch=1).error_code == ErrorCode.FENCED_STATE_EPOCH
    assert host.write(0, [], epoch=2, leader=5).error_code == 0
    host.restart()
    assert host.write(0, [], epoch=2, leader=4).error_code == ErrorCode.FENCED_LEADER_EPOCH


def test_an_initialization_takes_back_no_epoch_that_fences() -> None:
    host = Host(snapshot_update_records_per_snapshot=1)
    host.begin(epoch=2)
    host.read(leader=5)
    host.begin(epoch=3, start=4)
    shown = host.summary()
    assert (shown.leader_epoch, shown.state_epoch) == (0, 3)
    # -1 is no epoch: it fences none, and none fences it.
    assert host.begin(epoch=-1, start=6).error_code == 0
    for restarts in range(2):
        assert host.read(leader=4).error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert host.write(6, [], epoch=3, leader=4).error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert host.write(6, [], epoch=2, leader=5).error_code == ErrorCode.FENCED_STATE_EPOCH
        assert host.begin(epoch=2).error_code == ErrorCode.FENCED_STATE_EPOCH
        assert host.write(6, [(6 + restarts, 6 + restarts, 2, 1)], epoch=3, leader=5).error_code == 0
        host.restart()
    host.delete()
    host.begin(epoch=1)
    assert host.read(leader=0).error_code == 0


def test_a_reader_writes_only_when_its_epoch_is_new() -> None:
    host = Host()
    host.begin()
    host.read(leader=1)
    written = len(host.log)
    host.read(leader=1)
    host.read(leader=-1)
    assert len(host.log) == written


def test_setting_the_offset_anew_forgets_what_was() -> None:
    host = Host()
    host.begin(start=0)
    host.write(0, [(0, 9, 2, 1)])
    host.begin(epoch=3, start=4)
    found = host.read()
    assert (found.start_offset, found.state_epoch, batches_of(found)) == (4, 3, [])
    assert host.coordinator.states["g", TOPIC, 0].snapshot_epoch == 1  # type: ignore[index]


def test_after_some_updates_comes_a_snapshot_with_everything() -> None:
    host = Host(snapshot_update_records_per_snapshot=3)
    host.begin(start=0)
    for offset in range(8):
        host.write(0, [(offset, offset, 2 if offset % 2 else 0, 1)])
    kinds = [type(record.parse(key, value)[0]).__name__ for key, value in host.log]
    updates, snapshot = "ShareUpdateKey", "ShareSnapshotKey"
    assert kinds == [snapshot, updates, updates, updates, snapshot, updates, updates, updates, snapshot]
    before = batches_of(host.read())
    host.log, host.pruned_to = host.log, 8
    host.restart()
    assert batches_of(host.read()) == before
    assert len(before) == 8


def test_records_before_the_first_snapshot_that_counts_are_pruned() -> None:
    host = Host(snapshot_update_records_per_snapshot=1, state_topic_prune_interval_ms=100)
    host.begin(index=0)
    host.begin(index=1)
    for offset in range(4):
        host.write(0, [(offset, offset, 2, 1)], index=1)
    host.pass_ms(100)
    assert host.pruned_to == 0, "partition 0 has all its state in the first record"
    host.write(0, [], index=0)
    host.write(0, [], index=0)
    host.pass_ms(100)
    assert host.pruned_to == 5
    before = batches_of(host.read(1))
    host.restart()
    assert batches_of(host.read(1)) == before


def test_a_log_without_records_has_nothing_to_prune() -> None:
    host = Host(state_topic_prune_interval_ms=100)
    host.pass_ms(1_000)
    assert host.pruned_to == 0
    # Without any state left, all records go.
    host.begin()
    host.delete()
    host.pass_ms(1_000)
    assert host.pruned_to == len(host.log) == 2


def test_a_partition_that_nobody_writes_is_copied_on_so_that_the_log_can_be_cut() -> None:
    host = Host(
        snapshot_update_records_per_snapshot=1,
        state_topic_prune_interval_ms=100,
        cold_partition_snapshot_interval_ms=90,
    )
    host.begin(index=0, start=7)
    host.pass_ms(50)
    host.begin(index=1)
    host.write(0, [], index=1)
    host.pass_ms(100)
    assert host.pruned_to >= 1
    host.restart()
    assert host.read(0).start_offset == 7
    written = len(host.log)
    host.pass_ms(1_000)
    assert len(host.log) <= written + 4, "what is cold already is not copied for ever"


def test_deleted_state_and_the_state_of_deleted_topics_are_gone() -> None:
    host = Host()
    host.begin(index=0)
    host.begin(index=1)
    assert host.delete(0).error_code == 0
    assert host.delete(0).error_code == 0
    assert host.read(0).error_code == ErrorCode.INVALID_REQUEST
    host.send(TopicsChanged(Topics(), [TOPIC]))
    assert host.coordinator.states == {}
    host.restart()
    assert host.coordinator.states == {}


def test_an_update_whose_snapshot_is_gone_says_nothing() -> None:
    host = Host()
    host.begin()
    host.write(0, [(0, 0, 2, 1)])
    key, value = host.log[1]
    host.delete()
    host.coordinator.replay(key, value, offset=9)
    host.coordinator.validate()
    assert SharePartitionKey("g", TOPIC, 0) not in host.coordinator.states


def test_many_snapshots_and_tombstones_go_in_batches_that_a_log_accepts() -> None:
    host = Host()
    for number in range(60):
        partition = initialize.PartitionData(partition=0, state_epoch=1, start_offset=0)
        topic = initialize.InitializeStateData(topic_id=TOPIC, partitions=[partition])
        group_id = f"{number:04d}" + "x" * 16_000
        host.ask(initialize.InitializeShareGroupStateRequest(group_id=group_id, topics=[topic]))

    def batches(event: Event) -> list[int]:
        effects = host.coordinator.step(event, Now(host.now_ms, host.now_ms))
        found = [batch for effect in effects if isinstance(effect, Append) for batch in effect.batches(1 << 20)]
        assert all(sum(len(key) + len(value or b"") for key, value in entries) < 300_000 for entries in found)
        return [len(entries) for entries in found]

    host.now_ms += host.settings.cold_partition_snapshot_interval_ms + 1
    cold = batches(TimePassed())
    assert sum(cold) == 60 and len(cold) > 1
    gone = batches(TopicsChanged(Topics(), [TOPIC]))
    assert sum(gone) == 60 and len(gone) > 1
