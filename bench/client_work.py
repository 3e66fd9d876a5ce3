"""A work of one client, in a separate process.

    python -m bench.client_work WORK CLIENT BOOTSTRAP TOPIC RECORDS

It prints a line of JSON: the number of records, seconds, CPU seconds and peak resident bytes of this process. Every
client runs with its defaults, except that consumers read from the beginning. Readers read every value; the clock starts
when the first records have arrived, which excludes imports and joining the group.
"""

import asyncio
import contextlib
import functools
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

PARTITIONS = 6
VALUE_BYTES = 100
PATIENCE_S = 120.0
#: Different values, not one object repeated.
_POOL = 1_000

Figures = dict[str, float]


def values() -> list[bytes]:
    """Random values of 100 bytes."""
    return [os.urandom(VALUE_BYTES) for _ in range(_POOL)]


def rounds(records: int) -> range:
    """The iterations over the values for `records` records."""
    return range(-(-records // _POOL))


def have_memory(records: int) -> None:
    """Write as much as a node will write for `records` records, and delete it: the node gets the freed pages.

    The host of a virtual machine provides a page when it is first touched, and takes it back when it was free for a
    moment. On the development machine the page cache costs 270 ns of CPU per record in new pages and 25 in these, which
    would dominate the figures of fast writers. So this writes as a node does, in pieces of about half a MiB to several
    files, and little more than needed: the host takes back much of larger or additional pieces before they are used.
    """
    piece = os.urandom((512 << 10) - 77)
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as files:
        written = [
            files.enter_context(open(Path(directory, str(number)), "wb", buffering=0)) for number in range(PARTITIONS)
        ]
        for number in range(13 * (VALUE_BYTES + 9) * records // (10 * len(piece)) + 1):
            written[number % PARTITIONS].write(piece)


class Clock:
    """Wall and CPU time since its creation."""

    def __init__(self) -> None:
        self._cpu = time.process_time()
        self._wall = time.perf_counter()

    def figures(self, records: int) -> Figures:
        return {
            "records": records,
            "seconds": time.perf_counter() - self._wall,
            "cpu_seconds": time.process_time() - self._cpu,
        }


# ---------------------------------------------------------------------------------------------------- ours


def ottla_produce(bootstrap: str, topic: str, records: int) -> Figures:
    """`Producer.send`, then flush."""
    from ottla.client import Producer

    pool = values()
    with Producer(bootstrap) as producer:
        producer.partitions_for(topic)
        have_memory(records)
        clock = Clock()
        for _ in rounds(records):
            for value in pool:
                producer.send(topic, value)
        producer.flush()
        return clock.figures(len(rounds(records)) * _POOL)


def ottla_produce_async(bootstrap: str, topic: str, records: int) -> Figures:
    """`await AsyncProducer.send`, then flush."""
    from ottla.client import AsyncProducer

    async def work() -> Figures:
        pool = values()
        async with AsyncProducer(bootstrap) as producer:
            await producer.partitions_for(topic)
            have_memory(records)
            clock = Clock()
            for _ in rounds(records):
                for value in pool:
                    await producer.send(topic, value)
                await asyncio.sleep(0)
            await producer.flush()
            return clock.figures(len(rounds(records)) * _POOL)

    return asyncio.run(work())


def ottla_send_table(bootstrap: str, topic: str, records: int) -> Figures:
    """`Producer.send_table`, then flush."""
    import pyarrow as pa

    from ottla.client import Producer

    pool = values()
    table = pa.table({"value": pa.array((pool * len(rounds(records)))[:records], pa.binary())})
    with Producer(bootstrap) as producer:
        # The first table imports what tables need.
        producer.send_table(topic, table.slice(0, 1_000)).result(PATIENCE_S)
        have_memory(records)
        clock = Clock()
        producer.send_table(topic, table)
        producer.flush()
        return clock.figures(records)


def _read(records: int, poll: Callable[[], int]) -> Figures:
    """Poll until `records` records have arrived."""
    deadline = time.monotonic() + PATIENCE_S
    first = 0
    while not first:
        first = poll()
        assert time.monotonic() < deadline, "no records came"
    clock = Clock()
    found = 0
    while found + first < records:
        found += poll()
        assert time.monotonic() < deadline, f"{found} of {records} records read"
    return clock.figures(found)


def _ottla_read(bootstrap: str, topic: str, records: int, poll: Callable[[Any], int]) -> Figures:
    from ottla.client import Consumer, TopicPartition

    with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, number) for number in range(PARTITIONS)])
        return _read(records, functools.partial(poll, consumer))


