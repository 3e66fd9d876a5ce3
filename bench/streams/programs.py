"""The programs, with Python callables, with columns, and in real-time mode.

    python -m bench.streams.programs BOOTSTRAP PROGRAM LANE APPLICATION INPUT OTHER OUTPUT

runs one on Spark until its standard input ends.
"""

import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from ottla.streams import JoinWindows, KStream, Materialized, StreamsBuilder, TimeWindows, key, left, right, value
from ottla.streams.application import Application

Lane = str
MINUTE = TimeWindows.of(timedelta(minutes=1))


def stateless(builder: StreamsBuilder, lane: Lane, source: str, other: str, output: str) -> None:
    """A filter and a function of the value."""
    stream: KStream[str, str] = builder.stream(source, key_serde="string", value_serde="string")
    if lane in ("columns", "real-time"):
        stream.filter(value.length() > 3).map_values(value.upper()).to(output)
    else:
        stream.filter(lambda key, text: len(text) > 3).map_values(lambda text: text.upper()).to(output)


def count(builder: StreamsBuilder, lane: Lane, source: str, other: str, output: str) -> None:
    """A count by key, without windows."""
    groups = builder.stream(source, key_serde="string", value_serde="string").group_by_key()
    _counted(groups, lane).to_stream().to(output, value_serde="long")


def windowed_count(builder: StreamsBuilder, lane: Lane, source: str, other: str, output: str) -> None:
    """A count by key and minute."""
    windows = builder.stream(source, key_serde="string", value_serde="string").group_by_key().windowed_by(MINUTE)
    _counted(windows, lane).to_stream().to(output, value_serde="long")


def _counted(groups: Any, lane: Lane) -> Any:
    if lane == "columns":
        return groups.count()
    longs = Materialized("counts", value_serde="long")
    return groups.aggregate(lambda: 0, lambda key, text, before: before + 1, materialized=longs)


def stream_table(builder: StreamsBuilder, lane: Lane, source: str, other: str, output: str) -> None:
    """A stream joined with a table by key."""
    joiner = left + right if lane == "columns" else lambda one, other: one + other
    builder.stream(source).join(builder.table(other), joiner).to(output)


def stream_stream(builder: StreamsBuilder, lane: Lane, source: str, other: str, output: str) -> None:
    """Two streams joined within a second."""
    windows = JoinWindows.of_time_difference_with_no_grace(timedelta(seconds=1))
    joiner = left + right if lane == "columns" else lambda one, two: one + two
    builder.stream(source).join(builder.stream(other), joiner, windows).to(output)


def table_aggregate(builder: StreamsBuilder, lane: Lane, source: str, other: str, output: str) -> None:
    """A table counted by the suffix of its keys."""
    # The keys are "key-" and seven digits.
    selector: Any = (key.substring(9, 2), value) if lane == "columns" else lambda key, text: (key[-2:], text)
    groups = builder.table(source).group_by(selector, key_serde="string", value_serde="string")
    groups.count().to_stream().to(output, key_serde="string", value_serde="long")


PROGRAMS: dict[str, Callable[[StreamsBuilder, Lane, str, str, str], None]] = {
    "stateless": stateless,
    "count": count,
    "windowed-count": windowed_count,
    "stream-table": stream_table,
    "stream-stream": stream_stream,
    "table-aggregate": table_aggregate,
}
#: The programs that have a columnar form.
IN_COLUMNS = ("stateless", "count", "windowed-count", "stream-table", "stream-stream", "table-aggregate")


def application(program: str, lane: Lane, application_id: str, source: str, other: str, output: str) -> Application:
    """A program, ready to start."""
    builder = StreamsBuilder()
    PROGRAMS[program](builder, lane, source, other, output)
    config = {"processing.guarantee": "at_least_once"} if lane == "real-time" else None
    return builder.build(application_id=application_id, key_serde="string", value_serde="string", config=config)


def main() -> None:
    """One program on Spark, as the module's docstring says."""
    import ottla.spark

    servers, program, lane, application_id, source, other, output = sys.argv[1:]
    app = application(program, lane, application_id, source, other, output)
    session = ottla.spark.session("bench", cores=2, long_running=True)
    app.start(servers, spark=session, real_time=lane == "real-time")
    print("state RUNNING", flush=True)
    sys.stdin.read()
    app.stop()
    session.stop()


if __name__ == "__main__":
    main()
