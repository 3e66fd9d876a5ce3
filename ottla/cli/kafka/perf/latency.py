"""kafka-e2e-latency: measure how long a record takes from a producer to a consumer."""

from __future__ import annotations

import sys
import time
from random import Random
from typing import TYPE_CHECKING

from ottla.cli.kafka.program.option import Given, Option, int32
from ottla.cli.kafka.program.tool import Failed, admin, command, load, settings_for, tell
from ottla.cli.measure import Latencies
from ottla.kernel.error import KafkaError

if TYPE_CHECKING:
    from ottla.client import Consumer, ConsumerRecord

_POLL_S = 60.0

OPTIONS = (
    Option("bootstrap-server", "REQUIRED: brokers to connect to first, HOST:PORT,HOST:PORT.", "bootstrap-server"),
    Option("topic", "REQUIRED: topic; created if it does not exist.", "topic-name"),
    Option("num-records", "REQUIRED: number of records.", "count", int32),
    Option("producer-acks", "REQUIRED: 1 or all.", "producer-acks"),
    Option("record-size", "REQUIRED: bytes of a value.", "bytes", int32),
    Option("record-key-size", "Bytes of a key.", "bytes", int32, default=0),
    Option("num-headers", "Number of headers.", "count", int32, default=0),
    Option("record-header-key-size", "Bytes of a header's name.", "bytes", int32, default=0),
    Option("record-header-size", "Bytes of a header's value; -1: null.", "bytes", int32, default=0),
    Option("command-config", "Properties file for the clients.", "config-file"),
)
_REQUIRED = ("bootstrap-server", "topic", "num-records", "producer-acks", "record-size")


def main() -> None:
    """The console script. Five or six positional arguments are the deprecated form."""
    words = sys.argv[1:]
    if words and not any(f"--{name}" in words for name in _REQUIRED) and "--help" not in words:
        if len(words) not in (5, 6):
            tell(
                f"Invalid number of arguments. Expected 5 or 6 positional arguments, but got {len(words)}. Usage: "
                "bootstrap-server topic num-records producer-acks record-size [optional] command-config"
            )
            sys.exit(1)
        print(
            "WARNING: Positional argument usage is deprecated and will be removed in Apache Kafka 5.0. Please use "
            "named arguments instead: --bootstrap-server, --topic, --num-records, --producer-acks, --record-size, "
            "--command-config"
        )
        named = zip((*_REQUIRED, "command-config"), words, strict=False)
        sys.argv[1:] = [part for name, word in named for part in (f"--{name}", word)]
    about = "This tool measures end-to-end latency in Kafka by sending messages and timing their reception."
    command(OPTIONS, about, _run)


def _run(given: Given) -> int:
    from ottla.client import Consumer, Producer
    from ottla.client.settings.consumer import ConsumerSettings
    from ottla.client.settings.producer import ProducerSettings

    _check(given)
    shared = {**(load(given["command-config"]) if "command-config" in given else {})}
    shared["bootstrap.servers"] = given["bootstrap-server"]
    reading = {**shared, "enable.auto.commit": "false", "auto.offset.reset": "latest", "fetch.max.wait.ms": "0"}
    reading["group.id"] = f"test-group-{time.time_ns() // 1_000_000}"
    writing = {**shared, "linger.ms": "0", "acks": given["producer-acks"]}
    _ensure_topic(given["topic"], shared)
    with (
        Consumer(settings_for(ConsumerSettings, reading)) as consumer,
        Producer(settings_for(ProducerSettings, writing)) as producer,
    ):
        from ottla.client import TopicPartition

        partitions = [TopicPartition(given["topic"], index) for index in consumer.partitions_for(given["topic"])]
        consumer.assign(partitions)
        consumer.seek_to_end(partitions)
        for partition in partitions:
            consumer.position(partition)
        chance = Random(0)
        latencies, total_ns, count = Latencies(given["num-records"]), 0, given["num-records"]
        for number in range(count):
            key, value = _letters(chance, given["record-key-size"]), _letters(chance, given["record-size"])
            headers = [_header(chance, given) for _ in range(given["num-headers"])]
            began = time.perf_counter_ns()
            producer.send(given["topic"], value, key, headers=headers or None).result()
            records = consumer.poll(_POLL_S)
            elapsed_ns = time.perf_counter_ns() - began
            _validate(records, key, value, headers)
            if number % 1000 == 0:
                print(f"{number}\t{elapsed_ns / 1e6}")
            total_ns += elapsed_ns
            latencies.add(elapsed_ns // 1_000_000)
        print(f"Avg latency: {total_ns / count / 1e6:.4f} ms")
        median, high, highest = latencies.percentiles(0.5, 0.99, 0.999)
        print(f"Percentiles: 50th = {median}, 99th = {high}, 99.9th = {highest}")
        _commit(consumer)
    return 0


def _commit(consumer: Consumer) -> None:
    consumer.commit(consumer.positions())


def _check(given: Given) -> None:
    from ottla.cli.kafka.program.option import Usage, require

    require(given, *_REQUIRED)
    _check_acks(given)
    if given["num-records"] <= 0:
        raise Usage("Value for --num-records must be a positive integer.")
    if given["record-size"] < 0:
        raise Usage("Value for --record-size must be a non-negative integer.")
    for name in ("record-key-size", "num-headers", "record-header-key-size"):
        if given[name] < 0:
            raise Usage(f"Value for --{name} must be a non-negative integer.")
    if given["record-header-size"] < -1:
        raise Usage("Value for --record-header-size must be a non-negative integer or -1 for null header value.")


def _check_acks(given: Given) -> None:
    from ottla.cli.kafka.program.option import Usage

    if given["producer-acks"] not in ("1", "all"):
        raise Usage(
            "Invalid value for --producer-acks. Latency testing requires synchronous acknowledgement. Please use '1' "
            "or 'all'."
        )


def _ensure_topic(topic: str, shared: dict[str, str]) -> None:
    from ottla.settings.client.client import AdminSettings

    known = {setting.name for setting in AdminSettings.declared.values()}
    with admin(shared["bootstrap.servers"], {name: value for name, value in shared.items() if name in known}) as client:
        if any(listing.name == topic for listing in client.list_topics(internal=True)):
            return
        print(f'Topic "{topic}" does not exist. Will create topic with 1 partition(s) and replication factor = 1')
        try:
            client.create_topic(topic, 1, 1)
        except KafkaError:
            print(f"Creation of topic {topic} failed")
            raise


def _letters(chance: Random, size: int) -> bytes:
    return bytes([chance.randrange(65, 91)]) * size


def _header(chance: Random, given: Given) -> tuple[str, bytes | None]:
    size = given["record-header-size"]
    name = _letters(chance, given["record-header-key-size"]).decode()
    return name, None if size == -1 else _letters(chance, size)


def _validate(records: list[ConsumerRecord], key: bytes, value: bytes, headers: list[tuple[str, bytes | None]]) -> None:
    if not records:
        raise Failed(f"poll() timed out before finding a result (timeout:[{int(_POLL_S * 1000)}ms])")
    record = records[0]
    if record.value != value:
        raise Failed(f"The message value read [{record.value!r}] did not match the message value sent [{value!r}]")
    if (record.key or b"") != key:
        raise Failed(f"The message key read [{record.key!r}] did not match the message key sent [{key!r}]")
    if list(record.headers) != headers:
        raise Failed("The message headers read did not match those sent")
    if len(records) != 1:
        raise Failed(f"Only one result was expected during this test. We found [{len(records)}]")
