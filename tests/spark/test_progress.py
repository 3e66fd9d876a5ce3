"""What a query has read shows as a consumer group's lag."""

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ottla.client import Admin, Results
from ottla.kernel.ids import TopicPartition
from ottla.spark.progress import GroupCommit, commit_for, positions
from tests.spark.conftest import WAIT_S, Reading, Topic

pytestmark = pytest.mark.timeout(300)


def test_what_a_query_has_read_is_committed_for_a_group(
    spark: SparkSession, reading: Reading, new_topic: Callable[..., Topic]
) -> None:
    topic = new_topic(2)
    topic.send(*"abc", partition=0)
    topic.send("z", partition=1)
    query = reading.into_memory("watched", subscribe=topic.name)
    listener = commit_for(spark, query, f"watching-{topic.name}", topic.servers)
    with Admin(topic.servers) as admin:
        expected = {TopicPartition(topic.name, 0): 3, TopicPartition(topic.name, 1): 1}
        for more in ("", "de"):
            if more:
                topic.send(*more, partition=1)
                expected[TopicPartition(topic.name, 1)] += len(more)
            query.processAllAvailable()
            # Spark tells its listeners on a thread of its own, some time after the batch.
            deadline = time.monotonic() + WAIT_S
            while (seen := committed(admin, topic)) != expected and time.monotonic() < deadline:
                pass
            assert seen == expected
    listener.close()


def committed(admin: Admin, topic: Topic) -> dict[TopicPartition, int]:
    return {one: at.offset for one, at in admin.list_group_offsets(f"watching-{topic.name}").items()}


def test_a_source_that_has_read_nothing_has_no_positions() -> None:
    assert positions("None") == positions(None) == {}
    assert positions('{"a": {"0": 1}, "b": {"3": 7}}') == {TopicPartition("a", 0): 1, TopicPartition("b", 3): 7}


class Recorder:
    """An admin that remembers what it was asked to commit."""

    def __init__(self, servers: str) -> None:
        self.commits: list[dict[TopicPartition, int]] = []

    def alter_group_offsets(
        self, group: str, offsets: dict[TopicPartition, int]
    ) -> Results[TopicPartition, TopicPartition]:
        self.commits.append(dict(offsets))
        return Results({each: each for each in offsets}, {})


def test_a_batch_that_had_reported_itself_without_data_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.spark.progress.Admin", Recorder)
    query: Any = SimpleNamespace(name="q", id="1")
    listener = GroupCommit(None, query, "g", "nowhere")  # type: ignore[arg-type]
    for end_offset in (None, '{"a": {"0": 3}}', '{"a": {"0": 2}}'):
        source = SimpleNamespace(description="KafkaV2[Subscribe[a]]", endOffset=end_offset)
        listener.commit(SimpleNamespace(batchId=0, sources=[source]))  # type: ignore[arg-type]
    assert listener.committed == {TopicPartition("a", 0): 3}
