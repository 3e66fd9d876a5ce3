"""The Processor API: forwarding, stores, punctuators, metadata (Kafka Streams 4.3, tried)."""

import re
from datetime import timedelta
from typing import Any

import pytest

from ottla.flow.engine import Task
from ottla.flow.plan import Plan
from ottla.flow.record import Input
from ottla.flow.runner import Runner
from ottla.flow.serde import STRING
from ottla.streams import (
    BufferConfig,
    Context,
    Processor,
    PunctuationType,
    Record,
    StreamsBuilder,
    StreamsError,
    Suppressed,
    TestDriver,
    TimeWindows,
    Topology,
    TopologyError,
    stores,
)
from ottla.streams.application import Application

STREAM, WALL = PunctuationType.STREAM_TIME, PunctuationType.WALL_CLOCK_TIME


class Deduplicate(Processor):
    """Forwards the first record of each key."""

    def init(self, context: Context) -> None:
        self.context = context
        self.seen = context.get_state_store("seen")

    def process(self, record: Record) -> None:
        if self.seen.put_if_absent(record.key, record.timestamp) is None:
            self.context.forward(record.with_value(record.value.upper()))


def test_a_processor_keeps_state_in_a_store_by_name() -> None:
    builder = StreamsBuilder()
    builder.add_state_store(stores.key_value("seen", "string", "long"))
    builder.stream("in").process(Deduplicate, "seen").to("out")
    driver = TestDriver(builder.build(key_serde="string", value_serde="string"))
    topic = driver.input_topic("in")
    topic.pipe_all([("a", "x"), ("a", "y"), ("b", "z")])
    assert driver.output_topic("out").read_key_values() == [("a", "X"), ("b", "Z")]
    assert driver.state_store("seen").get("b") == 0


def test_a_supplier_that_declares_stores_has_them_connected() -> None:
    class Supplier:
        stores = (stores.key_value("seen", "string", "long"),)

        def __call__(self) -> Deduplicate:
            return Deduplicate()

    builder = StreamsBuilder()
    builder.stream("in").process(Supplier()).to("out")
    driver = TestDriver(builder.build(key_serde="string", value_serde="string"))
    driver.input_topic("in").pipe("a", "x")
    assert driver.output_topic("out").read_key_values() == [("a", "X")]


def test_a_store_that_is_not_connected_is_refused_by_name() -> None:
    builder = StreamsBuilder()
    builder.add_state_store(stores.key_value("seen", "string", "long"))
    builder.stream("in").process(Deduplicate).to("out")
    with pytest.raises(StreamsError, match="no access to state store seen"):
        TestDriver(builder.build(key_serde="string", value_serde="string"))
    unknown = StreamsBuilder()
    unknown.stream("in").process(Deduplicate, "sean")
    with pytest.raises(TopologyError, match=r"state store sean has not been added \(.*test_processor\.py"):
        unknown.build(key_serde="string", value_serde="string")


class Ticker(Processor):
    """Forwards a record for each punctuation."""

    def __init__(self, *schedules: tuple[str, int, PunctuationType, int | None]) -> None:
        self.schedules = schedules

    def init(self, context: Context) -> None:
        self.context = context
        self.cancel = []
        for name, interval, kind, start in self.schedules:
            tick = lambda time, name=name: context.forward(Record(name, str(time), max(time, 0)))  # noqa: E731
            self.cancel.append(context.schedule(timedelta(milliseconds=interval), kind, tick, start))

    def process(self, record: Record) -> None:
        if record.value == "cancel":
            self.cancel[0].cancel()


def ticking(*schedules: tuple[str, int, PunctuationType, int | None]) -> TestDriver:
    builder = StreamsBuilder()
    builder.stream("in").process(lambda: Ticker(*schedules)).to("out")
    return TestDriver(builder.build(key_serde="string", value_serde="string"))


def fired(driver: TestDriver, *times: int) -> list[str]:
    told = []
    topic, out = driver.input_topic("in"), driver.output_topic("out")
    for time in times:
        topic.pipe("k", "v", time)
        told.append(" ".join(out.read_values()) or ".")
    return told


