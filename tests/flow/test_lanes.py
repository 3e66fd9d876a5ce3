"""Column expressions and batch functions give what the engine gives record by record, however the input is cut."""

import json
import pickle
import re
from random import Random
from typing import Any

import pytest

from ottla.flow.engine import Settings
from ottla.flow.error import StreamsError, TopologyError
from ottla.flow.handler import Handlers, log_and_continue
from ottla.flow.operator.emit import WINDOW_INTERVAL
from ottla.flow.record import TIME_MAX, Input
from ottla.flow.runner import Runner
from ottla.flow.serde import STRING
from ottla.flow.vector import region
from ottla.streams import (
    EmitStrategy,
    KStream,
    Materialized,
    Processor,
    SessionWindows,
    StreamsBuilder,
    TestDriver,
    TimeWindows,
    UnlimitedWindows,
    batch,
    col,
    key,
    lit,
    serdes,
    stores,
    struct,
    timestamp,
    value,
)
from ottla.streams.application import Application
from tests.flow.columns import ColumnRunner, by_topic, newest

ORDER = serdes.columns(card="string", n="long", x="double", ok="boolean")
HANDLERS = Handlers(log_and_continue, log_and_continue, log_and_continue, dead_letter_topic="dead")
OBJECT_TESTS = [
    col("n") > 2,
    value["x"] / value["n"] > 1.0,
    ~value["ok"] | key.starts_with("k"),
    value["card"].is_null(),
]
OBJECT_VALUES = [
    value["n"] + timestamp, value["x"] * 2, value["card"] + "!", value["n"] * value["n"] * lit(1 << 60),
    struct(card=value["card"].lower(), n=value["n"] % 3, x=value["x"] + 1, ok=value["ok"]),
]  # fmt: skip
KEYS = [value["card"], value["n"].cast("string"), value["card"].otherwise("none"), key]


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also few records go as columns."""
    monkeypatch.setattr(region, "ROWS_MIN", 1)


def inputs(rng: Random, topic: str, count: int, bad: float = 0.02) -> list[Input]:
    found, time = [], 0
    for offset in range(count):
        time += rng.choice((0, 0, 1, 3, 12))
        given: dict[str, Any] = {
            "card": rng.choice(("a", "B", "é", None)),
            "n": rng.choice((0, 1, 2, 3, 5, None)),
            "x": rng.choice((0.5, 2, -1.25, None)),
            "ok": rng.choice((True, False, None)),
        }
        data: bytes | None = json.dumps(given).encode()
        if rng.random() < 0.05:
            data = rng.choice((None, b'{"n": 3}'))
        if rng.random() < bad:
            data = rng.choice((b'{"n": "x"}', b"["))
        name = rng.choice((b"k", b"j", b"", b"\xc3\xa9", None))
        headers = (("h", b"1"),) if rng.random() < 0.1 else ()
        found.append(Input(topic, 0, offset, max(0, time - rng.choice((0, 0, 2, 25))), name, data, headers))
    return found


def program(rng: Random) -> Application:
    builder = StreamsBuilder()
    stream: KStream[Any, Any] = builder.stream("a", key_serde="string", value_serde=ORDER)
    if rng.random() < 0.3:
        stream = stream.merge(builder.stream("b", key_serde="string", value_serde=ORDER)).repartition(
            name="both", key_serde="string", value_serde=ORDER
        )
    made = [0]
    streams = [stream]
    for _ in range(rng.randint(1, 4)):
        step(rng, builder, streams, made)
    for each in streams[-2:]:
        end(each, made)
    return builder.build(application_id="app", key_serde="string", value_serde="json")


def end(stream: KStream[Any, Any], made: list[int]) -> None:
    made[0] += 1
    stream.to(f"out{made[0]}" if made[0] % 3 or stream.value_serde != ORDER else "shared")


def step(rng: Random, builder: StreamsBuilder, streams: list[KStream[Any, Any]], made: list[int]) -> None:
    stream = streams[-1] if rng.random() < 0.8 else rng.choice(streams)
    if stream.value_serde != ORDER:
        stream = next(each for each in reversed(streams) if each.value_serde == ORDER)
    which = rng.randrange(10)
    if which == 0:
        streams.append(stream.filter(rng.choice(OBJECT_TESTS)))
    elif which == 1:
        streams.append(stream.filter_not(rng.choice(OBJECT_TESTS)))
    elif which == 2:
        streams.append(stream.map_values(rng.choice(OBJECT_VALUES)))
    elif which == 3:
        streams.append(stream.select_key(rng.choice(KEYS)))
    elif which == 4:
        streams.append(stream.filter(lambda key, value: value is not None and value["n"] != 1))
    elif which == 5:
        doubled = batch(lambda rows: [None if n is None else 2 * n for n in rows["n"].to_pylist()], returns="long")
        streams.append(stream.map_values(doubled))
    elif which == 6:
        arms = stream.split().branch(rng.choice(OBJECT_TESTS)).default_branch()
        for arm in arms.values():
            end(arm, made)
    elif which == 7:
        alike = [each for each in streams if each.value_serde == ORDER]
        streams.append(rng.choice(alike).merge(rng.choice(alike)).filter(rng.choice(OBJECT_TESTS)))
    else:
        keyed = rng.random() < 0.5
        grouped = stream.group_by_key() if keyed else stream.group_by(rng.choice(KEYS[::2]), value_serde=ORDER)
        kind = rng.choice(("count", "sum", "min", "max", "avg"))
        arguments = () if kind == "count" else (rng.choice((value["n"], value["x"])),)
        on: Any = grouped
        if rng.random() < 0.6:
            windows = TimeWindows.of(10).grace(rng.choice((0, 15)))
            on = grouped.windowed_by(windows if rng.random() < 0.5 else windows.advance_by(rng.choice((5, 4, 3, 1))))
            if rng.random() < 0.2:
                on = on.emit_strategy(EmitStrategy.on_window_close())
        end(getattr(on, kind)(*arguments).to_stream(), made)


@pytest.mark.parametrize("last", [TIME_MAX, TIME_MAX - 5, 1 << 62])
def test_windows_that_end_beyond_the_last_time_count_what_single_records_count(last: int) -> None:
    builder = StreamsBuilder()
    windows = TimeWindows.of(10).advance_by(4).grace(5)
    builder.stream("a").group_by_key().windowed_by(windows).count().to_stream().to("out")
    topology = builder.build(application_id="app", key_serde="string", value_serde="string").topology
    settings = Settings("app", STRING, STRING)
    times = (1, 2, last - 9, last, last - 1)
    given = [Input("a", 0, n, time, b"k", b"v") for n, time in enumerate(times)]
    one, many = Runner(topology, settings, drain="batch"), ColumnRunner(topology, settings)
    assert by_topic(many.run(list(given))) == by_topic(one.run(given))
    assert many.state() == one.state()


def test_random_programs_give_what_single_records_give() -> None:
    columns = records = 0
    for seed in range(150):
        rng = Random(seed)
        bad = rng.choice((0, 0, 0.02))
        app = program(rng)
        settings = Settings("app", STRING, app.settings.value_serde, HANDLERS, changelog=seed % 2 == 0)
        given = sorted([*inputs(rng, "a", 60, bad), *inputs(rng, "b", 20, bad)], key=lambda each: each.topic)
        if not any("b" in source.topics for source in app.topology.sources.values()):
            given = [each for each in given if each.topic == "a"]
        cut, size = rng.choice((3, 1000)), rng.choice((9, 1000))
        one, many = Runner(app.topology, settings, drain="batch"), ColumnRunner(app.topology, settings)
        many.cut = cut
        for at in range(0, len(given), size):
            expected, found = by_topic(one.run(given[at : at + size])), by_topic(many.run(given[at : at + size]))
            records += sum(map(len, expected.values()))
            letters = [sorted(side.pop("dead", []), key=repr) for side in (found, expected)]
            assert letters[0] == letters[1], f"seed {seed}\n{app.explain()}"
            assert newest(found) == newest(expected), f"seed {seed}\n{app.explain()}"
            assert found == expected, f"seed {seed}\n{app.explain()}"
            changes = [[each.take_changes() for each in side.tasks.values()] for side in (one, many)]
            assert changes[0] == changes[1], f"seed {seed}\n{app.explain()}"
        assert many.state() == one.state(), f"seed {seed}\n{app.explain()}"
        assert [each.dropped for each in many.tasks.values()] == [each.dropped for each in one.tasks.values()]
        columns += many.columns
    assert columns > records // 5


FORMS: list[Any] = [
    lambda stream: stream.flat_map(batch(lambda rows: keep_odd(rows), returns="long", key="long")),
    lambda stream: stream.filter(batch(lambda rows: rows["x"] > 0, form="pandas")),
    lambda stream: stream.map_values(batch(lambda rows: rows["x"] * 2, returns="double", form="pandas")),
    lambda stream: stream.map_values(batch(lambda rows: rows[["card"]], returns={"card": "string"}, form="pandas")),
    lambda stream: stream.map_values(batch(lambda rows: rows.select(["n", "x"]), returns={"n": "long", "x": "double"})),
    lambda stream: stream.filter(batch(lambda rows: rows["x"] > 0, form="polars")),
    lambda stream: stream.map_values(batch(lambda rows: rows["x"] * 2, returns="double", form="polars")),
    lambda stream: stream.map_values(
        batch(lambda rows: rows.select("n", "card"), returns={"n": "long", "card": "string"}, form="polars")
    ),
    lambda stream: stream.flat_map(batch(lambda rows: polars_odd(rows), returns="long", key="long", form="polars")),
]


def keep_odd(rows: Any) -> Any:
    """Each record as often as its number says, under that number."""
    picked = [row for row, n in enumerate(rows["n"].to_pylist()) for _ in range(n or 0)]
    numbers = [rows["n"][row].as_py() for row in picked]
    return {"row": picked, "key": numbers, "value": numbers}


def polars_odd(rows: Any) -> Any:
    """The records with an odd number, under that number."""
    return rows.with_row_index("row").filter(rows["n"] % 2 == 1).select("row", key="n", value="n")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("cut", [1, 4, 1000])
def test_batch_functions_give_what_they_give_for_one_record(form: Any, cut: int) -> None:
    builder = StreamsBuilder()
    form(builder.stream("a", key_serde="string", value_serde=ORDER)).to("out")
    app = builder.build(application_id="app")
    settings = Settings("app", handlers=HANDLERS)
    given = inputs(Random(1), "a", 60, 0)
    one, many = Runner(app.topology, settings, drain="batch"), ColumnRunner(app.topology, settings)
    many.cut = cut
    expected = by_topic(one.run(given))
    found = by_topic(many.run(given))
    assert found["out"] == expected["out"]
    assert many.columns
    assert "lane  batch: " in app.explain()


def two_readers(stream: Any) -> None:
    table = stream.group_by_key().count()
    table.to_stream().to("out")
    table.map_values(lambda n: n * 10).to_stream().to("other", value_serde="long")


def two_streams(stream: Any) -> None:
    table = stream.group_by_key().count()
    table.to_stream().to("out")
    table.to_stream().to("other")


def a_filtered_table(stream: Any) -> None:
    stream.group_by_key().sum(value["n"]).filter(lambda key, n: n > 3).to_stream().to("out")


def a_versioned_table(stream: Any) -> None:
    kept = Materialized.as_(stores.versioned("kept", 100))
    stream.group_by_key().count(materialized=kept).to_stream().to("out")


def a_fold_of_python(stream: Any) -> None:
    numbers = stream.map_values(value["n"].otherwise(0))
    numbers.group_by_key(value_serde="long").reduce(lambda left, right: left * 2 + right).to_stream().to("out")


def unlimited_windows(stream: Any) -> None:
    stream.group_by_key().windowed_by(UnlimitedWindows.of()).count().to_stream().to("out")


def closed_windows(stream: Any) -> None:
    windows = stream.group_by_key().windowed_by(TimeWindows.of(10).grace(5))
    windows.emit_strategy(EmitStrategy.on_window_close()).count().to_stream().to("out")


def texts(stream: Any) -> None:
    stream.group_by_key().min(value["card"]).to_stream().to("out")
    stream.group_by_key().max(value["card"]).to_stream().to("other")


@pytest.mark.parametrize(
    "tables",
    [
        two_readers,
        two_streams,
        a_filtered_table,
        a_versioned_table,
        a_fold_of_python,
        unlimited_windows,
        closed_windows,
        texts,
    ],
)
@pytest.mark.parametrize("cut", [4, 1000])
def test_tables_give_what_they_give_for_one_record(tables: Any, cut: int) -> None:
    builder = StreamsBuilder()
    tables(builder.stream("a", key_serde="string", value_serde=ORDER))
    app = builder.build(application_id="app")
    settings = Settings("app", handlers=HANDLERS, configs={WINDOW_INTERVAL: 0})
    given = inputs(Random(1), "a", 60, 0)
    one, many = Runner(app.topology, settings, drain="batch"), ColumnRunner(app.topology, settings)
    many.cut = cut
    expected, found = by_topic(one.run(given)), by_topic(many.run(given))
    assert newest(found) == newest(expected)
    assert found == expected
    assert found["out"]
    assert many.state() == one.state()


def test_the_driver_runs_them_record_by_record() -> None:
    builder = StreamsBuilder()
    orders = builder.stream("orders", key_serde="string", value_serde=ORDER)
    orders.filter(col("n") > 1).group_by(value["card"]).sum(value["x"]).to_stream().to("sums")
    app = builder.build(application_id="app")
    with TestDriver(app) as driver:
        topic = driver.input_topic("orders")
        for n, x in ((1, 1.0), (2, 1.5), (3, 2.0)):
            topic.pipe("k", {"card": "c", "n": n, "x": x, "ok": None}, n)
        assert driver.output_topic("sums").read_key_values() == [("c", 1.5), ("c", 3.5)]
    told = app.explain()
    assert "lane  column: (value.n > 1)\n" in told
    assert "lane  column: value.card\n" in told


def test_explain_says_where_types_are_not_known() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("a", key_serde="string", value_serde="json")
    stream.map_values(lambda v: v).filter(col("n") > 1).to("out")
    told = builder.build(application_id="app").explain()
    assert "lane  record: a Python call for each record" in told
    assert "lane  column: (value.n > 1), for each record, because its input types are not known" in told


def test_wrong_types_are_refused_at_the_line_of_the_user() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("a", key_serde="string", value_serde=ORDER)
    with pytest.raises(TopologyError, match=r"double and string .*test_lanes\.py:\d+"):
        stream.map_values(value["x"] + value["card"])
    stream.filter(value["n"] + 1).to("out")
    with pytest.raises(TopologyError, match=r"\(value\.n \+ 1\) is a long \(expected a boolean.*test_lanes\.py:\d+"):
        builder.build()
    builder = StreamsBuilder()
    builder.stream("a", key_serde="string", value_serde="json").filter(batch(lambda rows: rows["n"])).to("out")
    with pytest.raises(TopologyError, match=r"needs to know the types.*test_lanes\.py:\d+"):
        builder.build()
    with pytest.raises(TopologyError, match=r"invalid selector for KStream\.group_by"):
        StreamsBuilder().stream("a").group_by(batch(lambda rows: rows["n"]))
    with pytest.raises(TopologyError, match="not available in a table's step"):
        StreamsBuilder().table("a").filter(timestamp > 1)


def test_a_record_that_cannot_be_computed_stops_the_task_with_its_line() -> None:
    builder = StreamsBuilder()
    builder.stream("a", key_serde="string", value_serde="long").map_values(lit(1) / value).to("out")
    app = builder.build(application_id="app")
    given = [Input("a", 0, number, 0, b"k", number.to_bytes(8, "big")) for number in (2, 1, 0, 1)]
    with pytest.raises(StreamsError, match=r"test_lanes\.py:\d+\) failed on a-0 at offset 0: ZeroDivisionError"):
        ColumnRunner(app.topology, Settings("app")).run(given)


def test_expressions_travel_to_workers() -> None:
    builder = StreamsBuilder()
    builder.stream("a", key_serde="string", value_serde=ORDER).filter(col("n") > 1).to("out")
    (node,) = (each for each in builder.plan().nodes if getattr(each, "function", None) is not None)
    again = pickle.loads(pickle.dumps(node.function))  # type: ignore[attr-defined]
    assert repr(again.expression) == "(value.n > 1)"
    assert again.timed("k", {"n": 2}, 0) is True


def test_explain_names_the_lane_of_aggregates_processors_and_joins_of_tables() -> None:
    builder = StreamsBuilder()
    orders = builder.stream("orders", key_serde="string", value_serde=ORDER)
    orders.group_by_key().count(name="counted").to_stream().to("counts")
    orders.group_by_key().count(name="kept").filter(lambda key, count: count > 1).to_stream().to("many")
    sessions = SessionWindows.of_inactivity_gap_with_no_grace(5)
    orders.group_by_key().windowed_by(sessions).count(name="visits").to_stream().to("visits")
    orders.group_by_key().aggregate(int, lambda key, order, total: total, name="totals", materialized="totals")
    orders.process(Processor, name="own")
    rows = [builder.table(topic, key_serde="string", value_serde="json") for topic in ("one", "two")]
    rows[0].join(rows[1], lambda one, two: one, name="joined")
    rows[0].group_by(lambda key, row: (key, row)).count(name="rows")
    told = builder.build(application_id="app", key_serde="string", value_serde="json").explain()
    paragraphs = re.split(r"\n +\d+ ", told)
    lanes = {name: next(part for part in paragraphs if part.split("\n")[0].endswith(f"  {name}")) for name in _LANES}
    for name, lane in _LANES.items():
        assert f"lane  {lane}\n" in lanes[name]


_LANES = {
    "counted": "column: count",
    "kept": "column: count, for each record, because a step of tables follows",
    "visits": "column: count, for each record, because its windows are neither tumbling nor hopping",
    "totals": "record: a Python call for each record",
    "own": "record: a Python call for each record",
    "joined": "record: a Python call for each record",
    "rows": "column: count, for each record, because its input types are not known",
}
