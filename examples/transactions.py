"""Exactly once from topic to topic: read, transform, write, in transactions.

    python examples/transactions.py [bootstrap.servers]

The invoices and the offsets of their orders are committed together, or not at all. The worker dies again and again in
the middle of a transaction; its successor has the same transactional id, so that the dead worker's open transaction is
aborted first. A read_committed consumer sees each invoice once, in the order of the orders.
"""

import itertools
import random
import sys
from collections.abc import Iterator

import ottla
from ottla.client import Admin, Consumer, Producer, TopicPartition

ORDERS = 2_000
ONE = TopicPartition("orders", 0)


class Crash(Exception):
    """Ends a worker in the middle of a transaction."""


def work(servers: str, crashes: Iterator[int | None]) -> int:
    """Write an invoice for every order; returns the number of transactions."""
    consumer = Consumer(servers, group_id="billing", enable_auto_commit=False, auto_offset_reset="earliest")
    producer = Producer(servers, transactional_id="billing-1", value_serializer="json")
    with consumer, producer:
        producer.init_transactions()  # before the first read: this ends the predecessor's transaction
        consumer.subscribe(["orders"])
        done = 0
        while True:
            orders = consumer.poll(1, max_records=100)
            if not orders:
                continue  # the group is still forming
            crash_after = next(crashes, None)
            with producer.transaction() as transaction:
                for number, order in enumerate(orders):
                    if number == crash_after:
                        producer.flush()
                        raise Crash(f"with {number} invoices of {len(orders)} written")
                    amount = int(order.value or 0)
                    producer.send("invoices", {"order": order.offset, "net": amount, "gross": amount * 119 // 100})
                transaction.send_offsets(consumer)
            done += 1
            if consumer.position(ONE) == ORDERS:
                return done


def main(servers: str) -> None:
    draw = random.Random(7)
    with Admin(servers) as admin, Producer(servers) as producer:
        admin.create_topic("orders", 1)
        admin.create_topic("invoices", 1)
        amounts = [draw.randrange(100, 100_000) for _ in range(ORDERS)]
        for amount in amounts:
            producer.send("orders", str(amount))
    crashes = itertools.chain.from_iterable((None, None, None, draw.randrange(1, 100)) for _ in range(4))
    for attempt in itertools.count(1):
        try:
            print(f"worker {attempt}: {work(servers, crashes)} transactions, all orders done")
            break
        except Crash as crash:
            print(f"worker {attempt}: died {crash}")
    print(f"read_uncommitted sees {len(read(servers, 'read_uncommitted')):,} invoices, with those of dead workers")
    invoices = read(servers, "read_committed")
    print(f"read_committed sees {len(invoices):,}, one for each of the {ORDERS:,} orders")
    assert [invoice["order"] for invoice in invoices] == list(range(ORDERS))
    assert [invoice["net"] for invoice in invoices] == amounts


def read(servers: str, isolation: str) -> list[dict[str, int]]:
    """All invoices visible at this isolation level."""
    invoices: list[dict[str, int]] = []
    one = TopicPartition("invoices", 0)
    with Consumer(
        servers, isolation_level=isolation, auto_offset_reset="earliest", value_deserializer="json"
    ) as consumer:
        consumer.assign([one])
        end = consumer.end_offsets([one])[one]
        while consumer.position(one) < end:
            invoices.extend(record.value for record in consumer.poll(1))
    return invoices


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with ottla.Node() as node:
            main(node.bootstrap_servers)
