"""What the perf tools and the verifiable clients make of records that come, fail or stay away.

Clients and clock are played by the tests: every figure is known.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from string import ascii_uppercase
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

import ottla.client
from ottla.cli import measure
from ottla.cli.kafka.perf import consumer_perf, latency, producer_perf, share_consumer_perf, verifiable_consumer
from ottla.cli.kafka.program.metric import print_metrics
from ottla.cli.kafka.program.tool import Failed
from ottla.client import ErrorCode, KafkaError, TopicPartition
from tests.cli.kafka_tool import kafka
from tests.cli.perf_scene import Clock, Reader, Writer, records

SERVER = ("--bootstrap-server", "b:1")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    played = Clock()
    for module in (consumer_perf, share_consumer_perf):
        monkeypatch.setattr(module, "_now_ms", played)
    for module in (measure, producer_perf):
        monkeypatch.setattr(module, "now_ms", played)
    monkeypatch.setenv("TZ", "UTC")
    return played


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings of a client stay the dictionary that the tool made."""
    for module in (consumer_perf, share_consumer_perf, producer_perf, latency, verifiable_consumer):
        monkeypatch.setattr(module, "settings_for", lambda _, properties: properties)


# ---- kafka-consumer-perf-test

HALF = 512 * 1024


def consume(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, polls: Sequence[tuple[int, list[Any]]], *words: str
) -> tuple[Reader, list[str]]:
    reader = Reader(clock, polls)
    monkeypatch.setattr(ottla.client, "Consumer", reader)
    one = [TopicPartition("t", 0)]

    def joined() -> None:
        clock.ms += 500
        reader.listener.assigned(one)

    reader.at_poll[1] = joined
    said = kafka("kafka-consumer-perf-test", *SERVER, "--topic", "t", *words)
    assert said.code == 0, said
    return reader, said.out.splitlines()


