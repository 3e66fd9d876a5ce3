"""kafka-metadata-shell, on a log of something of everything (metadata_log.py)."""

import os
from pathlib import Path
from typing import Any

import pytest

from ottla.cli.kafka.metadata.metadata_shell import Shell, columns, read_image
from ottla.cli.kafka.metadata.metadata_tree import Leaf, root
from ottla.host.disk import HostDisk
from tests.cli.kafka_tool import kafka
from tests.cli.metadata_log import write
from tests.cli.tool import Said


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return write(tmp_path)


def shell(log: Path, *words: str, typed: str = "") -> Said:
    return kafka("kafka-metadata-shell", "--snapshot", str(log), *words, typed=typed)


def lines(log: Path, *words: str) -> list[str]:
    said = shell(log, *words)
    assert (said.code, said.err) == (0, "")
    return said.out.splitlines()


def test_the_tree_has_apaches_names(log: Path) -> None:
    assert lines(log, "ls") == ["image", "local"]
    children = "acls clientQuotas cluster configs delegationToken features producerIds provenance scram topics"
    assert lines(log, "ls", "/image") == children.split()
    assert lines(log, "ls", "/image/configs") == [
        *("BROKER", "BROKER:1", "CLIENT_METRICS:m", "GROUP:g", "TOPIC:flights"),
    ]
    assert lines(log, "ls", "/image/topics/byName/flights") == ["0", "1", "id", "name"]
    assert lines(log, "find", "/image/topics/byName") == [
        "/image/topics/byName",
        "/image/topics/byName/flights",
        *(f"/image/topics/byName/flights/{each}" for each in ("0", "1", "id", "name")),
    ]


def test_a_leaf_says_what_apaches_objects_say_of_themselves(log: Path) -> None:
    assert lines(log, "cat", "/image/provenance", "/image/features/*") == [
        "offset 22, epoch 2, time 2026-11-21T14:45:55.12Z[UTC]",
        "2",
        "Optional[4.3-IV0]",
    ]
    assert lines(log, "cat", "/image/topics/byName/flights/1") == [
        (
            "PartitionRegistration(replicas=[10], directories=[AAAAAAAAAAAAAAAAAAAAAA], isr=[], removingReplicas=[], "
            "addingReplicas=[], elr=[], lastKnownElr=[], leader=-1, leaderRecoveryState=RECOVERING, leaderEpoch=-1, "
            "partitionEpoch=-1)"
        )
    ]
    assert lines(log, "cat", "/image/clientQuotas/ip*/*") == ["1.0E8"]


def test_every_leaf_is_as_the_file_beside_this_test_has_it(log: Path) -> None:
    tree = root(read_image(str(log)), "4.3.1", "abc")
    shown: list[str] = []
    _gather("", tree, shown)
    expected = Path(__file__).parent / "metadata_tree.txt"
    if os.environ.get("OTTLA_WRITE_SCENES"):
        expected.write_text("\n".join(shown) + "\n")
    assert shown == expected.read_text().splitlines()


def _gather(path: str, node: Any, shown: list[str]) -> None:
    for name, child in node.children():
        if isinstance(child, Leaf):
            shown.append(f"{path}/{name} {child.text}")
        elif child is not None:
            _gather(f"{path}/{name}", child, shown)


def test_wildcards_and_dots_name_nodes(log: Path) -> None:
    assert lines(log, "ls", "/image/../loc?l/version", "image/{acls,scram}") == [
        "version",
        "",
        "acls:",
        "byId",
        "",
        "scram:",
        "SCRAM-SHA-256",
        "SCRAM-SHA-512",
    ]
    assert lines(log, "ls", "/image/{acls") == ["ls: /image/{acls: no such file or directory."]
    assert lines(log, "tree", "/image/producerIds") == ["nextProducerId:", "  2000"]


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("cat /image", "cat: /image: Is a directory"),
        ("cat /nowhere", "cat: /nowhere: No such file or directory."),
        ("cat", "too few arguments"),
        ("show", "invalid choice: 'show' (choose from 'cat', 'find', 'ls', 'tree')"),
        ("t", "invalid choice: 't': did you mean 'tree'?"),
        ("cd /image", "invalid choice: 'cd' (choose from 'cat', 'find', 'ls', 'tree')"),
    ],
)
def test_a_wrong_command_is_told_on_stdout_and_is_no_failure(log: Path, words: str, answer: str) -> None:
    assert lines(log, *words.split()) == [answer]


