"""What the client knows of the cluster, of its fetch sessions and positions, without a socket."""

from random import Random

import pytest

from ottla.client.connection.metadata import Metadata
from ottla.client.consumer.fetch_session import FetchSession, WantedPartition
from ottla.client.consumer.position import Chunk, PartitionPosition
from ottla.client.producer.partitioner import next_sticky
from ottla.client.settings.consumer import ConsumerSettings
from ottla.client.settings.producer import ProducerSettings
from ottla.kernel.error import ErrorCode, OttlaError
from ottla.kernel.ids import TopicPartition, Uuid
from ottla.wire.api.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.wire.batch import build

ID, OTHER = Uuid(b"i" * 16), Uuid(b"o" * 16)
PARTITION = TopicPartition("t", 0)


def answer(leader: int, epoch: int, topic_id: Uuid = ID, error: ErrorCode = ErrorCode.NONE) -> MetadataResponse:
    partition = MetadataResponsePartition(partition_index=0, leader_id=leader, leader_epoch=epoch)
    topic = MetadataResponseTopic(name="t", topic_id=topic_id, error_code=int(error), partitions=[partition])
    brokers = [MetadataResponseBroker(node_id=node, host="h", port=node) for node in (1, 2)]
    return MetadataResponse(brokers=brokers, topics=[topic])


def leader_of(metadata: Metadata) -> int | None:
    state = metadata.leader("t", 0)
    return None if state is None else state.leader


def view() -> Metadata:
    return Metadata(max_age_ms=1000, max_idle_ms=5000, now_ms=0)


def test_an_older_leader_epoch_does_not_replace_a_newer_one() -> None:
    metadata = view()
    assert metadata.apply(answer(1, 5), 0) == [PARTITION]
    assert metadata.apply(answer(2, 4), 0) == []
    assert leader_of(metadata) == 1
    assert metadata.apply(answer(2, 6), 0) == [PARTITION]
    assert leader_of(metadata) == 2


def test_a_topic_made_anew_under_its_name_begins_at_its_own_epoch() -> None:
    metadata = view()
    metadata.apply(answer(1, 5), 0)
    metadata.apply(answer(2, 0, OTHER), 0)
    assert leader_of(metadata) == 2
    assert metadata.topic_names == {OTHER: "t"}


def test_a_leader_hint_counts_only_if_it_is_newer() -> None:
    metadata = view()
    metadata.apply(answer(1, 5), 0)
    assert not metadata.leader_moved("t", 0, 2, 5)
    assert metadata.leader_moved("t", 0, 2, 6)
    assert leader_of(metadata) == 2


def test_a_topic_that_is_gone_is_forgotten_and_one_without_a_leader_is_not() -> None:
    metadata = view()
    metadata.apply(answer(1, 5), 0)
    metadata.apply(answer(1, 5, error=ErrorCode.LEADER_NOT_AVAILABLE), 0)
    assert "t" in metadata.topics
    metadata.apply(answer(1, 5, error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), 0)
    assert "t" not in metadata.topics


def test_metadata_is_due_when_it_is_old_or_when_something_failed() -> None:
    metadata = view()
    metadata.apply(answer(1, 5), 100)
    assert metadata.update_due_ms() == 1100
    metadata.request_update(200)
    assert metadata.update_due_ms() == 200


def test_a_topic_that_nobody_uses_is_no_longer_asked_for() -> None:
    metadata = view()
    metadata.want(["t"], 0)
    assert metadata.topics_to_ask(5000) == ["t"]
    assert metadata.topics_to_ask(5001) == []


def want(offset: int) -> WantedPartition:
    return WantedPartition(offset, 0, 1000, ID)


def test_a_session_sends_only_what_changed_and_forgets_what_is_not_wanted() -> None:
    session = FetchSession()
    second = TopicPartition("t", 1)
    first = session.next_request({PARTITION: want(0), second: want(0)})
    assert (first.epoch, len(first.send), first.forget) == (0, 2, [])
    assert session.answered(0, 77)
    next_one = session.next_request({PARTITION: want(5), second: want(0)})
    assert (next_one.session_id, next_one.epoch, list(next_one.send)) == (77, 1, [PARTITION])
    session.answered(0, 77)
    last = session.next_request({PARTITION: want(5)})
    assert (list(last.send), last.forget) == ([], [(second, ID)])


def test_a_session_that_the_broker_lost_begins_anew() -> None:
    session = FetchSession()
    session.next_request({PARTITION: want(0)})
    session.answered(0, 77)
    session.next_request({PARTITION: want(1)})
    assert not session.answered(int(ErrorCode.FETCH_SESSION_ID_NOT_FOUND), 0)
    again = session.next_request({PARTITION: want(1)})
    assert (again.session_id, again.epoch, list(again.send)) == (0, 0, [PARTITION])


@pytest.mark.parametrize(
    ("code", "answered_id", "good", "next_id", "next_epoch"),
    [
        (ErrorCode.NONE, 77, True, 77, 2),
        # The broker keeps no session.
        (ErrorCode.NONE, 0, True, 0, 0),
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0, False, 0, 0),
        # It closes this one when it begins the next.
        (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, 0, False, 77, 0),
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 0, False, 77, 0),
        # Anything else is no error of the session.
        (ErrorCode.UNKNOWN_SERVER_ERROR, 77, True, 77, 2),
    ],
)
def test_an_answer_carries_a_session_on_or_ends_it(
    code: ErrorCode, answered_id: int, good: bool, next_id: int, next_epoch: int
) -> None:
    session = FetchSession()
    session.next_request({PARTITION: want(0)})
    session.answered(0, 77)
    session.next_request({PARTITION: want(1)})
    assert session.answered(int(code), answered_id) is good
    following = session.next_request({PARTITION: want(1)})
    assert (following.session_id, following.epoch) == (next_id, next_epoch)
    assert list(following.send) == ([PARTITION] if next_epoch == 0 else [])


