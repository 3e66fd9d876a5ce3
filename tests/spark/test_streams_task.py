"""A task and what it commits, without Spark, while the clock of the brokers is moved."""

import base64
import re
import time
import zlib

import pytest

import ottla
from ottla.client.admin.client import Admin
from ottla.client.consumer.sync import Consumer
from ottla.client.membership.commit import CommittedOffset
from ottla.client.producer.sync import Producer
from ottla.kernel.ids import TopicPartition
from ottla.spark.streams.cells import newest, pack
from ottla.spark.streams.running import prepare
from ottla.spark.streams.task import HostedTask
from ottla.spark.streams.worker import read
from ottla.streams import (
    Handlers,
    StreamsBuilder,
    StreamsError,
    TimeWindows,
    log_and_continue,
    use_partition_time_on_invalid_timestamp,
    wallclock_timestamp,
)
from tests.spark.in_process import start

DAY_MS = 86_400_000
ONE = TopicPartition("in", 0)


@pytest.mark.parametrize("waiting", [False, True])
def test_offsets_of_a_quiet_task_do_not_expire(waiting: bool) -> None:
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count(materialized="counts")
    application = builder.build(application_id="quiet", key_serde="string", value_serde="string")
    with ottla.Node() as node, Admin(node.bootstrap_servers) as admin:
        node.create_topic("in", settings={"retention.ms": -1})
        program = prepare(application.topology, application.settings, node.bootstrap_servers, {}, accept_changes=False)
        with Producer(node.bootstrap_servers) as producer:
            producer.send("in", b"v", b"k").result(30)
        task = HostedTask(program, program.tasks[0], admin, None, node.clock.now_ms())
        with Consumer(node.bootstrap_servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([ONE])
            while not (batches := list(read(consumer, 1))):
                pass
        task.add_batch(batches[0], node.clock.now_ms())
        at = {ONE: CommittedOffset(1, leader_epoch=0)}
        task.run(at, [], node.clock.now_ms())
        if waiting:
            task.add_batch(batches[0], node.clock.now_ms())
        for _ in range(9):
            node.clock.advance(DAY_MS)
            task.settle(at, node.clock.now_ms())
        before = task.committer.commits
        task.settle(at, node.clock.now_ms() + 1)
        assert task.committer.commits == before
        committed = admin.list_group_offsets("quiet")[ONE]
        assert (committed.offset, committed.leader_epoch) == (1, 0)
        task.close(lambda call: call())
        again = HostedTask(program, program.tasks[0], admin, None, node.clock.now_ms())
        assert again.committed == at
        assert again.task.store("counts").get("k") == (1, pytest.approx(0, abs=1e15))
        again.close(lambda call: call())


def test_a_commit_before_a_record_that_waits_has_no_epoch() -> None:
    builder = StreamsBuilder()
    builder.stream("in").merge(builder.stream("other")).to("out")
    application = builder.build(application_id="waiting", key_serde="string", value_serde="string")
    other = TopicPartition("other", 0)
    with ottla.Node() as node, Admin(node.bootstrap_servers) as admin:
        for topic in ("in", "other", "out"):
            node.create_topic(topic)
        program = prepare(application.topology, application.settings, node.bootstrap_servers, {}, accept_changes=False)
        with Producer(node.bootstrap_servers) as producer:
            producer.send("in", b"v", b"k").result(30)
        task = HostedTask(program, program.tasks[0], admin, None, node.clock.now_ms())
        with Consumer(node.bootstrap_servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([ONE])
            while not (batches := list(read(consumer, 1))):
                pass
        task.add_batch(batches[0], node.clock.now_ms())
        at = {ONE: CommittedOffset(1, leader_epoch=0), other: CommittedOffset(7, leader_epoch=3)}
        task.run(at, [other], node.clock.now_ms())
        assert task.committed == {ONE: CommittedOffset(0), other: CommittedOffset(7, leader_epoch=3)}
        began, so_far = time.perf_counter(), task.committer.seconds
        task.run(at, [], node.clock.now_ms())
        assert 0 < task.committer.seconds - so_far < time.perf_counter() - began
        assert task.committed == at
        task.close(lambda call: call())


#: As programs wrote it before there were copies: at one partition, without a number of the commit.
_OLD = "ottla1:" + base64.b85encode(zlib.compress(b'{"stream_time": 7}')).decode()


@pytest.mark.parametrize(
    ("copies", "expected"),
    [
        ([], ({}, 0)),
        (["", "another tool's"], ({}, 0)),
        ([pack({"stream_time": 5}, 3), pack({"stream_time": 9, "due": 2}, 4), ""], ({"stream_time": 9, "due": 2}, 4)),
        ([pack({"stream_time": 5, "due": 2}, 3), pack({"stream_time": 9}, 4)], ({"stream_time": 9}, 4)),
        (["", _OLD], ({"stream_time": 7}, 0)),
        ([_OLD, pack({"stream_time": 8}, 1)], ({"stream_time": 8}, 1)),
        ([pack({}, 2), pack({"stream_time": 5}, 1)], ({}, 2)),
    ],
)
def test_of_several_copies_the_newest_counts_whole(copies: list[str], expected: tuple[dict[str, int], int]) -> None:
    given = [(TopicPartition("in", number), copy) for number, copy in enumerate(copies)]
    assert newest(dict(given)) == newest(dict(given[::-1])) == expected


def test_the_time_of_a_partition_is_in_its_own_commit_alone() -> None:
    """A pattern may match so many topics that the times of all do not fit in a commit."""
    builder = StreamsBuilder()
    extractor = use_partition_time_on_invalid_timestamp
    builder.stream(re.compile("in-.*"), timestamp_extractor=extractor).group_by_key().count(materialized="counts")
    application = builder.build(application_id="times", key_serde="string", value_serde="string")
    places = [TopicPartition("in-a", 0), TopicPartition("in-b", 0)]
    with ottla.Node() as node, Admin(node.bootstrap_servers) as admin:
        for place in places:
            node.create_topic(place.topic)
        program = prepare(application.topology, application.settings, node.bootstrap_servers, {}, accept_changes=False)
        with Producer(node.bootstrap_servers) as producer:
            for place in places:
                producer.send(place.topic, b"v", b"k", timestamp=ord(place.topic[-1])).result(30)
        task = HostedTask(program, program.tasks[0], admin, None, node.clock.now_ms())
        with Consumer(node.bootstrap_servers, auto_offset_reset="earliest") as consumer:
            consumer.assign(places)
            while task.empty():
                for batch in read(consumer, 1):
                    task.add_batch(batch, node.clock.now_ms())
        task.run(dict.fromkeys(places, CommittedOffset(1)), [], node.clock.now_ms())
        task.close(lambda call: call())
        copies = {place: offset.metadata for place, offset in admin.list_group_offsets("times").items()}
        for place in places:
            cells, _ = newest({place: copies[place]})
            assert [name for name in cells if name.startswith("partition_time")] == [f"partition_time/{place.topic}/0"]
        again = HostedTask(program, program.tasks[0], admin, None, node.clock.now_ms())
        assert (
            newest(copies)[0]
            == task.task.snapshot().cells
            == again.task.snapshot().cells
            | {f"partition_time/{place.topic}/0": ord(place.topic[-1]) for place in places}
        )
        again.close(lambda call: call())


@pytest.mark.parametrize("value", [b"v", b"v" * 2_000], ids=["accepted", "refused"])
@pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])
def test_more_cells_than_brokers_accept_end_the_program_with_what_to_do(guarantee: str, value: bytes) -> None:
    """Also if the step is written again, without an output that is too large."""
    builder = StreamsBuilder()
    stream = builder.stream("in")
    stream.group_by_key().windowed_by(TimeWindows.of(10)).count(materialized="counts")
    stream.to("out")
    config = {"processing.guarantee": guarantee}
    application = builder.build(
        application_id="full",
        key_serde="string",
        value_serde="string",
        config=config,
        handlers=Handlers(production=log_and_continue),
    )
    with ottla.Node(settings={"offset.metadata.max.bytes": 40}) as node:
        node.create_topic("in")
        node.create_topic("out", settings={"max.message.bytes": 1000})
        with Producer(node.bootstrap_servers) as producer:
            producer.send("in", value, b"k").result(30)
        running = start(application, node.bootstrap_servers)
        told = (
            r"task 0_0 .* a commit needs \d+ characters of metadata, .*: raise offset\.metadata\.max\.bytes there, or"
        )
        with pytest.raises(StreamsError, match=told):
            running.await_termination(30)