def ottla_consume(bootstrap: str, topic: str, records: int) -> Figures:
    """`Consumer.poll`: up to 500 records each."""

    def poll(consumer: Any) -> int:
        found = consumer.poll(1.0)
        for record in found:
            assert record.value is not None
        return len(found)

    return _ottla_read(bootstrap, topic, records, poll)


def ottla_iterate(bootstrap: str, topic: str, records: int) -> Figures:
    """`for record in consumer`."""
    from ottla.client import Consumer, TopicPartition

    with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, number) for number in range(PARTITIONS)])
        iterator = iter(consumer)
        next(iterator)
        clock = Clock()
        for record in islice(iterator, records - 1):
            assert record.value is not None
        return clock.figures(records - 1)


def ottla_poll_table(bootstrap: str, topic: str, records: int) -> Figures:
    """`Consumer.poll_table`."""
    import ottla.client.consumer.table  # noqa: F401

    return _ottla_read(bootstrap, topic, records, lambda consumer: int(consumer.poll_table(1.0).num_rows))


def _schema() -> Any:
    import pyarrow as pa

    return pa.schema(
        [("id", pa.int64()), ("user", pa.string()), ("price", pa.float64()), ("paid", pa.bool_()), ("at", pa.string())]
    )


def ottla_send_json(bootstrap: str, topic: str, records: int) -> Figures:
    """Send columns as JSON, for the JSON works to read."""
    import numpy as np
    import pyarrow as pa

    from ottla.client import Producer, serde

    number = np.arange(records)
    table = pa.table(
        {
            "id": number,
            "user": pa.array([f"user-{one % 5_000:04d}" for one in range(records)]),
            "price": (number % 10_000) / 100,
            "paid": number % 3 == 0,
            "at": pa.array(number + 1_700_000_000_000, pa.timestamp("ms")),
        }
    )
    with Producer(bootstrap) as producer:
        clock = Clock()
        producer.send_table(topic, table, value=table.column_names, value_serde=serde.json())
        producer.flush()
        return clock.figures(records)


def ottla_json(bootstrap: str, topic: str, records: int) -> Figures:
    """`Consumer.poll_table` with JSON read into typed columns."""
    import pyarrow.json  # noqa: F401

    from ottla.client import serde

    reading = serde.json(_schema())

    def poll(consumer: Any) -> int:
        table = consumer.poll_table(1.0, value_serde=reading)
        assert not table.num_rows or table["value"].null_count == 0
        return int(table.num_rows)

    return _ottla_read(bootstrap, topic, records, poll)


def ottla_memory(bootstrap: str, topic: str, records: int) -> Figures:
    """Read as columns; returns the peak growth of resident memory since before the first poll."""
    import ottla.client.consumer.table  # noqa: F401

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    read_bytes = 0

    def poll(consumer: Any) -> int:
        nonlocal read_bytes
        table = consumer.poll_table(1.0)
        read_bytes += table["value"].nbytes
        return int(table.num_rows)

    figures = _ottla_read(bootstrap, topic, records, poll)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {**figures, "read_bytes": read_bytes, "memory_bytes": (after - before) * 1024}


# ---------------------------------------------------------------------------------------------------- confluent-kafka


def confluent_produce(bootstrap: str, topic: str, records: int) -> Figures:
    """`produce` with a delivery report for each record, `poll(0)` after each, then flush."""
    from confluent_kafka import Producer

    failed: list[Any] = []

    def delivered(error: Any, _: Any) -> None:
        if error is not None:
            failed.append(error)

    figures = _confluent_produce(Producer({"bootstrap.servers": bootstrap}), topic, records, delivered)
    assert not failed, failed[:1]
    return figures


def confluent_produce_unreported(bootstrap: str, topic: str, records: int) -> Figures:
    """The same without delivery reports: the program does not learn of failures."""
    from confluent_kafka import Producer

    return _confluent_produce(Producer({"bootstrap.servers": bootstrap}), topic, records, None)


