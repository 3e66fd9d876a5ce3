"""Aggregates of tables give in columns what they give record by record, however the input is cut."""

import json
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.flow.engine import Settings
from ottla.flow.error import TopologyError
from ottla.flow.handler import Handlers, log_and_continue
from ottla.flow.operator.table_aggregate import ChangeSerde
from ottla.flow.record import Change, Input
from ottla.flow.runner import Runner
from ottla.flow.serde import DOUBLE, JSON, LONG, STRING
from ottla.flow.vector import region
from ottla.flow.vector.change import decode_changes, encode_changes
from ottla.streams import (
    KTable,
    Materialized,
    StreamsBuilder,
    key,
    left,
    lit,
    right,
    serdes,
    stores,
    struct,
    timestamp,
    value,
)
from ottla.streams.application import Application
from tests.flow.columns import ColumnRunner, by_topic, compare_lanes, newest

ROW = serdes.columns(card="string", n="long", x="double")
HANDLERS = Handlers(log_and_continue, log_and_continue, log_and_continue, dead_letter_topic="dead")
KEYS = [value["card"], value["n"].cast("string"), key, key + value["card"].otherwise("?"), lit("all"), value["n"]]
VALUES = [value, value["n"], value["x"] / value["n"], struct(card=key, n=value["n"], x=lit(1.0))]


def rows(rng: Random, topic: str, count: int, bad: float) -> list[Input]:
    found, time = [], 0
    for offset in range(count):
        time += rng.choice((0, 1, 5, 30))
        row = {"card": rng.choice(("a", "é", None)), "n": rng.choice((0, 1, 2, None)), "x": rng.choice((0.5, 2.0))}
        data = json.dumps(row).encode() if rng.random() < 0.75 else None
        if rng.random() < bad:
            data = b"["
        headers = (("h", b"1"),) if rng.random() < 0.1 else ()
        name = rng.choice((b"k", b"j", b"", b"\xc3\xa9", None, b"a"))
        found.append(Input(topic, 0, offset, max(0, time - rng.choice((0, 0, 2, 25))), name, data, headers))
    return found


def derived(rng: Random, table: KTable[Any, Any], store: str) -> KTable[Any, Any]:
    which = rng.randrange(7)
    kept = store if rng.random() < 0.3 else None
    if which == 0:
        return table.filter(value["n"] > 0, materialized=kept)
    if which == 1:
        return table.filter_not(value["card"].is_null(), materialized=kept)
    if which == 2:
        stored = kept and Materialized(kept, value_serde=ROW)
        return table.map_values(struct(card=key, n=value["n"] + 1, x=value["x"]), materialized=stored)
    if which == 3:
        return table.filter(lambda key, row: row["n"] != 1)
    return table


def summed(row: Any) -> Any:
    """The expressions of a sum and a count in one object."""
    return struct(card=key, n=left["n"] + row["n"].otherwise(1), x=left["x"] + row["x"])


def no_rows() -> dict[str, Any]:
    return {"card": "", "n": 0, "x": -0.0}


def folded(rng: Random, table: KTable[Any, Any]) -> KTable[Any, Any]:
    """An aggregate by expressions."""
    name = rng.choice(KEYS[:5])
    amount = rng.choice((value["n"], value["n"] * lit(1 << 61)))
    which = rng.randrange(6)
    if which == 0:
        return table.group_by((name, amount)).reduce(left + right, left - right)
    if which == 1:
        return table.group_by((name, value["x"] / value["n"])).reduce(left + right, left - right, materialized="sums")
    longs = Materialized("longs", value_serde="long")
    if which == 2:
        first = rng.choice((0, 5))
        return table.group_by((name, amount)).aggregate(lambda: first, left + right, left - right, materialized=longs)
    if which == 3:
        changed = left + right["n"] + 1, left - right["n"].otherwise(3)
        return table.group_by((name, value)).aggregate(lambda: 1, *changed, materialized=longs)
    if which == 4:
        doubles = Materialized("doubles", value_serde="double")
        changed = left + right["n"] * right["x"], left - right["x"]
        return table.group_by((name, value)).aggregate(lambda: 0.5, *changed, materialized=doubles)
    objects = Materialized("objects", value_serde=ROW)
    taken = struct(card=left["card"], n=left["n"] - right["n"].otherwise(1), x=left["x"] - right["x"])
    return table.group_by((name, value)).aggregate(no_rows, summed(right), taken, materialized=objects)


