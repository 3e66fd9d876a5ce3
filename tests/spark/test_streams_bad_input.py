"""What a cluster can have that a program cannot run on: each is told at the start, by one line that says what to do."""

import logging
import os
from collections.abc import Callable, Iterator

import pytest
from pyspark.sql import SparkSession

import ottla
from ottla.client import Admin, Producer
from ottla.kernel.error import ErrorCode, OttlaError
from ottla.spark.streams import last_run
from ottla.spark.streams.running import prepare
from ottla.streams import (
    Application,
    Handlers,
    Response,
    State,
    StreamsBuilder,
    StreamsError,
    TestDriver,
    log_and_continue,
)
from ottla.wire.api import ApiKey
from tests.spark.test_streams import by_key, create, expected, read, send, word_count

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def strict() -> Iterator[ottla.Node]:
    """A node that creates no topics by itself."""
    with ottla.Node(settings={"auto.create.topics.enable": "false"}) as node:
        yield node


@pytest.fixture
def own(topics: Iterator[int]) -> str:
    return f"{next(topics)}-{os.getpid()}"


def joined(own: str, **options: object) -> Application:
    builder = StreamsBuilder()
    left, right = builder.stream(f"left-{own}"), builder.table(f"right-{own}")
    left.join(right, lambda one, other: one + other).to(f"out-{own}")
    return builder.build(f"app-{own}", key_serde="string", value_serde="string", **options)  # type: ignore[arg-type]


def refused(app: Application, servers: str) -> str:
    """In which words a start is refused; nothing was created."""
    with Admin(servers) as admin:
        before = {each.name for each in admin.list_topics()}
        with pytest.raises(OttlaError) as raised:
            prepare(app.topology, app.settings, servers, {}, accept_changes=False)
        assert {each.name for each in admin.list_topics()} == before
    text = str(raised.value)
    assert "\n" not in text
    return text


def start(app: Application, servers: str) -> None:
    prepare(app.topology, app.settings, servers, {}, accept_changes=False)


def test_topics_that_are_missing(strict: ottla.Node, own: str) -> None:
    servers = strict.bootstrap_servers
    create(servers, f"left-{own}", partitions=2)
    assert f"source topic right-{own} does not exist: create it first (" in refused(joined(own), servers)
    create(servers, f"right-{own}", partitions=2)
    told = f"output topic out-{own} does not exist, and the brokers do not create topics: create it first ("
    assert told in refused(joined(own), servers)
    create(servers, f"out-{own}", partitions=2)
    told = f"output topic dead-{own} does not exist, and the brokers do not create topics: create it first"
    assert refused(joined(own, handlers=Handlers(dead_letter_topic=f"dead-{own}")), servers) == told
    start(joined(own), servers)


def test_programs_whose_topics_are_known_create_none(strict: ottla.Node, own: str) -> None:
    servers = strict.bootstrap_servers
    create(servers, f"left-{own}", f"right-{own}", f"out-{own}", partitions=2)

    def creates(app: Application) -> bool:
        return prepare(app.topology, app.settings, servers, {}, accept_changes=True).creates_topics

    assert not creates(joined(own, handlers=Handlers(processing=log_and_continue)))
    assert creates(joined(own, handlers=Handlers(processing=lambda context, error: Response.resume())))
    builder = StreamsBuilder()
    builder.stream(f"left-{own}").to(lambda key, value, context: f"out-{own}")
    assert creates(builder.build(f"dynamic-{own}", key_serde="string", value_serde="string"))


def test_an_output_topic_that_the_brokers_create(bootstrap_servers: str, own: str) -> None:
    create(bootstrap_servers, f"left-{own}", f"right-{own}", partitions=2)
    start(joined(own), bootstrap_servers)
    with Admin(bootstrap_servers) as admin:
        assert f"out-{own}" in {each.name for each in admin.list_topics()}


def test_topics_that_are_not_partitioned_alike(strict: ottla.Node, own: str) -> None:
    create(strict.bootstrap_servers, f"left-{own}", partitions=2)
    create(strict.bootstrap_servers, f"right-{own}", f"out-{own}", partitions=3)
    told = refused(joined(own), strict.bootstrap_servers)
    assert f"but have left-{own}: 2, right-{own}: 3; call repartition() on one of the streams" in told
    assert "test_streams_bad_input.py:" in told


