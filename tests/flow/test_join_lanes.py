"""Joins of streams with tables give in columns what they give record by record, however the input is cut."""

import json
import pickle
from random import Random
from typing import Any

import pytest

from ottla.flow.engine import Settings
from ottla.flow.error import TopologyError
from ottla.flow.handler import Handlers, log_and_continue
from ottla.flow.plan import StreamTableJoin
from ottla.flow.record import Input
from ottla.flow.runner import Runner
from ottla.flow.serde import JSON, STRING
from ottla.flow.task import waiting
from ottla.flow.vector import region
from ottla.streams import (
    KStream,
    KTable,
    Materialized,
    StreamsBuilder,
    TestDriver,
    batch,
    col,
    key,
    left,
    right,
    serdes,
    stores,
    struct,
    timestamp,
    value,
)
from ottla.streams.application import Application
from tests.flow.columns import ColumnRunner, by_topic, compare_lanes
from tests.flow.test_lanes import ORDER, inputs

RATE = serdes.columns(rate="double", name="string")
HANDLERS = Handlers(log_and_continue, log_and_continue, log_and_continue, dead_letter_topic="dead")
#: A joiner's expressions, by the type of the table's values.
EXPRESSIONS: dict[str, list[Any]] = {
    "object": [
        struct(card=key + right["name"], n=left["n"], x=left["x"] * right["rate"], ok=right["name"].is_null()),
        left["x"] / right["rate"],
        left["card"].otherwise("?") + right["name"].otherwise("!"),
        right,
        left,
        right["name"].length(),
    ],
    "string": [left["card"] + right, right, right.is_null()],
    "long": [left["n"] * right, struct(n=left["n"], of=right)],
}


def multiplied(rows: Any) -> list[float | None]:
    pairs = zip(rows["left.x"].to_pylist(), rows["right.rate"].to_pylist(), strict=True)
    return [None if x is None or rate is None else x * rate for x, rate in pairs]


BATCHES: dict[str, list[Any]] = {
    "object": [
        batch(multiplied, returns="double"),
        batch(lambda rows: rows[["right.name"]].rename(columns={"right.name": "name"}), returns={"name": "string"},
              form="pandas"),
    ],
    "string": [batch(lambda rows: rows["right"], returns="string")],
    "long": [batch(lambda rows: rows["right"], returns="long", form="polars")],
}  # fmt: skip


def python_joiner(order: Any, row: Any) -> Any:
    return None if row is None else str(row)


def rates(rng: Random, topic: str, count: int) -> list[Input]:
    """Rows of a table, with deletions."""
    found, time = [], 0
    for offset in range(count):
        time += rng.choice((0, 1, 5, 30))
        row = {"rate": rng.choice((0.5, 2.0, 0.0, None)), "name": rng.choice(("a", "é", None))}
        data = json.dumps(row).encode() if rng.random() < 0.7 else None
        name = rng.choice((b"k", b"j", b"", b"\xc3\xa9", None, b"a", b"B"))
        found.append(Input(topic, 0, offset, max(0, time - rng.choice((0, 0, 2, 25))), name, data))
    return found


def table(rng: Random, builder: StreamsBuilder, orders: KStream[Any, Any]) -> tuple[KTable[Any, Any], str]:
    """A table, and the type of its values."""
    which = rng.randrange(8)
    if which == 0:
        return orders.filter(value.is_null() | (value["n"] != 2)).to_table(), "order"
    if which == 1:
        return orders.group_by_key().count(), "long"
    versions = Materialized.as_(stores.versioned("versions", 20)) if which == 2 else None
    rows = builder.table("t", key_serde="string", value_serde=RATE, materialized=versions)
    if which == 3:
        return rows.filter(value["rate"] > 0.5), "object"
    if which == 4:
        return rows.map_values(value["name"]), "string"
    if which == 5:
        return rows.filter(lambda key, row: row["rate"] != 2, materialized="kept"), "object"
    return rows, "object"


