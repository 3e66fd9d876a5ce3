"""The parts of a bundle from one machine: which files are listed and copied, and how much of each."""

from __future__ import annotations

import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.kernel.error import OttlaError
from ottla.operations.bundle import node
from ottla.operations.bundle.archive import Absent
from ottla.operations.bundle.mask import Mask
from ottla.operations.bundle.process import LocalNode, NodeFiles


class Parts:
    """A bundle that keeps its parts: the content, or why there is none."""

    def __init__(self) -> None:
        self.mask = Mask()
        self.parts: dict[str, Any] = {}
        self.about: dict[str, str] = {}

    def text(self, name: str, what: str, content: Any) -> Any:
        self.about[name] = what
        try:
            self.parts[name] = content()
        except (OttlaError, OSError, Absent) as error:
            self.parts[name] = error
            return None
        return self.parts[name]

    document = text

    def fail(self, name: str, why: Any) -> None:
        self.parts[name] = why


@pytest.fixture
def bundle() -> Any:
    return Parts()


def test_all_files_of_a_directory_are_listed_in_order_with_size_and_time(tmp_path: Path) -> None:
    (tmp_path / "b").write_bytes(b"x" * 12_345)
    (tmp_path / "a").touch()
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / "c.log").write_bytes(b"1")
    (tmp_path / "z").symlink_to("nowhere")
    for name in ("a", "b", "t-0/c.log"):
        os.utime(tmp_path / name, (1_000_000_000, 1_000_000_000))
    lines = list(node._files(tmp_path))
    at = "2001-09-09T01:46:40Z"
    assert lines[:2] == [f"{0:>14}  {at}  a\n", f"{12345:>14}  {at}  b\n"]
    assert re.fullmatch(r" +7  \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ  z\n", lines[2])
    assert lines[3:] == [f"{1:>14}  {at}  t-0/c.log\n"]
    with pytest.raises(FileNotFoundError):
        list(node._files(tmp_path / "missing"))


def test_a_list_of_files_is_bounded_and_names_one_that_goes_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abc":
        (tmp_path / name).touch()
    lstat = os.lstat

    def gone(path: str) -> Any:
        if path.endswith("b"):
            raise FileNotFoundError(2, "No such file or directory")
        return lstat(path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "lstat", gone)
        assert [line.split()[0] for line in node._files(tmp_path)] == ["0", "?", "0"]
        assert list(node._files(tmp_path))[1] == f"{'?':>14}  No such file or directory  b\n"
    monkeypatch.setattr(node, "_FILES_MAX", 3)
    assert len(list(node._files(tmp_path))) == 3
    monkeypatch.setattr(node, "_FILES_MAX", 2)
    lines = list(node._files(tmp_path))
    assert [line.split()[-1] for line in lines] == ["a", "b", "listed"]
    assert lines[-1] == "... and more: only the first 2 files are listed\n"


def test_files_are_read_from_their_beginning_and_logs_from_their_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node, "_SMALL_BYTES_MAX", 10)
    monkeypatch.setattr(node, "_TAIL_BYTES", 10)
    path = tmp_path / "log"
    for text, head, tail in (
        ("", "", ""),
        ("1\n2\n", "1\n2\n", "1\n2\n"),
        ("one\ntwo\nthree\n", "one\ntwo\nth", "three\n"),
        ("12345678\n", "12345678\n", "12345678\n"),
        # As long as the bound: the first line may be cut.
        ("1234\n6789\n", "1234\n6789\n", "6789\n"),
    ):
        path.write_text(text)
        assert (node._small(path), node._tail(path)) == (head, tail)
    path.write_bytes(b"\xff")
    assert node._small(path) == "\ufffd"
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OttlaError, match=r"pipe is not a regular file$"):
        node._small(tmp_path / "pipe")


def test_text_files_of_a_directory_are_copied_and_no_records(bundle: Any, tmp_path: Path) -> None:
    metadata = tmp_path / "__cluster_metadata-0"
    for directory, names in (
        (tmp_path, ("meta.properties", "recovery-point-offset-checkpoint", "other.txt")),
        (metadata, ("quorum-state", "00000000000000000000.log", "leader-epoch-checkpoint")),
        (tmp_path / "orders-0", ("leader-epoch-checkpoint",)),
    ):
        directory.mkdir(exist_ok=True)
        for name in names:
            (directory / name).write_text(name)
    node._add_directory(bundle, tmp_path, "node/directory-0")
    copied = {name for name, what in bundle.about.items() if what == "copied from the directory"}
    assert copied == {
        "node/directory-0/meta.properties",
        "node/directory-0/recovery-point-offset-checkpoint",
        "node/directory-0/__cluster_metadata-0/quorum-state",
        "node/directory-0/__cluster_metadata-0/leader-epoch-checkpoint",
    }
    assert bundle.parts["node/directory-0/meta.properties"] == "meta.properties"
    assert bundle.parts["node/directory-0/files.txt"].count("\n") == 7
    disk = bundle.parts["node/directory-0/disk.json"]
    assert disk["path"] == str(tmp_path)
    assert disk["total_bytes"] > disk["free_bytes"] >= 0
    assert disk["inodes"] >= disk["inodes_free"] >= 0
    node._add_directory(bundle, tmp_path / "missing", "node/directory-1")
    assert isinstance(bundle.parts["node/directory-1/meta.properties"], FileNotFoundError)
    assert isinstance(bundle.parts["node/directory-1/files.txt"], FileNotFoundError)