def advanced(driver: TestDriver, *steps: int) -> list[str]:
    told = []
    for step in steps:
        driver.advance_wall_clock(step)
        told.append(" ".join(driver.output_topic("out").read_values()) or ".")
    return told


def test_stream_time_punctuators_stay_on_their_grid() -> None:
    driver = ticking(("P", 10, STREAM, None))
    assert fired(driver, 3, 7, 12, 13, 50, 59, 60, 63) == ["3", ".", "12", ".", "50", ".", "60", "."]
    late = ticking(("P", 10, STREAM, None))
    assert fired(late, 30, 5, 31, 40) == ["30", ".", ".", "40"]


def test_wall_clock_punctuators_fire_once_after_a_pause() -> None:
    assert advanced(ticking(("P", 10, WALL, None)), 9, 1, 35, 4, 1) == [".", "10", "45", ".", "50"]


def test_punctuators_may_start_at_a_time() -> None:
    assert fired(ticking(("P", 10, STREAM, 25)), 3, 24, 25, 34, 36) == [".", ".", "25", ".", "36"]
    assert advanced(ticking(("P", 10, WALL, 25)), 24, 1, 9, 1) == [".", "25", ".", "35"]


def test_the_earliest_due_punctuator_goes_first_and_a_cancelled_one_never() -> None:
    driver = ticking(("A", 10, STREAM, None), ("B", 4, STREAM, None))
    topic, out = driver.input_topic("in"), driver.output_topic("out")
    order = []
    for time in (1, 9, 12):
        topic.pipe("k", "v", time)
        order.append([record.key for record in out.read_records()])
    assert order == [["A", "B"], ["B"], ["A", "B"]]
    topic.pipe("k", "cancel", 12)
    topic.pipe("k", "v", 100)
    assert [record.key for record in out.read_records()] == ["B"]


def test_records_are_forwarded_to_a_child_by_its_name() -> None:
    class Route(Processor):
        def process(self, record: Record) -> None:
            self.context.forward(record, str(record.value))

    topology = Topology()
    topology.add_source("source", "in", key_serde="string", value_serde="string")
    topology.add_processor("route", Route, "source")
    topology.add_sink("left", "left-topic", "route", key_serde="string", value_serde="string")
    topology.add_sink("right", "right-topic", "route", key_serde="string", value_serde="string")
    driver = TestDriver(Application("app", Plan(), topology, STRING, STRING))
    topic = driver.input_topic("in")
    topic.pipe("k", "right", 3)
    assert (len(driver.output_topic("left-topic")), len(driver.output_topic("right-topic"))) == (0, 1)
    with pytest.raises(StreamsError, match=r"route has no child middle \(its children: left, right\)"):
        topic.pipe("k", "middle", 4)


def test_fixed_key_processors_cannot_change_keys() -> None:
    class Change(Processor):
        def process(self, record: Record) -> None:
            self.context.forward(record.with_value("new") if record.value == "ok" else record.with_key("other"))

    builder = StreamsBuilder()
    builder.stream("in").process_values(Change).to("out")
    driver = TestDriver(builder.build(key_serde="string", value_serde="string"))
    driver.input_topic("in").pipe("k", "ok", 1)
    assert driver.output_topic("out").read_key_values() == [("k", "new")]
    with pytest.raises(StreamsError, match="cannot change the key"):
        driver.input_topic("in").pipe("k", "bad", 2)


def test_a_processor_knows_its_record_and_its_times() -> None:
    seen: list[Any] = []

    class Look(Processor):
        def init(self, context: Context) -> None:
            self.context = context
            seen.append((context.current_stream_time_ms(), context.task_id, context.record_metadata()))

        def process(self, record: Record) -> None:
            context = self.context
            seen.append((context.record_metadata(), context.current_stream_time_ms(), context.current_system_time_ms()))
            with pytest.raises(ValueError, match="invalid timestamp: -1"):
                record.with_timestamp(-1)

    builder = StreamsBuilder()
    builder.stream("in").process(Look)
    driver = TestDriver(builder.build(key_serde="string", value_serde="string"), start=1000)
    driver.input_topic("in").pipe("k", "v", 7, (("h", b"1"),))
    driver.input_topic("in").pipe("k", "v", 5)
    assert seen[0] == (-1, "0_0", None)
    assert seen[1] == (("in", 0, 0, 7, (("h", b"1"),)), 7, 1000)
    assert seen[2] == (("in", 0, 1, 5, ()), 7, 1000)


