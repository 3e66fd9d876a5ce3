"""The fetcher of a follower: a leader that the test plays answers its requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.kernel.error import ErrorCode
from ottla.kernel.ids import NO_UUID, TopicPartition, Uuid
from ottla.log.log import Log
from ottla.net.peer import Disconnected
from ottla.wire.api import fetch, list_offsets
from ottla.wire.batch import build
from ottla.wire.record.metadata import PartitionChangeRecord
from ottla.wire.record.registration import BrokerEndpoint, RegisterBrokerRecord
from tests.broker.disk_scene import TOPIC, Scene

_LEADER = 2
_PARTITIONS = 2
_NEVER = "9223372036854775807"


class Leader:
    """Broker 2, as the fetcher's connection sees it; node 1 follows it in every partition."""

    def __init__(self, **settings: str) -> None:
        own = {"log_dirs": "/data", "log_flush_interval_messages": _NEVER} | settings
        self.scene = scene = Scene(1, **own)
        scene.create(_PARTITIONS)
        self.node = scene.node
        self.topic_id: Uuid = self.node.image.topics[TOPIC].topic_id
        #: The requests that are not answered yet.
        self.asked: list[tuple[Any, Callable[[Any], None]]] = []
        self.session_id = 5
        self.node.replication._dial = lambda peer: self
        endpoint = BrokerEndpoint(name="PLAINTEXT", host="leader", port=9092, security_protocol=0)
        self.node.quorum.append(
            [RegisterBrokerRecord(broker_id=_LEADER, broker_epoch=77, end_points=[endpoint], fenced=False)]
        )
        self.follow()

    def follow(self) -> None:
        """The metadata has another epoch of this leader's."""
        self.node.quorum.append(
            [
                PartitionChangeRecord(
                    topic_id=self.topic_id,
                    partition_id=index,
                    replicas=[_LEADER, 1],
                    isr=[_LEADER],
                    leader=_LEADER,
                    directories=[NO_UUID, self.node.log_dirs._id_of(self.directory(index))],
                )
                for index in range(_PARTITIONS)
            ]
        )
        self.scene.machine.settle()

    def directory(self, index: int) -> str:
        path: str = self.node.store.directory_of(TopicPartition(TOPIC, index))
        return path

    def log(self, index: int) -> Any:
        return self.node.store.get(TopicPartition(TOPIC, index))

    # ---- as an Outbound

    def ask(self, request: Any, done: Callable[[Any], None], *, timeout_ms: int, at_least: int = 0) -> None:
        self.asked.append((request, done))

    def close(self) -> None:
        pass

    # ---- answers

    def next(self) -> Any:
        """The request that waits; there is one at a time."""
        [(request, _)] = self.asked
        return request

    def positions(self) -> dict[int, tuple[int, int, int]]:
        """(offset, last fetched epoch, current leader epoch) of each partition that the request names."""
        return {
            each.partition: (each.fetch_offset, each.last_fetched_epoch, each.current_leader_epoch)
            for topic in self.next().topics
            for each in topic.partitions
        }

    def forgotten(self) -> set[int]:
        return {each for topic in self.next().forgotten_topics_data for each in topic.partitions}

    def answer(self, *parts: fetch.PartitionData, error: ErrorCode = ErrorCode.NONE) -> None:
        response = fetch.FetchResponse(error_code=error, session_id=0 if error else self.session_id)
        if parts:
            response.responses.append(fetch.FetchableTopicResponse(topic_id=self.topic_id, partitions=list(parts)))
        self.tell(response)

    def tell(self, response: Any) -> None:
        _, done = self.asked.pop(0)
        done(response)
        self.scene.machine.settle()

    def pass_ms(self, ms: int) -> None:
        end = self.scene.machine.clock.monotonic_ms() + ms
        self.scene.machine.run(lambda: self.scene.machine.clock.monotonic_ms() >= end)
        self.scene.machine.settle()


def records(offset: int, count: int = 1, epoch: int = 1) -> bytes:
    """Batches as a leader of this epoch has them."""
    found = b""
    for index in range(count):
        data = bytearray(build([(1, None, b"v%d" % (offset + index), ())]))
        data[:8] = (offset + index).to_bytes(8, "big")
        data[12:16] = epoch.to_bytes(4, "big")
        found += bytes(data)
    return found


def part(index: int, data: bytes = b"", high: int = 0, error: ErrorCode = ErrorCode.NONE, start: int = 0) -> Any:
    return fetch.PartitionData(
        partition_index=index, error_code=error, high_watermark=high, log_start_offset=start, records=data
    )


def diverging(index: int, epoch: int, end_offset: int) -> Any:
    data = part(index)
    data.diverging_epoch = fetch.EpochEndOffset(epoch=epoch, end_offset=end_offset)
    return data


