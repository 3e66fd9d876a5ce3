"""Kafka's tools for moves, topics, transactions and metadata where a cluster or a file says no.

The cluster is a table of answers; nothing is sent.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, call

import pytest

from ottla.cli.kafka.metadata.metadata_path import match
from ottla.cli.kafka.metadata.metadata_shell import Shell
from ottla.cli.kafka.metadata.metadata_tree import Leaf, TreeDirectory
from ottla.cli.kafka.program.tool import Failed
from ottla.cli.kafka.topics import reassignment, reassignment_move, transaction
from ottla.cli.kafka.topics import topic as topics
from ottla.client import ErrorCode, KafkaError, TopicPartition
from ottla.client.admin.replica import Replica
from ottla.operations.hanging import SearchFailed
from tests.cli.test_kafka_shown import run
from tests.cli.test_reassign import Cluster
from tests.cli.tool import Said

REFUSED = KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "not you")
ONE = TopicPartition("t", 0)


# ---- kafka-reassign-partitions


def reassign(cluster: Cluster, path: Path, document: Any, *words: str) -> Said:
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return run(reassignment, "kafka-reassign-partitions", cluster.client, *words)


@pytest.mark.parametrize(
    ("document", "brokers", "why"),
    [
        ({"topics": [{"topic": "t"}]}, "1,x", 'For input string: "x"'),
        ({"topics": [{"topic": "t"}]}, "1,2,2,1", "Broker list contains duplicate entries: [1, 2]"),
        (
            {"topics": [{"topic": "u"}, {"topic": "t"}, {"topic": "u"}, {"topic": "t"}]},
            "1,2",
            "List of topics to reassign contains duplicate entries: [t, u]",
        ),
        ({"topics": [], "version": 2}, "1,2", "Not supported version field value 2"),
        ("no", "1,2", "The input string is not a valid JSON"),
        (
            {"topics": [{"topic": "t"}]},
            "1",
            (
                "org.apache.kafka.common.errors.InvalidReplicationFactorException: The target replication factor of 2 "
                "cannot be reached because only 1 broker(s) are registered or some brokers have all their log "
                "directories cordoned."
            ),
        ),
    ],
)
def test_a_proposal_that_cannot_be_is_told(tmp_path: Path, document: Any, brokers: str, why: str) -> None:
    path = tmp_path / "topics.json"
    words = ("--generate", "--broker-list", brokers, "--topics-to-move-json-file", str(path))
    said = reassign(Cluster(), path, document, *words)
    assert said.code == 1
    assert why in (said.out + said.err).splitlines()[0]


def test_a_proposal_needs_all_racks_or_none(tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    cluster = Cluster()
    nodes = [SimpleNamespace(id=number, rack="r" if number == 1 else None) for number in (1, 2, 3)]
    cluster.client.describe_cluster.return_value = SimpleNamespace(nodes=nodes)
    words = ("--generate", "--broker-list", "1,2", "--topics-to-move-json-file", str(path))
    document = {"topics": [{"topic": "t"}]}
    said = reassign(cluster, path, document, *words)
    assert said.code == 1
    assert "Not all brokers have rack information. Add --disable-rack-aware in command line" in said.out + said.err
    said = reassign(cluster, path, document, *words, "--disable-rack-aware")
    assert said.code == 0
    head, now, blank, proposed, plan = said.out.splitlines()
    assert (head, blank, proposed) == (
        "Current partition replica assignment",
        "",
        "Proposed partition reassignment configuration",
    )
    for text, has_directories in ((now, True), (plan, True)):
        partitions = json.loads(text)["partitions"]
        assert [each["partition"] for each in partitions] == [0, 1, 2]
        assert all(sorted(each["replicas"]) == [1, 2] for each in partitions)
        assert all(("log_dirs" in each) is has_directories for each in partitions)


@pytest.mark.parametrize(
    ("entry", "version", "why"),
    [
        ({"topic": "t", "partition": 0, "replicas": [1]}, 3, "Not supported version field value 3"),
        (
            {"topic": "t", "partition": 0, "replicas": [1, 2], "log_dirs": ["any"]},
            1,
            "Size of replicas list [1, 2] is different from size of log dirs list ['any'] for partition t-0",
        ),
        ({"topic": "t", "partition": "0", "replicas": [1]}, 1, ""),
        ({"topic": "t", "replicas": [1]}, 1, ""),
    ],
)
def test_a_plan_that_is_none_moves_nothing(tmp_path: Path, entry: Any, version: int, why: str) -> None:
    path = tmp_path / "plan.json"
    cluster = Cluster()
    document = {"version": version, "partitions": [entry]}
    said = reassign(cluster, path, document, "--execute", "--reassignment-json-file", str(path))
    assert said.code == 1
    assert why in (said.out + said.err).splitlines()[0]
    assert cluster.asked == []


@pytest.mark.parametrize(
    ("left", "failed", "raised"),
    [
        ({}, {}, None),
        ({Replica("t", 1, 2): "/d"}, {}, "Timed out before log directory move could be started for: t-1-2"),
        (
            {Replica("t", 1, 2): "/d", Replica("t", 0, 1): "/d"},
            {},
            "Timed out before log directory moves could be started for: t-0-1,t-1-2",
        ),
        ({Replica("t", 1, 2): "/d"}, {Replica("t", 0, 1): REFUSED}, "Failed to alter dir for t-0-1"),
    ],
)
def test_moves_between_directories_that_do_not_begin_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], left: Any, failed: Any, raised: str | None
) -> None:
    def begin(client: Any, directories: Any, timeout_ms: int, begun: Any) -> Any:
        assert timeout_ms == 500
        begun(Replica("t", 2, 3), "/e")
        return left, failed

    monkeypatch.setattr(reassignment_move, "begin_directory_moves", begin)
    client: Any = Mock()
    if raised is None:
        reassignment_move._move(client, {}, 500)
    else:
        with pytest.raises(Exception) as error:
            reassignment_move._move(client, {}, 500)
        assert str(error.value) == raised
    begun = "Successfully started moving log directory to /e for replica t-2 with broker 3 \n"
    assert capsys.readouterr().out == begun


@pytest.mark.parametrize(
    ("place", "line", "goes_on"),
    [
        (
            None,
            (
                "Partition t-0 is not found in any live log dir on broker 1. There is likely an offline log directory "
                "on the broker."
            ),
            False,
        ),
        (("/a", "/b"), "Reassignment of replica t-0-1 is still in progress.", True),
        (("/a", "/c"), "Partition t-0 on broker 1 is being moved to log dir /c instead of /b.", True),
        (("/b", None), "Reassignment of replica t-0-1 completed successfully.", False),
    ],
)
def test_the_state_of_a_move_between_directories_is_told(
    monkeypatch: pytest.MonkeyPatch, place: Any, line: str, goes_on: bool
) -> None:
    where = {(ONE, 1): place} if place else {}
    monkeypatch.setattr(reassignment_move, "directories_of", lambda *_: where)
    plan = reassignment_move.Plan({ONE: [1]}, {Replica("t", 0, 1): "/b"}, [ONE])
    client: Any = Mock()
    assert reassignment_move._directory_status(client, plan) == ([line], goes_on)
    assert reassignment_move._directory_status(client, reassignment_move.Plan({ONE: [1]}, {}, [ONE])) == ([""], False)


# ---- kafka-topics


def test_settings_of_a_new_topic_are_pairs_of_known_names() -> None:
    def configs(*entries: str) -> dict[str, str]:
        given: Any = SimpleNamespace(values=lambda _: list(entries))
        return topics._configs(given)

    assert configs(" retention.ms = 5 ", "cleanup.policy=compact") == {"retention.ms": "5", "cleanup.policy": "compact"}
    for wrong in ("retention.ms", "retention.ms=", "a=b=c", ""):
        with pytest.raises(Failed, match=r'all configs to be added must be in the format "key=val"\.$'):
            configs(wrong)
    with pytest.raises(Failed, match=r"^Unknown topic config name: retention$"):
        configs("retention=5")


@pytest.mark.parametrize(
    ("code", "words", "out"),
    [
        (ErrorCode.TOPIC_ALREADY_EXISTS, ("--if-not-exists",), ""),
        (ErrorCode.TOPIC_ALREADY_EXISTS, (), "Error while executing topic command : there\n"),
        (
            ErrorCode.INVALID_REPLICATION_FACTOR,
            ("--if-not-exists",),
            "Error while executing topic command : there\n",
        ),
    ],
)
def test_a_topic_that_is_there_is_an_error_unless_it_may_be(code: ErrorCode, words: tuple[str, ...], out: str) -> None:
    client = Mock()
    client.create_topics.return_value.check.side_effect = KafkaError(code, "there")
    said = run(topics, "kafka-topics", client, "--create", "--topic", "t", *words)
    assert (said.code, said.out) == (1 if out else 0, out)


# ---- kafka-transactions


@pytest.mark.parametrize(
    ("method", "words", "why"),
    [
        ("list_transactions", ("list",), "Failed to list transactions: not you"),
        (
            "describe_transactions",
            ("describe", "--transactional-id", "x"),
            "Failed to describe transaction state of transactional-id `x`: not you",
        ),
        (
            "describe_producers",
            ("abort", "--topic", "t", "--partition", "0", "--start-offset", "1"),
            "Failed to validate producer state for partition t-0: not you",
        ),
    ],
)
def test_what_a_cluster_refuses_is_told_in_one_line(method: str, words: tuple[str, ...], why: str) -> None:
    client = Mock()
    getattr(client, method).side_effect = REFUSED
    said = run(transaction, "kafka-transactions", client, *words)
    assert said == (1, "", f"{why}. Enable debug logging for additional detail.\n")
    assert not client.abort_transaction.called


def test_a_transactional_id_that_is_not_there_is_told() -> None:
    client = Mock()
    client.describe_transactions.side_effect = KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    said = run(transaction, "kafka-transactions", client, "describe", "--transactional-id", "x")
    why = "DescribeTransactions request for transactionalId `x` failed because the ID could not be found"
    assert (said.code, why in said.err) == (1, True)


def test_a_search_for_hanging_transactions_that_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction, "find_hanging", Mock(side_effect=SearchFailed("list transactions", REFUSED)))
    said = run(transaction, "kafka-transactions", Mock(), "find-hanging", "--topic", "t")
    assert said == (1, "", "Failed to list transactions: not you. Enable debug logging for additional detail.\n")
    for words, why in (
        ((), "The `find-hanging` command requires either --topic or --broker-id to limit the scope of the search"),
        (("--broker-id", "1", "--partition", "1"), "The --partition argument requires --topic to be provided"),
    ):
        assert run(transaction, "kafka-transactions", Mock(), "find-hanging", *words) == (1, "", f"{why}\n")


# ---- kafka-metadata-shell


def tree() -> TreeDirectory:
    leaves = {name: Leaf(name) for name in ("one", "two", "th*ee", "a,b")}
    inner = TreeDirectory(lambda: list(leaves.items()))
    return TreeDirectory(lambda: [("in", inner), ("out", Leaf("out"))])


@pytest.mark.parametrize(
    ("parts", "paths"),
    [
        ("", ["/"]),
        ("in", ["/in"]),
        ("in/one", ["/in/one"]),
        ("in/none", []),
        # A leaf has nothing below it.
        ("out/one", []),
        ("*", ["/in", "/out"]),
        ("*/one", ["/in/one"]),
        ("in/t*", ["/in/th*ee", "/in/two"]),
        ("in/?n?", ["/in/one"]),
        ("in/{one,two}", ["/in/one", "/in/two"]),
        ("in/{t}*", ["/in/th*ee", "/in/two"]),
        ("in/*\\**", ["/in/th*ee"]),
        ("in/{o,t}?{e,o}", ["/in/one", "/in/two"]),
        # A comma outside of a group is one; a group that is not closed, or in another, is a name.
        ("in/?,b", ["/in/a,b"]),
        ("in/{one", []),
        ("in/{{one}}", []),
        ("in/*\\", []),
    ],
)
def test_paths_have_the_wildcards_of_a_shell(parts: str, paths: list[str]) -> None:
    found = [f"/{'/'.join(path)}" for path, _ in match(tree(), [part for part in parts.split("/") if part], ())]
    assert found == paths


def test_a_child_that_cannot_be_opened_is_told() -> None:
    gone: Any = [("gone", None)]
    broken = TreeDirectory(lambda: gone)
    with pytest.raises(Failed, match=r"^Expected gone to be a valid child of /in, but it was not\.$"):
        list(match(TreeDirectory(lambda: [("in", broken)]), ["in", "*"], ()))


def talk(monkeypatch: pytest.MonkeyPatch, *typed: str | BaseException) -> None:
    left = iter(typed)

    def read(prompt: str) -> str:
        assert prompt == ">> "
        line = next(left, EOFError())
        if isinstance(line, BaseException):
            raise line
        return line

    monkeypatch.setattr("builtins.input", read)
    Shell(tree(), interactive=True).talk()


def test_a_shell_goes_on_until_exit_or_the_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    talk(monkeypatch, "cd in", "pwd", 'ls "', "", "  ", "history 2", "man pwd", "man no")
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == ["[ Kafka Metadata Shell ]", "/in", "No closing quotation"]
    assert lines[3:5] == ["    4    ", "    5  history 2"]
    assert lines[5].startswith("pwd: ")
    assert lines[6] == "man: unknown command no. Type help to get a list of commands."
    assert lines[7:] == [""], "the prompt's line ends"
    talk(monkeypatch, "history", "exit", "pwd")
    assert capsys.readouterr().out.splitlines() == ["[ Kafka Metadata Shell ]", "    0  history"]


def test_an_interrupt_ends_the_line_and_not_the_shell(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    talk(monkeypatch, "cd in", KeyboardInterrupt(), "pwd", "history")
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:] == ["^C", "/in", "    0  cd in", "    1  pwd", "    2  history", ""]


def test_help_lists_the_commands(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    talk(monkeypatch, "help")
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:3] == ["Welcome to the metadata shell.", ""]
    names = [line.split()[0] for line in lines[3:-1]]
    assert {"cat", "cd", "find", "help", "history", "ls", "man", "pwd", "tree", "exit"} <= set(names)
    assert all(line.startswith(f"  {name:<10}") for name, line in zip(names, lines[3:], strict=False))


def test_a_terminal_completes_names(monkeypatch: pytest.MonkeyPatch) -> None:
    readline = Mock()
    readline.get_line_buffer.return_value = "ls i"
    monkeypatch.setitem(__import__("sys").modules, "readline", readline)
    shell = Shell(tree(), interactive=True)
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: False))
    shell._complete()
    assert readline.mock_calls == []
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    shell._complete()
    assert readline.set_completer_delims.call_args == call(" ")
    assert readline.parse_and_bind.call_args == call("tab: complete")
    complete = readline.set_completer.call_args.args[0]
    assert [complete("i", number) for number in (0, 1, 2)] == [complete("i", 0), None, None]
    assert complete("i", 0).startswith("in")
