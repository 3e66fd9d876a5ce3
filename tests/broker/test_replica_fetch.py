"""A follower's fetches at the leader, as raw requests: what they are sent, and what the leader learns from them."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.broker.partitions import replica_fetch
from ottla.kernel.error import ErrorCode
from ottla.kernel.validators import LONG_MAX
from ottla.replica.replica_session import SESSIONS_MAX
from ottla.replica.throttle import ALL
from ottla.wire.api import ApiKey, fetch
from ottla.wire.batch import read
from tests.broker.disk_scene import TOPIC
from tests.broker.test_replicated_produce import Pair, code

_FOLLOWER = 2
_EPOCH = 77


class Follower:
    """A broker with one session, as KIP-227 has it."""

    def __init__(self, pair: Pair, broker_epoch: int = _EPOCH, replica_id: int = _FOLLOWER) -> None:
        self.pair = pair
        self.state = fetch.ReplicaState(replica_id=replica_id, replica_epoch=broker_epoch)
        self.session_id = self.epoch = 0

    def ask(self, *parts: fetch.FetchPartition, wait_ms: int = 500, max_bytes: int = 1 << 20) -> list[Any]:
        """The answer, once there is one; `parts` are what changed."""
        topic_id = self.pair.scene.node.image.topics[TOPIC].topic_id
        topics = [fetch.FetchTopic(topic_id=topic_id, partitions=list(parts))] if parts else []
        request = fetch.FetchRequest(
            replica_state=self.state,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=max_bytes,
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=topics,
        )
        answers = self.pair.send(request, 17)
        self.epoch += 1
        return answers

    def told(self, *parts: fetch.FetchPartition, wait_ms: int = 0, max_bytes: int = 1 << 20) -> dict[int, Any]:
        """What the answer says of each partition that it names."""
        answers = self.ask(*parts, wait_ms=wait_ms, max_bytes=max_bytes)
        self.pair.scene.machine.run(lambda: bool(answers))
        return self.of(answers)

    def of(self, answers: list[Any]) -> dict[int, Any]:
        assert answers[0].error_code == 0, ErrorCode(answers[0].error_code)
        self.session_id = answers[0].session_id
        return {part.partition_index: part for topic in answers[0].responses for part in topic.partitions}


def at(offset: int, partition: int = 0, last_epoch: int = -1, leader_epoch: int = 0, start: int = 0) -> Any:
    return fetch.FetchPartition(
        partition=partition,
        fetch_offset=offset,
        last_fetched_epoch=last_epoch,
        current_leader_epoch=leader_epoch,
        log_start_offset=start,
        partition_max_bytes=1 << 20,
    )


def narrow(offset: int, **more: int) -> Any:
    """A partition that has room for one batch, and only if it is the first with records."""
    part = at(offset, **more)
    part.partition_max_bytes = 1
    return part


def values(part: Any) -> list[bytes]:
    return [bytes(each.value or b"") for batch in read(bytes(part.records or b"")) for each in batch.records()]


def test_a_follower_is_sent_what_is_not_committed_and_so_commits_it() -> None:
    pair = Pair()
    follower = Follower(pair)
    waits = pair.produce(b"one")
    first = follower.told(at(0))[0]
    assert values(first) == [b"one"] and first.high_watermark == 0 and not waits
    second = follower.told(at(1, last_epoch=0))[0]
    assert code(waits) == "NONE"
    assert not second.records and second.high_watermark == 1


def test_an_append_wakes_a_parked_fetch_once_a_turn_and_a_high_watermark_does_not() -> None:
    pair = Pair()
    follower = Follower(pair)
    follower.told(at(0))
    parked = follower.ask(wait_ms=60_000)
    assert not parked
    pair.produce(b"one", acks=1)
    assert values(follower.of(parked)[0]) == [b"one"]
    parked = follower.ask(at(1, last_epoch=0), wait_ms=60_000)
    assert not parked and pair.partition.high_watermark == 1
    pair.produce(b"two", acks=1)
    found = follower.of(parked)[0]
    assert values(found) == [b"two"] and found.high_watermark == 1


def test_each_parked_fetch_of_a_session_waits_as_long_as_it_asked_for() -> None:
    pair = Pair()
    follower = Follower(pair)
    follower.told(at(0))
    clock = pair.scene.machine.clock

    def waited_ms(wait_ms: int) -> int:
        """How long a fetch without news waits, in milliseconds."""
        began = clock.monotonic_ms()
        follower.told(wait_ms=wait_ms)
        return int(clock.monotonic_ms() - began)

    assert waited_ms(500) == 500
    # A long wait that an append ends leaves its timer behind: it must not lengthen the wait of the next one.
    parked = follower.ask(wait_ms=60_000)
    pair.produce(b"one", acks=1)
    follower.of(parked)
    follower.told(at(1))
    assert waited_ms(300) == 300
    # And a short one's timer must not shorten the wait of the next.
    parked = follower.ask(wait_ms=400)
    pair.produce(b"two", acks=1)
    follower.of(parked)
    follower.told(at(2))
    assert waited_ms(2_000) == 2_000


def test_a_follower_is_sent_at_most_what_the_node_allows_whatever_it_asks_for() -> None:
    pair = Pair(fetch_max_bytes="1024")
    follower = Follower(pair)
    follower.told(at(0))
    for _ in range(3):
        pair.produce(b"x" * 700, acks=1)
    # The second batch begins within the bound and ends behind it, as Apache Kafka's last one does.
    assert len(follower.told(max_bytes=1 << 20)[0].records) == 1024


def test_a_session_is_told_of_what_changed_and_nothing_else() -> None:
    pair = Pair()
    follower = Follower(pair)
    assert set(follower.told(at(0))) == {0}
    assert follower.told() == {}
    pair.produce(acks=1)
    assert set(follower.told()) == {0}
    # Until the follower says that it has it, it is sent again.
    assert set(follower.told()) == {0}
    # The answer to its new position tells of the high watermark.
    assert follower.told(at(1, last_epoch=0))[0].high_watermark == 1
    assert follower.told() == {}
    # A log start that moves is news.
    pair.partition.log.advance_start_offset(1)
    pair.partition.log_start_moved()
    assert follower.told()[0].log_start_offset == 1


def test_the_answer_to_a_log_that_parts_from_ours_names_the_end_of_the_log_not_the_high_watermark() -> None:
    pair = Pair()
    for _ in range(3):
        pair.produce(acks=1)
    pair.change(leader=1)
    assert pair.partition.leader_epoch == 1
    # Our epoch 0 ended at 3, though nothing of it is committed: a follower with all three has nothing to cut.
    follower = Follower(pair)
    found = follower.told(at(3, last_epoch=0, leader_epoch=1))[0]
    assert found.error_code == 0 and found.diverging_epoch.epoch == -1
    pair.change(leader=1)
    behind = Follower(pair, _EPOCH + 1).told(at(5, last_epoch=0, leader_epoch=2))[0]
    assert (behind.diverging_epoch.epoch, behind.diverging_epoch.end_offset) == (0, 3)
    # What it says of its end counts for nothing.
    assert pair.partition.machine is not None
    assert pair.partition.machine.followers[_FOLLOWER].end_offset == -1


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ((0, 0, -1), "NONE"),
        ((0, 0, 0), "FENCED_LEADER_EPOCH"),
        ((0, 0, 2), "UNKNOWN_LEADER_EPOCH"),
        ((9, 0, 1), "OFFSET_OUT_OF_RANGE"),
        ((0, 5, 1), "UNKNOWN_TOPIC_OR_PARTITION"),
    ],
)
def test_what_a_follower_may_not_ask(asked: tuple[int, int, int], told: str) -> None:
    pair = Pair()
    pair.change(leader=1)
    pair.produce(acks=1)
    offset, partition, leader_epoch = asked
    found = Follower(pair).told(at(offset, partition, leader_epoch=leader_epoch))
    assert ErrorCode(found[partition].error_code).name == told
    assert pair.partition.high_watermark == 0


def test_a_broker_that_is_no_replica_and_an_earlier_life_of_one_count_for_nothing() -> None:
    pair = Pair()
    pair.produce(acks=1)
    stranger = Follower(pair, replica_id=3).told(at(1))[0]
    assert ErrorCode(stranger.error_code).name == "UNKNOWN_LEADER_EPOCH"
    Follower(pair, _EPOCH).told(at(0))
    earlier = Follower(pair, _EPOCH - 1).told(at(1))[0]
    assert ErrorCode(earlier.error_code).name == "NOT_LEADER_OR_FOLLOWER" and not earlier.records
    assert pair.partition.high_watermark == 0


def test_a_full_response_leaves_the_rest_for_the_next_and_none_starves() -> None:
    pair = Pair()
    pair.scene.machine.create_topic("other", 1)
    for _ in range(4):
        pair.produce(b"x" * 1000, acks=1)
    follower = Follower(pair)
    seen = 0
    first = follower.told(at(0), max_bytes=1)
    while first.get(0) is not None and first[0].records:
        seen += len(values(first[0]))
        first = follower.told(at(seen, last_epoch=0), max_bytes=1)
    assert seen == 4 and pair.partition.high_watermark == 4


def test_the_bound_of_a_response_is_that_of_all_its_partitions() -> None:
    pair = Pair(partitions=3)
    for index in range(3):
        pair.produce(b"x" * 700, acks=1, index=index)
    told = Follower(pair).told(*(at(0, partition=index) for index in range(3)), max_bytes=1_000)
    assert [index for index in told if told[index].records] == [0], "there is room for one of the batches"


def test_a_busy_partition_does_not_starve_one_whose_records_find_no_room() -> None:
    pair = Pair(partitions=2)
    for index in (0, 1):
        for _ in range(3):
            pair.produce(b"x" * 1000, acks=1, index=index)
    follower, ends = Follower(pair), [0, 0]
    told = follower.told(narrow(0), narrow(0, partition=1))
    served = []
    while sum(ends) < 6:
        [index] = [index for index, part in told.items() if part.records]
        served.append(index)
        ends[index] += len(values(told[index]))
        told = follower.told(narrow(ends[index], partition=index, last_epoch=0))
    assert served == [0, 1] * 3


def test_an_error_is_told_until_the_follower_asks_otherwise() -> None:
    """A follower whose pause is over before its next request has no new position, and so names nothing."""
    pair = Pair()
    pair.produce(acks=1)
    follower = Follower(pair)
    unknown = "UNKNOWN_LEADER_EPOCH"
    assert ErrorCode(follower.told(at(0, leader_epoch=1))[0].error_code).name == unknown
    assert ErrorCode(follower.told(wait_ms=60_000)[0].error_code).name == unknown
    pair.change(leader=1)
    assert len(values(follower.told()[0])) == 1


def test_a_divergence_is_told_until_the_follower_asks_otherwise() -> None:
    pair = Pair()
    pair.produce(acks=1)
    pair.change(leader=1)
    follower = Follower(pair)
    for part in ([at(5, last_epoch=0, leader_epoch=1)], [], []):
        assert follower.told(*part, wait_ms=60_000)[0].diverging_epoch.end_offset == 1
    assert follower.told(at(1, last_epoch=0, leader_epoch=1))[0].diverging_epoch.epoch == -1
    assert follower.told() == {}


def test_what_a_follower_has_of_another_history_commits_nothing() -> None:
    """It has as many records as the leader, and the last one is another: it was written in the epoch before."""
    pair = Pair()
    pair.produce(b"one", acks=1)
    pair.follower_has(1)
    pair.change(leader=1)
    waits = pair.produce(b"two")
    follower = Follower(pair)
    parted = follower.told(at(2, last_epoch=0, leader_epoch=1))[0]
    assert (parted.diverging_epoch.epoch, parted.diverging_epoch.end_offset) == (0, 1)
    assert pair.partition.high_watermark == 1 and not waits
    assert values(follower.told(at(1, last_epoch=0, leader_epoch=1))[0]) == [b"two"]
    follower.told(at(2, last_epoch=1, leader_epoch=1))
    assert pair.partition.high_watermark == 2 and code(waits) == "NONE"


@pytest.mark.parametrize("is_follower", [False, True])
def test_a_read_that_ends_with_its_segment_is_not_waited_for(is_follower: bool) -> None:
    """With fetch.min.bytes it would wait its full time at the end of each segment, though there is more behind it."""
    pair = Pair()
    topic_id = pair.scene.node.image.topics[TOPIC].topic_id
    request = fetch.FetchRequest(max_wait_ms=60_000, min_bytes=1 << 19, max_bytes=1 << 20, session_epoch=-1)
    if is_follower:
        request.replica_state = fetch.ReplicaState(replica_id=_FOLLOWER, replica_epoch=_EPOCH)
    request.topics = [fetch.FetchTopic(topic_id=topic_id, partitions=[at(0)])]
    pair.produce(b"one", acks=1)
    pair.follower_has(1)
    assert not pair.send(request, 17), "there may be more soon"
    pair.partition.log.roll(pair.scene.machine.clock.now_ms())
    pair.produce(b"two", acks=1)
    pair.follower_has(2)
    [part] = pair.send(request, 17)[0].responses[0].partitions
    assert values(part) == [b"one"]


def test_a_partition_that_is_led_no_more_ends_the_wait() -> None:
    pair = Pair()
    follower = Follower(pair)
    follower.told(at(0))
    parked = follower.ask(wait_ms=60_000)
    pair.change(leader=_FOLLOWER)
    assert ErrorCode(follower.of(parked)[0].error_code).name == "NOT_LEADER_OR_FOLLOWER"


def test_the_fetch_of_a_follower_that_has_gone_does_not_wait_on() -> None:
    pair = Pair()
    follower = Follower(pair)
    follower.told(at(0))
    parked = follower.ask(wait_ms=60_000)
    (session,) = pair.scene.node.replication.sessions._sessions.values()
    assert session.parked is not None and not parked
    for each in list(pair.scene.node.listeners[0].connections):
        each.close("its process has ended")
    assert session.parked is None


def superseded(pair: Pair, key: int) -> None:
    """Another request of this kind comes on the connection whose fetch waits."""
    for each in pair.scene.node.listeners[0].connections:
        for slot in list(each._slots)[-1:]:
            assert slot.superseded is not None
            slot.superseded(key)
    pair.scene.machine.settle()


@pytest.mark.parametrize("key", [ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FOR_LEADER_EPOCH])
def test_what_else_a_follower_asks_does_not_end_its_wait(key: ApiKey) -> None:
    pair = Pair()
    follower = Follower(pair)
    follower.told(at(0))
    parked = follower.ask(wait_ms=60_000)
    superseded(pair, key)
    assert not parked
    pair.produce(b"one", acks=1)
    assert values(follower.of(parked)[0]) == [b"one"]


@pytest.mark.parametrize(("key", "ends"), [(ApiKey.FETCH, True), (ApiKey.LIST_OFFSETS, True), (ApiKey.METADATA, False)])
def test_what_ends_the_wait_of_a_consumer_that_sends_the_next_request(key: ApiKey, ends: bool) -> None:
    pair = Pair()
    topics = [fetch.FetchTopic(topic=TOPIC, partitions=[at(0)])]
    request = fetch.FetchRequest(max_wait_ms=60_000, min_bytes=1, max_bytes=1 << 20, topics=topics)
    parked = pair.send(request, 12)
    assert not parked
    superseded(pair, key)
    assert bool(parked) == ends
    pair.produce(b"one", acks=1)
    pair.follower_has(1)
    [part] = [part for topic in parked[0].responses for part in topic.partitions]
    assert values(part) == ([] if ends else [b"one"])


@pytest.mark.parametrize("node_id", [-1, _FOLLOWER])
def test_a_fetch_waits_for_no_more_than_its_answer_may_hold(node_id: int) -> None:
    pair = Pair()
    pair.produce(b"one", acks=1)
    pair.follower_has(1)
    request = fetch.FetchRequest(
        replica_state=fetch.ReplicaState(replica_id=node_id, replica_epoch=_EPOCH),
        max_wait_ms=60_000,
        min_bytes=1 << 20,
        max_bytes=10,
        topics=[fetch.FetchTopic(topic_id=pair.scene.node.image.topics[TOPIC].topic_id, partitions=[at(0)])],
    )
    [answer] = pair.send(request, 17)
    [part] = [part for topic in answer.responses for part in topic.partitions]
    assert values(part) == [b"one"]


@pytest.mark.parametrize("epoch", [0, -1])
def test_a_full_fetch_ends_the_session_that_it_names(epoch: int) -> None:
    pair = Pair()
    follower = Follower(pair)
    follower.told(at(0))
    sessions, first = pair.scene.node.replication.sessions, follower.session_id
    assert len(sessions) == 1 and first
    follower.epoch = epoch
    follower.told(at(0))
    assert follower.session_id != first
    assert len(sessions) == (1 if epoch == 0 else 0)


def test_sessions_are_bounded_and_of_one_broker() -> None:
    pair = Pair()
    for _ in range(100):
        Follower(pair).told(at(0))
    assert len(pair.scene.node.replication.sessions) <= 32
    follower = Follower(pair)
    follower.told(at(0))
    follower.epoch += 1
    assert follower.ask()[0].error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    thief = Follower(pair, replica_id=3)
    thief.session_id, thief.epoch = follower.session_id, 1
    assert thief.ask()[0].error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    # A later life of the broker ends the sessions of the earlier one.
    Follower(pair, _EPOCH + 1).told(at(0))
    assert len(pair.scene.node.replication.sessions) == 1
    assert len(pair.partition.sessions) == 1


def test_strangers_sessions_are_bounded_and_one_without_a_session_leaves_nothing() -> None:
    pair = Pair()
    sessions = pair.scene.node.replication.sessions
    for replica_id in range(SESSIONS_MAX + 50):
        sessions.create(replica_id, 1, True, replica_id)
    assert len(sessions) == SESSIONS_MAX
    alone = Follower(pair)
    alone.epoch = -1
    assert alone.told(at(0))[0].error_code == 0 and alone.session_id == 0
    assert not pair.partition.sessions


def test_a_fetch_of_many_partitions_lets_others_have_their_turns() -> None:
    pair = Pair()
    pair.produce(b"one", acks=1)
    follower = Follower(pair)
    parts = [at(0, partition=index) for index in range(1500)]
    answers = follower.ask(*parts, wait_ms=60_000)
    pair.scene.machine.run(lambda: bool(answers))
    told = follower.of(answers)
    assert len(told) == 1500 and values(told[0]) == [b"one"]
    assert ErrorCode(told[1499].error_code).name == "UNKNOWN_TOPIC_OR_PARTITION"
    # The session goes on from there.
    assert follower.told(at(1, last_epoch=0))[0].high_watermark == 1


@pytest.mark.parametrize("is_marked", [False, True])
def test_a_follower_of_an_idle_partition_is_as_fresh_as_its_session(is_marked: bool) -> None:
    """Also if the log's start has moved since its last fetch."""
    pair = Pair()
    follower = Follower(pair)
    follower.told(at(0))
    machine = pair.partition.machine
    assert machine is not None
    clock = pair.scene.machine.clock
    before = machine.followers[_FOLLOWER].caught_up_ms
    for _ in range(10):
        # Nothing changes in the partition for longer than replica.lag.time.max.ms, and the session goes on.
        assert follower.told(wait_ms=5_000) == {}
    if is_marked:
        pair.partition.log_start_moved()
    pair.produce(acks=1)
    after = machine.followers[_FOLLOWER].caught_up_ms
    assert after - before >= 45_000
    assert clock.monotonic_ms() - after <= 5_000


def test_a_fetch_of_many_partitions_that_are_all_throttled_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise leader and follower would ask and answer each other as fast as they can."""
    monkeypatch.setattr(replica_fetch, "_STEPS_FROM", 0)
    pair = Pair()
    pair.change(isr=[1])
    follower = Follower(pair)
    assert set(follower.told(at(0))) == {0}
    throttle = pair.scene.node.throttles.leader
    throttle.mark(TOPIC, ALL)
    throttle.bound = 1
    throttle.record(1 << 30, pair.scene.machine.clock.monotonic_ms())
    pair.produce(b"one", acks=1)
    told = follower.told()[0]
    assert (told.high_watermark, values(told)) == (1, [])
    answers = follower.ask(wait_ms=5000)
    assert not answers
    throttle.bound = LONG_MAX
    pair.produce(b"two", acks=1)
    assert values(follower.of(answers)[0]) == [b"one", b"two"]
