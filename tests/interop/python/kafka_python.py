"""The peer of kafka-python."""

import re
import time
from collections.abc import Iterator
from typing import Any

import kafka
from kafka import ConsumerRebalanceListener, KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, NewTopic
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

from tests.interop.python.job import Json, data, headers, record_line, run, told_to_leave


def about(job: Json) -> Iterator[Json]:
    yield {"client": f"kafka-python {kafka.__version__}"}


def produce(job: Json) -> Iterator[Json]:
    producer = KafkaProducer(
        bootstrap_servers=job["bootstrap"],
        acks="all" if job["acks"] == "all" else int(job["acks"]),
        compression_type=None if job["codec"] == "none" else job["codec"],
        enable_idempotence=job["idempotent"],
        linger_ms=0 if job["each"] else 5,
        delivery_timeout_ms=45_000,
        request_timeout_ms=10_000,
        reconnect_backoff_max_ms=500,
    )
    try:
        waiting = []
        for record in job["records"]:
            future = producer.send(
                job["topic"],
                partition=record["p"],
                timestamp_ms=record["t"],
                key=data(record["k"]),
                value=data(record["v"]),
                headers=headers(record),
            )
            if job["each"]:
                yield _ack(future)
            else:
                waiting.append(future)
        for future in waiting:
            yield _ack(future)
    finally:
        producer.close(10)


def _ack(future: Any) -> Json:
    written = future.get(45)
    return {"p": written.partition, "o": written.offset}


def consume(job: Json) -> Iterator[Json]:
    consumer = KafkaConsumer(
        bootstrap_servers=job["bootstrap"],
        enable_auto_commit=False,
        auto_offset_reset="none",
        isolation_level=job["isolation"],
        reconnect_backoff_max_ms=500,
    )
    try:
        starts = {TopicPartition(job["topic"], int(p)): offset for p, offset in job["from"].items()}
        consumer.assign(list(starts))
        for where, offset in starts.items():
            consumer.seek(where, offset)
        count, deadline = 0, time.monotonic() + job["timeout_ms"] / 1000
        while count < job["count"] and time.monotonic() < deadline:
            for records in consumer.poll(200).values():
                for record in records:
                    yield _line(record)
                    count += 1
    finally:
        consumer.close()


def _line(record: Any) -> Json:
    return record_line(record.partition, record.offset, record.timestamp, record.key, record.value, record.headers)


def group(job: Json) -> Iterator[Json]:
    assignors = [RangePartitionAssignor] if job.get("assignor") == "range" else None
    consumer = KafkaConsumer(
        bootstrap_servers=job["bootstrap"],
        group_id=job["group"],
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        session_timeout_ms=5_000,
        heartbeat_interval_ms=500,
        reconnect_backoff_max_ms=500,
        partition_assignment_strategy=assignors or (RangePartitionAssignor, RoundRobinPartitionAssignor),
    )
    changes: list[Json] = []

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Any) -> None:
            changes.append({"revoked": [[p.topic, p.partition] for p in revoked]})

        def on_partitions_assigned(self, assigned: Any) -> None:
            changes.append({"assigned": [[p.topic, p.partition] for p in assigned]})

    try:
        consumer.subscribe(job["topics"], listener=Listener())
        while not told_to_leave():
            # A join that is spread over several short polls is sometimes never finished by this client (FINDINGS.md).
            polled = consumer.poll(2000)
            while changes:
                yield changes.pop(0)
            for records in polled.values():
                for record in records:
                    yield _line(record)
            if polled:
                consumer.commit()
    finally:
        consumer.close(autocommit=False)


def offsets(job: Json) -> Iterator[Json]:
    consumer = KafkaConsumer(bootstrap_servers=job["bootstrap"])
    try:
        where = TopicPartition(job["topic"], job["partition"])
        if job["at"] == "earliest":
            yield {"offset": consumer.beginning_offsets([where])[where]}
        elif job["at"] == "latest":
            yield {"offset": consumer.end_offsets([where])[where]}
        else:
            found = consumer.offsets_for_times({where: job["at"]})[where]
            yield {"offset": -1 if found is None else found.offset}
    finally:
        consumer.close()


def create(job: Json) -> Iterator[Json]:
    topic = NewTopic(job["topic"], job["partitions"], 1, topic_configs=job.get("configs", {}))
    yield from _admin(job, lambda admin: admin.create_topics([topic]), lambda _: None)


def delete(job: Json) -> Iterator[Json]:
    yield from _admin(job, lambda admin: admin.delete_topics([job["topic"]]), lambda _: None)


def add_partitions(job: Json) -> Iterator[Json]:
    more = {job["topic"]: job["partitions"]}
    yield from _admin(job, lambda admin: admin.create_partitions(more), lambda _: None)


def topics(job: Json) -> Iterator[Json]:
    yield from _admin(job, lambda admin: admin.list_topics(), lambda names: {"topics": sorted(names)})


def describe(job: Json) -> Iterator[Json]:
    def lines(found: Any) -> Json:
        (topic,) = found
        if topic["error_code"]:
            raise kafka.errors.for_code(topic["error_code"])
        return {
            "partitions": [
                {"p": p["partition_index"], "leader": p["leader_id"], "replicas": p["replica_nodes"]}
                for p in topic["partitions"]
            ]
        }

    yield from _admin(job, lambda admin: admin.describe_topics([job["topic"]]), lines)


def configs(job: Json) -> Iterator[Json]:
    def values(found: Any) -> Json:
        ((described,),) = [named.values() for named in found.values()]
        return {"configs": {name: config["value"] for name, config in described.items()}}

    resource = ConfigResource("TOPIC", job["topic"], None)
    yield from _admin(job, lambda admin: admin.describe_configs([resource], config_filter="all"), values)


def alter(job: Json) -> Iterator[Json]:
    resource = ConfigResource("TOPIC", job["topic"], job["configs"])

    def check(altered: Any) -> None:
        # The client gives each resource's error as text: "[Error 40] InvalidConfigurationError: ...".
        for named in altered.values():
            for result in named.values():
                if found := re.match(r"\[Error (\d+)\]", str(result)):
                    raise kafka.errors.for_code(int(found[1]))(result)

    yield from _admin(job, lambda admin: admin.alter_configs([resource]), check)


def groups(job: Json) -> Iterator[Json]:
    yield from _admin(
        job, lambda admin: admin.list_groups(), lambda found: {"groups": sorted(one["group_id"] for one in found)}
    )


def committed(job: Json) -> Iterator[Json]:
    def values(found: Any) -> Json:
        there = found[job["group"]]
        return {"offsets": {str(p.partition): o.offset for p, o in there.items() if p.topic == job["topic"]}}

    yield from _admin(job, lambda admin: admin.list_group_offsets(job["group"]), values)


def _admin(job: Json, ask: Any, answer: Any) -> Iterator[Json]:
    admin = KafkaAdminClient(bootstrap_servers=job["bootstrap"])
    try:
        line = answer(ask(admin))
    finally:
        admin.close()
    if line is not None:
        yield line


def code_of(problem: BaseException) -> int | None:
    code = getattr(problem, "errno", None)
    return code if isinstance(code, int) else None


OPS = (
    about,
    produce,
    consume,
    group,
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
