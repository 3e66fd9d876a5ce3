"""Message declarations: one annotated class for all versions of a message.

    @wire(versions="3-13", flexible="9+")
    class ProduceRequest:
        transactional_id: String | None = on("0+", default=None)

Rules:
- Names are Kafka's, fields in snake_case. A struct inside a message is a separate class, declared with a bare `@wire`;
  the field that contains it determines its versions.
- A field exists in the versions of its `on`. In other versions, a reader sets its default, and a writer rejects any
  other value unless the field is `ignorable`.
- `| None` means nullable in all versions of the field, unless `nullable` restricts them.
- A field with a `tag` is written only if it differs from its default (KIP-482). If the default is a struct of plain
  values, all messages share one immutable instance: assign a new struct instead of modifying it.

A declaration costs little at import: annotations stay text, and `__init__` is compiled on the third call.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, dataclass_transform, overload

from ottla.wire.type import FIXED

__all__ = ["WireField", "Schema", "Struct", "fields", "on", "schema", "wire"]

_T = TypeVar("_T")

#: No upper bound.
LAST = 32767
_ANNOTATION = re.compile(r"(list\[)?(\w+)\]?( \| None)?")
_UNSET: Any = type("Unset", (), {"__repr__": lambda self: "default"})()
#: The number of the call of `__init__` that compiles it.
_COMPILED_AT = 3
_SIMPLE = {*FIXED, "String", "Bytes", "Records"}


@cache
def span(text: str) -> range:
    """Parse Kafka's notation of versions: "3", "0-12", "9+" or "none"."""
    if text == "none":
        return range(0)
    first, dash, last = text.removesuffix("+").partition("-")
    return range(int(first), (LAST if text.endswith("+") else int(last) if dash else int(first)) + 1)


class WireField:
    """A field of a class. `@wire` sets `name` and `annotation`; the type is resolved on first use."""

    __slots__ = (
        "annotation",
        "compact",
        "default",
        "factory",
        "ignorable",
        "is_array",
        "name",
        "nullable",
        "struct",
        "tag",
        "type",
        "versions",
    )

    def __init__(self, versions: str, default: Any, factory: Any, nullable: str, tag: int, rest: tuple[bool, bool]):
        self.versions = span(versions)
        self.default = default
        #: Creates a mutable default: `list` or a struct's class.
        self.factory = factory
        self.nullable: str | range = nullable
        #: -1 if the field has no tag.
        self.tag = tag
        self.ignorable, self.compact = rest
        self.name = self.annotation = ""
        #: The name of the wire type, or of the struct.
        self.type = ""
        self.is_array = False
        self.struct: type | None = None

    def resolve(self, module: str) -> None:
        """Parse the annotation, once the class's module is complete."""
        match = _ANNOTATION.fullmatch(self.annotation)
        assert match, f"{self.name}: {self.annotation}"
        self.is_array, self.type = bool(match[1]), match[2]
        if self.type not in _SIMPLE:
            self.struct = getattr(sys.modules[module], self.type)
        # The annotation and `nullable` are redundant, so assert that they agree.
        assert not (self.nullable and not match[3]), f"{self.name} is nullable, its annotation says no"
        self.nullable = span(str(self.nullable)) if self.nullable else self.versions if match[3] else range(0)

    def is_nullable(self, version: int) -> bool:
        assert isinstance(self.nullable, range)
        return version in self.nullable

    @property
    def shared_default(self) -> Any:
        """The struct that all messages share as this field's default; None if the default is of another kind."""
        cls = self.factory
        if self.tag < 0 or cls in (None, list) or any(field.factory is not None for field in fields(cls)):
            return None
        return _shared(cls)


def on(
    versions: str,
    *,
    default: Any = None,
    factory: Callable[[], Any] | None = None,
    nullable: str = "",
    tag: int = -1,
    ignorable: bool = False,
    compact: bool = True,
) -> Any:
    """Declare a field: its versions, its default, the versions in which it is nullable, its tag.

    `compact=False` keeps the old form of a string in flexible versions (only for the request header's client id).
    """
    return WireField(versions, default, factory, nullable, tag, (ignorable, compact))


class Schema:
    """The declaration of a wire class."""

    __slots__ = ("_resolved", "calls", "fields", "flexible", "module", "versions")

    def __init__(self, fields: list[WireField], module: str, versions: range | None, flexible: range) -> None:
        self.fields = fields
        self.module = module
        #: None for a struct, which has the versions of its message.
        self.versions = versions
        self.flexible = flexible
        #: The number of calls of `__init__` before it was compiled.
        self.calls = 0
        self._resolved = False

    def resolved(self) -> Schema:
        if not self._resolved:
            for field in self.fields:
                field.resolve(self.module)
            self._resolved = True
        return self


class Struct:
    """The base of every wire class: slots, keyword arguments, Kafka's defaults, equality, repr.

    `unknown_tagged_fields` has the tags that this schema does not know; None if there were none.
    """

    __slots__: tuple[str, ...] = ()
    __wire__: Schema
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, **values: Any) -> None:
        cls: Any = type(self)
        cls.__wire__.calls += 1
        if cls.__wire__.calls < _COMPILED_AT and not values.keys() - set(cls.__slots__):
            _assign(cls, self, values)
        else:
            cls.__init__ = _initializer(cls)
            cls.__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        if getattr(other, "__wire__", None) is not self.__wire__:
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    def __repr__(self) -> str:
        names = self.__slots__ if getattr(self, self.__slots__[-1]) else self.__slots__[:-1]
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"


