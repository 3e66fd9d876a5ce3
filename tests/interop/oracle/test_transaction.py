"""Transactions, request by request: InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, Produce, TxnOffsetCommit,
EndTxn, DescribeTransactions, ListTransactions.

Both protocols: the first (a client adds partitions itself) and the second (KIP-890: Produce 12 adds them, EndTxn 5
bumps the epoch). Where a server answers CONCURRENT_TRANSACTIONS, markers are on their way: a client asks again, and so
do these.
"""

from typing import Any

import pytest

from tests.interop.oracle.side import Oracle, Side
from tests.interop.oracle.transaction import Producer


def _read(side: Side, topic: str, isolation_level: int) -> None:
    """Note where the partition ends for this reader."""
    asked = [{"name": topic, "partitions": [{"partition_index": 0, "timestamp": -1}]}]
    side.ask("ListOffsets", 7, replica_id=-1, isolation_level=isolation_level, topics=asked)


@pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
def test_a_transaction_of_the_first_protocol(oracle: Oracle, name: str, committed: bool) -> None:
    def script(side: Side) -> None:
        side.create(name, 2)
        producer = Producer(side, name)
        producer.init()
        producer.put(name)  # not added: refused
        producer.add(name, 0)
        producer.add(name, 0, 7)  # a partition that is not there fails the others
        producer.put(name)
        producer.put(name, 1)
        producer.commit_offset(name, name, 1)  # no offsets were added
        producer.add_offsets(name)
        producer.commit_offset(name, name, 1)
        _read(side, name, 0)
        _read(side, name, 1)
        producer.ask("DescribeTransactions", 0, transactional_ids=[name, name + "-other", ""])
        producer.end(committed)
        producer.end(committed)
        producer.end(not committed)
        producer.put(name)
        producer.add(name, 0)
        producer.put(name)
        producer.end(not committed)

    oracle.compare(script)


@pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
def test_a_transaction_of_the_second_protocol(oracle: Oracle, name: str, committed: bool) -> None:
    def script(side: Side) -> None:
        side.create(name, 2)
        producer = Producer(side, name)
        producer.init()
        producer.put(name, version=12)
        producer.put(name, 1, version=12)
        producer.commit_offset(name, name, 1, version=5)
        _read(side, name, 1)
        producer.end(committed, version=5)
        producer.end(True, version=5)  # nothing was added: a commit of nothing
        producer.end(False, version=5)
        producer.put(name, version=12)
        producer.end(committed, version=5)

    oracle.compare(script)


@pytest.mark.parametrize("version", [11, 12])
def test_an_older_producer_is_fenced_wherever_it_asks(oracle: Oracle, name: str, version: int) -> None:
    def script(side: Side) -> None:
        side.create(name, 2)
        older, newer = Producer(side, name), Producer(side, name)
        older.init()
        if version == 11:
            older.add(name, 0)
        older.put(name, version=version)
        newer.init()
        older.put(name, version=version)
        older.put(name, 1, version=version)
        older.add(name, 1)
        older.add_offsets(name)
        older.commit_offset(name, name, 1)
        older.end(True)
        older.end(False)
        older.end(True, version=5)
        older.init(keep=True)
        newer.init(keep=True)
        newer.init(keep=True)

    oracle.compare(script)


def test_what_nobody_began_is_refused(oracle: Oracle, name: str) -> None:
    def script(side: Side) -> None:
        side.create(name, 1)
        stranger = Producer(side, name, producer_id=987_654, epoch=0)
        stranger.put(name)
        stranger.put(name, version=12)
        stranger.add(name, 0)
        stranger.add_offsets(name)
        stranger.commit_offset(name, name, 1)
        stranger.end(True)
        producer = Producer(side, name)
        producer.init(timeout_ms=0)
        producer.init(timeout_ms=1_000_000_000)
        producer.init()
        producer.end(True)  # nothing to end
        producer.end(False)
        producer.put(name, transactional_id=None)
        producer.ask("DescribeTransactions", 0, transactional_ids=[name])

    oracle.compare(script)


def test_transactions_are_listed_by_state_and_producer(oracle: Oracle, name: str) -> None:
    def script(side: Side) -> None:
        side.create(name, 1)
        producer = Producer(side, name)
        producer.init()
        producer.put(name, version=12)
        mine: dict[str, Any] = {"state_filters": ["Ongoing"], "producer_id_filters": [producer.producer_id]}
        side.ask("ListTransactions", 1, **mine, duration_filter=-1)
        side.ask("ListTransactions", 1, **{**mine, "state_filters": ["Empty"]}, duration_filter=-1)
        side.ask("ListTransactions", 1, **{**mine, "state_filters": ["Nonsense"]}, duration_filter=-1)
        side.ask("ListTransactions", 1, **mine, duration_filter=1_000_000)
        producer.end(True, version=5)
        side.ask("ListTransactions", 1, **mine, duration_filter=-1)

    oracle.compare(script)
