"""What `ottla cluster up`, `status`, `grow`, `roll` and `down` say, on a terminal, in a pipe and as JSON.

The nodes of these clusters are names: nothing runs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.embedded.cluster import change
from ottla.embedded.cluster.local import LocalCluster
from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from tests.cli.shown_scene import _style, run

Said = tuple[int, str, str]
_STYLED = re.compile(r"\x1b\[([\d;]*)m")


_STYLES = re.compile(r"<[/\w]+>")


def _line(text: str, number: int) -> str:
    return text.splitlines()[number].rstrip()


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The nodes that run; `start` and `stop` change them."""
    up: list[int] = []

    def start(cluster: LocalCluster, nodes: list[int] | None = None) -> list[int]:
        new = [node.node_id for node in cluster.plan.nodes if node.node_id not in up]
        up.extend(new)
        return new

    def stop(cluster: LocalCluster, nodes: list[int] | None = None) -> list[int]:
        old = [*up]
        up.clear()
        return old

    monkeypatch.setattr(LocalCluster, "start", start)
    monkeypatch.setattr(LocalCluster, "stop", stop)
    monkeypatch.setattr(LocalCluster, "running", lambda _: sorted(up))
    monkeypatch.setattr("ottla.embedded.cluster.local._free_ports", lambda count: list(range(5001, 5001 + count)))
    for name, value in {"COLUMNS": "100", "LINES": "40", "TERM": "xterm-256color"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)
    return up


@pytest.fixture
def ottla(tmp_path: Path, running: list[int]) -> Callable[..., Said]:
    """Runs `ottla cluster` for the directory {home}."""
    home = tmp_path / "home"

    def said(*words: str, terminal: bool = False) -> Said:
        code, out, err = run("ottla", ["cluster", *words, "-d", str(home)], "", terminal=terminal)
        cluster_id = (
            re.search(r'"cluster_id": ?"([\w-]+)"', (home / "cluster.json").read_text()) if home.exists() else None
        )
        shown = [text.replace(str(home), "{home}") for text in (out, err)]
        if cluster_id:
            shown = [text.replace(cluster_id[1], "{id}") for text in shown]
        return (code, *(_STYLED.sub(lambda found: _style(found[1]), text) for text in shown))  # type: ignore[return-value]

    return said


def partition(leader: int | None, replicas: tuple[int, ...], trouble: str | None = None) -> Any:
    return SimpleNamespace(leader=leader, replicas=replicas, trouble=trouble)