def test_a_request_names_what_has_changed_and_nothing_else() -> None:
    leader = Leader()
    first = leader.next()
    assert (first.session_id, first.session_epoch, first.replica_state.replica_id) == (0, 0, 1)
    assert leader.positions() == {0: (0, -1, 1), 1: (0, -1, 1)}
    leader.answer(part(0, records(0, 2)), part(1))
    assert (leader.next().session_id, leader.next().session_epoch) == (5, 1)
    assert leader.positions() == {0: (2, 1, 1)}
    leader.answer(part(0, high=2))
    assert leader.positions() == {} and leader.next().session_epoch == 2
    assert (leader.log(0).end_offset, leader.log(0).high_watermark) == (2, 2)


def test_logs_that_part_are_cut_and_the_log_start_follows() -> None:
    leader = Leader()
    leader.answer(part(0, records(0, 4)), part(1))
    leader.follow()
    leader.answer()
    assert leader.positions()[0] == (4, 1, 2)
    leader.answer(diverging(0, 1, 3))
    assert leader.positions()[0] == (3, 1, 2) and leader.log(0).end_offset == 3
    leader.answer(part(0, records(3, 1, epoch=2), high=4, start=2))
    assert leader.positions()[0][:2] == (4, 2)
    assert (leader.log(0).start_offset, leader.log(0).high_watermark) == (2, 4)


def test_a_partition_that_fails_pauses_alone() -> None:
    leader = Leader()
    leader.answer(part(0, error=ErrorCode.NOT_LEADER_OR_FOLLOWER), part(1, records(0)))
    assert leader.positions() == {1: (1, 1, 1)} and leader.forgotten() == {0}
    leader.answer(part(1, records(1)))
    assert set(leader.positions()) == {1} and leader.forgotten() == set()
    leader.pass_ms(1_100)
    leader.answer(part(1))
    assert leader.positions()[0] == (0, -1, 1)


def test_records_that_are_null_are_none() -> None:
    leader = Leader()
    nothing = part(0, high=0)
    nothing.records = None
    leader.answer(nothing, part(1, records(0)))
    assert [leader.log(index).end_offset for index in (0, 1)] == [0, 1]
    leader.answer(part(0, records(0)))
    assert leader.log(0).end_offset == 1


def test_when_all_have_failed_the_next_request_begins_a_session() -> None:
    leader = Leader()
    leader.answer(part(0), part(1))
    leader.answer(*(part(index, error=ErrorCode.NOT_LEADER_OR_FOLLOWER) for index in (0, 1)))
    assert leader.asked == [], "there is nothing to ask for"
    leader.pass_ms(1_100)
    assert (leader.next().session_id, leader.next().session_epoch) == (0, 0)


def test_records_that_are_damaged_stop_their_partition_alone() -> None:
    leader = Leader()
    damaged = bytearray(records(0))
    damaged[-1] ^= 1
    leader.answer(part(0, bytes(damaged)), part(1, records(0)))
    assert leader.log(0).end_offset == 0 and leader.log(1).end_offset == 1
    assert set(leader.positions()) == {1} and leader.forgotten() == {0}


def test_a_bug_ends_its_partition_until_the_next_epoch_and_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    leader = Leader()
    leader.answer(part(0), part(1))
    append = Log.append

    def broken(self: Log, data: Any, **named: Any) -> Any:
        if self is leader.log(0):
            raise ValueError("a bug")
        return append(self, data, **named)

    with monkeypatch.context() as bug:
        bug.setattr(Log, "append", broken)
        leader.answer(part(0, records(0)), part(1, records(0)))
    assert [each.exc_info is not None for each in caplog.records if "cannot follow t-0" in each.message] == [True]
    assert leader.positions() == {1: (1, 1, 1)} and leader.forgotten() == {0}
    leader.pass_ms(5_000)
    leader.answer(part(1, records(1)))
    assert leader.positions() == {1: (2, 1, 1)} and leader.forgotten() == set()
    leader.follow()
    leader.answer()
    assert leader.positions() == {0: (0, -1, 2), 1: (2, 1, 2)}
    leader.answer(part(0, records(0)))
    assert leader.log(0).end_offset == 1


def test_a_fenced_follower_asks_again_with_the_next_epoch() -> None:
    leader = Leader()
    leader.answer(part(0, error=ErrorCode.FENCED_LEADER_EPOCH), part(1))
    assert leader.forgotten() == {0}
    leader.pass_ms(5_000)
    leader.answer(part(1))
    assert 0 not in leader.positions()
    leader.follow()
    leader.answer(part(1))
    assert leader.positions()[0] == (0, -1, 2)


