"""Values of a table that has no store of its own, as joins read them; stores at their bounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.flow.engine import Settings, Task
from ottla.flow.record import Input
from ottla.flow.serde import LONG, STRING
from ottla.flow.store import key_value, window
from ottla.streams import (
    BufferConfig,
    Handlers,
    JoinWindows,
    KTable,
    Materialized,
    Processor,
    Record,
    SessionWindows,
    StreamsBuilder,
    StreamsError,
    Suppressed,
    TableJoined,
    TestDriver,
    TimeWindows,
    log_and_continue,
    serdes,
    stores,
)

LONG_AGO = BufferConfig.unbounded()
#: `topic key=value@time`; a value `-` is null.
Step = str


def play(builder: StreamsBuilder, steps: str, **options: Any) -> list[str]:
    """The records that come out of each step, as `topic:key=value@time`."""
    driver = TestDriver(builder.build(application_id="app", key_serde="string", value_serde="string", **options))
    found = []
    for step in steps.split():
        topic, key, value, time = step.replace("=", ".").replace("@", ".").split(".")
        driver.pipe(topic, key.encode(), None if value == "-" else value.encode(), int(time))
        out = driver.take_produced().get("out", [])
        found.append(
            " ".join(f"{(o.key or b'').decode()}={(o.value or b'-').decode()}@{o.timestamp}" for o in out) or "."
        )
    return found


def bar(left: Any, right: Any) -> str:
    return f"{left}|{right}"


_Table = Callable[[KTable[Any, Any], KTable[Any, Any]], KTable[Any, Any]]
_VIEWS: dict[str, tuple[_Table, list[str]]] = {
    "source": (lambda t, u: t, ["k=s|a@4", "k=s|b@6", "."]),
    "filter": (lambda t, u: t.filter(lambda key, value: value == "a"), ["k=s|a@4", ".", "."]),
    "filter_not": (lambda t, u: t.filter_not(lambda key, value: value == "a"), [".", "k=s|b@6", "."]),
    "map_values": (lambda t, u: t.map_values(str.upper), ["k=s|A@4", "k=s|B@6", "."]),
    "null of map_values": (lambda t, u: t.map_values(lambda value: None), [".", ".", "."]),
    "two steps": (lambda t, u: t.map_values(str.upper).filter(lambda key, value: value == "B"), [".", "k=s|B@6", "."]),
    "join": (lambda t, u: t.join(u, bar), ["k=s|a|x@4", "k=s|b|x@6", "."]),
    "left join": (lambda t, u: t.left_join(u, bar), ["k=s|a|x@4", "k=s|b|x@6", "."]),
    "left join, other way": (lambda t, u: u.left_join(t, bar), ["k=s|x|a@4", "k=s|x|b@6", "k=s|x|None@8"]),
    "outer join": (lambda t, u: t.outer_join(u, bar), ["k=s|a|x@4", "k=s|b|x@6", "k=s|None|x@8"]),
    "null of a join": (lambda t, u: t.join(u, lambda left, right: None), [".", ".", "."]),
    "suppressed": (lambda t, u: t.suppress(Suppressed.until_time_limit(4, LONG_AGO)), [".", "k=s|b@6", "k=s|b@8"]),
}


@pytest.mark.parametrize("name", _VIEWS)
@pytest.mark.parametrize("stored", [False, True])
def test_a_stream_is_joined_with_what_a_table_shows_now(name: str, stored: bool) -> None:
    """With and without a store of the table's own; at time 5, what was held back for 4 ms is emitted."""
    make, expected = _VIEWS[name]
    builder = StreamsBuilder()
    rows, more = builder.table("rows"), builder.table("more")
    table = make(rows, more)
    if stored:
        if table is rows or name == "suppressed":
            return
        table = table.map_values(lambda value: value, materialized="kept")
    builder.stream("in").join(table, bar).to("out")
    steps = "more.k=x@1 rows.k=a@1 in.k=s@4 rows.k=b@5 in.k=s@6 rows.k=-@7 in.k=s@8"
    found = play(builder, steps)
    assert [found[2], found[4], found[6]] == expected


