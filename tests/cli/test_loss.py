"""What a tool could lose, double or write wrongly: each of these was a way once."""

import json
import os
import shlex
import signal
import subprocess
from pathlib import Path

import pytest

from ottla.client import Admin, Consumer, Producer, TopicPartition
from tests.cli.shown_scene import run
from tests.cli.tool import OTTLA, Said, Tool, in_process, on_terminal


def ottla(bootstrap: str, *arguments: str, stdin: str = "") -> Said:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("OTTLA_BOOTSTRAP_SERVERS", bootstrap)
        return Said(*run("ottla", list(arguments), stdin, terminal=False))


def fill(bootstrap: str, topic: str, count: int, partition: int = 0) -> None:
    with Producer(bootstrap) as producer:
        for number in range(count):
            producer.send(topic, str(number), partition=partition)


def committed(bootstrap: str, group: str) -> dict[int, int]:
    with Admin(bootstrap) as admin:
        return {each.partition: one.offset for each, one in admin.list_group_offsets(group).items()}


def values(bootstrap: str, topic: str) -> list[bytes | None]:
    with Admin(bootstrap) as admin:
        parts = [TopicPartition(topic, each.partition) for each in admin.describe_topic(topic).partitions]
    with Consumer(bootstrap) as consumer:
        consumer.assign(parts)
        consumer.seek_to_beginning(parts)
        ends = consumer.end_offsets(parts)
        found = []
        while any(consumer.position(each) < ends[each] for each in parts):
            found += [record.value for record in consumer.poll(0.2)]
    return found


def test_a_group_commits_what_a_count_has_shown(bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, 1200)
    words = ("consume", topic, "-g", f"{topic}_g", "-s", "earliest", "-n", "2")
    assert [ottla(bootstrap, *words).out.split() for _ in range(3)] == [["0", "1"], ["2", "3"], ["4", "5"]]
    assert committed(bootstrap, f"{topic}_g")[0] == 6


def test_a_reader_that_goes_away_leaves_what_it_did_not_take(bootstrap: str, topic: str) -> None:
    fill(bootstrap, topic, 3000)
    words = shlex.join([*OTTLA, "consume", topic, "-g", f"{topic}_g", "-e"])
    done = subprocess.run(
        ["sh", "-c", f"{words} | head -2"],
        env=os.environ | {"OTTLA_BOOTSTRAP_SERVERS": bootstrap},
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == b"0\n1\n"
    assert committed(bootstrap, f"{topic}_g").get(0, 0) <= 2


def test_a_queue_gives_back_what_its_reader_did_not_take(bootstrap: str, tool: Tool, topic: str) -> None:
    fill(bootstrap, topic, 10)
    group = f"{topic}_queue"
    assert tool("configs", "set", "group", group, "share.auto.offset.reset=earliest").code == 0
    assert ottla(bootstrap, "consume", topic, "--share", group, "-n", "4").out.split() == ["0", "1", "2", "3"]
    assert sorted(ottla(bootstrap, "consume", topic, "--share", group, "-n", "6").out.split()) == list("456789")


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ('{"id": 1, "price": 2}', "id"),
        ('{"key": "k", "vlaue": "v"}', "vlaue"),
        ('{"key": "k"}', 'no "value"'),
        ('{"value": 1, "timestamp": 5.5}', "timestamp"),
        ('{"value": 1, "timestamp": "2024"}', "timestamp"),
        ('{"value": 1, "timestamp": true}', "timestamp"),
        ('{"value": 1, "timestamp": -5}', "timestamp"),
        ('{"value": 1, "headers": 5}', "headers"),
        ('{"value": 1, "headers": ["ab"]}', "headers"),
        ('{"value": 1, "headers": [["a", "b", "c"]]}', "headers"),
        ('{"value": {"base64": 5}}', "base64"),
        ('{"value": {"base64": "%%%"}}', "base64"),
        ("[1]", "object"),
        ("oops", "JSON"),
        ("[" * 100_000, "JSON"),
    ],
)
def test_a_record_in_json_that_is_none_is_named_by_its_line(bootstrap: str, topic: str, line: str, wrong: str) -> None:
    said = ottla(bootstrap, "produce", topic, "-F", "json", stdin=f'{{"value": "good"}}\n{line}\n')
    assert (said.code, said.out) == (1, "")
    assert said.err.startswith("ottla: line 2")
    assert wrong in said.err
    assert "Traceback" not in said.err
    assert values(bootstrap, topic) == [b"good"]


