"""Options and stores under their less used names: each changes what it says, and nothing else."""

from collections.abc import Callable
from typing import Any

import pytest

from ottla.flow.plan import Plan
from ottla.flow.serde import LONG, STRING
from ottla.flow.topology import Topology
from ottla.streams import (
    Branched,
    BufferConfig,
    Consumed,
    Context,
    EmitStrategy,
    Grouped,
    JoinWindows,
    Materialized,
    Processor,
    Produced,
    Record,
    Repartitioned,
    SessionWindows,
    StreamJoined,
    StreamsBuilder,
    StreamsError,
    Suppressed,
    TestDriver,
    TimeWindows,
    TopologyError,
    Window,
    Windowed,
    stores,
)
from ottla.streams.application import Application


def driver_of(builder: StreamsBuilder, **more: Any) -> TestDriver:
    return TestDriver(builder.build(application_id="test", key_serde="string", value_serde="string"), **more)


def test_sessions_without_grace_drop_a_record_behind_their_gap() -> None:
    builder = StreamsBuilder()
    windows = SessionWindows.of_inactivity_gap_with_no_grace(10)
    builder.stream("in").group_by_key().windowed_by(windows).count(materialized="sessions")
    driver = driver_of(builder)
    topic = driver.input_topic("in")
    topic.pipe("k", "v", 10)
    topic.pipe("other", "v", 20)
    topic.pipe("k", "v", 10)
    assert driver.dropped == 0
    topic.pipe("other", "v", 21)
    topic.pipe("k", "v", 10)
    assert driver.dropped == 1


@pytest.mark.parametrize("bound", ["before", "after"])
def test_a_join_window_may_begin_after_the_record_but_not_after_its_end(bound: str) -> None:
    bounds = getattr(JoinWindows.of_time_difference_with_no_grace(10), bound)
    assert bounds(-10).size_ms == 0
    with pytest.raises(TopologyError, match="expected -10 or more"):
        bounds(-11)


def test_a_retention_is_not_negative() -> None:
    with pytest.raises(TopologyError, match="invalid retention: -1 ms"):
        Materialized.as_("counts").with_retention(-1)


class Sessions(Processor):
    """Keeps three sessions, and forwards what a search finds, forwards and backwards."""

    def init(self, context: Context) -> None:
        self.context = context
        self.store = context.get_state_store("sessions")

    def process(self, record: Record) -> None:
        for start, end in ((0, 5), (10, 20), (30, 40)):
            self.store.put(Windowed(record.key, Window(start, end)), f"{start}")
        for find in (self.store.find_sessions, self.store.backward_find_sessions):
            self.context.forward(record.with_value(" ".join(value for _, value in find(record.key, 6, 35))))
        found = self.store.backward_find_sessions(record.key, 0, 29)
        self.context.forward(record.with_value(" ".join(value for _, value in found)))


def test_sessions_are_found_backwards_within_the_same_bounds() -> None:
    builder = StreamsBuilder()
    builder.add_state_store(stores.session("sessions", 100_000, "string", "string"))
    builder.stream("in").process(Sessions, "sessions").to("out")
    driver = driver_of(builder)
    driver.input_topic("in").pipe("k", "v", 0)
    assert driver.output_topic("out").read_values() == ["10 30", "30 10", "10 0"]


class Windows(Processor):
    """Keeps windows of two keys, and forwards all of them, forwards and backwards."""

    def init(self, context: Context) -> None:
        self.context = context
        self.store = context.get_state_store("windows")

    def process(self, record: Record) -> None:
        for key, start in (("a", 0), ("b", 10), ("a", 20)):
            self.store.put(key, f"{key}{start}", start)
        for every in (self.store.all, self.store.backward_all):
            self.context.forward(record.with_value(" ".join(value for _, value in every())))