@pytest.mark.parametrize("windows", [TimeWindows.of(10), SessionWindows.of_inactivity_gap_with_no_grace(5)])
def test_a_stream_is_joined_with_a_windowed_table_by_its_windowed_key(windows: Any) -> None:
    builder = StreamsBuilder()
    counts: Any = builder.stream("in").group_by_key().windowed_by(windows).count()
    counts.to_stream().join(counts, bar).select_key(lambda key, value: f"{key.key}{key.window.start}").to("out")
    found = play(builder, "in.k=v@1 in.k=v@3 in.j=v@3 in.k=v@12")
    assert found[:3] == ["k1=1|1@1" if isinstance(windows, SessionWindows) else "k0=1|1@1",
                         found[1], "j3=1|1@3" if isinstance(windows, SessionWindows) else "j0=1|1@3"]  # fmt: skip
    assert found[1].endswith(("k1=2|2@3", "k0=2|2@3"))
    assert found[3] == ("k12=1|1@12" if isinstance(windows, SessionWindows) else "k10=1|1@12")


@pytest.mark.parametrize("step", ["filter", "map_values", "join"])
def test_a_version_that_is_too_old_for_a_tables_history_is_not_passed_on(step: str) -> None:
    """Kafka Streams: PUT_RETURN_CODE_NOT_PUT. One within the history is passed on, but is not the latest."""
    builder = StreamsBuilder()
    rows = builder.table("rows")
    kept = Materialized.as_(stores.versioned("kept", 10, "string", "string"))
    table: Any = {
        "filter": lambda: rows.filter(lambda key, value: True, materialized=kept),
        "map_values": lambda: rows.map_values(lambda value: value, materialized=kept),
        "join": lambda: rows.left_join(builder.table("more"), lambda left, right: left, materialized=kept),
    }[step]()
    table.to_stream().to("out")
    found = play(builder, "rows.k=a@100 rows.k=b@95 rows.k=c@89 rows.k=d@101")
    assert found == ["k=a@100", "k=b@95", ".", "k=d@101"]


def test_a_join_in_time_sees_the_version_of_that_time() -> None:
    builder = StreamsBuilder()
    rows = builder.table("rows", materialized=Materialized.as_(stores.versioned("v", 100, "string", "string")))
    builder.stream("in").join(rows.filter(lambda key, value: value != "c"), bar).to("out")
    assert play(builder, "rows.k=a@10 rows.k=b@20 rows.k=c@30 in.k=s@15 in.k=s@25 in.k=s@35 in.k=s@5") == [
        *(".", ".", "."),
        *("k=s|a@15", "k=s|b@25", ".", "."),
    ]


def test_a_value_that_a_tables_store_cannot_write_is_an_error_of_its_record() -> None:
    def write(value: str) -> bytes:
        raise ValueError("read only")

    def program() -> StreamsBuilder:
        builder = StreamsBuilder()
        half = serdes.of_functions("half", write, bytes.decode)
        builder.table("rows", materialized=Materialized("s", value_serde=half)).to_stream().to(
            "out", value_serde="string"
        )
        return builder

    with pytest.raises(StreamsError, match=r"the half serde cannot write 'a'.*read only"):
        play(program(), "rows.k=a@1")
    assert play(program(), "rows.k=a@1 rows.k=-@2", handlers=Handlers(processing=log_and_continue)) == [".", "k=-@2"]


# ---- stores that come with a supplier


class Keep(Processor):
    def process(self, record: Record) -> None:
        store = self.context.get_state_store("seen")
        before = store.get(record.key)
        store.put(record.key, record.value)
        self.context.forward(record.with_value(f"{before}>{record.value}"))


class Transform:
    def init(self, context: Any) -> None:
        self.store = context.get_state_store("seen")

    def transform(self, key: Any, value: Any) -> str:
        before = self.store.get(key)
        self.store.put(key, value)
        return f"{before}>{value}"