def joined(rng: Random, builder: StreamsBuilder) -> KStream[Any, Any]:
    orders: KStream[Any, Any] = builder.stream("a", key_serde="string", value_serde=ORDER)
    rows, kind = table(rng, builder, orders)
    stream = rng.choice((
        lambda: orders,
        lambda: orders.filter(value["n"] != 1),
        lambda: orders.filter(lambda key, order: order is not None),
        lambda: orders.select_key(value["card"]),
        lambda: orders.map_values(struct(card=value["card"], n=value["n"] + 1, x=value["x"], ok=value["ok"])),
    ))()  # fmt: skip
    left_outer = rng.random() < 0.5
    joiner = right if kind == "order" else rng.choice([*EXPRESSIONS[kind], *BATCHES[kind], python_joiner])
    if rng.random() < 0.25:
        selector = rng.choice((value["card"], key, lambda key, order: order["card"]))
        everywhere = builder.global_table("g", key_serde="string", value_serde=RATE)
        join = stream.left_join if left_outer else stream.join
        return join(everywhere, rng.choice(EXPRESSIONS["object"] + BATCHES["object"]), key_selector=selector)
    grace = 5 if rows.node.is_versioned and rng.random() < 0.3 else None
    result = (stream.left_join if left_outer else stream.join)(rows, joiner, grace=grace)
    if result.value_serde == ORDER and rng.random() < 0.5:
        result.join(rows, left).to("twice")
    return result


def program(rng: Random) -> Application:
    builder = StreamsBuilder()
    result = joined(rng, builder)
    which = rng.randrange(5)
    if which == 0:
        result.group_by_key().count().to_stream().to("counts")
    elif which == 1:
        result.to_table(materialized="results").to_stream().filter(~value.is_null()).to("rows")
    elif which == 2:
        result.filter(lambda key, found: found is not None).to("python")
    result.to("out")
    return builder.build(application_id="app", key_serde="string", value_serde="json")


def test_random_joins_give_what_single_records_give(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "TURNS", 5)
    columns = records = 0
    for seed in range(150):
        rng = Random(seed)
        monkeypatch.setattr(region, "ROWS_MIN", rng.choice((1, 1, 4)))
        app = program(rng)
        told = f"seed {seed}\n{app.explain()}"
        settings = Settings("app", STRING, JSON, HANDLERS, changelog=seed % 2 == 0)
        topics = {topic for source in app.topology.sources.values() for topic in source.topics}
        given = [*inputs(rng, "a", 60, rng.choice((0, 0, 0.02))), *rates(rng, "t", 40), *rates(rng, "g", 30)]
        given = [each for each in given if each.topic in topics]
        rng.shuffle(given)
        given.sort(key=lambda each: each.offset)
        found = compare_lanes(rng, app.topology, settings, given, told)
        columns, records = columns + found[0], records + found[1]
    assert columns > records // 5


def same(builder: StreamsBuilder, given: list[Input]) -> ColumnRunner:
    """Run a program in both lanes and compare."""
    topology = builder.build(application_id="app", key_serde="string", value_serde="string").topology
    settings = Settings("app", STRING, STRING)
    one, many = Runner(topology, settings, drain="batch"), ColumnRunner(topology, settings)
    assert by_topic(many.run(list(given))) == by_topic(one.run(given))
    assert many.state() == one.state()
    return many


def lines(topic: str, count: int, first_ms: int = 0) -> list[Input]:
    return [Input(topic, 0, n, first_ms + n, b"k%d" % (n % 3), b"%d" % n) for n in range(count)]


def test_a_join_with_the_table_that_the_stream_comes_from_sees_each_row_as_it_was() -> None:
    builder = StreamsBuilder()
    counts = builder.stream("a").group_by_key().count(materialized="counts")
    counts.to_stream().join(counts, lambda one, other: f"{one} {other}").to("out")
    same(builder, lines("a", 100))


def test_an_expression_joins_the_rows_of_the_record_itself() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("a")
    stream.join(stream.to_table(), left + right).to("out")
    counts = stream.group_by_key().count()
    counts.to_stream().left_join(counts, left + right).to("sums")
    same(builder, lines("a", 100))