def test_all_windows_are_read_backwards() -> None:
    builder = StreamsBuilder()
    builder.add_state_store(stores.window("windows", 100_000, 10, "string", "string"))
    builder.stream("in").process(Windows, "windows").to("out")
    driver = driver_of(builder)
    driver.input_topic("in").pipe("k", "v", 0)
    assert driver.output_topic("out").read_values() == ["a0 a20 b10", "b10 a20 a0"]


def suppressing(buffer: BufferConfig) -> TestDriver:
    builder = StreamsBuilder()
    builder.table("in").suppress(Suppressed.until_time_limit(1_000, buffer)).to_stream().to("out")
    return driver_of(builder)


def test_a_buffer_bounded_by_bytes_emits_its_oldest_early() -> None:
    driver = suppressing(BufferConfig.max_records(100).with_max_bytes(500))
    topic, out = driver.input_topic("in"), driver.output_topic("out")
    topic.pipe("a", "x" * 300, 0)
    assert out.is_empty
    topic.pipe("b", "y" * 300, 1)
    assert [key for key, _ in out.read_key_values()] == ["a"]


def test_a_buffer_bounded_by_bytes_has_room_again_when_it_has_emitted() -> None:
    driver = suppressing(BufferConfig.max_records(100).with_max_bytes(500))
    topic, out = driver.input_topic("in"), driver.output_topic("out")
    emitted = []
    for key, size in (("a", 300), ("b", 300), ("c", 300), ("d", 10)):
        topic.pipe(key, "x" * size, 0)
        emitted.append("".join(key for key, _ in out.read_key_values()))
    assert emitted == ["", "a", "b", ""]


def test_a_buffer_bounded_by_bytes_stops_the_task_if_told_so() -> None:
    topic = suppressing(BufferConfig.max_records(100).with_max_bytes(500).shut_down_when_full()).input_topic("in")
    topic.pipe("a", "x" * 300, 0)
    with pytest.raises(StreamsError, match="is full: 2 records"):
        topic.pipe("b", "y" * 300, 1)


def test_a_buffer_without_a_bound_holds_everything_back() -> None:
    driver = suppressing(BufferConfig.max_records(1).with_max_bytes(1).with_no_bound())
    topic = driver.input_topic("in")
    topic.pipe_all((f"k{number}", "x" * 100) for number in range(50))
    assert driver.output_topic("out").is_empty
    topic.pipe("late", "x", 1_000)
    assert len(driver.output_topic("out")) == 50


def test_the_clock_of_an_input_topic_is_moved_and_its_results_read_singly() -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    driver = driver_of(builder)
    topic, out = driver.input_topic("in", start=5, advance=2), driver.output_topic("out")
    topic.pipe("a", "1")
    topic.advance_time(100)
    topic.pipe("b", "2")
    topic.pipe("c", "3")
    assert out.read_key_value() == ("a", "1")
    assert [record.timestamp for record in out.read_records()] == [107, 109]
    with pytest.raises(LookupError):
        out.read_key_value()


@pytest.mark.parametrize(
    ("strategy", "expected"), [(EmitStrategy.on_window_update(), [1, 2, 1]), (EmitStrategy.on_window_close(), [2])]
)
def test_windows_emit_at_each_update_or_when_they_close(strategy: EmitStrategy, expected: list[int]) -> None:
    builder = StreamsBuilder()
    windowed = builder.stream("in").group_by_key().windowed_by(TimeWindows.of(10).grace(0)).emit_strategy(strategy)
    windowed.count(materialized="counts").to_stream(lambda key, _: key.key).to("out", value_serde="long")
    driver = driver_of(builder)
    topic = driver.input_topic("in")
    topic.pipe("k", "v", 0)
    topic.pipe("k", "v", 5)
    driver.advance_wall_clock(1_000)  # windows that have closed are looked for once a second
    topic.pipe("k", "v", 12)
    assert driver.output_topic("out").read_values() == expected