def test_the_numbers_of_a_task_do_not_go_with_its_first_topic() -> None:
    first, second = TopicPartition("in-a", 0), TopicPartition("in-b", 0)
    builder = StreamsBuilder()
    builder.stream(re.compile("in-.*")).group_by_key().count(materialized="counts")
    application = builder.build(application_id="pattern", key_serde="string", value_serde="string")
    with ottla.Node() as node, Admin(node.bootstrap_servers) as admin:

        def opened() -> HostedTask:
            program = prepare(
                application.topology, application.settings, node.bootstrap_servers, {}, accept_changes=False
            )
            return HostedTask(program, program.tasks[0], admin, None, node.clock.now_ms())

        for topic in ("in-a", "in-b"):
            node.create_topic(topic)
        with Producer(node.bootstrap_servers) as producer:
            producer.send("in-b", b"v", b"k", timestamp=123_456).result(30)
        task = opened()
        with Consumer(node.bootstrap_servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([second])
            while not (batches := list(read(consumer, 1))):
                pass
        task.add_batch(batches[0], node.clock.now_ms())
        task.run({first: CommittedOffset(0), second: CommittedOffset(1)}, [], node.clock.now_ms())
        assert task.task.stream_time == 123_456
        task.close(lambda call: call())
        admin.delete_topics(["in-a"]).check()
        again = opened()
        assert (again.task.stream_time, list(again.committed)) == (123_456, [second])
        again.close(lambda call: call())


def test_a_window_that_is_over_gets_a_tombstone_in_the_changelog() -> None:
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().windowed_by(TimeWindows.of(1_000)).count(materialized="counts")
    application = builder.build(application_id="windows", key_serde="string", value_serde="string")
    with ottla.Node() as node, Admin(node.bootstrap_servers) as admin:
        node.create_topic("in")
        program = prepare(application.topology, application.settings, node.bootstrap_servers, {}, accept_changes=False)
        task = HostedTask(program, program.tasks[0], admin, None, node.clock.now_ms())
        with (
            Producer(node.bootstrap_servers) as producer,
            Consumer(node.bootstrap_servers, auto_offset_reset="earliest") as consumer,
        ):
            consumer.assign([ONE])
            for offset, timestamp in enumerate((5_000, 9_000_000)):
                producer.send("in", b"v", b"k", timestamp=timestamp).result(30)
                while not (batches := list(read(consumer, 1))):
                    pass
                task.add_batch(batches[0], node.clock.now_ms())
                task.run({ONE: CommittedOffset(offset + 1, leader_epoch=0)}, [], node.clock.now_ms())
            changelog = TopicPartition("windows-counts-changelog", 0)
            consumer.assign([changelog])
            changes: dict[bytes | None, list[bool]] = {}
            while sum(map(len, changes.values())) < 3:
                for record in consumer.poll(1):
                    changes.setdefault(record.key, []).append(record.value is None)
        assert sorted(changes.values()) == [[False], [False, True]]
        task.close(lambda call: call())
        again = HostedTask(program, program.tasks[0], admin, None, node.clock.now_ms())
        assert [each.window.start for each, _ in again.task.store("counts").all()] == [9_000_000]
        again.close(lambda call: call())


def test_a_record_that_ends_a_quiet_time_has_the_time_of_its_arrival() -> None:
    builder = StreamsBuilder()
    builder.stream("in", timestamp_extractor=wallclock_timestamp).to("out")
    application = builder.build(application_id="arrival", key_serde="string", value_serde="string")
    with ottla.Node() as node, Admin(node.bootstrap_servers) as admin:
        for topic in ("in", "out"):
            node.create_topic(topic)
        program = prepare(application.topology, application.settings, node.bootstrap_servers, {}, accept_changes=False)
        task = HostedTask(program, program.tasks[0], admin, None, 1_000)
        with (
            Producer(node.bootstrap_servers) as producer,
            Consumer(node.bootstrap_servers, auto_offset_reset="earliest") as consumer,
        ):
            producer.send("in", b"v", b"k").result(30)
            consumer.assign([ONE])
            while not (batches := list(read(consumer, 1))):
                pass
            task.add_batch(batches[0], 5_000)
            task.run({ONE: CommittedOffset(1)}, [], 5_001)
            consumer.assign([TopicPartition("out", 0)])
            while not (records := consumer.poll(1)):
                pass
        task.close(lambda call: call())
        assert [record.timestamp for record in records] == [5_000]
