"""Activity tracking: page views, counted by a group of workers.

    python examples/activity.py [bootstrap.servers]

Views are keyed by user, so that each user's views stay in order. The workers share the partitions; one of them leaves
half way, the others take over its partitions, and no view is counted twice or lost.
"""

import random
import sys
import threading
from collections import Counter
from contextlib import suppress

import ottla
from ottla.client import Admin, Consumer, KafkaError, Producer, RebalanceListener, TopicPartition

TOPIC, VIEWS = "page-views", 20_000
PAGES = {"/": 40, "/search": 25, "/product/3": 15, "/cart": 9, "/checkout": 6, "/help": 5}


class Worker(threading.Thread):
    """One member of the group."""

    def __init__(self, servers: str, name: str) -> None:
        super().__init__(name=name)
        self.servers = servers
        self.counted: Counter[str] = Counter()
        self.views = 0
        #: The partitions assigned now, and all that ever were.
        self.partitions: set[int] = set()
        self.had: set[int] = set()
        self.leave = threading.Event()

    def run(self) -> None:
        worker = self
        with Consumer(
            self.servers,
            group_id="analytics",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=100,
            value_deserializer="str",
        ) as consumer:

            class Commit(RebalanceListener):
                def assigned(self, partitions: list[TopicPartition]) -> None:
                    worker.partitions |= {each.partition for each in partitions}
                    worker.had |= worker.partitions

                def revoked(self, partitions: list[TopicPartition]) -> None:
                    worker.partitions -= {each.partition for each in partitions}
                    consumer.commit()  # the next owner continues after the counted views

            consumer.subscribe([TOPIC], listener=Commit())
            while not self.leave.is_set():
                records = consumer.poll(0.1, max_records=500)
                self.counted.update(str(record.value) for record in records)
                self.views += len(records)
            with suppress(KafkaError):  # during a rebalance it may fail: the next owner counts these views again
                consumer.commit()


def main(servers: str) -> None:
    draw = random.Random(7)
    sent: Counter[str] = Counter()
    with Admin(servers) as admin:
        admin.create_topic(TOPIC, 6)
    workers = [Worker(servers, name) for name in ("ann", "ben", "cleo")]
    for worker in workers:
        worker.start()
    while not all(worker.partitions for worker in workers):
        workers[0].join(0.05)
    print(", ".join(f"{worker.name} has partitions {sorted(worker.partitions)}" for worker in workers))
    with Producer(servers) as producer:
        for number in range(VIEWS):
            (page,) = draw.choices(list(PAGES), list(PAGES.values()))
            sent[page] += 1
            producer.send(TOPIC, page, key=f"user-{draw.randrange(1000)}")
            if number == VIEWS // 2:
                producer.flush()
                while not workers[0].views:
                    workers[0].join(0.05)
                workers[0].leave.set()
                print(f"{workers[0].name} leaves with {workers[0].views:,} views counted")
    while sum(worker.views for worker in workers) < VIEWS:
        workers[1].join(0.05)
    for worker in workers:
        worker.leave.set()
        worker.join()
    counted: Counter[str] = sum((worker.counted for worker in workers), Counter())
    for page, views in counted.most_common():
        print(f"  {page:12} {views:7,}  {'█' * (60 * views // VIEWS)}")
    for worker in workers:
        print(f"  {worker.name:5} counted {worker.views:7,} of partitions {sorted(worker.had)}")
    assert counted == sent
    print(f"{counted.total():,} views sent, {counted.total():,} counted")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with ottla.Node() as node:
            main(node.bootstrap_servers)
