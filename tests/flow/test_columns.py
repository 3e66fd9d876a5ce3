"""Records that come as columns give what the same records give one by one."""

import pickle
import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.flow.engine import Settings, State, Task
from ottla.flow.error import StreamsError
from ottla.flow.handler import Handlers, log_and_continue
from ottla.flow.record import Input
from ottla.flow.runner import Runner
from ottla.flow.serde import _NAMED, STRING
from ottla.streams import StreamsBuilder, serdes, value
from ottla.streams.grouped import BuiltInReducer
from tests.flow.columns import ColumnRunner, batch, by_topic
from tests.flow.test_task import records, settings
from tests.streams.generate import program
from tests.streams.program import build


@pytest.mark.parametrize("cut", [1, 7, 1000])
@pytest.mark.parametrize("size", [7, 60])
def test_random_programs_give_the_same(size: int, cut: int) -> None:
    for seed in range(60):
        statements, steps = program(seed)
        topology = build(statements).topology
        given_ = records(steps)
        one, many = Runner(topology, settings(), drain="batch"), ColumnRunner(topology, settings())
        many.cut = cut
        for at in range(0, len(given_), size):
            expected = one.run(given_[at : at + size])
            assert many.run(given_[at : at + size]) == expected, f"seed {seed}"
        assert many.state() == one.state(), f"seed {seed}"


TEXT = st.sampled_from([b"a", b"b", b"bb", b"bad", b"\xff", None])


@given(
    st.lists(st.tuples(TEXT, TEXT, st.integers(-1, 20)), max_size=30),
    st.lists(st.tuples(TEXT, TEXT, st.integers(-1, 20)), max_size=10),
    st.integers(1, 9),
)
def test_errors_and_dead_letters_are_the_same(
    stream: list[tuple[bytes | None, bytes | None, int]],
    table: list[tuple[bytes | None, bytes | None, int]],
    cut: int,
) -> None:
    """Bytes that cannot be read, functions that fail, records without a time, handlers that go on."""
    builder = StreamsBuilder()

    def picky(value: str) -> str:
        if value == "bad":
            raise ValueError(value)
        return value + "!"

    kept = builder.stream("s", timestamp_extractor=None).filter(lambda key, value: value is not None)
    joined = kept.map_values(picky).left_join(builder.table("t"), lambda one, other: f"{one}{other}")
    joined.to("out")
    joined.group_by_key().count().to_stream().to("counts", value_serde="long")
    handlers = Handlers(log_and_continue, log_and_continue, log_and_continue, dead_letter_topic="dead")
    told = Settings("app", STRING, STRING, handlers)
    inputs = [
        Input(topic, 0, offset, max(time, 0), key, value)
        for topic, some in (("s", stream), ("t", table))
        for offset, (key, value, time) in enumerate(some)
    ]
    topology = builder.build(key_serde="string", value_serde="string").topology
    one, many = Runner(topology, told, drain="batch"), ColumnRunner(topology, told)
    many.cut = cut
    found, expected = by_topic(many.run(list(inputs))), by_topic(one.run(inputs))
    # A record that is taken alone is read before the one in front of it is processed: dead letters may change places.
    assert sorted(found.pop("dead", []), key=repr) == sorted(expected.pop("dead", []), key=repr)
    assert found == expected
    assert many.state() == one.state()
    assert [each.dropped for each in many.tasks.values()] == [each.dropped for each in one.tasks.values()]


@pytest.mark.parametrize("count", [2, 100])
@pytest.mark.parametrize("bad", [b'{"n": 2, "other": "\xff"}', b'{"n": 2, "\x80": 1}'])
def test_a_value_that_is_not_utf8_goes_to_the_handler_whatever_field_it_is_in(bad: bytes, count: int) -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key_serde="string", value_serde=serdes.columns(n="long"))
    stream.map_values(value["n"] + 1).to("out")
    topology = builder.build(application_id="app").topology
    lenient = Settings("app", handlers=Handlers(log_and_continue, dead_letter_topic="dead"))
    given = [Input("in", 0, n, n, b"k", bad if n == 1 else b'{"n": 1}') for n in range(count)]
    expected = by_topic(Runner(topology, lenient, drain="batch").run(list(given)))
    assert {topic: len(outputs) for topic, outputs in expected.items()} == {"out": count - 1, "dead": 1}
    assert by_topic(ColumnRunner(topology, lenient).run(given)) == expected