SEEN = stores.key_value("seen", "string", "string")


class _Supplier:
    """Brings its store along, as a list or as a function."""

    def __init__(self, make: type, *, callable_: bool) -> None:
        self.make = make
        self.stores: Any = (lambda: [SEEN]) if callable_ else [SEEN]

    def __call__(self) -> Any:
        return self.make()


@pytest.mark.parametrize("how", ["declared", "declared by a function", "named"])
@pytest.mark.parametrize("step", ["process", "process_values", "transform_values"])
def test_a_store_comes_with_its_supplier_or_by_its_name(step: str, how: str) -> None:
    builder = StreamsBuilder()
    make: Any = Transform if step == "transform_values" else Keep
    supplier: Any = make if how == "named" else _Supplier(make, callable_=how != "declared")
    named = ("seen",) if how == "named" else ()
    if named:
        builder.add_state_store(SEEN)
    if step == "transform_values":
        builder.table("in").transform_values(supplier, *named).to_stream().to("out")
    else:
        getattr(builder.stream("in"), step)(supplier, *named).to("out")
    assert play(builder, "in.k=a@1 in.k=b@2 in.j=c@3") == ["k=None>a@1", "k=a>b@2", "j=None>c@3"]


def test_partitioners_of_a_join_by_foreign_key_are_asked_without_a_value() -> None:
    asked: list[Any] = []

    def choose(side: str) -> Any:
        def partition(topic: str, key: Any, value: Any, count: int) -> int:
            asked.append((side, topic, key, value))
            return 0

        return partition

    builder = StreamsBuilder()
    options = TableJoined("fk", choose("left"), choose("right"))
    joined = builder.table("left").join(builder.table("right"), bar, foreign_key=str.lower, table_joined=options)
    joined.to_stream().to("out")
    assert play(builder, "right.a=r@1 left.k=A@2") == [".", "k=A|r@2"]
    assert [(side, key, value) for side, _, key, value in asked] == [("right", "a", None), ("left", "k", None)]


@pytest.mark.parametrize("options", [None, TableJoined(), TableJoined("theirs")])
def test_the_name_beside_the_options_of_a_join_by_foreign_key_counts(options: TableJoined | None) -> None:
    builder = StreamsBuilder()
    left, right = builder.table("left"), builder.table("right")
    left.join(right, bar, "mine", foreign_key=str.lower, table_joined=options).to_stream().to("out")
    described = builder.build().describe()
    assert "mine" in described and "theirs" not in described


def test_the_parts_of_a_join_by_foreign_key_are_named_as_by_kafka_streams() -> None:
    builder = StreamsBuilder()
    left, right = builder.table("left", name="l"), builder.table("right", name="r")
    left.join(right, bar, "fk", foreign_key=str.lower)
    topology = builder.build(application_id="app", key_serde="string", value_serde="string").topology
    assert {name.removeprefix("fk-") for name in topology.order if name.startswith("fk")} == {
        *("subscription-registration-processor", "subscription-registration-sink", "subscription-registration-source"),
        *("subscription-receive", "subscription-join-foreign", "foreign-join-subscription"),
        *("subscription-response-sink", "subscription-response-source", "subscription-response-resolver", "result"),
    }
    assert set(topology.internal_topics) == {
        "fk-subscription-registration-topic",
        "fk-subscription-response-topic",
    }
    assert "fk-subscription-store" in topology.stores


# ---- stores at their bounds


