"""`emit="every"`: each lane emits every change of a table, also of a key that occurs many times in one batch."""

from collections.abc import Callable
from typing import Any

import pytest

from ottla.flow.record import Input
from ottla.flow.runner import Runner
from ottla.streams import (
    BufferConfig,
    KTable,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
    TopologyError,
    Window,
    Windows,
    left,
    right,
    value,
)
from ottla.streams.application import Application
from tests.flow.columns import ColumnRunner

COUNT = 60
_HOUR = 3_600_000
Build = Callable[[StreamsBuilder], KTable[Any, Any]]


def stream(builder: StreamsBuilder) -> Any:
    return builder.stream("in", key_serde="string", value_serde="long")


def grouped(builder: StreamsBuilder) -> Any:
    return stream(builder).group_by_key()


def table(builder: StreamsBuilder) -> Any:
    return builder.table("in", key_serde="string", value_serde="long", materialized="rows")


class Hours(Windows):
    size_ms = _HOUR

    def windows_for(self, timestamp: int) -> list[Window]:
        start = timestamp // _HOUR * _HOUR
        return [Window(start, start + _HOUR)]


#: Each program, and whether its outputs come as columns.
_TABLES: dict[str, tuple[Build, bool]] = {
    "a Python callable": (lambda b: grouped(b).aggregate(int, lambda key, value, old: old + value), False),
    "count": (lambda b: grouped(b).count(), True),
    "sum": (lambda b: grouped(b).sum(value), True),
    "count in windows": (lambda b: grouped(b).windowed_by(TimeWindows.of(_HOUR)).count(), True),
    "count in windows of the program's own": (lambda b: grouped(b).windowed_by(Hours()).count(), False),
    "topic as a table": (table, True),
    "stream as a table": (lambda b: stream(b).to_table(), True),
    "filter of a table": (lambda b: table(b).filter(value > 0), True),
    "aggregate of a table": (
        lambda b: table(b).group_by((value.cast("string"), value)).reduce(left + right, left - right),
        True,
    ),
    "join of a table with itself": (lambda b: (lambda rows: rows.join(rows.filter(value > 0), max))(table(b)), False),
}


def build(program: Build) -> Application:
    builder = StreamsBuilder()
    program(builder).to_stream().to("out")
    return builder.build("app", key_serde="string", value_serde="long", emit="every")


@pytest.mark.parametrize("name", _TABLES)
def test_every_change_of_a_key_in_one_batch_is_emitted(name: str) -> None:
    program, columns = _TABLES[name]
    application = build(program)
    given = [Input("in", 0, offset, offset, b"k", (offset + 1).to_bytes(8, "big")) for offset in range(COUNT)]
    runner = ColumnRunner(application.topology, application.settings)
    emitted = [each for each in runner.run(list(given)) if each.topic == "out"]
    single = Runner(application.topology, application.settings, drain="batch")
    assert emitted == [each for record in given for each in single.run([record]) if each.topic == "out"]
    assert len(emitted) >= COUNT
    assert bool(runner.columns) is columns


def test_other_values_of_emit_are_refused() -> None:
    builder = StreamsBuilder()
    table(builder)
    with pytest.raises(
        TopologyError, match=r"invalid emit: 'latest' \(expected 'every'; .*suppress.*test_every_change"
    ):
        builder.build(emit="latest")  # type: ignore[arg-type]


def test_explain_tells_which_changes_a_table_emits() -> None:
    suppressed = Suppressed.until_time_limit(5, BufferConfig.unbounded())
    explained = build(lambda b: grouped(b).count().suppress(suppressed)).explain()
    assert "partitioned by key; every change\n" in explained
    assert "partitioned by key; the last change of those it holds back\n" in explained
