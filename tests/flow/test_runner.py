"""How many tasks a topology has, in which order they run, and what of their output comes back to them."""

from typing import Any

import pytest

from ottla.flow.engine import Settings
from ottla.flow.error import TopologyError
from ottla.flow.record import Input, Output
from ottla.flow.runner import Runner
from ottla.flow.serde import STRING
from ottla.flow.topology import Topology
from ottla.streams import Context, Processor, PunctuationType, Record, StreamsBuilder

SETTINGS = Settings("app", STRING, STRING)


class Pass(Processor):
    def process(self, record: Record) -> None:
        self.context.forward(record)


class Tick(Pass):
    def init(self, context: Context) -> None:
        super().init(context)
        context.schedule(10, PunctuationType.WALL_CLOCK_TIME, self.tick)

    def tick(self, time: int) -> None:
        self.context.forward(Record("tick", str(time), time))


def back_and_forth(kind: type[Processor]) -> Topology:
    """The first sub-topology writes to the second's topic; the second writes out."""
    topology = Topology()
    topology.add_source("a", "in")
    topology.add_processor("p", kind, "a")
    topology.add_sink("to middle", "middle", "p")
    topology.add_source("b", "middle")
    topology.add_processor("q", Pass, "b")
    topology.add_sink("to out", "out", "q")
    return topology


def grouped(partitions: int | None = None) -> Topology:
    """Two topics into one, grouped by another key: a sub-topology that writes a topic and one that reads it."""
    builder = StreamsBuilder()
    both = builder.stream("one").merge(builder.stream("two")).select_key(lambda key, value: value)
    both.repartition(name="again", partitions=partitions).to("out")
    return builder.build("app", key_serde="string", value_serde="string").topology


def texts(outputs: list[Output], topic: str) -> list[bytes | None]:
    return [output.value for output in outputs if output.topic == topic]


@pytest.mark.parametrize(
    ("partitions", "given", "tasks"),
    [
        ({}, None, ["0_0", "1_0"]),
        ({"one": 2}, None, ["0_0", "0_1", "1_0", "1_1"]),
        ({"one": 2, "two": 3}, None, ["0_0", "0_1", "0_2", "1_0", "1_1", "1_2"]),
        ({"one": 3, "two": 2}, None, ["0_0", "0_1", "0_2", "1_0", "1_1", "1_2"]),
        ({"one": 2}, 1, ["0_0", "0_1", "1_0"]),
        ({"one": 1}, 2, ["0_0", "1_0", "1_1"]),
    ],
)
def test_a_sub_topology_has_a_task_for_each_partition_of_its_largest_topic(
    partitions: dict[str, int], given: int | None, tasks: list[str]
) -> None:
    runner = Runner(grouped(given), SETTINGS, partitions=partitions, drain="batch")
    assert list(runner.tasks) == tasks
    with pytest.raises(TopologyError, match="no source reads topic elsewhere"):
        runner.run([Input("elsewhere", 0, 0, 1, b"k", b"v")])


def test_the_tasks_that_write_a_topic_run_before_those_that_read_it_whatever_their_numbers() -> None:
    topology = Topology()
    topology.add_source("c", "late")
    topology.add_processor("r", Pass, "c")
    topology.add_sink("to out", "out", "r")
    topology.add_source("b", "middle")
    topology.add_processor("q", Pass, "b")
    topology.add_sink("to late", "late", "q")
    topology.add_source("a", "in")
    topology.add_processor("p", Pass, "a")
    topology.add_sink("to middle", "middle", "p")
    runner = Runner(topology, SETTINGS, drain="batch")
    assert list(runner.tasks) == ["2_0", "1_0", "0_0"]
    assert texts(runner.run([Input("in", 0, 0, 1, b"k", b"v")]), "out") == [b"v"]


@pytest.mark.parametrize("drain", ["record", "batch"])
def test_what_a_punctuator_writes_to_a_topic_that_the_program_reads_is_processed_at_once(drain: Any) -> None:
    runner = Runner(back_and_forth(Tick), SETTINGS, drain=drain)
    assert texts(runner.run([Input("in", 0, 0, 1, b"k", b"v")], 5), "out") == [b"v"]
    assert texts(runner.run([], 10), "out") == [b"10"]
    assert runner.run([], 7) == [], "the clock never goes back"
    assert runner.now == 10
    assert texts(runner.run([], 20), "out") == [b"20"]


@pytest.mark.parametrize("drain", ["record", "batch"])
def test_the_records_of_a_global_table_are_its_own_alone(drain: Any) -> None:
    builder = StreamsBuilder()
    rates = builder.global_table("rates")
    joined = builder.stream("in").join(
        rates, lambda value, rate: f"{value}x{rate}", key_selector=lambda key, value: key
    )
    joined.to("out")
    topology = builder.build("app", key_serde="string", value_serde="string").topology
    runner = Runner(topology, SETTINGS, drain=drain)
    outputs = runner.run([Input("in", 0, 0, 1, b"k", b"v"), Input("rates", 0, 0, 1, b"k", b"2")])
    assert texts(outputs, "out") == [b"vx2"]
    assert "global" in runner.state()
