"""Rows about groups, partitions and settings: of views, of samples, of a bundle, and of two topics compared.

The cluster is a table of answers.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, call

import pytest

from ottla.client import CommittedOffset, ConfigResource, ErrorCode, GroupType, KafkaError, ResourceType, TopicPartition
from ottla.client.admin.replica import Reassignment
from ottla.client.admin.result import ConfigEntry, ConfigSource, ListedOffset, PartitionDescription, Results
from ottla.client.connection.metadata import ClusterNode
from ottla.kernel.ids import Uuid, uuid_text
from ottla.operations import group_view, rates
from ottla.operations.bundle import cluster
from ottla.operations.bundle.archive import Absent
from ottla.operations.bundle.mask import HIDDEN
from ottla.operations.topics import diff

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
REFUSED = KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "not you")
NODE = ClusterNode(3, "h", 9, None)


def listed(offsets: dict[TopicPartition, int], errors: Any = None) -> Results[Any, Any]:
    return Results({tp: ListedOffset(at, -1, None) for tp, at in offsets.items()}, errors or {})


# ---- groups


def member(name: str, **more: Any) -> Any:
    return SimpleNamespace(id=name, instance_id="i", client_id="c", host="/h", **more)


def test_a_streams_group_is_seen_by_its_active_tasks() -> None:
    ask = Mock()
    part = SimpleNamespace(id="0", source_topics=("a",), repartition_source_topics=("b",))
    ask.describe_streams_group.return_value = SimpleNamespace(
        subtopologies=[part],
        members=[member("m", assignment=SimpleNamespace(active=[("0", 0), ("other", 7)]))],
        state="Stable",
        coordinator=NODE,
    )
    ask.list_group_offsets.return_value = {A0: CommittedOffset(5), A1: CommittedOffset(9)}
    ask.list_offsets.return_value = listed({A0: 12, B0: 4, A1: 7})
    view = group_view.look(ask, "g", GroupType.STREAMS)
    rows = [tuple(each.values()) for each in view.partitions]
    # topic, partition, committed, end, lag, member: no lag is below 0, none without a committed offset.
    assert rows == [("a", 0, 5, 12, 7, "m"), ("a", 1, 9, 7, 0, None), ("b", 0, None, 4, None, "m")]
    assert (view.lag, view.type, view.state) == (7, "streams", "Stable")
    assert view.members == [{"member": "m", "instance": "i", "client": "c", "host": "h", "partitions": 2}]
    assert ask.list_offsets.call_args.args[0].keys() == {A0, A1, B0}
    ask.list_offsets.side_effect = REFUSED
    view = group_view.look(ask, "g", GroupType.STREAMS)
    assert ({each["end_offset"] for each in view.partitions}, view.lag) == ({None}, None)
    ask.list_group_offsets.return_value = {}
    ask.describe_streams_group.return_value.subtopologies = []
    ask.list_offsets.reset_mock()
    assert group_view.look(ask, "g", GroupType.STREAMS).partitions == []
    assert not ask.list_offsets.called


def test_a_share_group_is_seen_by_where_it_begins() -> None:
    ask = Mock()
    ask.describe_share_group.return_value = SimpleNamespace(
        members=[member("m", assignment=[A0])], state="Stable", assignor="simple", coordinator=NODE
    )
    ask.list_share_group_offsets.return_value = Results(
        {A1: SimpleNamespace(start_offset=-1, lag=None), A0: SimpleNamespace(start_offset=5, lag=3)}, {}
    )
    ask.list_offsets.return_value = listed({A0: 12})
    view = group_view.look(ask, "g", GroupType.SHARE)
    rows = [tuple(each.values()) for each in view.partitions]
    assert rows == [("a", 0, 5, 12, 3, None), ("a", 1, None, None, None, None)]
    assert (view.lag, view.members[0]["instance"], view.members[0]["partitions"]) == (3, None, 1)


def test_the_type_of_an_unknown_group_is_classic() -> None:
    ask = Mock()
    ask.list_groups.return_value = [
        SimpleNamespace(id="a", type=GroupType.SHARE),
        SimpleNamespace(id="b", type=GroupType.STREAMS),
    ]
    found = [group_view.type_of(ask, name) for name in "abc"]
    assert found == [GroupType.SHARE, GroupType.STREAMS, GroupType.CLASSIC]


def test_a_sample_leaves_out_what_has_no_leader_moves_or_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    ask = Mock()
    views = [SimpleNamespace(topic=tp.topic, partition=tp.partition, leader=at) for tp, at in ((A0, 1), (A1, None))]
    every = Mock(return_value=views)
    monkeypatch.setattr(rates, "every_partition", every)
    monkeypatch.setattr(rates, "time", SimpleNamespace(monotonic=lambda: 7.0))
    ask.list_offsets.side_effect = [listed({A0: 9}), listed({A0: 2})]
    replicas = [SimpleNamespace(partition=A0, size=10, future=future) for future in (False, True, False)]
    ask.describe_log_dirs.return_value = Results({1: (SimpleNamespace(replicas=replicas),)}, {})
    ask.list_groups.return_value = [SimpleNamespace(id=name, type=GroupType.CLASSIC) for name in ("gone", "g")]
    seen = SimpleNamespace(state="Stable", members=[1, 2], lag=5)
    monkeypatch.setattr(rates, "look_at_group", Mock(side_effect=[KafkaError(ErrorCode.GROUP_ID_NOT_FOUND), seen]))
    sample = rates.take_sample(ask, internal=True)
    assert (sample.ends, sample.starts, sample.sizes) == ({("a", 0): 9}, {("a", 0): 2}, {"a": 20})
    assert sample.groups == {"g": ("Stable", 2, 5)}
    assert every.call_args == call(ask, internal=True)
    assert [list(each.args[0]) for each in ask.list_offsets.call_args_list] == [[A0], [A0]]
    views[0].leader = None
    ask.list_offsets.reset_mock()
    ask.list_groups.return_value = []
    assert rates.take_sample(ask, internal=False).ends == {}
    assert not ask.list_offsets.called


# ---- a bundle


class Parts:
    """A bundle that keeps its parts."""

    def __init__(self) -> None:
        self.parts: dict[str, Any] = {}

    def document(self, name: str, _: str, content: Any) -> Any:
        try:
            self.parts[name] = content()
        except (KafkaError, Absent) as error:
            self.parts[name] = error
            return None
        return self.parts[name]

    text = document

    def rows(self, name: str, about: str, content: Any) -> None:
        self.document(name, about, lambda: list(content()))

    def fail(self, name: str, why: Any) -> None:
        self.parts[name] = why


def entry(name: str, value: str | None, *, sensitive: bool = False) -> ConfigEntry:
    return ConfigEntry(name, value, ConfigSource.DYNAMIC_TOPIC_CONFIG, read_only=False, sensitive=sensitive, type="INT")


def asking() -> Mock:
    ask = Mock()
    ask.list_transactions.return_value = ask.list_groups.return_value = ask.list_topics.return_value = []
    ask.list_partition_reassignments.return_value = {}
    ask.describe_log_dirs.return_value = Results({}, {})
    ask.describe_config.return_value = {}
    ask.describe_cluster.return_value = SimpleNamespace(nodes=[], fenced=set())
    return ask


def bundled(ask: Mock) -> dict[str, Any]:
    bundle: Any = Parts()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster, "examine", lambda _: ([], {"nodes": 1}))
        cluster.add_cluster(bundle, ask)
    parts: dict[str, Any] = bundle.parts
    return parts


def test_a_cluster_that_cannot_be_described_has_no_parts_of_its_nodes() -> None:
    ask = asking()
    ask.describe_cluster.side_effect = REFUSED
    parts = bundled(ask)
    assert parts["settings, features and metrics of the nodes"] == "the nodes are unknown: see cluster.json"
    assert not any("node-" in name for name in parts)
    assert parts["health.json"] == {"verdict": "healthy", "reasons": [], "nodes": 1}


def test_each_node_that_lives_has_settings_loggers_features_and_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    ask = asking()
    nodes = [NODE, ClusterNode(4, "i", 9, None)]
    ask.describe_cluster.return_value = SimpleNamespace(nodes=nodes, fenced={4})
    ask.describe_config.side_effect = lambda resource, **_: {
        "metrics.listener": entry("metrics.listener", "[::]:99"),
        "b": entry("b", "secret", sensitive=True),
    }
    read = Mock(side_effect=lambda where, host, path: f"{where} {host} {path}")
    monkeypatch.setattr(cluster, "_http_get", read)
    parts = bundled(ask)
    assert parts["metrics/node-3.txt"] == "[::]:99 h /metrics"
    assert parts["metrics/node-3-health.json"] == "[::]:99 h /health"
    assert parts["settings/node-3-loggers.json"] == {"b": "secret", "metrics.listener": "[::]:99"}
    hidden, shown = parts["settings/node-3.json"]
    assert (hidden["name"], hidden["value"], shown["value"]) == ("b", HIDDEN, "[::]:99")
    assert {name for name in parts if name.startswith("features/")} == {"features/node-3.json"}
    assert not any("node-4" in name for name in parts)
    assert ask.describe_cluster.call_args == call(include_fenced=True)
    asked = [each.args[0] for each in ask.describe_config.call_args_list]
    assert ConfigResource(ResourceType.BROKER, "3") in asked and ConfigResource(ResourceType.BROKER, "") in asked
    ask.describe_config.side_effect = lambda *_, **__: {}
    assert str(bundled(ask)["metrics/node-3.txt"]) == "the node does not report a metrics.listener"
    ask.describe_config.side_effect = REFUSED
    why = "the node's metrics.listener is unknown: see settings/node-3.json"
    assert bundled(ask)["metrics/node-3.txt"] == why


def test_partitions_have_their_offsets_or_why_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_BATCH", 2)
    ask = asking()
    ask.list_topics.return_value = [SimpleNamespace(name=name) for name in ("c", "a", "b")]
    parts = (
        PartitionDescription(0, NODE, 7, (NODE,), (NODE,), (), elr=(NODE,), last_known_elr=None),
        PartitionDescription(1, None, 7, (NODE,), (), (NODE,)),
    )
    ask.describe_topics.side_effect = lambda names: Results(
        {name: SimpleNamespace(id=Uuid(b"\1" * 16), partitions=parts) for name in names if name != "c"},
        {name: REFUSED for name in names if name == "c"},
    )
    ask.list_offsets.side_effect = [listed({A0: 5}), listed({}, {A0: REFUSED}), listed({B0: 1}), listed({B0: 2})]
    ask.describe_configs.side_effect = lambda resources: Results(
        {each: {"x": entry("x", each.name)} if each.name == "a" else {} for each in resources}, {}
    )
    found = bundled(ask)
    rows = found["partitions.jsonl"]
    one = {"topic": "a", "id": uuid_text(Uuid(b"\1" * 16)), "partition": 0, "leader": 3, "leader_epoch": 7}
    one |= {"replicas": [3], "isr": [3], "offline": [], "elr": [3], "last_known_elr": None}
    assert rows[0] == {**one, "start_offset": 5, "end_offset": "CLUSTER_AUTHORIZATION_FAILED"}
    assert (rows[1]["leader"], rows[1]["offline"], "start_offset" in rows[1]) == (None, [3], False)
    assert (rows[2]["start_offset"], rows[2]["end_offset"]) == (1, 2)
    assert rows[4:] == [{"topic": "c", "error": "CLUSTER_AUTHORIZATION_FAILED", "message": "not you"}]
    assert [each.args[0] for each in ask.describe_topics.call_args_list] == [["a", "b"], ["c"]]
    assert found["settings/topics.jsonl"] == [{"topic": "a", "settings": {"x": "a"}}]


def test_directories_moves_and_groups_are_rows() -> None:
    ask = asking()
    replica = SimpleNamespace(partition=A1, size=7, offset_lag=2, future=True)
    broken = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    directories = (
        SimpleNamespace(path="/a", error=None, total_bytes=9, usable_bytes=4, replicas=(replica,)),
        SimpleNamespace(path="/b", error=broken, total_bytes=-1, usable_bytes=-1, replicas=()),
    )
    ask.describe_log_dirs.return_value = Results({2: directories}, {5: REFUSED, 4: REFUSED})
    ask.list_partition_reassignments.return_value = {A1: Reassignment((1,), (2,), ()), A0: Reassignment((3,), (), (4,))}
    ask.list_groups.return_value = [SimpleNamespace(id="g", type=GroupType.CLASSIC)]
    ask.describe_group.side_effect = REFUSED
    parts = bundled(ask)
    about = {"node": 2, "path": "/a"}
    assert parts["log-dirs.jsonl"] == [
        {**about, "error": None, "total_bytes": 9, "usable_bytes": 4},
        {**about, "topic": "a", "partition": 1, "bytes": 7, "offset_lag": 2, "future": True},
        {"node": 2, "path": "/b", "error": "KAFKA_STORAGE_ERROR", "total_bytes": -1, "usable_bytes": -1},
        {"node": 4, "error": "CLUSTER_AUTHORIZATION_FAILED", "message": "not you"},
        {"node": 5, "error": "CLUSTER_AUTHORIZATION_FAILED", "message": "not you"},
    ]
    assert [(each["topic"], each["partition"], each["adding"]) for each in parts["reassignments.jsonl"]] == [
        ("a", 0, []),
        ("a", 1, [2]),
    ]
    (row,) = parts["groups.jsonl"]
    assert (row["group"], row["type"], "not you" in row["error"]) == ("g", "classic", True)


@pytest.mark.parametrize(
    ("where", "asked"),
    [("0.0.0.0:9", "h"), ("[::]:9", "h"), (":9", "h"), ("10.0.0.1:9", "10.0.0.1"), ("[fe80::1]:9", "fe80::1")],
)
def test_a_node_is_asked_where_it_listens(monkeypatch: pytest.MonkeyPatch, where: str, asked: str) -> None:
    connection = Mock()
    connection.getresponse.return_value.read.return_value = b"text\xff"
    connect = Mock(return_value=connection)
    monkeypatch.setattr(cluster, "HTTPConnection", connect)
    assert cluster._http_get(where, "h", "/metrics") == "text\ufffd"
    assert connect.call_args == call(asked, 9, timeout=5.0)
    connection.request.assert_called_once_with("GET", "/metrics")
    connection.getresponse.return_value.read.assert_called_once_with(8 << 20)
    connection.close.assert_called_once_with()
    with pytest.raises(Absent, match=r"^the node's port is random \(127\.0\.0\.1:0\); its log has the actual port$"):
        cluster._http_get("127.0.0.1:0", "h", "/metrics")


# ---- two topics


def record(offset: int, **more: Any) -> Any:
    return SimpleNamespace(**{"offset": offset, "key": b"k", "value": b"v", "timestamp": 1, "headers": (), **more})


@pytest.mark.parametrize(
    ("ours", "theirs", "same", "lines"),
    [
        ([record(0), record(1)], [record(5), record(9)], 2, []),
        ([record(0, key=None)], [record(0)], 0, ["offset 0 | 0: key null | k"]),
        (
            [record(3, value=b"x" * 31, timestamp=7, headers=(("h", None), ("i", b"1")))],
            [record(0, value=b"\xff")],
            0,
            [f"offset 3 | 0: value {'x' * 30}... | \\xff, timestamp 7 | 1, headers h=null i=1 | none"],
        ),
        ([record(0), record(1)], [record(0)], 1, ["the first topic has 1 more"]),
        ([], [record(0)] * 1200, 0, ["the second topic has 1,200 more"]),
        ([record(0, headers=(("h", b""),))], [record(0, headers=[("h", b"")])], 1, []),
    ],
)
def test_records_are_compared_by_all_but_their_offset(
    ours: list[Any], theirs: list[Any], same: int, lines: list[str]
) -> None:
    assert diff.compared(iter(ours), iter(theirs)) == (same, lines)


def test_only_the_first_differences_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diff, "_DIFFERENCES_MAX", 2)
    ours, theirs = ([record(at, value=value) for at in range(5)] for value in (b"1", b"2"))
    lines = ["offset 0 | 0: value 1 | 2", "offset 1 | 1: value 1 | 2 (and more)"]
    assert diff.compared(iter(ours), iter(theirs)) == (0, lines)
    lines[1] = lines[1].removesuffix(" (and more)")
    assert diff.compared(iter(ours[:2]), iter(theirs[:2])) == (0, lines)
