"""Wrong texts, files and numbers beyond all bounds, on the command line: a line that says so, and no traceback."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from ottla.cli.kafka.groups.consumer_group_reset import duration_ms, timestamp
from ottla.cli.kafka.program.tool import Failed
from ottla.cli.ottla.storage import _levels
from ottla.client import Consumer, TopicPartition
from tests.cli.kafka_tool import kafka
from tests.cli.tool import Said, Tool

WIDER = str(1 << 63)
FOREVER = "9" * 20


def run(bootstrap: str, line: str, typed: bytes = b"") -> Said:
    tool, *words = shlex.split(line.replace("@", f"--bootstrap-server {bootstrap}"))
    return kafka(tool, *words, typed=typed)


_SCRAM = (
    "kafka-configs @ --alter --entity-type users --entity-name ann "
    "--add-config SCRAM-SHA-256=[iterations={},password=x]"
)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (_SCRAM.format("-"), 'For input string: "-"'),
        (_SCRAM.format(FOREVER), f'For input string: "{FOREVER}"'),
        (
            _SCRAM.format("").replace("iterations=", "iteration=1"),
            "Invalid credential property SCRAM_SHA_256=iteration=1,",
        ),
        (
            "kafka-features @ upgrade --feature metadata.version=32768",
            "Can't parse feature=level string metadata.version=32768: unable to parse 32768 as a short.",
        ),
        ("kafka-features @ upgrade --feature kraft.version=0_1", "unable to parse 0_1 as a short."),
        ("kafka-console-consumer @ --include [", "[ is an invalid regex."),
        ("kafka-consumer-perf-test @ --include [ --num-records 1", "[ is an invalid regex."),
        ("kafka-console-consumer @ --topic t --partition -1", "Cannot parse argument '-1' of option partition"),
        (
            f"kafka-console-consumer @ --topic t --partition 0 --offset {WIDER}",
            f"The provided offset value '{WIDER}' is incorrect. Valid values are 'earliest', 'latest', or a ",
        ),
        (
            "kafka-leader-election @ --election-type preferred --topic t --partition -1",
            "Cannot parse argument '-1' of option partition",
        ),
        (
            "kafka-transactions @ describe-producers --topic t --partition -1",
            "argument --partition: could not convert '-1' to Integer",
        ),
        (
            "kafka-transactions @ find-hanging --topic t --partition -1",
            "argument --partition: could not convert '-1' to Integer",
        ),
        ("kafka-verifiable-producer @ --topic t --repeating-keys 0", "--repeating-keys: must be greater than zero"),
        (
            "kafka-producer-perf-test @ --topic t --num-records 1 --throughput 1 --payload-file x --payload-delimiter=",
            "--payload-delimiter should not be empty.",
        ),
    ],
)
def test_a_wrong_text_is_told_in_one_line(bootstrap: str, line: str, sentence: str) -> None:
    said = run(bootstrap, line)
    assert (said.code, said.err.count(sentence)) == (1, 1), said


@pytest.mark.parametrize(
    "line",
    [
        "kafka-delete-records @ --offset-json-file FILE",
        "kafka-leader-election @ --election-type preferred --path-to-json-file FILE",
        "kafka-reassign-partitions @ --execute --reassignment-json-file FILE",
        "kafka-reassign-partitions @ --generate --broker-list 1 --topics-to-move-json-file FILE",
    ],
)
@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b'{"partitions": [{"topic": "\xff"}]}', "Unable to read file FILE: byte 27 is not UTF-8"),
        (b"[" * 100_000, "The input string is not a valid JSON|Replica election data is empty"),
        (
            b'{"partitions": 5, "topics": 5}',
            'Expected JSON array, received 5|Missing partitions field|data is missing "partitions" field',
        ),
        (b"[]", 'Expected JSON object, received []|Missing partitions field|data is missing "partitions" field'),
        (
            b'{"partitions": [5], "topics": [5]}',
            "Expected JSON object, received 5",
        ),
    ],
)
def test_a_file_that_is_not_what_it_should_be_is_told(
    bootstrap: str, line: str, content: bytes, sentence: str, tmp_path: Path
) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(content)
    said = run(bootstrap, line.replace("FILE", str(path)))
    told = (said.out + said.err).strip()
    assert said.code == 1
    assert any(each.replace("FILE", str(path)) in told for each in sentence.split("|")), said
    assert told.count("\n") == 0


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ('"partition": 0, "replicas": ["1"]', 'Expected `Integer` value, received "1"'),
        ('"partition": 0, "replicas": [true]', "Expected `Integer` value, received true"),
        ('"partition": 0, "replicas": 1', "Expected `JSON array` value, received 1"),
        ('"partition": 0, "replicas": [1], "log_dirs": 5', "Expected JSON array, received 5"),
        ('"partition": 0, "replicas": [1], "log_dirs": [5]', "Expected `String` value, received 5"),
        ('"partition": 0, "replicas": [1], "log_dirs": []', "Size of replicas list [1] is different from size of log"),
    ],
    ids=["text", "bool", "number", "directories", "directory", "none"],
)
def test_a_plan_of_wrong_types_moves_nothing(
    bootstrap: str, topic: str, fields: str, sentence: str, tmp_path: Path
) -> None:
    path = tmp_path / "plan.json"
    path.write_text(f'{{"partitions": [{{"topic": "{topic}", {fields}}}]}}')
    for action in ("--execute", "--verify", "--cancel"):
        said = run(bootstrap, f"kafka-reassign-partitions @ {action} --reassignment-json-file {path}")
        assert (said.code, said.err) == (1, "")
        assert said.out.startswith(f"Error: {sentence}")


@pytest.mark.parametrize(
    "tool",
    [
        "kafka-delete-records @ --offset-json-file",
        "kafka-leader-election @ --election-type preferred --path-to-json-file",
    ],
)
def test_a_partition_below_zero_in_a_file_is_told(bootstrap: str, tool: str, tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_text('{"partitions": [{"topic": "t", "partition": -1, "offset": 0}]}')
    said = run(bootstrap, f"{tool} {path}")
    assert (said.code, said.out, said.err) == (1, "", "Invalid partition of t: -1 (expected 0 or more)\n")


def test_offsets_of_a_partition_below_zero_are_not_deleted(bootstrap: str) -> None:
    said = run(bootstrap, "kafka-consumer-groups @ --group g --delete-offsets --topic t:-1")
    assert said.err == "Invalid partition of t: -1 (expected 0 or more)\n"


def test_a_plan_of_offsets_with_a_partition_below_zero_is_refused(bootstrap: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.csv"
    path.write_text("t,-1,5\n")
    said = run(bootstrap, f"kafka-consumer-groups @ --group g --reset-offsets --dry-run --from-file {path}")
    assert said.err == f"{path}, line 1: expected topic,partition,offset or group,topic,...\n"


class TestConsoleProducer:
    def headers(self, bootstrap: str, topic: str, separator: str, line: bytes) -> Said:
        said = run(
            bootstrap,
            f"kafka-console-producer @ --topic {topic} --reader-property parse.headers=true "
            f"--reader-property 'headers.separator={separator}'",
            line,
        )
        if said.code:
            return said
        return run(
            bootstrap,
            f"kafka-console-consumer @ --topic {topic} --from-beginning --max-messages 1 --timeout-ms 10000 "
            "--formatter-property print.headers=true",
        )

    @pytest.mark.parametrize(
        ("separator", "line", "shown"),
        [
            (",", b"a:1,b:2,,\tv\n", "a:1,b:2\tv\n"),
            ("(;|,)", b"a:1;b:2,c:3\tv\n", "a:1,b:2,c:3\tv\n"),
            (",", b",\tv\n", "NO_HEADERS\tv\n"),
        ],
    )
    def test_headers_are_separated_as_java_splits_by_a_pattern(
        self, bootstrap: str, topic: str, separator: str, line: bytes, shown: str
    ) -> None:
        assert self.headers(bootstrap, topic, separator, line).out == shown

    def test_a_separator_that_is_no_pattern_is_told(self, bootstrap: str, topic: str) -> None:
        said = self.headers(bootstrap, topic, "(", b"a:1\tv\n")
        assert (said.code, said.err) == (1, "org.apache.kafka.common.KafkaException: ( is an invalid regex.\n")

    def test_a_missing_separator_is_told_with_the_whole_line(self, bootstrap: str, topic: str) -> None:
        said = run(
            bootstrap,
            f"kafka-console-producer @ --topic {topic} --reader-property parse.headers=true "
            "--reader-property parse.key=true",
            b"a:1\tkey\tvalue\na:1\tvalue\n",
        )
        assert said.code == 1
        assert said.err.endswith("KafkaException: No key separator found on line number 2: 'a:1\tvalue'\n")

    def test_a_timeout_that_is_no_number_is_told(self, bootstrap: str, topic: str) -> None:
        said = run(bootstrap, f"kafka-console-producer @ --topic {topic} --command-property request.timeout.ms=soon")
        assert said.code == 1
        assert said.err.startswith("invalid value for request.timeout.ms: 'soon' (expected a whole number")


@pytest.mark.parametrize(
    ("delimiter", "payloads"),
    [("\\n", [b"a\xff\r", b"b;c"]), (";", [b"a\xff\r\nb", b"c\n"]), ("\n", [b"a\xff\r", b"b;c"])],
)
def test_payloads_are_the_bytes_of_the_file(
    bootstrap: str, topic: str, delimiter: str, payloads: list[bytes], tmp_path: Path
) -> None:
    path = tmp_path / "payloads"
    path.write_bytes(b"a\xff\r\nb;c\n")
    words = f"--topic {topic} --num-records 20 --throughput -1 --payload-file {path}"
    said = run(bootstrap, f"kafka-producer-perf-test @ {words} --payload-delimiter '{delimiter}'")
    assert said.code == 0
    assert "Number of records read: 2\n" in said.out
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0), TopicPartition(topic, 1)])
        seen: list[bytes | None] = []
        while len(seen) < 20:
            seen += [record.value for record in consumer.poll(1)]
    assert sorted(set(seen), key=str) == payloads


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        # What Java's SimpleDateFormat reads, which counts milliseconds after the point.
        ("2021-01-01T00:00:00.1Z", 1609459200001),
        ("2021-01-01T00:00:00.0001Z", 1609459200001),
        ("2021-1-1T0:0:0.0", 1609459200000),
        ("2021-01-01T00:00:00.999+01", 1609455600999),
        ("2021-01-01T00:00:00.999-01:30", 1609464600999),
        ("1969-12-31T23:59:59.999Z", -1),
        ("2021-01-01T00:00:00.1234Z", None),
        ("2021-13-01T00:00:00.000Z", None),
        ("2021-01-01T00:00:00.000+25:00", None),
        ("0000-01-01T00:00:00.000", None),
        ("2021-01-01T00:00:00", None),
    ],
)
def test_a_time_is_read_as_java_reads_it(text: str, milliseconds: int | None) -> None:
    if milliseconds is not None:
        assert timestamp(text) == milliseconds
        return
    with pytest.raises(Failed, match="Unparseable date"):
        timestamp(text)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("PT-1.5S", -1500), ("PT-0.5S", -500), ("-PT-1.5S", 1500), ("PT1.5S", 1500), ("P1DT-0.001S", 86_399_999)],
)
def test_the_fraction_of_a_duration_has_the_sign_of_its_seconds(text: str, milliseconds: int) -> None:
    assert duration_ms(text) == milliseconds


@pytest.mark.parametrize("text", [f"PT{FOREVER}S", f"-P{FOREVER}D"])
def test_a_duration_beyond_all_dates_is_refused(text: str) -> None:
    with pytest.raises(Failed, match="Text cannot be parsed to a Duration: it is too long"):
        duration_ms(text)


class TestOttla:
    @pytest.mark.parametrize("when", ["1969-12-31T23:59:59.999Z", "1969-12-31T23:59:59.998Z", "3000w"])
    def test_a_time_before_1970_is_the_beginning(self, tool: Tool, topic: str, when: str) -> None:
        """As a timestamp it would be -1, the end of the log: `trim` deleted all records."""
        assert tool("perf", "produce", topic, "-n", "3", "-s", "1").code == 0
        assert len(tool("consume", topic, "-s", when, "-e").out.splitlines()) == 3
        assert tool("topics", "trim", topic, "--before", when, "-y").code == 0
        assert len(tool("consume", topic, "-s", "earliest", "-e").out.splitlines()) == 3
        assert tool("consume", topic, "-e", "--until", when).out == ""

    @pytest.mark.parametrize(
        ("words", "sentence"),
        [
            (f"consume {{topic}} -e -s @{WIDER}", f"invalid place: @{WIDER} (expected earliest, latest, an offset"),
            (
                f"consume {{topic}} -e --until @{WIDER}",
                f"invalid place: @{WIDER} (expected earliest, latest, an offset",
            ),
            (f"tokens create --max-life-time {WIDER}", f"{WIDER}: expected a time span (7d, 12h), milliseconds, or -1"),
            (f"tokens create --max-life-time {FOREVER}d", f"{FOREVER}d: expected a time span (7d, 12h)"),
            ("topics create t -p 2147483648", "2147483648 is more than 2147483647"),
            ("topics create t -r 32768", "32768 is more than 32767"),
            ("topics grow t -p 2147483648", "2147483648 is more than 2147483647"),
            ("features set metadata.version=32768", "metadata.version=32768: expected a whole number below 32768"),
            (
                "topics create t --config retention.ms=1",
                "--config retention.ms=1: expected a file; for settings of a topic use --set KEY=VALUE",
            ),
        ],
        ids=range(9),
    )
    def test_a_number_beyond_the_bounds_is_a_mistake(self, tool: Tool, topic: str, words: str, sentence: str) -> None:
        said = tool(*words.format(topic=topic).split())
        assert (said.code, said.out) == (2, "")
        assert sentence in said.err

    def test_the_latest_moment_there_is(self, tool: Tool, topic: str) -> None:
        said = tool("consume", topic, "-e", "-s", f"@{(1 << 63) - 1}")
        assert (said.code, said.out, said.err) == (0, "", "")

    def test_a_level_has_sixteen_bits(self) -> None:
        import click

        assert _levels(("group.version=32767",)) == {"group.version": 32767}
        with pytest.raises(click.UsageError, match="the level must be a whole number below 32768"):
            _levels(("group.version=32768",))
