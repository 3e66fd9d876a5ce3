"""Share groups on a real node: fetch, acknowledge, wait, sessions, offsets, and what survives a restart."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

import ottla
from ottla.kernel.error import ErrorCode
from ottla.kernel.ids import NO_UUID, Uuid, uuid_text
from ottla.wire.api import alter_share_group_offsets as alter
from ottla.wire.api import describe_share_group_offsets as describe
from ottla.wire.api.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.wire.api.delete_groups import DeleteGroupsRequest
from ottla.wire.api.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.wire.api.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.wire.api.end_txn import EndTxnRequest
from ottla.wire.api.find_coordinator import FindCoordinatorRequest
from ottla.wire.api.init_producer_id import InitProducerIdRequest
from ottla.wire.api.read_share_group_state_summary import (
    PartitionData,
    ReadShareGroupStateSummaryRequest,
    ReadStateSummaryData,
)
from tests.broker.wire_client import WireClient, make_coordinators
from tests.share.member import (
    ACCEPT,
    GAP,
    REJECT,
    RELEASE,
    RENEW,
    Member,
    create,
    outcomes,
    produce,
    records_of,
    set_group,
)

_groups = count()
#: A second member has its partitions at once.
_AT_ONCE = {"group.share.assignment.interval.ms": 0}
_EARLIEST = {"share.auto.offset.reset": "earliest"}


@pytest.fixture(scope="module")
def node() -> Iterator[ottla.Node]:
    with ottla.Node(settings={"share.coordinator.state.topic.num.partitions": 3, **_AT_ONCE}) as node:
        yield node


@pytest.fixture
def client(node: ottla.Node) -> Iterator[WireClient]:
    with WireClient(node.bootstrap_servers) as client:
        yield client


@pytest.fixture
def group(client: WireClient) -> str:
    """A group that begins at the start of the log."""
    name = f"shares-{next(_groups)}"
    set_group(client, name, _EARLIEST)
    return name


def test_two_members_share_one_partition(node: ottla.Node, client: WireClient, group: str) -> None:
    topic, _ = create(client)
    for index in range(4):
        produce(client, topic, b"%d" % index, b"%d'" % index)
    with Member(node.bootstrap_servers, group, topic) as one, Member(node.bootstrap_servers, group, topic) as two:
        one.join()
        two.join()
        first = one.take(records=4)
        second = two.take(records=500)
        assert [(each.offset, each.value) for each in first] == [(0, b"0"), (1, b"0'"), (2, b"1"), (3, b"1'")]
        assert [each.offset for each in second] == [4, 5, 6, 7]
        assert outcomes(one.acknowledge((0, 0, 3, [ACCEPT]))) == [(0, 0)]
        assert outcomes(two.fetch((0, 4, 7, [ACCEPT]))) == [(0, 0)]
        assert _state(client, group, topic) == (8, 0)


def test_records_that_are_released_come_again_and_rejected_ones_do_not(
    node: ottla.Node, client: WireClient, group: str
) -> None:
    topic, _ = create(client)
    produce(client, topic, b"a", b"b", b"c")
    with Member(node.bootstrap_servers, group, topic).join() as one:
        assert len(one.take()) == 3
        again = one.take((0, 0, 2, [RELEASE, REJECT, ACCEPT]))
        assert [(each.offset, each.delivery_count) for each in again] == [(0, 2)]


def test_a_fetch_waits_for_an_append_and_for_a_release(node: ottla.Node, client: WireClient, group: str) -> None:
    topic, _ = create(client)
    with Member(node.bootstrap_servers, group, topic) as one, Member(node.bootstrap_servers, group, topic) as two:
        one.join()
        two.join()
        one.fetch()
        two.fetch()
        one.send_fetch(wait_ms=20_000)
        produce(client, topic, b"a")
        assert [each.value for each in records_of(one.receive_fetch())] == [b"a"]
        two.send_fetch(wait_ms=20_000)
        one.acknowledge((0, 0, 0, [RELEASE]))
        assert [(each.offset, each.delivery_count) for each in records_of(two.receive_fetch())] == [(0, 2)]


def test_a_fetch_waits_for_no_more_than_its_answer_may_hold(node: ottla.Node, client: WireClient, group: str) -> None:
    topic, _ = create(client)
    with Member(node.bootstrap_servers, group, topic) as one:
        one.join()
        one.fetch()
        produce(client, topic, b"a")
        answer = one.fetch(wait_ms=100_000, min_bytes=1 << 20, max_bytes=10)
        assert [each.value for each in records_of(answer)] == [b"a"]


def test_whoever_waits_passes_over_markers_and_has_all_that_comes_behind_them(
    node: ottla.Node, client: WireClient, group: str
) -> None:
    topic, _ = create(client, 2)
    with Member(node.bootstrap_servers, group, topic).join() as one:
        one.fetch()
        make_coordinators(client)
        init = client.ask(InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=60_000), 4)
        owner = {"producer_id": init.producer_id, "producer_epoch": init.producer_epoch}
        client.ask(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id="t",
                v3_and_below_producer_id=init.producer_id,
                v3_and_below_producer_epoch=init.producer_epoch,
                v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0])],
            ),
            3,
        )
        produce(client, topic, b"a", transactional=True, base_sequence=0, **owner)
        assert [each.value for each in one.take(wait_ms=2_000)] == [b"a"]
        one.acknowledge((0, 0, 0, [ACCEPT]))
        one.send_fetch(wait_ms=20_000)
        client.ask(EndTxnRequest(transactional_id="t", committed=True, **owner), 3)
        produce(client, topic, b"b")
        produce(client, topic, b"c", partition=1)
        got = [(each.partition, each.value, each.delivery_count) for each in records_of(one.receive_fetch())]
        while len(got) < 2:
            got += [(each.partition, each.value, each.delivery_count) for each in one.take(wait_ms=2_000)]
        assert sorted(got) == [(0, b"b", 1), (1, b"c", 1)]


def test_a_lock_that_runs_out_gives_the_record_to_whoever_waits(
    node: ottla.Node, client: WireClient, group: str
) -> None:
    topic, _ = create(client)
    set_group(client, group, {"share.record.lock.duration.ms": "15000"})
    produce(client, topic, b"a", b"b")
    with Member(node.bootstrap_servers, group, topic) as one, Member(node.bootstrap_servers, group, topic) as two:
        one.join()
        two.join()
        assert len(one.take()) == 2
        two.fetch()
        node.clock.advance(10_000)
        renewed = one.acknowledge((0, 1, 1, [RENEW]), is_renew_ack=True)
        assert outcomes(renewed) == [(0, 0)]
        assert renewed.acquisition_lock_timeout_ms == 15_000
        two.send_fetch(wait_ms=60_000)
        node.clock.advance(6_000)
        assert [(each.offset, each.delivery_count) for each in records_of(two.receive_fetch())] == [(0, 2)]
        late = one.acknowledge((0, 0, 0, [ACCEPT]), (0, 1, 1, [ACCEPT]))
        assert outcomes(late) == [(0, ErrorCode.INVALID_RECORD_STATE)]
        assert outcomes(one.acknowledge((0, 1, 1, [ACCEPT]))) == [(0, 0)]


def test_a_member_whose_connection_is_gone_gives_back_what_it_has(
    node: ottla.Node, client: WireClient, group: str
) -> None:
    topic, _ = create(client)
    produce(client, topic, b"a")
    with Member(node.bootstrap_servers, group, topic) as two:
        with Member(node.bootstrap_servers, group, topic).join() as one:
            assert len(one.take()) == 1
            two.join()
            two.fetch()
            two.send_fetch(wait_ms=20_000)
        assert [(each.offset, each.delivery_count) for each in records_of(two.receive_fetch())] == [(0, 2)]


def test_a_member_that_waits_for_records_and_goes_gets_none(node: ottla.Node, client: WireClient, group: str) -> None:
    topic, _ = create(client)
    with Member(node.bootstrap_servers, group, topic) as two:
        with Member(node.bootstrap_servers, group, topic).join() as one:
            one.fetch()
            one.send_fetch(wait_ms=20_000)
            two.join()
            two.fetch()
        for _ in range(3):
            produce(client, topic, b"a")
            assert [each.delivery_count for each in two.take(wait_ms=2_000)] == [1]


def test_a_fetch_of_a_session_that_was_replaced_is_answered_and_takes_nothing(
    node: ottla.Node, client: WireClient, group: str
) -> None:
    topic, _ = create(client)
    with Member(node.bootstrap_servers, group, topic).join() as one:
        one.fetch()
        one.send_fetch(wait_ms=20_000)
        # The same member on another connection, as after one that it believes lost.
        with Member(node.bootstrap_servers, group, topic, one.member_id) as again:
            again.assigned = one.assigned
            again.fetch()
            produce(client, topic, b"a")
            assert records_of(one.receive_fetch()) == []
            assert [(each.value, each.delivery_count) for each in again.take()] == [(b"a", 1)]


def test_closing_a_session_gives_back_what_the_member_has(node: ottla.Node, client: WireClient, group: str) -> None:
    topic, _ = create(client)
    produce(client, topic, b"a", b"b")
    with Member(node.bootstrap_servers, group, topic) as one, Member(node.bootstrap_servers, group, topic) as two:
        one.join()
        two.join()
        assert len(one.take()) == 2
        assert two.take(tries=1) == []
        assert outcomes(one.acknowledge((0, 0, 0, [ACCEPT]), share_session_epoch=-1)) == [(0, 0)]
        assert [each.offset for each in two.take()] == [1]
        assert one.fetch(share_session_epoch=5).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND


def test_a_session_must_carry_its_epoch(node: ottla.Node, client: WireClient, group: str) -> None:
    topic, _ = create(client)
    with Member(node.bootstrap_servers, group, topic).join() as one:
        assert one.fetch(share_session_epoch=3).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
        assert one.fetch((0, 0, 0, [ACCEPT])).error_code == ErrorCode.INVALID_REQUEST
        assert one.fetch().error_code == 0
        assert one.fetch(share_session_epoch=7).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
        assert one.acknowledge(share_session_epoch=0).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
        assert one.fetch(member_id="").error_code == ErrorCode.INVALID_REQUEST
        assert one.fetch(group_id=None).error_code == ErrorCode.INVALID_REQUEST
        assert one.fetch().error_code == 0


def test_sessions_are_limited_and_whoever_is_too_many_waits(client: WireClient) -> None:
    with ottla.Node(settings={"group.share.max.share.sessions": 1, "group.share.max.size": 1, **_AT_ONCE}) as small:
        with WireClient(small.bootstrap_servers) as own:
            topic, _ = create(own)
        with Member(small.bootstrap_servers, "g", topic) as one, Member(small.bootstrap_servers, "h", topic) as two:
            one.join()
            two.join()
            assert one.fetch().error_code == 0
            assert two.fetch().error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED


@pytest.mark.parametrize(
    "said",
    [(0, 1, 0, [ACCEPT]), (0, 0, 2, [ACCEPT, ACCEPT]), (0, 0, 0, [9]), (0, 0, 0, []), (0, 0, 0, [RENEW])],
)
def test_an_acknowledgement_that_makes_no_sense_is_refused(
    node: ottla.Node, client: WireClient, group: str, said: tuple[int, int, int, list[int]]
) -> None:
    topic, _ = create(client)
    produce(client, topic, b"a")
    with Member(node.bootstrap_servers, group, topic).join() as one:
        assert len(one.take()) == 1
        assert outcomes(one.acknowledge(said)) == [(0, ErrorCode.INVALID_REQUEST)]
        assert outcomes(one.acknowledge((0, 0, 0, [ACCEPT]))) == [(0, 0)]


def test_unknown_topics_and_partitions_fail_alone(node: ottla.Node, client: WireClient, group: str) -> None:
    topic, topic_id = create(client)
    produce(client, topic, b"a")
    with Member(node.bootstrap_servers, group, topic).join() as one:
        response = one.fetch(partitions=[0, 7], wait_ms=10_000)
        codes = {part.partition_index: part.error_code for part in response.responses[0].partitions}
        assert codes == {0: 0, 7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert one.topic_id == topic_id
        one.topic_id = Uuid(b"x" * 16)
        assert outcomes(one.acknowledge((0, 0, 0, [ACCEPT]))) == [(0, ErrorCode.UNKNOWN_TOPIC_ID)]


def test_a_first_fetch_is_answered_when_its_first_partition_is_loaded(
    node: ottla.Node, client: WireClient, group: str
) -> None:
    topic, _ = create(client, 4)
    for index in range(4):
        produce(client, topic, b"a", partition=index)
    with Member(node.bootstrap_servers, group, topic).join() as one:
        first = records_of(one.fetch(wait_ms=10_000))
        assert len({each.partition for each in first}) == 1
        seen = {each.partition for each in first}
        while len(seen) < 4:
            more = records_of(one.fetch(wait_ms=10_000))
            assert more, "a fetch with records to have waited in vain"
            seen |= {each.partition for each in more}


def test_the_first_answer_of_a_session_names_what_has_no_records_too(
    node: ottla.Node, client: WireClient, group: str
) -> None:
    topic, _ = create(client, 2)
    with Member(node.bootstrap_servers, group, topic).join() as one:
        named: list[Any] = []
        for _ in range(200):  # until the node has loaded both
            one.session_epoch = 0
            named = [part for found in one.fetch(wait_ms=100).responses for part in found.partitions]
            if len(named) == 2:
                break
        assert sorted(part.partition_index for part in named) == [0, 1]
        assert not any(part.acquired_records or part.error_code for part in named)
        assert one.fetch(wait_ms=10).responses == []
        # Who wants nothing is told of nothing, as in Apache Kafka.
        one.session_epoch = 0
        assert one.fetch(wait_ms=10, max_records=0).responses == []
        one.session_epoch = 0
        assert one.fetch(wait_ms=10, max_bytes=0).responses == []
        # But for errors.
        one.session_epoch = 0
        (found,) = one.fetch(wait_ms=10, partitions=[0, 5], max_records=0).responses
        (part,) = found.partitions
        assert (part.partition_index, part.error_code) == (5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def test_a_group_begins_at_the_end_unless_it_is_told_otherwise(node: ottla.Node, client: WireClient) -> None:
    topic, _ = create(client)
    produce(client, topic, b"old")
    with Member(node.bootstrap_servers, f"shares-{next(_groups)}", topic).join() as latest:
        assert latest.take(tries=2) == []
        produce(client, topic, b"new")
        assert [each.value for each in latest.take()] == [b"new"]
    name = f"shares-{next(_groups)}"
    set_group(client, name, {"share.auto.offset.reset": "by_duration:PT1H"})
    node_ms = node.clock.now_ms()
    recent, _ = create(client)
    _produce_at(client, recent, node_ms - 7_200_000, b"two hours")
    _produce_at(client, recent, node_ms - 1_800_000, b"half an hour")
    with Member(node.bootstrap_servers, name, recent).join() as aged:
        assert [each.value for each in aged.take()] == [b"half an hour"]


def _produce_at(client: WireClient, topic: str, timestamp_ms: int, value: bytes) -> None:
    from ottla.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
    from ottla.wire.batch import build

    part = PartitionProduceData(index=0, records=build([(timestamp_ms, None, value, ())]))
    request = ProduceRequest(
        acks=-1, timeout_ms=10_000, topic_data=[TopicProduceData(name=topic, partition_data=[part])]
    )
    assert client.ask(request, 9).responses[0].partition_responses[0].error_code == 0


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_what_a_group_sees_of_transactions(node: ottla.Node, client: WireClient, group: str, level: str) -> None:
    topic, _ = create(client)
    set_group(client, group, {"share.isolation.level": level})
    make_coordinators(client)
    init = client.ask(InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=60_000), 4)
    produced: dict[str, int] = {"producer_id": init.producer_id, "producer_epoch": init.producer_epoch}
    for sequence, (value, committed) in enumerate([(b"aborted", False), (b"committed", True)]):
        client.ask(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id="t",
                v3_and_below_producer_id=init.producer_id,
                v3_and_below_producer_epoch=init.producer_epoch,
                v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0])],
            ),
            3,
        )
        produce(client, topic, value, transactional=True, base_sequence=sequence, **produced)
        client.ask(
            EndTxnRequest(
                transactional_id="t",
                producer_id=init.producer_id,
                producer_epoch=init.producer_epoch,
                committed=committed,
            ),
            3,
        )
    with Member(node.bootstrap_servers, group, topic).join() as one:
        seen = [(each.offset, each.value) for each in one.take()]
        both = [(0, b"aborted"), (2, b"committed")]
        assert seen == (both[1:] if level == "read_committed" else both)
        one.acknowledge(*((0, offset, offset, [ACCEPT]) for offset, _ in seen))
        assert _state(client, group, topic)[0] == 1
        one.acknowledge((0, 1, 1, [GAP]), (0, 3, 3, [GAP]))
        assert _state(client, group, topic) == (4, 0)


def test_deleted_records_are_not_waited_for(node: ottla.Node, client: WireClient, group: str) -> None:
    topic, _ = create(client)
    for _ in range(3):
        produce(client, topic, b"a", b"b")
    with Member(node.bootstrap_servers, group, topic).join() as one:
        assert len(one.take(records=2)) == 2
        partition = DeleteRecordsPartition(partition_index=0, offset=4)
        client.ask(DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[partition])]), 2)
        assert [each.offset for each in one.take()] == [4, 5]
        assert outcomes(one.acknowledge((0, 0, 1, [ACCEPT]), (0, 4, 5, [ACCEPT]))) == [(0, 0)]


def test_offsets_are_described_set_and_forgotten_with_the_group(
    node: ottla.Node, client: WireClient, group: str
) -> None:
    topic, topic_id = create(client)
    produce(client, topic, *(b"%d" % index for index in range(6)))
    with Member(node.bootstrap_servers, group, topic).join() as one:
        one.take(records=500)
        one.acknowledge((0, 0, 1, [ACCEPT]), (0, 3, 3, [REJECT]))
        assert _state(client, group, topic) == (2, 3)
        assert _alter(client, group, topic, 5).error_code == ErrorCode.NON_EMPTY_GROUP
        one.leave()
    assert _alter(client, group, topic, 5).responses[0].partitions[0].error_code == 0
    assert _state(client, group, topic) == (5, 1)
    with Member(node.bootstrap_servers, group, topic).join() as two:
        assert [each.offset for each in two.take()] == [5]
        two.leave()
    assert client.ask(DeleteGroupsRequest(groups_names=[group]), 2).results[0].error_code == 0
    topics = [ReadStateSummaryData(topic_id=topic_id, partitions=[PartitionData(partition=0)])]
    summary = client.ask(ReadShareGroupStateSummaryRequest(group_id=group, topics=topics), 1)
    assert summary.results[0].partitions[0].start_offset == -1


def test_a_deleted_topic_ends_the_wait_for_it(node: ottla.Node, client: WireClient, group: str) -> None:
    topic, _ = create(client)
    with Member(node.bootstrap_servers, group, topic).join() as one:
        one.fetch()
        one.send_fetch(wait_ms=20_000)
        client.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=topic, topic_id=NO_UUID)], timeout_ms=1000), 6)
        response = one.receive_fetch()
        assert response.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
        assert _described(client, group, None).topics == []


def test_the_coordinator_of_a_share_partition_is_found(node: ottla.Node, client: WireClient) -> None:
    key = f"a:group:{uuid_text(bytes(range(16)))}:3"
    good, bad = client.ask(FindCoordinatorRequest(key_type=2, coordinator_keys=[key, "g"]), 6).coordinators
    assert (good.error_code, good.key) == (0, key)
    assert bad.error_code == ErrorCode.INVALID_REQUEST
    old = client.ask(FindCoordinatorRequest(key_type=2, coordinator_keys=[key]), 5).coordinators[0]
    assert old.error_code == ErrorCode.INVALID_REQUEST


def test_what_was_acknowledged_stays_so_after_a_restart(client: WireClient) -> None:
    with ottla.Node() as mortal:
        with WireClient(mortal.bootstrap_servers) as own:
            topic, _ = create(own)
            set_group(own, "g", _EARLIEST)
            produce(own, topic, *(b"%d" % index for index in range(6)))
        with Member(mortal.bootstrap_servers, "g", topic, "one").join() as one:
            assert len(one.take()) == 6
            one.acknowledge((0, 0, 1, [ACCEPT]), (0, 2, 2, [RELEASE]), (0, 4, 4, [ACCEPT]))
        mortal.restart()
        with Member(mortal.bootstrap_servers, "g", topic, "one").join() as one:
            again = [(each.offset, each.delivery_count) for each in one.take()]
        # What was released had been delivered once; what was only acquired is as if it never was, or was given back.
        assert [offset for offset, _ in again] == [2, 3, 5]
        assert again[0] == (2, 2)


# -- looking in


def _described(client: WireClient, group: str, topic: str | None) -> describe.DescribeShareGroupOffsetsResponseGroup:
    topics = None
    if topic is not None:
        topics = [describe.DescribeShareGroupOffsetsRequestTopic(topic_name=topic, partitions=[0])]
    asked = describe.DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=topics)
    response = client.ask(describe.DescribeShareGroupOffsetsRequest(groups=[asked]), 1)
    found: describe.DescribeShareGroupOffsetsResponseGroup = response.groups[0]
    assert found.error_code == 0
    return found


def _state(client: WireClient, group: str, topic: str) -> tuple[int, int]:
    """(start offset, lag), the same whether the topic is named or not."""
    found = [_described(client, group, name).topics[0].partitions[0] for name in (topic, None)]
    assert found[0] == found[1]
    return found[0].start_offset, found[0].lag


def _alter(client: WireClient, group: str, topic: str, offset: int) -> alter.AlterShareGroupOffsetsResponse:
    partition = alter.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=offset)
    asked = alter.AlterShareGroupOffsetsRequestTopic(topic_name=topic, partitions=[partition])
    response: alter.AlterShareGroupOffsetsResponse = client.ask(
        alter.AlterShareGroupOffsetsRequest(group_id=group, topics=[asked]), 0
    )
    return response