def test_a_session_forgets_a_topic_that_was_made_again() -> None:
    session = FetchSession()
    session.next_request({PARTITION: want(0)})
    session.answered(0, 77)
    again = WantedPartition(0, 0, 1000, OTHER)
    following = session.next_request({PARTITION: again})
    assert (following.send, following.forget) == ({PARTITION: again}, [(PARTITION, ID)])


@pytest.mark.parametrize(
    ("available", "current", "load", "chosen"),
    [
        ([3], 3, [], {3}),
        ([1, 2], 1, [0, 9, 9], {2}),
        ([0, 1, 2], 1, [5, 0, 6], {0, 2}),
        ([0, 1, 2], 7, [0, 0, 0], {0, 1, 2}),
    ],
)
def test_the_next_partition_without_a_key_is_another_one(
    available: list[int], current: int, load: list[int], chosen: set[int]
) -> None:
    found = [next_sticky(available, load, current, Random(seed)) for seed in range(60)]
    assert set(found) == chosen
    if chosen == {0, 2}:
        assert found.count(0) > found.count(2), "of two by chance the one with less to do"


def test_a_session_goes_on_behind_its_last_epoch() -> None:
    """Epoch 0 would begin another session, -1 end this one."""
    session = FetchSession()
    session.next_request({PARTITION: want(0)})
    session.answered(0, 77)
    session.epoch = 0x7FFFFFFF
    session.answered(0, 77)
    going_on = session.next_request({PARTITION: want(0)})
    assert (going_on.session_id, going_on.epoch, going_on.send) == (77, 1, {})


def chunk(offset: int, count: int, at: int | None = None) -> Chunk:
    data = build([(0, None, b"%d" % n, ()) for n in range(count)], base_offset=offset)
    return Chunk(data, offset if at is None else at, None, check_crcs=True)


def test_a_position_moves_with_the_records_that_were_given() -> None:
    state = PartitionPosition(PARTITION)
    state.seek(10)
    assert state.fetched(chunk(10, 5), 10)
    assert state.fetch_offset == 15
    assert [one.offset for one in state.take(3)] == [10, 11, 12]
    assert state.position == 13
    assert [one.offset for one in state.take(3)] == [13, 14]
    assert state.position == 15
    assert state.buffered == 0


def test_an_answer_to_a_fetch_from_before_a_seek_is_dropped() -> None:
    state = PartitionPosition(PARTITION)
    state.seek(10)
    state.seek(20)
    assert not state.fetched(chunk(10, 5), 10)
    assert not state.has_records


def test_a_fetch_that_begins_within_a_batch_gives_the_rest_of_it() -> None:
    state = PartitionPosition(PARTITION)
    state.seek(12)
    state.fetched(chunk(10, 5, at=12), 12)
    assert [one.offset for one in state.take(100)] == [12, 13, 14]


def test_settings_are_read_by_both_names_and_refused_with_what_they_take() -> None:
    assert ProducerSettings.read({"bootstrap.servers": "a:1,[::1]:2", "linger.ms": "7"}, {}).linger_ms == 7
    assert ProducerSettings.read("a:1", {"acks": "all"}).acks == -1
    for keywords, said in (
        ({"linger": 5}, "did you mean linger.ms"),
        ({"acks": 2}, "expected 0, 1 or all"),
        ({"compression_type": "rar"}, "none, gzip, snappy, lz4, zstd"),
        ({"acks": 1, "enable_idempotence": True}, "needs acks=all"),
        ({"request_timeout_ms": 1 << 31}, "a whole number of at least 1, of 32 bits"),
        ({"linger_ms": 1 << 63}, "a whole number of at least 0, of 64 bits"),
        ({"linger_ms": 1000, "delivery_timeout_ms": 1000}, "must be longer than linger.ms=1000: records would time"),
    ):
        with pytest.raises(OttlaError, match=said):
            ProducerSettings.read("a:1", keywords)
    with pytest.raises(OttlaError, match=r"bootstrap\.servers is missing"):
        ConsumerSettings.read(None, {})
    with pytest.raises(OttlaError, match="host:port"):
        ConsumerSettings.read("nowhere", {})
    with pytest.raises(
        OttlaError, match=r"heartbeat\.interval\.ms=45000 must be shorter than session\.timeout\.ms=45000"
    ):
        ConsumerSettings.read("a:1", {"heartbeat_interval_ms": 45_000, "group_id": "g"})
    java = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
    read = ConsumerSettings.read("a:1", {"partition.assignment.strategy": java})
    assert read.partition_assignment_strategy == ["cooperative-sticky"]


def test_records_that_linger_long_have_time_to_be_sent() -> None:
    """As in Kafka's producer, a default delivery.timeout.ms is at least linger.ms and request.timeout.ms."""
    assert ProducerSettings.read("a:1", {}).delivery_timeout_ms == 120_000
    assert ProducerSettings.read("a:1", {"linger_ms": 130_000}).delivery_timeout_ms == 160_000
    assert ProducerSettings.read("a:1", {"request_timeout_ms": 0x7FFFFFFF}).delivery_timeout_ms == 0x7FFFFFFF
