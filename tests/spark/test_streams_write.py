"""What a task writes to its changelogs, and the partitions of its outputs."""

from __future__ import annotations

from types import SimpleNamespace
from unittest.mock import Mock

import pytest

import ottla
from ottla.client import Consumer, Producer
from ottla.kernel.ids import TopicPartition
from ottla.spark.streams import commit
from ottla.spark.streams.layout import Program, TaskPlan
from ottla.spark.streams.write import write_changes
from ottla.streams import StreamsBuilder


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
