"""Spark's own Kafka connector against a node: each way to name topics and offsets, both ways to write."""

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import NewPartitions  # type: ignore[attr-defined]
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import ottla
from tests.spark.conftest import WAIT_S, Reading, Topic

# The first test of a run waits for the JVM, which on a new machine brings its jars first.
pytestmark = pytest.mark.timeout(300)

NewTopicOf = Callable[..., Topic]


def strings(rows: list[Row]) -> list[str]:
    return sorted(bytes(row.value).decode() for row in rows)


def consume(servers: str, topic: str, count: int) -> list[Message]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "spark-tests", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    messages: list[Message] = []
    deadline = time.monotonic() + WAIT_S
    while len(messages) < count and time.monotonic() < deadline:
        messages += consumer.consume(count - len(messages), 1)
    assert consumer.consume(1, 0.2) == []
    consumer.close()
    return messages


def test_a_batch_reads_every_column_as_it_was_produced(reading: Reading, new_topic: NewTopicOf) -> None:
    topic = new_topic(2)
    producer = Producer({"bootstrap.servers": topic.servers})
    producer.produce(topic.name, b"v0", b"k0", 0, timestamp=1_357_034_400_123, headers=[("h", b"1"), ("h", None)])
    producer.produce(topic.name, None, b"k1", 1, timestamp=1_357_034_400_456)
    producer.produce(topic.name, b"", None, 1, timestamp=1_357_034_400_789)
    assert producer.flush(WAIT_S) == 0
    rows = reading.batch(topic.name, includeHeaders="true").withColumn("ms", F.unix_millis("timestamp")).collect()
    seen = {(row.partition, row.offset): (row.key, row.value, row.ms, row.headers, row.timestampType) for row in rows}
    assert {row.topic for row in rows} == {topic.name}
    assert {place: row[:3] for place, row in seen.items()} == {
        (0, 0): (b"k0", b"v0", 1_357_034_400_123),
        (1, 0): (b"k1", None, 1_357_034_400_456),
        (1, 1): (None, b"", 1_357_034_400_789),
    }
    assert [(header.key, header.value) for header in seen[0, 0][3]] == [("h", b"1"), ("h", None)]
    assert seen[1, 0][3] is None
    assert {row[4] for row in seen.values()} == {0}


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_batch_reads_each_codec(reading: Reading, new_topic: NewTopicOf, codec: str) -> None:
    topic = new_topic()
    sent = [f"{codec} {number:05}" for number in range(2000)]
    topic.send(*sent, settings={"compression.type": codec, "linger.ms": 20})
    assert strings(reading.batch(topic.name).collect()) == sent


def test_a_batch_reads_between_given_offsets(reading: Reading, new_topic: NewTopicOf) -> None:
    topic = new_topic(2)
    topic.send(*"abcdef", partition=0)
    topic.send(*"uvwxyz", partition=1)
    starting = json.dumps({topic.name: {"0": 2, "1": -2}})
    ending = json.dumps({topic.name: {"0": -1, "1": 3}})
    rows = reading.batch(topic.name, startingOffsets=starting, endingOffsets=ending).collect()
    assert strings(rows) == ["c", "d", "e", "f", "u", "v", "w"]


def test_a_batch_reads_between_given_timestamps(reading: Reading, new_topic: NewTopicOf) -> None:
    topic = new_topic(2)
    for hour, value in enumerate("abcdef"):
        topic.send(value, partition=hour % 2, timestamp_ms=1_000_000 + hour * 1000)
    starting = json.dumps({topic.name: {"0": 1_002_000, "1": 1_002_500}})
    ending = json.dumps({topic.name: {"0": 1_004_000, "1": 9_000_000}})
    rows = reading.batch(topic.name, startingOffsetsByTimestamp=starting, endingOffsetsByTimestamp=ending).collect()
    assert strings(rows) == ["c", "d", "f"]


def test_a_batch_is_cut_into_more_tasks_than_partitions(reading: Reading, new_topic: NewTopicOf) -> None:
    topic = new_topic()
    topic.send(*(f"{number:06}" for number in range(20_000)))
    read = reading.batch(topic.name, minPartitions="6")
    assert read.rdd.getNumPartitions() == 6
    assert read.agg(F.count("*"), F.countDistinct("value"), F.max("offset")).collect() == [(20_000, 20_000, 19_999)]