def test_a_session_that_is_gone_begins_again_at_once_and_a_connection_after_the_backoff() -> None:
    leader = Leader()
    leader.answer(part(0), part(1))
    leader.answer(error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    assert leader.next().session_epoch == 0 and set(leader.positions()) == {0, 1}
    leader.answer(part(0), part(1))
    leader.tell(Disconnected("gone", was_sent=True))
    assert leader.asked == []
    leader.pass_ms(1_100)
    assert leader.next().session_epoch == 0 and set(leader.positions()) == {0, 1}


def test_the_epoch_after_the_last_one_of_a_session_is_the_first() -> None:
    """KIP-227: 0 would begin a new session."""
    leader = Leader()
    leader.answer(part(0), part(1))
    leader.node.replication.fetchers[_LEADER]._epoch = 0x7FFFFFFF
    leader.answer()
    assert (leader.next().session_id, leader.next().session_epoch) == (5, 1)


def test_an_answer_of_an_earlier_epoch_is_dropped() -> None:
    leader = Leader()
    leader.follow()
    leader.answer(part(0, records(0, 3)), part(1))
    assert leader.log(0).end_offset == 0
    assert leader.positions()[0] == (0, -1, 2)


def offsets_answered(leader: Leader, index: int, earliest: int, latest: int) -> None:
    """The leader's answers to the questions about the start and the end of its log."""
    questions = [each for each in leader.asked if isinstance(each[0], list_offsets.ListOffsetsRequest)]
    assert [each[0].topics[0].partitions[0].timestamp for each in questions] == [-2, -1]
    for question, offset in zip(questions, (earliest, latest), strict=True):
        answered = list_offsets.ListOffsetsPartitionResponse(partition_index=index, offset=offset)
        question[1](
            list_offsets.ListOffsetsResponse(
                topics=[list_offsets.ListOffsetsTopicResponse(name=TOPIC, partitions=[answered])]
            )
        )
        leader.asked.remove(question)


def test_what_is_out_of_range_begins_where_the_leaders_log_begins() -> None:
    leader = Leader()
    leader.answer(part(0, error=ErrorCode.OFFSET_OUT_OF_RANGE), part(1))
    offsets_answered(leader, 0, 7, 9)
    leader.answer(part(1))
    assert leader.positions()[0] == (7, -1, 1)


def test_with_flush_messages_the_next_request_waits_for_the_sync() -> None:
    leader = Leader(log_flush_interval_messages="1")
    _, done = leader.asked.pop(0)
    response = fetch.FetchResponse(session_id=5)
    response.responses.append(
        fetch.FetchableTopicResponse(topic_id=leader.topic_id, partitions=[part(0, records(0)), part(1)])
    )
    done(response)
    seen = []
    while not leader.asked:
        seen.append(leader.log(0).recovery_point)
        leader.scene.machine.loop.turn()
    assert leader.positions()[0][0] == 1
    assert seen[0] == 0 and leader.log(0).recovery_point == 1


def test_a_long_answer_takes_several_turns_of_the_loop() -> None:
    leader = Leader(log_segment_bytes="10485760")
    data = b""
    value = b"x" * 400_000
    for offset in range(3):
        batch = bytearray(build([(1, None, value, ())]))
        batch[:8] = offset.to_bytes(8, "big")
        batch[12:16] = (1).to_bytes(4, "big")
        data += bytes(batch)
    _, done = leader.asked.pop(0)
    response = fetch.FetchResponse(session_id=5)
    parts = [part(index, data) for index in range(_PARTITIONS)]
    response.responses.append(fetch.FetchableTopicResponse(topic_id=leader.topic_id, partitions=[parts[0], parts[1]]))
    done(response)
    # Each is more than a turn's worth.
    assert [leader.log(index).end_offset for index in range(_PARTITIONS)] == [3, 0]
    leader.scene.machine.settle()
    assert leader.positions() == {0: (3, 1, 1), 1: (3, 1, 1)}


def test_a_leader_that_is_none_is_not_asked() -> None:
    leader = Leader()
    leader.node.quorum.append(
        [PartitionChangeRecord(topic_id=leader.topic_id, partition_id=index, leader=-1) for index in range(_PARTITIONS)]
    )
    leader.scene.machine.settle()
    leader.answer(part(0), part(1))
    assert leader.asked == []
    leader.follow()
    assert leader.positions()[0] == (0, -1, 3)


def test_a_fetcher_ends_with_its_last_replica_and_no_sooner() -> None:
    leader = Leader()
    fetchers = leader.node.replication.fetchers
    fetcher = fetchers[_LEADER]
    leader.answer(part(0), part(1))
    # All its replicas are forgotten and followed again in one turn of the loop.
    replicas = [leader.node.hosted[TopicPartition(TOPIC, index)] for index in range(_PARTITIONS)]
    for replica in replicas:
        leader.node.replication.forget(replica)
    for replica in replicas:
        leader.node.replication.follow(replica)
    leader.scene.machine.settle()
    assert fetchers == {_LEADER: fetcher}
    assert not fetcher.closed
    leader.answer()
    assert leader.positions() == {0: (0, -1, 1), 1: (0, -1, 1)}
    for index, left in ((0, {_LEADER: fetcher}), (1, {})):
        away = PartitionChangeRecord(topic_id=leader.topic_id, partition_id=index, leader=-1)
        leader.node.quorum.append([away])
        leader.scene.machine.settle()
        assert fetchers == left
    assert fetcher.closed


def test_a_disk_that_fails_at_a_cut_ends_its_own_partitions_alone() -> None:
    leader = Leader(log_dirs="/a,/b")
    node = leader.node
    [lost] = [index for index in range(_PARTITIONS) if leader.directory(index) == "/b"]
    kept = 1 - lost
    leader.answer(part(lost, records(0, 3)), part(kept))
    leader.answer(part(lost, error=ErrorCode.OFFSET_OUT_OF_RANGE))
    leader.scene.machine.disk.break_directory("/b")
    # The leader's log ends before this one.
    offsets_answered(leader, lost, 0, 1)
    assert list(node.failed_directories) == ["/b"]
    leader.answer()
    leader.answer(part(kept, records(0), high=1))
    assert leader.log(kept).end_offset == 1
    assert leader.positions() == {kept: (1, 1, 1)}


def test_a_connection_that_ends_while_a_response_is_applied_ends_no_partition() -> None:
    leader = Leader(log_segment_bytes="10485760")
    _, done = leader.asked.pop(0)
    response = fetch.FetchResponse(session_id=5)
    batch = bytearray(build([(1, None, b"x" * (1 << 20), ())]))
    batch[12:16] = (1).to_bytes(4, "big")
    parts = [part(0, bytes(batch)), part(1, error=ErrorCode.OFFSET_OUT_OF_RANGE)]
    response.responses.append(fetch.FetchableTopicResponse(topic_id=leader.topic_id, partitions=parts))
    done(response)
    # The first part took this turn of the loop; then the metadata has another address for the leader.
    leader.node.replication.fetchers[_LEADER]._disconnect()
    leader.scene.machine.settle()
    assert leader.positions() == {0: (1, 1, 1)}
    leader.pass_ms(2000)
    leader.answer()
    assert leader.positions() == {1: (0, -1, 1)}


def test_an_error_that_only_newer_brokers_know_pauses_its_partition_alone() -> None:
    leader = Leader()
    failed = part(0)
    failed.error_code = 9999
    leader.answer(failed, part(1, records(0), high=1))
    assert leader.forgotten() == {0}
    assert leader.positions() == {1: (1, 1, 1)}


def test_a_partition_that_a_throttle_pauses_in_a_new_epoch_leaves_the_session() -> None:
    """The leader would answer the fetches for its old epoch at once, one after the other."""
    leader = Leader()
    leader.answer(part(0), part(1))
    throttle = leader.node.throttles.follower
    throttle.mark(TOPIC, {0})
    throttle.bound = 1
    throttle.record(1 << 20, leader.scene.machine.clock.monotonic_ms())
    leader.follow()
    leader.answer()
    assert leader.positions() == {1: (0, -1, 2)} and leader.forgotten() == {0}
    throttle.bound = 1 << 40
    leader.pass_ms(1_100)
    leader.answer()
    assert leader.positions() == {0: (0, -1, 2)} and leader.forgotten() == set()


def test_a_full_disk_is_logged_once_until_there_is_room(caplog: pytest.LogCaptureFixture) -> None:
    leader = Leader()
    disk = leader.scene.machine.disk
    leader.answer(part(0), part(1))

    def fetch_on(attempts: int) -> int:
        """Offer the partition its records again after each backoff; how often it was logged that they have no room."""
        caplog.clear()
        for _ in range(attempts):
            leader.answer(part(0, records(leader.log(0).end_offset)))
            leader.pass_ms(1_100)
            leader.answer()
        return sum("cannot write t-0" in each.getMessage() for each in caplog.records)

    for _ in range(2):
        disk.fill(disk._used())
        assert fetch_on(3) == 1
        disk.fill(None)
        assert fetch_on(1) == 0
    assert leader.log(0).end_offset == 2


def test_a_bug_in_a_check_for_lagging_replicas_is_not_the_last_check(monkeypatch: pytest.MonkeyPatch) -> None:
    leader = Leader()
    replication, checks = leader.node.replication, list[int]()

    def breaks() -> None:
        checks.append(len(checks))
        raise ValueError("a bug")

    monkeypatch.setattr(replication, "_check_isr", breaks)
    for _ in range(2):
        with pytest.raises(ValueError, match="a bug"):
            leader.pass_ms(20_000)
    assert checks == [0, 1]
