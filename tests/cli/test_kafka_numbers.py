"""Numbers and lists on the command lines of Kafka's tools: what Java's Integer, Long and `split` take and refuse."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from ottla.cli.kafka.configs import config
from ottla.cli.kafka.groups import consumer_group_reset, streams_reset
from ottla.cli.kafka.program.option import Usage, int32, int64
from ottla.cli.kafka.program.tool import Failed
from ottla.cli.kafka.records import delete_records, get_offsets
from ottla.cli.kafka.topics import log_dirs, topic
from ottla.client import ErrorCode, KafkaError, TopicPartition
from ottla.client.admin.result import ListedOffset, Results
from tests.cli.kafka_tool import kafka
from tests.cli.test_kafka_shown import run

WIDE, WIDER = str(1 << 31), str(1 << 63)
SERVER = "--bootstrap-server b:1"
UNREADABLE = "Cannot parse argument '{value}' of option {name}"
UNCONVERTED = "argument {name}: could not convert '{value}' to {kind}"


@pytest.mark.parametrize(
    ("tool", "words", "name", "values"),
    [
        ("kafka-leader-election", f"{SERVER} --election-type preferred --topic t", "partition", (WIDE, "1_0", "0x1")),
        ("kafka-console-consumer", f"{SERVER} --topic t --offset 0", "partition", (WIDE, " 1", "")),
        ("kafka-console-consumer", f"{SERVER} --topic t", "timeout-ms", (WIDER, "1.0")),
        ("kafka-dump-log", "--files a.log", "max-bytes", (WIDE, "-2147483649")),
        ("kafka-delegation-tokens", "@ --create", "max-life-time-period", (WIDER, "-9223372036854775809")),
    ],
)
def test_a_number_that_java_does_not_read_is_refused(
    tool: str, words: str, name: str, values: tuple[str, ...], tmp_path: Path
) -> None:
    (tmp_path / "client").touch()
    words = words.replace("@", f"{SERVER} --command-config {tmp_path / 'client'}")
    for value in values:
        said = kafka(tool, *words.split(), f"--{name}", value)
        assert (said.code, said.out) == (1, "")
        assert UNREADABLE.format(value=value, name=name) in said.err.splitlines()


@pytest.mark.parametrize(
    ("tool", "words", "name", "value", "kind"),
    [
        ("kafka-cluster", f"unregister {SERVER}", "--id/-i", WIDE, "Integer"),
        ("kafka-transactions", f"{SERVER} describe-producers --topic t", "--partition", WIDE, "Integer"),
        ("kafka-transactions", f"{SERVER} list", "--duration-filter", WIDER, "Long"),
        (
            "kafka-producer-perf-test",
            f"{SERVER} --topic t --num-records 1 --record-size 1",
            "--throughput",
            "inf",
            "Double",
        ),
        ("kafka-verifiable-producer", f"{SERVER} --topic t", "--message-create-time", WIDER, "Long"),
        ("kafka-verifiable-producer", f"{SERVER} --topic t", "--max-messages", "1_000", "Integer"),
    ],
)
def test_a_number_that_argparse4j_does_not_read_is_refused(
    tool: str, words: str, name: str, value: str, kind: str
) -> None:
    said = kafka(tool, *words.split(), name.partition("/")[0], value)
    assert (said.code, said.out) == (1, "")
    assert said.err.endswith(f"error: {UNCONVERTED.format(name=name, value=value, kind=kind)}\n")


@pytest.mark.parametrize(
    "tool",
    [
        "kafka-acls",
        "kafka-client-metrics",
        "kafka-console-consumer",
        "kafka-console-producer",
        "kafka-console-share-consumer",
        "kafka-consumer-perf-test",
        "kafka-groups",
        "kafka-share-consumer-perf-test",
        "kafka-streams-application-reset",
        "kafka-streams-groups",
    ],
)
def test_the_options_follow_one_that_is_refused(tool: str) -> None:
    said = kafka(tool, "--bogus")
    assert (said.code, said.out) == (1, "")
    first, *options = said.err.splitlines()
    assert first == "bogus is not a recognized option"
    assert any(line.startswith("--bootstrap-server") for line in options)


@pytest.mark.parametrize(("read", "bits"), [(int32, 32), (int64, 64)])
def test_the_ends_of_a_kind_of_number_are_in_it(read: Callable[[str], int], bits: int) -> None:
    least, most = -1 << bits - 1, (1 << bits - 1) - 1
    assert (read(str(least)), read(f"+{most}"), read("007")) == (least, most, 7)
    for wrong in (least - 1, most + 1):
        with pytest.raises(ValueError, match=str(wrong)):
            read(str(wrong))


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("--topic-partitions t:0,", "t:0:7\n"),
        ("--topic-partitions t:1,,", "t:1:7\n"),
        ("--topic-partitions ,t:1", "t:0:7\nt:1:7\n"),
        ("--partitions 1,", "t:1:7\n"),
        ("--partitions 1,0", "t:0:7\nt:1:7\n"),
    ],
)
def test_a_comma_at_the_end_of_a_list_means_nothing(words: str, shown: str) -> None:
    client = Mock()
    client.list_topics.return_value = [SimpleNamespace(name="t")]
    parts = [SimpleNamespace(partition=number) for number in range(2)]
    client.describe_topics.return_value = Results({"t": SimpleNamespace(partitions=parts)}, {})
    client.list_offsets.side_effect = lambda asked: Results(dict.fromkeys(asked, ListedOffset(7, -1, None)), {})
    said = run(get_offsets, "kafka-get-offsets", client, *words.split())
    assert (said.code, said.out, said.err) == (0, shown, "")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--time", WIDER), f"Malformed time argument {WIDER}."),
        (("--time", "1_0"), "Malformed time argument 1_0."),
        (("--partitions", WIDE), "--partitions expects a comma separated list"),
        (("--partitions", "0,,1"), "--partitions expects a comma separated list"),
    ],
)
def test_a_time_or_a_partition_that_is_no_number_of_javas_is_refused(words: tuple[str, str], why: str) -> None:
    said = run(get_offsets, "kafka-get-offsets", Mock(), *words)
    assert (said.code, said.out) == (1, "")
    assert said.err.startswith(f"Error occurred: {why}")


@pytest.mark.parametrize(
    ("given", "assigned"),
    [("0:1,1:2,", {0: [0, 1], 1: [1, 2]}), (" 0: 1", {0: [0, 1]}), ("0:,1", {0: [0], 1: [1]}), (f"0:{WIDE}", None)],
)
def test_replicas_are_split_like_javas(given: str, assigned: dict[int, list[int]] | None) -> None:
    client = Mock()
    words = ("--create", "--topic", "t", "--replica-assignment", given)
    said = run(topic, "kafka-topics", client, *words)
    if assigned is None:
        assert said.code == 1
        assert said.out == f'Error while executing topic command : For input string: "{WIDE}"\n'
    else:
        assert said.code == 0
        (((new, *_),), _) = client.create_topics.call_args
        assert new.assignments == assigned


def test_a_partition_of_a_group_is_a_number_of_javas() -> None:
    assert consumer_group_reset.partitions_of("t:2,0,") == [TopicPartition("t", 2), TopicPartition("t", 0)]
    for wrong in (WIDE, "1_0", "", "1,,2", "x"):
        with pytest.raises(Usage):
            consumer_group_reset.partitions_of(f"t:{wrong}")


def test_a_plan_with_a_number_that_is_too_large_is_refused(tmp_path: Path) -> None:
    plan = tmp_path / "plan"
    plan.write_text(f"t,0,{WIDE}\n")
    assert streams_reset._plan(str(plan)) == {TopicPartition("t", 0): 1 << 31}
    for line in (f"t,{WIDE},5", f"t,0,{WIDER}"):
        plan.write_text(line)
        with pytest.raises(Failed, match="must be whole numbers"):
            streams_reset._plan(str(plan))


def test_an_offset_in_a_file_may_be_a_long_and_a_partition_not(tmp_path: Path) -> None:
    file = tmp_path / "offsets"
    for partition, offset, why in (
        (0, 1 << 31, ""),
        (1 << 31, 0, "Expected `Integer` value, received 2147483648\n"),
        (0, 1 << 63, "Expected `Long` value, received 9223372036854775808\n"),
        (True, 0, "Expected `Integer` value, received true\n"),
    ):
        file.write_text(json.dumps({"partitions": [{"topic": "t", "partition": partition, "offset": offset}]}))
        client = Mock()
        client.delete_records.side_effect = lambda before: Results(before, {})
        said = run(delete_records, "kafka-delete-records", client, "--offset-json-file", str(file))
        assert (said.code, said.err) == (bool(why), why)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("10", 10.0),
        ("-1.5e3", -1500.0),
        (" .5d ", 0.5),
        ("7.F", 7.0),
        ("Infinity", float("inf")),
        *((wrong, None) for wrong in ("inf", "nan", "1_000", "", "1e", "infinity")),
    ],
)
def test_a_quota_is_a_double_of_javas(text: str, value: float | None) -> None:
    client = Mock()
    client.describe_client_quotas.return_value = {}
    words = ("--alter", "--entity-type", "users", "--entity-name", "ann", "--add-config", f"producer_byte_rate={text}")
    said = run(config, "kafka-configs", client, *words)
    if value is None:
        assert (said.code, said.out) == (1, "")
        assert said.err == f"Cannot parse quota configuration value for producer_byte_rate: {text.strip()}\n"
    else:
        assert said.code == 0
        client.alter_client_quotas.assert_called_once_with([({"user": "ann"}, {"producer_byte_rate": value})])


@pytest.mark.parametrize("code", [ErrorCode.UNSUPPORTED_VERSION, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None])
def test_groups_are_described_where_a_broker_lists_no_settings_of_groups(code: ErrorCode | None) -> None:
    failure = KafkaError(code or ErrorCode.UNKNOWN_SERVER_ERROR, "no")
    client = Mock(list_config_resources=Mock(side_effect=failure), describe_config=Mock(return_value={}))
    client.list_groups.return_value = [SimpleNamespace(id="g")]
    said = run(config, "kafka-configs", client, "--describe", "--entity-type", "groups")
    assert (said.code, said.out) == ((0, "Dynamic configs for group g are:\n") if code else (1, ""))


@pytest.mark.parametrize("wrong", ["x", WIDE, "1_0"])
def test_the_broker_that_is_no_number_is_named(wrong: str) -> None:
    said = run(log_dirs, "kafka-log-dirs", Mock(), "--describe", "--broker-list", f"1,{wrong},2")
    assert (said.code, said.out, said.err) == (1, "", f'For input string: "{wrong}"\n')
