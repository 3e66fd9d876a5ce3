"""What a start does about the run before it: its transactions, its topics, a reset that was not finished."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

import ottla
from ottla.client import Admin, CommittedOffset, Producer, TopicPartition
from ottla.client.producer.sync import Producer as AnyProducer
from ottla.kernel.client_error import Fenced
from ottla.kernel.error import OttlaError
from ottla.spark.streams import last_run
from ottla.spark.streams.cells import newest, pack
from ottla.spark.streams.layout import Program
from ottla.spark.streams.running import prepare
from ottla.spark.streams.task import HostedTask
from ottla.streams import Application, StreamsBuilder

A, B = TopicPartition("a", 0), TopicPartition("b", 0)


@pytest.fixture(scope="module")
def node() -> Iterator[ottla.Node]:
    with ottla.Node() as node:
        for topic in ("a", "b", "out"):
            node.create_topic(topic)
        yield node


def counting(application_id: str, *topics: str, **config: str) -> Application:
    """A program with a count of each topic, in this order."""
    builder = StreamsBuilder()
    for topic in topics:
        builder.stream(topic).group_by_key().count(materialized=f"count-{topic}").to_stream().to("out")
    return builder.build(application_id, key_serde="string", value_serde="long", config=config)


def prepared(node: ottla.Node, app: Application, *, accept_changes: bool = False) -> Program:
    return prepare(app.topology, app.settings, node.bootstrap_servers, {}, accept_changes=accept_changes)


def asleep(node: ottla.Node, transactional_id: str, partition: TopicPartition) -> AnyProducer:
    """A worker of the last run, in the middle of a transaction."""
    producer = Producer(node.bootstrap_servers, transactional_id=transactional_id)
    producer.init_transactions()
    producer.begin_transaction()
    producer.send("out", b"of the last run").result(30)
    producer.send_offsets(transactional_id.partition("-")[0], {partition: CommittedOffset(1)})
    return producer


def test_a_worker_of_the_last_run_is_fenced_before_another_task_reads_its_partition(node: ottla.Node) -> None:
    """A new source before the old one: task 0_0 is 1_0 now, and another worker may open it first."""
    prepared(node, counting("moved", "b"))
    with asleep(node, "moved-0_0", B) as zombie:
        program = prepared(node, counting("moved", "a", "b"))
        (plan,) = (task for task in program.tasks if B in task.sources)
        assert plan.id == "1_0"
        with pytest.raises(Fenced):
            zombie.commit_transaction()
        with Admin(node.bootstrap_servers) as admin:
            assert admin.list_group_offsets("moved") == {}


def test_a_worker_with_transactions_is_fenced_by_a_start_without(node: ottla.Node) -> None:
    prepared(node, counting("less", "b"))
    with asleep(node, "less-0_0", B) as zombie:
        prepared(node, counting("less", "b", **{"processing.guarantee": "at_least_once"}))
        with pytest.raises(Fenced):
            zombie.commit_transaction()


def test_a_start_with_the_same_tasks_leaves_fencing_to_them(node: ottla.Node) -> None:
    same = last_run.of_program(prepared(node, counting("same", "a", "b")))
    assert last_run.to_fence(same, same) == []
    assert last_run.to_fence(replace(same, guarantee="at_least_once"), same) == []
    fewer = replace(same, tasks=same.tasks[:1])
    assert last_run.to_fence(same, fewer) == ["same-1_0"]


def test_a_changelog_that_was_deleted_stops_the_next_start(node: ottla.Node) -> None:
    app = counting("bare", "b")
    prepared(node, app)
    with Admin(node.bootstrap_servers) as admin:
        admin.delete_topic("bare-count-b-changelog")
        told = (
            "internal topic bare-count-b-changelog of application bare was deleted, and with it the state of store "
            "count-b: run `ottla streams reset bare`"
        )
        with pytest.raises(OttlaError) as raised:
            prepared(node, app)
        assert str(raised.value).startswith(told)
        prepared(node, app, accept_changes=True)
        prepared(node, app)


@pytest.mark.parametrize("kind", ["changelog", "repartition"])
def test_an_internal_topic_that_was_deleted_and_created_again_stops_the_next_start(node: ottla.Node, kind: str) -> None:
    """Brokers may create it on a producer's request, or an operator restores it, empty."""
    builder = StreamsBuilder()
    counts = builder.stream("b").select_key(lambda key, value: value).group_by_key(name="by")
    counts.count(materialized="counts").to_stream().to("out")
    app = builder.build(f"again-{kind}", key_serde="string", value_serde="long")
    prepared(node, app)
    topic = f"again-{kind}-counts-changelog" if kind == "changelog" else f"again-{kind}-by-repartition"
    lost = "the state of store counts" if kind == "changelog" else "its unprocessed records"
    with Admin(node.bootstrap_servers) as admin:
        admin.delete_topic(topic)
        admin.create_topic(topic, 1)
        with pytest.raises(OttlaError) as raised:
            prepared(node, app)
        told = f"internal topic {topic} of application again-{kind} was deleted and created again, and with it {lost}: "
        assert str(raised.value).startswith(told)
        prepared(node, app, accept_changes=True)
        prepared(node, app)


def test_a_plan_without_ids_of_topics_is_continued(node: ottla.Node) -> None:
    """Older versions wrote none, and old brokers have none."""
    app = counting("older", "b")
    old = last_run.of_program(prepared(node, app))
    assert old.topics == {}
    with Admin(node.bootstrap_servers) as admin:
        last_run.write(admin, {"bootstrap.servers": node.bootstrap_servers}, old)
        prepared(node, app)
        found, _ = last_run.read(admin, {"bootstrap.servers": node.bootstrap_servers}, "older")
    assert found is not None and list(found.topics) == ["older-count-b-changelog"]


def test_a_start_that_ended_before_it_wrote_its_plan_is_no_loss(
    node: ottla.Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*given: object) -> None:
        raise OttlaError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(last_run, "write", fail)
        with pytest.raises(OttlaError, match="killed"):
            prepared(node, counting("early", "b"))
    prepared(node, counting("early", "b"))


def test_a_reset_that_did_not_finish_stops_the_next_start(node: ottla.Node) -> None:
    app = counting("half", "b")
    old = last_run.of_program(prepared(node, app))
    with Admin(node.bootstrap_servers) as admin:
        last_run.end(admin, {"bootstrap.servers": node.bootstrap_servers}, old, 0)
    with pytest.raises(
        OttlaError, match="a reset of application half has not finished: run `ottla streams reset half`"
    ):
        prepared(node, app, accept_changes=True)


def test_the_cells_of_steps_that_are_gone_leave_the_commits(node: ottla.Node) -> None:
    """Otherwise their number grows with each change of a program, up to what the brokers accept."""
    program = prepared(node, counting("cells", "b"))
    kept = {"stream_time": 5, "partition_time/b/0": 3, "count-b/of its own": 1}
    copy = pack(kept | {"KSTREAM-AGGREGATE-0000000099/stream_time": 7, "partition_time/gone/0": 3}, 4)
    with Admin(node.bootstrap_servers) as admin:
        admin.alter_group_offsets("cells", {B: CommittedOffset(0, copy)}).check()
        task = HostedTask(program, program.tasks[0], admin, None, 0)
        task.settle({B: CommittedOffset(0)}, 10_000_000)
        task.close(lambda call: call())
        assert newest({B: admin.list_group_offsets("cells")[B].metadata}) == (kept, 5)
