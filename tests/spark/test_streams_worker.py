"""Workers and their driver, without Spark: what ends them, what does not, and what a query is told meanwhile."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

import ottla
from ottla.client import Admin, CommittedOffset, Consumer, Producer, TopicPartition
from ottla.kernel.error import ErrorCode, OttlaError
from ottla.net.keepalive import _TIMES
from ottla.spark.streams import running as running_module
from ottla.spark.streams import worker
from ottla.spark.streams.control import DriverLine, Message, Workers
from ottla.spark.streams.query import NotReadable
from ottla.spark.streams.running import Running
from ottla.streams import (
    Application,
    Context,
    Processor,
    PunctuationType,
    Record,
    State,
    StreamsBuilder,
    StreamsError,
)
from ottla.wire.api import ApiKey
from tests.spark.in_process import Session, start

WAIT_S = 30


@pytest.fixture
def node() -> Iterator[ottla.Node]:
    with ottla.Node() as node:
        yield node


def counting(
    application_id: str = "app", topic: str = "in", guarantee: str = "exactly_once_v2", **sources: Any
) -> Application:
    builder = StreamsBuilder()
    stream = builder.stream(topic, **sources)
    stream.group_by_key().count(materialized="counts").to_stream().to("out", value_serde="long")
    config = {"processing.guarantee": guarantee}
    return builder.build(application_id, key_serde="string", value_serde="string", config=config)


def send(node: ottla.Node, topic: str, *values: str) -> None:
    with Producer(node.bootstrap_servers) as producer:
        for value in values:
            producer.send(topic, value.encode(), b"k").result(WAIT_S)


def counts(node: ottla.Node, number: int, topic: str = "out") -> list[int]:
    """The first results."""
    found: list[int] = []
    with Consumer(node.bootstrap_servers, isolation_level="read_committed", auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        deadline = time.monotonic() + WAIT_S
        while len(found) < number and time.monotonic() < deadline:
            found += [int.from_bytes(record.value, "big") for record in consumer.poll(0.2)]
    return found


def until(running: Running, true: Callable[[], bool]) -> None:
    """Wait for something while the program runs; the test's own limit ends it."""
    while not true():
        assert not running.await_termination(0.02), "it has ended"


def test_a_producer_that_was_fenced_by_no_other_run_opens_its_task_again(node: ottla.Node) -> None:
    """Brokers fence a producer whose transaction timed out; an administrator may do so as well."""
    for topic in ("in", "out"):
        node.create_topic(topic)
    with start(counting(), node.bootstrap_servers) as running, Admin(node.bootstrap_servers) as admin:
        send(node, "in", "1")
        assert counts(node, 1) == [1]
        admin.fence_producers(["app-0_0"]).check()
        send(node, "in", "2")
        assert counts(node, 2) == [1, 2]
        assert running.error is None


def test_the_later_of_two_runs_wins(node: ottla.Node) -> None:
    for topic in ("in", "out"):
        node.create_topic(topic)
    first = start(counting(), node.bootstrap_servers)
    until(first, lambda: first.state is State.RUNNING)
    with start(counting(), node.bootstrap_servers) as second:
        with pytest.raises(StreamsError, match="another instance of application app has taken over"):
            first.await_termination(WAIT_S)
        send(node, "in", "1", "2")
        assert counts(node, 2) == [1, 2]
        assert second.error is None


@pytest.mark.parametrize("guarantee", ["exactly_once_v2", "at_least_once"])
def test_a_program_that_is_paused_ends_when_another_run_takes_over(node: ottla.Node, guarantee: str) -> None:
    """Every ten minutes it commits its offsets again, which would set those of the other run back."""
    for topic in ("in", "out"):
        node.create_topic(topic)
    first = start(counting(guarantee=guarantee), node.bootstrap_servers)
    until(first, lambda: first.state is State.RUNNING)
    first.pause()
    with start(counting(guarantee=guarantee), node.bootstrap_servers) as second:
        with pytest.raises(StreamsError, match="another instance of application app has taken over"):
            assert first.await_termination(WAIT_S)
        assert second.error is None


def test_a_program_ends_when_its_source_was_cut_below_what_it_has_read(node: ottla.Node) -> None:
    """An unclean election, seen at a start: the group has committed more than the leader's epoch holds."""
    for topic in ("in", "out"):
        node.create_topic(topic)
    send(node, "in", "1", "2")
    app = counting()
    with Admin(node.bootstrap_servers) as admin:
        admin.alter_group_offsets("app", {TopicPartition("in", 0): CommittedOffset(7, leader_epoch=0)}).check()
    running = start(app, node.bootstrap_servers)
    told = r"in-0: the log was truncated below the position 7 \(leader epoch 0\); the leader's log diverges at offset 2"
    with pytest.raises(StreamsError, match=told):
        running.await_termination(WAIT_S)
    assert running.state is State.ERROR
    assert counts(node, 0) == []


