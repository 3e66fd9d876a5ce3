"""Corners of the tools that no scene reaches: completion, voters, secrets, input and output that go wrong."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, call

import click
import pytest

from ottla.cli import screen
from ottla.cli.ottla import config, export, produce, profile, quorum, storage, topic, transaction
from ottla.cli.ottla.cluster import cluster
from ottla.cli.records import read, table_input
from ottla.cli.records.input import BadRecord, Shape, from_json, from_json_line, records
from ottla.cli.records.table_input import from_csv
from ottla.client import ErrorCode, KafkaError, TopicPartition
from ottla.client.admin.result import QuorumDescription, QuorumReplica, Results
from ottla.kernel.error import OttlaError
from ottla.kernel.ids import Uuid, uuid_text
from tests.cli.shown_scene import run
from tests.cli.test_screen import plain
from tests.cli.tool import Said

REFUSED = KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "not you")
ID = uuid_text(Uuid(b"\1" * 16))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Said]:
    """Runs a tool whose module has this admin client."""
    monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVERS", "b:1")
    monkeypatch.setenv("COLUMNS", "100")

    def said(module: Any, client: Any, *words: str, terminal: bool = False) -> Said:
        @contextmanager
        def opened(*_: object) -> Iterator[Any]:
            yield client

        monkeypatch.setattr(module, "admin", opened)
        code, out, err = run("ottla", list(words), "", terminal=terminal)
        return Said(code, plain(out), plain(err))

    return said


# ---- completion of settings


def completed(incomplete: str, command: str = "set", **params: str) -> list[str]:
    context = click.Context(click.Command(command))
    context.params = dict(params)
    parameter: Any = None
    return config.complete_setting(context, parameter, incomplete)


def test_a_setting_is_completed_with_an_equals_sign_where_a_value_follows() -> None:
    assert completed("retention.m", kind="topic") == ["retention.ms="]
    assert completed("retention.m") == ["retention.ms="]
    assert completed("retention.m", "create") == ["retention.ms="]
    assert completed("retention.m", "unset", kind="topic") == ["retention.ms"]
    assert completed("retention.ms=1", kind="topic") == []
    assert completed("retention", kind="broker") == []
    assert completed("num.network", kind="broker") == ["num.network.threads="]
    assert completed("share.auto", "explain", kind="group") == ["share.auto.offset.reset"]
    assert completed("interval", kind="metrics") == []
    # All of them, in order, and none of Kafka's internal ones.
    names = completed("", "show", kind="topic")
    assert names == sorted(names)
    assert len(names) > 20


def test_a_name_is_completed_by_its_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "complete_topic", lambda *_: ["topic"])
    monkeypatch.setattr(config, "complete_group", lambda *_: ["group"])
    context = click.Context(click.Command("show"))
    parameter: Any = None
    found = []
    for kind in ("topic", "group", "broker", ""):
        context.params = {"kind": kind}
        found.append(config._complete_name(context, parameter, ""))
    assert found == [["topic"], ["group"], [], []]


# ---- quorum


WHERE = "`ottla quorum` and meta.properties show it"


def test_voters_are_added_and_removed(asked: Callable[..., Said]) -> None:
    client = Mock()
    words = ("quorum", "add", "4", ID, "CONTROLLER://n4:9093", "B://[::1]:9094")
    assert asked(quorum, client, *words) == (0, "", "node 4 is a voter\n")
    endpoints = {"CONTROLLER": ("n4", 9093), "B": ("::1", 9094)}
    client.add_raft_voter.assert_called_once_with(4, Uuid(b"\1" * 16), endpoints)
    assert asked(quorum, client, *words, "--json").json == {"added": 4, "directory_id": ID}
    remove = ("quorum", "remove", "4", ID, "-y")
    assert asked(quorum, client, *remove) == (0, "", "node 4 is no longer a voter\n")
    client.remove_raft_voter.assert_called_once_with(4, Uuid(b"\1" * 16))
    assert asked(quorum, client, *remove, "--json").json == {"removed": 4, "directory_id": ID}


def test_every_replica_of_the_quorum_has_a_row(asked: Callable[..., Said]) -> None:
    voters = (QuorumReplica(1, Uuid(b"\1" * 16), 500, 9, 9), QuorumReplica(2, Uuid(b"\1" * 16), 460, 8, 7))
    observers = (QuorumReplica(13, Uuid(b"\1" * 16), 499, -1, 5),)
    where = {2: ("C://n2:9093", "B://n2:1")}
    client = Mock()
    client.describe_quorum.return_value = QuorumDescription(1, 7, 1480, voters, observers, where)
    rows = [line.split("\t") for line in asked(quorum, client, "quorum").out.splitlines()]
    assert rows == [
        ["1", "leader", "500", "0", "9", ID],
        ["2", "voter", "460", "40", "8", ID, "C://n2:9093 B://n2:1"],
        ["13", "observer", "499", "1", "", ID],
    ]
    shown = asked(quorum, client, "quorum", terminal=True).out
    assert "epoch 7, high watermark 1,480" in shown
    titles = [line for line in shown.splitlines() if "directory id" in line]
    assert " ".join(titles[0].split()) == "node role end behind fetched directory id address"


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (
            ("add", "4", "short", "C://h:1"),
            1,
            "invalid directory id: short (`ottla quorum` and meta.properties show it)",
        ),
        (("remove", "4", "short", "-y"), 1, "invalid directory id: short (`ottla quorum` and meta.properties show it)"),
        *(
            (("add", "4", ID, wrong), 2, f"{wrong}: expected LISTENER://HOST:PORT, e.g. CONTROLLER://node4:9093")
            for wrong in ("h:1", "C://h", "C://:1", "C://h:x", "C://h:")
        ),
    ],
)
def test_a_voter_that_cannot_be_is_refused(
    asked: Callable[..., Said], words: tuple[str, ...], code: int, why: str
) -> None:
    client = Mock()
    said = asked(quorum, client, "quorum", *words)
    assert (said.code, said.err.splitlines()[0]) == (code, f"ottla: {why}")
    assert client.mock_calls == []


def test_the_time_since_a_replica_fetched_is_for_people(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quorum, "time", SimpleNamespace(time_ns=lambda: 100_000 * 1_000_000))
    for terminal, shown in ((True, ["1m 30s ago", "0 ms ago", None]), (False, ["10000", "200000", None])):
        monkeypatch.setattr(screen, "on_terminal", lambda terminal=terminal: terminal)
        found = [quorum._ago(at) for at in (10_000, 200_000, -1)]
        if terminal:
            assert found[2] is None
            assert [text.split()[-1] for text in found[:2] if text] == ["ago", "ago"]
            assert found[0] != found[1] and "-" not in str(found[1])
        else:
            assert found == shown


@pytest.mark.parametrize(
    ("error", "quorum_shown"), [(KafkaError(ErrorCode.UNSUPPORTED_VERSION), True), (REFUSED, False)]
)
def test_a_cluster_without_a_quorum_that_can_be_asked_is_shown(
    asked: Callable[..., Said], error: KafkaError, quorum_shown: bool
) -> None:
    client = Mock()
    node = SimpleNamespace(id=3, host="h", port=9, rack=None)
    client.describe_cluster.return_value = SimpleNamespace(nodes=[node], cluster_id="c")
    client.describe_quorum.side_effect = error
    client.describe_log_dirs.return_value = Results({}, {})
    said = asked(cluster, client, "cluster", "show", "--json")
    if quorum_shown:
        shown = {"node": 3, "host": "h", "port": 9, "rack": None}
        assert said.json == {"cluster": "c", "nodes": [shown], "quorum": None}
        assert asked(cluster, client, "cluster", "show", terminal=True).out.startswith("cluster c\n")
    else:
        assert (said.code, said.out) == (1, "")


# ---- topics, transactions, partitions


def test_topics_that_are_deleted_are_told_beside_one_that_is_not(
    asked: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = Mock()
    client.delete_topics.return_value = Results({}, {"b": REFUSED})
    monkeypatch.setattr(topic, "_matching_topics", lambda _, names: list(names))
    said = asked(topic, client, "topics", "delete", "a", "b", "c", "-y")
    why = "b: not you: this user is not authorized to do that with the cluster"
    assert said == (1, "", f"deleted a\ndeleted c\nottla: {why}\n")
    said = asked(topic, client, "topics", "delete", "a", "b", "-y", "--json")
    assert (said.code, said.json) == (1, {"deleted": ["a"]})
    assert json.loads(said.err) == {"error": "CLUSTER_AUTHORIZATION_FAILED", "message": why}
    client.delete_topics.return_value = Results({}, {"a": REFUSED, "b": REFUSED})
    said = asked(topic, client, "topics", "delete", "a", "b", "-y", "--json")
    assert (said.code, said.out) == (1, "")
    assert json.loads(said.err)["message"] == f"{why.replace('b:', 'a:')}; {why}"


@pytest.mark.parametrize(
    ("counts", "question"),
    [
        ({"a": 1}, "delete a with 1 record forever?"),
        ({"a": None}, "delete a with ? records forever?"),
        ({"a": 1200, "b": 0}, "  a with 1,200 records\n  b with 0 records\ndelete these 2 topics forever?"),
    ],
)
def test_the_question_before_a_deletion_says_what_is_lost(counts: dict[str, int | None], question: str) -> None:
    summaries: Any = [SimpleNamespace(topic=name, records=count) for name, count in counts.items()]
    assert topic._question(summaries) == question


def test_a_transaction_is_aborted_or_its_producer_fenced(asked: Callable[..., Said]) -> None:
    client = Mock()
    words = ("transactions", "abort", "t", "1", "7", "-y")
    said = asked(transaction, client, *words)
    assert said == (0, "", "aborted the transaction in t 1 from offset 7\n")
    client.abort_transaction.assert_called_once_with(TopicPartition("t", 1), 7)
    assert asked(transaction, client, *words, "--json").json == {"topic": "t", "partition": 1, "aborted_from": 7}
    fence = ("transactions", "fence", "x", "-y")
    said = asked(transaction, client, *fence)
    assert said == (0, "", "x: the producer is fenced, its transaction aborted\n")
    assert asked(transaction, client, *fence, "--json").json == {"fenced": "x"}
    assert client.terminate_transaction.call_args_list == [call("x")] * 2
    client.describe_transactions.return_value.check.side_effect = KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    assert asked(transaction, client, *fence).code == 1
    assert client.terminate_transaction.call_count == 2, "fencing an unknown id would create it"


# ---- secrets


def test_a_secret_is_read_from_a_terminal_or_from_the_first_line(monkeypatch: pytest.MonkeyPatch) -> None:
    prompt = Mock(return_value="typed")
    monkeypatch.setattr(click, "prompt", prompt)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    assert profile._asked("sasl.password") == "typed"
    assert prompt.call_args == call("sasl.password", hide_input=True, err=True)
    for text, secret in (("a b\r\nmore\n", "a b"), ("x", "x")):
        stdin = io.StringIO(text, newline="")
        monkeypatch.setattr(sys, "stdin", stdin)
        assert profile._asked("sasl.password") == secret
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n"))
    with pytest.raises(OttlaError, match=r"^stdin is empty \(expected sasl\.password on its first line\)$"):
        profile._asked("sasl.password")


# ---- records that are typed


def test_typed_records_are_written_at_once_and_a_bad_one_is_only_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hints: list[str] = []
    monkeypatch.setattr(screen, "hint", hints.append)
    monkeypatch.setattr(produce, "_typed_lines", lambda _: iter([b'{"value":1}\n', b"oops\n", b"\n", b'{"value":2}\n']))
    producer = Mock()
    places = iter([SimpleNamespace(partition=0, offset=7), REFUSED])

    def result() -> Any:
        place = next(places)
        if isinstance(place, KafkaError):
            raise place
        return place

    producer.send.return_value = SimpleNamespace(result=result, done=False)
    produce._prompt(producer, "t", from_json(Shape()))
    assert hints == ["every line is a record of t; Ctrl-D to end", "  partition 0, offset 7"]
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("ottla: line 2 is not JSON")
    assert "not you" in second
    assert [each.args[1] for each in producer.send.call_args_list] == [b"1", b"2"]


def test_empty_lines_of_json_are_no_records() -> None:
    for parse, line in ((from_json, b'{"value":1}'), (from_json_line, b"1")):
        found = list(records([b"\n", line, b"  \n"], parse(Shape())))
        assert [each.value for each in found] == [b"1"]


# ---- tables


def rows_of(text: str, shape: Shape | None = None, **types: str) -> list[tuple[bytes | None, bytes | None, int]]:
    found = from_csv(io.BytesIO(text.encode()), shape or Shape(), types)
    return [(each.value, each.key, each.size) for each in found]


def test_rows_of_a_csv_are_records_with_their_share_of_the_input() -> None:
    assert rows_of("") == []
    assert rows_of("a,b\n") == []
    text = "a,b\n1,22\n\n,x\n"
    assert rows_of(text) == [(b'{"a":"1","b":"22"}', None, 5), (b'{"a":"","b":"x"}', None, 3)]
    assert rows_of(text, Shape(key_column="a", value_column="b"), a="int") == [(b"22", b"1", 5), (b"x", None, 3)]
    assert rows_of('a,b,c\nTRUE,"[1]",1e3\n0,{},\n', a="bool", b="json", c="float") == [
        (b'{"a":true,"b":[1],"c":1000.0}', None, 13),
        (b'{"a":false,"b":{},"c":null}', None, 6),
    ]
    for wrong, kind in (("1_0", "int"), ("1_0", "float"), ("yes", "bool"), ("[" * 100_000, "json")):
        with pytest.raises(BadRecord, match=rf"^line 2 has an invalid {kind} in column a"):
            rows_of(f"a\n{wrong}\n", a=kind)
    for text, line in (('a\n1\n"x"y\n', 3), ('a\n1\n2\n"x', 4), ('"a"b\n', 1)):
        with pytest.raises(BadRecord, match=f"^line {line} is not CSV: "):
            rows_of(text)
    with pytest.raises(BadRecord, match=r"^line 1 or a later one is not UTF-8: "):
        list(from_csv(io.BytesIO(b"a\n\xff\n"), Shape(), {}))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, None),
        (b"\xff", b"\xff"),
        ("\u00e9", "\u00e9".encode()),
        ({"a": b"text", "b": b"\xff"}, b'{"a":"text","b":{"base64":"/w=="}}'),
        ([date(2024, 1, 2), datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)], b'["2024-01-02","2024-01-02T03:04:05+00:00"]'),
        ({"a": Decimal("1.50")}, b'{"a":"1.50"}'),
        (True, b"true"),
    ],
)
def test_cells_become_json(value: Any, text: bytes | None) -> None:
    assert table_input._text(value, "row 1") == text


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("\ud800", "row 1 cannot be written as UTF-8"),
        ([1.0, float("nan")], "row 1 cannot be written as JSON"),
        ([object()], "row 1 cannot be written as JSON: JSON cannot represent object"),
    ],
)
def test_cells_that_no_json_holds_are_named(value: Any, why: str) -> None:
    with pytest.raises(BadRecord, match=f"^{why}"):
        table_input._text(value, "row 1")


def test_a_file_that_is_no_parquet_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    path.write_text("no")
    with pytest.raises(OttlaError, match=rf"^{path} cannot be read as Parquet: "):
        list(table_input.from_parquet(str(path), Shape()))


# ---- export


def ending(error: BaseException, count: int = 2) -> Iterator[Any]:
    for offset in range(count):
        yield SimpleNamespace(topic="t", partition=0, offset=offset, timestamp=0, key=None, value=b"v", headers=())
    raise error


@pytest.mark.parametrize(("count", "many"), [(2, "2 records are"), (1, "1 record is"), (0, "0 records are")])
def test_an_export_that_the_cluster_ends_says_where_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, many: str
) -> None:
    def progress() -> export._Progress:
        return export._Progress({TopicPartition("t", 1): 5, TopicPartition("t", 0): 0})

    continued = f"continue with --from 0:{count},1:5 and another file"
    out = SimpleNamespace(buffer=io.BytesIO())
    monkeypatch.setattr(export, "sys", SimpleNamespace(stdout=out))
    told = progress()
    with pytest.raises(OttlaError) as raised:
        export._write_to_stdout(told.over(ending(REFUSED, count)), told, "jsonl", [])
    words = "not you: this user is not authorized to do that with the cluster"
    assert str(raised.value) == f"{words}; {many} written to stdout; {continued}"
    assert out.buffer.getvalue() == b'"v"\n' * count
    path = tmp_path / "out.jsonl"
    told = progress()
    with pytest.raises(OttlaError) as raised:
        export._write_to_file(told.over(ending(REFUSED, count)), told, str(path), "jsonl", [])
    kept = list(tmp_path.iterdir())
    if count:
        assert str(raised.value) == f"{words}; {many} in {kept[0]}; {continued}"
        assert kept[0].read_bytes() == b'"v"\n' * count
    else:
        assert (str(raised.value), kept) == (f"{words}; {path} was not written", [])


def test_an_export_that_the_disk_ends_leaves_nothing(tmp_path: Path) -> None:
    progress = export._Progress({})
    for error, why in ((OSError(28, "No space left on device"), "No space left on device"), (OSError("odd"), "odd")):
        with pytest.raises(OttlaError) as raised:
            export._write_to_file(ending(error), progress, str(tmp_path / "x.csv"), "csv", [("v", lambda _: "v")])
        assert str(raised.value) == f"cannot write {tmp_path / 'x.csv'}: {why}"
    assert list(tmp_path.iterdir()) == []


# ---- storage


def test_levels_of_features_are_whole_numbers() -> None:
    assert storage._levels(("a=1", "b=20")) == {"a": 1, "b": 20}
    for wrong in ("a=x", "a=-1", "a="):
        with pytest.raises(click.UsageError) as raised:
            storage._levels((wrong,))
        assert raised.value.message == f"--feature {wrong}: the level must be a whole number below 32768"


def test_a_share_group_has_its_own_setting_for_committed_records() -> None:
    with pytest.raises(click.UsageError, match=r"configs set group g share\.isolation\.level=read_committed"):
        read.read_share_group({}, ["t"], "g", True, str, None)