def test_a_branchs_function_gives_the_stream_that_stands_in_the_map() -> None:
    builder = StreamsBuilder()
    made = Branched.with_function(lambda stream: stream.map_values(str.upper), "loud")
    none = Branched.with_function(lambda stream: stream.to("quiet"), "quiet")
    branches = builder.stream("in").split("cut-").branch(lambda _, value: value > "m", made).default_branch(none)
    assert list(branches) == ["cut-loud"]
    branches["cut-loud"].to("loud")
    driver = driver_of(builder)
    driver.input_topic("in").pipe_all([("k", "z"), ("k", "a")])
    assert driver.output_topic("loud").read_values() == ["Z"]
    assert driver.output_topic("quiet").read_values() == ["a"]


def counting(options: Materialized) -> Application:
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().windowed_by(TimeWindows.of(10)).count(materialized=options)
    return builder.build(application_id="test", key_serde="string", value_serde="string")


def test_materialized_says_what_is_logged_cached_and_kept() -> None:
    options = Materialized.as_("counts").with_logging_disabled()
    settings = {"segment.ms": "60000"}
    assert "test-counts-changelog" not in written(options)
    assert "test-counts-changelog" in written(options.with_logging_enabled(settings))
    store = counting(options.with_logging_enabled(settings).with_caching_disabled()).topology.stores["counts"]
    assert (store.logging, dict(store.log_settings), store.caching) == (True, settings, False)
    assert counting(options.with_caching_disabled().with_caching_enabled()).topology.stores["counts"].caching


def written(options: Materialized) -> list[str]:
    driver = TestDriver(counting(options), changelog=True)
    driver.input_topic("in").pipe("k", "v", 0)
    return driver.produced_topics()


def test_a_window_is_readable_for_the_retention_that_was_asked() -> None:
    for retention, readable in ((20, False), (500_000, True)):
        driver = TestDriver(counting(Materialized.as_("counts").with_retention(retention)))
        topic = driver.input_topic("in")
        topic.pipe("k", "v", 0)
        topic.pipe("k", "v", 400_000)
        assert (driver.state_store("counts").fetch_one("k", 0) is not None) == readable
    with pytest.raises(TopologyError, match="expected at least 10 ms"):
        counting(Materialized.as_("counts").with_retention(9))


class Keep(Processor):
    def init(self, context: Context) -> None:
        self.store = context.get_state_store("rates")

    def process(self, record: Record) -> None:
        self.store.put(record.key, record.value)


def test_a_read_only_store_is_filled_from_its_topic_and_has_no_changelog_of_its_own() -> None:
    topology = Topology()
    spec = stores.key_value("rates", "string", "long")
    topology.add_read_only_state_store(spec, "source", "rates-topic", "keep", Keep, key_serde=STRING, value_serde=LONG)
    driver = TestDriver(Application("test", Plan(), topology, STRING, LONG), changelog=True)
    topic = driver.input_topic("rates-topic")
    topic.pipe("a", 7)
    topic.pipe("a", 8)
    assert driver.state_store("rates").get("a") == 8
    assert driver.produced_topics() == []
    assert not topology.stores["rates"].logging


def bar(one: Any, two: Any) -> str:
    return f"{one}|{two}"


def of(topology: Topology) -> dict[str, tuple[str, str]]:
    """The names of the serdes of all sources, sinks and stores."""
    nodes: dict[str, Any] = {**topology.sources, **topology.sinks, **topology.stores}
    return {name: (str(node.key), str(node.value)) for name, node in nodes.items()}


