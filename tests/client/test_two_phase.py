"""Transactions that are prepared here and decided elsewhere (KIP-939), against a node."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import ottla
from ottla.client import (
    Consumer,
    ErrorCode,
    Fenced,
    KafkaError,
    OttlaError,
    PreparedTransaction,
    Producer,
    RequestTimedOut,
    TopicPartition,
    Unsupported,
)
from ottla.client.settings.producer import ProducerSettings
from ottla.client.transaction.state import Phase
from ottla.wire.api import ApiKey
from tests.client.conftest import eventually

_SWITCHES = {"unstable.api.versions.enable": "true", "transaction.two.phase.commit.enable": "true"}


@pytest.fixture(scope="module")
def node() -> Iterator[ottla.Node]:
    with ottla.Node(settings=_SWITCHES) as node:
        yield node


def _producer(node: ottla.Node, name: str, *, two_phase: bool = True) -> Producer:
    return Producer(node.bootstrap_servers, transactional_id=name, transaction_two_phase_commit_enable=two_phase)


def _values(node: ottla.Node, topic: str) -> list[bytes]:
    with Consumer(node.bootstrap_servers, isolation_level="read_committed", auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        found: list[bytes] = []
        end = consumer.end_offsets([TopicPartition(topic, 0)])[TopicPartition(topic, 0)]
        while consumer.position(TopicPartition(topic, 0)) < end:
            found += [record.value for record in consumer.poll(1)]
        return found


def _prepare(node: ottla.Node, name: str) -> PreparedTransaction:
    """A producer that prepares a transaction and is then gone without a word."""
    producer = _producer(node, name)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(name, b"payment")
    prepared = producer.prepare_transaction()
    producer.close()
    return prepared


@pytest.mark.parametrize("commit", [True, False])
def test_what_was_decided_elsewhere_is_done_by_the_next_producer(node: ottla.Node, commit: bool) -> None:
    name = f"decided-{commit}"
    prepared = _prepare(node, name)
    assert _values(node, name) == [], "it is open still"
    with _producer(node, name) as producer:
        assert producer.init_transactions(keep_prepared=True) == prepared
        stored = PreparedTransaction.parse(str(prepared)) if commit else PreparedTransaction()
        assert producer.complete_transaction(stored) is commit
        assert _values(node, name) == ([b"payment"] if commit else [])
        with producer.transaction():
            producer.send(name, b"the next")
    assert _values(node, name)[-1] == b"the next"


def test_the_producer_that_prepared_it_may_end_it_too(node: ottla.Node) -> None:
    with _producer(node, "same") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("same", b"1")
        prepared = producer.prepare_transaction()
        with pytest.raises(OttlaError, match="prepared"):
            producer.send("same", b"2")
        assert producer.complete_transaction(prepared)
    assert _values(node, "same") == [b"1"]


def test_a_prepared_transaction_survives_a_day_and_a_restart(node: ottla.Node) -> None:
    prepared = _prepare(node, "patient")
    node.clock.advance(86_400_000)
    node.restart()
    with _producer(node, "patient") as producer:
        assert producer.init_transactions(keep_prepared=True) == prepared
        assert producer.complete_transaction(prepared)
    assert _values(node, "patient") == [b"payment"]


def test_whom_it_was_taken_from_cannot_end_it(node: ottla.Node) -> None:
    older = _producer(node, "fenced")
    older.init_transactions()
    older.begin_transaction()
    older.send("fenced", b"1")
    prepared = older.prepare_transaction()
    with _producer(node, "fenced") as newer:
        assert newer.init_transactions(keep_prepared=True) == prepared
        with pytest.raises((Fenced, KafkaError)):
            older.commit_transaction()
        newer.abort_transaction()
    older.close()
    assert _values(node, "fenced") == []


def test_without_keep_prepared_it_is_aborted(node: ottla.Node) -> None:
    _prepare(node, "dropped")
    with _producer(node, "dropped") as producer:
        assert producer.init_transactions() is None
    assert _values(node, "dropped") == []


def test_nothing_prepared_is_nothing(node: ottla.Node) -> None:
    with _producer(node, "nothing") as producer:
        assert producer.init_transactions(keep_prepared=True) is None
        with pytest.raises(OttlaError, match="no transaction is open"):
            producer.complete_transaction(PreparedTransaction(1, 1))


def test_preparing_needs_the_setting(node: ottla.Node) -> None:
    with _producer(node, "plain", two_phase=False) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        with pytest.raises(OttlaError, match=r"transaction\.two\.phase\.commit\.enable=true"):
            producer.prepare_transaction()
        producer.abort_transaction()


def test_a_broker_without_it_is_told_at_once(ottla_node: ottla.Node) -> None:
    with _producer(ottla_node, "no") as producer, pytest.raises(Unsupported, match="KIP-939"):
        producer.init_transactions()


@pytest.mark.parametrize("text", ["1", "a:b", "1:-1", ":"])
def test_a_text_that_is_no_prepared_transaction_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="producer id:epoch"):
        PreparedTransaction.parse(text)


def test_its_text_is_kafkas() -> None:
    assert str(PreparedTransaction(7, 3)) == "7:3"
    assert str(PreparedTransaction()) == ""
    assert PreparedTransaction.parse("") == PreparedTransaction() == (-1, -1)


def test_what_is_prepared_takes_nothing_more_of_another_thread(node: ottla.Node) -> None:
    """A record behind the last one that is waited for would stay unsent, and be lost with this producer."""
    name = "crowded"
    with _producer(node, name) as producer, ThreadPoolExecutor(1) as other:
        producer.init_transactions()
        producer.begin_transaction()
        with node.faults.hold(ApiKey.PRODUCE, transactional_id=name) as held:
            producer.send(name, b"payment")
            held.wait()
            preparing = other.submit(producer.prepare_transaction)
            phase = producer._async._transactions
            assert phase is not None
            eventually(lambda: phase.phase is not Phase.OPEN)
            with pytest.raises(OttlaError, match="takes nothing more"):
                producer.send(name, b"late")
            with pytest.raises(OttlaError, match="takes nothing more"):
                producer.send_offsets(name, {TopicPartition(name, 0): 5})
        assert producer.complete_transaction(preparing.result(30))
    assert _values(node, name) == [b"payment"]


def test_a_transaction_that_was_not_prepared_in_time_is_open_still(node: ottla.Node) -> None:
    name = "late"
    with _producer(node, name) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        transactor = producer._async._transactor
        assert transactor is not None
        transactor._settings = ProducerSettings.read(node.bootstrap_servers, {"max_block_ms": 50})
        with node.faults.hold(ApiKey.PRODUCE, transactional_id=name):
            producer.send(name, b"1")
            with pytest.raises(RequestTimedOut):
                producer.prepare_transaction()
            producer.send(name, b"2")
        transactor._settings = producer.settings
        assert producer.complete_transaction(producer.prepare_transaction())
    assert _values(node, name) == [b"1", b"2"]


def test_offsets_that_were_not_written_in_time_are_prepared_too(node: ottla.Node) -> None:
    name = "owed"
    with _producer(node, name) as producer, Consumer(node.bootstrap_servers, group_id=name) as group:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(name, b"payment").result(30)
        node.faults.error(ApiKey.TXN_OFFSET_COMMIT, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=None)
        held = producer._async._transactor
        assert held is not None
        held._settings = ProducerSettings.read(node.bootstrap_servers, {"max_block_ms": 300})
        with pytest.raises(KafkaError):
            producer.send_offsets(name, {TopicPartition(name, 0): 5})
        node.faults.clear()
        held._settings = producer.settings
        producer.complete_transaction(producer.prepare_transaction())
        committed = group.committed([TopicPartition(name, 0)])[TopicPartition(name, 0)]
        assert committed is not None
        assert committed.offset == 5