def test_the_file_system_is_that_of_the_nearest_mount(monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = "/dev/a / ext4 rw 0 0\n/dev/b /data xfs rw,noatime 0 0\n/dev/c /data/deep tmpfs ro 0 0\n"
    monkeypatch.setattr(Path, "read_text", lambda _: mounts)
    for path, found in (("/data/x", "xfs rw,noatime"), ("/data/deep/x", "tmpfs ro"), ("/database", "ext4 rw")):
        assert node._file_system(Path(path)) == found

    def missing(_: Path) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", missing)
    assert node._file_system(Path("/data")) is None


def test_a_log_is_the_named_one_with_its_slow_requests(bundle: Any, tmp_path: Path) -> None:
    log = tmp_path / "node.log"
    log.write_text("ready\nslow request FETCH\nother\nslow request PRODUCE\n")
    node._add_log(bundle, str(log))
    assert bundle.about["node/log.txt"] == f"the last lines of {log}"
    assert bundle.parts["node/slow-requests.txt"] == "slow request FETCH\nslow request PRODUCE\n"
    other: Any = Parts()
    node._add_log(other, None)
    assert list(other.parts) == ["node/log.txt"]
    assert str(other.parts["node/log.txt"]) == "the node's log file is unknown; name it with --node-log"
    node._add_log(other, str(tmp_path / "missing"))
    assert list(other.parts) == ["node/log.txt"]


def test_settings_are_shown_without_secrets_and_name_the_directories(bundle: Any, tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    logs = f"{tmp_path / 'a'},{tmp_path / 'b'}"
    path.write_text(
        f"process.roles=broker,controller\nnode.id=1\nlog.dirs={logs}\nnum.partitions=7\nssl.key.password=pl4nted\n"
        "listeners=PLAINTEXT://:9092,CONTROLLER://:9093\ncontroller.listener.names=CONTROLLER\nmy.plugin=x\n"
        "controller.quorum.bootstrap.servers=h:9093\n"
    )
    for name in "ab":
        (tmp_path / name).mkdir()
    node.add_node(bundle, [], str(path), None)
    text = bundle.parts["node/server.properties"]
    assert "num.partitions=7\n" in text and "pl4nted" not in text
    rows = {row["name"]: row for row in bundle.parts["node/settings.json"]}
    assert (rows["num.partitions"]["value"], rows["num.partitions"]["source"]) == ("7", "STATIC_BROKER")
    assert rows["num.io.threads"]["source"] == "DEFAULT"
    assert "pl4nted" not in str(rows["ssl.key.password"])
    assert rows["my.plugin"].keys() == {"name", "value"}
    assert {name for name in bundle.parts if name.endswith("disk.json")} == {
        "node/directory-0/disk.json",
        "node/directory-1/disk.json",
    }
    # A node that does not run has no stacks.
    assert "the node is not running" in str(bundle.parts["node/process.json"])
    assert "node/stacks.txt" not in bundle.parts


def test_a_node_that_runs_tells_its_files_and_its_stacks(
    bundle: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "server.properties").write_text("num.partitions=7\n")
    (tmp_path / "log").write_text("ready\n")
    files = NodeFiles(str(tmp_path / "server.properties"), str(tmp_path / "log"))
    command = ["ottla", "start", "--set", "ssl.key.password=pl4nted"]
    monkeypatch.setattr(node, "find", lambda directories: LocalNode(77, command, files) if directories else None)
    monkeypatch.setattr(node, "state", lambda pid: {"pid": pid})
    monkeypatch.setattr(node, "stacks", lambda pid: f"stacks of {pid}")
    node.add_node(bundle, [str(tmp_path)], None, None)
    assert bundle.parts["node/process.json"] == {"pid": 77, "command": command, **files._asdict()}
    assert bundle.mask.text("the pl4nted one") != "the pl4nted one"
    assert bundle.parts["node/process-state.json"] == {"pid": 77}
    assert bundle.parts["node/stacks.txt"] == "stacks of 77"
    assert bundle.parts["node/server.properties"] == "num.partitions=7\n"
    assert bundle.parts["node/log.txt"] == "ready\n"
    # A log that is named goes before that of the process.
    (tmp_path / "named").write_text("named\n")
    node.add_node(bundle, [str(tmp_path)], None, str(tmp_path / "named"))
    assert bundle.parts["node/log.txt"] == "named\n"


def test_secrets_of_settings_that_are_refused_are_hidden_in_the_log(bundle: Any, tmp_path: Path) -> None:
    (tmp_path / "server.properties").write_text("num.partitions=many\nssl.key.password=pl4nted\n")
    node.add_node(bundle, [], str(tmp_path / "server.properties"), None)
    assert isinstance(bundle.parts["node/settings.json"], OttlaError)
    assert bundle.mask.text("cannot read the key with pl4nted") == "cannot read the key with [hidden]"


def test_settings_that_name_no_directory_are_told(bundle: Any, tmp_path: Path) -> None:
    (tmp_path / "server.properties").write_text("num.partitions=many\n")
    node.add_node(bundle, [], str(tmp_path / "server.properties"), None)
    assert str(bundle.parts["node/directory-0"]).startswith("the settings name no log directory: ")
    assert "node/process.json" not in bundle.parts


def test_the_versions_are_those_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    needed = ["click>=8.1", "nothing-of-this-name", "rich ; extra == 'x'"]
    monkeypatch.setattr("importlib.metadata.requires", lambda _: needed)
    found = node.versions()
    assert list(found["libraries"]) == ["click", "rich"]
    assert found["memory_bytes"] > 1 << 26
    assert found["cpus"] == os.cpu_count()
    assert len(found["open_files_limits"]) == 2
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", found["made_at"])

    def unknown() -> Any:
        raise OSError

    monkeypatch.setattr(node, "platform", SimpleNamespace(freedesktop_os_release=unknown))
    assert node._os_release() == {}
    assert node._version("nothing-of-this-name") is None
