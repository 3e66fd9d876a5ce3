"""A task is its state and its inputs: however these are cut, and wherever it is stopped and started again."""

import re
from typing import Any

import pytest

from ottla.flow.engine import Settings, State, Task
from ottla.flow.error import TopologyError
from ottla.flow.record import Input, Output
from ottla.flow.runner import Runner
from ottla.flow.serde import STRING
from ottla.flow.topology import Topology
from ottla.streams import EmitStrategy, JoinWindows, Processor, StreamsBuilder, TimeWindows, stores
from tests.streams.generate import inputs, program
from tests.streams.program import UNTHROTTLED, build

_SEEDS = range(40)


def records(steps: list[dict[str, Any]]) -> list[Input]:
    """The records of generated steps, with offsets by topic."""
    made, offsets = [], dict[str, int]()
    for step in steps:
        if "topic" not in step:
            continue
        topic = step["topic"]
        key, value = (None if part is None else part.encode() for part in (step["key"], step["value"]))
        headers = tuple((name, content.encode()) for name, content in step["headers"])
        made.append(Input(topic, 0, offsets.get(topic, 0), step["timestamp"], key, value, headers))
        offsets[topic] = offsets.get(topic, 0) + 1
    return made


def settings() -> Settings:
    return Settings("app", STRING, STRING, configs=UNTHROTTLED)


@pytest.mark.parametrize("size", [1, 2, 7])
def test_a_program_that_is_restarted_between_batches_gives_the_same(size: int) -> None:
    for seed in _SEEDS:
        statements, steps = program(seed)
        topology = build(statements).topology
        whole = Runner(topology, settings()).run(records(steps))
        pieces: list[Output] = []
        state: dict[str, State] = {}
        given = records(steps)
        runner = Runner(topology, settings())
        for at in range(0, len(given), size):
            offsets = runner._offsets
            runner = Runner(topology, settings(), state=state)
            runner._offsets = offsets
            pieces += runner.run(given[at : at + size])
            state = runner.state()
        assert pieces == whole, f"seed {seed}"


def test_changes_that_are_applied_give_the_state() -> None:
    for seed in _SEEDS:
        statements, steps = program(seed)
        runner = Runner(build(statements).topology, settings())
        (task,) = runner.tasks.values()
        kept = State()
        for each in records(steps):
            runner.run([each])
            changes = task.take_changes()
            for name, entries in changes.stores.items():
                store = kept.stores.setdefault(name, {})
                for key, value in entries.items():
                    if value is None:
                        store.pop(key, None)
                    else:
                        store[key] = value
            kept.cells |= changes.cells
        snapshot = task.snapshot()
        assert kept.cells == snapshot.cells, f"seed {seed}"
        assert {name: kept.stores.get(name, {}) for name in snapshot.stores} == snapshot.stores, f"seed {seed}"


@pytest.mark.parametrize("size", [1, 2, 7, 60])
def test_one_topic_without_a_repartition_gives_the_same_list_however_it_is_cut(size: int) -> None:
    """Stages and batches as a host runs them, against the order of TopologyTestDriver."""
    statements = [
        {"id": "s", "op": "stream", "topic": "a"},
        {"id": "g", "op": "group_by_key", "on": "s"},
        {"id": "w", "op": "windowed_by", "on": "g", "windows": "time:10:5:5"},
        {"id": "t", "op": "reduce", "on": "w", "f": "concat"},
        {"id": "u", "op": "suppress", "on": "t", "until": "close"},
        {"id": "o", "op": "to_stream", "on": "u"},
        {"op": "to", "on": "o", "topic": "out"},
        {"id": "j", "op": "outer_join", "on": "s", "other": "s", "f": "bar", "windows": "5:0:3"},
        {"op": "to", "on": "j", "topic": "joined"},
    ]
    topology = build(statements).topology
    given = records(inputs(5, ["a"], 60))
    whole = Runner(topology, settings()).run(given)
    runner = Runner(topology, settings(), drain="batch")
    pieces = [output for at in range(0, len(given), size) for output in runner.run(given[at : at + size])]
    assert pieces == whole
    assert whole


