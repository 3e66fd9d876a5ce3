"""librdkafka through confluent-kafka, with its default settings.

python -m bench.librdkafka produce BOOTSTRAP TOPIC RECORDS BYTES [SETTINGS]
python -m bench.librdkafka consume BOOTSTRAP TOPIC RECORDS [SETTINGS]

SETTINGS is JSON: more settings of the client.
"""

import json
import sys
import time
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer

PATIENCE_S = 120.0
Settings = dict[str, str]


def produce(bootstrap: str, topic: str, records: int, record_bytes: int, more: Settings) -> dict[str, Any]:
    """Send all records and wait for every acknowledgement."""
    producer = Producer({"bootstrap.servers": bootstrap, **more})
    value = b"x" * record_bytes
    failed = []
    acked = 0

    def delivered(error: Any, _: Any) -> None:
        nonlocal acked
        if error is not None:
            failed.append(error)
        acked += 1

    began = time.perf_counter()
    for _ in range(records):
        while True:
            try:
                producer.produce(topic, value, on_delivery=delivered)
                break
            except BufferError:  # the queue is full: let it drain
                producer.poll(0.01)
        producer.poll(0)
    producer.flush(PATIENCE_S)
    took = time.perf_counter() - began
    if failed or acked != records:
        raise RuntimeError(f"{acked} of {records} acknowledged, {len(failed)} failed: {failed[:1]}")
    return {"records": acked, "records_per_s": acked / took}


def consume(bootstrap: str, topic: str, records: int, more: Settings) -> dict[str, Any]:
    """Read from the beginning. `records_per_s` counts from the assignment, `total_per_s` from before joining."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"bench-{time.time_ns()}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            # With its default of a second, the client sleeps whenever its queue is full: the figure would include the
            # sleeps, and the faster server would cause more of them.
            "fetch.queue.backoff.ms": 1,
            **more,
        }
    )
    started = assigned_at = time.perf_counter()

    def assigned(*_: Any) -> None:
        nonlocal assigned_at
        assigned_at = time.perf_counter()

    consumer.subscribe([topic], on_assign=assigned)
    count = 0
    while count < records:
        messages = consumer.consume(10_000, timeout=1.0)
        if time.perf_counter() > started + PATIENCE_S:
            raise RuntimeError(f"{count} of {records} records read")
        for message in messages:
            if message.error():
                raise KafkaException(message.error())
        count += len(messages)
    ended = time.perf_counter()
    consumer.close()
    return {
        "records": count,
        "records_per_s": count / (ended - assigned_at),
        "total_per_s": count / (ended - started),
    }


def main(what: str, bootstrap: str, topic: str, *numbers: str) -> None:
    """Run one work and print its figures as a line of JSON."""
    more: Settings = {}
    if numbers[-1].startswith("{"):
        *numbers, settings = numbers  # type: ignore[assignment]
        more = json.loads(settings)
    work: Any = {"produce": produce, "consume": consume}[what]
    print(json.dumps(work(bootstrap, topic, *map(int, numbers), more)))


if __name__ == "__main__":
    main(*sys.argv[1:])