@pytest.fixture
def partitions(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The partitions of the cluster; the addresses that were asked are those of its first entry."""
    found: list[Any] = []

    class Ask:
        def __init__(self, settings: dict[str, Any]) -> None:
            assert settings == {"bootstrap.servers": ASKED[0], "default.api.timeout.ms": 5000}

        def __enter__(self) -> Ask:
            return self

        def __exit__(self, *_: object) -> None:
            pass

    def every(_: Any) -> list[Any]:
        if found and isinstance(found[0], Exception):
            raise found[0]
        return found

    monkeypatch.setattr("ottla.client.Admin", Ask)
    monkeypatch.setattr("ottla.operations.partition_view.every_partition", every)
    return found


#: Where the next command asks.
ASKED = [""]
PORTS = "127.0.0.1:5001,127.0.0.1:5002,127.0.0.1:5003"


def test_a_cluster_goes_up_once_and_down_with_or_without_its_data(
    ottla: Callable[..., Said], running: list[int], tmp_path: Path
) -> None:
    assert ottla("up", "--port", "0") == (0, "", f"nodes 1, 2, 3 up; -b {PORTS}\n")
    assert running == [1, 2, 3]
    assert ottla("up") == (0, "", f"all nodes are up; -b {PORTS}\n")
    running.remove(2)
    code, out, _ = ottla("up", "--json")
    assert (code, json.loads(out)) == (0, {"cluster": "{id}", "started": [2], "bootstrap_servers": PORTS})
    for option in (["-n", "4"], ["--controllers", "1"], ["--racks", "a"], ["--set", "a=b"], ["--port", "0"]):
        taken = "ottla: {home} already holds a cluster: start it without options, or use another -d DIR\n"
        assert ottla("up", *option) == (1, "", taken)
    running[:] = [1]
    assert ottla("down") == (0, "", "node 1 down; the cluster's data stays in {home}\n")
    assert ottla("down") == (0, "", "all nodes were down already; the cluster's data stays in {home}\n")
    code, out, _ = ottla("down", "--json")
    assert (code, json.loads(out)) == (0, {"stopped": [], "deleted": False})
    assert ottla("down", "--delete") == (0, "", "all nodes were down already; the cluster's data is deleted\n")
    assert not (tmp_path / "home").exists()


def test_a_new_cluster_has_what_its_options_say(ottla: Callable[..., Said], tmp_path: Path) -> None:
    words = ("-n", "2", "--controllers", "1", "--racks", "a,,b", "--port", "0", "--set", "num.partitions=4")
    assert ottla("up", *words)[0] == 0
    plan = LocalCluster.open(tmp_path / "home").plan
    assert [(node.node_id, node.is_controller, node.rack) for node in plan.nodes] == [(1, True, "a"), (2, False, "b")]
    assert "num.partitions=4" in (tmp_path / "home" / "node-1" / "server.properties").read_text()


def test_status_shows_each_node_with_its_replicas(
    ottla: Callable[..., Said], running: list[int], partitions: list[Any]
) -> None:
    ottla("up", "-n", "3", "--controllers", "1", "--racks", "a", "--port", "0")
    ASKED[0] = PORTS
    partitions[:] = [partition(1, (1, 2)), partition(1, (2, 1)), partition(3, (3, 2)), partition(None, (3,))]
    rows = (
        "1\tup\t127.0.0.1:5001\tbroker, controller\ta\t2\t2\n"
        "2\tup\t127.0.0.1:5002\tbroker\ta\t0\t3\n"
        "3\tup\t127.0.0.1:5003\tbroker\ta\t1\t2\n"
    )
    assert ottla("status") == (0, rows, "")
    code, out, _ = ottla("status", "--json")
    document = json.loads(out)
    assert (code, document["cluster"], document["behind"]) == (0, "{id}", 0)
    assert document["nodes"][1] == {
        "node": 2,
        "state": "up",
        "address": "127.0.0.1:5002",
        "roles": "broker",
        "rack": "a",
        "leads": 0,
        "replicas": 3,
    }
    partitions.append(partition(1, (1,), "few"))
    running.remove(2)
    ASKED[0] = "127.0.0.1:5001,127.0.0.1:5003"
    code, out, err = ottla("status", terminal=True)
    assert (code, _line(out, 0), _line(out, 2), _line(out, 3)) == (
        1,
        "<bold>cluster {id}</>  <dim>{home}</>",
        "<bold>   1</><bold>  </><green>up   </>  127.0.0.1:5001  broker, controller  a         3         3",
        "<bold>   2</><bold>  </><red>down </>  127.0.0.1:5002  broker              a         0         3",
    )
    assert _STYLES.sub("", _line(out, 1)) == ("node  state  address         roles               rack  leads  replicas")
    assert err == "<dim>1 partition has replicas out of sync: ottla partitions -b 127.0.0.1:5001</>\n"
    partitions.append(partition(1, (1,), "few"))
    assert (
        ottla("status", terminal=True)[2]
        == "<dim>2 partitions have replicas out of sync: ottla partitions -b 127.0.0.1:5001</>\n"
    )
    assert ottla("status")[2] == ""
    partitions[:] = [KafkaError(ErrorCode.REQUEST_TIMED_OUT, "late")]
    code, out, err = ottla("status", "--json")
    assert (code, json.loads(out)["behind"], err) == (1, None, "")
    running.clear()
    code, out, err = ottla("status")
    assert (code, err) == (1, "")
    assert next(line.split("\t")[1:] for line in out.splitlines()) == [
        "down",
        "127.0.0.1:5001",
        "broker, controller",
        "a",
        "0",
        "0",
    ]


def test_a_cluster_that_does_not_run_cannot_be_drained(ottla: Callable[..., Said]) -> None:
    ottla("up", "--port", "0")
    ottla("down")
    said = ottla("drain", "1")
    assert said == (1, "", "ottla: no node of this cluster is running; `ottla cluster up` starts them\n")
    assert ottla("stop", "1") == (1, "", "ottla: node 1 is not running\n")
    assert ottla("drain", "9")[2].startswith("ottla: there is no node 9")


def test_a_cluster_that_grows_or_rolls_says_what_it_waits_for(
    ottla: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    ottla("up", "-n", "1", "--port", "0")

    def grow(cluster: LocalCluster, nodes: int, tell: Callable[[str], None]) -> list[int]:
        tell(f"growing to {nodes}")
        return [cluster.add("").node_id for _ in range(len(cluster.plan.nodes), nodes)]

    def roll(cluster: LocalCluster, tell: Callable[[str], None]) -> list[int]:
        tell("one after another")
        return [node.node_id for node in cluster.plan.nodes]

    monkeypatch.setattr(change, "grow", grow)
    monkeypatch.setattr(change, "roll", roll)
    grown = "<dim>growing to 2</>\n<green>\N{CHECK MARK}</> 2 nodes; -b 127.0.0.1:5001,127.0.0.1:5001\n"
    assert ottla("grow", "-n", "2", terminal=True) == (0, "", grown)
    code, out, err = ottla("grow", "--json")
    assert (code, json.loads(out)["new"], err) == (0, [3], "")
    rolled = "<dim>one after another</>\n<green>\N{CHECK MARK}</> nodes 1, 2, 3 restarted\n"
    assert ottla("roll", terminal=True) == (0, "", rolled)
    code, out, err = ottla("roll", "--json")
    assert (code, json.loads(out), err) == (0, {"restarted": [1, 2, 3]}, "")


def test_progress_of_a_cluster_that_waits_is_told(ottla: Callable[..., Said], monkeypatch: pytest.MonkeyPatch) -> None:
    ottla("up", "-n", "1", "--port", "0")

    def stop(cluster: LocalCluster, nodes: Any = None) -> list[int]:
        cluster.tell("waiting for node 1")
        raise OttlaError("node 1 did not stop")

    monkeypatch.setattr(LocalCluster, "stop", stop)
    told = "<dim>waiting for node 1</>\n<red><bold>ottla:</> node 1 did not stop\n"
    assert ottla("down", terminal=True) == (1, "", told)