def program(rng: Random) -> Application:
    builder = StreamsBuilder()
    if rng.random() < 0.3:
        table = builder.stream("t", key_serde="string", value_serde=ROW).filter(value.is_null() | lit(True)).to_table()
    else:
        versions = Materialized.as_(stores.versioned("versions", 20)) if rng.random() < 0.15 else None
        table = builder.table("t", key_serde="string", value_serde=ROW, materialized=versions)
    final = derived(rng, derived(rng, table, "kept"), "kept-again") if rng.random() < 0.7 else table
    if rng.random() < 0.2:
        table.to_stream().to("rows")
    if rng.random() < 0.3:
        final.to_stream().to("final")
    groups = final.group_by((rng.choice(KEYS), rng.choice(VALUES)))
    which = rng.randrange(7)
    if which > 3:
        added = folded(rng, final)
    elif which == 0:
        added = groups.aggregate(
            list, lambda key, row, seen: [*seen, row], lambda key, row, seen: seen[1:], materialized="listed"
        )
    else:
        added = groups.count(materialized="counts" if rng.random() < 0.5 else None)
    if which == 1:
        added.filter(value > 1).to_stream().to("large")
    elif which == 2:
        added.to_stream().map_values(value * 2).to("doubled")
        added.to_stream().to("again")
    else:
        added.to_stream().to("out")
    return builder.build(application_id="app", key_serde="string", value_serde="json")


