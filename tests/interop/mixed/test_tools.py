"""Apache's tools and clients at a cluster of both kinds of brokers: reassignment, elections, groups, transactions,
compaction. What a topic holds is the same whichever broker leads it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.client import Admin, Consumer, NewTopic, Producer, TopicPartition
from tests.interop.apache_tool import ApacheTools
from tests.interop.mixed.load import create, led_by, until_whole
from tests.interop.mixed.nodes import MixedCluster, until
from tests.interop.mixed.test_brokers import assert_replicas_are_the_same, cluster, stop_all

_PARTITIONS = 3
#: Bytes a second, and what goes through that in at least so many seconds: a busy machine only takes longer.
_THROTTLE = 500_000
_THROTTLED_RECORDS, _THROTTLED_BYTES = 200, 20_000
_THROTTLED_S = 4.0


@pytest.fixture(scope="module")
def tools() -> Iterator[ApacheTools]:
    with ApacheTools() as one:
        yield one


def said(tools: ApacheTools, tool: str, nodes: MixedCluster, *words: str) -> str:
    """What a tool says that succeeds."""
    done = tools(tool, "--bootstrap-server", nodes.bootstrap_servers, *words)
    assert done.code == 0, (done.out, done.err)
    return done.out


def values(
    nodes: MixedCluster, topic: str, isolation: str = "read_uncommitted"
) -> dict[int, list[tuple[bytes | None, bytes | None]]]:
    """(key, value) of every record by partition, as a consumer of this isolation level reads them."""
    found: dict[int, list[tuple[bytes | None, bytes | None]]] = {each: [] for each in range(_PARTITIONS)}
    partitions = [TopicPartition(topic, each) for each in found]
    with Consumer(nodes.bootstrap_servers, auto_offset_reset="earliest", isolation_level=isolation) as consumer:
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        consumer.seek_to_beginning(partitions)
        while any(consumer.position(each) < ends[each] for each in partitions):
            for record in consumer.poll(1.0):
                found[record.partition].append((record.key, record.value))
    return found


def lead(tools: ApacheTools, nodes: MixedCluster, directory: Path, topic: str, node: int) -> None:
    """Have one broker lead all partitions: it becomes the preferred replica, and is elected."""
    others = [each for each in nodes.brokers() if each != node]
    plan = [{"topic": topic, "partition": each, "replicas": [node, *others]} for each in range(_PARTITIONS)]
    file = directory / "plan.json"
    file.write_text(json.dumps({"version": 1, "partitions": plan}))
    said(tools, "kafka-reassign-partitions", nodes, "--reassignment-json-file", str(file), "--execute")
    until(
        lambda: (
            "is complete"
            in said(tools, "kafka-reassign-partitions", nodes, "--reassignment-json-file", str(file), "--verify")
        ),
        "the reassignment",
    )
    tools(
        *("kafka-leader-election", "--bootstrap-server", nodes.bootstrap_servers),
        *("--election-type", "preferred", "--all-topic-partitions"),
    )
    until(lambda: set(led_by(nodes, topic).values()) == {node}, lambda: str(led_by(nodes, topic)))


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("controllers", "brokers"), [("o", "ooa"), ("a", "oaa")])
def test_every_broker_serves_the_same(tmp_path: Path, tools: ApacheTools, controllers: str, brokers: str) -> None:
    with cluster(tmp_path, controllers, brokers) as nodes:
        create(nodes, "ledger")
        create(
            nodes, "table", **{"cleanup.policy": "compact", "segment.ms": "1000", "min.cleanable.dirty.ratio": "0.01"}
        )
        committed = transact(nodes)
        newest = update(nodes)
        for node in nodes.brokers():
            lead(tools, nodes, tmp_path, "ledger", node)
            lead(tools, nodes, tmp_path, "table", node)
            assert values(nodes, "ledger", "read_committed") == committed
            assert {partition: dict(records) for partition, records in values(nodes, "table").items()} == newest
        groups(tools, nodes)
        until_whole(nodes, "ledger", "table")
        assert "ReplicationFactor: 3" in said(tools, "kafka-topics", nodes, "--describe", "--topic", "ledger")
        assert not said(tools, "kafka-topics", nodes, "--describe", "--under-replicated-partitions").strip()
        stop_all(nodes)
        assert_replicas_are_the_same(nodes, "ledger")


@pytest.mark.long
@pytest.mark.timeout(900)
def test_reassignments_between_both_kinds_are_throttled_on_either_side(tmp_path: Path, tools: ApacheTools) -> None:
    with cluster(tmp_path, "o", "oa") as nodes:
        [ours], [theirs] = nodes.brokers("ottla"), nodes.brokers("apache")
        with Admin(nodes.bootstrap_servers) as ask:
            ask.create_topics([NewTopic("moved", assignments={0: [ours]})]).check()
        with Producer(nodes.bootstrap_servers) as producer:
            for number in range(_THROTTLED_RECORDS):
                # Small batches: one is copied whole, whatever the rate.
                producer.send("moved", bytes([number % 256]) * _THROTTLED_BYTES, partition=0).result()
        # Our leader slows Apache's follower down, then our follower slows itself down.
        for side, target in (("leader", theirs), ("follower", ours)):
            configure(tools, nodes, "topics", "moved", f"{side}.replication.throttled.replicas=[0:{ours}]")
            configure(tools, nodes, "brokers", str(ours), f"{side}.replication.throttled.rate={_THROTTLE}")
            assert move(tools, nodes, tmp_path, target) > _THROTTLED_S
            configure(tools, nodes, "topics", "moved", f"{side}.replication.throttled.replicas=")
        assert move(tools, nodes, tmp_path, theirs, "--throttle", str(_THROTTLE)) > _THROTTLED_S
        for kind, name in (("topics", "moved"), ("brokers", str(ours)), ("brokers", str(theirs))):
            shown = said(tools, "kafka-configs", nodes, "--describe", "--entity-type", kind, "--entity-name", name)
            assert "throttled" not in shown


def configure(tools: ApacheTools, nodes: MixedCluster, kind: str, name: str, setting: str) -> None:
    said(
        *(tools, "kafka-configs", nodes, "--alter", "--entity-type", kind),
        *("--entity-name", name, "--add-config", setting),
    )


def move(tools: ApacheTools, nodes: MixedCluster, directory: Path, target: int, *throttle: str) -> float:
    """Move the partition to `target`; how long that took, in seconds."""
    plan = [{"topic": "moved", "partition": 0, "replicas": [target]}]
    file = directory / "move.json"
    file.write_text(json.dumps({"version": 1, "partitions": plan}))
    began = time.monotonic()
    said(tools, "kafka-reassign-partitions", nodes, "--reassignment-json-file", str(file), "--execute", *throttle)
    with Admin(nodes.bootstrap_servers) as ask:
        until(lambda: not ask.list_partition_reassignments(), "the reassignment")
    took = time.monotonic() - began
    preserve = () if throttle else ("--preserve-throttles",)
    shown = said(
        tools, "kafka-reassign-partitions", nodes, "--reassignment-json-file", str(file), "--verify", *preserve
    )
    assert "moved-0 is completed" in shown
    return took


def transact(nodes: MixedCluster) -> dict[int, list[tuple[bytes | None, bytes | None]]]:
    """Transactions of several ids, so that coordinators of both kinds decide; what is committed, by partition."""
    committed: dict[int, list[tuple[bytes | None, bytes | None]]] = {each: [] for each in range(_PARTITIONS)}
    for number in range(8):
        with Producer(nodes.bootstrap_servers, transactional_id=f"id-{number}") as producer:
            producer.init_transactions()
            for commits in (True, False):
                producer.begin_transaction()
                for partition in range(_PARTITIONS):
                    value = b"%d %d" % (number, commits)
                    producer.send("ledger", value, partition=partition)
                    if commits:
                        committed[partition].append((None, value))
                producer.flush()
                if commits:
                    producer.commit_transaction()
                else:
                    producer.abort_transaction()
    return committed


def update(nodes: MixedCluster) -> dict[int, dict[bytes | None, bytes | None]]:
    """Many values for few keys; the last of each, by partition."""
    newest: dict[int, dict[bytes | None, bytes | None]] = {each: {} for each in range(_PARTITIONS)}
    with Producer(nodes.bootstrap_servers, acks="all") as producer:
        for number in range(600):
            partition, key = number % _PARTITIONS, b"key-%d" % (number % 7)
            producer.send("table", b"%d" % number, key=key, partition=partition)
            newest[partition][key] = b"%d" % number
    return newest


def groups(tools: ApacheTools, nodes: MixedCluster) -> None:
    """Each broker coordinates some of these groups, and every one is seen with its offsets."""
    names = [f"group-{number}" for number in range(8)]
    for name in names:
        with Consumer(nodes.bootstrap_servers, group_id=name, auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["table"])
            until(lambda: bool(consumer.poll(0.5)), "a record")
            consumer.commit()
    with Admin(nodes.bootstrap_servers) as ask:
        found = ask.describe_groups(names).check()
    assert len({each.coordinator.id for each in found.values()}) > 1
    listed = said(tools, "kafka-consumer-groups", nodes, "--describe", "--all-groups", "--offsets")
    assert all(f"{name} " in listed for name in names)
