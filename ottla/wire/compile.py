"""Encode and decode: each (class, version) is compiled to a function and cached.

A decoder is compiled on first use, and so is an `encoder`. `encode` compiles on the third call: a starting node encodes
most records of its metadata log once or twice, and compiling takes twenty times as long. An encoder for a
long message is compiled at once.

Rules:
- `decode` returns a message or raises `Malformed`, whatever the bytes are.
- The caller handles bytes after the message: `decode` returns its end.
- Unknown tagged fields are kept and written back.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from typing import Any, TypeVar

from ottla.kernel.ports import Buffer
from ottla.wire.reader import decoder_source, has_records
from ottla.wire.schema import SchemaSource, schema
from ottla.wire.type import Malformed, UnsupportedVersion
from ottla.wire.writer import ManyElements, encode_uncompiled, encoder_source

__all__ = ["FEW", "Deferred", "decode", "decoder", "deferred", "encode", "encoder", "step_decoder", "step_encoder"]

_T = TypeVar("_T")
Decoder = Callable[..., tuple[Any, int]]
Encoder = Callable[[Any], list[Any]]

#: For messages with records: below this size, a copy costs less than reading through a memoryview.
_COPY_BYTES_MAX = 8192
#: More elements than this are created while they are written (`deferred`).
FEW = 500
#: The number of the call of `encode` that compiles an encoder.
_COMPILED_AT = 3

_decoders: dict[tuple[type, int], Decoder] = {}
_encoders: dict[tuple[type, int], Encoder] = {}
#: The calls of `encode` before there is an encoder.
_calls: dict[tuple[type, int], int] = {}
_step_decoders: dict[tuple[type, int], Any] = {}
_step_encoders: dict[tuple[type, int], Any] = {}


def decode(cls: type[_T], version: int, data: Buffer, position: int = 0) -> tuple[_T, int]:
    """Return (message, its end). Records are views into `data`; everything else is copied."""
    read = _decoders.get((cls, version)) or decoder(cls, version)
    return read(data, position)


def encode(message: Any, version: int) -> bytes:
    """Return the bytes of a message."""
    write = _encoders.get((type(message), version))
    if write is None:
        cls = type(message)
        _check(cls, version)
        calls = _calls[cls, version] = _calls.get((cls, version), 0) + 1
        if calls < _COMPILED_AT and not has_records(cls):
            with suppress(ManyElements):
                return encode_uncompiled(message, version)
        write = encoder(cls, version)
    parts = write(message)
    if len(parts) == 1:
        return parts[0]  # type: ignore[no-any-return]
    return b"".join(part if isinstance(part, (bytes, bytearray, memoryview)) else part.bytes() for part in parts)


def decoder(cls: type[_T], version: int) -> Callable[..., tuple[_T, int]]:
    """Return the function (data, position=0) -> (message, its end) of this class and version."""
    key = (cls, version)
    read = _decoders.get(key)
    if read is None:
        _check(cls, version)
        read = _decoders[key] = _guarded(cls, decoder_source(cls, version), version)
    return read


def encoder(cls: type, version: int) -> Encoder:
    """Return the function message -> parts: bytes, or the object in a field of type Records."""
    key = (cls, version)
    write = _encoders.get(key)
    if write is None:
        _check(cls, version)
        source = encoder_source(cls, version)
        write = _encoders[key] = source.function("def write(m):", "write", f"<{cls.__name__} {version} encoder>")
    return write


def step_decoder(cls: type[_T], version: int) -> Callable[..., Generator[None, None, tuple[_T, int]]]:
    """Return `decoder` as a generator that yields between steps, because a message of megabytes takes long."""
    key = (cls, version)
    read = _step_decoders.get(key)
    if read is None:
        _check(cls, version)
        read = _step_decoders[key] = _guarded(cls, decoder_source(cls, version, steps=True), version)
    return read  # type: ignore[return-value]


def step_encoder(cls: type, version: int) -> Callable[[Any], Generator[None, None, list[Any]]]:
    """Return `encoder` as a generator. Arrays may be `Deferred`."""
    key = (cls, version)
    write = _step_encoders.get(key)
    if write is None:
        _check(cls, version)
        source = encoder_source(cls, version, steps=True)
        write = source.function("def write(m):", "write", f"<{cls.__name__} {version} encoder in steps>")
        _step_encoders[key] = write
    return write  # type: ignore[no-any-return]


class Deferred(list[_T]):
    """An array of a long response whose elements are created one by one while it is written."""

    __slots__ = ("_count", "_make")

    def __init__(self, count: int, make: Callable[[], Iterator[_T]]) -> None:
        super().__init__()
        self._count = count
        self._make = make

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[_T]:
        return self._make()


def deferred(count: int, make: Callable[[], Iterator[_T]]) -> list[_T]:
    """The elements that `make` iterates over, as a list, or if they are many, `Deferred`."""
    return Deferred(count, make) if count > FEW else [*make()]


def _check(cls: type, version: int) -> None:
    versions = schema(cls).versions
    if versions is None or version not in versions:
        raise UnsupportedVersion(f"{cls.__name__} has no version {version}")


def _guarded(cls: type, source: SchemaSource, version: int) -> Decoder:
    """Wrap the lines of the source in a decoder that accepts any buffer and raises only Malformed."""
    source.names |= {"Malformed": Malformed, "Broken": (IndexError, ValueError, struct.error)}
    body = ["    try:", *("    " + line for line in source.lines)]
    # Indexing and slicing bytes is faster than a view, so the input is copied unless the message has record views.
    source.lines = []
    if not has_records(cls):
        source.add("if type(data) is not bytes:", "    data = bytes(data)")
    else:
        at = next(index for index, line in enumerate(body) if line.startswith("        view = "))
        body[at + 1 : at + 1] = [
            f"        if type(data) is not bytes and end < {_COPY_BYTES_MAX}:",
            "            data = bytes(data)",
        ]
    source.lines += body
    source.add("except Malformed:", "    raise", "except Broken as error:")
    source.add(f"    raise Malformed(f'{cls.__name__} version {version}: {{error}}') from None")
    return source.function("def read(data, position=0):", "read", f"<{cls.__name__} {version} decoder>")  # type: ignore[no-any-return]
