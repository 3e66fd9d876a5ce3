"""What was read of a repartition topic is deleted, and nothing that a restart would read. Without Spark."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, cast

import pytest

import ottla
from ottla.client import ConfigResource, ResourceType
from ottla.client.admin.client import Admin
from ottla.client.admin.result import OffsetSpec, Results
from ottla.client.producer.sync import Producer
from ottla.flow.setting import purge_interval_ms
from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.kernel.ids import TopicPartition
from ottla.spark.streams.layout import COMPACTED, KEPT, Program
from ottla.spark.streams.purge import Purge
from ottla.spark.streams.running import prepare
from ottla.streams import Application, StreamsBuilder

REPARTITION = "words-counts-repartition"
ONE, TWO = TopicPartition(REPARTITION, 0), TopicPartition(REPARTITION, 1)


def words(**config: Any) -> Application:
    builder = StreamsBuilder()
    builder.stream("in").group_by(lambda key, value: value).count(materialized="counts")
    return builder.build(application_id="words", key_serde="string", value_serde="string", config=config)


class Asked:
    """An admin that notes what is to be deleted; `refused` are the partitions whose records stay."""

    def __init__(self) -> None:
        self.asked: list[dict[TopicPartition, int]] = []
        self.refused: dict[TopicPartition, KafkaError] = {}
        self.gone: Exception | None = None

    def delete_records(self, before: Mapping[TopicPartition, int]) -> Results[TopicPartition, int]:
        self.asked.append(dict(before))
        if self.gone is not None:
            raise self.gone
        good = {place: offset for place, offset in before.items() if place not in self.refused}
        return Results(good, {place: self.refused[place] for place in before if place in self.refused})


class Scene:
    def __init__(self, interval_ms: int = 1_000) -> None:
        application = words(**{"repartition.purge.interval.ms": interval_ms})
        program = Program(application.topology, application.settings, "", {}, (), (), "run")
        self.admin = Asked()
        self.purge = Purge(program, cast(Admin, self.admin), 0)

    def purge_if_due(self, committed: dict[TopicPartition, int], now: int) -> None:
        self.purge.purge_if_due(committed, now)
        if self.purge.thread is not None:
            self.purge.thread.join()


def test_once_an_interval_what_was_committed_since_is_deleted() -> None:
    scene = Scene()
    source = TopicPartition("in", 0)
    for committed, now in (
        ({ONE: 5, TWO: 0, source: 9}, 999),
        ({ONE: 5, TWO: 0, source: 9}, 1_000),
        ({ONE: 6, TWO: 2, source: 9}, 1_999),
        ({ONE: 5, TWO: 3, source: 9}, 2_000),
        ({ONE: 5, TWO: 3, source: 9}, 9_000),
    ):
        scene.purge_if_due(committed, now)
    assert scene.admin.asked == [{ONE: 5}, {TWO: 3}]


def test_what_was_not_deleted_is_told_once_and_asked_for_again(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene(0)
    scene.admin.refused[ONE] = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "no DELETE")
    with caplog.at_level(logging.WARNING):
        scene.purge_if_due({ONE: 5, TWO: 1}, 1)
        scene.purge_if_due({ONE: 5, TWO: 1}, 2)
        assert [each.getMessage().partition(":")[0] for each in caplog.records] == [
            f"cannot delete processed records of {REPARTITION}-0 yet"
        ]
        scene.admin.refused.clear()
        scene.purge_if_due({ONE: 6, TWO: 1}, 3)
        scene.admin.gone = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no broker answers")
        scene.purge_if_due({ONE: 7, TWO: 1}, 4)
    assert scene.admin.asked == [{ONE: 5, TWO: 1}, {ONE: 5}, {ONE: 6}, {ONE: 7}]
    assert len(caplog.records) == 2


@pytest.mark.parametrize("given", ["soon", -1, None, 1.5])
def test_an_interval_that_is_none_stops_the_start(given: object) -> None:
    with pytest.raises(OttlaError, match=r"repartition\.purge\.interval\.ms: .* \(expected milliseconds, 0 or more\)"):
        purge_interval_ms({"repartition.purge.interval.ms": given})
    assert purge_interval_ms({}) == 30_000


def test_the_log_of_a_repartition_topic_begins_where_its_reader_committed() -> None:
    application = words(**{"repartition.purge.interval.ms": "0"})
    settings = {"log.message.timestamp.type": "LogAppendTime"}
    with ottla.Node(settings=settings) as node, Admin(node.bootstrap_servers) as admin:
        node.create_topic("in", 2)
        program = prepare(application.topology, application.settings, node.bootstrap_servers, {}, accept_changes=False)
        for topic, wanted in {REPARTITION: KEPT, "words-counts-changelog": COMPACTED}.items():
            resource = ConfigResource(ResourceType.TOPIC, topic)
            found = admin.describe_configs([resource])[resource]
            assert {name: found[name].value for name in wanted} == wanted
        with Producer(node.bootstrap_servers) as producer:
            for number in range(10):
                producer.send(REPARTITION, b"%d" % number, b"k", partition=number % 2)
        purge = Purge(program, admin, 0)
        purge.purge_if_due({ONE: 3, TWO: 5}, 0)
        assert purge.thread is not None
        purge.thread.join()
        starts = admin.list_offsets(dict.fromkeys([ONE, TWO], OffsetSpec.EARLIEST)).check()
        assert [starts[place].offset for place in (ONE, TWO)] == [3, 5]