@pytest.mark.parametrize(("hours", "results"), [(1, [1, 2]), (3, [1, 1, 2])])
def test_a_program_starts_at_the_records_of_the_last_hours(node: ottla.Node, hours: int, results: list[int]) -> None:
    for topic in ("in", "out"):
        node.create_topic(topic)
    now = int(time.time() * 1000)
    with Producer(node.bootstrap_servers) as producer:
        for key, age in ((b"old", 2 * 3_600_000), (b"k", 60_000)):
            producer.send("in", b"1", key, timestamp=now - age)
    app = counting(offset_reset=f"by_duration:PT{hours}H")
    with start(app, node.bootstrap_servers) as running:
        until(running, lambda: running.state is State.RUNNING)
        send(node, "in", "2")
        assert counts(node, len(results)) == results


@pytest.mark.parametrize(("reset", "results"), [("earliest", [1, 2]), ("latest", [1])])
def test_records_that_were_deleted_before_they_were_read_are_passed_over(
    node: ottla.Node, reset: str, results: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    """As in Kafka Streams (StreamThread.resetOffsets), by the source's reset policy."""
    for topic in ("in", "out"):
        node.create_topic(topic)
    send(node, "in", "1", "2", "3", "4")
    place = TopicPartition("in", 0)
    with Admin(node.bootstrap_servers) as admin:
        admin.alter_group_offsets("app", {place: CommittedOffset(1)}).check()
        admin.delete_records({place: 3}).check()
    with caplog.at_level(logging.WARNING), start(counting(offset_reset=reset), node.bootstrap_servers) as running:
        until(running, lambda: running.state is State.RUNNING)
        send(node, "in", "5")
        assert counts(node, len(results)) == results
    assert "in-0: records from offset 1 to 2 were deleted before they were processed" in caplog.text


@pytest.mark.parametrize(("reset", "results"), [("earliest", [1, 2, 3]), ("latest", [1])])
def test_a_committed_offset_beyond_the_end_gives_way_to_the_reset_policy(
    node: ottla.Node, reset: str, results: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    """As in Kafka Streams (StreamThread.resetOffsets), if the commit has no leader epoch to compare."""
    for topic in ("in", "out"):
        node.create_topic(topic)
    send(node, "in", "1", "2")
    with Admin(node.bootstrap_servers) as admin:
        admin.alter_group_offsets("app", {TopicPartition("in", 0): CommittedOffset(7)}).check()
    with caplog.at_level(logging.WARNING), start(counting(offset_reset=reset), node.bootstrap_servers) as running:
        until(running, lambda: running.state is State.RUNNING)
        send(node, "in", "3")
        assert counts(node, len(results)) == results
    assert "in-0: the committed offset 7 is beyond the end, 2: " in caplog.text


def test_an_offset_committed_before_the_end_of_an_open_transaction_is_kept(node: ottla.Node) -> None:
    """A tool commits the end of the log, which committed records have not reached."""
    for topic in ("in", "out"):
        node.create_topic(topic)
    with Producer(node.bootstrap_servers, transactional_id="other") as other, Admin(node.bootstrap_servers) as admin:
        other.init_transactions()
        other.begin_transaction()
        other.send("in", b"1", b"k").result(WAIT_S)
        admin.alter_group_offsets("app", {TopicPartition("in", 0): CommittedOffset(1)}).check()
        with start(counting(), node.bootstrap_servers) as running:
            until(running, lambda: running.state is State.RUNNING)
            other.commit_transaction()
            send(node, "in", "2", "3")
            assert counts(node, 2) == [1, 2]


@pytest.mark.parametrize(
    ("committed", "why"),
    [
        (1, "records from offset 1 to 1 were deleted before they were processed"),
        (9, "the committed offset 9 is beyond the end, 3: the topic lost records or is another one"),
        (None, "no offset is committed"),
    ],
)
def test_an_offset_that_is_gone_ends_a_program_whose_source_has_no_reset_policy(
    node: ottla.Node, committed: int | None, why: str
) -> None:
    for topic in ("in", "out"):
        node.create_topic(topic)
    send(node, "in", "1", "2", "3")
    place = TopicPartition("in", 0)
    with Admin(node.bootstrap_servers) as admin:
        if committed is not None:
            admin.alter_group_offsets("app", {place: CommittedOffset(committed)}).check()
        admin.delete_records({place: 2}).check()
    running = start(counting(offset_reset="none"), node.bootstrap_servers)
    with pytest.raises(StreamsError, match=f"in-0: {why}, and offset_reset is none"):
        running.await_termination(WAIT_S)


class Tick(Processor):
    """Forwards the wall clock."""

    def init(self, context: Context) -> None:
        self.context = context
        context.schedule(timedelta(milliseconds=10), PunctuationType.WALL_CLOCK_TIME, self.tick)

    def process(self, record: Record) -> None:
        pass

    def tick(self, time: int) -> None:
        self.context.forward(Record("k", time, time))


def test_the_wall_clock_goes_on_while_a_source_cannot_be_read(node: ottla.Node) -> None:
    for topic in ("in", "other", "out"):
        node.create_topic(topic)
    builder = StreamsBuilder()
    builder.stream("in").merge(builder.stream("other")).process(Tick).to("out", value_serde="long")
    app = builder.build("app", key_serde="string", value_serde="string")
    with node.faults.error(ApiKey.FETCH, ErrorCode.NOT_LEADER_OR_FOLLOWER, times=None, topic="other"):
        send(node, "in", "1")
        send(node, "other", "1")
        with start(app, node.bootstrap_servers):
            assert len(counts(node, 3)) >= 3


def test_a_worker_that_loses_its_driver_fails_and_one_that_is_stopped_does_not(node: ottla.Node) -> None:
    """Spark starts a failed task again; one that had ended well would leave its stream tasks alone forever."""
    for topic in ("in", "out"):
        node.create_topic(topic)
    session = Session()
    with start(counting(), node.bootstrap_servers, session) as running:
        until(running, lambda: running.state is State.RUNNING)
        running._workers._lines[0].shutdown(socket.SHUT_RDWR)
        until(running, lambda: bool(session.failures) and running.state is State.RUNNING)
        send(node, "in", "1")
        assert counts(node, 1) == [1]
    assert [str(error).partition(";")[0] for error in session.failures] == ["the connection to the driver was lost"]


def test_a_changelog_that_is_created_again_while_the_program_runs_ends_it(node: ottla.Node) -> None:
    """The tasks would go on with an empty state when a worker opens them again."""
    for topic in ("in", "out"):
        node.create_topic(topic)
    running = start(counting(), node.bootstrap_servers)
    send(node, "in", "1")
    assert counts(node, 1) == [1]
    with Admin(node.bootstrap_servers) as admin:
        admin.delete_topic("app-counts-changelog")
        admin.create_topic("app-counts-changelog", 1)
    running._workers._lines[0].shutdown(socket.SHUT_RDWR)
    told = "internal topic app-counts-changelog was deleted and created again while application app ran"
    with pytest.raises(StreamsError, match=told):
        running.await_termination(WAIT_S)


def test_a_program_without_input_survives_troubles_that_are_far_between(
    node: ottla.Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its worker gives up after a time without progress, and that there is nothing to do is no lack of it."""
    monkeypatch.setattr(worker, "PATIENCE_S", 1)
    monkeypatch.setattr(worker, "REPORT_S", 0.1)
    for topic in ("in", "out"):
        node.create_topic(topic)
    session = Session()
    with start(counting(), node.bootstrap_servers, session) as running:
        until(running, lambda: running.state is State.RUNNING)
        began = time.monotonic()
        until(running, lambda: time.monotonic() > began + 1.1)
        with node.faults.error(ApiKey.LIST_OFFSETS, ErrorCode.TOPIC_AUTHORIZATION_FAILED) as fault:
            fault.wait(1, timeout_s=WAIT_S)
        until(running, lambda: "app reopens its tasks from" in caplog.text and running.state is State.RUNNING)
    assert session.failures == []


def test_an_entry_that_is_too_large_for_its_changelog_ends_the_program(node: ottla.Node) -> None:
    """Other tasks would make progress, so it would be written again forever."""
    node.create_topic("in")
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().reduce(lambda one, other: one + other, materialized="texts")
    config = {"topic.max.message.bytes": 2_000}
    app = builder.build("app", key_serde="string", value_serde="string", config=config)
    send(node, "in", "x" * 1_500, "x" * 1_500)
    running = start(app, node.bootstrap_servers)
    told = "task 0_0 cannot write its state: MESSAGE_TOO_LARGE: app-texts-changelog-0: .*; keep less under a key, or"
    with pytest.raises(StreamsError, match=told):
        running.await_termination(WAIT_S)


def connected() -> tuple[Workers, DriverLine]:
    """Both ends of a connection, after the first message."""
    greeted = threading.Event()
    workers = Workers("127.0.0.1", lambda slot, message: greeted.set())
    line = DriverLine(workers.address, workers.secret, 0)
    line.send({"hello": True})
    assert greeted.wait(WAIT_S)
    return workers, line


def test_both_ends_of_a_connection_notice_that_the_other_machine_is_gone() -> None:
    workers, line = connected()
    try:
        for end in (line._line, workers._lines[0]):
            assert end.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert end.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == _TIMES["TCP_USER_TIMEOUT"]
    finally:
        line.close()
        workers.close()


def test_a_query_that_fails_is_told_and_does_not_cut_the_worker_off() -> None:
    workers, line = connected()

    def answer(question: Message) -> Message:
        raise RuntimeError("dictionary changed size during iteration")

    line.answer = answer
    try:
        told = {"answer": 0, "error": "RuntimeError: dictionary changed size during iteration"}
        assert workers.ask({}, 30) == {0: told}
        workers.stop()
        assert line.stopped.wait(30)
        assert not line.is_lost
    finally:
        line.close()
        workers.close()


def test_a_store_is_not_read_while_a_worker_is_missing(node: ottla.Node) -> None:
    """Its keys would seem to be absent."""
    for topic in ("in", "out"):
        node.create_topic(topic, 2)
    with start(counting(), node.bootstrap_servers, slots=2) as running:
        until(running, lambda: running.state is State.RUNNING)
        view = running.store("counts")
        assert view.get("k") is None
        line = running._workers._lines.pop(1)
        with pytest.raises(NotReadable, match="1 of 2 workers are starting; try again"):
            view.get("k")
        running._workers._lines[1] = line


def test_a_global_store_is_as_stale_as_its_own_topic(node: ottla.Node) -> None:
    for topic in ("in", "out", "names"):
        node.create_topic(topic)
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    builder.global_table("names", materialized="names")
    app = builder.build("app", key_serde="string", value_serde="string")
    send(node, "names", "before")
    with start(app, node.bootstrap_servers) as running:
        until(running, lambda: running.state is State.RUNNING)
        view = running.store("names")
        assert view.get("k") == "before"
        with node.faults.error(ApiKey.FETCH, ErrorCode.NOT_LEADER_OR_FOLLOWER, times=None, topic="names") as fault:
            fault.wait(1, timeout_s=WAIT_S)
            send(node, "names", "after")

            def staleness() -> int:
                assert view.get("k") == "before" and view.staleness is not None
                return view.staleness.records

            until(running, lambda: staleness() == 1)
            with pytest.raises(NotReadable, match=r"names is 1 input records behind \(max_behind: 0\)"):
                running.store("names", max_behind=0).get("k")
        until(running, lambda: view.get("k") == "after")


def test_a_program_that_waits_for_a_core_can_be_stopped(node: ottla.Node) -> None:
    for topic in ("in", "out"):
        node.create_topic(topic)
    running = start(counting(), node.bootstrap_servers, Session(cores=False))
    running.stop()
    assert (running.state, running.error) == (State.NOT_RUNNING, None)


def test_a_worker_that_does_not_end_is_cancelled(node: ottla.Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running_module, "STOP_S", 0.1)
    for topic in ("in", "out"):
        node.create_topic(topic)
    asleep, awake = threading.Event(), threading.Event()

    def sleep(value: str) -> str:
        asleep.set()
        awake.wait(WAIT_S)
        return value

    builder = StreamsBuilder()
    builder.stream("in").map_values(sleep).to("out")
    app = builder.build("app", key_serde="string", value_serde="string")

    class Cancelled(Session):
        def interruptTag(self, tag: str) -> None:
            assert tag == running.program.run
            awake.set()

    running = start(app, node.bootstrap_servers, Cancelled())
    send(node, "in", "1")
    assert asleep.wait(WAIT_S)
    running.stop()
    assert awake.is_set()
    assert (running.state, running.error) == (State.NOT_RUNNING, None)


@pytest.mark.parametrize("where", ["state listener", "error handler"])
def test_a_listener_may_stop_the_program(node: ottla.Node, where: str) -> None:
    for topic in ("in", "out"):
        node.create_topic(topic)
    made: list[Running] = []
    started, called = threading.Event(), threading.Event()

    def stop(*told: Any) -> None:
        assert started.wait(WAIT_S)
        made[0].stop()
        called.set()

    def fail(value: str) -> str:
        raise ValueError(value)

    builder = StreamsBuilder()
    builder.stream("in").map_values(fail).to("out")
    app = builder.build("app", key_serde="string", value_serde="string")
    if where == "error handler":
        made.append(start(app, node.bootstrap_servers, on_error=stop))
        send(node, "in", "1")
    else:
        listener = lambda new, old: stop() if new is State.RUNNING else None  # noqa: E731
        made.append(start(app, node.bootstrap_servers, on_state_change=[listener]))
    started.set()
    assert called.wait(WAIT_S)
    if where == "error handler":
        with pytest.raises(StreamsError, match="ValueError: 1"):
            made[0].await_termination(WAIT_S)
    else:
        assert made[0].await_termination(WAIT_S)
    made[0].stop()
    with pytest.raises(OttlaError, match=r"is (NOT_RUNNING|ERROR), not RUNNING"):
        made[0]._ask({})
