"""Kafka Streams' DSL and Processor API in Python.

    from datetime import timedelta
    from ottla.streams import StreamsBuilder, TimeWindows

    builder = StreamsBuilder()
    payments = builder.stream("payments", key_serde="string", value_serde="json")
    (
        payments.group_by_key()
        .windowed_by(TimeWindows.of(timedelta(minutes=5)).grace(timedelta(minutes=1)))
        .count(name="payments-per-card")
        .to_stream()
        .filter(lambda card, count: count > 10)
        .to("suspicious")
    )
    app = builder.build(application_id="fraud")

Names and semantics are those of Kafka Streams 4.3, spelled in snake_case. The classes here only record a plan
(`ottla.flow.plan`); `ottla.flow` executes it. Read `builder.py`, `stream.py` and `table.py`, then `driver.py` for
tests.
"""

from ottla.flow.column.batch import batch
from ottla.flow.column.expression import Expression, col, key, left, lit, right, struct, timestamp, value
from ottla.flow.error import SerdeError, StreamsError, TopologyError
from ottla.flow.handler import (
    Action,
    ErrorContext,
    ErrorResponse,
    Handlers,
    Response,
    State,
    log_and_continue,
    log_and_fail,
)
from ottla.flow.plan import Plan
from ottla.flow.processor import Context, Processor, PunctuationType
from ottla.flow.record import FixedKeyRecord, Output, Record, RecordContext, ValueAndTimestamp, Window, Windowed
from ottla.flow.serde import Serde, SessionWindowedSerde, TimeWindowedSerde
from ottla.flow.task.receive import (
    fail_on_invalid_timestamp,
    log_and_skip_on_invalid_timestamp,
    use_partition_time_on_invalid_timestamp,
    wallclock_timestamp,
)
from ottla.flow.topology import Topology
from ottla.flow.window import JoinWindows, SessionWindows, SlidingWindows, TimeWindows, UnlimitedWindows, Windows
from ottla.streams import serdes, stores
from ottla.streams.application import Application
from ottla.streams.builder import StreamsBuilder
from ottla.streams.driver import TestDriver
from ottla.streams.option import (
    Branched,
    BufferConfig,
    Consumed,
    EmitStrategy,
    Grouped,
    Joined,
    Materialized,
    Produced,
    Repartitioned,
    StreamJoined,
    Suppressed,
    TableJoined,
)
from ottla.streams.stream import KStream
from ottla.streams.table import GlobalKTable, KTable

__all__ = [
    "col",
    "key",
    "value",
    "timestamp",
    "left",
    "right",
    "lit",
    "struct",
    "batch",
    "Expression",
    "StreamsBuilder",
    "KStream",
    "KTable",
    "GlobalKTable",
    "Application",
    "State",
    "ErrorResponse",
    "Output",
    "Plan",
    "Topology",
    "TestDriver",
    "TimeWindows",
    "SlidingWindows",
    "SessionWindows",
    "UnlimitedWindows",
    "JoinWindows",
    "Consumed",
    "Produced",
    "Grouped",
    "Joined",
    "StreamJoined",
    "TableJoined",
    "Repartitioned",
    "Materialized",
    "Suppressed",
    "BufferConfig",
    "EmitStrategy",
    "Branched",
    "stores",
    "serdes",
    "Serde",
    "TimeWindowedSerde",
    "SessionWindowedSerde",
    "Record",
    "FixedKeyRecord",
    "RecordContext",
    "ValueAndTimestamp",
    "Window",
    "Windowed",
    "Windows",
    "Processor",
    "Context",
    "PunctuationType",
    "Handlers",
    "Response",
    "Action",
    "ErrorContext",
    "log_and_fail",
    "log_and_continue",
    "fail_on_invalid_timestamp",
    "log_and_skip_on_invalid_timestamp",
    "use_partition_time_on_invalid_timestamp",
    "wallclock_timestamp",
    "TopologyError",
    "StreamsError",
    "SerdeError",
]
