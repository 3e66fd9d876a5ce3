"""Between values and bytes: Kafka's encodings, by name or as an object.

Rules:
- Null is None on both sides and is never shown to a serde.
- Integers and doubles are Java's: big endian, 8 bytes (`long`, `double`), 4 (`integer`, `float`), 2 (`short`).
- A windowed key is the key's bytes and the start (time windows), or the end and the start (session windows), 8 bytes
  each; the time form holds no end, so its serde is told the window size.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable
from functools import partial
from json.encoder import c_make_encoder, encode_basestring  # type: ignore[attr-defined]
from typing import Any
from uuid import UUID

from ottla.flow.error import SerdeError, TopologyError
from ottla.flow.record import TIME_MAX, Window, Windowed
from ottla.flow.where import Where


class Serde:
    """A pair of functions. The topic is what Kafka gives to serializers: a registry takes the subject from it."""

    name = "serde"
    #: Classes whose values come back as the same ones.
    exact: frozenset[type] = frozenset()
    #: The type that column expressions know its values as (column/kind.py).
    column_type: Any = None

    def serialize(self, topic: str, value: Any) -> bytes:
        """Bytes of a value that is not None; SerdeError if it has no form in bytes."""
        raise SerdeError(f"{type(self).__name__} does not write")

    def deserialize(self, topic: str, data: bytes) -> Any:
        """The value; SerdeError if the bytes are none of its kind."""
        raise SerdeError(f"{type(self).__name__} does not read")

    def writer(self, topic: str) -> Callable[[Any], bytes]:
        """`serialize` for many values. Where it raises anything, `serialize` raises what it should be."""
        return partial(self.serialize, topic)

    def reader(self, topic: str) -> Callable[[bytes], Any]:
        """`deserialize` for many values, with the same rule."""
        return partial(self.deserialize, topic)

    def __repr__(self) -> str:
        return self.name


class FunctionSerde(Serde):
    """A serde made of two functions."""

    def __init__(self, name: str, write: Callable[[Any], bytes], read: Callable[[bytes], Any]) -> None:
        self.name = name
        self._write = write
        self._read = read

    def serialize(self, topic: str, value: Any) -> bytes:
        try:
            return self._write(value)
        except (TypeError, ValueError, AttributeError, struct.error) as error:
            kind = type(value).__name__
            raise SerdeError(f"the {self.name} serde cannot write {value!r} ({kind}): {error}") from error

    def deserialize(self, topic: str, data: bytes) -> Any:
        try:
            return self._read(data)
        except (TypeError, ValueError, struct.error) as error:
            raise SerdeError(f"the {self.name} serde cannot read {data[:40]!r}: {error}") from error

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Kafka's own serdes are themselves again in another process."""
        return (serde, (self.name,)) if _NAMED.get(self.name) is self else super().__reduce_ex__(protocol)

    def writer(self, topic: str) -> Callable[[Any], bytes]:
        return self._write

    def reader(self, topic: str) -> Callable[[bytes], Any]:
        return self._read


class _Text(FunctionSerde):
    """UTF-8."""

    def writer(self, topic: str) -> Callable[[Any], bytes]:
        return str.encode


def _to_bytes(value: Any) -> bytes:
    if value.__class__ is bytes:
        return value
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise TypeError("expected bytes")
    return bytes(value)


_JSON = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)
_decode_json = json.JSONDecoder().raw_decode


#: The C encoder inside of `json`, made once: `JSONEncoder.encode` makes one for each value.
_pieces: Callable[[Any, int], Iterable[str]] | None = c_make_encoder and c_make_encoder(
    *(None, _JSON.default, encode_basestring, None, ":", ",", False, False, True)
)


def _to_json(value: Any) -> bytes:
    if _pieces is not None:
        try:
            return "".join(_pieces(value, 0)).encode()
        except Exception:  # the slower way says what is wrong, also of a value that holds itself
            pass
    return _JSON.encode(value).encode()


def _from_json(data: bytes) -> Any:
    """`json.loads`, with a short way for UTF-8 without white space around it."""
    try:
        text = data.decode()
        value, end = _decode_json(text)
    except ValueError:
        return json.loads(data)
    return value if end == len(text) else json.loads(data)


def _number(name: str, form: str, kind: type) -> FunctionSerde:
    packer = struct.Struct(form)
    pack, unpack = packer.pack, packer.unpack

    def write(value: Any) -> bytes:
        if value.__class__ is kind:
            return pack(value)
        if isinstance(value, bool) or not isinstance(value, (int, kind)):
            raise TypeError(f"expected {kind.__name__}")
        return pack(value)

    def read(data: bytes) -> Any:
        return unpack(data)[0]

    return FunctionSerde(name, write, read)


def _to_boolean(value: Any) -> bytes:
    if not isinstance(value, bool):
        raise TypeError("expected bool")
    return b"\x01" if value else b"\x00"


