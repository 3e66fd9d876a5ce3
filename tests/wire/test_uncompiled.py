"""Encoding without generated code gives what the generated code gives, errors included."""

import struct
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from ottla.wire import compile as compiling
from ottla.wire.compile import encode, encoder
from ottla.wire.reader import has_records
from ottla.wire.record.metadata import FeatureLevelRecord
from ottla.wire.schema import WireField, fields
from ottla.wire.type import UnsupportedVersion
from ottla.wire.writer import encode_uncompiled
from tests.wire.value import message, seeded


def _outcome(write: Any) -> Any:
    """The bytes, the text of a refusal, or None for a value of a type that the field cannot hold."""
    try:
        return write()
    except UnsupportedVersion as error:
        return str(error)
    except (TypeError, AttributeError, struct.error):
        return None


def _agree(made: Any, version: int) -> Any:
    generated = _outcome(lambda: b"".join(encoder(type(made), version)(made)))
    assert _outcome(lambda: encode_uncompiled(made, version)) == generated, (made, version)
    return generated


def test_every_message_in_every_version_is_encoded_as_by_the_generated_code() -> None:
    compared = 0
    for cls, version, rng in seeded():
        if has_records(cls):
            continue
        _agree(cls(), version)
        for _ in range(2):
            compared += len(_agree(message(cls, version, rng, unknown=True), version)) > 0
    assert compared > 1000


def _spoil(made: Any, rng: Random) -> None:
    """Set a field, at any depth, to a value that its version, its type or its nullability may not allow."""
    field: WireField = rng.choice(fields(type(made)))
    value = getattr(made, field.name)
    inner = value if not isinstance(value, list) else rng.choice(value) if value else None
    if hasattr(inner, "__wire__") and fields(type(inner)) and rng.random() < 0.6:
        return _spoil(inner, rng)
    # The shared default of a tagged field refuses.
    with suppress(AttributeError):
        setattr(made, field.name, rng.choice((None, 0, 1, 7, True, "x", b"x", [], [1], 1 << 70)))
    return None


def test_what_cannot_be_encoded_is_refused_as_by_the_generated_code() -> None:
    refused = []
    for cls, version, rng in seeded():
        if has_records(cls) or not fields(cls):
            continue
        for _ in range(3):
            made = message(cls, version, rng, unknown=False)
            _spoil(made, rng)
            found = _agree(made, version)
            if not isinstance(found, bytes):
                refused.append(found)
    assert None in refused
    assert sum("cannot express" in text for text in refused if text) > 20


def test_the_third_call_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiling, "_encoders", {})
    monkeypatch.setattr(compiling, "_calls", {})
    made = FeatureLevelRecord(name="kraft.version", feature_level=1)
    found = [(encode(made, 0), len(compiling._encoders)) for _ in range(4)]
    assert [count for _, count in found] == [0, 0, 1, 1]
    assert len({data for data, _ in found}) == 1
