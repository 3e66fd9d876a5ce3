"""What a task writes to its changelogs."""

from __future__ import annotations

import pytest

import ottla
from ottla.client import Consumer, Producer
from ottla.kernel.ids import TopicPartition
from ottla.spark.streams.write import write_changes


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
