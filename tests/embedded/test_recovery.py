"""What our client does about a node's faults, and librdkafka too: nothing is lost, doubled or out of order."""

import logging
from collections.abc import Iterator
from contextlib import suppress

import confluent_kafka
import pytest

import ottla
from ottla.client import Admin, Consumer, ErrorCode, KafkaError, OffsetSpec, Producer, TopicPartition
from ottla.wire.api import ApiKey
from tests.embedded.conftest import values

LEADERSHIP = [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def name(code: ErrorCode) -> str:
    return code.name


@pytest.mark.parametrize("code", [*LEADERSHIP, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.CORRUPT_MESSAGE], ids=name)
def test_a_producer_tries_again_and_keeps_the_order(
    node: ottla.Node, ottla_topic: str, producer: Producer, reader: Consumer, code: ErrorCode
) -> None:
    fault = node.faults.error(ApiKey.PRODUCE, code, times=3, topic=ottla_topic)
    deliveries = [producer.send(ottla_topic, b"%d" % number) for number in range(50)]
    assert [each.result(30).offset for each in deliveries] == list(range(50))
    assert fault.hits == 3
    assert values(reader, 50) == [b"%d" % number for number in range(50)]


@pytest.mark.parametrize("carried_out", [False, True], ids=["not written", "written"])
def test_a_producer_whose_answer_is_lost_writes_each_record_once(
    node: ottla.Node, ottla_topic: str, producer: Producer, carried_out: bool
) -> None:
    node.faults.disconnect(ApiKey.PRODUCE, times=2, carried_out=carried_out)
    node.faults.error(ApiKey.PRODUCE, ErrorCode.REQUEST_TIMED_OUT, after=1, carried_out=True)
    deliveries = [producer.send(ottla_topic, b"%d" % number) for number in range(20)]
    assert [each.result(30).offset for each in deliveries] == list(range(20))


def test_what_cannot_be_mended_is_told_at_once(node: ottla.Node, ottla_topic: str, producer: Producer) -> None:
    fault = node.faults.error(ApiKey.PRODUCE, ErrorCode.MESSAGE_TOO_LARGE, times=None)
    with pytest.raises(KafkaError) as told:
        producer.send(ottla_topic, b"v").result(30)
    assert told.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert fault.hits == 1


@pytest.mark.parametrize(
    "code", [*LEADERSHIP, ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.OFFSET_NOT_AVAILABLE], ids=name
)
def test_a_consumer_reads_on(
    node: ottla.Node, ottla_topic: str, producer: Producer, reader: Consumer, code: ErrorCode
) -> None:
    producer.send(ottla_topic, b"0").result(30)
    assert values(reader, 1) == [b"0"]
    fault = node.faults.error(ApiKey.FETCH, code, times=3)
    # The fetch that waits already is answered as ever; the next one finds the fault.
    for value in (b"1", b"2"):
        producer.send(ottla_topic, value).result(30)
        assert values(reader, 1) == [value]
    fault.wait(3)


def test_a_consumer_whose_connection_goes_reads_on(
    node: ottla.Node, ottla_topic: str, producer: Producer, reader: Consumer
) -> None:
    node.faults.disconnect(ApiKey.FETCH, times=2, carried_out=True, after=1)
    for number in range(10):
        producer.send(ottla_topic, b"%d" % number).result(30)
        node.faults.drop_connections()
    assert values(reader, 10) == [b"%d" % number for number in range(10)]


@pytest.fixture
def member(node: ottla.Node, ottla_topic: str, producer: Producer, protocol: str) -> Iterator[Consumer]:
    """A consumer in a group, which has read its first record."""
    with Consumer(
        node.bootstrap_servers,
        group_id="g",
        group_protocol=protocol,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        retry_backoff_ms=1,
    ) as consumer:
        consumer.subscribe([ottla_topic])
        producer.send(ottla_topic, b"0").result(30)
        assert values(consumer, 1) == [b"0"]
        yield consumer


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_finds_its_coordinator_again(
    node: ottla.Node, ottla_topic: str, producer: Producer, member: Consumer, protocol: str
) -> None:
    away = node.faults.coordinator_unavailable("g", times=4)
    producer.send(ottla_topic, b"1").result(30)
    assert values(member, 1) == [b"1"], "what is assigned is read while the coordinator is away"
    member.commit()
    assert away.hits == 4
    assert _committed(member, ottla_topic) == 2


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_outlives_a_coordinator_that_fails_over(
    node: ottla.Node, ottla_topic: str, producer: Producer, member: Consumer, protocol: str
) -> None:
    node.faults.move_coordinator("g")
    producer.send(ottla_topic, b"1").result(30)
    assert values(member, 1) == [b"1"]
    member.commit()
    with Admin(node.bootstrap_servers) as admin:
        assert admin.list_offsets({TopicPartition(ottla_topic, 0): OffsetSpec.LATEST})
    assert member.assignment() == {TopicPartition(ottla_topic, 0)}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("code", [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR], ids=name)
def test_a_commit_is_tried_again(
    node: ottla.Node, ottla_topic: str, member: Consumer, protocol: str, code: ErrorCode
) -> None:
    fault = node.faults.error(ApiKey.OFFSET_COMMIT, code, times=2, group="g")
    member.commit()
    assert fault.hits == 2
    assert _committed(member, ottla_topic) == 1


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_that_is_thrown_out_comes_back(
    node: ottla.Node, ottla_topic: str, producer: Producer, member: Consumer, protocol: str
) -> None:
    member.commit()
    # Nobody has heard of the member for longer than its session lasts.
    node.clock.advance(120_000)
    producer.send(ottla_topic, b"1").result(30)
    assert values(member, 1) == [b"1"]


def test_a_transaction_is_committed_whatever_its_coordinator_does(
    node: ottla.Node, ottla_topic: str, reader: Consumer
) -> None:
    faults = node.faults
    with Producer(node.bootstrap_servers, transactional_id="t", retry_backoff_ms=1) as producer:
        faults.error(ApiKey.INIT_PRODUCER_ID, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=2)
        producer.init_transactions()
        faults.error(ApiKey.END_TXN, ErrorCode.NOT_COORDINATOR, times=2)
        faults.disconnect(ApiKey.END_TXN, carried_out=True)
        with producer.transaction():
            producer.send(ottla_topic, b"one")
            faults.move_coordinator(transactional_id="t")
            producer.send(ottla_topic, b"two")
        with suppress(LookupError), producer.transaction():
            producer.send(ottla_topic, b"never")
            raise LookupError
        with producer.transaction():
            producer.send(ottla_topic, b"three")
    with Consumer(node.bootstrap_servers, isolation_level="read_committed", auto_offset_reset="earliest") as committed:
        committed.assign([TopicPartition(ottla_topic, 0)])
        assert values(committed, 3) == [b"one", b"two", b"three"]


def test_a_slow_node_is_told_of_once(
    node: ottla.Node, ottla_topic: str, producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    producer.send(ottla_topic, b"v").result(30)
    with node.faults.unreachable() as fault:
        delivery = producer.send(ottla_topic, b"v")
        fault.wait(3)
        assert not delivery.done
    assert delivery.result(30).offset == 1
    told = [record.getMessage() for record in caplog.records if record.name.startswith("ottla.client")]
    assert len(told) <= 2, told


# ---- librdkafka


def test_librdkafka_tries_again_and_keeps_the_order(node: ottla.Node, ottla_topic: str, reader: Consumer) -> None:
    faults = node.faults
    faults.error(ApiKey.PRODUCE, ErrorCode.NOT_LEADER_OR_FOLLOWER, times=2, topic=ottla_topic)
    faults.disconnect(ApiKey.PRODUCE, after=1, carried_out=True)
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": node.bootstrap_servers,
            "enable.idempotence": True,
            "retry.backoff.ms": 1,
            "reconnect.backoff.ms": 1,
            "logger": logging.getLogger("librdkafka"),
        }
    )
    for number in range(50):
        producer.produce(ottla_topic, b"%d" % number)
    assert producer.flush(30) == 0
    assert values(reader, 50) == [b"%d" % number for number in range(50)]


def test_librdkafkas_member_finds_its_coordinator_again(node: ottla.Node, ottla_topic: str, producer: Producer) -> None:
    producer.send(ottla_topic, b"v").result(30)
    settings = {
        "bootstrap.servers": node.bootstrap_servers,
        "group.id": "g",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "retry.backoff.ms": 1,
        "logger": logging.getLogger("librdkafka"),
    }
    away = node.faults.coordinator_unavailable("g")
    consumer = confluent_kafka.Consumer(settings)
    try:
        consumer.subscribe([ottla_topic])
        while not away.hits:
            assert consumer.poll(0.05) is None
        away.remove()
        message = None
        while message is None:
            message = consumer.poll(1)
        assert (message.error(), message.value()) == (None, b"v")
        node.faults.error(ApiKey.OFFSET_COMMIT, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, group="g")
        (committed,) = consumer.commit(asynchronous=False)
        assert (committed.error, committed.offset) == (None, 1)
    finally:
        consumer.close()


def _committed(member: Consumer, topic: str) -> int | None:
    one = TopicPartition(topic, 0)
    found = member.committed([one])[one]
    return None if found is None else found.offset