@pytest.mark.usefixtures("plain")
def test_a_consumers_figures_leave_out_the_time_of_rebalances(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    polls = [(1500, records(2, HALF)), (2000, records(2, HALF, first=2))]
    reader, (heads, line) = consume(monkeypatch, clock, polls, "--num-records", "4", "--group", "g")
    assert heads == (
        "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, "
        "fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
    )
    assert line == (
        "2001-09-09 01:46:40:000, 2001-09-09 01:46:44:000, 2.0000, 0.5000, 4, 1.0000, 500, 3500, 0.5714, 1.1429"
    )
    assert reader.settings == {
        "bootstrap.servers": "b:1",
        "group.id": "g",
        "max.partition.fetch.bytes": "1048576",
        "auto.offset.reset": "earliest",
        "check.crcs": "false",
        "client.id": "perf-consumer-client",
    }
    reader, lines = consume(
        monkeypatch, clock, [(1000, records(3, HALF))], "--num-records", "3", "--from-latest", "--hide-header",
        "--fetch-size", "7", "--command-property", "client.id=mine",
    )  # fmt: skip
    assert len(lines) == 1
    assert (reader.settings["auto.offset.reset"], reader.settings["client.id"]) == ("latest", "mine")
    assert reader.settings["max.partition.fetch.bytes"] == "7"
    assert 0 <= int(reader.settings["group.id"].removeprefix("perf-consumer-")) < 100_000


@pytest.mark.usefixtures("plain")
def test_a_consumer_reports_each_interval_by_itself(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    polls = [
        (1500, records(2, HALF)),
        (600, records(1, HALF)),
        (400, records(1, HALF)),
        (500, []),
        (500, records(4, HALF)),
    ]
    words = ("--num-records", "8", "--show-detailed-stats", "--reporting-interval", "1000")
    _, (heads, *lines) = consume(monkeypatch, clock, polls, *words)
    assert heads.startswith("time, threadId, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance")
    assert lines == [
        "2001-09-09 01:46:42:000, 0, 1.0000, 0.5000, 2, 1.0000, 500, 1500, 0.6667, 1.3333",
        "2001-09-09 01:46:43:000, 0, 2.0000, 1.0000, 4, 2.0000, 0, 1000, 1.0000, 2.0000",
        "2001-09-09 01:46:44:000, 0, 4.0000, 2.0000, 8, 4.0000, 0, 1000, 2.0000, 4.0000",
    ]


@pytest.mark.usefixtures("plain")
def test_an_interval_that_is_all_rebalance_has_no_rate_of_fetching(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    words = ("--num-records", "1", "--show-detailed-stats", "--reporting-interval", "500", "--hide-header")
    _, lines = consume(monkeypatch, clock, [(0, records(1, HALF))], *words)
    assert lines == ["2001-09-09 01:46:40:500, 0, 0.5000, 1.0000, 1, 2.0000, 500, 0, 0.0000, 0.0000"]


@pytest.mark.usefixtures("plain")
def test_only_the_time_without_any_partition_is_rebalance(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    reader = Reader(clock, [(100, records(1, HALF)) for _ in range(6)])
    monkeypatch.setattr(ottla.client, "Consumer", reader)
    zero, one = TopicPartition("t", 0), TopicPartition("t", 1)
    reader.at_poll = {
        1: lambda: reader.listener.assigned([zero]),
        2: lambda: reader.listener.assigned([one]),
        3: lambda: reader.listener.revoked([zero]),
        4: lambda: reader.listener.revoked([one]),
        6: lambda: reader.listener.assigned([zero]),
    }
    said = kafka("kafka-consumer-perf-test", *SERVER, "--include", "t.*", "--messages", "6", "--hide-header")
    warning, line = said.out.splitlines()
    assert warning == "Warning: --messages is deprecated. Use --num-records instead."
    assert line.split(", ")[4:8] == ["6", "10.0000", "200", "400"]
    assert reader.subscribed.pattern == "t.*"


@pytest.mark.usefixtures("plain")
def test_a_consumer_gives_up_when_no_record_comes_for_so_long(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    polls = [(200, []), (100, records(1, HALF)), (700, []), (100, []), (1, [])]
    _, (_, warning, line) = consume(monkeypatch, clock, polls, "--num-records", "2", "--timeout", "800")
    assert warning == (
        "WARNING: Exiting before consuming the expected number of records: timeout (800 ms) exceeded. You can use the "
        "--timeout option to increase the timeout."
    )
    assert line.startswith("2001-09-09 01:46:40:000, 2001-09-09 01:46:41:601, 0.5000, ")


# ---- kafka-share-consumer-perf-test


@pytest.mark.usefixtures("plain")
def test_a_share_consumers_figures_are_of_all_and_of_each_on_request(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    reader = Reader(clock, [(1500, records(2, HALF)), (500, []), (2000, records(2, HALF))])
    monkeypatch.setattr(ottla.client, "ShareConsumer", reader)
    words = ("--topic", "t", "--num-records", "4", "--show-detailed-stats", "--reporting-interval", "1000")
    said = kafka("kafka-share-consumer-perf-test", *SERVER, *words, "--show-consumer-stats", "--print-metrics")
    assert (said.code, said.err) == (0, "WARN the share consumer keeps no metrics: there are none to print\n")
    figures = "2001-09-09 01:46:40:000, 2001-09-09 01:46:44:000, 2.0000, 0.5000, 1.0000, 4, 4000"
    assert said.out.splitlines() == [
        "start.time, end.time, data.consumed.in.MB, MB.sec, nMsg.sec, data.consumed.in.nMsg, fetch.time.ms",
        "2001-09-09 01:46:40:000, 2001-09-09 01:46:41:500, 1.0000, 0.6667, 1.3333, 2, 1500 for share consumer 1",
        "2001-09-09 01:46:41:500, 2001-09-09 01:46:44:000, 2.0000, 0.4000, 0.8000, 4, 2500 for share consumer 1",
        f"Share consumer 1 having client id perf-share-consumer-client consumption metrics- {figures}",
        figures,
    ]
    assert (reader.subscribed, reader.commits) == (["t"], [None])
    assert reader.settings == {
        "bootstrap.servers": "b:1",
        "group.id": "perf-share-consumer",
        "fetch.max.bytes": "1048576",
        "check.crcs": "false",
        "client.id": "perf-share-consumer-client",
    }


@pytest.mark.usefixtures("plain")
def test_a_share_consumer_gives_up_when_no_record_comes_for_so_long(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    monkeypatch.setattr(ottla.client, "ShareConsumer", Reader(clock, [(100, records(1, HALF)), (400, []), (1, [])]))
    words = ("--topic", "t", "--num-records", "2", "--timeout", "400", "--hide-header", "--group", "g")
    warning, line = kafka("kafka-share-consumer-perf-test", *SERVER, *words).out.splitlines()
    assert warning.startswith("WARNING: Exiting before consuming the expected number of records: timeout (400 ms) exc")
    assert line == "2001-09-09 01:46:40:000, 2001-09-09 01:46:40:501, 0.5000, 0.9980, 1.9960, 1, 501"


# ---- kafka-producer-perf-test


def produce(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, latencies: Sequence[int | KafkaError], *words: str
) -> tuple[Writer, Any]:
    writer = Writer(clock, latencies)
    monkeypatch.setattr(ottla.client, "Producer", writer)
    count = ("--num-records", str(len(latencies)), "--throughput", "-1", "--record-size", str(HALF))
    said = kafka("kafka-producer-perf-test", *SERVER, "--topic", "t", *count, *words)
    assert said.code == 0, said
    return writer, said


@pytest.mark.usefixtures("plain")
def test_a_producer_reports_each_interval_and_all_of_it(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    writer, said = produce(monkeypatch, clock, [100, 300, 500, 900, 200], "--reporting-interval", "900")
    assert said.out.splitlines() == [
        "3 records sent, 3.3 records/sec (1.67 MB/sec), 300.0 ms avg latency, 500.0 ms max latency.",
        "1 records sent, 1.1 records/sec (0.56 MB/sec), 900.0 ms avg latency, 900.0 ms max latency.",
        (
            "5 records sent, 2.500000 records/sec (1.25 MB/sec), 400.00 ms avg latency, 900.00 ms max latency, "
            "300 ms 50th, 900 ms 95th, 900 ms 99th, 900 ms 99.9th."
        ),
    ]
    assert writer.settings == {"bootstrap.servers": "b:1", "client.id": "perf-producer-client"}
    assert writer.calls == ["send"] * 5 + ["flush"]
    # Values are long enough for each of the letters.
    assert {len(value) for value in writer.values} == {HALF}
    assert {frozenset(value) for value in writer.values} == {frozenset(ascii_uppercase.encode())}


@pytest.mark.usefixtures("plain")
def test_what_warms_up_is_reported_apart(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    words = ("--reporting-interval", "1000", "--warmup-records", "2")
    _, said = produce(monkeypatch, clock, [700, 300, 400, 600, 1000, 100], *words)
    assert said.out.splitlines() == [
        "Warmup first 2 records. Steady state results will print after the complete test summary.",
        "2 records sent, 2.0 records/sec (1.00 MB/sec), 500.0 ms avg latency, 700.0 ms max latency.",
        "In steady state.",
        "2 records sent, 2.0 records/sec (1.00 MB/sec), 500.0 ms avg latency, 600.0 ms max latency.",
        "1 records sent, 1.0 records/sec (0.50 MB/sec), 1000.0 ms avg latency, 1000.0 ms max latency.",
        (
            "6 records sent, 1.935484 records/sec (0.97 MB/sec), 516.67 ms avg latency, 1000.00 ms max latency, "
            "600 ms 50th, 1000 ms 95th, 1000 ms 99th, 1000 ms 99.9th."
        ),
        (
            "4 steady state records sent, 1.904762 records/sec (0.95 MB/sec), 525.00 ms avg latency, 1000.00 ms max "
            "latency, 600 ms 50th, 1000 ms 95th, 1000 ms 99th, 1000 ms 99.9th."
        ),
    ]


@pytest.mark.usefixtures("plain")
def test_a_record_that_fails_is_told_and_not_counted(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    _, said = produce(monkeypatch, clock, [100, KafkaError(ErrorCode.REQUEST_TIMED_OUT, "too late"), 100])
    assert said.err == "REQUEST_TIMED_OUT: too late\n"
    assert said.out.startswith("2 records sent, 10.000000 records/sec (5.00 MB/sec), 100.00 ms avg latency, ")


@pytest.mark.usefixtures("plain")
def test_a_transaction_ends_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    words = ("--transactional-id", "x", "--transaction-duration-ms", "200")
    writer, _ = produce(monkeypatch, clock, [100, 100, 100, 100], *words)
    assert writer.settings["transactional.id"] == "x"
    assert writer.calls == [
        "init_transactions", "begin_transaction", "send", "send", "send", "commit_transaction", "begin_transaction",
        "send", "commit_transaction", "flush",
    ]  # fmt: skip


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize(
    ("words", "name", "transactions"),
    [
        (["--command-property", "transactional.id=own"], "own", True),
        (["--command-property", "transactional.id=own", "--transactional-id", "x"], "x", True),
        (["--transaction-duration-ms", "5000"], "performance-producer-", True),
        ([], "", False),
    ],
)
def test_a_producer_is_transactional_for_an_id_or_a_duration(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, words: list[str], name: str, transactions: bool
) -> None:
    # One transaction lasts three seconds unless that is said.
    writer, _ = produce(monkeypatch, clock, [1500, 1500, 1], *words)
    assert str(writer.settings.get("transactional.id", "")).startswith(name)
    wanted = 0 if not transactions else 1
    assert writer.calls.count("commit_transaction") == wanted


def test_the_metrics_of_a_client_are_a_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {"rate": 1.25, "count": 7, "unknown": float("nan")}
    monkeypatch.setattr("ottla.client.connection.metric.named", lambda _: values)
    print_metrics("producer-metrics", "c", object())
    assert capsys.readouterr().out == (
        "\n"
        "Metric Name                              Value\n"
        "producer-metrics:count:{client-id=c}   : 7\n"
        "producer-metrics:rate:{client-id=c}    : 1.250\n"
        "producer-metrics:unknown:{client-id=c} : NaN\n"
    )


@pytest.mark.usefixtures("plain")
def test_the_metrics_of_a_client_are_shown_on_request(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    monkeypatch.setattr("ottla.client.connection.metric.named", lambda _: {"count": 7})
    heads = ["", "Metric Name                                               Value"]
    for words in (("--print-metrics",), ()):
        _, said = produce(monkeypatch, clock, [100], *words)
        shown = [*heads, "producer-metrics:count:{client-id=perf-producer-client} : 7"] if words else []
        assert said.out.splitlines()[1:] == shown
        polls = [(100, records(1, HALF))]
        _, lines = consume(monkeypatch, clock, polls, "--num-records", "1", "--hide-header", *words)
        shown = [*heads, "consumer-metrics:count:{client-id=perf-consumer-client} : 7"] if words else []
        assert lines[1:] == shown


# ---- kafka-e2e-latency


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ([], "poll() timed out before finding a result (timeout:[60000ms])"),
        ([(b"k", b"other", [])], "The message value read [b'other'] did not match the message value sent [b'v']"),
        ([(b"x", b"v", [])], "The message key read [b'x'] did not match the message key sent [b'k']"),
        ([(None, b"v", [])], "The message key read [None] did not match the message key sent [b'k']"),
        ([(b"k", b"v", [])], "The message headers read did not match those sent"),
        ([(b"k", b"v", [("h", b"1")])] * 2, "Only one result was expected during this test. We found [2]"),
    ],
)
def test_what_comes_back_is_what_was_sent(found: list[tuple[Any, Any, Any]], words: str) -> None:
    came = [SimpleNamespace(key=key, value=value, headers=headers) for key, value, headers in found]
    with pytest.raises(Failed) as raised:
        latency._validate(came, b"k", b"v", [("h", b"1")])  # type: ignore[arg-type]
    assert str(raised.value) == words


# ---- kafka-verifiable-consumer

_VERIFIABLE = ("--topic", "t", "--group-id", "g")


def verify(monkeypatch: pytest.MonkeyPatch, reader: Reader, *words: str) -> tuple[list[dict[str, Any]], str]:
    monkeypatch.setattr(ottla.client, "Consumer", reader)
    said = kafka("kafka-verifiable-consumer", *SERVER, *_VERIFIABLE, *words)
    assert said.code == 0
    return [json.loads(line) for line in said.out.splitlines()], said.err


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize(
    ("words", "settings"),
    [
        (
            [],
            {
                "group.protocol": "classic",
                "partition.assignment.strategy": "range",
                "group.id": "g",
                "bootstrap.servers": "b:1",
                "enable.auto.commit": "false",
                "auto.offset.reset": "earliest",
            },
        ),
        (["--group-protocol", "CONSUMER"], {"group.protocol": "consumer", "partition.assignment.strategy": None}),
        (
            ["--group-protocol", "consumer", "--group-remote-assignor", "uniform", "--group-instance-id", "i"],
            {"group.remote.assignor": "uniform", "group.instance.id": "i"},
        ),
        (["--group-remote-assignor", "uniform"], {"group.remote.assignor": None}),
        (["--session-timeout", "7000"], {"session.timeout.ms": "7000"}),
        (
            ["--enable-autocommit", "--reset-policy", "none"],
            {"enable.auto.commit": "true", "auto.offset.reset": "none"},
        ),
        (
            ["--assignment-strategy", "org.apache.kafka.clients.consumer.StickyAssignor, RoundRobinAssignor,mine"],
            {"partition.assignment.strategy": "sticky,roundrobin,mine"},
        ),
    ],
)
def test_each_option_of_the_verifiable_consumer_is_a_setting(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, words: list[str], settings: dict[str, Any]
) -> None:
    reader = Reader(clock, [])
    verify(monkeypatch, reader, "--max-messages", "0", *words)
    if not words:
        assert reader.settings == settings
    assert {name: reader.settings.get(name) for name in settings} == settings
    assert reader.subscribed == ["t"]


@pytest.mark.usefixtures("plain")
def test_the_verifiable_consumer_counts_no_record_beyond_its_number(
    monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    one, two = TopicPartition("t", 0), TopicPartition("t", 1)
    reader = Reader(clock, [(1, records(2, 2)), (1, [*records(2, 2, first=2), *records(3, 2, partition=1)]), (1, [])])
    reader.at_poll = {1: lambda: reader.listener.assigned([one, two]), 2: lambda: reader.listener.revoked([two])}
    events, _ = verify(monkeypatch, reader, "--max-messages", "5")
    shown = [{name: value for name, value in event.items() if name != "timestamp"} for event in events]
    places = [{"topic": "t", "partition": 0}, {"topic": "t", "partition": 1}]
    assert shown == [
        {"name": "startup_complete"},
        {"name": "partitions_assigned", "partitions": places},
        {
            "name": "records_consumed",
            "count": 2,
            "partitions": [{**places[0], "count": 2, "minOffset": 0, "maxOffset": 1}],
        },
        {"name": "offsets_committed", "offsets": [{**places[0], "offset": 2}], "success": True},
        {"name": "partitions_revoked", "partitions": places[1:]},
        {
            "name": "records_consumed",
            "count": 5,
            "partitions": [
                {**places[0], "count": 2, "minOffset": 2, "maxOffset": 3},
                {**places[1], "count": 1, "minOffset": 0, "maxOffset": 0},
            ],
        },
        {
            "name": "offsets_committed",
            "offsets": [{**places[0], "offset": 4}, {**places[1], "offset": 1}],
            "success": True,
        },
        {"name": "shutdown_complete"},
    ]
    assert reader.commits == [{one: 2}, {one: 4, two: 1}]


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize("code", [ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.FENCED_INSTANCE_ID])
def test_a_commit_that_fails_is_told_and_ends_a_member_that_is_fenced_only(
    monkeypatch: pytest.MonkeyPatch, clock: Clock, code: ErrorCode
) -> None:
    reader = Reader(clock, [(1, records(1, 2)), (1, records(1, 2, first=1))])
    reader.commit = Mock(side_effect=[KafkaError(code, "not now"), None])  # type: ignore[method-assign]
    events, err = verify(monkeypatch, reader, "--max-messages", "2", "--verbose")
    names = [event["name"] for event in events]
    if code is ErrorCode.FENCED_INSTANCE_ID:
        assert names == ["startup_complete", "record_data", "records_consumed", "shutdown_complete"]
        assert err == "ERROR Error during processing, terminating consumer process: not now\n"
        return
    failed, done = (event for event in events if event["name"] == "offsets_committed")
    assert (failed["success"], failed["error"], done["success"]) == (False, "not now", True)
    assert [event["key"] + event["value"] for event in events if event["name"] == "record_data"] == ["kv", "kv"]
    assert err == ""


@pytest.mark.usefixtures("plain")
def test_a_signal_ends_the_verifiable_consumer(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    stopped = threading.Event()
    monkeypatch.setattr(verifiable_consumer, "stops", lambda: stopped)
    reader = Reader(clock, [(1, records(1, 2))])
    reader.at_poll[2] = stopped.set
    events, _ = verify(monkeypatch, reader, "--enable-autocommit")
    names = [event["name"] for event in events]
    assert names == ["startup_complete", "records_consumed", "shutdown_requested", "shutdown_complete"]
    assert reader.commits == []