def test_a_global_store_is_seen_by_every_task_and_kept_by_its_own_processor() -> None:
    class Keep(Processor):
        def process(self, record: Record) -> None:
            self.context.get_state_store("rates").put(record.key, record.value)

    class Look(Processor):
        def process(self, record: Record) -> None:
            self.context.forward(record.with_value(str(self.context.get_state_store("rates").get(record.value))))

    builder = StreamsBuilder()
    builder.add_global_store(stores.key_value("rates", "string", "string"), "rates-topic", Keep)
    builder.stream("in").process(Look).to("out")
    driver = TestDriver(builder.build(key_serde="string", value_serde="string"))
    driver.input_topic("rates-topic").pipe("eur", "1.1")
    driver.input_topic("in").pipe_all([("k", "eur"), ("k", "gbp")])
    assert driver.output_topic("out").read_values() == ["1.1", "None"]


def test_topics_may_be_named_by_records_and_partitions_by_the_program() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in")
    stream.to(lambda key, value, context: f"{value}-{context.topic}-{context.offset}")
    stream.to("fixed", partitioner=lambda topic, key, value, count: 0)
    stream.to("nowhere", partitioner=lambda topic, key, value, count: [])
    driver = TestDriver(builder.build(key_serde="string", value_serde="string"))
    driver.input_topic("in").pipe("k", "v")
    assert driver.produced_topics() == ["fixed", "v-in-0"]


@pytest.mark.parametrize("chosen", [-1, [0, -1], "0"])
def test_a_partitioner_that_returns_no_partition_is_told(chosen: Any) -> None:
    """Of many outputs, those with a negative partition went to that of their key."""
    builder = StreamsBuilder()
    builder.stream("in").to("out", partitioner=lambda topic, key, value, count: chosen)
    driver = TestDriver(builder.build(key_serde="string", value_serde="string"))
    with pytest.raises(StreamsError, match=re.escape(f"returned {chosen!r} (expected None, or 0 or more)")):
        driver.input_topic("in").pipe("k", "v")


@pytest.mark.parametrize("chosen", [[1, 0, 1], (1, 0), {0, 1}])
def test_a_record_goes_once_to_each_partition_that_a_partitioner_returns(chosen: Any) -> None:
    """By number, as out of Kafka Streams' set."""
    builder = StreamsBuilder()
    builder.stream("in").to("out", partitioner=lambda topic, key, value, count: chosen)
    app = builder.build(key_serde="string", value_serde="string")
    outputs = Runner(app.topology, app.settings).run([Input("in", 0, 0, 0, b"k", b"v")])
    assert [(output.topic, output.partition) for output in outputs] == [("out", 0), ("out", 1)]


@pytest.mark.parametrize("named", ["", None, 5, "a b", "..", "n" * 250])
def test_an_extractor_that_names_no_topic_is_told(named: Any) -> None:
    builder = StreamsBuilder()
    builder.stream("in").to(lambda key, value, context: named)
    driver = TestDriver(builder.build(key_serde="string", value_serde="string"))
    with pytest.raises(StreamsError, match=re.escape(f"returned {named!r} (expected a topic name: 1 to 249 letters")):
        driver.input_topic("in").pipe("k", "v")


def test_transform_values_of_a_table_is_called_for_nulls() -> None:
    class Shout:
        def transform(self, key: str, value: str | None) -> str | None:
            return f"{value}!"

    builder = StreamsBuilder()
    builder.table("in").transform_values(Shout).to_stream().to("out")
    driver = TestDriver(builder.build(key_serde="string", value_serde="string"))
    driver.input_topic("in").pipe_all([("k", "v"), ("k", None)])
    assert driver.output_topic("out").read_key_values() == [("k", "v!"), ("k", "None!")]