def test_a_query_subscribes_and_sees_what_comes_later(reading: Reading, new_topic: NewTopicOf) -> None:
    one, other = new_topic(2), new_topic()
    one.send("a", "b", partition=1)
    query = reading.into_memory("subscribed", subscribe=f"{one.name},{other.name}")
    query.processAllAvailable()
    assert reading.values("subscribed") == ["a", "b"]
    one.send("c", partition=0)
    other.send("d")
    query.processAllAvailable()
    assert reading.values("subscribed") == ["a", "b", "c", "d"]


def test_a_query_reads_the_partitions_it_is_assigned_only(reading: Reading, new_topic: NewTopicOf) -> None:
    topic = new_topic(3)
    for partition, value in enumerate("abc"):
        topic.send(value, partition=partition)
    query = reading.into_memory("assigned", assign=json.dumps({topic.name: [0, 2]}))
    query.processAllAvailable()
    assert reading.values("assigned") == ["a", "c"]


def test_a_query_finds_a_new_topic_of_its_pattern(reading: Reading, new_topic: NewTopicOf) -> None:
    new_topic(prefix="elsewhere").send("never")
    new_topic(prefix="pattern").send("a")
    options = {"subscribePattern": "pattern-.*", "kafka.metadata.max.age.ms": "200"}
    query = reading.into_memory("patterned", **options)
    query.processAllAvailable()
    new_topic(prefix="pattern").send("b")
    # The client looks for new topics when its metadata is 200 ms old, so one look may come too soon.
    deadline = time.monotonic() + WAIT_S
    while len(reading.values("patterned")) < 2 and time.monotonic() < deadline:
        query.processAllAvailable()
    assert reading.values("patterned") == ["a", "b"]


def test_a_query_reads_a_new_partition_from_its_beginning(reading: Reading, new_topic: NewTopicOf) -> None:
    topic = new_topic()
    topic.send("a")
    options = {"subscribe": topic.name, "kafka.metadata.max.age.ms": "200"}
    query = reading.into_memory("grown", **options)
    query.processAllAvailable()
    topic.admin.create_partitions([NewPartitions(topic.name, 2)])[topic.name].result(WAIT_S)
    topic.send("b", partition=1)
    deadline = time.monotonic() + WAIT_S
    while len(reading.values("grown")) < 2 and time.monotonic() < deadline:
        query.processAllAvailable()
    assert reading.values("grown") == ["a", "b"]


def test_a_query_starts_at_a_timestamp(reading: Reading, new_topic: NewTopicOf) -> None:
    topic = new_topic(2)
    for hour, value in enumerate("abcdef"):
        topic.send(value, partition=hour % 2, timestamp_ms=1_000_000 + hour * 1000)
    query = reading.into_memory("later", subscribe=topic.name, startingTimestamp="1003000")
    query.processAllAvailable()
    assert reading.values("later") == ["d", "e", "f"]


def test_a_query_takes_no_more_at_once_than_it_is_told(reading: Reading, new_topic: NewTopicOf) -> None:
    topic = new_topic(2)
    topic.send(*(f"{number:03}" for number in range(300)), partition=0)
    topic.send(*(f"{number:03}" for number in range(300, 400)), partition=1)
    query = reading.into_memory("bounded", subscribe=topic.name, maxOffsetsPerTrigger="150")
    query.processAllAvailable()
    batches = [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]
    assert sum(batches) == 400
    assert max(batches) <= 150


def test_a_query_goes_on_from_its_checkpoint(reading: Reading, new_topic: NewTopicOf) -> None:
    source, sink = new_topic(2), new_topic()
    for values in (("a", "b"), ("c",), ("d", "e")):
        source.send(*values, partition=len(values) % 2)
        read = reading.stream(subscribe=source.name).select(
            "key", F.upper(F.col("value").cast("string")).alias("value")
        )
        writer = read.writeStream.format("kafka").option("kafka.bootstrap.servers", sink.servers)
        writer = writer.option("topic", sink.name).option("checkpointLocation", str(reading.checkpoints / "resumed"))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(WAIT_S)
    assert strings(reading.batch(sink.name).collect()) == ["A", "B", "C", "D", "E"]


