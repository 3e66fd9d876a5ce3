"""Topics that are joined or cogrouped need the same number of partitions, and nothing else does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ottla.flow.task.receive import fail_on_invalid_timestamp
from ottla.streams import JoinWindows, Materialized, StreamsBuilder, StreamsError, TestDriver, TopologyError

Build = Callable[[StreamsBuilder], Any]
_WINDOWS = JoinWindows.of_time_difference_with_no_grace(10)


def first(ours: Any, theirs: Any) -> Any:
    return ours


def added(key: Any, value: Any, aggregate: Any) -> Any:
    return value


def _cogroup(builder: StreamsBuilder) -> None:
    groups = [builder.stream(topic).group_by_key() for topic in ("one", "two")]
    groups[0].cogroup(added).cogroup(groups[1], added).aggregate(str)


def _by_foreign_key(builder: StreamsBuilder) -> None:
    builder.table("one").join(builder.table("two"), first, foreign_key=lambda value: value)


_JOINED: dict[str, Build] = {
    "streams": lambda b: b.stream("one").join(b.stream("two"), first, _WINDOWS),
    "streams, left": lambda b: b.stream("one").left_join(b.stream("two"), first, _WINDOWS),
    "streams, outer": lambda b: b.stream("one").outer_join(b.stream("two"), first, _WINDOWS),
    "stream and table": lambda b: b.stream("one").join(b.table("two"), first),
    "stream and table, left": lambda b: b.stream("one").left_join(b.table("two"), first),
    "tables": lambda b: b.table("one").join(b.table("two"), first),
    "tables, outer": lambda b: b.table("one").outer_join(b.table("two"), first),
    "cogroup": _cogroup,
}
_FREE: dict[str, Build] = {
    "merge": lambda b: b.stream("one").merge(b.stream("two")).to("out"),
    "by foreign key": _by_foreign_key,
    "global table": lambda b: b.stream("one").join(b.global_table("two"), first, key_selector=first),
    "repartitioned": lambda b: b.stream("one").repartition().join(b.table("two"), first),
}


def _built(build: Build) -> Any:
    builder = StreamsBuilder()
    build(builder)
    return builder.build(key_serde="string", value_serde="string").topology


@pytest.mark.parametrize("build", _JOINED.values(), ids=_JOINED)
def test_what_is_joined_has_as_many_partitions(build: Build) -> None:
    topology = _built(build)
    for known in ({"one": 3, "two": 3}, {"one": 3, "other": 5}, {"two": 3}, {}):
        topology.check_partitions(known)
    with pytest.raises(TopologyError, match=r"same number of partitions, but have one: 3, two: 4; call repartit") as e:
        topology.check_partitions({"two": 4, "one": 3})
    assert Path(__file__).name in str(e.value)


@pytest.mark.parametrize("build", _FREE.values(), ids=_FREE)
def test_what_is_not_joined_by_its_partition_may_have_any_number(build: Build) -> None:
    _built(build).check_partitions({"one": 3, "two": 4})


def test_the_ways_of_a_join_by_foreign_key_fit_the_tables() -> None:
    topology = _built(_by_foreign_key)
    asked, answered = (
        next(
            topic
            for source in topology.sources.values()
            for topic in source.topics
            if kind in topic and topic.endswith("-topic")
        )
        for kind in ("REGISTRATION", "RESPONSE")
    )
    topology.check_partitions({"one": 3, "two": 4, asked: 4, answered: 3})
    for wrong in ({asked: 3}, {answered: 4}):
        with pytest.raises(TopologyError, match="same number of partitions"):
            topology.check_partitions({"one": 3, "two": 4} | wrong)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda b, o: b.table("one").join(o.table("two"), first), "is not a table of the same StreamsBuilder"),
        (lambda b, o: b.stream("one").join(o.table("two"), first), "same StreamsBuilder"),
        (lambda b, o: b.stream("one").join(o.stream("two"), first, _WINDOWS), "same StreamsBuilder"),
        (
            lambda b, o: b.stream("one").group_by_key().cogroup(added).cogroup(o.stream("x").group_by_key(), added),
            "must come from the same StreamsBuilder",
        ),
        (lambda b, o: b.stream([]), r"stream\(\) has no topic: name at least one"),
        (lambda b, o: b.build("app"), "the program is empty: begin with stream"),
    ],
)
def test_parts_of_two_programs_and_parts_of_none_are_refused(build: Callable[..., Any], words: str) -> None:
    with pytest.raises(TopologyError, match=words):
        build(StreamsBuilder(), StreamsBuilder())


# ---- times


def test_a_record_of_1970_is_a_record() -> None:
    for extractor in (None, fail_on_invalid_timestamp):
        builder = StreamsBuilder()
        builder.stream("in", timestamp_extractor=extractor).to("out")
        made = TestDriver(builder.build(key_serde="string", value_serde="long"))
        made.input_topic("in").pipe("k", 9, 0)
        assert [each.timestamp for each in made.output_topic("out").read_records()] == [0]
        with pytest.raises(StreamsError, match="invalid timestamp"):
            made.input_topic("in").pipe("k", 9, -1)


def test_a_record_that_waits_for_its_table_is_joined_when_its_grace_is_over() -> None:
    builder = StreamsBuilder()
    table = builder.table("t", materialized=Materialized.as_(_versioned()))
    builder.stream("s").join(table, lambda ours, theirs: f"{ours}{theirs}", grace=10).to("out")
    made = TestDriver(builder.build(key_serde="string", value_serde="string"))
    stream, rows, out = made.input_topic("s"), made.input_topic("t"), made.output_topic("out")
    rows.pipe("k", "A", 0)
    stream.pipe("k", "1", 5)
    assert out.read_values() == []
    # The row of that time comes later, and is the one that counts.
    rows.pipe("k", "B", 4)
    stream.pipe("k", "2", 14)
    assert out.read_values() == []
    stream.pipe("k", "3", 15)
    assert out.read_values() == ["1B"]


def _versioned() -> Any:
    from ottla.streams import stores

    return stores.versioned("rows", 1000)
