"""The peer of librdkafka, through confluent-kafka."""

import time
from collections.abc import Iterator
from functools import cache
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.interop.python.job import Json, data, headers, record_line, run, told_to_leave, wait_to_leave
from tests.interop.python.secured import secured


def about(job: Json) -> Iterator[Json]:
    yield {"client": f"librdkafka {confluent_kafka.libversion()[0]} (confluent-kafka {confluent_kafka.version()})"}


def produce(job: Json) -> Iterator[Json]:
    settings = {
        "bootstrap.servers": job["bootstrap"],
        "acks": job["acks"],
        "compression.type": job["codec"],
        "enable.idempotence": job["idempotent"],
        "linger.ms": 5,
        "message.timeout.ms": 45_000,
        "socket.timeout.ms": 10_000,
        "reconnect.backoff.max.ms": 500,
    }
    producer = Producer(settings)
    sent: list[Any] = [None] * len(job["records"])

    def slot(index: int) -> Any:
        def delivered(error: Any, message: Any) -> None:
            sent[index] = (error, message)

        return delivered

    told = 0
    for index, record in enumerate(job["records"]):
        producer.produce(
            job["topic"],
            partition=record["p"],
            timestamp=record["t"],
            key=data(record["k"]),
            value=data(record["v"]),
            headers=list(headers(record)),
            on_delivery=slot(index),
        )
        if job["each"]:
            producer.flush()
            yield _ack(sent[index])
            told = index + 1
    producer.flush()
    for outcome in sent[told:]:
        yield _ack(outcome)


def transact(job: Json) -> Iterator[Json]:
    settings = {"bootstrap.servers": job["bootstrap"], "transactional.id": job["id"], "reconnect.backoff.max.ms": 500}
    producer = Producer(settings)
    producer.init_transactions(45)
    producer.begin_transaction()
    for record in job["records"]:
        producer.produce(job["topic"], data(record["v"]), data(record["k"]), partition=record["p"])
    producer.flush(45)
    if job["offsets"]:
        member = Consumer({"bootstrap.servers": job["bootstrap"], "group.id": job["group"]})
        offsets = [TopicPartition(job["topic"], int(p), offset) for p, offset in job["offsets"].items()]
        producer.send_offsets_to_transaction(offsets, member.consumer_group_metadata(), 45)
        member.close()
    yield {"open": True}
    wait_to_leave()
    (producer.commit_transaction if job["commit"] else producer.abort_transaction)(45)


def _ack(outcome: Any) -> Json:
    error, message = outcome
    if error is not None:
        raise KafkaException(error)
    return {"p": message.partition(), "o": message.offset()}


def consume(job: Json) -> Iterator[Json]:
    settings = {"bootstrap.servers": job["bootstrap"], "group.id": "unused", "enable.auto.commit": False}
    consumer = Consumer(
        {**settings, "auto.offset.reset": "error", "reconnect.backoff.max.ms": 500, "isolation.level": job["isolation"]}
    )
    try:
        starts = [TopicPartition(job["topic"], int(p), offset) for p, offset in job["from"].items()]
        consumer.assign(starts)
        count, deadline = 0, time.monotonic() + job["timeout_ms"] / 1000
        while count < job["count"] and time.monotonic() < deadline:
            message = consumer.poll(0.2)
            if message is None:
                continue
            yield _line(message)
            count += 1
    finally:
        consumer.close()


def _line(message: Any) -> Json:
    if message.error():
        raise KafkaException(message.error())
    return record_line(
        message.partition(),
        message.offset(),
        message.timestamp()[1],
        message.key(),
        message.value(),
        message.headers(),
    )


