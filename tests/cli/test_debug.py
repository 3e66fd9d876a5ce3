"""`ottla debug bundle`, looked through for secrets that were planted everywhere."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest

from ottla.client import Producer
from ottla.operations.bundle import archive, process
from tests.cli.test_start import running, server_properties
from tests.cli.tool import Tool

#: Where each stands, the secret says.
STORE, JAAS, PLUGIN, LOGGED, COMMAND, DYNAMIC = (
    f"pl4nted-{name}" for name in ("store", "jaas", "plugin", "logged", "command", "dynamic")
)
_ID = "4L6g3nShT-eMCtK--X86sw"
_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine is no reason for a part to be missing."""
    monkeypatch.setattr(archive, "_PART_SECONDS", 50.0)
    monkeypatch.setattr(process, "_STACKS_SECONDS", 40.0)


def bundle(tool: Tool, path: Path, *arguments: str) -> dict[str, str]:
    """The files of a bundle; nothing that the tool said and nothing in it has a planted secret."""
    said = tool(
        "debug", "bundle", "-o", str(path), "--timeout", "300", "-X", "default.api.timeout.ms=60000", *arguments
    )
    assert said.code == 0, said
    with tarfile.open(path) as tar:
        members = [(each.name.partition("/")[2], tar.extractfile(each)) for each in tar]
        files = {name: file.read().decode() for name, file in members if file is not None}
    assert [name for name, text in files.items() if "pl4nted" in name + text] == []
    assert "pl4nted" not in said.out + said.err
    return files


def test_a_node_and_its_cluster_are_told_without_their_secrets(
    monkeypatch: pytest.MonkeyPatch, tool: Tool, tmp_path: Path
) -> None:
    monkeypatch.delenv("OTTLA_BOOTSTRAP_SERVERS")
    log = tmp_path / "node.log"
    line = f'{_LOGIN} username="{JAAS}-name" password="{JAAS}" user_ann="{JAAS}";'
    settings = {
        "metrics.listener": "127.0.0.1:0",
        "ssl.keystore.password": STORE,
        "listener.name.plaintext.plain.sasl.jaas.config": line,
        "plugin.secret": PLUGIN,
        "plugin.mode": "pl4nted-mode",
        "slow.request.log.ms": "0",
    }
    file = server_properties(tmp_path, **settings)
    log.write_text(f"token={LOGGED}\nstore {STORE} of {PLUGIN}\n-----BEGIN PRIVATE KEY-----\n{LOGGED}\n")
    log.write_text(log.read_text() + f"-----END PRIVATE KEY-----\nlogin https://ann:{LOGGED}@host/\n{line}\n")
    assert tool("storage", "format", "-t", _ID, "-c", file, "-s").code == 0
    with running("start", file, "--log-file", str(log), "--set", f"ssl.key.password={COMMAND}") as (node, port):
        address = f"127.0.0.1:{port}"
        assert tool("topics", "create", "orders", "-p", "3", "-b", address).code == 0
        with Producer(address) as producer:
            producer.send("orders", b"pl4nted-record").result()
        change = f"listener.name.plaintext.ssl.key.password={DYNAMIC}"
        assert tool("configs", "set", "broker", "7", change, "-b", address).code == 0
        there = bundle(tool, tmp_path / "running.tar.gz", "-d", str(tmp_path / "data"), "-b", address)
        assert str(node.pid) in there["node/process.json"]
    assert json.loads(there["missing.json"]) == {
        "metrics/node-7.txt": "the node's port is random (127.0.0.1:0); its log has the actual port",
        "metrics/node-7-health.json": "the node's port is random (127.0.0.1:0); its log has the actual port",
    }
    assert "ottla/broker/serve.py" in there["node/stacks.txt"]
    assert f"log.dirs={tmp_path / 'data'}" in there["node/server.properties"]
    assert "ssl.keystore.password=[hidden]" in there["node/server.properties"]
    assert "slow request: Produce" in there["node/slow-requests.txt"]
    assert "slow request: Produce" in there["node/log.txt"]
    assert "orders-0/00000000000000000000.log" in there["node/directory-0/files.txt"]
    assert _ID in there["node/directory-0/meta.properties"]
    assert {each["partition"] for each in _rows(there["partitions.jsonl"]) if each["topic"] == "orders"} == {0, 1, 2}
    in_force = {each["name"]: each["value"] for each in json.loads(there["settings/node-7.json"])}
    assert (in_force["node.id"], in_force["ssl.keystore.password"]) == ("7", "[hidden]")
    assert json.loads(there["health.json"])["nodes"] == 1
    assert json.loads(there["quorum.json"])["leader_id"] == 7
    assert json.loads(there["versions.json"])["libraries"]["click"]

    stopped = bundle(tool, tmp_path / "stopped.tar.gz", "--server-properties", file, "--node-log", str(log))
    assert list(json.loads(stopped["missing.json"])) == ["node/process.json"]
    assert stopped["node/directory-0/files.txt"].count("orders-") >= 3
    assert {each["name"] for each in json.loads(stopped["node/settings.json"])} >= {"log.dirs", "plugin.mode"}
    assert "cluster.json" not in stopped


