"""Cases that are met seldom: the end of a tool's road, where it says what is wrong or missing."""

from __future__ import annotations

import json
import shlex
from itertools import count
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from ottla.cli.kafka.perf import share_consumer_perf
from ottla.cli.kafka.program.tool import Failed
from ottla.cli.kafka.topics.reassignment_move import Plan
from ottla.cli.ottla import group
from ottla.cli.records.input import BadRecord, Shape, from_json, records
from ottla.cli.records.table_input import TYPES
from ottla.client import ErrorCode, KafkaError
from ottla.kernel.ids import uuid_text
from tests.cli.kafka_tool import kafka
from tests.cli.tool import Said, Tool, in_process


def run(bootstrap: str, line: str, typed: bytes = b"") -> Said:
    tool, *words = shlex.split(line.replace("@", f"--bootstrap-server {bootstrap}"))
    return kafka(tool, *words, typed=typed)


class TestConfigs:
    def test_every_name_needs_its_type(self, bootstrap: str) -> None:
        names = "--entity-type users --entity-name ann --entity-name bob"
        said = run(bootstrap, f"kafka-configs @ --describe {names}")
        assert said == (1, "", "More entity names specified than entity types\n")
        said = run(bootstrap, f"kafka-configs @ --alter --add-config consumer_byte_rate=1 {names}")
        assert said == (1, "", "An entity name must be specified for every entity type\n")

    def test_client_metrics_without_a_name_are_all_of_them_by_name(self, bootstrap: str) -> None:
        for name in ("second-metrics", "first-metrics"):
            said = run(bootstrap, f"kafka-client-metrics @ --alter --name {name} --interval 1000")
            assert said == (0, f"Altered client metrics config for {name}.\n", "")
        heads = run(bootstrap, "kafka-configs @ --describe --entity-type client-metrics").out.splitlines()[::2]
        assert [head for head in heads if "-metrics " in head.removeprefix("Dynamic configs for client-metric ")] == [
            "Dynamic configs for client-metric first-metrics are:",
            "Dynamic configs for client-metric second-metrics are:",
        ]


def test_two_kinds_of_servers_are_one_too_many(bootstrap: str) -> None:
    said = run(bootstrap, "kafka-features @ --bootstrap-controller localhost:1 describe")
    words = "You cannot specify both --bootstrap-controller and --bootstrap-server."
    assert said == (1, "", f"Command line error: {words}. Type --help for help.\n")


def test_a_reset_of_a_streams_group_needs_its_topics(bootstrap: str) -> None:
    """The options that Apache Kafka's words name are those of kafka-consumer-groups."""
    said = run(bootstrap, "kafka-streams-groups @ --reset-offsets --group g --to-earliest --dry-run")
    assert (said.code, said.out) == (1, "")
    assert said.err.splitlines()[0] == "One of the reset scopes should be defined: --all-topics, --topic."


class TestMetadataShell:
    def test_a_line_of_nothing_is_no_command(self, tmp_path: Path) -> None:
        from tests.cli.metadata_log import write

        said = kafka("kafka-metadata-shell", "--snapshot", str(write(tmp_path)), typed="\n''\n'' ''\npwd ''\n")
        assert said.out == "Loading...\nStarting...\n[ Kafka Metadata Shell ]\n>> >> >> >> /\n>> \n"


class TestVerifiableShareConsumer:
    def test_an_error_ends_it_with_its_last_event(self, bootstrap: str, topic: str) -> None:
        words = f"--topic {topic} --group-id {topic} --offset-reset-strategy middle"
        said = run(bootstrap, f"kafka-verifiable-share-consumer @ {words}")
        assert said.code == 0
        assert [json.loads(line)["name"] for line in said.out.splitlines()] == ["startup_complete", "shutdown_complete"]
        assert said.err.startswith(
            "ERROR Error during processing, terminating share consumer process: Invalid value middle for configuration "
            "share.auto.offset.reset: "
        )


