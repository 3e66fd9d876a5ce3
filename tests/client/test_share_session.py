"""A share session: what each request names, how the epochs go on, and what ends it; and the members' bytes."""

from __future__ import annotations

import pytest

from ottla.client.acknowledgement import GAP, Acknowledge, Acknowledgements, Range, ShareRecord, ranges
from ottla.client.assignment.consumer_protocol import (
    Subscription,
    assignment_bytes,
    parse_assignment,
    parse_subscription,
    subscription_bytes,
)
from ottla.client.share.session import ShareFetchSession, offsets_of
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import TopicPartition, Uuid

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
T, U, NEW_T = Uuid(b"t" * 16), Uuid(b"u" * 16), Uuid(b"n" * 16)


def begun(wanted: dict[TopicPartition, Uuid]) -> ShareFetchSession:
    """A session that the broker knows, with these partitions."""
    session = ShareFetchSession()
    session.fetch(wanted, {})
    assert session.answered(0) and session.began
    return session


def test_partitions_are_named_under_their_topics() -> None:
    session = ShareFetchSession()
    assert not session.began
    request = session.fetch({T0: T, U0: U, T1: T}, {})
    assert [(each.topic_id, [one.partition_index for one in each.partitions]) for each in request.topics] == [
        (T, [0, 1]),
        (U, [0]),
    ]
    assert request.share_session_epoch == 0 and not request.forgotten_topics_data


def test_only_what_is_new_or_acknowledged_is_named_and_what_is_gone_forgotten() -> None:
    session = begun({T0: T, T1: T})
    request = session.fetch({T0: T, U0: U}, {T0: [Range(5, 7, [1]), Range(9, 9, [3])]})
    named = {each.topic_id: each.partitions for each in request.topics}
    assert list(named) == [U, T] or list(named) == [T, U]
    [of_t], [of_u] = named[T], named[U]
    assert [
        (batch.first_offset, batch.last_offset, batch.acknowledge_types) for batch in of_t.acknowledgement_batches
    ] == [(5, 7, [1]), (9, 9, [3])]
    assert of_u.acknowledgement_batches == []
    assert [(each.topic_id, each.partitions) for each in request.forgotten_topics_data] == [(T, [1])]
    assert session.known == {T0: T, U0: U}


def test_acknowledgements_of_a_partition_that_is_no_longer_wanted_go_to_its_topic() -> None:
    session = begun({T0: T})
    request = session.fetch({}, {T0: [Range(1, 1, [2])]})
    assert [each.topic_id for each in request.topics] == [T]
    assert [(each.topic_id, each.partitions) for each in request.forgotten_topics_data] == [(T, [0])]


def test_a_topic_that_was_made_again_is_named_by_its_new_id_and_the_old_one_forgotten() -> None:
    session = begun({T0: T})
    request = session.fetch({T0: NEW_T}, {})
    assert [each.topic_id for each in request.topics] == [NEW_T]
    assert [each.topic_id for each in request.forgotten_topics_data] == [T]


def test_epochs_go_on_with_good_answers_only_and_around() -> None:
    session = begun({T0: T})
    assert session.epoch == 1
    assert session.answered(int(ErrorCode.NOT_LEADER_OR_FOLLOWER)) and session.epoch == 1
    session.epoch = 0x7FFFFFFF
    assert session.answered(0) and session.epoch == 1


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    ],
)
def test_a_session_that_is_lost_begins_again_with_all_its_partitions(code: ErrorCode) -> None:
    session = begun({T0: T})
    assert not session.answered(int(code))
    assert not session.began
    request = session.fetch({T0: T}, {})
    assert (request.share_session_epoch, [each.topic_id for each in request.topics]) == (0, [T])


def test_acknowledgements_may_go_alone_and_end_the_session() -> None:
    session = begun({T0: T, U0: U})
    request = session.acknowledge({T0: T, T1: T, U0: U}, {T0: [Range(1, 2, [1, 2])], T1: [Range(3, 3, [1])]})
    assert request.share_session_epoch == 1
    [topic] = request.topics
    assert (topic.topic_id, [each.partition_index for each in topic.partitions]) == (T, [0, 1])
    assert topic.partitions[0].acknowledgement_batches[0].acknowledge_types == [1, 2]
    assert session.acknowledge({}, {}, last=True).share_session_epoch == -1


