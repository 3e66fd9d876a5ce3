"""Mistakes of programs that use the Processor API."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pytest

from ottla.flow.engine import Settings, Task
from ottla.flow.serde import STRING
from ottla.streams import (
    Context,
    Processor,
    PunctuationType,
    Record,
    StreamsBuilder,
    StreamsError,
    TestDriver,
    Topology,
    TopologyError,
    stores,
)


def test_a_supplier_must_make_a_processor_for_each_task() -> None:
    """Tasks that share one would write into the stores and outputs of the task that was opened last."""

    class Both(Processor):
        def transform(self, key: Any, value: Any) -> Any:
            return value

    shared = Both()
    table = StreamsBuilder().table("in")
    stream = StreamsBuilder().stream("in")
    topology = Topology().add_source("source", "in")
    store = stores.key_value("s", "string", "string")
    adds: list[Callable[[Any], Any]] = [
        stream.process,
        stream.process_values,
        table.transform_values,
        lambda supplier: topology.add_processor("it", supplier, "source"),
        lambda supplier: StreamsBuilder().add_global_store(store, "in", supplier),
        lambda supplier: Topology().add_global_store(store, "global", "in", "it", supplier),
        lambda supplier: Topology().add_read_only_state_store(store, "read", "in", "it", supplier),
    ]
    for add in adds:
        with pytest.raises(TopologyError, match=r"<lambda>\(\) returned the same object twice \(expected a new"):
            add(lambda: shared)
        add(lambda: Both())


@pytest.mark.parametrize("child", [None, "sink"])
def test_a_record_that_is_forwarded_in_init_is_refused(child: str | None) -> None:
    """The nodes downstream are not open yet: it would be lost."""

    class Early(Processor):
        def init(self, context: Context) -> None:
            context.forward(Record("k", "v", 1), child)

    topology = Topology().add_source("source", "in").add_processor("early", Early, "source")
    topology.add_processor("middle", Processor, "early").add_sink("sink", "out", "early")
    told = r"early \(.*\) forwards a record in init, before the nodes downstream are open; forward it in process"
    with pytest.raises(StreamsError, match=told):
        Task(topology, 0, 0, Settings(key_serde=STRING, value_serde=STRING))


def test_a_processor_may_keep_the_method_that_forwards() -> None:
    class Keeping(Processor):
        def init(self, context: Context) -> None:
            self.process = context.forward  # type: ignore[method-assign]

    builder = StreamsBuilder()
    builder.stream("in").process(Keeping).to("out")
    driver = TestDriver(builder.build(key_serde="string", value_serde="string"))
    driver.input_topic("in").pipe("k", "v", 1)
    assert driver.output_topic("out").read_values() == ["v"]


def test_a_punctuator_starts_at_a_time_of_numpy() -> None:
    called: list[int] = []

    class Late(Processor):
        def init(self, context: Context) -> None:
            context.schedule(2, PunctuationType.STREAM_TIME, called.append, np.int64(7))

    builder = StreamsBuilder()
    builder.stream("in").process(Late)
    topic = TestDriver(builder.build(key_serde="string", value_serde="string")).input_topic("in")
    for time in (6, 7, 9):
        topic.pipe("k", "v", time)
    assert called == [7, 9]


def test_a_punctuator_starts_at_a_datetime() -> None:
    called: list[int] = []
    start: Any = datetime(1970, 1, 1, 0, 0, 7, tzinfo=UTC)

    class Late(Processor):
        def init(self, context: Context) -> None:
            context.schedule(timedelta(seconds=2), PunctuationType.STREAM_TIME, called.append, start)

    builder = StreamsBuilder()
    builder.stream("in").process(Late)
    topic = TestDriver(builder.build(key_serde="string", value_serde="string")).input_topic("in")
    for second in range(12):
        topic.pipe("k", "v", second * 1000)
    assert called == [7000, 9000, 11000]
    start = 7.5
    with pytest.raises(TopologyError, match=r"invalid start of a punctuator: 7.5 \(expected ms since 1970 as an int"):
        TestDriver(builder.build(key_serde="string", value_serde="string"))
