"""`ottla produce` and `ottla consume`: what goes in comes out."""

import json
import os
import shlex
import signal
import subprocess
from pathlib import Path

import pytest

from ottla.client import Producer
from tests.cli.shown_scene import run
from tests.cli.tool import OTTLA, Said, Tool, in_process, on_terminal


def consume(bootstrap: str, *arguments: str) -> Said:
    return Said(*run("ottla", ["consume", "-b", bootstrap, *arguments], "", terminal=False))


def produce(bootstrap: str, stdin: str, *arguments: str) -> Said:
    return Said(*run("ottla", ["produce", "-b", bootstrap, *arguments], stdin, terminal=False))


def test_lines_come_out_as_they_went_in(bootstrap: str, topic: str) -> None:
    wrote = produce(bootstrap, "one\ntwo\r\n\nthree", topic, "-p", "0")
    assert wrote.code == 0
    assert wrote.err.startswith(f"4 records written to {topic} in ")
    read = consume(bootstrap, topic, "--from-beginning", "-e")
    assert (read.code, read.out) == (0, "one\ntwo\n\nthree\n")


def test_a_key_stands_before_its_separator(bootstrap: str, topic: str) -> None:
    assert produce(bootstrap, "a:1\nb:2:3\n", topic, "-K", ":", "-p", "1").code == 0
    assert consume(bootstrap, topic, "--from-beginning", "-e", "-k").out == "a\t1\nb\t2:3\n"
    without = produce(bootstrap, "no separator\n", topic, "-K", ":")
    assert without.code == 1
    assert "line 1 has no key separator" in without.err