@cache
def _shared(cls: Any) -> Any:
    """Return an immutable struct of defaults."""

    def refuse(made: Any, name: str, value: object) -> None:
        raise AttributeError(f"{name} = {value!r} in the default of a field; give the field a new {cls.__name__}")

    namespace = {"__slots__": (), "__module__": cls.__module__, "__setattr__": refuse}
    kind: Any = type(cls.__name__, (cls,), namespace)
    kind.__slots__ = cls.__slots__  # used by comparison and repr
    made = object.__new__(kind)
    for field in fields(cls):
        object.__setattr__(made, field.name, field.default)
    object.__setattr__(made, "unknown_tagged_fields", None)
    return made


def schema(cls: type) -> Schema:
    """Return the declaration of a wire class with resolved types."""
    declaration: Schema = cls.__wire__.resolved()  # type: ignore[attr-defined]
    return declaration


def fields(cls: type) -> list[WireField]:
    """Return the fields of a wire class in order."""
    return schema(cls).fields


@overload
@dataclass_transform(kw_only_default=True, field_specifiers=(on,))
def wire(cls: type[_T], /) -> type[_T]: ...
@overload
@dataclass_transform(kw_only_default=True, field_specifiers=(on,))
def wire(*, versions: str, flexible: str) -> Callable[[type[_T]], type[_T]]: ...
@dataclass_transform(kw_only_default=True, field_specifiers=(on,))
def wire(cls: type | None = None, /, *, versions: str = "", flexible: str = "none") -> Any:
    """Declare a wire class: bare for a struct, with its versions for a message."""
    if cls is not None:
        return _build(cls, None, range(0))
    return lambda cls: _build(cls, span(versions), span(flexible))


def _build(cls: type, versions: range | None, flexible: range) -> type:
    namespace = dict(cls.__dict__)
    declared = []
    for name, annotation in cls.__annotations__.items():
        field: WireField = namespace.pop(name)
        field.name, field.annotation = name, annotation
        declared.append(field)
    namespace.pop("__dict__", None)
    namespace.pop("__weakref__", None)
    namespace["__slots__"] = (*(field.name for field in declared), "unknown_tagged_fields")
    namespace["__wire__"] = Schema(declared, cls.__module__, versions, flexible)
    return type(cls.__name__, (Struct,), namespace)


class SchemaSource:
    """Generated Python source, and the names that it may use."""

    __slots__ = ("_count", "indent", "lines", "names")

    def __init__(self, names: dict[str, Any]) -> None:
        self.lines: list[str] = []
        self.indent = 1
        self.names = names
        self._count = 0

    def add(self, *lines: str) -> None:
        for line in lines:
            self.lines.append("    " * self.indent + line)

    def fresh(self, stem: str) -> str:
        """Return an unused name."""
        self._count += 1
        return f"{stem}{self._count}"

    def constant(self, stem: str, value: Any) -> str:
        """Return the name of `value` in the source."""
        for name, known in self.names.items():
            if known is value:
                return name
        name = self.fresh(stem)
        self.names[name] = value
        return name

    def function(self, head: str, name: str, file: str) -> Any:
        """Compile `head` with the lines as its body, and return the function of that name."""
        text = "\n".join([head, *self.lines])
        exec(compile(text, file, "exec"), self.names)
        return self.names[name]


def literal(field: WireField, source: SchemaSource) -> str | None:
    """Return the default of a field as source; None if a new instance is needed each time."""
    if field.factory is None:
        return repr(field.default)
    shared = field.shared_default
    return None if shared is None else source.constant("D", shared)


def emit_default(source: SchemaSource, target: str, field: WireField) -> None:
    """Add the lines that set `target` to the default of `field`."""
    text = literal(field, source)
    if text is not None:
        source.add(f"{target} = {text}")
    elif field.factory is list:
        source.add(f"{target} = []")
    else:
        emit_struct(source, target, field.factory)


def emit_struct(source: SchemaSource, target: str, cls: Any) -> None:
    """Add the lines that create a struct with its defaults, without the cost of a call."""
    made = source.fresh("d")
    source.add(f"{made} = {target} = new({source.constant('C', cls)})")
    for field in fields(cls):
        emit_default(source, f"{made}.{field.name}", field)
    source.add(f"{made}.unknown_tagged_fields = None")


def _assign(cls: Any, made: Any, values: dict[str, Any]) -> None:
    """Do the work of `__init__` for the first calls: compiling takes much longer than one call."""
    for field in fields(cls):
        if field.name in values:
            value = values[field.name]
        elif field.factory is not None:
            shared = field.shared_default
            value = field.factory() if shared is None else shared
        else:
            value = field.default
        setattr(made, field.name, value)
    made.unknown_tagged_fields = values.get("unknown_tagged_fields")


def _initializer(cls: type) -> Any:
    source = SchemaSource({"new": object.__new__, "UNSET": _UNSET})
    arguments = []
    for field in fields(cls):
        text, name = literal(field, source), field.name
        arguments.append(f"{name}={text or 'UNSET'}")
        if text is not None:
            source.add(f"self.{name} = {name}")
            continue
        source.add(f"if {name} is UNSET:")
        source.indent += 1
        emit_default(source, f"self.{name}", field)
        source.indent -= 1
        source.add("else:", f"    self.{name} = {name}")
    source.add("self.unknown_tagged_fields = unknown_tagged_fields")
    arguments.append("unknown_tagged_fields=None")
    head = f"def __init__(self, *, {', '.join(arguments)}):"
    made = source.function(head, "__init__", f"<{cls.__name__}.__init__>")
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made
