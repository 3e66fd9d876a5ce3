"""Exactly once from topic to topic: read, transform, write, in transactions.

    python examples/transactions.py [bootstrap.servers]

The invoices and the offsets of the orders that they are made from are committed together, or not at all. The worker
dies again and again in the middle; its successor has the same transactional id, so that whatever the dead one had
open is aborted first. Who reads committed records sees each invoice once, in the order of the orders.
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
    """What ends a worker in the middle."""


def work(servers: str, crashes: Iterator[int | None]) -> int:
    """Make an invoice of every order; the number of transactions."""
    consumer = Consumer(servers, group_id="billing", enable_auto_commit=False, auto_offset_reset="earliest")
    producer = Producer(servers, transactional_id="billing-1", value_serializer="json")
    with consumer, producer:
        producer.init_transactions()  # before anything is read: the predecessor's transaction ends here
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
            print(f"worker {attempt}: {work(servers, crashes)} transactions, and all is done")
            break
        except Crash as crash:
            print(f"worker {attempt}: died {crash}")
    print(f"who reads all sees {len(read(servers, 'read_uncommitted')):,} invoices, those of the dead among them")
    invoices = read(servers, "read_committed")
    print(f"who reads what is committed sees {len(invoices):,}, one for each of the {ORDERS:,} orders")
    assert [invoice["order"] for invoice in invoices] == list(range(ORDERS))
    assert [invoice["net"] for invoice in invoices] == amounts


def read(servers: str, isolation: str) -> list[dict[str, int]]:
    """All invoices that there are for readers of this isolation level."""
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
