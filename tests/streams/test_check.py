"""Arguments that a call of the DSL does not take: refused at that line, with what is expected."""

import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from ottla.kernel.error import OttlaError
from ottla.streams import (
    Branched,
    BufferConfig,
    Consumed,
    Handlers,
    Joined,
    JoinWindows,
    KStream,
    KTable,
    Materialized,
    Processor,
    Produced,
    SessionWindows,
    SlidingWindows,
    StreamJoined,
    StreamsBuilder,
    Suppressed,
    TableJoined,
    TestDriver,
    TimeWindows,
    TopologyError,
    UnlimitedWindows,
    batch,
    col,
    log_and_continue,
    serdes,
    stores,
)

#: Any, because a type checker refuses most of these calls as well.
Build = Callable[[Any], object]
_FIVE: Any = 5
_TEXT: Any = "five"
_SECOND: Any = timedelta(seconds=1)
_WINDOWS = JoinWindows.of_time_difference_with_no_grace(10)
_SESSIONS = SessionWindows.of_inactivity_gap_with_no_grace(10)
_GROUPED = "a function aggregator(key, value, aggregate)"


def stream(builder: StreamsBuilder, topic: str = "in") -> Any:
    return builder.stream(topic, key_serde="string", value_serde="json")


def table(builder: StreamsBuilder, topic: str = "rows") -> Any:
    return builder.table(topic, key_serde="string", value_serde="json")


def grouped(builder: StreamsBuilder) -> Any:
    return stream(builder).group_by_key()


def regrouped(builder: StreamsBuilder) -> Any:
    return table(builder).group_by(lambda key, value: (key, value))


def default_of(split: Any) -> Any:
    split.default_branch()
    return split


