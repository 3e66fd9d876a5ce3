"""What an error handler's decision becomes: the dead letters that are written, and the error that stops the task."""

from dataclasses import replace
from typing import Any

import pytest

from ottla.flow.failure import failure_of
from ottla.flow.handler import ErrorContext, Handlers, Response, log_and_continue, log_and_fail
from ottla.flow.record import Output
from ottla.streams import StreamsBuilder

OWN = Output("mine", b"k", b"v", 1)


def context(node: str = "node", topic: str | None = "in", timestamp: int = 5) -> ErrorContext:
    return ErrorContext("0_0", node, topic, 0, 7, timestamp, (("h", b"1"),), b"raw key", b"raw value")


@pytest.mark.parametrize(
    ("topic", "response", "written"),
    [
        (None, Response.resume(), []),
        (None, Response.resume(OWN), ["mine"]),
        ("dead", Response.resume(), ["dead"]),
        ("dead", Response.fail(), ["dead"]),
        ("dead", Response.resume(OWN), ["mine"]),
        ("dead", Response.fail(OWN), ["mine"]),
    ],
)
def test_a_response_without_dead_letters_gets_one_if_there_is_a_topic(
    topic: str | None, response: Response, written: list[str]
) -> None:
    given = Handlers(dead_letter_topic=topic).respond(lambda context, error: response, context(), ValueError("no"))
    assert given.action is response.action
    assert [letter.topic for letter in given.dead_letters] == written


@pytest.mark.parametrize(("timestamp", "written"), [(-1, 0), (0, 0), (5, 5)])
def test_a_dead_letter_of_a_record_without_a_time_has_a_time_that_a_topic_takes(timestamp: int, written: int) -> None:
    handlers = Handlers(dead_letter_topic="dead")
    (letter,) = handlers.respond(log_and_continue, context(timestamp=timestamp), ValueError("no")).dead_letters
    assert (letter.timestamp, letter.key, letter.value) == (written, b"raw key", b"raw value")
    assert letter.headers[0] == ("h", b"1")


@pytest.mark.parametrize("kind", ["deserialization", "processing", "production"])
@pytest.mark.parametrize(
    ("handler", "own"), [(log_and_fail, False), (log_and_continue, False), (lambda context, error: None, True)]
)
def test_only_a_handler_of_the_programs_own_may_write_to_any_topic(kind: str, handler: Any, own: bool) -> None:
    assert Handlers(**{kind: handler}).write_any_topic is own


def test_the_error_of_a_source_alone_says_how_to_skip_what_cannot_be_read() -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    topology = builder.build("app", key_serde="string", value_serde="string").topology
    (source,), (sink,) = topology.sources, topology.sinks
    hint = "; Handlers(deserialization=log_and_continue, dead_letter_topic=...) skips such records"
    for node, hinted in ((source, True), (sink, False), ("another", False)):
        text = str(failure_of(topology, context(node), ValueError("no")))
        assert text.endswith(f"failed on in-0 at offset 7: ValueError: no{hint if hinted else ''}")
    punctuator = replace(context(sink, topic=None), raw_key=None, raw_value=None)
    assert "failed on a punctuator: " in str(failure_of(topology, punctuator, ValueError("no")))
    output = replace(context(sink, topic=None), record=Output("out", None, None, 0))
    assert "failed on an output to out: " in str(failure_of(topology, output, ValueError("no")))
