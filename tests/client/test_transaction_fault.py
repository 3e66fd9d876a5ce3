"""Transactions while a node fails as it is told: committed once, or not at all, and the program knows which."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from typing import TypeVar

import pytest

import ottla
from ottla.client import (
    Admin,
    AsyncProducer,
    Consumer,
    ErrorCode,
    InvalidProducerEpoch,
    InvalidTxnState,
    KafkaError,
    OttlaError,
    Producer,
    RequestTimedOut,
    TopicPartition,
    TransactionAbortable,
    TransactionAborted,
)
from ottla.wire.api import ApiKey
from tests.client.conftest import eventually, offsets

T = TypeVar("T")
_names = count()
#: What passes, or is mended by repeating: the request is lost, or its answer, or somebody is not ready.
PASSING: dict[str, Callable[[ottla.Node, str], object]] = {
    "a produce that is lost": lambda node, name: node.faults.disconnect(ApiKey.PRODUCE, transactional_id=name),
    "a produce whose answer is lost": lambda node, name: node.faults.disconnect(
        ApiKey.PRODUCE, transactional_id=name, carried_out=True
    ),
    "a leader that has moved": lambda node, name: node.faults.error(
        ApiKey.PRODUCE, ErrorCode.NOT_LEADER_OR_FOLLOWER, times=2, transactional_id=name
    ),
    "a coordinator that is busy": lambda node, name: node.faults.error(
        ApiKey.PRODUCE, ErrorCode.CONCURRENT_TRANSACTIONS, times=2, transactional_id=name
    ),
    "offsets that are lost": lambda node, name: node.faults.disconnect(ApiKey.TXN_OFFSET_COMMIT, transactional_id=name),
    "offsets whose answer is lost": lambda node, name: node.faults.disconnect(
        ApiKey.TXN_OFFSET_COMMIT, transactional_id=name, carried_out=True
    ),
    "an end that is lost": lambda node, name: node.faults.disconnect(ApiKey.END_TXN, transactional_id=name),
    "an end whose answer is lost": lambda node, name: node.faults.disconnect(
        ApiKey.END_TXN, transactional_id=name, carried_out=True
    ),
    "a coordinator that has moved": lambda node, name: node.faults.error(
        ApiKey.END_TXN, ErrorCode.NOT_COORDINATOR, transactional_id=name
    ),
    "a coordinator that fails over": lambda node, name: node.faults.move_coordinator(transactional_id=name),
    "all connections lost": lambda node, name: node.faults.drop_connections(),
}
#: What cannot be mended within the transaction, and what the program is told.
BREAKING: dict[str, tuple[ApiKey, ErrorCode, type[KafkaError]]] = {
    "the broker wants an abort": (ApiKey.PRODUCE, ErrorCode.TRANSACTION_ABORTABLE, TransactionAbortable),
    "a leader refuses the epoch": (ApiKey.PRODUCE, ErrorCode.INVALID_PRODUCER_EPOCH, InvalidProducerEpoch),
    "a record is refused": (ApiKey.PRODUCE, ErrorCode.INVALID_RECORD, KafkaError),
    "the reader is no member": (ApiKey.TXN_OFFSET_COMMIT, ErrorCode.ILLEGAL_GENERATION, KafkaError),
    "the end wants an abort": (ApiKey.END_TXN, ErrorCode.TRANSACTION_ABORTABLE, TransactionAbortable),
}


@pytest.fixture
def name(node: ottla.Node) -> Iterator[str]:
    """A topic of two partitions, a transactional id and a group."""
    made = f"fault-{next(_names)}"
    with Admin(node.bootstrap_servers) as admin:
        admin.create_topic(made, 2)
    yield made
    node.faults.clear()


def in_time(work: Callable[[], T]) -> T:
    """What comes of `work`, which is asked again while it ends by max.block.ms."""
    while True:
        with suppress(RequestTimedOut):
            return work()


def committed(node: ottla.Node, topic: str) -> tuple[list[bytes], int | None]:
    """The values that a reader of what is committed gets, and the offset of the group."""
    with Consumer(node.bootstrap_servers, isolation_level="read_committed", group_id=topic) as reader:
        partitions = [TopicPartition(topic, number) for number in range(2)]
        reader.assign(partitions)
        reader.seek_to_beginning()
        ends = reader.end_offsets(partitions)
        found: list[bytes] = []

        def all_read() -> bool:
            found.extend(record.value or b"" for record in reader.poll(0.1))
            return all(reader.position(one) >= end for one, end in ends.items())

        eventually(all_read)
        return sorted(found), offsets(reader.committed(partitions))[partitions[0]]


def work(producer: Producer, topic: str, number: int) -> None:
    with producer.transaction() as transaction:
        producer.send(topic, b"%da" % number, partition=0)
        producer.send(topic, b"%db" % number, partition=1)
        transaction.send_offsets(topic, {TopicPartition(topic, 0): number})


@pytest.mark.parametrize("fault", PASSING)
def test_what_passes_is_not_seen_by_the_program(node: ottla.Node, name: str, fault: str) -> None:
    with Producer(node.bootstrap_servers, transactional_id=name, retry_backoff_ms=20) as producer:
        work(producer, name, 1)
        PASSING[fault](node, name)
        work(producer, name, 2)
        work(producer, name, 3)
    eventually(lambda: committed(node, name) == ([b"1a", b"1b", b"2a", b"2b", b"3a", b"3b"], 3))


@pytest.mark.parametrize("fault", BREAKING)
def test_what_breaks_a_transaction_is_told_and_the_next_one_is_good(node: ottla.Node, name: str, fault: str) -> None:
    api, code, kind = BREAKING[fault]
    with Producer(node.bootstrap_servers, transactional_id=name, retry_backoff_ms=20) as producer:
        work(producer, name, 1)
        node.faults.error(api, code, transactional_id=name)
        with pytest.raises(kind) as error:
            work(producer, name, 2)
        assert error.value.code is code
        work(producer, name, 3)
    eventually(lambda: committed(node, name) == ([b"1a", b"1b", b"3a", b"3b"], 3))


@pytest.mark.parametrize("fault", ["a record is refused", "the end wants an abort"])
def test_asyncio_aborts_what_cannot_be_committed(node: ottla.Node, name: str, fault: str) -> None:
    api, code, kind = BREAKING[fault]

    async def scene() -> None:
        async with AsyncProducer(node.bootstrap_servers, transactional_id=name, retry_backoff_ms=20) as producer:
            await producer.init_transactions()
            node.faults.error(api, code, transactional_id=name)
            with pytest.raises(kind) as error:
                async with producer.transaction():
                    await producer.send(name, b"1a", partition=0)
            assert error.value.code is code
            async with producer.transaction():
                await producer.send(name, b"2a", partition=0)

    asyncio.run(scene())
    eventually(lambda: committed(node, name) == ([b"2a"], None))


def test_an_abort_whose_answer_is_lost_is_repeated(node: ottla.Node, name: str) -> None:
    with Producer(node.bootstrap_servers, transactional_id=name, retry_backoff_ms=20) as producer:
        work(producer, name, 1)
        node.faults.disconnect(ApiKey.END_TXN, transactional_id=name, carried_out=True)
        with suppress(ZeroDivisionError), producer.transaction():
            producer.send(name, b"gone").result(30)
            raise ZeroDivisionError
        work(producer, name, 2)
    eventually(lambda: committed(node, name) == ([b"1a", b"1b", b"2a", b"2b"], 2))


def test_a_transaction_that_is_open_for_too_long_is_aborted_by_the_coordinator(node: ottla.Node, name: str) -> None:
    with Producer(node.bootstrap_servers, transactional_id=name, transaction_timeout_ms=5_000, linger_ms=0) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(name, b"late", partition=0).result(30)
        node.clock.advance(60_000)
        with Consumer(node.bootstrap_servers, isolation_level="read_committed") as reader:
            one = TopicPartition(name, 0)
            eventually(lambda: reader.end_offsets([one])[one] == 2)
        with pytest.raises(InvalidTxnState):
            producer.commit_transaction()
        producer.abort_transaction()
        work(producer, name, 1)
    eventually(lambda: committed(node, name) == ([b"1a", b"1b"], 1))


def test_a_commit_that_took_too_long_can_be_asked_for_again(node: ottla.Node, name: str) -> None:
    with Producer(node.bootstrap_servers, transactional_id=name, max_block_ms=500) as producer:
        # On a busy machine each of them may take longer than max.block.ms.
        in_time(producer.init_transactions)
        in_time(producer.begin_transaction)
        in_time(lambda: producer.send(name, b"v", partition=0)).result(30)
        with node.faults.hold(ApiKey.END_TXN, transactional_id=name) as held:
            while not held.hits:
                with pytest.raises(RequestTimedOut):
                    producer.commit_transaction()
        in_time(producer.commit_transaction)
    eventually(lambda: committed(node, name) == ([b"v"], None))


def test_records_that_wait_are_given_up_with_their_transaction(node: ottla.Node, name: str) -> None:
    with Producer(node.bootstrap_servers, transactional_id=name, linger_ms=60_000) as producer:
        with suppress(ZeroDivisionError), producer.transaction():
            waiting = [producer.send(name, b"%d" % number, partition=number % 2) for number in range(100)]
            raise ZeroDivisionError
        for one in waiting:
            with pytest.raises(TransactionAborted):
                one.result(0)
        work(producer, name, 1)
    eventually(lambda: committed(node, name) == ([b"1a", b"1b"], 1))


# ---- offsets and ends that are not confirmed


def moved(producer: Producer, name: str) -> None:
    """Open a transaction with a record in it."""
    # On a busy machine each of them may take longer than max.block.ms.
    in_time(producer.init_transactions)
    in_time(producer.begin_transaction)
    in_time(lambda: producer.send(name, b"v", partition=0)).result(30)


def test_offsets_that_were_not_written_in_time_are_written_before_the_commit(node: ottla.Node, name: str) -> None:
    with Producer(node.bootstrap_servers, transactional_id=name, max_block_ms=500) as producer:
        moved(producer, name)
        loading = node.faults.error(
            ApiKey.TXN_OFFSET_COMMIT, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=None, transactional_id=name
        )
        for offset in (3, 7):
            with pytest.raises(KafkaError):
                producer.send_offsets(name, {TopicPartition(name, 0): offset})
        loading.remove()
        in_time(producer.commit_transaction)
    eventually(lambda: committed(node, name) == ([b"v"], 7))


def test_a_transaction_whose_offsets_cannot_be_written_is_not_committed_and_can_be_aborted(
    node: ottla.Node, name: str
) -> None:
    with Producer(node.bootstrap_servers, transactional_id=name, max_block_ms=500) as producer:
        moved(producer, name)
        loading = node.faults.error(
            ApiKey.TXN_OFFSET_COMMIT, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=None, transactional_id=name
        )
        with pytest.raises(KafkaError):
            producer.send_offsets(name, {TopicPartition(name, 0): 3})
        with node.faults.watch(ApiKey.END_TXN) as ends, pytest.raises(KafkaError):
            producer.commit_transaction()
        assert not ends.hits
        in_time(producer.abort_transaction)
        loading.remove()
        # What the aborted one owed is no part of the next.
        in_time(producer.begin_transaction)
        in_time(lambda: producer.send(name, b"w", partition=0)).result(30)
        in_time(producer.commit_transaction)
    eventually(lambda: committed(node, name) == ([b"w"], None))


def test_a_group_that_may_not_be_found_fails_the_transaction(node: ottla.Node, name: str) -> None:
    with Producer(node.bootstrap_servers, transactional_id=name) as producer:
        moved(producer, name)
        node.faults.error(ApiKey.FIND_COORDINATOR, ErrorCode.GROUP_AUTHORIZATION_FAILED, group=name)
        with pytest.raises(KafkaError) as error:
            producer.send_offsets(name, {TopicPartition(name, 0): 3})
        assert error.value.code is ErrorCode.GROUP_AUTHORIZATION_FAILED
        with pytest.raises(KafkaError) as error:
            producer.commit_transaction()
        assert error.value.code is ErrorCode.GROUP_AUTHORIZATION_FAILED
        producer.abort_transaction()
        work(producer, name, 1)
    eventually(lambda: committed(node, name) == ([b"1a", b"1b"], 1))


def test_a_commit_that_may_have_been_carried_out_is_not_aborted(node: ottla.Node, name: str) -> None:
    with Producer(node.bootstrap_servers, transactional_id=name, max_block_ms=500) as producer:
        moved(producer, name)
        with node.faults.hold(ApiKey.END_TXN, transactional_id=name) as held:
            while not held.hits:
                with pytest.raises(RequestTimedOut):
                    producer.commit_transaction()
            with pytest.raises(OttlaError, match="a commit is under way: only commit can be repeated"):
                producer.abort_transaction()
        in_time(producer.commit_transaction)
        in_time(lambda: work(producer, name, 1))
    eventually(lambda: committed(node, name) == ([b"1a", b"1b", b"v"], 1))


def test_a_body_whose_commit_is_not_answered_says_so_and_close_asks_again(node: ottla.Node, name: str) -> None:
    with Producer(node.bootstrap_servers, transactional_id=name, max_block_ms=5_000) as producer:
        work(producer, name, 1)
        lost = node.faults.disconnect(ApiKey.END_TXN, times=None, transactional_id=name)
        with pytest.raises(KafkaError) as error:
            work(producer, name, 2)
        assert lost.hits
        assert "the commit was sent and may have been carried out" in error.value.__notes__[0]
        lost.remove()
    eventually(lambda: committed(node, name) == ([b"1a", b"1b", b"2a", b"2b"], 2))