def test_an_error_names_the_record_of_a_column() -> None:
    builder = StreamsBuilder()
    builder.stream("a").map_values(lambda value: value[3]).to("out")
    task = Task(builder.build().topology, 0, 0, settings())
    rows = [Input("a", 0, 10 + number, number, None, text) for number, text in enumerate((b"long", b"xx", b"long"))]
    task.add_columns(batch("a", 0, rows))
    with pytest.raises(StreamsError, match=r"test_columns\.py:\d+\) failed on a-0 at offset 11: IndexError"):
        task.drain()


def test_a_task_stops_before_a_record_that_another_partition_may_still_overtake() -> None:
    builder = StreamsBuilder()
    builder.stream("a").merge(builder.stream("b")).to("out")
    task = Task(builder.build().topology, 0, 0, settings())
    task.add_columns(batch("a", 0, [Input("a", 0, number, number, b"k", b"a") for number in range(10)]))
    task.add_columns(batch("b", 0, [Input("b", 0, 0, 4, b"k", b"b")]))
    # a0 to a4 (a was added first), then b4: of b is no more there, and more is to come.
    assert task.drain([("b", 0)]) == 6
    assert task.queued("a", 0) == (5, 5)
    assert task.drain() == 5
    assert [output.value for output in task.take_outputs()] == [b"a"] * 5 + [b"b"] + [b"a"] * 5


def test_values_kept_as_objects_are_those_that_the_serde_would_read() -> None:
    """A double that was put as an int comes back as a float, with and without a restart in between."""
    builder = StreamsBuilder()
    table = builder.stream("a").group_by_key().aggregate(lambda: 0, lambda key, value, seen: seen + 1, "d", "s")
    table.to_stream().map_values(repr).to("out")
    app = builder.build(application_id="app", key_serde="string", value_serde="string")
    app.topology.stores["s"] = app.topology.stores["s"].__class__(
        "s", "timestamped_key_value", STRING, _NAMED["double"]
    )
    whole = Task(app.topology, 0, 0, settings())
    inputs = [Input("a", 0, number, number, b"k", b"v") for number in range(3)]
    state, pieces = State(), []
    for each in inputs:
        task = Task(app.topology, 0, 0, settings(), state=state)
        pieces += task.run([each])
        state = task.snapshot()
    assert [each.value for each in whole.run(inputs)] == [each.value for each in pieces] == [b"1", b"2.0", b"3.0"]


def test_a_serde_of_kafka_is_the_same_one_in_another_process() -> None:
    for one in _NAMED.values():
        assert pickle.loads(pickle.dumps(one)) is one


@pytest.mark.parametrize(
    ("fold", "serde", "in_columns"),
    [
        ("count", "long", True),
        ("sum", "long", True),
        ("sum", "double", True),
        ("max", "string", True),
        ("sum", "string", False),
        ("max", "json", False),
    ],
)
def test_an_aggregate_takes_columns_of_the_kinds_that_it_can_fold(fold: str, serde: str, in_columns: bool) -> None:
    builder = StreamsBuilder()
    grouped = builder.stream("a", value_serde=serde).group_by_key()
    table = grouped.count() if fold == "count" else grouped.reduce(BuiltInReducer(fold))
    table.to_stream().to("out")
    topology = builder.build(application_id="app", key_serde="string").topology
    writers: dict[str, Callable[[int], bytes]] = {
        "long": lambda n: n.to_bytes(8, "big"),
        "double": lambda n: struct.pack(">d", n),
    }
    write: Callable[[int], bytes] = writers.get(serde, lambda n: b"%d" % n)
    rows = [Input("a", 0, number, number, b"%d" % (number % 3), write(number)) for number in range(100)]
    one, many = Runner(topology, settings(), drain="batch"), ColumnRunner(topology, settings())
    expected = one.run(list(rows))
    assert len(expected) == 100
    assert many.run(rows) == expected
    assert many.state() == one.state()
    assert many.columns == (100 if in_columns else 0)


def test_records_without_a_key_are_left_out_of_a_repartition_in_columns() -> None:
    builder = StreamsBuilder()
    builder.stream("a", key_serde="string", value_serde="string").group_by(value).count()
    topology = builder.build(application_id="app").topology
    inputs = [Input("a", 0, n, n, b"k", None if n % 5 == 0 else b"g%d" % (n % 3)) for n in range(100)]
    one, many = Runner(topology, Settings("app"), drain="batch"), ColumnRunner(topology, Settings("app"))
    found = by_topic(many.run(list(inputs)))
    assert found == by_topic(one.run(inputs))
    assert many.columns == 80