def _confluent_produce(producer: Any, topic: str, records: int, delivered: Any) -> Figures:
    pool = values()
    producer.list_topics(topic, PATIENCE_S)
    have_memory(records)
    clock = Clock()
    for _ in rounds(records):
        for value in pool:
            while True:
                try:
                    producer.produce(topic, value, on_delivery=delivered)
                    break
                except BufferError:  # the queue is full: let it drain
                    producer.poll(0.01)
            producer.poll(0)
    assert producer.flush(PATIENCE_S) == 0
    return clock.figures(len(rounds(records)) * _POOL)


def _confluent_read(bootstrap: str, topic: str, records: int, take: Callable[[Any], int]) -> Figures:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"bench-{time.time_ns()}",
            "enable.auto.commit": False,
            # With its default of a second, the client sleeps whenever its queue is full.
            "fetch.queue.backoff.ms": 1,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    figures = _read(records, functools.partial(take, consumer))
    consumer.close()
    return figures


def confluent_poll(bootstrap: str, topic: str, records: int) -> Figures:
    """`poll`, one record a call."""

    def take(consumer: Any) -> int:
        message = consumer.poll(1.0)
        if message is None:
            return 0
        assert message.error() is None and message.value() is not None
        return 1

    return _confluent_read(bootstrap, topic, records, take)


def confluent_consume(bootstrap: str, topic: str, records: int) -> Figures:
    """`consume(10000)`."""

    def take(consumer: Any) -> int:
        messages = consumer.consume(10_000, 1.0)
        for message in messages:
            assert message.error() is None and message.value() is not None
        return len(messages)

    return _confluent_read(bootstrap, topic, records, take)


def confluent_json(bootstrap: str, topic: str, records: int) -> Figures:
    """`consume(10000)` and `json.loads`: a list of dicts."""

    def take(consumer: Any) -> int:
        return len([json.loads(message.value()) for message in consumer.consume(10_000, 1.0)])

    return _confluent_read(bootstrap, topic, records, take)


def confluent_json_table(bootstrap: str, topic: str, records: int) -> Figures:
    """The same, and pyarrow makes typed columns of the dicts."""
    import pyarrow as pa

    schema = _schema()

    def take(consumer: Any) -> int:
        rows = [json.loads(message.value()) for message in consumer.consume(10_000, 1.0)]
        return int(pa.Table.from_pylist(rows, schema=schema).num_rows)

    return _confluent_read(bootstrap, topic, records, take)


# ---------------------------------------------------------------------------------------------------- aiokafka


def aiokafka_produce(bootstrap: str, topic: str, records: int) -> Figures:
    """`await send`, then flush."""
    from aiokafka import AIOKafkaProducer

    async def work() -> Figures:
        pool = values()
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
        await producer.start()
        try:
            await producer.partitions_for(topic)
            have_memory(records)
            clock = Clock()
            for _ in rounds(records):
                for value in pool:
                    await producer.send(topic, value)
            await producer.flush()
            return clock.figures(len(rounds(records)) * _POOL)
        finally:
            await producer.stop()

    return asyncio.run(work())


def aiokafka_consume(bootstrap: str, topic: str, records: int) -> Figures:
    """`getmany`."""
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async def work() -> Figures:
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
        await consumer.start()
        try:
            consumer.assign([TopicPartition(topic, number) for number in range(PARTITIONS)])
            await consumer.getone()
            clock = Clock()
            found = 0
            async with asyncio.timeout(PATIENCE_S):
                while found < records - 1:
                    for part in (await consumer.getmany(timeout_ms=1_000)).values():
                        for record in part:
                            assert record.value is not None
                        found += len(part)
            return clock.figures(found)
        finally:
            await consumer.stop()

    return asyncio.run(work())


def main(work: str, client: str, bootstrap: str, topic: str, records: str) -> None:
    """Run the work and print its figures."""
    figures = globals()[f"{client}_{work}"](bootstrap, topic, int(records))
    print(json.dumps({**figures, "peak_bytes": _peak_bytes()}))


def _peak_bytes() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


if __name__ == "__main__":
    main(*sys.argv[1:])
