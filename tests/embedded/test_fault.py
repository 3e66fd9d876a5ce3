"""Faults on request: what each does on the wire, and that it ends when it says so."""

import socket

import pytest

import ottla
from ottla.broker.dispatch.dispatch import HANDLERS
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import Uuid
from ottla.wire.api import ApiKey
from ottla.wire.api.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.wire.api.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.wire.api.find_coordinator import FindCoordinatorRequest
from ottla.wire.api.heartbeat import HeartbeatRequest
from ottla.wire.api.metadata import MetadataRequest, MetadataRequestTopic
from ottla.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.wire.batch import build
from tests.broker.wire_client import WireClient


def one_record(*topics: str) -> ProduceRequest:
    records = build([(0, None, b"v", ())])
    data = [
        TopicProduceData(name=name, partition_data=[PartitionProduceData(index=0, records=records)]) for name in topics
    ]
    return ProduceRequest(acks=1, timeout_ms=1000, topic_data=data)


def ask_produce(client: WireClient, *topics: str) -> dict[str, int]:
    answer = client.ask(one_record(*topics), 9)
    return {each.name: each.partition_responses[0].error_code for each in answer.responses}


def end_offset(node: ottla.Node, topic: str) -> int:
    broker = node._node
    assert broker is not None
    return broker.partitions[topic, 0].log.end_offset


def test_an_error_is_answered_as_often_as_asked_and_the_request_is_not_carried_out(
    ottla_node: ottla.Node, ottla_topic: str
) -> None:
    fault = ottla_node.faults.error(ApiKey.PRODUCE, ErrorCode.NOT_ENOUGH_REPLICAS, times=2)
    with WireClient(ottla_node.bootstrap_servers) as client:
        codes = [ask_produce(client, ottla_topic)[ottla_topic] for _ in range(3)]
    assert codes == [ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS, 0]
    assert (fault.hits, end_offset(ottla_node, ottla_topic)) == (2, 1)


def test_an_error_of_one_topic_leaves_the_others_of_the_request_alone(ottla_node: ottla.Node) -> None:
    for name in ("good", "bad"):
        ottla_node.create_topic(name)
    ottla_node.faults.error(ApiKey.PRODUCE, ErrorCode.NOT_LEADER_OR_FOLLOWER, topic="bad")
    with WireClient(ottla_node.bootstrap_servers) as client:
        assert ask_produce(client, "good", "bad") == {"good": 0, "bad": ErrorCode.NOT_LEADER_OR_FOLLOWER}
        assert ask_produce(client, "good", "bad") == {"good": 0, "bad": 0}


def test_a_fault_passes_by_what_is_not_meant(ottla_node: ottla.Node, ottla_topic: str) -> None:
    ottla_node.create_topic("other")
    faults = ottla_node.faults
    fault = faults.error(ApiKey.PRODUCE, ErrorCode.NOT_LEADER_OR_FOLLOWER, topic="other")
    faults.error(ApiKey.PRODUCE, ErrorCode.NOT_LEADER_OR_FOLLOWER, client_id="somebody else")
    late = faults.error(ApiKey.PRODUCE, ErrorCode.KAFKA_STORAGE_ERROR, after=2)
    with WireClient(ottla_node.bootstrap_servers, client_id="me") as client:
        codes = [ask_produce(client, ottla_topic)[ottla_topic] for _ in range(4)]
    assert codes == [0, 0, ErrorCode.KAFKA_STORAGE_ERROR, 0]
    assert (fault.hits, late.hits) == (0, 1)


def test_a_request_that_is_carried_out_and_refused_all_the_same_has_its_effect(
    ottla_node: ottla.Node, ottla_topic: str
) -> None:
    ottla_node.faults.error(ApiKey.PRODUCE, ErrorCode.REQUEST_TIMED_OUT, carried_out=True)
    with WireClient(ottla_node.bootstrap_servers) as client:
        assert ask_produce(client, ottla_topic) == {ottla_topic: ErrorCode.REQUEST_TIMED_OUT}
    assert end_offset(ottla_node, ottla_topic) == 1


@pytest.mark.parametrize(("carried_out", "records"), [(False, 0), (True, 1)])
def test_a_connection_is_closed_instead_of_an_answer(
    ottla_node: ottla.Node, ottla_topic: str, carried_out: bool, records: int
) -> None:
    fault = ottla_node.faults.disconnect(ApiKey.PRODUCE, carried_out=carried_out)
    with WireClient(ottla_node.bootstrap_servers) as client, pytest.raises(ConnectionError):
        ask_produce(client, ottla_topic)
    with WireClient(ottla_node.bootstrap_servers) as client:
        assert end_offset(ottla_node, ottla_topic) == records
        assert ask_produce(client, ottla_topic) == {ottla_topic: 0}
    assert fault.hits == 1