_REFUSED: dict[str, tuple[Build, str]] = {
    "topics": (lambda b: b.stream(5), "invalid topics for StreamsBuilder.stream: 5 (expected str, a list of str or"),
    "extractor": (lambda b: b.stream("in", timestamp_extractor="time"), "function timestamp_extractor(record, parti"),
    "name": (lambda b: b.stream("in", name=5), "invalid name for StreamsBuilder.stream: 5 (expected str)"),
    "consumed": (lambda b: b.stream("in", Produced()), "(expected Consumed)"),
    "materialized": (lambda b: b.table("in", materialized=5), "5 (expected Materialized, str or StoreSpec)"),
    "state store": (lambda b: b.add_state_store("counts"), "'counts' (expected StoreSpec)"),
    "predicate": (lambda b: stream(b).filter(5), "invalid predicate for KStream.filter: 5 (expected a function"),
    "predicate of values": (
        lambda b: stream(b).filter(lambda value: value),
        "filter: <lambda>(value) (expected a function predicate(key, value), a column expression or a batch function)",
    ),
    "mapper": (lambda b: stream(b).map(lambda value: value), "(expected a function mapper(key, value))"),
    "expression": (lambda b: stream(b).map(col("a")), "value.a (expected a function mapper(key, value))"),
    "no arguments": (lambda b: stream(b).map_values(lambda: 1), "(expected mapper(value) or mapper(key, value))"),
    "flat": (lambda b: stream(b).flat_map_values(lambda a, b, c: 1), "invalid mapper: <lambda>(a, b, c) (expected"),
    "field": (lambda b: stream(b).group_by("card"), "invalid selector for KStream.group_by: 'card' (expected a fun"),
    "branch": (lambda b: stream(b).split().branch(5), "invalid predicate for BranchedKStream.branch: 5"),
    "branch batch": (lambda b: stream(b).split().branch(batch(len)), "(expected a function predicate(key, value) or"),
    "merge": (lambda b: stream(b).merge(table(b)), "<KTable KTABLE-SOURCE-0000000003> (expected KStream)"),
    "supplier": (lambda b: stream(b).process(Processor()), "(expected a function supplier())"),
    "stores": (lambda b: stream(b).process(Processor, stores.lru_map("x", 5)), "invalid stores for KStream.process"),
    "topic": (lambda b: stream(b).to(5), "5 (expected str or a function topic(key, value, context))"),
    "produced": (lambda b: stream(b).to("out", Consumed()), "invalid produced for KStream.to: Consumed("),
    "partitions": (lambda b: stream(b).repartition(partitions="3"), "'3' (expected int)"),
    "group's name": (lambda b: stream(b).group_by_key("cards"), "'cards' (expected Grouped)"),
    "count's name": (lambda b: grouped(b).count(Materialized.as_("x")), "invalid name for KGroupedStream.count"),
    "reducer": (lambda b: grouped(b).reduce(lambda value: value), "(expected a function reducer(aggregate, value))"),
    "initializer": (lambda b: grouped(b).aggregate(0, max), "0 (expected a function initializer())"),
    "aggregator": (lambda b: grouped(b).aggregate(int, lambda value, old: 1), f"(value, old) (expected {_GROUPED})"),
    "sum": (lambda b: grouped(b).sum("amount"), "invalid expression for KGroupedStream.sum: 'amount' (expected a fun"),
    "merger": (lambda b: grouped(b).windowed_by(_SESSIONS).aggregate(int, max, 5), "function merger(key, aggregate, o"),
    "strategy": (lambda b: grouped(b).windowed_by(_SESSIONS).emit_strategy("close"), "'close' (expected EmitStrategy)"),
    "cogroup": (lambda b: grouped(b).cogroup(max).cogroup(5, max), "5 (expected KGroupedStream)"),
    "suppressed": (lambda b: table(b).suppress(5), "5 (expected Suppressed)"),
    "buffer": (lambda b: Suppressed.until_time_limit(5, _FIVE), "5 (expected BufferConfig)"),
    "records": (lambda b: BufferConfig.max_records(_TEXT), "'five' (expected int)"),
    "join windows": (lambda b: stream(b).join(stream(b), max, timedelta(1)), "(expected JoinWindows or Joined)"),
    "joiner": (lambda b: stream(b).join(table(b), lambda value: 1), "(expected joiner(value, other_value) or joiner("),
    "windows of a table": (lambda b: stream(b).join(table(b), max, _WINDOWS), "a join with a table takes no windows="),
    "grace of a stream": (
        lambda b: stream(b).join(stream(b), max, _WINDOWS, grace=5),
        "takes no grace=5 (only windows",
    ),
    "joined": (lambda b: stream(b).join(table(b), max, joined=StreamJoined()), "takes no joined=StreamJoined("),
    "outer with a table": (lambda b: stream(b).outer_join(table(b), max, _WINDOWS), "(expected KStream)"),
    "table and stream": (lambda b: table(b).join(stream(b), max), "<KStream KSTREAM-SOURCE-0000000003> (expected KTab"),
    "joiner of tables": (lambda b: table(b).join(table(b, "two"), col("a")), "(expected a function joiner(value, oth"),
    "foreign key": (
        lambda b: table(b).join(table(b, "two"), max, foreign_key=5),
        "invalid foreign_key for KTable.join",
    ),
    "no foreign key": (lambda b: table(b).join(table(b, "two"), max, table_joined=TableJoined()), "foreign_key="),
    "table's batch": (lambda b: table(b).map_values(batch(len)), "(expected a function mapper(value) or a column exp"),
    "adder": (lambda b: regrouped(b).reduce(5, max), "5 (expected a function adder(aggregate, value) or a column exp"),
    "store's windows": (lambda b: stores.window("x", 5, 10), "invalid retention of store x: 5 (expected at least"),
    "serializer": (lambda b: serdes.of_functions("x", _FIVE, len), "5 (expected a function serializer(value))"),
    "handler": (lambda b: Handlers(processing=_TEXT), "invalid processing for Handlers: 'five'"),
    "handlers": (lambda b: b.build("app", handlers=log_and_continue), "(expected Handlers)"),
    "id": (lambda b: b.build("my app"), "invalid application_id: 'my app' (expected 1 to 249 letters, digits"),
    "driver": (lambda b: TestDriver(b), "(expected Application)"),
    "operator's name": (lambda b: stream(b).filter(max, name="x y"), "invalid name: 'x y' (expected 1 to 249 letters"),
    "processor's name": (lambda b: stream(b).process(Processor, name="a/b"), "invalid name: 'a/b' (expected 1 to 249"),
    "suppress's name": (lambda b: Suppressed(5, BufferConfig()).with_name(""), "invalid name: '' (expected 1 to 249"),
    "time limit": (lambda b: Suppressed(-5, BufferConfig()), "invalid time limit: -5 ms (expected 0 or more)"),
    "max_records": (lambda b: BufferConfig.max_records(-5), "number of records for a buffer: -5 (expected 0 or more)"),
    "max_bytes": (lambda b: BufferConfig.max_bytes(-1), "invalid number of bytes for a buffer: -1 (expected 0 or more"),
    "with records": (lambda b: BufferConfig.unbounded().with_max_records(-1), "number of records for a buffer: -1"),
    "with bytes": (lambda b: BufferConfig.unbounded().with_max_bytes(-1), "number of bytes for a buffer: -1"),
    "no size": (lambda b: stores.lru_map("x", 0), "invalid size of store x: 0 (expected at least 1)"),
    "window size": (lambda b: TimeWindows(0, 0), "invalid window size: 0 ms (expected more than 0)"),
    "window advance": (
        lambda b: TimeWindows(5, 6),
        "invalid window advance: 6 ms (expected at most the window size, 5",
    ),
    "window in seconds": (lambda b: TimeWindows(_SECOND, 5), "expected milliseconds as an int"),
    "gap": (lambda b: SessionWindows(-1), "invalid inactivity gap: -1 ms (expected 0 or more)"),
    "difference": (lambda b: SlidingWindows(-1), "invalid time difference: -1 ms (expected 0 or more)"),
    "bounds": (lambda b: JoinWindows(4, -5), "invalid time difference: 4 ms (expected 5 or more)"),
    "join window in seconds": (lambda b: JoinWindows(_SECOND, 5), "expected milliseconds as an int"),
    "join window to seconds": (lambda b: JoinWindows(5, _SECOND), "expected milliseconds as an int"),
    "window start": (lambda b: UnlimitedWindows.of().start_on(_TEXT), "or a datetime with a time zone)"),
    "two branches": (
        lambda b: stream(b).split("s-").branch(max, "a").branch(min, "a"),
        "a branch named s-a has already",
    ),
    "branch's number": (lambda b: stream(b).split("s-").branch(max, "2").branch(min), "a branch named s-2 has already"),
    "late branch": (lambda b: default_of(stream(b).split("s")).branch(max), "split s has all its branches: add others"),
    "two uses": (lambda b: Branched(function=max, consumer=max), "a branch takes function= or consumer=, not both"),
    "dead letters": (
        lambda b: Handlers(dead_letter_topic="a b"),
        "invalid dead_letter_topic: 'a b' (expected 1 to 249",
    ),
    "fields": (lambda b: serdes.columns(["a"]), "invalid columns: ['a'] (expected a dict of names and types)"),
    "windowed size": (lambda b: serdes.time_windowed("string", 0), "invalid window size: 0 ms (expected 1 or more)"),
    "windowed serde": (lambda b: serdes.time_windowed("strng", 5), "unknown serde: 'strng'"),
    "session serde": (lambda b: serdes.session_windowed(5), "invalid serde: 5"),
    "avro": (lambda b: serdes.avro("not a schema"), "invalid Avro schema: UnknownType: not a schema"),
    "schema id": (lambda b: serdes.avro({"type": "string"}, schema_id=_TEXT), "invalid schema_id for avro: 'five'"),
    "message": (lambda b: serdes.protobuf(5), "invalid message: 5 (expected a class that protoc made)"),
    "json schema": (lambda b: serdes.json_schema({"type": "strng"}), "invalid JSON Schema: "),
}
#: Settings that are refused when the program is built, at the line of `build`.
_SETTINGS: dict[str, tuple[Any, str]] = {
    "processing.guarantee": ("exactly_once", "exactly_once (expected exactly_once_v2 or at_least_once)"),
    "replication.factor": ("two", "two (expected 1 or more, or -1 for the brokers' default)"),
    "repartition.purge.interval.ms": (-5, "-5 (expected milliseconds, 0 or more)"),
    "topology.optimization": (5, "5 (expected none, all or some of"),
    "ensure.explicit.internal.resource.naming": ("ture", "ture (expected true or false)"),
}