def test_a_record_in_json_is_whole(bootstrap: str, topic: str) -> None:
    lines: list[dict[str, object]] = [
        {"key": "k", "value": "v", "timestamp": 1234, "headers": [["h", "1"], ["n", None]]},
        {"key": None, "value": None, "timestamp": 1235, "headers": []},
        {"key": {"base64": "/w=="}, "value": {"base64": "gIE="}, "timestamp": 1236, "headers": []},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    assert produce(bootstrap, text, topic, "--format", "json", "-p", "1").code == 0
    read = [json.loads(line) for line in consume(bootstrap, topic, "-s", "earliest", "-e", "--json").out.splitlines()]
    assert [{name: each[name] for name in lines[0]} for each in read] == lines
    assert [(each["topic"], each["partition"], each["offset"]) for each in read] == [(topic, 1, n) for n in range(3)]


def test_a_topic_is_copied_through_a_pipe(bootstrap: str, tool: Tool, topic: str) -> None:
    produce(bootstrap, "k1:v1\nk2:v2\nk3:\n", topic, "-K", ":", "-H", "h=x")
    records = consume(bootstrap, topic, "--from-beginning", "-e", "--json").out
    assert produce(bootstrap, records, "copied_from_a_pipe", "--create", "--format", "json").code == 0
    copied = consume(bootstrap, "copied_from_a_pipe", "--from-beginning", "-e", "--json").out
    content = [sorted(_content(line) for line in text.splitlines()) for text in (records, copied)]
    assert content[0] == content[1]
    assert len(content[0]) == 3


def _content(line: str) -> str:
    found = json.loads(line)
    return json.dumps([found["key"], found["value"], found["headers"], found["timestamp"]])


@pytest.mark.parametrize(
    ("start", "values"),
    [("earliest", "0 1 2 3 4"), ("latest", ""), ("3", "3 4"), ("-2", "3 4"), ("1970-01-01T00:00:10.003+00:00", "3 4")],
)
def test_reading_begins_where_it_is_told(bootstrap: str, topic: str, start: str, values: str) -> None:
    lines = "".join(json.dumps({"value": str(n), "timestamp": 10_000 + n}) + "\n" for n in range(5))
    assert produce(bootstrap, lines, topic, "--format", "json", "-p", "0").code == 0
    read = consume(bootstrap, topic, "-s", start, "-e", "-p", "0")
    assert read.code == 0, read.err
    assert read.out.split() == values.split()


def test_a_count_ends_reading(bootstrap: str, topic: str) -> None:
    produce(bootstrap, "".join(f"{n}\n" for n in range(100)), topic, "-p", "0")
    assert consume(bootstrap, topic, "--from-beginning", "-n", "3").out == "0\n1\n2\n"


def test_a_group_goes_on_where_it_was(bootstrap: str, topic: str) -> None:
    group = f"{topic}_group"
    produce(bootstrap, "1\n2\n", topic)
    first = consume(bootstrap, topic, "-g", group, "--from", "earliest", "-e")
    assert sorted(first.out.split()) == ["1", "2"]
    produce(bootstrap, "3\n", topic)
    assert consume(bootstrap, topic, "-g", group, "-e").out.split() == ["3"]
    described = in_process("groups", "describe", group, "--json", OTTLA_BOOTSTRAP_SERVERS=bootstrap).json
    assert [each["lag"] for each in described["partitions"]] == [0, 0]


def test_a_reader_that_goes_away_is_no_error(bootstrap: str, topic: str) -> None:
    produce(bootstrap, "".join(f"{n:0100}\n" for n in range(20_000)), topic, "-p", "0")
    reader = subprocess.Popen(
        [*OTTLA, "consume", topic, "--from-beginning", "-b", bootstrap], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert reader.stdout is not None
    assert reader.stderr is not None
    assert reader.stdout.readline() == f"{0:0100}\n".encode()
    reader.stdout.close()
    assert (reader.wait(30), reader.stderr.read()) == (0, b"")
    reader.stderr.close()


def test_what_follows_is_shown_until_control_c(bootstrap: str, topic: str) -> None:
    reader = subprocess.Popen(
        [*OTTLA, "consume", topic, "--from-beginning", "-b", bootstrap], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert reader.stdout is not None
    for word in (b"first", b"second"):
        produce(bootstrap, word.decode(), topic)
        assert reader.stdout.readline() == word + b"\n"
    os.kill(reader.pid, signal.SIGINT)
    reader.communicate(timeout=30)
    assert reader.returncode == 0


def test_what_is_typed_is_written_line_by_line(bootstrap: str, topic: str) -> None:
    keys = [(f"{topic}> ", line) for line in (b"hello\n", b"world\n", b"\x04")]
    typed = on_terminal("produce", topic, typed=keys, OTTLA_BOOTSTRAP_SERVERS=bootstrap)
    assert typed.code == 0
    assert typed.out.count("offset") == 2
    assert sorted(consume(bootstrap, topic, "--from-beginning", "-e").out.split()) == ["hello", "world"]


def test_nothing_is_asked_for_when_there_is_no_topic(bootstrap: str, topic: str) -> None:
    missing = f"{topic}_2"
    typed = on_terminal("produce", missing, typed=[(f"{missing}> ", b"\x04")], OTTLA_BOOTSTRAP_SERVERS=bootstrap)
    assert typed.code == 1
    assert f"there is no topic {missing}" in typed.out and f"{missing}> " not in typed.out


def test_stdin_goes_before_a_file_with_the_name_of_the_topic(
    bootstrap: str, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / topic).touch()
    words = ["import", "-b", bootstrap, "-", topic, "--format", "csv", "--dry-run", "--json"]
    said = Said(*run("ottla", words, "id\n1\n2\n", terminal=False))
    assert (said.code, said.err) == (0, "") and said.json["records"] == 2


def test_a_record_is_decorated_on_a_terminal(bootstrap: str, topic: str) -> None:
    produce(bootstrap, "key:value\n", topic, "-K", ":", "-p", "1", "-H", "name=content")
    shown = on_terminal("consume", topic, "--from-beginning", "-e", OTTLA_BOOTSTRAP_SERVERS=bootstrap)
    assert "1:0" in shown.out
    assert "\x1b[36mkey\x1b[0m  value" in shown.out
    assert "name=content" in shown.out


def test_a_record_does_not_steer_the_terminal(bootstrap: str, topic: str) -> None:
    evil = "\x1b]0;title\x07\x1b[2J\u202e"
    produce(bootstrap, f"{evil}:{evil}\n", topic, "-K", ":", "-H", f"name={evil}")
    shown = on_terminal("consume", topic, "--from-beginning", "-e", OTTLA_BOOTSTRAP_SERVERS=bootstrap).out
    assert shown.count(r"\x1b]0;title\x07\x1b[2J\u202e") == 3
    assert not any(each in shown for each in ("\x1b]", "\x1b[2J", "\u202e"))
    assert consume(bootstrap, topic, "--from-beginning", "-e").out == f"{evil}\n"


def test_a_bar_on_the_terminal_leaves_results_in_their_file(bootstrap: str, topic: str, tmp_path: Path) -> None:
    produce(bootstrap, "".join(f"{n}\n" for n in range(3000)), topic, "-p", "0")
    command = f"{shlex.join(OTTLA)} consume {topic} --from-beginning -e > {tmp_path}/out"
    shown = on_terminal(command=["sh", "-c", command], OTTLA_BOOTSTRAP_SERVERS=bootstrap)
    assert (tmp_path / "out").read_text() == "".join(f"{n}\n" for n in range(3000))
    assert "\n2999\n" not in shown.out


def test_a_line_that_is_no_json_is_named(bootstrap: str, topic: str) -> None:
    said = produce(bootstrap, '{"value": "good"}\nbad\n', topic, "--format", "json")
    assert said.code == 1
    assert "line 2 is not JSON" in said.err


def test_reading_a_topic_that_is_not_there_is_one_line(tool: Tool) -> None:
    said = tool("consume", "nowhere", "-e")
    assert said.code == 1
    assert "there is no topic" in said.err
    assert tool("consume", "nowhere", "-g", "g", "-s", "100").code == 2


def test_a_partition_that_is_not_there_is_named(bootstrap: str, topic: str) -> None:
    read = consume(bootstrap, topic, "-p", "77", "-e")
    assert (read.code, read.out) == (1, "")
    assert f"{topic} has no partition 77" in read.err


def test_committed_leaves_open_and_aborted_transactions_out(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap, transactional_id=topic) as producer:
        producer.init_transactions()
        for value, ends in ((b"kept", True), (b"dropped", False)):
            producer.begin_transaction()
            producer.send(topic, value, partition=0)
            producer.flush()
            (producer.commit_transaction if ends else producer.abort_transaction)()
        producer.begin_transaction()
        producer.send(topic, b"open", partition=0)
        producer.flush()
        assert consume(bootstrap, topic, "-e", "--committed").out == "kept\n"
        assert consume(bootstrap, topic, "-e").out == "kept\ndropped\nopen\n"
        producer.abort_transaction()
