"""One Spark session and one node for all of these tests: starting a JVM is what costs."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

import ottla
import ottla.spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

WAIT_S = 30
#: many records here are stamped long ago, and would be gone at the first look for old segments
KEPT = {"retention.ms": "-1"}
Settings = dict[str, str | int]


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    # Programs get two workers; a program in real-time mode needs a slot for each of its partitions.
    two = {"spark.default.parallelism": "2", "spark.sql.shuffle.partitions": "2"}
    session = ottla.spark.session("tests", cores=6, settings=two)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def node() -> Iterator[ottla.Node]:
    with ottla.Node() as running:
        yield running


@pytest.fixture(scope="session")
def bootstrap_servers(request: pytest.FixtureRequest) -> str:
    """A node's, or those of OTTLA_TEST_BOOTSTRAP_SERVERS: Apache Kafka can be the referee of these tests."""
    given = os.environ.get("OTTLA_TEST_BOOTSTRAP_SERVERS")
    if given:
        return given
    running: ottla.Node = request.getfixturevalue("node")
    return running.bootstrap_servers


@pytest.fixture(scope="session")
def topics() -> Iterator[int]:
    return iter(range(1000))


class Topic:
    """A new topic, and what the tests do with it."""

    def __init__(self, servers: str, name: str, partitions: int) -> None:
        self.servers, self.name = servers, name
        self.admin = AdminClient({"bootstrap.servers": servers})
        self.admin.create_topics([NewTopic(name, partitions, config=KEPT)])[name].result(WAIT_S)

    def send(self, *values: str, partition: int = 0, timestamp_ms: int = 0, settings: Settings | None = None) -> None:
        """Produce these values, keyed by themselves, and wait until they are written."""
        producer = Producer({"bootstrap.servers": self.servers, **(settings or {})})
        for value in values:
            producer.produce(self.name, value, value, partition, timestamp=timestamp_ms)
        assert producer.flush(WAIT_S) == 0
        producer.close()


@pytest.fixture
def new_topic(bootstrap_servers: str, topics: Iterator[int]) -> Callable[..., Topic]:
    def make(partitions: int = 1, prefix: str = "spark") -> Topic:
        return Topic(bootstrap_servers, f"{prefix}-{next(topics)}-{os.getpid()}", partitions)

    return make


class Reading:
    """Reads topics with Spark's connector: in a batch, or as a query into memory."""

    def __init__(self, spark: "SparkSession", servers: str, checkpoints: Path) -> None:
        self.spark, self.servers, self.checkpoints = spark, servers, checkpoints
        self.running: list[StreamingQuery] = []

    def batch(self, topic: str, **options: str) -> "DataFrame":
        reader = self.spark.read.format("kafka").option("kafka.bootstrap.servers", self.servers)
        return reader.options(**{"subscribe": topic} | options).load()

    def stream(self, **options: str) -> "DataFrame":
        tuned = {"startingOffsets": "earliest", "kafka.fetch.max.wait.ms": "10"}
        reader = self.spark.readStream.format("kafka").option("kafka.bootstrap.servers", self.servers)
        return reader.options(**tuned | options).load()

    def into_memory(self, name: str, **options: str) -> "StreamingQuery":
        """Start a query whose values land in the in-memory table `name`."""
        writer = self.stream(**options).selectExpr("topic", "partition", "string(value) value").writeStream
        query = writer.format("memory").queryName(name).start()
        self.running.append(query)
        return query

    def values(self, name: str) -> list[str]:
        return sorted(row.value for row in self.spark.table(name).collect())


@pytest.fixture
def reading(spark: "SparkSession", bootstrap_servers: str, tmp_path: Path) -> Iterator[Reading]:
    made = Reading(spark, bootstrap_servers, tmp_path)
    yield made
    for query in made.running:
        query.stop()