class Seen:
    """Remembers the last value of each key in the store of a table."""

    def init(self, context: Any) -> None:
        self._context, self._store = context, context.get_state_store("t")

    def process(self, record: Any) -> None:
        from ottla.streams import ValueAndTimestamp

        self._store.put(record.key, ValueAndTimestamp(f"{record.value}!", record.timestamp))
        self._context.forward(record)


def test_a_join_reads_what_a_later_processor_writes() -> None:
    builder = StreamsBuilder()
    rows = builder.table("t", materialized="t")
    builder.stream("a").left_join(rows, left + right.otherwise("")).process(Seen, "t").to("out", value_serde="string")
    same(builder, [*lines("t", 60), *lines("a", 100, 1000)])


def test_two_branches_may_read_one_table() -> None:
    builder = StreamsBuilder()
    rows = builder.table("t")
    stream = builder.stream("a")
    stream.join(rows, left + right).to("one")
    stream.left_join(rows, right).to("two")
    assert same(builder, [*lines("t", 60), *lines("a", 200, 1000)]).columns == 400


def test_a_python_joiner_beside_a_table_in_columns() -> None:
    builder = StreamsBuilder()
    builder.stream("a").join(builder.table("t"), lambda one, other: one + other).to("out")
    same(builder, [*lines("t", 60), *lines("a", 200, 1000)])


def test_explain_names_the_lane_of_a_join() -> None:
    builder = StreamsBuilder()
    orders = builder.stream("a", key_serde="string", value_serde=ORDER)
    rows = builder.table("t", key_serde="string", value_serde=RATE, materialized=stores.versioned("v", 50))
    joined = orders.join(rows, left["x"] * right["rate"])
    assert repr(joined.value_serde) == "double"
    joined.filter(value > 1.0).to("out")
    orders.join(rows, left["x"] * right["rate"], grace=5).to("late")
    orders.join(rows, batch(multiplied, returns="double")).to("batches")
    orders.join(rows, lambda order, row: None).to("none")
    orders.join(builder.table("json", value_serde="json"), left["x"] + right["n"]).to("unknown")
    everywhere = builder.global_table("g", key_serde="string", value_serde=RATE)
    orders.join(everywhere, right["name"], key_selector=value["card"]).to("global")
    orders.join(everywhere, right["name"], key_selector=lambda key, order: key).to("selected")
    told = builder.build(application_id="app", key_serde="string").explain()
    for lane in (
        "column: (left.x * right.rate)\n",
        "column: (value > 1.0)\n",
        "column: (left.x * right.rate), for each record, because records wait for the grace period\n",
        "batch: arrow\n",
        "record: a Python call for each record\n",
        "column: (left.x + right.n), for each record, because its input types are not known\n",
        "column: right.name\n",
        "column: right.name, for each record, because key_selector is a Python function\n",
    ):
        assert f"lane  {lane}" in told


def test_the_driver_joins_record_by_record() -> None:
    builder = StreamsBuilder()
    orders = builder.stream("a", key_serde="string", value_serde=ORDER)
    rows = builder.table("t", key_serde="string", value_serde=RATE)
    orders.left_join(rows, struct(x=left["x"] * right["rate"], card=left["card"])).to("out")
    with TestDriver(builder.build(application_id="app")) as driver:
        order = {"card": "c", "n": 1, "x": 2.0, "ok": None}
        driver.input_topic("a").pipe("k", order, 1)
        driver.input_topic("t").pipe("k", {"rate": 1.5, "name": None}, 2)
        driver.input_topic("a").pipe("k", order, 3)
        found = driver.output_topic("out").read_key_values()
    assert found == [("k", {"x": None, "card": "c"}), ("k", {"x": 3.0, "card": "c"})]