@pytest.mark.parametrize("name", _SETTINGS)
def test_a_wrong_setting_is_refused_when_the_program_is_built(name: str) -> None:
    value, message = _SETTINGS[name]
    builder = StreamsBuilder()
    stream(builder).to("out")
    with pytest.raises(TopologyError) as refused:
        builder.build(config={name: value})
    assert f"{name}: {message}" in str(refused.value)
    assert __file__ in str(refused.value)


def test_the_name_of_a_setting_is_a_str() -> None:
    builder = StreamsBuilder()
    stream(builder).to("out")
    with pytest.raises(TopologyError, match=r"invalid name of a setting in config: 5 \(expected str\).*test_check"):
        builder.build(config={_FIVE: 5})


@pytest.mark.parametrize("workers", [0, -1])
def test_a_program_needs_a_worker(workers: int) -> None:
    builder = StreamsBuilder()
    stream(builder).to("out")
    with pytest.raises(OttlaError, match=rf"invalid number of workers: {workers} \(expected at least 1\)"):
        builder.build("app").start(workers=workers)


def test_an_answer_cannot_be_ahead_of_its_input() -> None:
    builder = StreamsBuilder()
    stream(builder).to("out")
    with pytest.raises(OttlaError, match=r"invalid max_behind: -1 \(expected 0 or more\)"):
        builder.build("app").store("counts", max_behind=-1)


def test_a_topic_that_is_named_twice_is_one_topic() -> None:
    builder = StreamsBuilder()
    builder.stream(["in", "in"]).to("out")
    assert "(topics: [in])" in builder.build().describe()