def test_random_tables_give_what_single_records_give(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(region, "ROWS_MIN", 1)
    columns = records = 0
    for seed in range(120):
        rng = Random(seed)
        app = program(rng)
        told = f"seed {seed}\n{app.explain()}"
        settings = Settings("app", STRING, JSON, HANDLERS, changelog=seed % 2 == 0)
        given_ = rows(rng, "t", 80, rng.choice((0, 0, 0.02)))
        found = compare_lanes(rng, app.topology, settings, given_, told)
        columns, records = columns + found[0], records + found[1]
    assert columns > records // 4


TEXT = st.one_of(st.none(), st.text(max_size=3), st.sampled_from(["x" * 63, "x" * 64, "x" * 9000]))


@given(st.lists(st.tuples(TEXT, TEXT).filter(lambda pair: pair != (None, None)), max_size=12))
def test_changes_in_columns_have_the_bytes_of_single_ones(pairs: list[tuple[str | None, str | None]]) -> None:
    import pyarrow as pa

    from ottla.flow.vector.evaluate import Changes

    serde = ChangeSerde(STRING)
    written = [serde.serialize("t", Change(*pair)) for pair in pairs]
    changes = Changes(*(pa.array([pair[side] for pair in pairs], pa.string()) for side in (0, 1)))
    assert encode_changes(STRING, changes).to_pylist() == written
    found = decode_changes(STRING, pa.array([b"?", *written], pa.binary()).slice(1))
    assert list(zip(found.new.to_pylist(), found.old.to_pylist(), strict=True)) == pairs


@given(st.binary(max_size=6))
def test_a_change_that_cannot_be_read_is_left_to_single_records(data: bytes) -> None:
    import pyarrow as pa

    try:
        found = decode_changes(STRING, pa.array([data], pa.binary()))
    except ValueError:
        return
    read = ChangeSerde(STRING).deserialize("t", data)
    assert (found.new[0].as_py(), found.old[0].as_py()) == (read.new, read.old)


def test_a_group_that_never_had_a_row_gets_a_tombstone() -> None:
    """Removals of a group that is not there leave it so, and the first row counts as 1."""
    builder = StreamsBuilder()
    builder.table("t", key_serde="string", value_serde="string").group_by((value, value)).count().to_stream().to("out")
    topology = builder.build(application_id="app").topology
    second = next(stage for stage in topology.subtopologies() if "KSTREAM-SOURCE" in stage.nodes[0] and stage.number)
    (source,) = (topology.sources[name] for name in second.nodes if name in topology.sources)
    topic = topology.topic(source.topics[0], "app")
    changes = [Change(None, "a"), Change(None, "a"), Change("a", "a"), Change("a", None), Change(None, "a")] * 20
    serde = ChangeSerde(STRING)
    given = [
        Input(topic, 0, n, (7 * n) % 50, b"g%d" % (n % 7), serde.serialize(topic, change))
        for n, change in enumerate(changes)
    ]
    settings = Settings("app", changelog=True)
    one, many = Runner(topology, settings, drain="batch"), ColumnRunner(topology, settings)
    expected, found = by_topic(one.run(list(given))), by_topic(many.run(given))
    assert newest(found) == newest(expected)
    assert found == expected
    assert many.state() == one.state()
    assert many.columns == 100


@pytest.mark.parametrize("kind", ["long", "double", "object"])
@pytest.mark.parametrize("first", [None, 3])
def test_sums_of_a_table_are_computed_in_columns(kind: str, first: int | None) -> None:
    """Changes of groups that are there or not, at times that go back, and with sums that overflow on the way."""
    builder = StreamsBuilder()
    serde = {"long": LONG, "double": DOUBLE, "object": serdes.columns(n="long")}[kind]
    groups = builder.table("t", key_serde="string", value_serde=serde).group_by((key, value))
    one: Any = {"long": lambda n: n, "double": float, "object": lambda n: {"n": n}}[kind]
    plus, minus = (
        (left + right, left - right) if kind != "object" else (struct(n=left["n"] + right["n"]), struct(n=left["n"]))
    )
    if first is None:
        groups.reduce(plus, minus).to_stream().to("out")
    else:
        start = one(first)
        sums = groups.aggregate(lambda: start, plus, minus, materialized=Materialized("sums", value_serde=serde))
        sums.to_stream().to("out")
    topology = builder.build(application_id="app").topology
    topic = topology.topic(next(iter(topology.internal_topics)), "app")
    change_serde, rng = ChangeSerde(serde), Random(4)
    given = []
    for n in range(300):
        new, old = (one(rng.choice((-5, 0, 7, 1 << 61))) if rng.random() < 0.7 else None for _ in range(2))
        change = Change(one(1) if new is None and old is None else new, old)
        name = b"g%d" % rng.randrange(9)
        given.append(Input(topic, 0, n, (7 * n) % 50, name, change_serde.serialize(topic, change)))
    settings = Settings("app", handlers=HANDLERS, changelog=True)
    one_by_one, many = Runner(topology, settings, drain="batch"), ColumnRunner(topology, settings)
    for at in (0, 60, 150):
        some = given[at : at + 90] if at else given[:60]
        expected, found = by_topic(one_by_one.run(list(some))), by_topic(many.run(list(some)))
        assert newest(found) == newest(expected)
        assert found == expected
        assert many.state() == one_by_one.state()
    assert many.columns


def test_an_old_value_is_the_one_in_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """JSON has no negative zero, so a row that is replaced in its own batch has lost its sign."""
    monkeypatch.setattr(region, "ROWS_MIN", 1)
    builder = StreamsBuilder()
    stream = builder.stream("t", key_serde="string", value_serde=serdes.columns(x="double"))
    table = stream.map_values(struct(x=value["x"] * -1.0)).to_table()
    table.group_by((key, value["x"])).reduce(left + right, left - right).to_stream().to("out")
    topology = builder.build(application_id="app").topology
    given = [Input("t", 0, n, n, b"k", b'{"x": 0.0}') for n in range(4)]
    settings = Settings("app")
    one, many = Runner(topology, settings, drain="batch"), ColumnRunner(topology, settings)
    assert by_topic(many.run(list(given))) == by_topic(one.run(given))
    assert many.columns == 8


def test_a_count_of_a_table_is_joined_in_columns() -> None:
    builder = StreamsBuilder()
    counts = builder.table("t", key_serde="string", value_serde="string").group_by((value, value)).count()
    builder.stream("a", key_serde="string", value_serde="string").left_join(counts, left + right.cast("string")).to(
        "out", value_serde="string"
    )
    topology = builder.build(application_id="app").topology
    table = [Input("t", 0, n, 0, b"k%d" % (n % 9), b"g%d" % (n % 4)) for n in range(100)]
    stream = [Input("a", 0, n, 10 + n, b"g%d" % (n % 5), b"v%d" % n) for n in range(100)]
    settings = Settings("app")
    one, many = Runner(topology, settings, drain="batch"), ColumnRunner(topology, settings)
    for records in (table, stream):
        assert by_topic(many.run(list(records))) == by_topic(one.run(records))
    assert many.columns > 200


def test_explain_names_the_lane_of_a_group_by() -> None:
    builder = StreamsBuilder()
    table = builder.table("t", key_serde="string", value_serde=ROW)
    table.filter(value["n"] > 1).group_by((value["card"], value)).count().to_stream().to("out")
    table.map_values(lambda row: row).group_by((key, value)).count().to_stream().to("two")
    table.group_by(lambda key, row: (key, row)).count().to_stream().to("three")
    rows_by_card = table.group_by((value["card"], value["n"]))
    rows_by_card.reduce(left + right, left - right).to_stream().to("sums")
    rows_by_card.aggregate(lambda: 0, left + right, left - right).to_stream().to("json")
    told = builder.build(application_id="app", key_serde="string", value_serde="json").explain()
    for lane in (
        "column: (left + right), (left - right)\n",
        "column: (left + right), (left - right), for each record, because its input types are not known\n",
        "column: (value.n > 1)\n",
        "column: value.card, value\n",
        "column: key, value, for each record, because its input types are not known\n",
        "record: a Python call for each record\n",
    ):
        assert f"lane  {lane}" in told


def test_wrong_pairs_are_refused_at_the_line_of_the_user() -> None:
    table = StreamsBuilder().table("t", key_serde="string", value_serde=ROW)
    for wrong in ((key,), (key, "n"), ()):
        with pytest.raises(TopologyError, match=r"invalid selector .*column expression\)\) .*test_table_lanes\.py:\d+"):
            table.group_by(wrong)  # type: ignore[arg-type]
    groups = table.group_by((value["card"], value))
    with pytest.raises(TopologyError, match="two column expressions or two functions"):
        groups.reduce(left, lambda one, other: one)
    with pytest.raises(TopologyError, match=r"reads value .*an adder or subtractor reads key, left, right"):
        groups.reduce(left, value)
    with pytest.raises(TopologyError, match="reads the timestamp"):
        table.group_by((timestamp.cast("string"), value))
    with pytest.raises(TopologyError, match=r"string and long.*test_table_lanes\.py:\d+"):
        table.group_by((value["card"] + value["n"], value))


def test_an_aggregate_of_another_type_than_its_store_is_refused() -> None:
    builder = StreamsBuilder()
    groups = builder.table("t", key_serde="string", value_serde=ROW).group_by((value["card"], value["x"]))
    longs = Materialized("longs", value_serde="long")
    groups.aggregate(lambda: 0, left + right, left - right, materialized=longs)
    with pytest.raises(TopologyError, match=r"is a double \(expected a long\).*test_table_lanes\.py:\d+"):
        builder.build()