def test_wrong_joiners_are_refused_at_the_line_of_the_user() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("a", key_serde="string", value_serde=ORDER)
    rows = builder.table("t", key_serde="string", value_serde=RATE)
    with pytest.raises(TopologyError, match=r"reads value .*a joiner reads key, left, right.*test_join_lanes\.py:\d+"):
        stream.join(rows, value["x"])
    with pytest.raises(TopologyError, match=r"reads timestamp .*a joiner reads key, left, right"):
        stream.join(rows, left["n"] + timestamp)
    with pytest.raises(TopologyError, match=r"reads left .*a step reads key, value, timestamp.*test_join_lanes"):
        stream.filter(left["n"] > 1)
    with pytest.raises(TopologyError, match=r"string and double .*test_join_lanes\.py:\d+"):
        stream.join(rows, left["card"] + right["rate"])
    with pytest.raises(TopologyError, match=r"invalid joiner for KTable\.join: right"):
        rows.join(rows, right)  # type: ignore[arg-type]
    everywhere = builder.global_table("g")
    by_batch: Any = batch(lambda rows: rows["card"], returns="string")
    with pytest.raises(TopologyError, match="invalid key_selector"):
        stream.join(everywhere, right, key_selector=by_batch)
    with pytest.raises(TopologyError, match="reads the timestamp"):
        stream.join(everywhere, right, key_selector=timestamp.cast("string"))
    numbers = builder.table("n", key_serde="long", value_serde="long")
    stream.join(numbers, left["n"] + right)
    with pytest.raises(TopologyError, match=r"keys of the join are of two types: string and long.*test_join_lanes"):
        builder.build()
    other = StreamsBuilder()
    other.stream("a").join(other.table("b"), batch(lambda rows: rows["left"], returns="string")).to("out")
    with pytest.raises(TopologyError, match=r"needs to know the types.*test_join_lanes\.py:\d+"):
        other.build(key_serde="string", value_serde="json")


def test_the_key_of_a_global_table_may_be_a_field() -> None:
    builder = StreamsBuilder()
    everywhere = builder.global_table("g", value_serde=RATE)
    stream = builder.stream("a", value_serde=ORDER)
    stream.left_join(everywhere, right["name"], key_selector=col("card")).to("out", value_serde="string")
    topology = builder.build(application_id="app", key_serde="string").topology
    rng = Random(3)
    given = [*rates(rng, "g", 60), *inputs(rng, "a", 100, 0)]
    settings = Settings("app", STRING, STRING)
    one, many = Runner(topology, settings, drain="batch"), ColumnRunner(topology, settings)
    assert by_topic(many.run(list(given))) == by_topic(one.run(given))
    assert many.columns


def test_records_one_by_one_see_the_rows_that_a_batch_wrote() -> None:
    builder = StreamsBuilder()
    builder.stream("a").join(builder.table("t"), left + right).to("out")
    topology = builder.build(application_id="app", key_serde="string", value_serde="string").topology
    settings = Settings("app", STRING, STRING)
    one, many = Runner(topology, settings, drain="batch"), ColumnRunner(topology, settings)
    for number, size in enumerate((10, 100, 10)):
        rows = [Input("t", 0, n, 1000 * number, b"k%d" % (n % 3), b"%d of %d" % (n, number)) for n in range(size)]
        given = [*rows, *lines("a", 10, 1000 * number + 1)]
        assert by_topic(many.run(list(given))) == by_topic(one.run(given))


def test_a_table_of_many_keys_is_joined_in_columns() -> None:
    builder = StreamsBuilder()
    builder.stream("a").join(builder.table("t"), left + right).to("out")
    rows = [Input("t", 0, n, 0, b"k%d" % n, b"a value of the table") for n in range(3000)]
    stream = [Input("a", 0, n, 1 + n, b"k%d" % (n % 3500), b"v%d" % n) for n in range(7000)]
    assert same(builder, [*rows, *stream]).columns == 6000


def test_joiners_travel_to_workers() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("a", key_serde="string", value_serde=ORDER)
    stream.join(builder.table("t", key_serde="string", value_serde=RATE), left["x"] * right["rate"]).to("out")
    builder.build(application_id="app")
    (node,) = (each for each in builder.plan().nodes if isinstance(each, StreamTableJoin))
    again = pickle.loads(pickle.dumps(node.joiner))
    assert again.inputs == ("string", ORDER.column_type, RATE.column_type)
    assert (again.kind, again("k", {"x": 2.0}, {"rate": 1.5})) == ("double", 3.0)
