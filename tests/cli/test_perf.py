"""ottla perf, and what Kafka's perf tools and verifiable clients say when all goes well."""

import json
import re
from typing import Any

import pytest

from ottla.client import Producer
from tests.cli.kafka_tool import kafka
from tests.cli.tool import Tool


def test_what_perf_writes_it_reads_again(tool: Tool, topic: str) -> None:
    written = tool("perf", "produce", topic, "-n", "500", "-s", "20", "--json").json
    assert written["records"] == 500
    assert set(written["latency_ms"]) == {"mean", "p50", "p95", "p99", "p99.9", "most"}
    read = tool("perf", "consume", topic, "--json").json
    assert read["records"] == 500
    assert tool("perf", "consume", topic, "-n", "100", "-g", topic, "--json").json["records"] >= 100


@pytest.mark.parametrize("words", ["perf produce", "perf latency", "perf consume", "consume --share workers"])
def test_a_mistyped_topic_is_refused_and_not_created(tool: Tool, topic: str, words: str) -> None:
    said = tool(*words.split(), f"{topic}x", "-n", "5")
    assert said.code == 1
    assert said.err.startswith(f"ottla: there is no topic {topic}x; did you mean {topic}?")
    assert f"{topic}x" not in {each["topic"] for each in tool("topics", "--json").json}


def test_a_topic_is_read_to_its_end_though_markers_have_offsets(tool: Tool, bootstrap: str, topic: str) -> None:
    with Producer(bootstrap_servers=bootstrap, transactional_id=topic) as producer, producer.transaction():
        producer.send(topic, b"x", partition=0)
    assert tool("perf", "consume", topic, "--json").json["records"] == 1
    for left in (1, 0):  # the group has read all the second time
        assert tool("perf", "consume", topic, "-g", topic, "--json").json["records"] == left


def test_records_that_are_not_written_are_told(tool: Tool, topic: str) -> None:
    assert tool("configs", "set", "topic", topic, "max.message.bytes=500").code == 0
    said = tool("perf", "produce", topic, "-n", "3", "-s", "600", "-X", "linger.ms=0", "--json")
    assert (said.code, said.json["records"]) == (1, 0)
    assert "3 records were not written: " in said.err
    assert json.loads(said.err)["error"] == "MESSAGE_TOO_LARGE"