def test_ranges_are_runs_of_offsets_in_order() -> None:
    assert ranges({7: 1, 5: 1, 6: 1, 9: 2}) == [Range(5, 7, [1]), Range(9, 9, [2])]
    assert ranges({1: 1, 2: 3, 3: GAP, 4: 1}) == [Range(1, 4, [1, 3, 0, 1])]
    assert ranges({}) == []
    assert offsets_of([Range(5, 7, [1]), Range(9, 9, [2])]) == [5, 6, 7, 9]


def shared(partition: TopicPartition, offset: int) -> ShareRecord[None, None]:
    return ShareRecord(partition.topic, partition.partition, offset, 0, None, None, (), 0, 1)


def test_records_that_did_not_reach_the_program_are_not_acknowledged() -> None:
    machine = Acknowledgements(explicit=False)
    machine.give([shared(T0, 1), shared(T0, 2), shared(U0, 5)])
    machine.withdraw([shared(T0, 2), shared(U0, 5), shared(T1, 9)])
    assert machine.in_hand == {T0: {1: None}}
    machine.settle(for_poll=True)
    assert machine.take([T0, U0, T1]) == {T0: [Range(1, 1, [1])]}
    assert machine.take([T0]) == {}, "each is sent once"


def test_offsets_that_the_program_never_saw_are_acknowledged_for_it() -> None:
    machine = Acknowledgements(explicit=True)
    machine.acknowledge_unseen(T0, [4, 5], GAP)
    machine.acknowledge_unseen(T1, [], GAP)
    assert T1 not in machine.ready
    assert machine.take([T0, T1]) == {T0: [Range(4, 5, [0])]}


def test_only_the_partitions_that_are_asked_for_are_taken() -> None:
    machine = Acknowledgements(explicit=True)
    machine.give([shared(T0, 1), shared(U0, 5)])
    machine.acknowledge(T0, 1, Acknowledge.ACCEPT)
    machine.acknowledge(U0, 5, Acknowledge.REJECT)
    machine.settle(for_poll=True)
    assert not machine.in_hand
    assert machine.take([U0]) == {U0: [Range(5, 5, [3])]}
    assert machine.ready == {T0: {1: 1}}


def test_a_renewed_record_keeps_the_next_poll_waiting_in_explicit_mode() -> None:
    machine = Acknowledgements(explicit=True)
    machine.give([shared(T0, 1)])
    machine.acknowledge(T0, 1, Acknowledge.RENEW)
    machine.settle(for_poll=True)
    assert machine.in_hand == {T0: {1: None}}


def test_a_members_bytes_are_read_as_they_were_written() -> None:
    member = Subscription(("t", "u"), (T1, U0, T0), 7, "rack", b"data")
    found = parse_subscription(subscription_bytes(member))
    assert (found.topics, set(found.owned), found.generation, found.rack, found.user_data) == (
        ("t", "u"),
        {T0, T1, U0},
        7,
        "rack",
        b"data",
    )
    assert parse_subscription(subscription_bytes(Subscription(()))) == Subscription(())
    assert set(parse_assignment(assignment_bytes([T0, U0, T1]))) == {T0, T1, U0}
    assert parse_assignment(b"") == ()


@pytest.mark.parametrize("data", [b"\0", b"\xff\xff\0\0", b"\0\1\0\0\0\7"])
def test_bytes_that_are_no_members_are_refused(data: bytes) -> None:
    for parse in (parse_subscription, parse_assignment):
        with pytest.raises(KafkaError) as error:
            parse(data)
        assert error.value.code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_bytes_of_a_newer_version_are_read_as_far_as_we_know_them() -> None:
    data = bytearray(subscription_bytes(Subscription(("t",), (T0,), 3, "r")))
    data[:2] = (99).to_bytes(2, "big")
    assert parse_subscription(bytes(data) + b"more") == Subscription(("t",), (T0,), 3, "r")