def _rows(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_cluster_alone_is_asked_over_the_protocol(tool: Tool, bootstrap: str, topic: str, tmp_path: Path) -> None:
    files = bundle(tool, tmp_path / "b.tar.gz", "-b", bootstrap)
    assert list(json.loads(files["missing.json"])) == ["metrics/node-1.txt"]
    assert topic in files["partitions.jsonl"]
    assert not [name for name in files if name.startswith("node/")]
    again = tool("debug", "bundle", "-o", str(tmp_path / "b.tar.gz"))
    assert (again.code, again.err.count("\n")) == (1, 1)
    assert "already exists" in again.err


def test_a_cluster_that_does_not_answer_is_listed_beside_a_directory(tool: Tool, tmp_path: Path) -> None:
    alone = tool("debug", "bundle", "-b", "127.0.0.1:1", "-o", str(tmp_path / "a.tar.gz"))
    assert (alone.code, (tmp_path / "a.tar.gz").exists()) == (1, False)
    told = tool("debug", "bundle", "-b", "127.0.0.1:1", "-d", str(tmp_path), "-o", str(tmp_path / "b.tar.gz"), "--json")
    assert told.code == 1
    assert "nothing listens there" in told.json["missing"]["cluster.json"]
    assert "node/directory-0/files.txt" in told.json["contents"]


@pytest.mark.parametrize("name", ["data", "log"])
def test_what_cannot_be_read_is_listed(tool: Tool, tmp_path: Path, name: str) -> None:
    place = str(tmp_path / "nowhere")
    option = "--directory" if name == "data" else "--node-log"
    said = tool("debug", "bundle", option, place, "-o", str(tmp_path / "b.tar.gz"), "--json")
    told = said.json
    assert said.code == 1
    assert any("No such file" in why for why in told["missing"].values())


@pytest.mark.parametrize(
    ("local", "words", "environment", "asks"),
    [
        (False, [], {}, True),
        (True, [], {}, False),
        (True, ["-b", "b:1"], {}, True),
        (True, [], {"OTTLA_BOOTSTRAP_SERVERS": "b:1"}, True),
        (True, [], {"OTTLA_PROFILE": "near"}, True),
        (True, ["--profile", "near"], {}, True),
    ],
)
def test_a_bundle_of_a_local_node_asks_a_cluster_only_if_one_is_named(
    tool: Tool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    local: bool,
    words: list[str],
    environment: dict[str, str],
    asks: bool,
) -> None:
    config = tmp_path / "config.toml"
    config.write_text('[profiles.near]\n"bootstrap.servers" = "b:1"\n')
    monkeypatch.delenv("OTTLA_BOOTSTRAP_SERVERS")
    monkeypatch.setenv("OTTLA_CONFIG", str(config))
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    asked: list[object] = []

    def connect(_: object, settings: dict[str, object], *, or_raise: bool) -> tuple[None, str]:
        asked.append((settings["bootstrap.servers"], or_raise))
        return None, "nobody there"

    monkeypatch.setattr("ottla.cli.ottla.debug._connect", connect)
    (tmp_path / "data").mkdir()
    where = ["--directory", str(tmp_path / "data")] if local else []
    tool("debug", "bundle", "-o", str(tmp_path / "out.tar.gz"), *where, *words)
    assert asked == [("b:1" if local else "127.0.0.1:9092", not local)] * asks
    with tarfile.open(tmp_path / "out.tar.gz") as archive:
        parts = [file.read() for each in archive if (file := archive.extractfile(each)) is not None]
    assert any(b"nobody there" in part for part in parts) is asks
