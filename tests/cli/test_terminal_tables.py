"""Tables on a terminal about what no scene has: a quorum of several, moves, lost disks, hanging transactions, tokens.

The cluster is a table of answers. Styles are shown as <bold>...</>.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock, Mock, call

import pytest

from ottla.cli import screen
from ottla.cli.ottla import disk, partition, perf, quorum, storage, token, transaction, user
from ottla.client import DelegationToken, ErrorCode, KafkaError, TopicPartition
from ottla.client.admin.replica import ActiveProducer
from ottla.client.admin.result import LogDirDescription, QuorumDescription, QuorumReplica, ReplicaLogDir, Results
from ottla.kernel.ids import Uuid, uuid_text
from ottla.operations.partition_view import PartitionView
from ottla.operations.reassignment import Move
from tests.cli.shown_scene import run
from tests.cli.test_live import _plain
from tests.cli.tool import Said

ID = Uuid(b"\1" * 16)
#: 2001-09-09T01:46:40Z
AT_MS = 1_000_000_000_000


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Said]:
    """Runs a tool on a terminal of 120 columns, or with `pipe` in a pipe; its module has this admin client."""
    for name, value in {"COLUMNS": "120", "LINES": "40", "TERM": "xterm-256color"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVERS", "b:1")
    monkeypatch.delenv("NO_COLOR", raising=False)

    def said(module: Any, client: Any, *words: str, pipe: bool = False, typed: str = "") -> Said:
        @contextmanager
        def opened(*_: object) -> Iterator[Any]:
            yield client

        monkeypatch.setattr(module, "admin", opened)
        code, out, err = run("ottla", list(words), typed, terminal=not pipe)
        return Said(code, *("\n".join(map(_plain, text.split("\n"))) if not pipe else text for text in (out, err)))

    return said


def cells(text: str) -> list[list[str]]:
    """The cells of the lines, without styles."""
    lines = (re.sub(r"<[/\w]+>", "", line) for line in text.splitlines())
    return [re.split(r" {2,}", line.strip()) for line in lines if line.strip()]


def test_a_quorum_is_shown_with_its_lag(asked: Callable[..., Said], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quorum, "time", SimpleNamespace(time_ns=lambda: (AT_MS + 5000) * 1_000_000))
    replicas = [QuorumReplica(number, ID, end, at, at) for number, end, at in ((1, 900, AT_MS), (2, 1234, -1))]
    client = Mock()
    client.describe_quorum.return_value = QuorumDescription(
        2, 7, 1200, tuple(replicas), (QuorumReplica(9, ID, 4, AT_MS, -1),), {2: ("C://h:1", "D://h:2")}
    )
    for words in (("quorum",), ("quorum", "show")):
        said = asked(quorum, client, *words)
        assert (said.code, said.err) == (0, "")
        lines = said.out.splitlines()
        assert lines[0] == "<bold>metadata quorum</>  <dim>epoch 7, high watermark 1,200</>"
        name = uuid_text(ID)
        assert cells("\n".join(lines[1:])) == [
            ["node", "role", "end", "behind", "fetched", "directory id", "address"],
            ["1", "voter", "900", "334", "5 s ago", name, "-"],
            ["2", "leader", "1,234", "0", "-", name, "C://h:1 D://h:2"],
            ["9", "observer", "4", "1,230", "5 s ago", name, "-"],
        ]
        assert "<green>leader" in lines[3]
        assert "<dim>observer" in lines[4]
        # Numbers stand at the right of their column.
        plain = [re.sub(r"<[/\w]+>", "", line) for line in lines[1:3]]
        for title, number in (("node", "1"), ("end", "900"), ("behind", "334")):
            assert plain[0].index(title) + len(title) == plain[1].index(number) + len(number)
    said = asked(quorum, client, "quorum", pipe=True)
    assert said.rows[0] == ["1", "voter", "900", "334", str(AT_MS), uuid_text(ID), ""]


def move(topic: str, number: int, **more: Any) -> Move:
    return Move(**{"topic": topic, "partition": number, "replicas": [1, 2], "adding": [], "removing": [], **more})


def test_moves_under_way_are_shown(asked: Callable[..., Said], monkeypatch: pytest.MonkeyPatch) -> None:
    found = [
        move("t", 0, adding=[2, 3], removing=[1], directory=None, lag=None),
        move("t", 1, directory="/d", lag=1234),
    ]
    monkeypatch.setattr(partition, "under_way", lambda _: found)
    said = asked(partition, Mock(), "partitions", "moves")
    assert cells(said.out) == [
        ["topic", "partition", "replicas", "adding", "removing", "to directory", "behind"],
        ["t", "0", "1 2", "2 3", "1", "-", "-"],
        ["t", "1", "1 2", "-", "-", "/d", "1,234"],
    ]
    assert "<bold>t " in said.out
    said = asked(partition, Mock(), "partitions", "moves", "--json", pipe=True)
    assert said.json[1] == {
        **said.json[0],
        "partition": 1,
        "adding": [],
        "removing": [],
        "directory": "/d",
        "lag": 1234,
    }
    found.clear()
    assert asked(partition, Mock(), "partitions", "moves").out == "<dim>nothing is moving</>\n"


VIEWS = [
    PartitionView("t", 0, 1, [1, 2], [1, 2]),
    PartitionView("t", 1, None, [1, 2], [2]),
    PartitionView("t", 2, 1, [1, 2], [1]),
]


@pytest.mark.parametrize(("views", "code"), [(VIEWS, 1), (VIEWS[:1], 0)])
def test_partitions_in_trouble_are_listed(
    asked: Callable[..., Said], monkeypatch: pytest.MonkeyPatch, views: list[PartitionView], code: int
) -> None:
    monkeypatch.setattr(partition, "every_partition", lambda _: views)
    head = ["topic", "partition", "leader", "replicas", "in sync", "trouble"]
    healthy = ["t", "0", "1", "1 2", "1 2", "-"]
    troubled = [["t", "1", "-", "1 2", "2", "no leader"], ["t", "2", "1", "1 2", "1", "behind"]]
    for words in (("partitions",), ("partitions", "list")):
        said = asked(partition, Mock(), *words)
        assert said.code == code
        if code:
            assert cells(said.out) == [head, *troubled]
            assert "<red>no leader" in said.out
        else:
            assert said.out == "<dim>all partitions (1) have a leader and all their replicas in sync</>\n"
    said = asked(partition, Mock(), "partitions", "list", "--all")
    assert (said.code, cells(said.out)) == (code, [head, healthy, *(troubled if code else [])])
    said = asked(partition, Mock(), "partitions", "--json", pipe=True)
    assert (said.code, [each["partition"] for each in said.json]) == (code, [1, 2] if code else [])
    assert len(asked(partition, Mock(), "partitions", "list", "-a", "--json", pipe=True).json) == len(views)


@pytest.mark.parametrize("wait", [True, False])
@pytest.mark.parametrize("left", [0, 2])
def test_a_move_says_whether_it_has_ended(
    asked: Callable[..., Said], monkeypatch: pytest.MonkeyPatch, wait: bool, left: int
) -> None:
    one, two = TopicPartition("t", 0), TopicPartition("t", 1)
    begin, unthrottle = Mock(return_value=[one, two]), Mock()
    monkeypatch.setattr(partition, "begin_move", begin)
    monkeypatch.setattr(partition, "unthrottle", unthrottle)
    follow = Mock(return_value=left)
    monkeypatch.setattr(partition, "follow_moves", follow)
    client = Mock()
    client.list_partition_reassignments.return_value = {}
    words = ("partitions", "move", "t", "--to", "2, 3", "-p", "0", "-p", "1", *(() if wait else ("--no-wait",)))
    ended = wait and not left
    place = "on" if ended else "on the way to"
    said = asked(partition, client, *words, pipe=True)
    assert said == (0, "", f"2 partitions of t {place} 2 3\n")
    assert begin.call_args == call(client, "t", [2, 3], (0, 1), bytes_per_s=None)
    assert (follow.called, unthrottle.called) == (wait, False)
    if wait:
        assert follow.call_args.args[:2] == ("moving t", 2)
        client.list_partition_reassignments.return_value = {one: 1, two: 2}
        assert follow.call_args.args[2]() == 2
        assert client.list_partition_reassignments.call_args == call([one, two])
    client.list_partition_reassignments.return_value = {}
    said = asked(partition, client, *words, "--throttle", "9", "--json", pipe=True)
    assert said.json == {"topic": "t", "partitions": [0, 1], "to": [2, 3], "done": ended}
    assert unthrottle.call_args_list == ([call(client, ["t"])] if ended else [])
    stays = "; run `ottla partitions unthrottle` after the last move to remove the throttle"
    unthrottle.reset_mock()
    if ended:  # other moves need the throttle still
        client.list_partition_reassignments.return_value = {TopicPartition("u", 0): 1}
    said = asked(partition, client, *words, "--throttle", "9", pipe=True)
    assert said.err == f"2 partitions of t {place} 2 3{stays}\n"
    assert not unthrottle.called


@pytest.mark.parametrize("words", ["1,,2", "a", "1;2", ""])
def test_a_move_goes_to_numbers(asked: Callable[..., Said], words: str) -> None:
    said = asked(partition, Mock(), "partitions", "move", "t", "--to", words, pipe=True)
    expected = f"ottla: --to {words}: expected node ids separated by commas, such as --to 1,2,3"
    assert (said.code, said.err.splitlines()[0]) == (2, expected)
    said = asked(partition, Mock(), "partitions", "move", "t", "--to", "1,2,1", pipe=True)
    assert (said.code, said.err.splitlines()[0]) == (2, "ottla: --to 1,2,1: a node is listed twice")


@pytest.mark.parametrize(("wait", "left"), [(True, 0), (True, 1), (False, 0)])
def test_a_move_to_another_directory_is_of_one_node(
    asked: Callable[..., Said], monkeypatch: pytest.MonkeyPatch, wait: bool, left: int
) -> None:
    begin = Mock(return_value=[SimpleNamespace(partition=4)])
    monkeypatch.setattr(partition, "begin_directory_move", begin)
    follow = Mock(return_value=left)
    monkeypatch.setattr(partition, "follow_moves", follow)
    client = Mock()
    client.describe_cluster.return_value = SimpleNamespace(nodes=[SimpleNamespace(id=7)])
    words = ("partitions", "move-directory", "t", "/d", "-p", "4", *(() if wait else ("--no-wait",)))
    ended = wait and not left
    said = asked(partition, client, *words, pipe=True)
    assert said == (0, "", f"1 partition of t {'in' if ended else 'on the way to'} /d\n")
    assert begin.call_args == call(client, "t", "/d", 7, (4,))
    assert follow.called is wait
    said = asked(partition, client, *words, "-N", "3", "--json", pipe=True)
    assert said.json == {"topic": "t", "partitions": [4], "node": 3, "directory": "/d", "done": ended}
    client.describe_cluster.return_value = SimpleNamespace(nodes=[SimpleNamespace(id=9), SimpleNamespace(id=7)])
    said = asked(partition, client, *words, pipe=True)
    assert (said.code, said.err.splitlines()[0]) == (2, "ottla: choose a node with -N: 7 9")


def test_a_disk_that_is_offline_is_shown_red(asked: Callable[..., Said]) -> None:
    def directory(path: str, size: int, error: KafkaError | None = None) -> LogDirDescription:
        replicas = (ReplicaLogDir(TopicPartition("t", 0), size, 0, False),) * 2
        return LogDirDescription(path, error, replicas, 10 << 30, 5 << 20)

    client = Mock()
    broken = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    client.describe_log_dirs.return_value = Results({2: (directory("/b", 1, broken),), 1: (directory("/a", 2048),)}, {})
    said = asked(disk, client, "disks")
    assert cells(said.out) == [
        ["node", "directory", "partitions", "logs", "free", "total"],
        ["1", "/a", "2", "4.0 KiB", "5.0 MiB", "10.0 GiB"],
        ["2", "/b", "offline", "2 B", "5.0 MiB", "10.0 GiB"],
    ]
    assert "<red>" in said.out.splitlines()[2] and "<red>" not in said.out.splitlines()[1]
    assert "<bold>/a" in said.out
    said = asked(disk, client, "disks", "-t")
    assert cells(said.out) == [["node", "topic", "logs"], ["1", "t", "4.0 KiB"], ["2", "t", "2 B"]]
    rows = asked(disk, client, "disks", "--json", pipe=True).json
    assert [row["error"] for row in rows] == [None, "KAFKA_STORAGE_ERROR"]
    assert rows[0] == {
        "node": 1,
        "directory": "/a",
        "partitions": 2,
        "log_bytes": 4096,
        "free_bytes": 5 << 20,
        "total_bytes": 10 << 30,
        "error": None,
    }
    assert asked(disk, client, "disks", "-t", "--json", pipe=True).json[1] == {"node": 2, "topic": "t", "log_bytes": 2}


def test_hanging_transactions_are_shown_and_are_exit_code_1(
    asked: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [(TopicPartition("t", 1), ActiveProducer(7000, 1, 2, AT_MS, None, 12_345))]
    find = Mock(return_value=found)
    monkeypatch.setattr("ottla.operations.hanging.find_hanging", find)
    said = asked(transaction, client := Mock(), "transactions", "hanging", "t", "-m", "3")
    assert said.code == 1
    assert cells(said.out) == [
        ["topic", "partition", "start offset", "producer", "last wrote"],
        ["t", "1", "12,345", "7,000", "2001-09-09T01:46:40.000Z"],
    ]
    assert find.call_args == call(client, "t", longer_than_ms=180_000)
    said = asked(transaction, Mock(), "transactions", "hanging", "--json", pipe=True)
    about = {"topic": "t", "partition": 1, "start_offset": 12_345, "producer": 7000, "last_timestamp": AT_MS}
    assert (said.code, said.json) == (1, [about])
    found.clear()
    for words in ((), ("--json",)):
        said = asked(transaction, Mock(), "transactions", "hanging", *words)
        assert (said.code, said.out) == (0, "[]\n" if words else "<dim>there are no hanging transactions</>\n")


def owned(name: str, owner: str, at: int, *renewers: str) -> DelegationToken:
    return DelegationToken(name, b"hmac", owner, "User:eve", AT_MS + at, AT_MS + 1000, AT_MS + 2000, renewers)


def test_tokens_are_shown_by_owner_and_age(asked: Callable[..., Said]) -> None:
    client = Mock()
    client.describe_delegation_tokens.return_value = [
        owned("three", "User:bob", 0),
        owned("two", "User:ann", 5000, "User:x", "User:y"),
        owned("one", "User:ann", 0),
    ]
    said = asked(token, client, "tokens", "describe", "ann", "--owner-principal", "Service:bob")
    assert client.describe_delegation_tokens.call_args == call(["User:ann", "Service:bob"])
    rows = cells(said.out)
    assert [row[0] for row in rows] == ["id", "one", "two", "three"]
    assert rows[2][:4] == ["two", "User:ann", "User:eve", "User:x, User:y"]
    assert "<bold>one" in said.out
    client.describe_delegation_tokens.return_value = []
    empty = "<dim>there are no tokens that this user may see; ottla tokens create creates one</>\n"
    assert asked(token, client, "tokens").out == empty
    assert client.describe_delegation_tokens.call_args == call(None)


def test_a_new_token_is_shown_with_its_hmac_and_a_warning(asked: Callable[..., Said]) -> None:
    client = Mock()
    client.create_delegation_token.return_value = owned("one", "User:ann", 0)
    said = asked(token, client, "tokens", "create", "--owner", "ann", "--renewer", "bob", "--max-life-time", "2h")
    moments = [f"2001-09-09T01:46:4{seconds}.000Z" for seconds in (1, 2)]
    assert cells(said.out) == [
        ["id", "hmac", "owner", "expires", "ends"],
        ["one", "aG1hYw==", "User:ann", *moments],
    ]
    assert said.err == "<dim>the HMAC is the token's password: keep it, it is not shown again</>\n"
    asking = {"owner": "User:ann", "renewers": ["User:bob"], "max_lifetime_ms": 7_200_000}
    assert client.create_delegation_token.call_args == call(**asking)
    asked(token, client, "tokens", "create")
    assert client.create_delegation_token.call_args == call(owner=None, renewers=[], max_lifetime_ms=-1)
    for verb in ("renew", "expire"):
        client.describe_delegation_tokens.return_value = [owned("one", "User:ann", 0)]
        act = getattr(client, f"{verb}_delegation_token")
        act.return_value = AT_MS + 1000
        said = asked(token, client, "tokens", verb, "one", "--period", "2h", pipe=True)
        assert said == (0, "", f"token one expires {moments[0]}\n")
        assert act.call_args.args == (b"hmac",)
        assert list(act.call_args.kwargs.values()) == [7_200_000]
        said = asked(token, client, "tokens", verb, "one", "--json", pipe=True)
        assert said.json == {"id": "one", "expires": moments[0]}


def test_log_directories_are_shown_by_their_state(asked: Callable[..., Said], tmp_path: Any) -> None:
    made, empty = tmp_path / "made", tmp_path / "empty"
    for path in (made, empty):
        path.mkdir()
    (made / "meta.properties").write_text("version=1\ncluster.id=c\nnode.id=7\n")
    file = tmp_path / "server.properties"

    def info(*paths: Any, json: bool = False) -> Said:
        file.write_text(
            f"process.roles=broker,controller\nnode.id=7\nlog.dirs={','.join(map(str, paths))}\n"
            "listeners=PLAINTEXT://:9092,CONTROLLER://:9093\ncontroller.listener.names=CONTROLLER\n"
            "controller.quorum.bootstrap.servers=h:9093\n"
        )
        return asked(storage, None, "storage", "info", "-c", str(file), *(["--json"] if json else []), pipe=json)

    storage.admin = None  # type: ignore[attr-defined]
    said = info(made, empty, tmp_path / "none")
    assert said.code == 1
    assert [row[1:] for row in cells(said.out.replace(str(tmp_path), ""))] == [
        ["state", "cluster", "node"],
        ["formatted", "c", "7"],
        ["empty", "-", "-"],
        ["not there", "-", "-"],
    ]
    assert "<green>formatted" in said.out and "<yellow>empty" in said.out
    said = info(made, json=True)
    assert (said.code, said.json) == (
        0,
        [{"directory": str(made), "state": "formatted", "version": "1", "cluster.id": "c", "node.id": "7"}],
    )
    assert info(empty, json=True).code == 1


def passwords(client: Mock) -> set[str]:
    return {each.password for (changes,), _ in client.alter_scram_credentials.call_args_list for each in changes}


def test_a_password_is_the_first_line_of_stdin(asked: Callable[..., Said], monkeypatch: pytest.MonkeyPatch) -> None:
    client = Mock()
    client.alter_scram_credentials.return_value = Results({}, {})
    said = asked(user, client, "users", "set", "ann", pipe=True, typed="s3cret\nmore\n")
    assert (said.code, said.out) == (0, "")
    assert said.err.startswith("set the password of ann (SCRAM-SHA-256")
    assert passwords(client) == {"s3cret"}
    client.reset_mock()
    said = asked(user, client, "users", "set", "ann", pipe=True, typed="\n")
    assert said == (1, "", "ottla: stdin is empty (expected the password on its first line)\n")
    assert client.mock_calls == []
    prompt = Mock(return_value="typed")
    monkeypatch.setattr("click.prompt", prompt)
    assert asked(user, client, "users", "set", "ann").code == 0
    assert prompt.call_args == call("password of ann", hide_input=True, confirmation_prompt=True, err=True)
    assert passwords(client) == {"typed"}


MEASURED = {
    "records": 12_000,
    "seconds": 1.5,
    "records_per_second": 8000,
    "mebibytes_per_second": 7.8,
    "first_record_after_ms": None,
    "latency_ms": {"p50": 1234.5, "max": 2},
}


def test_a_measurement_is_a_table_for_people_and_lines_for_programs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [
        ["records", "12,000"],
        ["time", "1.5 s"],
        ["records a second", "8,000"],
        ["throughput", "7.8 MiB/s"],
        ["latency p50", "1,234.5 ms"],
        ["latency max", "2 ms"],
    ]
    perf._report(MEASURED, as_json=False)
    assert [line.split("\t") for line in capsys.readouterr().out.splitlines()] == rows
    perf._report({"first_record_after_ms": 30, "records": 1}, as_json=False)
    assert capsys.readouterr().out == "first record after\t30 ms\nrecords\t1\n"
    perf._report(MEASURED, as_json=True)
    assert json.loads(capsys.readouterr().out) == MEASURED
    table = Mock()
    monkeypatch.setattr(screen, "on_terminal", lambda: True)
    monkeypatch.setattr(screen, "table", table)
    perf._report(MEASURED, as_json=False)
    columns, shown = table.call_args.args
    assert ([list(row) for row in shown], table.call_args.kwargs) == (rows, {"headless": True})
    assert [(column.style, column.numeric) for column in columns] == [("dim", False), ("", True)]


def test_a_latency_is_from_the_send_to_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter([0, 5_000_000, 10_000_000, 12_000_000])
    monkeypatch.setattr(perf, "time", SimpleNamespace(perf_counter_ns=lambda: next(moments)))
    consumer, producer = MagicMock(), MagicMock()
    consumer.__enter__.return_value, producer.__enter__.return_value = consumer, producer
    consumer.partitions_for.return_value = [0, 1]
    monkeypatch.setattr("ottla.client.Consumer", lambda _: consumer)
    monkeypatch.setattr("ottla.client.Producer", lambda _: producer)
    consumer.poll.return_value = ["record"]
    bar: Any = Mock(task_ids=[0])
    latencies, total_ns, most_ns, _ = perf._round_trips({}, {}, "t", 2, 9, bar)
    assert (total_ns, most_ns) == (7_000_000, 5_000_000)
    assert producer.send.call_args_list == [call("t", b"x" * 9)] * 2
    assert consumer.poll.call_args_list == [call(30.0)] * 2
    places = [TopicPartition("t", 0), TopicPartition("t", 1)]
    assert consumer.assign.call_args == consumer.seek_to_end.call_args == call(places)
    assert consumer.position.call_args_list == [call(place) for place in places], "the end is known before the first"
    assert producer.send.return_value.result.call_count == 2, "a record that was refused does not come back"
    assert bar.update.call_args_list == [call(0, completed=0, count=0, rate="5.00 ms")]
    assert latencies is not None
    consumer.poll.return_value = []
    moments = iter([0, 1])
    with pytest.raises(KafkaError, match="the record did not come back within 30 s"):
        perf._round_trips({}, {}, "t", 2, 9, bar)
