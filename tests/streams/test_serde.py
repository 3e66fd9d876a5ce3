"""Serdes: Java's encodings, classes, functions, Avro and Protobuf."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest
from google.protobuf.struct_pb2 import Value

from ottla.flow.record import TIME_MAX, Window, Windowed
from ottla.flow.serde import Serde, serde
from ottla.streams import SerdeError, StreamsBuilder, TestDriver, TimeWindowedSerde, TopologyError, serdes


@dataclass(frozen=True)
class Place:
    city: str
    zip: int


@dataclass(frozen=True)
class Person:
    name: str
    home: Place | None
    work: Place


_SCHEMA = {"type": "record", "name": "P", "fields": [{"name": "n", "type": "int"}]}
_UUID = UUID("12345678-1234-5678-1234-567812345678")


@pytest.mark.parametrize(
    ("kind", "value", "data"),
    [
        ("bytes", b"\x00\x01", b"\x00\x01"),
        ("string", "é", "é".encode()),
        ("json", {"a": [1, None]}, b'{"a":[1,null]}'),
        ("long", -2, b"\xff" * 7 + b"\xfe"),
        ("integer", 1, b"\x00\x00\x00\x01"),
        ("short", 1, b"\x00\x01"),
        ("double", 1.5, b"\x3f\xf8" + bytes(6)),
        ("float", 1.5, b"\x3f\xc0\x00\x00"),
        ("boolean", True, b"\x01"),
        ("uuid", _UUID, str(_UUID).encode()),
        (serdes.time_windowed("string", 10), Windowed("k", Window(10, 20)), b"k" + (10).to_bytes(8, "big")),
        (
            serdes.session_windowed("string"),
            Windowed("k", Window(1, 2)),
            b"k" + (2).to_bytes(8, "big") + (1).to_bytes(8, "big"),
        ),
        (serdes.avro(_SCHEMA), {"n": 1}, b"\x02"),
        (serdes.avro(_SCHEMA, schema_id=7, registry={7: _SCHEMA}.get), {"n": 1}, b"\x00\x00\x00\x00\x07\x02"),
        (serdes.protobuf(Value), Value(bool_value=True), b"\x20\x01"),
        (serdes.of_functions("text", lambda value: b"x" * value, len), 3, b"xxx"),
    ],
)
def test_values_have_kafkas_bytes(kind: Any, value: Any, data: bytes) -> None:
    made = serde(kind)
    assert made is not None
    assert made.serialize("t", value) == data
    assert made.deserialize("t", data) == value


def test_classes_come_back_as_themselves() -> None:
    person = Person("ada", None, Place("x", 5))
    made = serdes.of_class(Person)
    data = made.serialize("t", person)
    assert data == b'{"name":"ada","home":null,"work":{"city":"x","zip":5}}'
    assert made.deserialize("t", data) == person
    with pytest.raises(SerdeError, match="expected Person"):
        made.serialize("t", "ada")
    with pytest.raises(TopologyError, match="expected a dataclass or a Pydantic model"):
        serdes.of_class(int)
    with pytest.raises(TopologyError, match=r"for a class: serdes\.of_class\(Person\)"):
        StreamsBuilder().stream("people", value_serde=Person)


@dataclass(frozen=True)
class Atlas:
    towns: list[Place]
    capital: Place | None
    route: tuple[Place, ...]
    by_name: dict[str, Place | None]
    size: tuple[int, int]
    labels: tuple  # type: ignore[type-arg]
    other: Any = None


def test_dataclasses_within_are_restored() -> None:
    one, two = Place("Brno", 60200), Place("Most", 43401)
    atlas = Atlas([one, two], one, (two, one), {"m": two, "n": None}, (1, 2), ("a",), [{"n": 1}])
    made = serdes.of_class(Atlas)
    assert made.deserialize("t", made.serialize("t", atlas)) == atlas
    with pytest.raises(SerdeError, match="expected an object for Place"):
        made.deserialize("t", b'{"towns":["Brno"]}')


@pytest.mark.parametrize(
    ("kind", "data", "value"),
    [
        ("json", b" [1] \n", [1]),
        ("json", "\ufeff1".encode("utf-16"), None),
        ("json", '"é"'.encode("utf-16-le"), "é"),
        ("json", b"1 2", None),
        ("json", b"{} x", None),
        ("json", b"", None),
        ("boolean", b"\x01", True),
        ("boolean", b"\x02", None),
        ("boolean", b"", None),
        ("boolean", b"\x00\x00", None),
        ("long", bytes(7), None),
        ("uuid", b"1234", None),
    ],
)
def test_bytes_are_a_value_as_a_whole_or_none(kind: str, data: bytes, value: Any) -> None:
    made = serde(kind)
    assert made is not None
    if value is None:
        with pytest.raises(SerdeError, match=f"the {kind} serde cannot read"):
            made.deserialize("t", data)
    else:
        assert made.deserialize("t", data) == value


def test_a_window_at_the_end_of_time_ends_there() -> None:
    start = TIME_MAX - 3
    made = serdes.time_windowed("string", 10)
    assert made.deserialize("t", b"k" + start.to_bytes(8, "big")) == Windowed("k", Window(start, TIME_MAX))


@pytest.mark.parametrize(
    ("kind", "value", "told"),
    [
        ("long", "5", "cannot write '5' .str.: expected int"),
        ("long", True, "cannot write True .bool."),
        ("integer", 1 << 40, "cannot write"),
        ("boolean", 1, "expected bool"),
        ("bytes", "text", "expected bytes"),
        ("json", {1, 2}, "cannot write"),
    ],
)
def test_a_value_of_another_kind_is_refused(kind: str, value: Any, told: str) -> None:
    made = serde(kind)
    assert made is not None
    with pytest.raises(SerdeError, match=told):
        made.serialize("t", value)


def test_bytes_of_another_kind_are_refused() -> None:
    for kind in ("long", "integer", "double", "boolean", "json", "uuid", "string"):
        made = serde(kind)
        assert made is not None
        with pytest.raises(SerdeError, match=f"the {kind} serde cannot read"):
            made.deserialize("t", b"\xff\xfe\xfd")
    unsized = TimeWindowedSerde("string", None)
    with pytest.raises(SerdeError, match="without its window size"):
        unsized.deserialize("t", bytes(9))


@pytest.mark.parametrize(
    "data", [b"k", b"1234567", b"k" + (-1).to_bytes(8, "big", signed=True), b"\xff" * 9], ids=lambda data: repr(data)
)
def test_a_key_that_has_no_window_is_refused(data: bytes) -> None:
    times, sessions = serdes.time_windowed("string", 10), serdes.session_windowed("string")
    with pytest.raises(SerdeError, match="is no key of a time window"):
        times.deserialize("t", data)
    for key in (data, b"\0" * 15, b"k" + (4).to_bytes(8, "big") + (5).to_bytes(8, "big")):
        with pytest.raises(SerdeError, match="is no key of a session"):
            sessions.deserialize("t", key)
    assert times.deserialize("t", b"") is sessions.deserialize("t", b"") is None, "an empty key is null, as in Kafka"
    assert sessions.deserialize("t", bytes(16)) == Windowed("", Window(0, 0))
    assert times.deserialize("t", bytes(8)) == Windowed("", Window(0, 10))


def test_an_object_of_the_programs_own_is_a_serde() -> None:
    class Upper:
        def serialize(self, topic: str, value: str) -> bytes:
            return f"{topic}:{value}".encode()

        def deserialize(self, topic: str, data: bytes) -> str:
            return data.decode().upper()

    builder = StreamsBuilder()
    builder.stream("in", key_serde="string", value_serde=Upper()).to("out")
    driver = TestDriver(builder.build())
    driver.pipe("in", b"k", b"v", 0)
    ((_, value, *_),) = [(each.key, each.value) for each in driver.take_produced()["out"]]
    assert value == b"out:V"
    assert isinstance(serde("string"), Serde)
