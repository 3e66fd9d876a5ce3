"""Joins of two streams give in columns what they give record by record, however the input is cut."""

import gc
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from ottla.flow.engine import Settings
from ottla.flow.error import TopologyError
from ottla.flow.handler import Handlers, log_and_continue
from ottla.flow.record import TIME_MAX, Input
from ottla.flow.runner import Runner
from ottla.flow.serde import JSON, STRING
from ottla.flow.task import waiting
from ottla.flow.vector import meet, region
from ottla.flow.vector.step import RegionRun
from ottla.streams import (
    JoinWindows,
    KStream,
    StreamsBuilder,
    TestDriver,
    batch,
    key,
    left,
    lit,
    right,
    struct,
    value,
)
from ottla.streams.application import Application
from tests.flow.columns import ColumnRunner, by_topic, compare_lanes
from tests.flow.test_lanes import ORDER, inputs

HANDLERS = Handlers(log_and_continue, log_and_continue, log_and_continue, dead_letter_topic="dead")


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also few records go as columns."""
    monkeypatch.setattr(meet, "ROWS_MIN", 1)


def multiplied(rows: Any) -> list[float | None]:
    pairs = zip(rows["left.x"].to_pylist(), rows["right.x"].to_pylist(), strict=True)
    return [None if x is None or y is None else x * y for x, y in pairs]


#: Joiners of two orders; those of `SAME` give orders.
SAME = [
    left,
    right,
    struct(card=left["card"] + right["card"], n=left["n"].otherwise(7), x=left["x"] * right["x"], ok=right["ok"]),
]
JOINERS: list[Any] = [
    *SAME,
    left["x"] / right["n"],
    left["card"].otherwise("left") + key.otherwise("none") + right["card"].otherwise("right"),
    right["n"] * lit(1 << 62),
    batch(multiplied, returns="double"),
    batch(lambda rows: rows[["left.card"]].rename(columns={"left.card": "card"}), returns={"card": "string"},
          form="pandas"),
    lambda one, other: str(one)[:9] + str(other),
]  # fmt: skip


def windows(rng: Random) -> JoinWindows:
    difference, grace = rng.choice((0, 3, 12, 40)), rng.choice((None, 0, 6))
    if grace is None:
        made = JoinWindows.of_time_difference_with_no_grace(difference)
    else:
        made = JoinWindows.of_time_difference_and_grace(difference, grace)
    if rng.random() < 0.2:
        made = made.after(rng.choice((0, 5, 20, -min(3, difference))))
    return made.before(max(rng.choice((0, 5, -2)), -made.after_ms)) if rng.random() < 0.2 else made


def prepared(rng: Random, stream: KStream[Any, Any]) -> KStream[Any, Any]:
    which = rng.randrange(9)
    if which == 0:
        return stream.filter(value["n"] != 1)
    if which == 1:
        return stream.select_key(value["card"])
    if which == 2:
        return stream.map_values(struct(card=value["card"], n=value["n"] + 1, x=0 - value["x"], ok=value["ok"]))
    if which == 3:
        return stream.filter(lambda key, order: order is not None)
    return stream


def join(rng: Random, one: KStream[Any, Any], other: KStream[Any, Any], joiner: Any) -> KStream[Any, Any]:
    call = rng.choice((one.join, one.left_join, one.outer_join))
    return call(other, joiner, windows(rng))


def program(rng: Random) -> Application:
    builder = StreamsBuilder()
    a, b, c = (builder.stream(topic, key_serde="string", value_serde=ORDER) for topic in "abc")
    one, other = prepared(rng, a), prepared(rng, b)
    if rng.random() < 0.1:
        one = a.left_join(builder.table("t", key_serde="string", value_serde=ORDER), left)
    if rng.random() < 0.1:
        other = other.merge(c)
    which = rng.randrange(8)
    if which == 0:
        joined = join(rng, join(rng, one, other, rng.choice(SAME)), prepared(rng, c), rng.choice(JOINERS))
    elif which == 1:
        joined = join(rng, one, one.filter(value["n"] > 0), rng.choice(JOINERS))
    else:
        joined = join(rng, one, other, rng.choice(JOINERS))
    end = rng.randrange(6)
    if end == 0:
        joined.group_by_key().count().to_stream().to("counts")
    elif end == 1:
        joined.filter(lambda key, found: found is not None).to("python")
    elif end == 2:
        a.map_values(value["n"]).to(rng.choice(("numbers", "out")), value_serde="long")
    elif end == 3:
        b.group_by_key().count(materialized="seen").to_stream().to("seen")
    joined.to("out")
    return builder.build(application_id="app", key_serde="string", value_serde="json")


def interleaved(rng: Random, app: Application, count: int, bad: float) -> list[Input]:
    topics = {topic for source in app.topology.sources.values() for topic in source.topics}
    given = [each for topic in "abct" if topic in topics for each in inputs(rng, topic, count, bad)]
    rng.shuffle(given)
    return sorted(given, key=lambda each: each.offset)


@pytest.mark.parametrize("first", [0, 30, 60])
def test_random_joins_give_what_single_records_give(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "TURNS", 5)
    columns = records = 0
    for seed in range(first, first + 30):
        rng = Random(seed)
        rows_min = rng.choice((1, 1, 4))
        monkeypatch.setattr(region, "ROWS_MIN", rows_min)
        monkeypatch.setattr(meet, "ROWS_MIN", rows_min)
        app = program(rng)
        told = f"seed {seed}\n{app.explain()}"
        settings = Settings("app", STRING, JSON, HANDLERS, changelog=seed % 2 == 0)
        given = interleaved(rng, app, 60, rng.choice((0, 0, 0.02)))
        found = compare_lanes(rng, app.topology, settings, given, told)
        columns, records = columns + found[0], records + found[1]
    assert columns > records // 8


def both(count: int, step_ms: int = 10, keys: int = 7) -> list[Input]:
    """Records of two topics that alternate."""
    given = [
        Input(topic, 0, n, step_ms * n + at, b"k%d" % (n % keys), b"%s%d" % (topic.encode(), n))
        for at, topic in enumerate("ab")
        for n in range(count)
    ]
    return sorted(given, key=lambda each: each.timestamp)


def same(builder: StreamsBuilder, *batches: list[Input]) -> ColumnRunner:
    """Run a program in both lanes and compare."""
    topology = builder.build(application_id="app", key_serde="string", value_serde="string").topology
    settings = Settings("app", STRING, STRING)
    one, many = Runner(topology, settings, drain="batch"), ColumnRunner(topology, settings)
    for number, given in enumerate(batches):
        now = 2000 * number
        assert by_topic(many.run(list(given), now)) == by_topic(one.run(list(given), now))
        assert many.state() == one.state()
    return many


TEN = JoinWindows.of_time_difference_with_no_grace(timedelta(milliseconds=10))


def test_streams_that_alternate_are_joined_in_columns() -> None:
    builder = StreamsBuilder()
    builder.stream("a").join(builder.stream("b"), left + right, TEN).to("out")
    found = same(builder, both(300), [each for each in both(600) if each.timestamp >= 3000])
    # The last record of a batch goes alone, after the other partition has no more.
    assert found.columns == 598
    assert not found.failed


def test_no_batch_waits_for_the_garbage_collector() -> None:
    builder = StreamsBuilder()
    builder.stream("a").left_join(builder.stream("b"), left + right.otherwise(""), TEN).to("out")
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        assert same(builder, both(300)).columns > 250
        gc.collect()
        assert not [each for each in gc.garbage if isinstance(each, RegionRun)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def test_three_streams_and_a_table_are_joined_in_columns() -> None:
    builder = StreamsBuilder()
    a, b, c = (builder.stream(topic) for topic in "abc")
    rows = builder.table("t")
    twice = a.left_join(rows, left + right.otherwise("")).join(b, left + right, TEN).left_join(c, left, TEN)
    twice.to("out")
    given = both(200)
    third = [each._replace(topic="c") for each in given if each.topic == "b"]
    table = [Input("t", 0, n, 900 * n, b"k%d" % n, b"row") for n in range(3)]
    found = same(builder, sorted([*given, *third, *table], key=lambda each: each.timestamp))
    assert found.columns > 150


def test_the_next_search_for_closed_windows_is_due_as_with_single_records() -> None:
    """Both searches stop once they have passed an open window of each side; the next one is due by where they stop."""
    builder = StreamsBuilder()
    builder.stream("a").outer_join(builder.stream("b"), left.otherwise("-") + right.otherwise("+"), TEN).to("out")
    first = [("a", 95), ("b", 96), ("a", 100), ("b", 104), ("a", 105)]
    times = [first, [("a", 106), ("b", 106)], [("a", 115), ("b", 115)]]
    given = [[Input(topic, 0, at, at, topic.encode() + b"%d" % at, b"v") for topic, at in some] for some in times]
    found = same(builder, *given)
    assert found.columns > 0


def test_a_candidate_that_has_got_its_match_in_the_batch_does_not_expire() -> None:
    builder = StreamsBuilder()
    builder.stream("a").outer_join(builder.stream("b"), left.otherwise("-") + right.otherwise("+"), TEN).to("out")
    waits = [Input("ab"[n], 0, 0, 0, b"left %d" % n, b"v") for n in (0, 1)]
    matched = [Input("ab"[n], 0, 1, 1 + n, b"k", b"v") for n in (0, 1)]
    later = [each._replace(offset=each.offset + 2, timestamp=each.timestamp + 50) for each in both(300)]
    assert same(builder, waits, [*matched, *later]).columns > 250


def test_candidates_expire_in_the_order_of_single_records() -> None:
    builder = StreamsBuilder()
    builder.stream("a").outer_join(builder.stream("b"), left.otherwise("-") + right.otherwise("+"), TEN).to("out")
    given = both(400, step_ms=7, keys=3)
    lonely = [each._replace(key=b"%s%d" % (each.topic.encode(), each.offset % 5)) for each in given[::3]]
    given = sorted([*given, *lonely], key=lambda each: each.timestamp)
    for number in range(len(given)):
        given[number] = given[number]._replace(offset=number)
    found = same(builder, given[:300], given[300:700], given[700:], both(50, step_ms=9000))
    assert found.columns > 600


@pytest.mark.parametrize("before", [10, -8])
@pytest.mark.parametrize("last", [TIME_MAX, TIME_MAX - 5, 1 << 62])
def test_windows_that_end_beyond_the_last_time_are_joined_as_single_records_are(last: int, before: int) -> None:
    builder = StreamsBuilder()
    windows = JoinWindows.of_time_difference_and_grace(10, 3).before(before)
    builder.stream("a").left_join(builder.stream("b"), left + right.otherwise("-"), windows).to("out")
    times = (1, 2, 3, last - 3, last - 3, last, last, last - 1, last)
    given = [Input("ab"[n % 2], 0, n // 2, time, b"k", b"%d" % n) for n, time in enumerate(times)]
    same(builder, given)
    same(builder, given[:3], given[3:])


def test_a_record_that_fails_is_found_among_the_joined() -> None:
    builder = StreamsBuilder()
    longs = [builder.stream(topic).map_values(value.substring(1, 9).cast("long")) for topic in "ab"]
    longs[0].join(longs[1], left * right * lit(1 << 50), TEN).to("out", value_serde="long")
    topology = builder.build(application_id="app", key_serde="string", value_serde="string").topology
    settings = Settings("app", STRING, STRING, HANDLERS)
    one, many = Runner(topology, settings, drain="batch"), ColumnRunner(topology, settings)
    expected, found = by_topic(one.run(both(200))), by_topic(many.run(both(200)))
    assert found == expected
    assert (many.failed, len(expected["out"]) + len(expected["dead"])) == (1, 200)
    assert many.state() == one.state()


def test_a_join_of_a_stream_with_itself_goes_record_by_record() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("a")
    stream.join(stream.filter(value.length() > 2), left + right, TEN).to("out")
    assert not same(builder, [each for each in both(300) if each.topic == "a"]).columns


def test_explain_names_the_lane_of_a_join() -> None:
    builder = StreamsBuilder()
    one, other = (builder.stream(topic, key_serde="string", value_serde=ORDER) for topic in "ab")
    joined = one.join(other, left["x"] * right["x"], TEN)
    assert repr(joined.value_serde) == "double"
    joined.filter(value > 1.0).to("out")
    one.left_join(other, batch(multiplied, returns="double"), TEN).to("batches")
    one.outer_join(other, lambda left, right: None, TEN).to("none")
    one.join(one, left["n"] + right["n"], TEN).to("self")
    one.join(builder.stream("json", value_serde="json"), left["x"] + right["n"], TEN).to("unknown")
    told = builder.build(application_id="app", key_serde="string").explain()
    for lane in (
        "column: (left.x * right.x)\n",
        "column: (value > 1.0)\n",
        "batch: arrow\n",
        "record: a Python call for each record\n",
        "column: (left.n + right.n), for each record, because both sides come from one stream\n",
        "column: (left.x + right.n), for each record, because its input types are not known\n",
    ):
        assert f"lane  {lane}" in told


def test_the_driver_joins_record_by_record() -> None:
    builder = StreamsBuilder()
    one, other = (builder.stream(topic, key_serde="string", value_serde=ORDER) for topic in "ab")
    one.outer_join(other, left["card"].otherwise("-") + right["card"].otherwise("+"), TEN).to("out")
    order = {"card": "c", "n": 1, "x": 2.0, "ok": None}
    with TestDriver(builder.build(application_id="app")) as driver:
        driver.input_topic("a").pipe("k", order, 1)
        driver.input_topic("b").pipe("k", order, 3)
        driver.input_topic("b").pipe(None, order, 4)
        found = driver.output_topic("out").read_key_values()
    assert found == [("k", "cc"), (None, "-c")]


def test_wrong_joiners_are_refused_at_the_line_of_the_user() -> None:
    builder = StreamsBuilder()
    one = builder.stream("a", key_serde="string", value_serde=ORDER)
    other = builder.stream("b", key_serde="string", value_serde="long")
    with pytest.raises(TopologyError, match=r"reads value .*a joiner reads key, left, right"):
        one.join(other, value["x"], TEN)
    with pytest.raises(TopologyError, match=r"object and long .*test_stream_join_lanes\.py:\d+"):
        one.join(other, left + right, TEN)
    one.join(builder.stream("c", key_serde="long", value_serde="long"), left["n"] + right, TEN)
    with pytest.raises(TopologyError, match=r"keys of the join are of two types: string and long.*test_stream_join"):
        builder.build()