def test_stages_give_each_key_the_same_as_the_driver() -> None:
    """Through a repartition topic of three partitions: the same records for each key, in their order."""
    builder = StreamsBuilder()
    builder.stream("a").group_by(lambda key, value: value[0]).count().to_stream().to("out")
    topology = builder.build(application_id="app", key_serde="string", value_serde="string").topology
    given = [each for each in records(inputs(3, ["a"], 200)) if each.value is not None]
    spread = [
        Input(each.topic, number % 3, number // 3, each.timestamp, each.key, each.value, each.headers)
        for number, each in enumerate(given)
    ]

    def place(key: bytes | None, count: int) -> int:
        return sum(key or b"") % count

    one = Runner(topology, settings()).run(given)
    runner = Runner(topology, settings(), partitions={"a": 3}, partitioner=place, drain="batch")
    assert sorted(runner.tasks) == ["0_0", "0_1", "0_2", "1_0", "1_1", "1_2"]
    many = runner.run(spread)
    assert {each.key for each in many if each.topic == "out"} == {b"x", b"y", b"z", b"k"}
    for key in (b"x", b"y", b"z", b"k"):
        counts = [[each.value for each in side if each.topic == "out" and each.key == key] for side in (one, many)]
        assert counts[0] == counts[1]


def test_the_partition_with_the_lowest_time_goes_first_and_offsets_keep_their_order() -> None:
    builder = StreamsBuilder()
    builder.stream("a").merge(builder.stream("b")).to("out")
    topology = builder.build(key_serde="string", value_serde="string").topology
    task = Task(topology, 0, 0, settings())
    a = [Input("a", 0, offset, time, b"k", f"a{time}".encode()) for offset, time in enumerate((5, 1, 9))]
    b = [Input("b", 0, offset, time, b"k", f"b{time}".encode()) for offset, time in enumerate((4, 9, 2))]
    assert [output.value for output in task.run([*b, *a])] == [b"b4", b"a5", b"a1", b"a9", b"b9", b"b2"]


@pytest.mark.parametrize("given", ["c d a z1 z0 b", "b z0 a z1 d c"])
def test_ties_go_to_the_source_that_was_added_first_then_to_the_lower_topic(given: str) -> None:
    builder = StreamsBuilder()
    matched, named, last = builder.stream(re.compile("z.")), builder.stream(["d", "c"]), builder.stream(["b", "a"])
    matched.merge(named).merge(last).to("out")
    topology = builder.build("app", key_serde="string", value_serde="string").topology
    task = Task(topology, 0, 0, settings())
    outputs = task.run([Input(topic, 0, 0, 5, b"k", topic.encode()) for topic in given.split()])
    assert [output.value.decode() for output in outputs] == ["z0", "z1", "c", "d", "a", "b"]


def test_a_timestamp_extractor_sees_the_same_time_for_a_record_that_waited_during_a_restart() -> None:
    seen: list[tuple[int, int]] = []

    def extract(record: Any, partition_time: int) -> int:
        seen.append((record.offset, partition_time))
        return int(record.timestamp)

    builder = StreamsBuilder()
    builder.stream("in", timestamp_extractor=extract).to("out")
    topology = builder.build(key_serde="string", value_serde="string").topology
    records = [Input("in", 0, offset, timestamp, b"k", b"v") for offset, timestamp in enumerate((5, 3, 9))]
    task = Task(topology, 0, 0, settings())
    task.add(records)
    task.step()
    task.step()
    again = Task(topology, 0, 0, settings(), state=task.snapshot())
    again.add(records[2:])
    assert seen == [(0, -1), (1, 5), (2, 5), (2, 5)]


def test_a_topic_that_no_source_reads_is_refused() -> None:
    builder = StreamsBuilder()
    builder.stream("a").to("out")
    task = Task(builder.build(key_serde="string", value_serde="string").topology, 0, 0, settings())
    with pytest.raises(TopologyError, match=r"task 0_0 reads no topic b \(it reads: a\)"):
        task.run([Input("b", 0, 0, 1, b"k", b"v")])


def test_topics_that_match_a_pattern_are_read_as_they_come() -> None:
    builder = StreamsBuilder()
    builder.stream(re.compile("orders-.*")).to("out")
    task = Task(builder.build(key_serde="string", value_serde="string").topology, 0, 0, settings())
    outputs = task.run([Input(topic, 0, 0, 1, b"k", topic.encode()) for topic in ("orders-a", "orders-b")])
    assert [output.value for output in outputs] == [b"orders-a", b"orders-b"]


def test_joined_topics_must_have_as_many_partitions() -> None:
    builder = StreamsBuilder()
    left, right = builder.stream("a"), builder.table("b")
    left.join(right, lambda one, other: one + other).to("out")
    topology = builder.build(key_serde="string", value_serde="string").topology
    Runner(topology, settings(), partitions={"a": 2, "b": 2}, drain="batch")
    with pytest.raises(TopologyError, match=r"have a: 2, b: 3; call repartition\(\).*test_task\.py"):
        Runner(topology, settings(), partitions={"a": 2, "b": 3}, drain="batch")


def test_topics_of_a_join_by_foreign_key_go_with_the_side_that_reads_them() -> None:
    builder = StreamsBuilder()
    orders, users = builder.table("orders"), builder.table("users")
    orders.join(users, lambda one, other: one + other, foreign_key=lambda order: order).to_stream().to("out")
    topology = builder.build(key_serde="string", value_serde="string").topology
    together = {
        frozenset(topic for name in names for topic in topology.sources[name].topics)
        for names, _ in topology.copartitioned
    }
    (asked,) = (name for name in topology.internal_topics if "REGISTRATION" in name)
    (answered,) = (name for name in topology.internal_topics if "RESPONSE" in name)
    assert together == {frozenset({"users", asked}), frozenset({"orders", answered})}


def _topics_of_parts(topology: Topology) -> list[set[str]]:
    """Which topics each part of a program reads."""
    return [
        {topic for name in part.nodes if name in topology.sources for topic in topology.sources[name].topics}
        for part in topology.subtopologies()
    ]


class _Noted(Processor):
    """Writes what it sees under a name into a store."""

    def __init__(self, store: str) -> None:
        self.store = store

    def process(self, record: Any) -> None:
        self.context.get_state_store(self.store).put(record.key, record.value)


@pytest.mark.parametrize(("shared", "parts"), [(True, [{"a", "b"}, {"c"}]), (False, [{"a"}, {"b"}, {"c"}])])
def test_streams_with_a_store_in_common_are_one_part_of_the_program(shared: bool, parts: list[set[str]]) -> None:
    builder = StreamsBuilder()
    builder.add_state_store(stores.key_value("s"))
    builder.add_state_store(stores.key_value("t"))
    builder.stream("a").process(lambda: _Noted("s"), "s")
    builder.stream("b").process(lambda: _Noted("s" if shared else "t"), "s" if shared else "t")
    builder.stream("c").to("out")
    topology = builder.build(key_serde="string", value_serde="string").topology
    assert _topics_of_parts(topology) == parts


def test_a_global_table_that_several_streams_join_does_not_make_them_one_part() -> None:
    builder = StreamsBuilder()
    everywhere = builder.global_table("g")
    for topic in ("a", "b"):
        stream = builder.stream(topic)
        joined = stream.join(everywhere, lambda one, other: one + other, key_selector=lambda key, value: key)
        joined.to(f"{topic}-out")
    topology = builder.build(key_serde="string", value_serde="string").topology
    assert len(parts := _topics_of_parts(topology)) == 3
    assert all(part in parts for part in ({"a"}, {"b"}, {"g"}))
    assert [part.is_global for part in topology.subtopologies()] == [part == {"g"} for part in parts]


def test_windowed_results_that_are_grouped_again_are_counted_once() -> None:
    builder = StreamsBuilder()
    counts = builder.stream("a").group_by_key().windowed_by(TimeWindows.of(10)).count()
    by_key = counts.group_by(lambda window, count: (window.key, count), key_serde="string", value_serde="long")
    total = by_key.reduce(lambda seen, count: seen + count, lambda seen, count: seen - count)
    total.to_stream().map_values(str).to("out")
    made = Runner(builder.build().topology, settings()).run(
        [Input("a", 0, number, time, b"k", b"v") for number, time in enumerate((1, 2, 3, 11, 12))]
    )
    totals = [int(each.value or b"0") for each in made if each.topic == "out"]
    # Three records of one window and two of the next. A change of a count is taken back, then added.
    assert totals[-1] == max(totals) == 5


def closing(*, more: bool) -> Topology:
    """Counts of windows of 10 ms that are emitted when they close. `more`: a step before them moves their numbers."""
    builder = StreamsBuilder()
    stream = builder.stream("a")
    if more:
        stream = stream.peek(lambda key, value: None)
    windowed = stream.group_by_key().windowed_by(TimeWindows.of(10)).emit_strategy(EmitStrategy.on_window_close())
    windowed.count(materialized="counts").to_stream(lambda window, count: window.key).to("out", value_serde="long")
    return builder.build("app", key_serde="string", value_serde="string").topology


def at(offset: int, timestamp: int) -> Input:
    return Input("a", 0, offset, timestamp, b"k", b"v")


def test_windows_that_were_emitted_are_not_emitted_again_by_a_program_with_one_more_step() -> None:
    """Kafka Streams keeps the time up to which it has emitted by the store's name (processorMetadataForKey)."""
    task = Task(closing(more=False), 0, 0, settings())
    emitted = task.run([at(0, 1), at(1, 12)])
    assert [output.timestamp for output in emitted] == [1]
    changed = Task(closing(more=True), 0, 0, settings(), state=task.snapshot())
    assert [output.timestamp for output in changed.run([at(2, 13), at(3, 25)])] == [13]


def test_a_clock_that_was_ahead_does_not_hold_results_back() -> None:
    throttled = Settings("app", STRING, STRING)
    task = Task(closing(more=False), 0, 0, throttled)
    task.run([at(0, 1)], 9_000_000)
    assert len(task.run([at(1, 12)], 9_001_000)) == 1
    after = Task(closing(more=False), 0, 0, throttled, state=task.snapshot(), now=1_000)
    assert len(after.run([at(2, 25)], 1_000)) == 1
    assert after.run([at(3, 35)], 1_999) == [], "within a second nothing is emitted"
    assert len(after.run([at(4, 36)], 2_000)) == 1


def test_unmatched_records_are_not_held_back_by_a_clock_that_was_ahead() -> None:
    builder = StreamsBuilder()
    left, right = builder.stream("a"), builder.stream("b")
    left.left_join(
        right, lambda one, other: f"{one}{other}", windows=JoinWindows.of_time_difference_with_no_grace(5)
    ).to("out")
    topology = builder.build("app", key_serde="string", value_serde="string").topology
    throttled = Settings("app", STRING, STRING)
    task = Task(topology, 0, 0, throttled)
    task.run([at(0, 1)], 9_000_000)
    assert len(task.run([at(1, 20)], 9_001_000)) == 1
    after = Task(topology, 0, 0, throttled, state=task.snapshot(), now=1_000)
    assert len(after.run([at(2, 40)], 1_000)) == 1


def test_a_task_knows_the_cells_of_its_own_steps() -> None:
    task = Task(closing(more=False), 0, 0, settings())
    task.run([at(0, 1)])
    assert all(task.uses_cell(name) for name in task.snapshot().cells)
    assert task.uses_cell("counts/of its own") and not task.uses_cell("KSTREAM-AGGREGATE-0000000099/stream_time")