def group(job: Json) -> Iterator[Json]:
    settings: dict[str, Any] = {
        "bootstrap.servers": job["bootstrap"],
        "group.id": job["group"],
        "group.protocol": job["protocol"],
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "reconnect.backoff.max.ms": 500,
    }
    if job["protocol"] == "classic":
        settings |= {"session.timeout.ms": 5_000, "heartbeat.interval.ms": 500}
        settings["partition.assignment.strategy"] = job.get("assignor") or "range,roundrobin"
    consumer = Consumer(settings)
    assigned: list[Json] = []

    def note(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        assigned.append({"assigned": [[p.topic, p.partition] for p in partitions]})

    def revoked(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        assigned.append({"revoked": [[p.topic, p.partition] for p in partitions]})

    try:
        consumer.subscribe(job["topics"], on_assign=note, on_revoke=revoked, on_lost=revoked)
        while not told_to_leave():
            messages = consumer.consume(500, timeout=0.1)
            while assigned:
                yield assigned.pop(0)
            for message in messages:
                yield _line(message)
            if messages:
                consumer.commit(asynchronous=False)
    finally:
        consumer.close()


def offsets(job: Json) -> Iterator[Json]:
    at = job["at"]
    if isinstance(at, int):
        spec = OffsetSpec.for_timestamp(at)
    else:
        ends: Any = OffsetSpec  # its two are not typed
        spec = ends.earliest() if at == "earliest" else ends.latest()
    where = TopicPartition(job["topic"], job["partition"])
    (future,) = _admin(job).list_offsets({where: spec}, request_timeout=15).values()
    yield {"offset": future.result().offset}


def create(job: Json) -> Iterator[Json]:
    topic = NewTopic(
        job["topic"], num_partitions=job["partitions"], replication_factor=1, config=job.get("configs", {})
    )
    _wait(_admin(job).create_topics([topic], request_timeout=15))
    yield from ()


def delete(job: Json) -> Iterator[Json]:
    _wait(_admin(job).delete_topics([job["topic"]], request_timeout=15))
    yield from ()


def add_partitions(job: Json) -> Iterator[Json]:
    _wait(_admin(job).create_partitions([NewPartitions(job["topic"], job["partitions"])], request_timeout=15))
    yield from ()


def topics(job: Json) -> Iterator[Json]:
    yield {"topics": sorted(_admin(job).list_topics(timeout=15).topics)}


def describe(job: Json) -> Iterator[Json]:
    found = _admin(job).describe_topics(confluent_kafka.TopicCollection([job["topic"]]), request_timeout=15)
    (described,) = [future.result() for future in found.values()]
    lines = [{"p": p.id, "leader": p.leader.id, "replicas": [n.id for n in p.replicas]} for p in described.partitions]
    yield {"partitions": lines}


def configs(job: Json) -> Iterator[Json]:
    (future,) = (
        _admin(job).describe_configs([ConfigResource(ResourceType.TOPIC, job["topic"])], request_timeout=15).values()
    )
    yield {"configs": {name: entry.value for name, entry in future.result().items()}}


def alter(job: Json) -> Iterator[Json]:
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in job["configs"].items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, job["topic"], incremental_configs=entries)
    _wait(_admin(job).incremental_alter_configs([resource], request_timeout=15))
    yield from ()


def groups(job: Json) -> Iterator[Json]:
    listed = _admin(job).list_consumer_groups(request_timeout=15).result()
    if listed.errors:
        raise listed.errors[0]
    yield {"groups": sorted(one.group_id for one in listed.valid)}


def committed(job: Json) -> Iterator[Json]:
    request = ConsumerGroupTopicPartitions(job["group"])
    (future,) = _admin(job).list_consumer_group_offsets([request], request_timeout=15).values()
    found = future.result().topic_partitions
    yield {"offsets": {str(p.partition): p.offset for p in found if p.topic == job["topic"]}}


def _admin(job: Json) -> AdminClient:
    return _admin_of(job["bootstrap"])


@cache
def _admin_of(bootstrap: str) -> AdminClient:
    # Kept: a client that is collected while its futures are open fails them.
    return AdminClient({"bootstrap.servers": bootstrap, "reconnect.backoff.max.ms": 500})


def _wait(futures: dict[Any, Any]) -> None:
    for future in futures.values():
        future.result(20)


def code_of(problem: BaseException) -> int | None:
    if isinstance(problem, KafkaException):
        return int(problem.args[0].code())
    return None


OPS = (
    about,
    produce,
    transact,
    consume,
    group,
    secured,
    offsets,
    create,
    delete,
    add_partitions,
    topics,
    describe,
    configs,
    alter,
    groups,
    committed,
)

if __name__ == "__main__":
    run({op.__name__: op for op in OPS}, code_of)
