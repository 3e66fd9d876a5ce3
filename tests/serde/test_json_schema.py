"""JSON that keeps to a schema, in Confluent's wire format."""

from __future__ import annotations

import json
from datetime import date
from typing import Any

import pytest

from ottla.client import json_schema_deserializer, json_schema_serializer
from ottla.kernel.error import OttlaError
from ottla.streams import Handlers, StreamsBuilder, StreamsError, TestDriver, log_and_continue, serdes

SCHEMA = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "payment",
    "type": "object",
    "properties": {"card": {"type": "string"}, "amounts": {"type": "array", "items": {"minimum": 0}}},
    "required": ["card"],
}
#: What confluent-kafka 2.15 (JSONSerializer) writes of a value whose schema has the id 1.
VALUE: dict[str, Any] = {"card": "é", "amounts": [1.5]}
CONFLUENTS = b'\0\0\0\0\1{"card":"\xc3\xa9","amounts":[1.5]}'


@pytest.mark.parametrize("schema", [SCHEMA, json.dumps(SCHEMA), json.dumps(SCHEMA).encode()])
def test_values_are_what_confluents_serializer_writes(schema: Any) -> None:
    assert json_schema_serializer(schema, schema_id=1)(VALUE) == CONFLUENTS
    assert json_schema_serializer(schema)(VALUE) == CONFLUENTS[5:]
    assert json_schema_deserializer(schema, confluent=True)(CONFLUENTS) == VALUE
    assert json_schema_deserializer(confluent=True)(CONFLUENTS) == VALUE
    assert json_schema_deserializer(schema)(CONFLUENTS[5:]) == VALUE


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({"amounts": []}, 'the value does not match its schema: "card" is a required property'),
        (
            {"card": "c", "amounts": [1, -1]},
            r"the value\['amounts'\]\[1\] does not match its schema: -1 is less than",
        ),
        ([], "the value does not match its schema"),
    ],
)
def test_a_value_that_does_not_keep_to_its_schema_is_an_error_either_way(value: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        json_schema_serializer(SCHEMA)(value)
    with pytest.raises(ValueError, match=told):
        json_schema_deserializer(SCHEMA)(json.dumps(value).encode())


@pytest.mark.parametrize("value", [float("nan"), date(2026, 1, 1), {1, 2}])
def test_what_is_no_json_is_not_written(value: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        json_schema_serializer(True)(value)


def test_a_value_keeps_to_the_schema_that_it_was_written_by_and_to_the_readers() -> None:
    asked: list[int] = []

    def registry(number: int) -> Any:
        asked.append(number)
        return {"maximum": 10 * number}

    read = json_schema_deserializer({"minimum": 5}, registry=registry)
    write = {number: json_schema_serializer(True, schema_id=number) for number in (1, 2)}
    assert [read(write[1](9)), read(write[2](19)), read(write[1](10))] == [9, 19, 10]
    assert asked == [1, 2]
    for number, value in ((1, 11), (2, 21), (1, 4)):
        with pytest.raises(ValueError, match=f"the value does not match its schema: {value} is "):
            read(write[number](value))
    with pytest.raises(OttlaError, match="not in Confluent's wire format"):
        read(b"9")


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ({"type": "nope"}, '"nope" is not valid'),
        ("{", "Expecting property name"),
        (5, "5 is not of types"),
        ({"$ref": "http://127.0.0.1:1/x"}, "Retrieval is disabled"),
        ({"$ref": "#/nope"}, "does not exist"),
        ({"pattern": "("}, 'is not a "regex"'),
    ],
)
def test_what_is_no_schema_is_refused_when_it_is_given(schema: Any, told: str) -> None:
    with pytest.raises(OttlaError, match=f"invalid JSON Schema: .*{told}"):
        json_schema_serializer(schema)


def test_a_program_reads_and_writes_by_schemas() -> None:
    def program(**handlers: Any) -> TestDriver:
        builder = StreamsBuilder()
        payments = builder.stream("in", value_serde=serdes.json_schema(SCHEMA, schema_id=1))
        payments.map_values(lambda value: {**value, "card": None}).to("out", value_serde=serdes.json_schema(SCHEMA))
        payments.to("same")
        return TestDriver(builder.build(key_serde="string", handlers=Handlers(**handlers)))

    going = program(deserialization=log_and_continue, production=log_and_continue)
    going.pipe("in", b"k", CONFLUENTS, 1)
    going.pipe("in", b"k", b'\0\0\0\0\1{"card":5}', 1)
    assert [each.value for each in going.take_produced()["same"]] == [CONFLUENTS]
    assert going.dropped == 2
    with pytest.raises(StreamsError, match="does not match its schema"):
        program().pipe("in", b"k", b'\0\0\0\0\1{"card":5}', 1)