def test_held_answers_come_in_their_order_when_they_are_released(ottla_node: ottla.Node, ottla_topic: str) -> None:
    hold = ottla_node.faults.hold(ApiKey.PRODUCE)
    with WireClient(ottla_node.bootstrap_servers) as client:
        client.send(MetadataRequest(topics=[]), 9)
        assert client.receive(ApiKey.METADATA, 9).topics == [], "what is not held is answered"
        client.send(one_record(ottla_topic), 9)
        client.send(one_record(ottla_topic), 9)
        hold.wait(2)
        assert end_offset(ottla_node, ottla_topic) == 2, "carried out at once"
        client.sock.setblocking(False)
        with pytest.raises(BlockingIOError):
            client.sock.recv(1)
        client.sock.settimeout(20)
        hold.release()
        offsets = [client.receive(ApiKey.PRODUCE, 9).responses[0].partition_responses[0].base_offset for _ in range(2)]
    assert offsets == [0, 1]


def test_a_delay_passes_on_the_nodes_clock(ottla_node: ottla.Node) -> None:
    delay = ottla_node.faults.delay(ApiKey.METADATA, 3_600_000, times=1)
    with WireClient(ottla_node.bootstrap_servers) as client:
        client.send(MetadataRequest(topics=[]), 9)
        delay.wait()
        ottla_node.clock.advance(3_600_000)
        assert client.receive(ApiKey.METADATA, 9).brokers


def test_removing_a_fault_answers_what_it_held_and_ends_it(ottla_node: ottla.Node) -> None:
    with WireClient(ottla_node.bootstrap_servers) as client:
        with ottla_node.faults.hold(None) as hold:
            client.send(MetadataRequest(topics=[]), 9)
            hold.wait()
        assert client.receive(ApiKey.METADATA, 9).brokers
        ottla_node.faults.error(ApiKey.FIND_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=None)
        ottla_node.faults.clear()
        found = client.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4).coordinators[0]
        assert (found.error_code, found.node_id) == (0, 1)


def test_metadata_can_lack_a_leader_and_still_tells_the_brokers(ottla_node: ottla.Node, ottla_topic: str) -> None:
    ottla_node.create_topic("other")
    ottla_node.faults.error(ApiKey.METADATA, ErrorCode.LEADER_NOT_AVAILABLE, topic=ottla_topic)
    with WireClient(ottla_node.bootstrap_servers) as client:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in (ottla_topic, "other")])
        answer = client.ask(request, 12)
    assert {each.name: (each.error_code, len(each.partitions)) for each in answer.topics} == {
        ottla_topic: (ErrorCode.LEADER_NOT_AVAILABLE, 0),
        "other": (0, 1),
    }
    assert len(answer.brokers) == 1


def test_a_fetch_of_a_session_fails_by_topic_though_it_names_none(ottla_node: ottla.Node, ottla_topic: str) -> None:
    with WireClient(ottla_node.bootstrap_servers) as client:
        (topic,) = client.ask(MetadataRequest(topics=[MetadataRequestTopic(name=ottla_topic)]), 12).topics
        wanted = FetchTopic(topic_id=Uuid(topic.topic_id), partitions=[FetchPartition(partition=0, fetch_offset=0)])
        first = client.ask(FetchRequest(max_wait_ms=0, topics=[wanted], session_id=0, session_epoch=0), 13)
        assert first.session_id
        fault = ottla_node.faults.error(ApiKey.FETCH, ErrorCode.NOT_LEADER_OR_FOLLOWER, topic=ottla_topic)
        second = client.ask(FetchRequest(max_wait_ms=0, topics=[], session_id=first.session_id, session_epoch=1), 13)
        assert second.responses[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        ottla_node.faults.error(ApiKey.FETCH, ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        third = client.ask(FetchRequest(max_wait_ms=0, topics=[], session_id=first.session_id, session_epoch=2), 13)
        assert (third.error_code, third.responses) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, [])
    assert fault.hits == 1


def test_a_coordinator_is_away_for_its_group_alone(ottla_node: ottla.Node) -> None:
    with (
        WireClient(ottla_node.bootstrap_servers) as client,
        ottla_node.faults.coordinator_unavailable("lost") as fault,
    ):
        found = client.ask(FindCoordinatorRequest(coordinator_keys=["lost"]), 4).coordinators[0]
        assert (found.key, found.error_code) == ("lost", ErrorCode.COORDINATOR_NOT_AVAILABLE)
        assert client.ask(FindCoordinatorRequest(coordinator_keys=["found"]), 4).coordinators[0].error_code == 0
        beat = HeartbeatRequest(group_id="lost", generation_id=1, member_id="m")
        assert client.ask(beat, 4).error_code == ErrorCode.NOT_COORDINATOR
        assert fault.hits == 2
        fault.remove()
        assert client.ask(beat, 4).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_test_may_write_the_answer(ottla_node: ottla.Node) -> None:
    def refuse(request: CreateTopicsRequest, version: int) -> None:
        if any(topic.name == "forbidden" for topic in request.topics):
            raise KafkaError(ErrorCode.POLICY_VIOLATION, "not that one")

    ottla_node.faults.answer(ApiKey.CREATE_TOPICS, refuse, times=None)
    with WireClient(ottla_node.bootstrap_servers) as client:
        for name, code in (("forbidden", ErrorCode.POLICY_VIOLATION), ("allowed", 0)):
            topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
            assert client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7).topics[0].error_code == code