@pytest.mark.parametrize("store", [None, "shouted"])
def test_the_old_value_of_a_transformed_table_is_taken_back_downstream(store: str | None) -> None:
    """With a store the old value is the stored one, and without it is made again."""
    told: list[str] = []

    class Shout:
        def init(self, context: Context) -> None:
            told.append("init")

        def transform(self, key: str, value: str | None) -> str | None:
            return None if value is None else f"{value}!"

        def close(self) -> None:
            told.append("close")

    builder = StreamsBuilder()
    shouted = builder.table("in").transform_values(Shout, materialized=store)
    shouted.group_by(lambda key, value: (value, key)).count().to_stream().to("out")
    with TestDriver(builder.build(key_serde="string", value_serde="string")) as driver:
        driver.input_topic("in").pipe_all([("k", "a"), ("j", "a"), ("k", "b"), ("j", None)])
        counts = driver.output_topic("out", value_serde="long").read_key_values()
    assert counts == [("a!", 1), ("a!", 2), ("a!", 1), ("b!", 1), ("a!", 0)]
    assert told == ["init", "close"]


@pytest.mark.parametrize("store", [None, "shouted"])
def test_a_join_looks_up_the_transformed_value(store: str | None) -> None:
    class Shout:
        def transform(self, key: str, value: str | None) -> str | None:
            return None if value in (None, "hush") else f"{value}!"

    builder = StreamsBuilder()
    shouted = builder.table("in").transform_values(Shout, materialized=store)
    shouted.join(builder.table("other"), lambda left, right: f"{left}{right}").to_stream().to("out")
    driver = TestDriver(builder.build(key_serde="string", value_serde="string"))
    driver.input_topic("in").pipe("k", "v", timestamp=70)
    driver.input_topic("other").pipe("k", "1", timestamp=50)
    driver.input_topic("other").pipe("j", "1", timestamp=50)
    driver.input_topic("in").pipe("k", "hush", timestamp=80)
    driver.input_topic("other").pipe("k", "2", timestamp=90)
    found = [(record.key, record.value, record.timestamp) for record in driver.output_topic("out").read_records()]
    assert found == [("k", "v!1", 70), ("k", None, 80)]


class Hold(Processor):
    """Keeps records, and forwards them when the wall clock has gone on."""

    def __init__(self, told: list[Any]) -> None:
        self.told = told

    def init(self, context: Context) -> None:
        self.context = context
        self.held: list[Any] = []
        self.last = context.get_state_store("last")
        context.schedule(timedelta(milliseconds=10), WALL, self.flush)

    def process(self, record: Record) -> None:
        self.held.append(record)

    def flush(self, time: int) -> None:
        self.told.append((time, self.context.record_metadata()))
        self.last.put("flush", str(time))
        for record in self.held:
            self.context.forward(record)


def test_a_punctuator_belongs_to_no_record() -> None:
    """Kafka Streams gives it a context of its own (StreamTask.punctuate): no topic, and the punctuation's time."""
    told: list[Any] = []
    builder = StreamsBuilder()
    builder.add_state_store(stores.key_value("last", "string", "string"))
    closes = Suppressed.until_window_closes(BufferConfig.unbounded())
    windows = TimeWindows.of_size_with_no_grace(timedelta(milliseconds=10))
    held = builder.stream("in").process_values(lambda: Hold(told), "last")
    counted = held.group_by_key().windowed_by(windows).count().suppress(closes)
    counted.to_stream(lambda window, _: window.key).to("out", value_serde="long")
    driver = TestDriver(builder.build(key_serde="string", value_serde="string"), changelog=True)
    driver.input_topic("in").pipe_all([("a", "x"), ("b", "y")])
    driver.input_topic("in").pipe("c", "z", 25)
    driver.advance_wall_clock(1000)
    assert told == [(1000, None)]
    assert driver.output_topic("out", value_serde="long").read_key_values() == [("a", 1), ("b", 1)]
    (name,) = (name for name in driver.produced_topics() if name.endswith("-last-changelog"))
    assert [each.timestamp for each in driver.take_produced()[name]] == [1000]


