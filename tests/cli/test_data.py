"""Tables in and out, topics copied, compared and looked into, patterns, and what is said of a wrong name."""

import io
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet
import pytest

import ottla
from ottla.cli.ottla import export
from ottla.cli.records.field import getter
from ottla.cli.records.input import Shape
from ottla.cli.records.table_input import from_csv
from ottla.client import Admin, Consumer, ErrorCode, Producer, TopicPartition
from ottla.columns.record import ConsumerRecord
from ottla.wire.api import ApiKey
from tests.cli.shown_scene import run as play
from tests.cli.test_loss import values
from tests.cli.tool import OTTLA, Said, Tool, in_process


@pytest.fixture
def run(bootstrap: str) -> "Run":
    return Run(bootstrap)


class Run:
    """A tool whose stdin and stdout are files."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def __call__(self, *words: str, stdin: str = "") -> Said:
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("OTTLA_BOOTSTRAP_SERVERS", self.bootstrap)
            return Said(*play("ottla", list(words), stdin, terminal=False))


_CSV = 'id,who,price\n1,ann,1.50\n2,"b,ob",\n3,,7\n'


def test_a_csv_goes_in_with_keys_headers_and_types(run: Run, topic: str, tmp_path: Path) -> None:
    (tmp_path / "orders.csv").write_text(_CSV)
    words = ("import", str(tmp_path / "orders.csv"), topic, "--key", "who", "-H", "id", "-H", "from=csv", "-p", "0")
    dry = run(*words, "--type", "price=float", "--dry-run", "--json").json
    assert (dry["records"], dry["with_key"]) == (3, 3)
    assert values(run.bootstrap, topic) == []
    said = run(*words, "--type", "price=float", "--type", "id=int")
    assert said.code == 0, said.err
    read = [json.loads(line) for line in run("consume", topic, "-e", "--json").out.splitlines()]
    assert [each["value"] for each in read] == [
        {"id": 1, "who": "ann", "price": 1.5},
        {"id": 2, "who": "b,ob", "price": None},
        {"id": 3, "who": "", "price": 7.0},
    ]
    assert [each["key"] for each in read] == ["ann", "b,ob", ""]
    assert read[0]["headers"] == [["from", "csv"], ["id", "1"]]


@pytest.mark.parametrize(
    ("text", "words", "sentence"),
    [
        (
            "a,b\n1,2\n1\n",
            (),
            "line 3 has 1 cells, but the header row has 2; 1 record is written; continue with --skip 1",
        ),
        ("a,b\n1,2\nx,2\n", ("--type", "a=int"), "line 3 has an invalid int in column a: 'x'"),
        ("a,b\n1,2\n", ("--key", "c"), "there is no column c; the columns are a, b"),
        ("a,a\n1,2\n", (), "names a column twice"),
        ("a,b\n1,2\n", ("--type", "a=number"), "--type a=number: unknown type (expected text, int"),
        ("a,b\n\xff\n".encode("latin-1").decode("latin-1"), ("--delimiter", ";;"), "expected one character"),
    ],
)
def test_a_csv_that_is_wrong_is_told_with_its_line(
    run: Run, topic: str, text: str, words: tuple[str, ...], sentence: str
) -> None:
    said = run("produce", topic, "-F", "csv", *words, stdin=text)
    assert said.code in (1, 2)
    assert sentence in said.err
    assert "Traceback" not in said.err


def test_a_csv_keeps_carriage_returns() -> None:
    record = ConsumerRecord("t", 0, 0, 0, b"k\r", b"a\rb\r", (), 0)
    out = io.BytesIO()
    export._write_text(iter([record]), out, "csv", [(name, getter(name)) for name in ("key", "value")])
    [again] = from_csv(io.BytesIO(out.getvalue()), Shape(key_column="key", value_column="value"), {})
    assert (again.key, again.value) == (b"k\r", b"a\rb\r")


def test_a_large_cell_of_a_csv_is_read() -> None:
    cell = "x" * 200_000
    [record] = from_csv(io.BytesIO(f"a\n{cell}\n".encode()), Shape(value_column="a"), {})
    assert record.value == cell.encode()


def test_a_file_that_cannot_be_read_leaves_no_topic(run: Run, topic: str, tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.csv")
    for command in (("import", missing, f"{topic}_unread"), ("produce", f"{topic}_unread", "-f", missing)):
        said = run(*command, "--create")
        assert (said.code, said.err) == (1, f"ottla: cannot read {missing}: No such file or directory\n")
    assert f"{topic}_unread" not in run("topics", "list").out


@pytest.mark.parametrize(
    ("words", "text", "sentence"),
    [
        (("-F", "csv", "--type", "a=int"), "a\nx\n2\n", "line 2 has an invalid int in column a"),
        (("-F", "csv", "--type", "a=int", "--skip", "1"), "a\n1\nx\n", "line 3 has an invalid int in column a"),
        (("-F", "csv", "--key", "b"), "a\n1\n", "there is no column b"),
        (("-F", "csv", "--delimiter", ";;"), "a\n1\n", "expected one character"),
        (("-F", "jsonl"), "{\n", "line 1"),
        (("-F", "json"), "{}\n", 'line 1 has no "value"'),
        (("-K", ":"), "x\n", "line 1 has no key separator"),
        (("-F", "parquet"), "", "needs a file"),
        (("-p", "7"), "x\n", "would have no partition 7 (expected 0 to 0)"),
        (("-X", "linger.ms=soon"), "x\n", "invalid value for linger.ms"),
        (
            ("-X", "max.request.size=1000"),
            "x" * 1001,
            "the first record has 1,001 bytes, more than max.request.size=1000",
        ),
        (
            ("-F", "csv", "--type", "a=json", "--value", "a"),
            'a\n"""\\ud800"""\n',
            "line 2 cannot be written as UTF-8: 'utf-8' codec can't encode",
        ),
    ],
)
def test_input_that_is_wrong_from_its_beginning_leaves_no_topic(
    run: Run, topic: str, words: tuple[str, ...], text: str, sentence: str
) -> None:
    said = run("produce", f"{topic}_wrong", "--create", *words, stdin=text)
    assert said.code in (1, 2)
    assert sentence in said.err
    assert "Traceback" not in said.err
    assert f"{topic}_wrong" not in run("topics", "list").out


def test_a_skip_beyond_the_end_is_refused_and_one_to_the_end_is_not(run: Run, topic: str, tmp_path: Path) -> None:
    (tmp_path / "lines.jsonl").write_text("{}\n{}\n")
    imports = ("import", str(tmp_path / "lines.jsonl"), topic)
    for command in (imports, ("produce", topic, "-f", str(tmp_path / "lines.jsonl"))):
        for more in ((), ("--dry-run",)):
            said = run(*command, "--skip", "3", *more)
            assert (said.code, said.err) == (1, "ottla: --skip 3: the input has only 2 records\n")
    assert run(*imports, "--skip", "2").code == 0
    assert values(run.bootstrap, topic) == []


def test_a_copy_with_settings_that_are_wrong_leaves_no_target(run: Run, topic: str) -> None:
    said = run("topics", "copy", topic, f"{topic}_wrong", "--create", "-X", "fetch.min.bytes=many")
    assert said.code in (1, 2) and "invalid value for fetch.min.bytes" in said.err
    assert f"{topic}_wrong" not in run("topics", "list").out


def test_a_later_line_that_is_wrong_and_an_empty_input_leave_the_topic(run: Run, topic: str, bootstrap: str) -> None:
    said = run("produce", f"{topic}_later", "--create", "-K", ":", stdin="a:1\nx\n")
    assert said.code == 1 and "1 record is written; continue with --skip 1" in said.err
    assert values(bootstrap, f"{topic}_later") == [b"1"]
    assert run("produce", f"{topic}_empty", "--create").code == 0
    assert values(bootstrap, f"{topic}_empty") == []


def test_a_first_record_that_the_broker_refuses_leaves_the_topic_and_says_so(run: Run, topic: str) -> None:
    words = ("-X", "max.request.size=3000000", "-X", "compression.type=none")
    for stays in (f"; the new topic {topic}_refused stays\n", " more may be)\n"):
        said = run("produce", f"{topic}_refused", "--create", *words, stdin="x" * 2_000_000)
        assert (said.code, said.err.endswith(stays)) == (1, True), said.err


def test_parquet_without_pyarrow_is_refused_before_any_record_is_read(
    tool: Tool, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, name, None)
    said = tool("export", topic, str(tmp_path / "out.parquet"))
    assert (said.code, said.err) == (1, "ottla: Parquet needs pyarrow: pip install 'ottla[arrow]'\n")
    assert list(tmp_path.iterdir()) == []


def test_a_topic_goes_out_as_parquet_and_comes_back_the_same(run: Run, topic: str, tmp_path: Path) -> None:
    lines = "".join(f'{{"id":{n},"who":"w{n % 3}","tags":["a"]}}\n' for n in range(500))
    assert run("produce", topic, "-F", "jsonl", "--key", "who", stdin=lines).code == 0
    path = str(tmp_path / "out.parquet")
    said = run("export", topic, path, "--columns", "key,value.id,value.who,timestamp", "--where", "value.id < 400")
    assert said.code == 0, said.err
    table = pyarrow.parquet.read_table(path)
    assert table.column_names == ["key", "id", "who", "timestamp"]
    assert sorted(table["id"].to_pylist()) == list(range(400))
    again = run("export", topic, path)
    assert (again.code, "use --force to replace it" in again.err) == (1, True)
    said = run("import", path, f"{topic}_back", "--create", "--key", "who", "--limit", "10", "--skip", "5")
    assert said.code == 0, said.err
    assert len(values(run.bootstrap, f"{topic}_back")) == 10


@pytest.mark.parametrize("ending", ["csv", "jsonl", "json", "CSV", "JsonL"])
def test_a_topic_goes_out_as_text(run: Run, topic: str, tmp_path: Path, ending: str) -> None:
    assert run("produce", topic, "-F", "jsonl", "-p", "0", stdin='{"a": 1}\n{"a":"x,y"}\n').code == 0
    path = tmp_path / f"out.{ending}"
    assert run("export", topic, str(path), "--json").json["records"] == 2
    first, *rest = path.read_text().splitlines()
    ending = ending.lower()
    if ending == "csv":
        assert first == "partition,offset,timestamp,key,value,headers"
        assert '"{""a"":""x,y""}"' in rest[1]
    elif ending == "jsonl":
        assert [first, *rest] == ['{"a": 1}', '{"a":"x,y"}']
    else:
        assert json.loads(first)["value"] == {"a": 1}
    assert not list(tmp_path.glob("*.part*"))
    assert run("export", topic, "-F", "csv", "--columns", "value.a").out == 'a\n1\n"x,y"\n'


def test_a_tsv_has_tabs_however_it_is_spelt_and_read(run: Run, topic: str, tmp_path: Path) -> None:
    assert run("produce", topic, "-p", "0", "-K", ":", stdin="k:a,b\n").code == 0
    for ending in ("tsv", "TSV"):
        path = tmp_path / f"out.{ending}"
        assert run("export", topic, str(path), "--columns", "key,value").code == 0
        assert path.read_text() == "key\tvalue\nk\ta,b\n"
        for words in (("import", str(path), topic), ("produce", topic, "-F", "csv", "-f", str(path))):
            shown = run(*words, "--key", "key", "--value", "value", "--dry-run", "--json").json["first"]
            assert [(record["key"], record["value"]) for record in shown] == [("k", "a,b")]


def test_a_column_with_the_text_for_null_deletes(run: Run, topic: str, tmp_path: Path) -> None:
    path = tmp_path / "nulls.csv"
    path.write_text("k,v\na,NULL\nb,x\n")
    for words in (("import", str(path), topic), ("produce", topic, "-F", "csv", "-f", str(path))):
        said = run(*words, "--key", "k", "--value", "v", "--null", "NULL", "--dry-run", "--json")
        assert [(record["key"], record["value"]) for record in said.json["first"]] == [("a", None), ("b", "x")]
        assert said.json["tombstones"] == 1


def test_json_that_another_program_wrote_is_shown_with_its_own_text(run: Run, topic: str) -> None:
    lines = '{"a": 1}\n{"a":1}\n[1, 2]\n{"a":1,"a":2}\n{"a"\n'
    assert run("produce", topic, "-p", "0", stdin=lines).code == 0
    read = [json.loads(line) for line in run("consume", topic, "-p", "0", "-e", "--json").out.splitlines()]
    assert [(each["value"], each.get("value_text"), each.get("key_text")) for each in read] == [
        ({"a": 1}, '{"a": 1}', None),
        ({"a": 1}, None, None),
        ([1, 2], "[1, 2]", None),
        ({"a": 2}, '{"a":1,"a":2}', None),
        ('{"a"', None, None),
    ]


def test_a_topic_is_copied_whole_and_compared(run: Run, tool: Tool, topic: str) -> None:
    assert tool("configs", "set", "topic", topic, "retention.ms=7d").code == 0
    with Producer(run.bootstrap) as producer:
        for number in range(50):
            key = None if number % 7 == 0 else b"k\xff%d" % (number % 5)
            producer.send(
                topic, None if number == 3 else b"v%d" % number, key, headers=[("h", b"\0")], partition=number % 2
            )
    copied = f"{topic}_copy"
    assert "--create creates it like the source" in run("topics", "copy", topic, copied).err
    said = run("topics", "copy", topic, copied, "--create")
    assert (said.code, said.err) == (0, f"50 records copied to {copied}, partition by partition\n")
    assert "holds" not in said.err
    same = run("topics", "diff", topic, copied, "--json")
    assert (same.code, same.json) == (0, {"same": True, "equal_records": 50, "differences": []})
    assert ["retention.ms", "604800000", "topic"] in tool("configs", "show", "topic", copied).rows
    twice = run("topics", "copy", topic, copied)
    assert (twice.code, "already has 50 records; use --append to add to them" in twice.err) == (1, True)
    assert run("topics", "copy", topic, copied, "--append", "--from", "0:20,1:24").code == 0
    differs = run("topics", "diff", topic, copied)
    assert differs.code == 1
    assert "the second topic has " in differs.out


def test_a_topic_is_copied_to_another_cluster(run: Run, topic: str) -> None:
    assert run("produce", topic, stdin="1\n2\n").code == 0
    with ottla.Node() as node:
        assert run("topics", "copy", topic, "there", "--to", node.bootstrap_servers, "--create").code == 0
        assert sorted(values(node.bootstrap_servers, "there"), key=str) == [b"1", b"2"]
        assert run("topics", "diff", topic, "there", "--to", node.bootstrap_servers).code == 0


def test_a_topic_is_looked_into(run: Run, topic: str) -> None:
    lines = "".join(f'{{"key":"k{n % 3}","value":{{"n":{n},"s":"x"}}}}\n' for n in range(90)) + '{"value":null}\n'
    assert run("produce", topic, "-F", "json", stdin=lines).code == 0
    found = run("topics", "analyze", topic, "--json").json
    assert (found["records"], found["tombstones"], found["without_key"], found["distinct_keys"]) == (91, 1, 1, 3)
    assert found["fields"]["n"] == {"types": {"int": 90}, "share": 1.0}
    assert found["value_bytes"]["max"] == len('{"n":89,"s":"x"}')
    assert "distinct" in run("topics", "analyze", topic).out


def test_patterns_mean_many_topics_and_never_kafkas_own(tool: Tool, topic: str) -> None:
    for number in range(3):
        assert tool("topics", "create", f"{topic}.{number}").code == 0
    assert [row[0] for row in tool("topics", "list", f"{topic}.*").rows] == [f"{topic}.{n}" for n in range(3)]
    assert len(tool("topics", "describe", f"/^{topic}\\.[01]$/", "--json").json) == 2
    assert tool("topics", "delete", f"{topic}.?", "-n", "--json").json == {
        "would_delete": [f"{topic}.{n}" for n in range(3)]
    }
    assert tool("topics", "delete", f"{topic}.[12]", "-y").code == 0
    assert tool("topics", "delete", "*nothing*like*this", "-y").err == "ottla: no topic matches *nothing*like*this\n"
    assert "__consumer_offsets" not in [row[0] for row in tool("topics", "list", "*").rows]
    assert tool("topics", "list", "/(/").code == 2


@pytest.mark.parametrize(
    "words",
    [
        "topics delete {topic}x -y",
        "topics grow {topic}x -p 9",
        "topics describe {topic}x",
        "configs show topic {topic}x",
        "configs set topic {topic}x retention.ms=1",
        "configs unset topic {topic}x retention.ms",
        "topics trim {topic}x --before latest -y",
        "consume {topic}x -e",
        "export {topic}x",
    ],
)
def test_a_wrong_topic_gets_the_nearest(tool: Tool, topic: str, words: str) -> None:
    said = tool(*words.format(topic=topic).split())
    assert (said.code, said.err) == (1, f"ottla: there is no topic {topic}x; did you mean {topic}?\n")


def test_wrong_groups_and_settings_get_the_nearest(tool: Tool, topic: str) -> None:
    with Admin(tool_bootstrap(tool)) as admin:
        admin.alter_group_offsets(f"{topic}_readers", {TopicPartition(topic, 0): 0}).check()
    for words in (("groups", "describe", f"{topic}_readrs"), ("groups", "delete", f"{topic}_readrs", "-y")):
        assert tool(*words).err.endswith(f"did you mean {topic}_readers?\n")
    assert "did you mean retention.ms?" in tool("configs", "unset", "topic", topic, "retention.mss").err
    assert "did you mean" in tool("configs", "explain", "retenion.ms").err
    assert "their number can only grow" in tool("topics", "grow", topic, "-p", "1").err


def tool_bootstrap(tool: Tool) -> str:
    found: str = tool("cluster", "--json").json["nodes"][0]["host"]
    return f"{found}:{tool('cluster', '--json').json['nodes'][0]['port']}"


def test_a_live_group_is_not_moved_and_its_members_are_named(tool: Tool, bootstrap: str, topic: str) -> None:
    with Consumer(bootstrap, group_id=f"{topic}_g", client_id="worker-7") as consumer:
        consumer.subscribe([topic])
        while not consumer.assignment():
            consumer.poll(0.1)
        said = tool("groups", "reset", f"{topic}_g", topic, "--to", "latest", "-y")
        assert (said.code, "has 1 member (worker-7 on 127.0.0.1): stop them first" in said.err) == (1, True)


def test_settings_are_completed(bootstrap: str) -> None:
    def completed(words: str) -> list[str]:
        count = str(len(words.split()) - (not words.endswith(" ")))
        said = in_process(_OTTLA_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=count)
        return [line.partition(",")[2] for line in said.out.splitlines()]

    assert "retention.ms=" in completed("ottla configs set topic x ret")
    assert "retention.ms" in completed("ottla configs unset topic x ret")
    assert "retention.ms=" in completed("ottla topics create x -s ret")


def test_names_are_completed_from_the_cluster_that_is_asked(bootstrap: str, topic: str) -> None:
    def completed(words: str, elsewhere: str) -> list[str]:
        count = str(len(words.split()) - 1)
        said = in_process(
            _OTTLA_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=count, OTTLA_BOOTSTRAP_SERVERS=elsewhere
        )
        assert said.err == ""
        return [line.partition(",")[2] for line in said.out.split()]

    nowhere = "127.0.0.1:1"
    assert completed(f"ottla topics describe {topic[:-2]}", bootstrap) == [topic]
    assert completed(f"ottla topics describe -b {bootstrap} {topic[:-2]}", nowhere) == [topic]
    assert completed(f"ottla topics describe -b {nowhere} {topic[:-2]}", bootstrap) == []


def test_an_export_that_the_cluster_ends_keeps_what_it_read(tmp_path: Path) -> None:
    lines = [json.dumps({"id": number, "pad": "x" * 5_000}) for number in range(2_000)]
    with ottla.Node() as node:
        run = Run(node.bootstrap_servers)
        with Admin(node.bootstrap_servers) as admin:
            admin.create_topic("orders", 1)
        with Producer(node.bootstrap_servers) as producer:
            for line in lines:
                producer.send("orders", line)
        fault = node.faults.error(ApiKey.FETCH, ErrorCode.TOPIC_AUTHORIZATION_FAILED, times=None, after=4)
        said = run("export", "orders", str(tmp_path / "orders.jsonl"))
        fault.remove()
        (kept,) = tmp_path.iterdir()
        begun = kept.read_text().splitlines()
        assert 0 < len(begun) < 2_000
        assert said.code == 1
        assert f"{len(begun):,} records are in {kept}; continue with --from 0:{len(begun)} and another" in said.err
        rest = tmp_path / "rest.jsonl"
        assert run("export", "orders", str(rest), "--from", f"0:{len(begun)}").code == 0
    assert begun + rest.read_text().splitlines() == lines


@pytest.mark.parametrize("ending", ["csv", "jsonl", "json", "parquet"])
def test_an_export_that_finds_no_room_leaves_nothing_and_does_not_say_to_go_on(
    bootstrap: str, run: Run, topic: str, tmp_path: Path, ending: str
) -> None:
    run("produce", topic, stdin="\n".join(os.urandom(500).hex() for _ in range(300)))
    to = tmp_path / f"all.{ending}"
    command = f"ulimit -f 64; exec {shlex.join([*OTTLA, 'export', topic, str(to)])}"
    done = subprocess.run(
        ["bash", "-c", command],
        env=os.environ | {"OTTLA_BOOTSTRAP_SERVERS": bootstrap},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (done.returncode, done.stderr) == (1, f"ottla: cannot write {to}: File too large\n")
    assert list(tmp_path.iterdir()) == []


def test_an_ending_that_says_no_format_is_refused(run: Run, topic: str, tmp_path: Path) -> None:
    path = tmp_path / "out.xlsx"
    said = run("export", topic, str(path))
    assert said.code == 2
    assert f"{path}: unknown suffix; use --format csv|jsonl|json|parquet" in said.err
    assert not path.exists()
    assert run("export", topic, str(path), "-F", "csv").code == 0
    assert run("export", topic, str(tmp_path / "plain")).code == 0


def test_an_export_goes_to_a_place_where_a_file_can_be(run: Run, topic: str, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "whole.csv").write_text("before\n")
    (tmp_path / "link.csv").symlink_to(tmp_path / "whole.csv")
    for place, sentence in (
        (pipe, f"{pipe} is not a regular file; use - and redirect"),
        (tmp_path, f"{tmp_path} is a directory"),
        (tmp_path / "no" / "x.csv", f"there is no directory {tmp_path / 'no'}"),
    ):
        said = run("export", topic, str(place), "--force")
        assert said.code == 1
        assert sentence in said.err
    assert pipe.is_fifo()
    assert run("export", topic, str(tmp_path / "link.csv"), "--force").code == 0
    assert (tmp_path / "whole.csv").read_text().startswith("partition,offset")
    assert (tmp_path / "link.csv").is_symlink()


def test_each_client_of_a_command_gets_its_own_settings(tool: Tool, topic: str, tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"id":1}\n')
    producer = ("-X", "linger.ms=0", "-X", "compression.type=gzip")
    consumer = ("-X", "max.poll.records=5", "-X", "fetch.max.bytes=100000")
    assert tool("import", str(rows), topic, *producer).code == 0
    assert tool("produce", topic, "-f", str(rows), *producer).code == 0
    assert tool("consume", topic, "-e", *consumer).out == '{"id":1}\n' * 2
    assert tool("consume", topic, "-e", "--tail", "1", *consumer).out == '{"id":1}\n'
    assert tool("consume", topic, "-e", "-g", topic, *consumer).out == '{"id":1}\n' * 2
    assert tool("export", topic, *consumer, "-F", "jsonl").out == '{"id":1}\n' * 2
    assert tool("topics", "copy", topic, f"{topic}.2", "--create", *consumer, *producer).code == 0
    assert tool("topics", "diff", topic, f"{topic}.2", *consumer).code == 0
    said = tool("consume", topic, "-e", "-X", "max.poll.record=5")
    assert (said.code, said.out) == (2, "")
    assert "there is no client setting max.poll.record; did you mean max.poll.records?" in said.err