def _from_boolean(data: bytes) -> bool:
    if data not in (b"\x00", b"\x01"):
        raise ValueError("expected one byte, 0 or 1")
    return data == b"\x01"


BYTES = FunctionSerde("bytes", _to_bytes, bytes)
STRING = _Text("string", lambda value: value.encode(), lambda data: data.decode())
JSON = FunctionSerde("json", _to_json, _from_json)
LONG = _number("long", ">q", int)
DOUBLE = _number("double", ">d", float)
_NAMED: dict[str, Serde] = {
    each.name: each
    for each in (
        BYTES,
        STRING,
        JSON,
        LONG,
        DOUBLE,
        _number("integer", ">i", int),
        _number("short", ">h", int),
        _number("float", ">f", float),
        FunctionSerde("boolean", _to_boolean, _from_boolean),
        FunctionSerde("uuid", lambda value: str(value).encode(), lambda data: UUID(data.decode())),
    )
}
for _name, _kinds in (("bytes", (bytes,)), ("string", (str,)), ("json", (str, int)), ("long", (int,)),
                      ("integer", (int,)), ("short", (int,))):  # fmt: skip
    _NAMED[_name].exact = frozenset(_kinds)
for _name in ("bytes", "string", "long", "double"):
    _NAMED[_name].column_type = _name
_NAMED |= {"str": STRING, "int": LONG}


def serde(value: Any, where: Where | None = None) -> Serde | None:
    """A serde by its name, or as it is. None stays None: the application's default. TopologyError for anything else."""
    if value is None or isinstance(value, Serde):
        return value
    if isinstance(value, str):
        if value in _NAMED:
            return _NAMED[value]
        raise TopologyError(f"unknown serde: {value!r} (expected one of {', '.join(sorted(_NAMED))})", where)
    if callable(getattr(value, "serialize", None)) and callable(getattr(value, "deserialize", None)):
        return _Foreign(value)
    raise TopologyError(
        f"invalid serde: {value!r} (expected a name, or an object with serialize and deserialize)", where
    )


class _Foreign(Serde):
    """An object with `serialize(topic, value)` and `deserialize(topic, data)`."""

    def __init__(self, inner: Any) -> None:
        self.name = type(inner).__name__
        self.serialize = inner.serialize  # type: ignore[method-assign]
        self.deserialize = inner.deserialize  # type: ignore[method-assign]


class WrappingSerde(Serde):
    """A serde around another. `inner` None takes the application's default: that of values, or of keys
    (`takes_key`).
    """

    inner: Serde | None
    takes_key = False

    def bound(self, inner: Serde) -> Serde:
        """The same with the default inside."""
        raise SerdeError(f"{type(self).__name__} cannot take a default")


class TimeWindowedSerde(WrappingSerde):
    """`key + start`. `size_ms` gives the end when reading."""

    takes_key = True

    def __init__(self, inner: Any, size_ms: int | None) -> None:
        self.inner = serde(inner)
        self.size_ms = size_ms
        self.name = f"time_windowed({self.inner or 'default'}, {size_ms})"

    def bound(self, inner: Serde) -> TimeWindowedSerde:
        return self if self.inner is not None else TimeWindowedSerde(inner, self.size_ms)

    def serialize(self, topic: str, value: Any) -> bytes:
        assert self.inner is not None
        start: int = value.window.start
        return self.inner.serialize(topic, value.key) + start.to_bytes(8, "big")

    def writer(self, topic: str) -> Callable[[Any], bytes]:
        assert self.inner is not None
        write = self.inner.writer(topic)

        def windowed(value: Any) -> bytes:
            key, window = value
            start: int = window[0]
            return write(key) + start.to_bytes(8, "big")

        return windowed

    def deserialize(self, topic: str, data: bytes) -> Any:
        assert self.inner is not None
        if self.size_ms is None:
            raise SerdeError("a time-windowed key holds no end: give the window size to the serde that reads it")
        start = int.from_bytes(data[-8:], "big")
        return Windowed(self.inner.deserialize(topic, data[:-8]), Window(start, min(start + self.size_ms, TIME_MAX)))


class SessionWindowedSerde(WrappingSerde):
    """`key + end + start`."""

    takes_key = True

    def __init__(self, inner: Any) -> None:
        self.inner = serde(inner)
        self.name = f"session_windowed({self.inner or 'default'})"

    def bound(self, inner: Serde) -> SessionWindowedSerde:
        return self if self.inner is not None else SessionWindowedSerde(inner)

    def serialize(self, topic: str, value: Any) -> bytes:
        assert self.inner is not None
        window: Window = value.window
        start, end = window
        return self.inner.serialize(topic, value.key) + end.to_bytes(8, "big") + start.to_bytes(8, "big")

    def deserialize(self, topic: str, data: bytes) -> Any:
        assert self.inner is not None
        end, start = int.from_bytes(data[-16:-8], "big"), int.from_bytes(data[-8:], "big")
        return Windowed(self.inner.deserialize(topic, data[:-16]), Window(start, end))
