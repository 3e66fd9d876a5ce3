"""Serdes, which convert between values and bytes in Kafka's encodings.

Rules:
- Null is None on both sides and never reaches a serde.
- Integers and doubles are Java's: big endian, 8 bytes (`long`, `double`), 4 (`integer`, `float`), 2 (`short`).
- A windowed key is the key's bytes and the start (time windows), or the end and the start (session windows), 8 bytes
  each. The time form holds no end, so its serde needs the window size.
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
    """A serializer and a deserializer. A schema registry derives the subject from `topic`."""

    name = "serde"
    #: Classes whose values are equal, and of the same class, after a round trip.
    exact: frozenset[type] = frozenset()
    #: The type of its values in column expressions (column/kind.py), or None.
    column_type: Any = None

    def serialize(self, topic: str, value: Any) -> bytes:
        """The bytes of a value that is not None. SerdeError if the serde cannot write it."""
        raise SerdeError(f"{type(self).__name__} does not write")

    def deserialize(self, topic: str, data: bytes) -> Any:
        """The value of these bytes. SerdeError if the serde cannot read them."""
        raise SerdeError(f"{type(self).__name__} does not read")

    def writer(self, topic: str) -> Callable[[Any], bytes]:
        """A fast `serialize` for many values. If it raises, call `serialize` for the proper error."""
        return partial(self.serialize, topic)

    def reader(self, topic: str) -> Callable[[bytes], Any]:
        """A fast `deserialize` for many values. If it raises, call `deserialize` for the proper error."""
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
        """Pickle built-in serdes by name, so that they keep their identity in another process."""
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


#: The C encoder inside `json`, made once; `JSONEncoder.encode` makes one for each value.
_pieces: Callable[[Any, int], Iterable[str]] | None = c_make_encoder and c_make_encoder(
    *(None, _JSON.default, encode_basestring, None, ":", ",", False, False, True)
)


def _to_json(value: Any) -> bytes:
    if _pieces is not None:
        try:
            return "".join(_pieces(value, 0)).encode()
        except Exception:  # the slow path below raises the proper error, also for circular values
            pass
    return _JSON.encode(value).encode()


def _from_json(data: bytes) -> Any:
    """`json.loads`, with a fast path for UTF-8 without surrounding whitespace."""
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
    named_serde.name: named_serde
    for named_serde in (
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
    """The serde for a name or a serde object. None (the application's default) stays None. TopologyError otherwise."""
    if value is None or isinstance(value, Serde):
        return value
    if isinstance(value, str):
        if value in _NAMED:
            return _NAMED[value]
        raise TopologyError(f"unknown serde: {value!r} (expected one of {', '.join(sorted(_NAMED))})", where)
    if callable(getattr(value, "serialize", None)) and callable(getattr(value, "deserialize", None)):
        return _Foreign(value)
    hint = f"; for a class: serdes.of_class({value.__name__})" if isinstance(value, type) else ""
    raise TopologyError(
        f"invalid serde: {value!r} (expected a name, or an object with serialize and deserialize{hint})", where
    )


class _Foreign(Serde):
    """Adapts an object with `serialize(topic, value)` and `deserialize(topic, data)`."""

    def __init__(self, inner: Any) -> None:
        self.name = type(inner).__name__
        self.serialize = inner.serialize  # type: ignore[method-assign]
        self.deserialize = inner.deserialize  # type: ignore[method-assign]


class WrappingSerde(Serde):
    """A serde around another. `inner` None: the application's default serde of values or, if `takes_key`, of keys."""

    inner: Serde | None
    takes_key = False

    def bound(self, inner: Serde) -> Serde:
        """A copy with the default serde inside."""
        raise SerdeError(f"{type(self).__name__} cannot take a default")


class TimeWindowedSerde(WrappingSerde):
    """Keys of time and sliding windows, as `key + start`. Reading needs `size_ms` for the end."""

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
            raise SerdeError("cannot read a time-windowed key without its window size; pass the size to the serde")
        if not data:
            return None
        start = int.from_bytes(data[-8:], "big", signed=True)
        if len(data) < 8 or start < 0:
            raise SerdeError(f"{data[:40]!r} is no key of a time window (expected the key, then its start in 8 bytes)")
        return Windowed(self.inner.deserialize(topic, data[:-8]), Window(start, min(start + self.size_ms, TIME_MAX)))


class SessionWindowedSerde(WrappingSerde):
    """Keys of session windows, as `key + end + start`."""

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
        if not data:
            return None
        end, start = (int.from_bytes(part, "big", signed=True) for part in (data[-16:-8], data[-8:]))
        if len(data) < 16 or not 0 <= start <= end:
            raise SerdeError(
                f"{data[:40]!r} is no key of a session (expected the key, then end and start in 8 bytes each)"
            )
        return Windowed(self.inner.deserialize(topic, data[:-16]), Window(start, end))