def test_without_a_command_it_is_a_shell(log: Path) -> None:
    typed = (
        "cd image/cluster\npwd\nls\ncd nowhere\ncd /local/version\nls 'brokers\n\nhistory 1\nman cat\nman x\nexit\nls\n"
    )
    said = shell(log, typed=typed)
    assert said.code == 0
    shown = [line.removeprefix(">> ").removeprefix(">> ") for line in said.out.splitlines()]
    assert shown[:3] == ["Loading...", "Starting...", "[ Kafka Metadata Shell ]"]
    assert "/image/cluster" in shown
    assert "brokers  controllers" in shown
    assert "cd: nowhere: no such directory." in shown
    assert "cd: /local/version: not a directory." in shown
    assert "No closing quotation" in shown
    assert "    7  history 1" in shown
    assert "man: unknown command x. Type help to get a list of commands." in shown


@pytest.mark.parametrize(
    ("asked", "numbers"),
    [("", [0, 1, 2]), (" 2", [1, 2]), (" 0", []), (" -1", []), (" 99", [0, 1, 2]), (" x", None), (" 1_0", None)],
)
def test_the_history_is_shown_from_its_end(log: Path, asked: str, numbers: list[int] | None) -> None:
    said = shell(log, typed=f"pwd\npwd\nhistory{asked}\n")
    typed = ["pwd", "pwd", f"history{asked}"]
    if numbers is None:
        assert said.out.endswith(f">> argument count: could not convert '{asked.strip()}' to Integer\n>> \n")
    else:
        assert said.out.endswith(
            "\n".join((">> ", "")[:1]) + "".join(f"{n:5d}  {typed[n]}\n" for n in numbers) + ">> \n"
        )


@pytest.mark.parametrize(
    ("width", "entries", "shown"),
    [
        (0, "abc def", ["abc", "def"]),
        (7, "a b", ["a", "b"]),
        (8, "a b", ["a  b"]),
        (80, "a abcdef beta", ["a  abcdef  beta"]),
        (18, "alphabet beta gamma theta zeta", ["alphabet  theta", "beta      zeta", "gamma"]),
        (18, "foo foobarbaz quux", ["foo        quux", "foobarbaz"]),
        (18, "capability delegation elephant", ["capability", "delegation", "elephant"]),
        (17, "one two three", ["one  two  three"]),
        (16, "one two three", ["one  three", "two"]),
    ],
)
def test_nodes_are_listed_in_as_many_columns_as_fit(width: int, entries: str, shown: list[str]) -> None:
    """As in Kafka's LsCommandHandlerTest, whose columns have widths of their own."""
    assert columns(entries.split(), width) == shown


def test_tab_completes_commands_and_paths(log: Path) -> None:
    one = Shell(root(read_image(str(log)), "4.3.1", "ottla"), interactive=True)
    assert one.choices("h", "h") == ["help ", "history "]
    assert one.choices("ls /im", "/im") == ["/image/"]
    assert one.choices("cat /image/f", "/image/f") == ["/image/features/"]
    assert one.choices("cat local/v", "local/v") == ["local/version "]
    assert one.choices("cat /nowhere/v", "/nowhere/v") == []


def test_what_is_no_metadata_is_told_in_one_line(tmp_path: Path) -> None:
    for content, words in ((b"", "holds no metadata"), (b"x" * 200, "is neither a metadata snapshot")):
        path = tmp_path / "file"
        path.write_bytes(content)
        said = shell(path, "ls")
        assert (said.code, said.out) == (1, "")
        assert said.err.count("\n") == 1
        assert words in said.err
    assert "nowhere: No such file" in shell(tmp_path / "nowhere", "ls").err


def test_the_directory_of_a_node_that_runs_is_left_alone(log: Path, tmp_path: Path) -> None:
    held = HostDisk().lock(str(tmp_path / ".lock"))
    assert held is not None
    said = shell(log, "ls")
    held.close()
    assert said.code == 1
    assert "Please ensure that no broker or controller process is using this directory" in said.err


def test_help_ends_with_the_code_of_apaches() -> None:
    said = kafka("kafka-metadata-shell", "--help")
    assert (said.code, "--snapshot" in said.out) == (1, True)
