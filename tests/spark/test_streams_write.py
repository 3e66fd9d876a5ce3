"""What a task writes to its changelogs, the partitions of its outputs, and what it cannot write."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

import ottla
from ottla.client import Consumer, Producer
from ottla.kernel.ids import TopicPartition
from ottla.spark.streams import commit
from ottla.spark.streams.error_log import with_log
from ottla.spark.streams.layout import Program, TaskPlan
from ottla.spark.streams.write import write_changes
from ottla.streams import (
    ErrorContext,
    Handlers,
    KStream,
    Output,
    Processor,
    Record,
    Response,
    StreamsBuilder,
    StreamsError,
    log_and_continue,
    log_and_fail,
    serdes,
)
from tests.spark.in_process import start

WAIT_S = 30


@pytest.mark.parametrize("count", [23, 24, 100])
def test_every_change_of_a_store_is_in_its_partition_of_the_changelog(count: int) -> None:
    changes = {b"%d" % number: None if number % 5 == 2 else b"v%d" % number for number in range(count)}
    with ottla.Node() as node:
        node.create_topic("changelog", 3)
        with Producer(node.bootstrap_servers) as producer:
            write_changes(producer, "changelog", 2, changes)
        with Consumer(node.bootstrap_servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition("changelog", 2)])
            found: list[tuple[bytes | None, bytes | None]] = []
            while len(found) < count:
                found += ((record.key, record.value) for record in consumer.poll(10))
    assert found == list(changes.items())


def test_an_output_topic_that_grows_gets_records_in_its_new_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = StreamsBuilder()
    builder.stream("in").repartition(name="by").to("out")
    app = builder.build("app", key_serde="string", value_serde="string")
    sizes = {"out": 2, "app-by-repartition": 2}
    now = 1_000.0
    clock = SimpleNamespace(monotonic=lambda: now)
    monkeypatch.setattr(commit, "time", clock)
    monkeypatch.setattr(commit, "Producer", lambda *_: Mock(partitions_for=lambda topic: list(range(sizes[topic]))))
    program = Program(app.topology, app.settings, "", {}, (), (), "run")
    committer = commit.Committer(program, TaskPlan(0, 0, {}, ()), Mock())
    assert [committer.count(topic) for topic in sizes] == [2, 2]
    sizes |= dict.fromkeys(sizes, 3)
    now += 59
    assert [committer.count(topic) for topic in sizes] == [2, 2]
    now += 2
    assert [committer.count(topic) for topic in sizes] == [3, 2], "keys of a repartition topic keep their partition"


class Spoil(Processor):
    def process(self, record: Record) -> None:
        self.context.forward(Record(record.key, record.value, record.timestamp, ((5, b"x"),)))  # type: ignore[arg-type]


def write_number(stream: KStream[Any, Any]) -> None:
    number = serdes.of_functions("number", lambda value: 5, bytes.decode)  # type: ignore[arg-type, return-value]
    stream.to("out", value_serde=number)


@pytest.mark.parametrize("count", [1, 30])
@pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])
@pytest.mark.parametrize(
    ("add", "told"),
    [
        (lambda stream: stream.process(Spoil).to("out"), "task 0_0 cannot write to topic out: "),
        (write_number, "task 0_0 cannot write to topic out: "),
        (lambda stream: stream.to("out", partitioner=lambda *_: 7), r"has no partition 7 \(expected 0 to 1\)"),
        (lambda stream: stream.map_values(lambda value: 1 / 0).to("out"), "invalid topic name: 'a letter'"),
    ],
)
def test_an_output_that_cannot_be_written_ends_the_program(
    add: Callable[[KStream[Any, Any]], Any], told: str, guarantee: str, count: int
) -> None:
    """Other tasks would make progress, so it would be written again forever."""
    builder = StreamsBuilder()
    add(builder.stream("in"))
    letter = Handlers(processing=lambda context, error: Response.resume(Output("a letter", None, None, 0)))
    config = {"processing.guarantee": guarantee}
    app = builder.build("app", key_serde="string", value_serde="string", config=config, handlers=letter)
    with ottla.Node() as node:
        node.create_topic("in")
        node.create_topic("out", 2)
        with Producer(node.bootstrap_servers) as producer:
            for _ in range(count):
                producer.send("in", b"v", b"k")
        running = start(app, node.bootstrap_servers)
        try:
            with pytest.raises(StreamsError, match=told):
                running.await_termination(WAIT_S)
        finally:
            running.stop()


def test_a_dead_letter_that_cannot_be_written_is_named_with_its_topic() -> None:
    """All else of the step is written again then, record by record."""
    builder = StreamsBuilder()
    builder.stream("in").map_values(lambda value: value * 2_000_000).to("out")
    number: Any = 5
    letter = Handlers(production=lambda context, error: Response.resume(Output("dead", None, number, 0)))
    app = builder.build("app", key_serde="string", value_serde="string", handlers=letter)
    with ottla.Node() as node:
        for topic in ("in", "out", "dead"):
            node.create_topic(topic)
        with Producer(node.bootstrap_servers) as producer:
            producer.send("in", b"v", b"k").result(WAIT_S)
        running = start(app, node.bootstrap_servers)
        try:
            with pytest.raises(StreamsError, match="task 0_0 cannot write to topic dead: TypeError"):
                running.await_termination(WAIT_S)
        finally:
            running.stop()


def test_a_record_that_a_global_store_cannot_read_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """It is dropped without a dead letter: each worker would write one, at each start."""
    builder = StreamsBuilder()
    rates = builder.global_table("rates", value_serde="long", materialized="rates")
    builder.stream("in").join(rates, lambda value, rate: f"{value}{rate}", key_selector=lambda key, value: key).to(
        "out"
    )
    handlers = Handlers(deserialization=log_and_continue, dead_letter_topic="dead")
    app = builder.build("app", key_serde="string", value_serde="string", handlers=handlers)
    with ottla.Node() as node:
        for topic in ("in", "out", "rates", "dead"):
            node.create_topic(topic)
        with Producer(node.bootstrap_servers) as producer:
            producer.send("rates", b"bad", b"x").result(WAIT_S)
            producer.send("rates", (7).to_bytes(8, "big"), b"k").result(WAIT_S)
            producer.send("in", b"v", b"k").result(WAIT_S)
        running = start(app, node.bootstrap_servers)
        try:
            assert [record.value for record in committed(node, "out", 1)] == [b"v7"]
        finally:
            running.stop()
    dropped, letter = (text for text in caplog.messages if "global" in text)
    assert dropped.startswith(
        "task global drops a record at KSTREAM-SOURCE-0000000000 (rates-0 at offset 0): SerdeError"
    )
    assert letter == "the dead letter of a global store is not written to dead: key b'x'"


@pytest.mark.parametrize(
    ("topic", "data", "where"),
    [
        ("in", b"v", "in-3 at offset 7"),
        (None, b"v", "at a position that is not known, time 5"),
        (None, None, "no input record"),
    ],
)
def test_a_record_with_which_the_program_continues_is_logged(
    topic: str | None, data: bytes | None, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    handlers = with_log(Handlers(processing=log_and_continue, dead_letter_topic="dead"))
    assert (handlers.deserialization, handlers.dead_letter_topic) == (log_and_fail, "dead")
    context = ErrorContext("0_3", "node", topic, 3, 7, 5, (), None, data)
    assert handlers.processing(context, ValueError("no")) == Response.resume()
    assert caplog.messages == [f"task 0_3 drops a record at node ({where}): ValueError: no"]


def committed(node: ottla.Node, topic: str, count: int) -> list[Any]:
    """The first committed records of a topic."""
    found: list[Any] = []
    settings = {"isolation.level": "read_committed", "auto.offset.reset": "earliest"}
    with Consumer({"bootstrap.servers": node.bootstrap_servers, **settings}) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        while len(found) < count:
            found += consumer.poll(WAIT_S)
    return found