@pytest.mark.parametrize("name", _REFUSED)
def test_a_wrong_argument_is_refused_at_its_line(name: str) -> None:
    build, message = _REFUSED[name]
    with pytest.raises(TopologyError) as refused:
        build(StreamsBuilder())
    assert message in str(refused.value)
    code = build.__code__
    assert f"{__file__}:{code.co_firstlineno}" in str(refused.value)


_BUILT: dict[str, tuple[Callable[[Any], object], str]] = {
    "topic": (lambda b: b.stream("no topic"), "invalid topic: 'no topic'"),
    "output": (lambda b: stream(b).to(""), "invalid topic: ''"),
    "store": (lambda b: stream(b).group_by_key().count(materialized="a/b"), "invalid store name: 'a/b'"),
    "reset": (lambda b: b.stream("in", offset_reset="earlist"), "invalid offset_reset: 'earlist' (expected earliest,"),
    "duration": (lambda b: b.stream("in", offset_reset="by_duration:1h"), "such as by_duration:PT1H)"),
}


@pytest.mark.parametrize("name", _BUILT)
def test_a_name_that_no_topic_can_have_is_refused_when_the_program_is_built(name: str) -> None:
    build, message = _BUILT[name]
    builder = StreamsBuilder()
    build(builder)
    with pytest.raises(TopologyError) as refused:
        builder.build()
    assert message in str(refused.value)
    assert f"{__file__}:" in str(refused.value)


def test_two_steps_do_not_share_a_store() -> None:
    """Their counts would be mixed. Kafka Streams refuses it as well."""
    builder = StreamsBuilder()
    for topic in ("a", "b"):
        stream(builder, topic).group_by_key().count(materialized="counts")
    with pytest.raises(TopologyError, match=r"state store named counts has already been added \(.*test_check"):
        builder.build()


def test_a_global_store_does_not_replace_another() -> None:
    builder = StreamsBuilder()
    spec = stores.key_value("rates", "string", "string")
    builder.add_state_store(spec).add_global_store(spec, "rates", Processor)
    with pytest.raises(TopologyError, match="state store named rates has already been added"):
        builder.build()


def test_joined_may_stand_third() -> None:
    """As in Kafka Streams."""
    builder = StreamsBuilder()
    stream(builder).join(table(builder), lambda value, other: value, Joined(name="rated"))
    assert "rated" in builder.build().describe()


def test_the_driver_names_the_topics_that_are_read() -> None:
    builder = StreamsBuilder()
    stream(builder).to("out")
    with pytest.raises(TopologyError, match=r"no source reads topic inn \(sources read: in\)"):
        TestDriver(builder.build()).input_topic("inn")


def test_functions_that_do_not_tell_their_arguments_are_taken() -> None:
    builder = StreamsBuilder()
    made: KStream[Any, Any] = stream(builder).map_values(str).peek(print).filter(max)
    counted: KTable[Any, Any] = made.group_by_key().windowed_by(TimeWindows.of(5)).aggregate(dict, lambda *each: each)
    assert repr(counted) == "<KTable KSTREAM-AGGREGATE-0000000005>"


#: Before Python 3.14, such an annotation has to be a text.
ANNOTATED = f"""
{"" if sys.version_info >= (3, 14) else "from __future__ import annotations"}
def is_large(order: Order) -> bool:
    return order > 1
"""


def test_functions_may_have_annotations_that_only_type_checkers_import() -> None:
    scope: dict[str, Any] = {}
    exec(compile(ANNOTATED, "<program>", "exec", dont_inherit=True), scope)
    builder = StreamsBuilder()
    stream(builder).map_values(scope["is_large"]).to("out")
    with pytest.raises(TopologyError, match=r"invalid predicate for KStream\.filter: is_large\(order: '?Order'?\)"):
        stream(StreamsBuilder()).filter(scope["is_large"])


def test_an_int_stands_for_a_float() -> None:
    """Without a running program, the call passes its check and says so."""
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    app = builder.build("app")
    with pytest.raises(OttlaError, match="was not started"):
        app.await_termination(0)
    with pytest.raises(
        TopologyError, match=r"invalid timeout for Application.await_termination: '1' \(expected float\)"
    ):
        app.await_termination("1")  # type: ignore[arg-type]


@pytest.mark.parametrize("real_time", [False, True])
def test_a_session_comes_with_neither_a_master_nor_settings(real_time: bool) -> None:
    builder = StreamsBuilder()
    builder.stream("a").to("b")
    app = builder.build(application_id="app")
    for other in ({"master": "local[2]"}, {"spark_settings": {"spark.executor.memory": "1g"}}):
        with pytest.raises(OttlaError, match="spark= cannot be combined"):
            app.start(spark=object(), real_time=real_time, **other)
