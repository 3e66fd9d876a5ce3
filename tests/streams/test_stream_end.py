"""Where a stream ends: printed, split, closed; and what a function that returns nothing is told."""

import io
from typing import Any

import pytest

from ottla.streams import Processor, StreamsBuilder, StreamsError, TestDriver, serdes
from ottla.streams.application import Application


def built(b: StreamsBuilder) -> Application:
    return b.build(application_id="app", key_serde="string", value_serde="string")


def test_a_stream_is_printed_with_its_label_or_its_nodes_name() -> None:
    b = StreamsBuilder()
    out = io.StringIO()
    stream = b.stream("in", name="src")
    stream.print("label", out)
    stream.print(file=out)
    stream.map_values(str.upper, name="loud").print("", out)
    TestDriver(built(b)).input_topic("in").pipe_all([("k", "v"), (None, "w")])
    assert out.getvalue() == ("[label]: k, v\n[src]: k, v\n[]: k, V\n[label]: None, w\n[src]: None, w\n[]: None, W\n")


def test_a_stream_is_printed_to_standard_output_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    b = StreamsBuilder()
    b.stream("in", name="src").print()
    TestDriver(built(b)).input_topic("in").pipe("k", "v")
    assert capsys.readouterr().out == "[src]: k, v\n"


def test_records_that_no_branch_takes_are_dropped() -> None:
    b = StreamsBuilder()
    split = b.stream("in").split("by-").branch(lambda key, value: value == "a").branch(lambda key, value: value == "b")
    branches = split.no_default_branch()
    assert list(branches) == ["by-1", "by-2"]
    for name, stream in branches.items():
        stream.to(name)
    driver = TestDriver(built(b))
    driver.input_topic("in").pipe_all([("k", "a"), ("k", "c"), ("k", "b")])
    assert {topic: [each.value for each in some] for topic, some in driver.take_produced().items()} == {
        "by-1": [b"a"],
        "by-2": [b"b"],
    }


def test_a_function_that_returns_nothing_for_a_flat_map_is_told() -> None:
    b = StreamsBuilder()
    b.stream("in").flat_map(lambda key, value: None).to("out")  # type: ignore[arg-type, return-value]
    with pytest.raises(StreamsError, match=r"the function of flat_map returned None \(expected pairs: key, value\)"):
        TestDriver(built(b)).input_topic("in").pipe("k", "v")


def test_a_message_of_protobuf_is_in_confluents_form_if_it_has_an_id() -> None:
    from google.protobuf.struct_pb2 import Value

    for schema_id, head in ((None, b""), (7, b"\0\0\0\0\x07")):
        serde = serdes.protobuf(Value, schema_id=schema_id)
        data = serde.serialize("t", Value(bool_value=True))
        assert data.startswith(head) and data.endswith(b"\x20\x01")
        assert (len(data) > 2) is bool(head)
        assert serde.deserialize("t", data) == Value(bool_value=True)


def test_a_processor_is_closed_with_its_task() -> None:
    told: list[str] = []

    class Closing(Processor):
        def close(self) -> None:
            told.append("closed")

    class Bare:
        def process(self, record: Any) -> None: ...

    b = StreamsBuilder()
    b.stream("in").process(Closing)
    b.stream("other").process(Bare)
    b.stream("third").process_values(Closing)
    driver = TestDriver(built(b))
    assert told == []
    driver.close()
    assert told == ["closed", "closed"]
