"""Topologies that are put together by hand: what is refused, how nodes are grouped, and what a task then says."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ottla.flow.engine import Settings, Task
from ottla.flow.error import SerdeError
from ottla.flow.plan import Plan
from ottla.flow.record import Input
from ottla.flow.runner import Runner
from ottla.flow.serde import LONG, STRING, Serde, WrappingSerde
from ottla.flow.topology import InternalTopic
from ottla.streams import (
    Context,
    Processor,
    PunctuationType,
    Record,
    StreamsError,
    TestDriver,
    Topology,
    TopologyError,
    stores,
)
from ottla.streams.application import Application

SEEN = stores.key_value("seen", "string", "long")
RATES = stores.key_value("rates", "string", "string")
SETTINGS = Settings("app", STRING, STRING)


class Pass(Processor):
    def process(self, record: Record) -> None:
        self.context.forward(record)


def plain() -> Topology:
    """A source, two processors, the first with a store, and a sink."""
    topology = Topology()
    topology.add_source("source", ["in", "other"])
    topology.add_processor("first", Pass, "source")
    topology.add_processor("second", Pass, "first")
    topology.add_state_store(SEEN, "first")
    topology.add_sink("sink", "out", "second")
    return topology


_REFUSED: dict[str, tuple[Callable[[Topology], object], str]] = {
    "no topic": (lambda t: t.add_source("s", []), "source s reads no topic: name at least one"),
    "a topic twice": (lambda t: t.add_source("s", "other"), "topic other has already been registered by source source"),
    "an illegal topic": (lambda t: t.add_source("s", ["a", "b c"]), "invalid topic: 'b c'"),
    "an illegal output topic": (lambda t: t.add_sink("s", "a/b", "first"), "invalid topic: 'a/b'"),
    "an illegal store": (lambda t: t.add_state_store(stores.key_value("a b")), "invalid store name: 'a b'"),
    "a source twice": (lambda t: t.add_source("source", "new"), "a node named source has already been added"),
    "a processor twice": (lambda t: t.add_processor("first", Pass, "source"), "a node named first has already been"),
    "a sink twice": (lambda t: t.add_sink("sink", "new", "second"), "a node named sink has already been added"),
    "a name of two kinds": (lambda t: t.add_sink("source", "new", "second"), "a node named source has already been"),
    "no parent": (lambda t: t.add_processor("p", Pass), "node p has no parent: name at least one"),
    "a sink without parent": (lambda t: t.add_sink("s", "new"), "node s has no parent: name at least one"),
    "an unknown parent": (lambda t: t.add_processor("p", Pass, "first", "nobody"), "parent nobody of node p has not"),
    "itself as parent": (lambda t: t.add_processor("p", Pass, "p"), "parent p of node p has not been added yet"),
    "a sink as parent": (lambda t: t.add_processor("p", Pass, "sink"), "sink sink cannot be the parent of node p"),
    "another store": (
        lambda t: t.add_state_store(stores.key_value("seen", "string", "string")),
        "a different state store named seen has already been added",
    ),
    "a store of no processor": (
        lambda t: t.connect_processor_and_state_stores("nobody", "seen"),
        "processor nobody has not been added",
    ),
    "a store of a sink": (
        lambda t: t.connect_processor_and_state_stores("sink", "seen"),
        "processor sink has not been added",
    ),
    "no such store": (
        lambda t: t.connect_processor_and_state_stores("second", "seen", "lost"),
        "state store lost has not been added",
    ),
    "a global store twice": (
        lambda t: t.add_global_store(SEEN, "globals", "rates", "keep", Pass),
        "a state store named seen has already been added",
    ),
    "a serde": (lambda t: t.add_source("s", "new", key_serde="strng"), "unknown serde: 'strng'"),
    "a reset": (
        lambda t: t.add_source("s", "new", offset_reset="first"),
        "invalid offset_reset: 'first'",
    ),
    "a reset by no duration": (
        lambda t: t.add_source("s", "new", offset_reset="by_duration:1h"),
        "invalid offset_reset: 'by_duration:1h' .expected earliest, latest, none, or by_duration: and a duration",
    ),
    "a reset by less than nothing": (
        lambda t: t.add_source("s", "new", offset_reset="by_duration:-PT1S"),
        "invalid offset_reset: 'by_duration:-PT1S'",
    ),
}


@pytest.mark.parametrize("name", _REFUSED)
def test_a_step_that_cannot_be_is_refused_at_its_line(name: str) -> None:
    add, told = _REFUSED[name]
    topology = plain()
    with pytest.raises(TopologyError, match=rf"{told}.*\(.*test_topology\.py:\d+\)"):
        add(topology)


@pytest.mark.parametrize("reset", ["earliest", "latest", "none", "by_duration:PT0S", "by_duration:P1DT2H"])
def test_a_source_starts_where_its_reset_says(reset: str) -> None:
    assert Topology().add_source("s", "in", offset_reset=reset).sources["s"].reset == reset


def test_a_store_may_be_added_again_if_it_is_equal_and_connected_twice() -> None:
    topology = plain()
    topology.add_state_store(stores.key_value("seen", "string", "long"), "second", "second")
    assert [topology.processors[name].stores for name in ("first", "second")] == [["seen"], ["seen"]]


def test_a_global_store_is_open_to_all_and_connected_to_none() -> None:
    topology = plain()
    topology.add_global_store(RATES, "globals", "rates-topic", "keep", Pass)
    topology.connect_processor_and_state_stores("second", "rates", "seen")
    assert topology.processors["second"].stores == ["seen"]
    assert topology.processors["keep"].stores == ["rates"]
    groups = topology.subtopologies()
    assert [(group.number, group.nodes, group.is_global) for group in groups] == [
        (0, ("source", "first", "second", "sink"), False),
        (1, ("globals", "keep"), True),
    ]
    assert topology.describe() == (
        "Topologies:\n"
        "   Sub-topology: 0\n"
        "    Source: source (topics: [other, in])\n"
        "      --> first\n"
        "    Processor: first (stores: [seen])\n"
        "      --> second\n"
        "      <-- source\n"
        "    Processor: second (stores: [seen])\n"
        "      --> sink\n"
        "      <-- first\n"
        "    Sink: sink (topic: out)\n"
        "      <-- second\n\n"
        "  Sub-topology: 1 for global store (will not generate tasks)\n"
        "    Source: globals (topics: [rates-topic])\n"
        "      --> keep\n"
        "    Processor: keep (stores: [rates])\n"
        "      --> none\n"
        "      <-- globals\n"
    )


def test_nodes_that_share_a_store_are_one_sub_topology_and_others_are_not() -> None:
    topology = Topology()
    for name in "abc":
        topology.add_source(name, f"in-{name}").add_processor(f"p-{name}", Pass, name)
    topology.add_state_store(SEEN, "p-a", "p-c")
    assert [group.nodes for group in topology.subtopologies()] == [("a", "p-a", "c", "p-c"), ("b", "p-b")]
    assert topology.parents("p-a") == ("a",) and topology.parents("a") == () and topology.children("a") == ["p-a"]


def test_a_node_calls_its_children_in_the_order_in_which_they_were_added() -> None:
    topology = Topology()
    topology.add_source("source", "in")
    for name in ("z", "a", "m"):
        topology.add_sink(name, f"to-{name}", "source")
    assert topology.children("source") == ["z", "a", "m"]
    outputs = Task(topology, 0, 0, SETTINGS).run([Input("in", 0, 0, 5, b"k", b"v")])
    assert [output.topic for output in outputs] == ["to-z", "to-a", "to-m"]


def test_internal_topics_alone_have_the_applications_name_before_theirs() -> None:
    topology = plain()
    topology.add_internal_topic(InternalTopic("again-repartition", 3))
    assert topology.topic("again-repartition", "app") == "app-again-repartition"
    assert topology.topic("in", "app") == "in"
    assert not topology.writes_any_topic
    topology.add_sink("any", lambda key, value, context: "x", "first")
    assert topology.writes_any_topic


@pytest.mark.parametrize(
    ("partitions", "told"),
    [
        ({"a": 2, "b": 2, "c": 2}, None),
        ({"a": 2, "b": 2, "c": 3}, None),
        ({"a": 2}, None),
        ({}, None),
        ({"a": 2, "b": 3}, "a: 2, b: 3"),
        ({"b": 1, "a": 4, "c": 4}, "a: 4, b: 1"),
    ],
)
def test_topics_of_sources_that_belong_together_have_as_many_partitions(
    partitions: dict[str, int], told: str | None
) -> None:
    topology = Topology().add_source("a", "a").add_source("b", "b").add_source("c", "c")
    topology.copartition(["b", "a", "gone"], topology.sources["a"].where)
    if told is None:
        topology.check_partitions(partitions)
        return
    with pytest.raises(TopologyError, match=rf"the same number of partitions, but have {told}; call repartition\(\)"):
        topology.check_partitions(partitions)


# ---- tasks and their contexts


def driver(topology: Topology, **options: Any) -> TestDriver:
    return TestDriver(Application("app", Plan(), topology, STRING, STRING, **options))


def around(supplier: Any, *stores_: Any) -> Topology:
    topology = Topology().add_source("source", "in").add_processor("it", supplier, "source")
    for store in stores_:
        topology.add_state_store(store, "it")
    return topology.add_sink("sink", "out", "it")


def test_a_supplier_that_makes_no_processor_is_refused_with_its_line() -> None:
    with pytest.raises(
        TopologyError,
        match=r"the supplier of it returned 5 \(expected an object with process\(record\)\).*test_topology\.py:\d+",
    ):
        driver(around(lambda: 5))


def test_a_store_that_a_processor_is_not_connected_to_is_refused_with_those_that_it_has() -> None:
    class Look(Processor):
        def process(self, record: Record) -> None:
            self.context.get_state_store(record.value)

    for connected, told in (((), "none"), ((SEEN, RATES), "seen, rates")):
        topic = driver(around(Look, *connected)).input_topic("in")
        with pytest.raises(StreamsError, match=rf"it has no access to state store lost; .*\(connected: {told}\)"):
            topic.pipe("k", "lost")


def test_a_task_names_its_stores_when_it_lacks_one() -> None:
    task = Task(around(Pass, SEEN, RATES), 0, 7, SETTINGS)
    assert task.store_names == ["seen", "rates"]
    with pytest.raises(KeyError, match=r"task 0_7 has no state store lost \(it has: rates, seen\)"):
        task.store("lost")
    with pytest.raises(KeyError, match=r"task 0_0 has no state store lost \(it has: none\)"):
        Task(around(Pass), 0, 0, SETTINGS).store("lost")


def test_a_task_refuses_a_topic_that_it_does_not_read() -> None:
    task = Task(around(Pass), 0, 0, SETTINGS)
    with pytest.raises(TopologyError, match=r"task 0_0 reads no topic out \(it reads: in\)"):
        task.run([Input("out", 0, 0, 1, b"k", b"v")])
    batch = Runner(around(Pass), SETTINGS, drain="batch")
    with pytest.raises(TopologyError, match="no source reads topic out"):
        batch.run([Input("out", 0, 0, 1, b"k", b"v")])


@pytest.mark.parametrize("interval", [0, -5])
def test_a_punctuation_interval_has_at_least_a_millisecond(interval: int) -> None:
    class Tick(Processor):
        def init(self, context: Context) -> None:
            context.schedule(interval, PunctuationType.STREAM_TIME, lambda time: None)

    with pytest.raises(TopologyError, match=r"invalid punctuation interval: .*\(.*test_topology\.py:\d+\)"):
        driver(around(Tick))


def test_a_punctuator_that_fails_is_handled_as_a_record_is() -> None:
    class Tick(Processor):
        def init(self, context: Context) -> None:
            self.context = context
            context.schedule(10, PunctuationType.WALL_CLOCK_TIME, self.tick)

        def tick(self, time: int) -> None:
            assert self.context.headers() == ()
            raise LookupError(f"nothing at {time}")

        def process(self, record: Record) -> None: ...

    failing = driver(around(Tick))
    with pytest.raises(StreamsError, match=r"it \(.*\) failed on a punctuator: LookupError: nothing at 10"):
        failing.advance_wall_clock(10)


def test_the_wall_clock_of_a_task_says_when_it_is_to_be_called() -> None:
    class Tick(Processor):
        def init(self, context: Context) -> None:
            self.kept = [
                context.schedule(every, kind, lambda time: None)
                for every, kind in (
                    (30, PunctuationType.WALL_CLOCK_TIME),
                    (20, PunctuationType.WALL_CLOCK_TIME),
                    (5, PunctuationType.STREAM_TIME),
                )
            ]

        def process(self, record: Record) -> None:
            self.kept[int(record.value)].cancel()

    assert Task(around(Pass), 0, 0, SETTINGS).next_wall_clock() is None
    task = Task(around(Tick), 0, 0, SETTINGS, now=100)
    assert task.next_wall_clock() == 120
    task.run([], 125)
    assert task.next_wall_clock() == 130
    task.run([Input("in", 0, 0, 5, b"k", b"0")])
    assert task.next_wall_clock() == 140
    task.run([Input("in", 0, 1, 5, b"k", b"1")])
    assert task.next_wall_clock() is None


def test_the_wall_clock_of_a_task_never_goes_back() -> None:
    task = Task(around(Pass), 0, 0, SETTINGS, now=100)
    for now, expected in ((50, 100), (None, 100), (101, 101)):
        task.run([], now)
        assert task.now == expected


def test_a_processor_sees_its_application() -> None:
    seen: list[Any] = []

    class Look(Processor):
        def process(self, record: Record) -> None:
            context = self.context
            seen.append((context.application_id, context.task_id, context.key_serde, context.value_serde))
            seen.append((context.app_configs, context.headers(), context.cell("n", 4).value))
            context.cell("n").value += 1
            context.commit()
            context.drop()

    settings = replace(SETTINGS, value_serde=LONG, configs={"a": 1})
    task = Task(Topology().add_source("source", "in").add_processor("it", Look, "source"), 0, 3, settings)
    task.run([Input("in", 3, number, 5, b"k", bytes(8), (("h", b"1"),)) for number in range(2)])
    assert seen[:2] == [("app", "0_3", STRING, LONG), ({"a": 1}, (("h", b"1"),), 4)]
    assert seen[3][2] == 5
    assert (task.dropped, task.dropped_at) == (2, {"it": 2})
    seen[1][0]["a"] = 2
    assert settings.configs == {"a": 1}


@pytest.mark.parametrize("given", [None, "", 5, b"out"])
def test_a_topic_extractor_that_returns_no_name_is_told(given: Any) -> None:
    topology = Topology().add_source("source", "in").add_sink("sink", lambda key, value, context: given, "source")
    with pytest.raises(StreamsError, match=rf"the topic extractor of sink returned {re.escape(repr(given))}"):
        driver(topology).input_topic("in").pipe("k", "v")


@pytest.mark.parametrize(
    ("chosen", "partitions"), [(None, [None]), (2, [2]), ([2, 0, 2], [0, 2]), ((), []), ({1}, [1])]
)
def test_a_partitioner_chooses_none_one_or_several_partitions(chosen: Any, partitions: list[int | None]) -> None:
    asked: list[Any] = []

    def choose(*arguments: Any) -> Any:
        asked.append(arguments)
        return chosen

    topology = Topology().add_source("source", "in").add_sink("sink", "out", "source", partitioner=choose)
    settings = replace(SETTINGS, partitions=lambda topic: {"out": 9}[topic])
    outputs = Task(topology, 0, 0, settings).run([Input("in", 0, 0, 5, b"k", b"v")])
    assert asked == [("out", "k", "v", 9)]
    assert [(output.partition, output.partition_by) for output in outputs] == [(each, b"k") for each in partitions]


# ---- serdes of the program's own


def test_a_serde_that_only_reads_or_only_writes_says_so() -> None:
    class Half(Serde):
        name = "half"

    uses: list[Callable[[], Any]] = [lambda: Half().serialize("t", 1), lambda: Half().writer("t")(1)]
    for use in uses:
        with pytest.raises(SerdeError, match="Half does not write"):
            use()
    reads: list[Callable[[], Any]] = [lambda: Half().deserialize("t", b"1"), lambda: Half().reader("t")(b"1")]
    for read in reads:
        with pytest.raises(SerdeError, match="Half does not read"):
            read()
    assert repr(Half()) == "half"

    class Around(WrappingSerde):
        inner = None

    with pytest.raises(SerdeError, match="Around cannot take a default"):
        Around().bound(STRING)


def test_a_record_shows_its_parts_and_is_equal_to_records_only() -> None:
    record = Record("k", 1, 5, (("h", b"1"),))
    assert repr(record) == "Record('k', 1, 5, (('h', b'1'),))"
    assert record == Record("k", 1, 5, (("h", b"1"),))
    assert record not in (Record("k", 1, 6, (("h", b"1"),)), Record("k", 1, 5), ("k", 1, 5, (("h", b"1"),)))
