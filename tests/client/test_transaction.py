"""Transactions of our producer against a real cluster: a reader of what is committed sees that and nothing else."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress

import pytest

from ottla.client import (
    Admin,
    AsyncConsumer,
    AsyncProducer,
    Consumer,
    Downgrade,
    Fenced,
    KafkaError,
    OttlaError,
    Producer,
    ProducerFenced,
    TopicPartition,
    TransactionAborted,
)
from tests.client.conftest import eventually, offsets


@pytest.fixture
def producer(bootstrap: str, name: str) -> Iterator[Producer]:
    with Producer(bootstrap, transactional_id=name, linger_ms=0) as made:
        yield made


def committed(bootstrap: str, topic: str) -> list[bytes]:
    """Every value of the topic that a reader with read_committed gets, up to where it may read now."""
    with Consumer(bootstrap, isolation_level="read_committed") as reader:
        partitions = [TopicPartition(topic, number) for number in reader.partitions_for(topic)]
        reader.assign(partitions)
        reader.seek_to_beginning()
        ends = reader.end_offsets(partitions)
        found: list[bytes] = []

        def all_read() -> bool:
            found.extend(record.value or b"" for record in reader.poll(0.2, max_records=10_000))
            return all(reader.position(one) >= end for one, end in ends.items())

        eventually(all_read)
        return sorted(found)


@pytest.fixture
def first_protocol(admin: Admin) -> Iterator[None]:
    """The cluster without KIP-890: partitions are added at the coordinator."""
    admin.update_features({"transaction.version": 1}, downgrade=Downgrade.SAFE).check()
    eventually(lambda: admin.describe_features()["transaction.version"].finalized == 1)
    yield
    admin.update_features({"transaction.version": 2}).check()
    eventually(lambda: admin.describe_features()["transaction.version"].finalized == 2)


@pytest.mark.usefixtures("first_protocol")
def test_the_first_protocol_keeps_the_same_promises(bootstrap: str, topic: str, name: str) -> None:
    one, kept = TopicPartition(topic, 0), []
    with (
        Producer(bootstrap, transactional_id=name, linger_ms=0) as producer,
        Consumer(bootstrap, group_id=f"{name}-group") as consumer,
    ):
        consumer.assign([one])
        consumer.seek(one, 0)
        for number in range(12):
            with suppress(ZeroDivisionError), producer.transaction() as transaction:
                delivery = producer.send(topic, b"%02d" % number, partition=number % 3)
                transaction.send_offsets(consumer, {one: number})
                if number % 4 == 2:
                    delivery.result(30)
                if number % 2:
                    raise ZeroDivisionError
                kept.append(b"%02d" % number)
        assert producer._transactions is not None
        assert producer._transactions.version == 1
        eventually(lambda: committed(bootstrap, topic) == kept)
        assert offsets(consumer.committed([one]))[one] == 10
        with Producer(bootstrap, transactional_id=name) as newer:
            newer.init_transactions()
            with pytest.raises(Fenced), producer.transaction():
                producer.send(topic, b"late").result(30)
    eventually(lambda: committed(bootstrap, topic) == kept)


def test_a_transaction_that_ends_well_is_seen_whole(bootstrap: str, producer: Producer, topic: str) -> None:
    with producer.transaction():
        for number in range(30):
            producer.send(topic, b"%02d" % number, partition=number % 3)
        producer.flush()
        assert committed(bootstrap, topic) == [], "nothing of an open transaction is seen"
    eventually(lambda: committed(bootstrap, topic) == [b"%02d" % number for number in range(30)])


def test_a_body_that_raises_aborts_and_its_exception_goes_on(bootstrap: str, producer: Producer, topic: str) -> None:
    def body() -> None:
        with producer.transaction():
            producer.send(topic, b"gone").result(30)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        body()
    with producer.transaction():
        producer.send(topic, b"kept")
    eventually(lambda: committed(bootstrap, topic) == [b"kept"])


def test_many_transactions_follow_each_other_at_once(bootstrap: str, producer: Producer, topic: str) -> None:
    kept = []
    for number in range(20):
        with suppress(ZeroDivisionError), producer.transaction():
            producer.send(topic, b"%02d" % number, partition=number % 3)
            if number % 3 == 2:
                raise ZeroDivisionError
            kept.append(b"%02d" % number)
    eventually(lambda: committed(bootstrap, topic) == kept)


def test_records_that_were_not_sent_fail_when_their_transaction_is_aborted(
    bootstrap: str, name: str, topic: str
) -> None:
    with Producer(bootstrap, transactional_id=name, linger_ms=60_000) as slow:
        with suppress(ZeroDivisionError), slow.transaction():
            delivery = slow.send(topic, b"never")
            raise ZeroDivisionError
        with pytest.raises(TransactionAborted):
            delivery.result(0)
        slow.flush()
        with slow.transaction():
            kept = slow.send(topic, b"kept")
        assert kept.result(0).offset == 0, "nothing was written for the one before"


def test_nothing_is_sent_outside_of_a_transaction(producer: Producer, topic: str) -> None:
    with pytest.raises(OttlaError, match="init_transactions"):
        producer.send(topic, b"v")
    producer.init_transactions()
    with pytest.raises(OttlaError, match="begin one first"):
        producer.send(topic, b"v")
    with pytest.raises(OttlaError, match="begin one first"):
        producer.commit_transaction()
    with producer.transaction():
        producer.send(topic, b"v")
        with pytest.raises(OttlaError, match="is open"):
            producer.begin_transaction()
    with pytest.raises(OttlaError, match="begin one first"):
        producer.send(topic, b"v")


def test_transactions_need_a_transactional_id(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap) as plain, pytest.raises(OttlaError, match=r"set transactional\.id"):
        plain.begin_transaction()


def test_a_newer_producer_locks_out_the_older_and_aborts_what_it_had_open(
    bootstrap: str, name: str, topic: str
) -> None:
    with Producer(bootstrap, transactional_id=name, linger_ms=0) as older:
        older.init_transactions()
        older.begin_transaction()
        older.send(topic, b"old").result(30)
        with Producer(bootstrap, transactional_id=name, linger_ms=0) as newer:
            with newer.transaction():
                newer.send(topic, b"new")
            eventually(lambda: committed(bootstrap, topic) == [b"new"])
            with pytest.raises(ProducerFenced):
                older.commit_transaction()
            with pytest.raises(Fenced):
                older.send(topic, b"more")
            with pytest.raises(Fenced):
                older.abort_transaction()
            with newer.transaction():
                newer.send(topic, b"newer")
        eventually(lambda: committed(bootstrap, topic) == [b"new", b"newer"])


def test_the_locked_out_hears_of_it_within_its_transaction(bootstrap: str, name: str, topic: str) -> None:
    with Producer(bootstrap, transactional_id=name, linger_ms=0) as older:
        with older.transaction():
            older.send(topic, b"first")
        with Producer(bootstrap, transactional_id=name, linger_ms=0) as newer:
            newer.init_transactions()
            with pytest.raises(Fenced), older.transaction():
                older.send(topic, b"second").result(30)
    eventually(lambda: committed(bootstrap, topic) == [b"first"])


def test_a_producer_that_is_closed_aborts_what_it_had_open(bootstrap: str, name: str, topic: str) -> None:
    producer = Producer(bootstrap, transactional_id=name, linger_ms=0)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send(topic, b"open").result(30)
    producer.close()
    with Producer(bootstrap) as other:
        other.send(topic, b"after", partition=0).result(30)
    eventually(lambda: committed(bootstrap, topic) == [b"after"])


def test_offsets_count_with_their_transaction_only(
    bootstrap: str, admin: Admin, producer: Producer, topic: str, name: str
) -> None:
    one = TopicPartition(topic, 0)
    with Producer(bootstrap) as plain:
        for value in (b"a", b"b", b"c"):
            plain.send(topic, value, partition=0).result(30)
    group = f"{name}-group"
    with Consumer(bootstrap, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False) as consumer:
        consumer.subscribe([topic])
        eventually(lambda: bool(consumer.poll(0.2)))
        eventually(lambda: consumer.positions().get(one) == 3 or consumer.poll(0.2) is None)
        with suppress(ZeroDivisionError), producer.transaction() as transaction:
            transaction.send_offsets(consumer)
            raise ZeroDivisionError
        assert offsets(consumer.committed([one]))[one] is None
        with producer.transaction() as transaction:
            producer.send(topic, b"out", partition=1)
            transaction.send_offsets(consumer)
        eventually(lambda: offsets(consumer.committed([one]))[one] == 3)
        with producer.transaction() as transaction:
            transaction.send_offsets(consumer, {one: (2, "back")})
        eventually(lambda: offsets(consumer.committed([one]))[one] == 2)
    assert admin.list_group_offsets(group)[one].metadata == "back"


def test_offsets_of_an_open_transaction_are_waited_for_by_every_consumer(
    bootstrap: str, producer: Producer, topic: str
) -> None:
    one, group = TopicPartition(topic, 0), f"{topic}-group"
    with Consumer(bootstrap, group_id=group, default_api_timeout_ms=1_500) as consumer:
        with producer.transaction() as transaction:
            transaction.send_offsets(group, {one: 1})
            with pytest.raises(KafkaError, match="UNSTABLE_OFFSET_COMMIT"):
                consumer.committed([one])
        eventually(lambda: offsets(consumer.committed([one]))[one] == 1)


def test_a_member_of_a_past_generation_commits_no_offsets(bootstrap: str, producer: Producer, topic: str) -> None:
    one = TopicPartition(topic, 0)
    with Consumer(bootstrap, group_id=f"{topic}-group", enable_auto_commit=False) as consumer:
        consumer.subscribe([topic])
        eventually(lambda: consumer.poll(0.1) == [] and len(consumer.assignment()) == 3)
        member = consumer.group_metadata()
        consumer.unsubscribe()
        with pytest.raises(Exception, match=r"UNKNOWN_MEMBER_ID|ILLEGAL_GENERATION"), producer.transaction():
            producer.send_offsets(member, {one: 1})
    with producer.transaction():
        producer.send_offsets(f"{topic}-group", {one: 0})


def test_a_table_is_part_of_the_transaction(bootstrap: str, producer: Producer, topic: str) -> None:
    import pyarrow as pa

    table = pa.table({"value": [b"%04d" % number for number in range(5_000)]})
    with suppress(ZeroDivisionError), producer.transaction():
        producer.send_table(topic, table).result(30)
        raise ZeroDivisionError
    with producer.transaction():
        producer.send_table(topic, table)
    eventually(lambda: committed(bootstrap, topic) == [b"%04d" % number for number in range(5_000)])


def test_asyncio_has_the_same(bootstrap: str, name: str, topic: str) -> None:
    async def scene() -> list[bytes | None]:
        async with (
            AsyncProducer(bootstrap, transactional_id=name) as producer,
            AsyncConsumer(bootstrap, group_id=f"{name}-group", isolation_level="read_committed") as consumer,
        ):
            one = TopicPartition(topic, 0)
            consumer.assign([one])
            await consumer.seek(one, 0)
            for number in range(4):
                try:
                    async with producer.transaction() as transaction:
                        await producer.send(topic, b"%d" % number, partition=0)
                        await transaction.send_offsets(consumer)
                        if number % 2:
                            raise ZeroDivisionError
                except ZeroDivisionError:
                    continue
            found: list[bytes | None] = []
            for _ in range(100):
                found += [record.value for record in await consumer.poll(0.2)]
                if len(found) >= 2:
                    break
            assert offsets(await consumer.committed([one]))[one] == 0
            return found

    assert asyncio.run(scene()) == [b"0", b"2"]


@pytest.mark.usefixtures("first_protocol")
def test_who_waits_for_a_record_of_a_locked_out_producer_is_told_at_once(bootstrap: str, topic: str, name: str) -> None:
    with Producer(bootstrap, transactional_id=name, linger_ms=0) as older:
        older.init_transactions()
        with Producer(bootstrap, transactional_id=name) as newer:
            newer.init_transactions()
        older.begin_transaction()
        deliveries = [older.send(topic, b"late", partition=number) for number in range(3)]
        for delivery in deliveries:
            with pytest.raises(Fenced):
                delivery.result(60)


def test_callers_that_wait_for_batches_hear_of_those_that_an_abort_gives_up(
    bootstrap: str, name: str, topic: str
) -> None:
    async def scene() -> list[bool]:
        async with AsyncProducer(bootstrap, transactional_id=name, linger_ms=60_000) as producer:
            await producer.init_transactions()
            await producer.begin_transaction()
            delivery = await producer.send(topic, b"v")
            told: list[bool] = []
            producer._sender.on_progress.append(lambda: told.append(delivery.done))
            producer._sender.abort(TransactionAborted("given up"))
            return list(told)

    assert asyncio.run(scene()) == [True]