def test_state_of_another_program(strict: ottla.Node, own: str) -> None:
    servers = strict.bootstrap_servers
    create(servers, f"left-{own}", f"right-{own}", f"out-{own}", partitions=2)
    builder = StreamsBuilder()
    builder.stream(f"left-{own}").group_by_key().count(materialized="counts")
    app = builder.build(f"app-{own}", key_serde="string", value_serde="string")
    changelog = f"app-{own}-counts-changelog"
    with Admin(servers) as admin, Producer(servers) as producer:
        admin.create_topic(changelog, 3)
        assert f"internal topic {changelog} has 3 partitions, but the program needs 2" in refused(app, servers)
        admin.delete_topic(changelog)
        admin.create_topic(changelog, 2)
        producer.send(changelog, b"of Java's", b"k").result()
        told = f"internal topic {changelog} has records, but application app-{own} has never run on this cluster"
        assert told in refused(app, servers)
        admin.delete_topic(changelog)
        # An empty one that an administrator has made is welcome.
        admin.create_topic(changelog, 2)
        start(app, servers)
        plan = f"app-{own}{last_run.SUFFIX}"
        producer.send(plan, b"no plan", b"plan").result()
        assert f"topic {plan} does not contain the plan of an application; delete it" in refused(app, servers)


def test_a_record_that_does_not_decode_says_how_to_go_on() -> None:
    builder = StreamsBuilder()
    builder.stream("in", key_serde="string", value_serde="json").to("out")
    app = builder.build(key_serde="string", value_serde="json")
    with TestDriver(app) as driver, pytest.raises(StreamsError) as raised:
        driver.pipe("in", b"k", b"{", 1)
    assert "failed on in-0 at offset 0: " in str(raised.value)
    assert str(raised.value).endswith(
        "; Handlers(deserialization=log_and_continue, dead_letter_topic=...) skips such records"
    )


def test_a_null_key_in_a_join_is_dropped_and_told_once(
    spark: SparkSession, bootstrap_servers: str, own: str, caplog: pytest.LogCaptureFixture
) -> None:
    create(bootstrap_servers, f"left-{own}", f"right-{own}", f"out-{own}", partitions=1)
    with Producer(bootstrap_servers) as producer:
        producer.send(f"right-{own}", b"2", b"k", timestamp=1).result()
        for key in (None, None, b"k"):
            producer.send(f"left-{own}", b"1", key, timestamp=2).result()
    app = joined(own)
    with caplog.at_level(logging.WARNING, "ottla.spark.streams.running"):
        app.start(bootstrap_servers, spark=spark)
        try:
            assert read(bootstrap_servers, f"out-{own}", 1) == [("k", int.from_bytes(b"12", "big"))]
            until(app, lambda: 'records_dropped_total{application_id="app-' + own + '",task="0_0"} 2' in app.metrics())
        finally:
            app.stop()
    (told,) = (one.getMessage() for one in caplog.records if "drops records" in one.getMessage())
    assert told.startswith(f"app-{own} drops records at KSTREAM-JOIN-0000000004 (") and "select_key before it" in told


def until(app: Application, true: Callable[[], bool]) -> None:
    """Wait while the program runs; the test's own limit ends it."""
    while not true():
        assert not app.await_termination(0.05), "it has ended"


def test_a_full_disk_holds_a_program_up_and_loses_nothing(spark: SparkSession, own: str) -> None:
    names = f"lines-{own}", f"counts-{own}", f"app-{own}"
    with ottla.Node() as node:
        servers = node.bootstrap_servers
        create(servers, *names[:2], partitions=1)
        send(servers, names[0])
        wanted = expected(word_count(*names), *names[:2])
        app = word_count(*names)
        with node.faults.error(ApiKey.PRODUCE, ErrorCode.KAFKA_STORAGE_ERROR, times=None, topic=names[1]) as full:
            app.start(servers, spark=spark)
            full.wait(3, timeout_s=120)
            assert app.state is not State.ERROR
        try:
            assert by_key(read(servers, names[1], len(wanted))) == by_key(wanted)
        finally:
            app.stop()