def test_aggregates_are_written_as_they_change(reading: Reading, new_topic: NewTopicOf) -> None:
    source, sink = new_topic(), new_topic()
    counts = reading.stream(subscribe=source.name).groupBy("value").count()
    writer = counts.selectExpr("value AS key", "string(count) AS value").writeStream.format("kafka")
    writer = writer.option("kafka.bootstrap.servers", sink.servers).option("topic", sink.name).outputMode("update")
    query = writer.option("checkpointLocation", str(reading.checkpoints / "counted")).start()
    reading.running.append(query)
    for values in ("aab", "abc"):
        source.send(*values)
        query.processAllAvailable()
    latest = {message.key(): message.value() for message in consume(sink.servers, sink.name, 5)}
    assert latest == {b"a": b"3", b"b": b"2", b"c": b"1"}


def test_a_sink_writes_keys_headers_tombstones_and_many_topics(
    spark: SparkSession, reading: Reading, new_topic: NewTopicOf
) -> None:
    one, other = new_topic(), new_topic()
    header = "array(named_struct('key', 'h', 'value', binary('1')), named_struct('key', 'n', 'value', binary(NULL)))"
    rows = spark.createDataFrame(
        [(one.name, "k", "v"), (other.name, "gone", None)], "topic string, key string, value string"
    )
    written = rows.withColumn("headers", F.expr(header)).write.format("kafka").option("includeHeaders", "true")
    written.option("kafka.bootstrap.servers", one.servers).save()
    [first] = consume(one.servers, one.name, 1)
    [second] = consume(one.servers, other.name, 1)
    assert (first.key(), first.value()) == (b"k", b"v")
    assert first.headers() == [("h", b"1"), ("n", None)]
    assert (second.key(), second.value()) == (b"gone", None)


def test_a_sink_writes_with_acks_of_all_and_each_codec(
    spark: SparkSession, reading: Reading, new_topic: NewTopicOf
) -> None:
    topic = new_topic(2)
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        rows = spark.range(500).selectExpr(f"concat('{codec} ', id) AS value", "int(id % 2) AS partition")
        writer = rows.write.format("kafka").option("kafka.bootstrap.servers", topic.servers)
        writer.option("topic", topic.name).option("kafka.compression.type", codec).option("kafka.acks", "all").save()
    read = reading.batch(topic.name)
    assert read.agg(F.count("*"), F.countDistinct("value"), F.countDistinct("partition")).collect() == [(2000, 2000, 2)]


def test_only_committed_records_are_read_when_that_is_asked_for(reading: Reading, new_topic: NewTopicOf) -> None:
    topic = new_topic()
    producer = Producer({"bootstrap.servers": topic.servers, "transactional.id": topic.name})
    producer.init_transactions(WAIT_S)
    for value, end in (("kept", producer.commit_transaction), ("dropped", producer.abort_transaction)):
        producer.begin_transaction()
        producer.produce(topic.name, value)
        producer.flush(WAIT_S)
        end(WAIT_S)
    committed = {"kafka.isolation.level": "read_committed"}
    assert strings(reading.batch(topic.name, **committed).collect()) == ["kept"]
    assert strings(reading.batch(topic.name).collect()) == ["dropped", "kept"]


def test_a_batch_tells_the_time_it_was_produced_at(reading: Reading, new_topic: NewTopicOf) -> None:
    topic = new_topic()
    topic.send("noon", timestamp_ms=int(datetime(2013, 7, 1, 12, tzinfo=UTC).timestamp() * 1000))
    row = reading.batch(topic.name).select(F.date_format("timestamp", "yyyy-MM-dd HH:mm").alias("time")).collect()[0]
    assert row.time == "2013-07-01 12:00"


def test_a_query_outlives_a_restart_of_its_node(reading: Reading) -> None:
    with ottla.Node() as node:
        reading.servers = node.bootstrap_servers
        topic = Topic(node.bootstrap_servers, "restarted", 1)
        topic.send("a", "b")
        query = reading.into_memory("restarted", subscribe="restarted")
        query.processAllAvailable()
        node.restart()
        topic.send("c")
        query.processAllAvailable()
        assert reading.values("restarted") == ["a", "b", "c"]
        query.stop()
