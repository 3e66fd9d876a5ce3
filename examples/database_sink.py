"""Exactly once into a database: the offsets are stored beside the output, in the same transaction.

    python examples/database_sink.py                       SQLite, in a temporary file
    python examples/database_sink.py postgresql://...      PostgreSQL (pip install psycopg)

The group's committed offsets are not used: when a partition is assigned, the database says where to continue. An update
that does not find its starting offset comes from a member that has lost the partition, and is rolled back. Crash at any
point and run `sink` again: each payment counts once.
"""

import contextlib
import itertools
import json
import random
import sqlite3
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from typing import Any

import ottla
from ottla.client import Admin, Consumer, ConsumerRecord, Producer, RebalanceListener, TopicPartition

TOPIC, PAYMENTS, PARTITIONS = "payments", 5_000, 3


class Crash(Exception):
    """The power failure of the example."""


class Store:
    """Balances and read positions, over any DB-API connection that begins transactions by itself."""

    def __init__(self, connection: Any, mark: str) -> None:
        self.connection, self.mark = connection, mark
        self.run("CREATE TABLE IF NOT EXISTS balance (account text PRIMARY KEY, cents bigint NOT NULL)")
        self.run("CREATE TABLE IF NOT EXISTS position (partition int PRIMARY KEY, next bigint NOT NULL)")
        for partition in range(PARTITIONS):
            self.run("INSERT INTO position VALUES (?, 0) ON CONFLICT DO NOTHING", partition)
        connection.commit()
        #: Partition -> the next offset: read from the database at assignment, then as written.
        self.next = {partition: self.next_offset(partition) for partition in range(PARTITIONS)}

    def run(self, sql: str, *values: object) -> Any:
        cursor = self.connection.cursor()
        cursor.execute(sql.replace("?", self.mark), values)
        return cursor

    def next_offset(self, partition: int) -> int:
        (found,) = self.run("SELECT next FROM position WHERE partition = ?", partition).fetchone()
        return int(found)

    def apply(self, records: list[ConsumerRecord], crash_after: int | None) -> None:
        """Apply a partition's records and its next offset in one transaction."""
        partition, end = records[0].partition, records[-1].offset + 1
        try:
            for number, record in enumerate(records):
                if number == crash_after:
                    raise Crash(f"after {number} of {len(records)} payments of a transaction")
                payment = json.loads(record.value or b"")
                self.run(
                    "INSERT INTO balance VALUES (?, ?) ON CONFLICT (account) DO UPDATE SET cents = balance.cents + ?",
                    payment["account"], payment["cents"], payment["cents"],
                )  # fmt: skip
            known = self.next[partition]
            moved = self.run("UPDATE position SET next = ? WHERE partition = ? AND next = ?", end, partition, known)
            if moved.rowcount != 1:
                raise Crash(f"partition {partition} now belongs to another member")
            self.connection.commit()
            self.next[partition] = end
        except BaseException:
            self.connection.rollback()
            raise

    def balances(self) -> dict[str, int]:
        return {account: int(cents) for account, cents in self.run("SELECT account, cents FROM balance")}


def sink(servers: str, store: Store, crashes: Iterator[int | None]) -> None:
    """Read until the end of the topic, into the store."""
    consumer = Consumer(servers, group_id="sink", enable_auto_commit=False, auto_offset_reset="none")

    class Resume(RebalanceListener):
        def assigned(self, partitions: list[TopicPartition]) -> None:
            for each in partitions:
                store.next[each.partition] = store.next_offset(each.partition)
                consumer.seek(each, store.next[each.partition])

    with consumer:
        consumer.subscribe([TOPIC], listener=Resume())
        while sum(store.next.values()) < PAYMENTS:
            records = consumer.poll(1, max_records=500)
            for _, some in itertools.groupby(records, lambda record: record.partition):
                store.apply(list(some), next(crashes, None))


def main(servers: str, connection: Any, mark: str) -> None:
    expected: Counter[str] = Counter()
    draw = random.Random(7)
    with Admin(servers) as admin, Producer(servers, value_serializer="json") as producer:
        admin.create_topic(TOPIC, PARTITIONS)
        for _ in range(PAYMENTS):
            payment = {
                "account": draw.choice(["Ada", "Grace", "Edsger", "Barbara"]),
                "cents": draw.randrange(-999, 9999),
            }
            expected[str(payment["account"])] += int(str(payment["cents"]))
            producer.send(TOPIC, payment, key=str(payment["account"]))
    store = Store(connection, mark)
    # Every third transaction is interrupted by the power failure.
    crashes = itertools.chain.from_iterable((None, None, draw.randrange(1, 20)) for _ in range(4))
    for attempt in itertools.count(1):
        try:
            sink(servers, store, crashes)
        except Crash as crash:
            print(f"run {attempt}: crashed {crash}")
        else:
            print(f"run {attempt}: read to the end")
            break
    for account, cents in sorted(store.balances().items()):
        print(f"  {account:8} {cents / 100:12,.2f}   {'exact' if cents == expected[account] else 'WRONG'}")
    assert store.balances() == expected


if __name__ == "__main__":
    with contextlib.ExitStack() as stack:
        if len(sys.argv) > 1:
            import psycopg

            database: Any = stack.enter_context(psycopg.connect(sys.argv[1]))
        else:
            directory = stack.enter_context(tempfile.TemporaryDirectory())
            database = stack.enter_context(contextlib.closing(sqlite3.connect(f"{directory}/sink.db")))
        node = stack.enter_context(ottla.Node())
        main(node.bootstrap_servers, database, "%s" if len(sys.argv) > 1 else "?")