class TestSharePerf:
    @pytest.mark.parametrize("error", [KeyboardInterrupt(), KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)])
    def test_what_ends_one_member_ends_all(self, monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
        """The others went on until their timeout, as after Ctrl-C. Here no time passes."""
        monkeypatch.setattr(share_consumer_perf, "_now_ms", lambda: 0)
        both_read = Event()
        polls = count()

        def poll(_: float) -> list[Any]:
            both_read.set()
            assert next(polls) < 1_000_000
            return []

        def fail(_: float) -> list[Any]:
            both_read.wait()
            raise error

        given: Any = {"topic": "t", "num-records": 1, "timeout": 1, "reporting-interval": 5000, "date-format": "HH:mm"}
        run = share_consumer_perf._Run(given)
        with pytest.raises(type(error)):
            run.read([Mock(poll=fail), Mock(poll=poll)], ["a", "b"])
        assert next(polls) < 1_000_000


class TestConsole:
    def test_a_reader_of_ones_own_is_refused(self, bootstrap: str, topic: str) -> None:
        said = run(bootstrap, f"kafka-console-producer @ --topic {topic} --line-reader my.Reader", b"a\n")
        why = "unsupported reader my.Reader (expected org.apache.kafka.tools.LineMessageReader)"
        assert said == (1, "", f"org.apache.kafka.common.KafkaException: {why}\n")

    def test_timestamps_of_a_topic_that_comes_later_are_those_of_the_default(self, bootstrap: str) -> None:
        words = "--formatter-property print.timestamp=true --command-property allow.auto.create.topics=false"
        said = run(bootstrap, f"kafka-console-consumer @ --topic comes-later --timeout-ms 300 {words}")
        assert (said.code, said.out) == (0, "")
        assert said.err.endswith("Processed a total of 0 messages\n")


class TestDumpLog:
    def test_a_file_that_is_not_there_is_told(self, tmp_path: Path) -> None:
        path = tmp_path / f"{7:020}.log"
        said = kafka("kafka-dump-log", "--files", str(path))
        assert said == (1, f"Dumping {path}\nLog starting offset: 7\n", f"{path}: No such file or directory\n")

    def test_a_snapshot_that_is_too_short_is_told_by_the_exit_code(self, tool: Tool, tmp_path: Path) -> None:
        path = tmp_path / f"{0:020}.snapshot"
        path.write_bytes(b"12345")
        said = tool("dump-log", str(path))
        assert said == (1, f"Dumping {path}\n", "a producer snapshot of 5 bytes is too short\n")
        # Apache's tool goes on with the next file.
        assert kafka("kafka-dump-log", "--files", str(path)) == (0, *said[1:])

    @pytest.mark.parametrize("words", ["--json {path}.snapshot", "--json --kafka {path}.log"])
    def test_only_batches_are_shown_as_json(self, tool: Tool, tmp_path: Path, words: str) -> None:
        path = tmp_path / f"{0:020}"
        for suffix in (".snapshot", ".log"):
            path.with_suffix(suffix).touch()
        said = tool("dump-log", *words.format(path=path).split())
        assert (said.code, said.out) == (2, "")
        assert said.err.startswith("ottla: --json needs .log or .checkpoint, without --kafka: ")

    def test_the_first_snapshot_is_one_of_the_metadata(self, tool: Tool, tmp_path: Path) -> None:
        assert (
            in_process("storage", "format", "-t", "AAAAAAAAAAAAAAAAAAAAAQ", "-s", "-c", str(_config(tmp_path))).code
            == 0
        )
        said = tool("dump-log", "-r", str(tmp_path / "data" / "bootstrap.checkpoint"))
        assert "metadata.version" in said.out


def _config(directory: Path) -> Path:
    path = directory / "server.properties"
    path.write_text(
        f"process.roles=broker,controller\nnode.id=1\nlog.dirs={directory / 'data'}\ncontroller.listener.names=C\n"
        "controller.quorum.bootstrap.servers=localhost:19093\n"
        "listeners=B://localhost:19092,C://localhost:19093\nlistener.security.protocol.map=B:PLAINTEXT,C:PLAINTEXT\n"
        "inter.broker.listener.name=B\n"
    )
    return path


def test_formatted_directories_are_told_as_json(tool: Tool, tmp_path: Path) -> None:
    words = ("storage", "format", "-t", uuid_text(bytes(15) + b"\1"), "-s", "-c", str(_config(tmp_path)), "--json")
    said = tool(*words)
    assert (said.code, said.err) == (0, "")
    assert said.json["cluster"] == "AAAAAAAAAAAAAAAAAAAAAQ"
    (line,) = said.json["done"]
    assert line.startswith(f"Formatting dynamic metadata voter directory {tmp_path / 'data'} with metadata.version ")
    again = tool(*words, "-g")
    assert again.json == {
        "cluster": said.json["cluster"],
        "done": ["All of the log directories are already formatted."],
    }


def test_an_unknown_shell_is_named(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    said = tool("completion")
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("ottla: no completion for tcsh (expected bash, zsh, fish)\n")


def test_a_group_that_is_gone_is_left_out_and_another_error_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    listing: Any = SimpleNamespace(id="g", type="consumer")
    look = Mock(side_effect=KafkaError(ErrorCode.GROUP_ID_NOT_FOUND))
    monkeypatch.setattr(group, "look", look)
    assert group._look(Mock(), listing) is None
    look.side_effect = KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaError, match="GROUP_AUTHORIZATION_FAILED"):
        group._look(Mock(), listing)


class TestPrograms:
    """Files of programs for `ottla streams`."""

    @pytest.mark.parametrize(
        ("text", "why"),
        [
            ("def app():\n    raise ValueError('none')\n", "{path}:2: ValueError: none"),
            ("def app(topic):\n    pass\n", "{path}: TypeError: app() missing 1 required positional argument: 'topic'"),
            ("def app():\n    return 5\n", "app in {path} is of type int (expected an application, the result of "),
            ("from ottla.kernel.error import OttlaError\nraise OttlaError('own words')\n", "own words"),
        ],
    )
    def test_an_error_of_a_program_is_one_line(self, tool: Tool, tmp_path: Path, text: str, why: str) -> None:
        path = tmp_path / "program.py"
        path.write_text(text)
        for name in ("", ":app")[: 1 + ("def app" in text)]:
            said = tool("streams", "describe", f"{path}{name}")
            assert (said.code, said.out) == (1, "")
            assert said.err.startswith(f"ottla: {why.format(path=path)}")
            assert said.err.count("\n") == 1

    def test_a_directory_and_another_kind_of_file_are_told(self, tool: Tool, tmp_path: Path) -> None:
        (tmp_path / "program.txt").touch()
        said = tool("streams", "run", str(tmp_path))
        assert said == (1, "", f"ottla: {tmp_path} is a directory: name the file of the program in it\n")
        said = tool("streams", "run", str(tmp_path / "program.txt"))
        why = f"{tmp_path / 'program.txt'} is not a Python file (expected a name that ends in .py)"
        assert said == (1, "", f"ottla: {why}\n")


def test_a_plan_with_one_partition_without_replicas_is_refused() -> None:
    full = '{"topic": "t", "partition": 0, "replicas": [1]}'
    plan = Plan.read(f'{{"partitions": [{full}, {full.replace("0", "1").replace("[1]", "[]")}]}}')
    with pytest.raises(Failed, match="Partition replica list cannot be empty"):
        plan.check()


def test_what_is_wrong_is_quoted_as_it_was_written() -> None:
    line = '{"value": "a", "timestamp": "août"}'.encode()
    with pytest.raises(BadRecord, match='has an invalid timestamp: "août"'):
        list(records([line], from_json(Shape())))


def test_a_cell_is_true_or_false() -> None:
    cells = {"true": True, "TRUE": True, "1": True, "false": False, "False": False, "0": False}
    assert {cell: TYPES["bool"](cell) for cell in cells} == cells


def test_waiting_for_records_says_for_which(bootstrap: str, topic: str) -> None:
    from tests.cli.tool import CTRL_C, on_terminal

    for words, what in (
        (("-s", "earliest"), "waiting for records"),
        ((), "waiting for new records (--from-beginning shows existing ones)"),
    ):
        said = on_terminal("consume", topic, *words, typed=[("waiting for", CTRL_C)], OTTLA_BOOTSTRAP_SERVERS=bootstrap)
        assert what in said.out


def test_a_node_of_a_local_cluster_may_have_the_number_0(tool: Tool, tmp_path: Path) -> None:
    """A single node that `ottla cluster grow` made one of three keeps its number."""
    for action in ("kill", "stop", "restart", "drain"):
        said = tool("cluster", action, "0", "-d", str(tmp_path))
        assert (said.code, said.out) == (1, "")
        assert "there is no cluster in" in said.err