def test_every_connection_is_dropped_at_once(ottla_node: ottla.Node) -> None:
    with WireClient(ottla_node.bootstrap_servers) as one, WireClient(ottla_node.bootstrap_servers) as two:
        for client in (one, two):
            client.ask(MetadataRequest(topics=[]), 9)
        assert ottla_node.faults.drop_connections() == 2
        for client in (one, two):
            assert client.sock.recv(1) == b""


def test_an_unreachable_node_answers_nobody_until_it_is_back(ottla_node: ottla.Node) -> None:
    with (
        ottla_node.faults.unreachable(),
        WireClient(ottla_node.bootstrap_servers) as client,
        pytest.raises(ConnectionError),
    ):
        client.ask(MetadataRequest(topics=[]), 9)
    with WireClient(ottla_node.bootstrap_servers) as client:
        assert client.ask(MetadataRequest(topics=[]), 9).brokers


def test_a_watch_lists_what_came_and_harms_nothing(ottla_node: ottla.Node, ottla_topic: str) -> None:
    with ottla_node.faults.watch() as watch, WireClient(ottla_node.bootstrap_servers, client_id="me") as client:
        client.ask(MetadataRequest(topics=[]), 9)
        ask_produce(client, ottla_topic)
    assert [(each.api, each.version, each.client_id) for each in watch.requests] == [
        (ApiKey.METADATA, 9, "me"),
        (ApiKey.PRODUCE, 9, "me"),
    ]


def test_faults_asked_for_before_the_start_and_kept_over_a_restart_hold() -> None:
    node = ottla.Node()
    fault = node.faults.error(ApiKey.METADATA, ErrorCode.LEADER_NOT_AVAILABLE, times=None)
    with node:
        node.create_topic("t")
        for _ in range(2):
            with WireClient(node.bootstrap_servers) as client:
                assert client.ask(MetadataRequest(topics=None), 9).topics[0].error_code
            node.restart()
    assert fault.hits == 2


def test_without_faults_the_nodes_own_handlers_are_called(ottla_node: ottla.Node) -> None:
    broker = ottla_node._node
    assert broker is not None
    with WireClient(ottla_node.bootstrap_servers) as client:
        with ottla_node.faults.watch():
            client.ask(MetadataRequest(topics=[]), 9)
        client.ask(MetadataRequest(topics=[]), 9)
        (route,) = broker.dispatch._routes.values()
        assert route.handler is HANDLERS[ApiKey.METADATA]


def test_what_cannot_be_meant_is_refused_in_words(ottla_node: ottla.Node) -> None:
    faults = ottla_node.faults
    with pytest.raises(ValueError, match="times is at least"):
        faults.error(ApiKey.PRODUCE, ErrorCode.NONE, times=0)
    with pytest.raises(ValueError, match="a group or a transactional_id"):
        faults.coordinator_unavailable()
    with pytest.raises(ValueError, match="partitions fail alone"):
        faults.error(ApiKey.METADATA, ErrorCode.NOT_CONTROLLER, partition=1)
    unserved = next(key for key in ApiKey if key not in HANDLERS)
    with pytest.raises(ValueError, match=f"does not serve {unserved.name}"):
        faults.error(unserved, ErrorCode.NOT_CONTROLLER)
    with pytest.raises(TimeoutError, match="took 0 requests"):
        faults.watch(ApiKey.END_TXN).wait(timeout_s=0)


def test_a_connection_that_was_closed_while_its_answer_was_held_harms_nobody(ottla_node: ottla.Node) -> None:
    hold = ottla_node.faults.hold(ApiKey.METADATA, times=1)
    with WireClient(ottla_node.bootstrap_servers) as client:
        client.send(MetadataRequest(topics=[]), 9)
        hold.wait()
        client.sock.shutdown(socket.SHUT_RDWR)
    with WireClient(ottla_node.bootstrap_servers) as client:
        assert client.ask(MetadataRequest(topics=[]), 9).brokers
        hold.release()
        assert client.ask(MetadataRequest(topics=[]), 9).brokers


def test_a_fault_of_what_is_no_api_is_refused_in_a_sentence(ottla_node: ottla.Node) -> None:
    with pytest.raises(TypeError, match=r"expected a list of ApiKey, not str.*'PRODUCE'"):
        ottla_node.faults.error("PRODUCE", ErrorCode.NOT_ENOUGH_REPLICAS)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"such as ApiKey\.PRODUCE, not 'FETCH'"):
        ottla_node.faults.disconnect(["FETCH"])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="a fault's error is an ErrorCode"):
        ottla_node.faults.error(ApiKey.PRODUCE, 19)  # type: ignore[arg-type]