@pytest.mark.parametrize("words", ["produce {topic} -r 100", "latency", "consume {topic}"])
def test_ctrl_c_ends_a_measurement_with_its_figures(
    tool: Tool, topic: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert tool("perf", "produce", topic, "-n", "9000").code == 0

    def interrupt(_: object, __: object, **seen: Any) -> None:
        if seen["count"]:
            raise KeyboardInterrupt

    monkeypatch.setattr("ottla.cli.ottla.perf._STRIDE", 10)
    monkeypatch.setattr("rich.progress.Progress.update", interrupt)
    said = tool("perf", *words.format(topic=topic).split(), "-n", "7000", "--json")
    assert said.code == 130
    least = {"produce": 11, "latency": 21, "consume": 1}[words.split()[0]]
    assert least <= said.json["records"] < 7000


@pytest.mark.parametrize("command", ["produce", "latency"])
def test_perf_creates_a_topic_on_request_and_none_with_wrong_settings(tool: Tool, topic: str, command: str) -> None:
    words = ("perf", command, f"{topic}_new", "-n", "5", "--create")
    assert "invalid value for linger.ms" in tool(*words, "-X", "linger.ms=soon").err
    assert f"{topic}_new" not in {each["topic"] for each in tool("topics", "--json").json}
    assert tool(*words, "--json").json["records"] == 5


def test_latency_needs_no_topic_and_leaves_none(tool: Tool) -> None:
    before = tool("topics", "--json").json
    assert tool("perf", "latency", "-n", "5", "--json").json["records"] == 5
    assert {each["topic"] for each in tool("topics", "--json").json} == {each["topic"] for each in before}


def test_kafkas_perf_tools_print_kafkas_lines(bootstrap: str, topic: str) -> None:
    where = ("--bootstrap-server", bootstrap, "--topic", topic)
    said = kafka("kafka-producer-perf-test", *where, "--num-records", "300", "--throughput", "-1", "--record-size", "9")
    number = r"\d+(\.\d+)?"
    assert re.fullmatch(
        rf"300 records sent, {number} records/sec \({number} MB/sec\), {number} ms avg latency, "
        rf"{number} ms max latency, \d+ ms 50th, \d+ ms 95th, \d+ ms 99th, \d+ ms 99.9th.\n",
        said.out,
    )
    said = kafka("kafka-consumer-perf-test", *where, "--num-records", "300")
    header, line = said.out.splitlines()
    assert len(header.split(", ")) == len(line.split(", ")) == 10
    assert line.split(", ")[4] == "300"
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d{3}, ", line)


@pytest.mark.parametrize("size", ["5", "0"])
def test_the_end_to_end_latency_is_measured(bootstrap: str, topic: str, size: str) -> None:
    where = ("--bootstrap-server", bootstrap, "--topic", topic, "--producer-acks", "all", "--record-size", size)
    said = kafka(
        "kafka-e2e-latency", *where, "--num-records", "7", "--num-headers", "2", "--record-header-key-size", "3"
    )
    assert re.fullmatch(
        r"0\t[\d.]+\nAvg latency: [\d.]+ ms\nPercentiles: 50th = \d+, 99th = \d+, 99.9th = \d+\n", said.out
    )


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_verifiable_clients_tell_of_every_record(bootstrap: str, topic: str, protocol: str) -> None:
    where = ("--bootstrap-server", bootstrap, "--topic", topic)
    said = kafka(
        "kafka-verifiable-producer", *where, "--max-messages", "20", "--value-prefix", "7", "--repeating-keys", "3"
    )
    events = [json.loads(line) for line in said.out.splitlines()]
    assert [each["name"] for each in events[:1] + events[-2:]] == ["startup_complete", "shutdown_complete", "tool_data"]
    sent = {(each["key"], each["value"]) for each in events if each["name"] == "producer_send_success"}
    assert sent == {(str(number % 3), f"7.{number}") for number in range(20)}
    assert events[-1]["acked"] == 20
    group = ("--group-id", f"{topic}-{protocol}", "--group-protocol", protocol, "--verbose")
    said = kafka("kafka-verifiable-consumer", *where, *group, "--max-messages", "20")
    events = [json.loads(line) for line in said.out.splitlines()]
    assert {(each["key"], each["value"]) for each in events if each["name"] == "record_data"} == sent
    assert {each["name"] for each in events} >= {"partitions_assigned", "records_consumed", "offsets_committed"}


@pytest.mark.parametrize("mode", ["auto", "sync"])
def test_the_verifiable_share_consumer_tells_of_every_record(bootstrap: str, topic: str, mode: str) -> None:
    where = ("--bootstrap-server", bootstrap, "--topic", topic)
    assert kafka("kafka-verifiable-producer", *where, "--max-messages", "20").code == 0
    group = ("--group-id", topic, "--verbose", "--offset-reset-strategy", "earliest", "--acknowledgement-mode", mode)
    said = kafka("kafka-verifiable-share-consumer", *where, *group, "--max-messages", "20")
    events = [json.loads(line) for line in said.out.splitlines()]
    names = [each["name"] for each in events]
    assert names[:2] == ["startup_complete", "offset_reset_strategy_set"]
    assert names[-1] == "shutdown_complete"
    assert sorted(int(each["value"]) for each in events if each["name"] == "record_data") == list(range(20))
    consumed = [each for each in events if each["name"] == "records_consumed"]
    acknowledged = [each for each in events if each["name"] == "offsets_acknowledged"]
    assert sum(each["count"] for each in consumed) == sum(each["count"] for each in acknowledged) == 20
    assert all(each["success"] and "error" not in each for each in acknowledged)


def test_share_consumers_share_what_the_perf_tool_reads(bootstrap: str, topic: str) -> None:
    where = ("--bootstrap-server", bootstrap, "--topic", topic)
    to_group = ("--entity-type", "groups", "--entity-name", topic, "--add-config", "share.auto.offset.reset=earliest")
    assert kafka("kafka-configs", "--bootstrap-server", bootstrap, "--alter", *to_group).code == 0
    assert kafka("kafka-verifiable-producer", *where, "--max-messages", "50").code == 0
    many = ("--group", topic, "--num-records", "50", "--threads", "2", "--show-consumer-stats")
    said = kafka("kafka-share-consumer-perf-test", *where, *many)
    header, one, two, total = said.out.splitlines()
    assert len(header.split(", ")) == len(total.split(", ")) == 7
    assert total.split(", ")[5] == "50"
    for number, line in ((1, one), (2, two)):
        name = f"Share consumer {number} having client id perf-share-consumer-client-{number} consumption metrics- "
        assert line.startswith(name)
    assert sum(int(line.split(", ")[-2]) for line in (one, two)) == 50