@pytest.mark.parametrize("windowed", [False, True])
def test_keys_that_cannot_be_cached_are_counted_all_the_same(windowed: bool) -> None:
    builder = StreamsBuilder()
    grouped: Any = builder.stream("in").group_by(lambda key, value: value)
    grouped = grouped.windowed_by(TimeWindows.of(10)) if windowed else grouped
    counts = grouped.count(materialized="c")
    counts.to_stream(lambda key, value: str(key.key if windowed else key)).to(
        "out", key_serde="string", value_serde="long"
    )
    driver = TestDriver(builder.build(key_serde="json", value_serde="json"))
    topic = driver.input_topic("in")
    topic.pipe_all([("k", [1]), ("k", [2]), ("k", [1])])
    out = driver.output_topic("out", key_serde="string", value_serde="long")
    assert out.read_key_values() == [("[1]", 1), ("[2]", 1), ("[1]", 2)]
    store = driver.state_store("c")
    assert (store.fetch_one([1], 0) if windowed else store.get([1]))[0] == 2


@pytest.mark.parametrize("windowed", [False, True])
def test_a_cache_that_is_full_begins_again_and_loses_nothing(windowed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (key_value, window):
        monkeypatch.setattr(module, "CACHED_MAX", 3)
    builder = StreamsBuilder()
    grouped = builder.stream("in").group_by_key()
    counts: Any = grouped.windowed_by(TimeWindows.of(10)).count("c") if windowed else grouped.count("c")
    counts.to_stream(lambda key, value: key.key if windowed else key).map_values(str).to("out")
    keys = "abcdefaabbccddeeff"
    found = play(builder, " ".join(f"in.{key}=v@1" for key in keys))
    assert found == [f"{key}={keys[: at + 1].count(key)}@1" for at, key in enumerate(keys)]


def test_a_store_of_recently_used_keys_forgets_the_others() -> None:
    class Use(Processor):
        def process(self, record: Record) -> None:
            store = self.context.get_state_store("lru")
            if record.value == "get":
                store.get(record.key)
            else:
                store.put(record.key, record.value)
            self.context.forward(record.with_value("".join(key for key, _ in store.all())))

    builder = StreamsBuilder()
    builder.add_state_store(stores.lru_map("lru", 2, "string", "string"))
    builder.stream("in").process(Use, "lru").to("out")
    steps = "in.a=1@1 in.b=1@1 in.a=get@1 in.c=1@1 in.c=-@1 in.z=-@1 in.d=1@1 in.a=2@1 in.e=1@1"
    assert [each.partition("=")[2].removesuffix("@1") for each in play(builder, steps)] == [
        *("a", "ab", "ab", "ac", "a", "a", "ad", "ad", "ae"),
    ]


def test_sessions_that_close_are_emitted_once_as_time_goes_on() -> None:
    from ottla.streams import EmitStrategy
    from tests.streams.program import UNTHROTTLED

    builder = StreamsBuilder()
    sessions = builder.stream("in").group_by_key().windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(5))
    counts: Any = sessions.emit_strategy(EmitStrategy.on_window_close()).count()
    counts.to_stream(lambda key, value: f"{key.key}{key.window.start}").map_values(str).to("out")
    steps = "in.k=v@1 in.k=v@4 in.j=v@4 in.k=v@10 in.k=v@10 in.k=v@11 in.k=v@30"
    assert play(builder, steps, config=UNTHROTTLED) == [
        *(".", ".", ".", "k1=2@4 j4=1@4", ".", "."),
        "k10=3@11",
    ]


def test_a_join_of_streams_is_told_apart_from_another_by_its_serdes() -> None:
    from ottla.flow.make_store import Sides

    same, other = Sides(STRING, LONG), Sides(STRING, LONG)
    assert same == other and hash(same) == hash(other) and same != Sides(LONG, STRING) and same != STRING
    builder = StreamsBuilder()
    windows = JoinWindows.of_time_difference_with_no_grace(10)
    builder.stream("a").left_join(builder.stream("b"), bar, windows).to("out")
    app = builder.build(key_serde="string", value_serde="string")
    task = Task(app.topology, 0, 0, Settings("app", STRING, STRING))
    assert [o.value for o in task.run([Input("a", 0, 0, 1, b"k", b"v"), Input("b", 0, 0, 2, b"k", b"w")])] == [b"v|w"]
