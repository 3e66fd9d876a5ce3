"""A serde of JSON objects with declared fields, whose types column expressions and batch functions know."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any

from ottla.flow.error import SerdeError, TopologyError
from ottla.flow.serde import JSON, Serde
from ottla.flow.where import here

_KINDS: dict[str, type] = {"long": int, "double": float, "string": str, "boolean": bool}
_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


class ColumnsSerde(Serde):
    """JSON objects as dicts with exactly these fields. A missing field is None; other fields are ignored."""

    def __init__(self, fields: Mapping[str, str]) -> None:
        wrong = next(((name, kind) for name, kind in fields.items() if kind not in _KINDS), None)
        if wrong is not None or not fields:
            problem = f"field {wrong[0]} is {wrong[1]!r}" if wrong else "no fields"
            raise TopologyError(
                f"invalid columns: {problem} (expected names with types, each one of {', '.join(_KINDS)})", here()
            )
        self.column_type = tuple(fields.items())
        self.name = f"columns({', '.join(f'{name} {kind}' for name, kind in fields.items())})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ColumnsSerde) and self.column_type == other.column_type

    def __hash__(self) -> int:
        return hash(self.column_type)

    def deserialize(self, topic: str, data: bytes) -> Any:
        fields = JSON.deserialize(topic, data)
        if not isinstance(fields, dict):
            raise SerdeError(f"{data[:40]!r} is not a JSON object")
        return self._checked(fields, SerdeError)

    def serialize(self, topic: str, value: Any) -> bytes:
        if not isinstance(value, dict):
            raise SerdeError(f"the {self.name} serde cannot write {value!r} (expected a dict)")
        extra = value.keys() - dict(self.column_type)
        if extra:
            raise SerdeError(f"the {self.name} serde has no field {min(map(str, extra))}")
        try:
            return _encode(self._checked(value, SerdeError)).encode()
        except UnicodeEncodeError as error:
            raise SerdeError(f"the {self.name} serde cannot write {value!r}: {error}") from error

    def _checked(self, fields: Mapping[str, Any], error_class: Callable[[str], Exception]) -> dict[str, Any]:
        checked: dict[str, Any] = {}
        for name, kind in self.column_type:
            content: Any = fields.get(name)
            if content is None or content.__class__ is _KINDS[kind]:
                checked[name] = content
            elif kind == "double" and content.__class__ is int:
                checked[name] = float(content)
            else:
                raise error_class(f"field {name} is {content!r} (expected a {kind})")
            if kind == "double" and content is not None:
                checked[name] += 0.0  # no negative zero: some readers take JSON's "-0" for an int
                if not isfinite(checked[name]):
                    raise error_class(f"field {name} is {content!r}, which JSON cannot represent")
            elif kind == "long" and content is not None and not -(1 << 63) <= content < 1 << 63:
                raise error_class(f"field {name} is {content!r}, which does not fit in a long of 64 bits")
        return checked