def test_headers_in_json_may_be_an_object(bootstrap: str, topic: str) -> None:
    line = '{"value": "v", "headers": {"a": "1", "b": null}}'
    assert ottla(bootstrap, "produce", topic, "-F", "json", stdin=line).code == 0
    assert json.loads(ottla(bootstrap, "consume", topic, "-e", "--json").out)["headers"] == [["a", "1"], ["b", None]]


def test_lines_of_json_are_values_with_a_format_of_their_own(bootstrap: str, topic: str) -> None:
    lines = '{"id": 1, "who": "ann"}\n{"id":2, "who":"bob"}\n'
    said = ottla(bootstrap, "produce", topic, "-F", "jsonl", "--key", "who", "-H", "id", "-p", "0", stdin=lines)
    assert said.code == 0, said.err
    read = [json.loads(each) for each in ottla(bootstrap, "consume", topic, "-e", "--json").out.splitlines()]
    assert [each["value"] for each in read] == [{"id": 1, "who": "ann"}, {"id": 2, "who": "bob"}]
    assert [each["key"] for each in read] == ["ann", "bob"]
    assert [each["headers"] for each in read] == [[["id", "1"]], [["id", "2"]]]
    assert values(bootstrap, topic) == [line.encode() for line in lines.splitlines()]
    bad = ottla(bootstrap, "produce", topic, "-F", "jsonl", "--key", "name", stdin=lines)
    assert (bad.code, "line 1 has no field name" in bad.err) == (1, True)


def test_a_copy_through_a_pipe_keeps_every_byte_of_a_value(bootstrap: str, tool: Tool, topic: str) -> None:
    written = [
        b'{"a": 1}',
        b'{"a":1}',
        b'{"price":1.50}',
        b'"text"',
        b"5",
        b'{"base64":"aaaa"}',
        b"[1,\t2]",
        b"\xff",
        b"{",
    ]
    with Producer(bootstrap) as producer:
        for value in written:
            producer.send(topic, value, key=value, partition=0)
    lines = ottla(bootstrap, "consume", topic, "-e", "--json").out
    assert [json.loads(line)["value"] for line in lines.splitlines()][:3] == [{"a": 1}, {"a": 1}, {"price": 1.5}]
    assert ottla(bootstrap, "produce", topic, "-F", "json", "-p", "1", stdin=lines).code == 0
    assert values(bootstrap, topic) == written * 2


@pytest.mark.parametrize(
    "words",
    [
        "topics delete {topic}",
        "topics trim {topic} --before latest",
        "groups delete {topic}_g",
        "groups reset {topic}_g {topic} --to latest",
        "groups forget {topic}_g {topic}",
        "acls remove ann",
        "transactions fence {topic}",
        "partitions elect --unclean",
    ],
)
def test_nothing_is_destroyed_without_a_question_or_a_yes(bootstrap: str, topic: str, words: str) -> None:
    fill(bootstrap, topic, 3)
    with Admin(bootstrap) as admin:
        admin.alter_group_offsets(f"{topic}_g", {TopicPartition(topic, 0): 1}).check()
    said = ottla(bootstrap, *words.format(topic=topic).split())
    assert said.code == 2, said.err
    assert "-y" in said.err
    assert values(bootstrap, topic) == [b"0", b"1", b"2"]
    assert committed(bootstrap, f"{topic}_g") == {0: 1}
    if words.startswith(("acls", "users")):
        return  # what they are about is not there: that comes before a question
    asked = on_terminal(
        *words.format(topic=topic).split(), typed=[("[y/N]", b"n\n")], OTTLA_BOOTSTRAP_SERVERS=bootstrap
    )
    assert asked.code == 130, asked.out
    assert len(values(bootstrap, topic)) == 3


