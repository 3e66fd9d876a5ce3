"""The requests of a step of a Streams program by API, and its latency.

    python -m bench.streams.steps [stateless|windowed-count]

Records are sent one by one, each after the previous one's result, so that each is a separate step. The node counts the
program's requests, which are independent of the load; times are not.
"""

import sys
import threading
import time
from collections import Counter
from statistics import median
from typing import Any

import ottla
import ottla.spark
from bench.streams.programs import application
from ottla.client import Admin, Consumer, Producer, TopicPartition
from ottla.streams import State

STEPS = 200


def main() -> None:
    """Print the table."""
    program = sys.argv[1] if len(sys.argv) > 1 else "stateless"
    with ottla.Node() as node:
        servers = node.bootstrap_servers
        with Admin(servers) as admin:
            for topic in ("in", "out"):
                admin.create_topic(topic, 1, 1, {"retention.ms": -1})
        session = ottla.spark.session("steps", cores=2, long_running=True)
        app = application(program, "python", "steps", "in", "in", "out")
        running = threading.Event()
        app.on_state_change(lambda new, old: running.set() if new is State.RUNNING else None)
        app.start(servers, spark=session)
        running.wait(120)
        steps(node, servers)
        app.stop()
        session.stop()


def steps(node: ottla.Node, servers: str) -> None:
    """Send `STEPS` records, one after another."""
    out = TopicPartition("out", 0)
    reader = Consumer(servers, client_id="reader", isolation_level="read_committed")
    with Producer(servers, linger_ms=0, client_id="sender") as producer, reader as consumer:
        consumer.assign([out])
        consumer.seek(out, consumer.end_offsets([out])[out])
        one(producer, consumer)
        with node.faults.watch() as seen:
            waits = [one(producer, consumer) for _ in range(STEPS)]
    asked = Counter(each.api.name for each in seen.requests if each.client_id not in ("reader", "sender"))
    others = Counter(each.api.name for each in seen.requests if each.client_id in ("reader", "sender"))
    print(f"{STEPS} steps; end to end {median(waits) * 1000:.1f} ms in the median, {min(waits) * 1000:.1f} at least")
    print("requests of the program for each step:")
    for name, count in asked.most_common():
        print(f"  {name:24} {count / STEPS:6.2f}")
    print(f"requests of the one who sends and reads: {dict(others)}")


def one(producer: Producer[Any, Any], consumer: Consumer[Any, Any]) -> float:
    """Send a record; returns the seconds until its result."""
    began = time.perf_counter()
    producer.send("in", b"value", b"key", timestamp=time.time_ns() // 1_000_000)
    while not consumer.poll(10):
        continue
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
