"""Every wire class, and messages full of values for any of them."""

from collections.abc import Callable, Iterator
from importlib import import_module
from random import Random
from typing import Any

from ottla.wire.api import API
from ottla.wire.schema import WireField, fields, schema

RECORD_MODULES = (
    "aborted_txn",
    "consumer_group",
    "consumer_protocol",
    "control",
    "metadata",
    "offset",
    "principal",
    "producer_snapshot",
    "quorum_state",
    "registration",
    "remote_log",
    "security",
    "share",
    "share_group",
    "streams_group",
    "transaction",
)
_BITS = {"Int8": 8, "Int16": 16, "Int32": 32, "Int64": 64, "Uint16": 16, "Uint32": 32}
_TEXTS = ("", "a", "flights", "caf\u00e9 \u2708", "x" * 130)

#: Gives a field its value instead of us; None leaves it to us.
Override = Callable[[WireField, Random], Any]


def record_classes() -> dict[str, Any]:
    """The messages of our logs and files, and the headers, by Kafka's names."""
    found = {}
    for name in (*(f"record.{each}" for each in RECORD_MODULES), "header"):
        module = import_module(f"ottla.wire.{name}")
        for each in vars(module).values():
            if isinstance(each, type) and hasattr(each, "__wire__") and schema(each).versions is not None:
                found[each.__name__] = each
    return found


def classes() -> dict[str, Any]:
    """Every message by Kafka's name."""
    found = record_classes()
    for api in API.values():
        found[api.request.__name__] = api.request
        found[api.response.__name__] = api.response
    return found


def pairs() -> list[tuple[Any, int]]:
    """Every message in every version."""
    return [(cls, version) for cls in classes().values() for version in schema(cls).versions or ()]


def message(cls: Any, version: int, rng: Random, *, override: Override | None = None, unknown: bool = False) -> Any:
    """A message with a value in each field that the version has; with tags that nobody knows, if wanted."""
    flexible = version in schema(cls).flexible
    return _struct(cls, version, rng, override, flexible, unknown)


def _struct(cls: Any, version: int, rng: Random, override: Override | None, flexible: bool, unknown: bool) -> Any:
    made = cls()
    for field in fields(cls):
        if version not in field.versions or (field.tag >= 0 and (not flexible or rng.random() < 0.3)):
            continue
        value = override(field, rng) if override else None
        if value is None:
            value = _value(field, version, rng, override, flexible, unknown)
        setattr(made, field.name, value)
    if unknown and flexible and rng.random() < 0.5:
        made.unknown_tagged_fields = {100 + rng.randrange(9): rng.randbytes(3), 200: b""}
    return made


def _value(
    field: WireField, version: int, rng: Random, override: Override | None, flexible: bool, unknown: bool
) -> Any:
    if field.is_nullable(version) and rng.random() < 0.25:
        return None
    if field.is_array:
        return [_one(field, version, rng, override, flexible, unknown) for _ in range(rng.choice((0, 1, 1, 2, 3)))]
    return _one(field, version, rng, override, flexible, unknown)


def _one(field: WireField, version: int, rng: Random, override: Override | None, flexible: bool, unknown: bool) -> Any:
    if field.struct is not None:
        return _struct(field.struct, version, rng, override, flexible, unknown)
    if field.type in _BITS:
        bits = rng.choice((3, 7, _BITS[field.type] - 1))
        value = rng.getrandbits(bits)
        return -1 - value if field.type.startswith("I") and rng.random() < 0.4 else value
    if field.type == "Boolean":
        return rng.random() < 0.5
    if field.type == "Float64":
        return rng.choice((0.0, 1.5, -2.25e9))
    if field.type == "Uuid":
        return rng.randbytes(16)
    if field.type == "String":
        return rng.choice(_TEXTS)
    return rng.randbytes(rng.choice((0, 1, 20, 300)))


def seeded() -> Iterator[tuple[Any, int, Random]]:
    """Every message in every version, with randomness of its own that is the same each time."""
    for cls, version in pairs():
        yield cls, version, Random(f"{cls.__name__} {version}")