def test_an_error_in_the_middle_says_what_is_written_and_where_to_go_on(
    bootstrap: str, topic: str, tmp_path: Path
) -> None:
    path = tmp_path / "lines"
    path.write_text("".join(f"k:{n}\n" for n in range(4000)) + "oops\n" + "k:4001\n")
    said = ottla(bootstrap, "produce", topic, "-K", ":", "-f", str(path))
    assert said.code == 1
    assert "line 4001 has no key separator ':'" in said.err
    assert "4,000 records are written; continue with --skip 4000" in said.err
    path.write_text(path.read_text().replace("oops", "k:4000"))
    assert ottla(bootstrap, "produce", topic, "-K", ":", "-f", str(path), "--skip", "4000").code == 0
    assert [int(each or -1) for each in values(bootstrap, topic)] == list(range(4002))


def test_ctrl_c_says_how_many_are_written(bootstrap: str, topic: str) -> None:
    process = subprocess.Popen(
        [*OTTLA, "produce", topic, "-b", bootstrap],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None
    process.stdin.write(b"1\n2\n3\n")
    process.stdin.flush()
    while len(values(bootstrap, topic)) < 3:
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert b"3 records are written; continue with --skip 3" in err


def test_a_separator_may_be_written_as_people_write_it(bootstrap: str, topic: str) -> None:
    assert ottla(bootstrap, "produce", topic, "-K", r"\t", "-p", "0", stdin="k\tv\n").code == 0
    assert json.loads(ottla(bootstrap, "consume", topic, "-e", "--json").out)["key"] == "k"


def test_a_typed_session_goes_on_after_a_bad_line(bootstrap: str, topic: str) -> None:
    keys = [(f"{topic}> ", line) for line in (b"no separator\n", b"k:v\n", b"\x04")]
    typed = on_terminal("produce", topic, "-K", ":", typed=keys, OTTLA_BOOTSTRAP_SERVERS=bootstrap)
    assert typed.code == 0
    assert "no key separator" in typed.out
    assert values(bootstrap, topic) == [b"v"]


def test_typed_records_in_json_are_records(bootstrap: str, topic: str) -> None:
    keys = [(f"{topic}> ", line) for line in (b'{"key": "k", "value": 1}\n', b"oops\n", b"\x04")]
    typed = on_terminal("produce", topic, "-F", "json", typed=keys, OTTLA_BOOTSTRAP_SERVERS=bootstrap)
    assert typed.code == 0
    assert "JSON" in typed.out
    assert values(bootstrap, topic) == [b"1"]


def test_a_typo_makes_no_topic(bootstrap: str, tool: Tool, topic: str) -> None:
    said = ottla(bootstrap, "produce", f"{topic}x", stdin="1\n")
    assert (said.code, said.err) == (
        1,
        f"ottla: there is no topic {topic}x; did you mean {topic}? use --create to create it\n",
    )
    assert f"{topic}x" not in [row[0] for row in tool("topics").rows]
    assert ottla(bootstrap, "produce", f"{topic}x", "--create", stdin="1\n").code == 0
    assert values(bootstrap, f"{topic}x") == [b"1"]


def test_a_time_that_is_shown_can_be_given_back(bootstrap: str, topic: str) -> None:
    with Producer(bootstrap) as producer:
        for number in range(5):
            producer.send(topic, str(number), partition=0, timestamp=1_795_304_325_000 + number)

    def west(*words: str) -> Said:
        return in_process("consume", topic, "-e", *words, OTTLA_BOOTSTRAP_SERVERS=bootstrap, TZ="America/New_York")

    shown = on_terminal(
        "consume", topic, "-e", OTTLA_BOOTSTRAP_SERVERS=bootstrap, TERM="dumb", TZ="America/New_York"
    ).out
    at = next(line for line in shown.splitlines() if line.rstrip().endswith(" 3")).split("  ")[-2].strip()
    assert at.endswith("Z")
    assert west("-s", at).out.split() == ["3", "4"]
    assert west("-s", "@1795304325003").out.split() == ["3", "4"]
    bare = west("-s", "1795304325003")
    assert (bare.code, bare.out) == (1, "")
    assert "offset 1795304325003 is beyond the end" in bare.err
    assert "@1795304325003" in bare.err
