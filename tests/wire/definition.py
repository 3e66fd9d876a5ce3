"""Compare a wire class with the JSON definition that Apache Kafka keeps of the same message."""

import re
from typing import Any

from ottla.wire.schema import WireField, fields, schema, span

_TYPES = {
    "int8": "Int8",
    "int16": "Int16",
    "int32": "Int32",
    "int64": "Int64",
    "uint16": "Uint16",
    "uint32": "Uint32",
    "float64": "Float64",
    "bool": "Boolean",
    "string": "String",
    "bytes": "Bytes",
    "records": "Records",
    "uuid": "Uuid",
}
#: Where 4.4.0 names a field anew, lets one be ignored, or has tags in versions that were there before.
CHANGED_SINCE_4_3_1 = frozenset(
    {
        "StreamsGroupHeartbeatResponse",  # acceptable_recovery_lag: ..._legacy, beside its successor
        "StreamsGroupMetadataValue",  # two tags more
        "TxnOffsetCommitRequest",  # generation_id: generation_id_or_member_epoch
        "TxnOffsetCommitResponse",  # the topic's name, beside its id
    }
)


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()


def differences(cls: Any, definition: dict[str, Any], *, whole: bool) -> list[str]:
    """How a class departs from a definition, in words; `whole`: it knows no versions beyond the definition's."""
    valid, known = span(definition["validVersions"]), schema(cls).versions
    assert known is not None
    found = []
    if known != valid if whole else not (known.start <= valid.start and valid.stop <= known.stop):
        found.append(f"versions {known}, not {valid}")
    flexible = _within(span(definition["flexibleVersions"]), valid)
    if _within(schema(cls).flexible, valid) != flexible:
        found.append(f"flexible in {schema(cls).flexible}, not {flexible}")
    common = {each["name"]: each["fields"] for each in definition.get("commonStructs", [])}
    found += _structs(cls, definition["fields"], valid, common)
    return [f"{definition['name']}: {each}" for each in found]


def _within(versions: range, valid: range) -> list[int]:
    return [version for version in valid if version in versions]


def _structs(cls: Any, theirs: list[dict[str, Any]], valid: range, common: dict[str, Any]) -> list[str]:
    """Field by field, in order. A field of ours may be too much only if no version of theirs has it."""
    found = []
    ours = [field for field in fields(cls) if _within(field.versions, valid)]
    theirs = [each for each in theirs if _within(span(_versions(each)), valid)]
    names = [snake(each["name"]) for each in theirs]
    if [field.name for field in ours] != names:
        return [f"{cls.__name__} has the fields {[field.name for field in ours]}, not {names}"]
    for field, each in zip(ours, theirs, strict=True):
        mine, right = _described(field, valid), _definition(each, valid)
        if mine != right:
            found.append(f"{cls.__name__}.{field.name} is {mine}, not {right}")
        if field.struct is not None:
            inner = each.get("fields") or common[each["type"].removeprefix("[]")]
            found += _structs(field.struct, inner, valid, common)
    return found


def _versions(definition: dict[str, Any]) -> str:
    return str(definition.get("versions") or definition["taggedVersions"])


def _described(field: WireField, valid: range) -> dict[str, Any]:
    assert isinstance(field.nullable, range)
    default: Any = field.default
    if field.factory is not None:
        default = "list" if field.factory is list else "struct"
    return {
        "type": "struct" if field.struct else field.type,
        "array": field.is_array,
        "versions": _within(field.versions, valid),
        "nullable": [version for version in _within(field.nullable, valid) if version in field.versions],
        "tag": field.tag,
        "default": default,
        "ignorable": field.ignorable,
        "compact": field.compact,
    }


def _definition(each: dict[str, Any], valid: range) -> dict[str, Any]:
    versions = span(_versions(each))
    text = each["type"].removeprefix("[]")
    nullable = _within(span(each.get("nullableVersions", "none")), valid)
    if "taggedVersions" in each:
        assert _within(span(each["taggedVersions"]), valid) == _within(versions, valid)
    return {
        "type": _TYPES.get(text, "struct"),
        "array": each["type"].startswith("[]"),
        "versions": _within(versions, valid),
        "nullable": [version for version in nullable if version in versions],
        "tag": each.get("tag", -1),
        "default": _default(each, text),
        "ignorable": str(each.get("ignorable", False)).lower() == "true",
        "compact": each.get("flexibleVersions") != "none",
    }


def _default(each: dict[str, Any], kind: str) -> Any:
    """The default as Kafka's generator understands it: a JSON null is the same as none given."""
    given = each.get("default")
    text = "" if given is None else str(given)
    if text == "null" or (kind == "records" and not text):
        return None
    if each["type"].startswith("[]"):
        return "list"
    if kind not in _TYPES:
        return "struct"
    if kind == "string":
        return text
    if kind == "bytes":
        return b""
    if kind == "uuid":
        return bytes(16)
    if kind == "bool":
        return text.lower() == "true"
    if kind == "float64":
        return float(text or 0)
    return int(text or "0", 0)