S, J, L = "string", "json", "long"
_TEN = JoinWindows.of_time_difference_with_no_grace(10)
#: A step with its serdes as options, the same with keywords, and with keywords that win over options.
_WITH_SERDES: dict[str, list[Callable[[StreamsBuilder], Any]]] = {
    "stream": [
        lambda b: b.stream("a", Consumed(S, J)),
        lambda b: b.stream("a", key_serde=S, value_serde=J),
        lambda b: b.stream("a", Consumed(L, L), key_serde=S, value_serde=J),
    ],
    "table": [
        lambda b: b.table("a", Consumed(S, J), "t"),
        lambda b: b.table("a", materialized=Materialized("t", key_serde=S, value_serde=J)),
        lambda b: b.table("a", Consumed(S, L), Materialized("t", key_serde=L, value_serde=L), value_serde=J),
    ],
    "global table": [
        lambda b: b.global_table("a", Consumed(S, J), "t"),
        lambda b: b.global_table("a", materialized=Materialized("t", key_serde=S, value_serde=J)),
        lambda b: b.global_table("a", Consumed(L, L), "t", key_serde=S, value_serde=J),
    ],
    "to": [
        lambda b: b.stream("a").to("out", Produced(S, J)),
        lambda b: b.stream("a").to("out", key_serde=S, value_serde=J),
        lambda b: b.stream("a").to("out", Produced(L, L), key_serde=S, value_serde=J),
    ],
    "repartition": [
        lambda b: b.stream("a").repartition(Repartitioned("r", S, J)),
        lambda b: b.stream("a").repartition(name="r", key_serde=S, value_serde=J),
        lambda b: b.stream("a").repartition(Repartitioned("r", L, L), key_serde=S, value_serde=J),
    ],
    "group by": [
        lambda b: b.stream("a").group_by(bar, Grouped("g", S, J)).reduce(bar, materialized="s"),
        lambda b: b.stream("a").group_by(bar, name="g", key_serde=S, value_serde=J).reduce(bar, materialized="s"),
        lambda b: (
            b.stream("a").group_by(bar, Grouped("g", L, L), key_serde=S, value_serde=J).reduce(bar, materialized="s")
        ),
    ],
    "group by key": [
        lambda b: b.stream("a").group_by_key(Grouped("g", S, J)).reduce(bar, materialized="s"),
        lambda b: b.stream("a").group_by_key(name="g", key_serde=S, value_serde=J).reduce(bar, materialized="s"),
        lambda b: b.stream("a").group_by_key().reduce(bar, materialized=Materialized("s", key_serde=S, value_serde=J)),
    ],
    "groups of a table": [
        lambda b: b.table("a").group_by(lambda k, v: (v, v), Grouped("g", S, J)).reduce(bar, bar, materialized="s"),
        lambda b: (
            b.table("a").group_by(lambda k, v: (v, v), name="g", key_serde=S, value_serde=J)
            .reduce(bar, bar, materialized="s")
        ),
        lambda b: (
            b.table("a").group_by(lambda k, v: (v, v), Grouped("g", L, L), key_serde=S, value_serde=J)
            .reduce(bar, bar, materialized="s")
        ),
    ],
    "windows": [
        lambda b: (
            b.stream("a").group_by_key(Grouped(None, S, J)).windowed_by(TimeWindows.of(5)).reduce(bar, materialized="s")
            .to_stream().to("out")
        ),
        lambda b: (
            b.stream("a").group_by_key().windowed_by(TimeWindows.of(5))
            .reduce(bar, materialized=Materialized("s", key_serde=S, value_serde=J)).to_stream().to("out")
        ),
    ],
    "cogroup": [
        lambda b: (
            b.stream("a").group_by_key(Grouped(None, S)).cogroup(lambda k, v, one: one + v)
            .aggregate(str, materialized=Materialized("s", value_serde=J)).to_stream().to("out")
        ),
        lambda b: (
            b.stream("a").group_by_key().cogroup(lambda k, v, one: one + v)
            .aggregate(str, materialized=Materialized("s", key_serde=S, value_serde=J)).to_stream().to("out")
        ),
    ],
    "join of streams": [
        lambda b: b.stream("a").join(b.stream("b"), bar, _TEN, StreamJoined(S, J, L)),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", _WITH_SERDES)
def test_serdes_are_those_of_the_options_or_of_keywords_which_win(name: str) -> None:
    found = []
    for make in _WITH_SERDES[name]:
        builder = StreamsBuilder()
        make(builder)
        found.append(of(builder.build("app").topology))
    assert all(each == found[0] for each in found)
    kinds = set(found[0].values())
    assert any(S in key and J in value for key, value in kinds), "they are there"
    assert not any(L in key for key, _ in kinds)