class Later(Processor):
    """Forwards each record when the wall clock has gone on by ten milliseconds."""

    def process(self, record: Record) -> None:
        def forward(time: int) -> None:
            self.context.forward(record)
            timer.cancel()

        timer = self.context.schedule(10, WALL, forward)


def restarted(task: Task, now: int) -> Task:
    """The task as it is after a restart."""
    return Task(task.topology, task.subtopology, task.partition, task.settings, state=task.snapshot(), now=now)


def task_of(supplier: Any) -> Task:
    builder = StreamsBuilder()
    builder.stream("in").process(supplier).to("out")
    application = builder.build(key_serde="string", value_serde="string")
    return Task(application.topology, 0, 0, application.settings)


def values(outputs: list[Any]) -> list[bytes]:
    return [output.value for output in outputs]


def record(offset: int, timestamp: int, value: bytes = b"v") -> Input:
    return Input("in", 0, offset, timestamp, b"k", value)


def test_timers_that_a_processor_sets_for_its_records_work_after_a_restart() -> None:
    task = task_of(Later)
    cells = set(task.snapshot().cells)
    for number in range(5):
        assert values(task.run([record(number, 0, b"%d" % number)], number * 10)) == (
            [b"%d" % (number - 1)] if number else []
        )
    task.run([], 1_000)
    assert set(task.snapshot().cells) == cells, "a timer of a record leaves nothing in the task's state"
    again = restarted(task, 1_000)
    assert again.run([record(5, 0, b"5")], 1_000) == []
    assert values(again.run([], 1_010)) == [b"5"]


def test_a_punctuator_keeps_its_grid_over_a_restart() -> None:
    task = task_of(lambda: Ticker(("S", 10, STREAM, None), ("W", 10, WALL, None)))
    assert values(task.run([record(0, 12)], 12)) == [b"12", b"12"]
    again = restarted(task, 15)
    assert again.run([record(1, 15)], 15) == []
    assert values(again.run([record(2, 20)], 20)) == [b"20", b"20"]


def test_a_punctuator_that_was_cancelled_begins_again_with_its_processor() -> None:
    """Kafka Streams keeps no due times: `init` schedules a punctuator, whatever an earlier instance has done."""
    task = task_of(lambda: Ticker(("S", 10, STREAM, None)))
    assert values(task.run([record(0, 12)])) == [b"12"]
    assert task.run([record(1, 13, b"cancel"), record(2, 30)]) == []
    assert values(restarted(task, 0).run([record(3, 31)])) == [b"31"]


def test_a_due_time_of_another_interval_or_of_a_clock_that_was_ahead_does_not_hold_a_punctuator_up() -> None:
    task = task_of(lambda: Ticker(("W", 3_600_000, WALL, None), ("S", 3_600_000, STREAM, None)))
    assert values(task.run([record(0, 5)], 5_000_000)) == [b"5", b"5000000"]
    shorter = task_of(lambda: Ticker(("W", 10, WALL, None), ("S", 10, STREAM, None)))
    changed = Task(shorter.topology, 0, 0, shorter.settings, state=task.snapshot(), now=1_000)
    assert values(changed.run([record(1, 6)], 1_010)) == [b"6", b"1010"]


@pytest.mark.parametrize(("kind", "punctuator"), [("wall-clock time", print), (WALL, lambda: None), (WALL, 5)])
def test_a_wrong_schedule_is_refused_at_its_line(kind: Any, punctuator: Any) -> None:
    class Wrong(Processor):
        def init(self, context: Context) -> None:
            context.schedule(10, kind, punctuator)

    builder = StreamsBuilder()
    builder.stream("in").process(Wrong)
    with pytest.raises(TopologyError, match=r"invalid schedule: .*expected a PunctuationType.*test_processor\.py:\d+"):
        TestDriver(builder.build(key_serde="string", value_serde="string")).input_topic("in").pipe("k", "v")
