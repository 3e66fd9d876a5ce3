"""`@frozen`: a frozen dataclass with slots that is compiled on first use; `@mutable` for fields that change.

    @frozen
    class Moved:
        partition: int
        epoch: int = 0

Rules:
- `dataclasses.replace` and `fields`, `match` and mypy treat a `@frozen` class as `@dataclass(frozen=True, slots=True)`
  and a `@mutable` class, which has no hash, as `@dataclass(slots=True)`.
- `__eq__`, `__hash__` and `__repr__` are compiled on the first call, `__init__` on the third: at startup most classes
  are instantiated once or twice, and compiling takes a hundred times as long as a call.
- mypy rejects assignments to fields. At run time nothing prevents them, so that `__init__` stays fast.

Not obvious: the standard decorator compiles seven functions for each class at import, which takes 0.4 ms, and a node
has a hundred such classes (docs/decisions/0123-values-are-compiled-on-first-use.md).
"""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Callable
from typing import Any, TypeVar, dataclass_transform

_T = TypeVar("_T")
_MISSING = dataclasses.MISSING
#: The number of the call of `__init__` that compiles it.
_COMPILED_AT = 3
#: The placeholder default of a field with a factory.
_BY_FACTORY = object()


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field,))
def frozen(cls: type[_T]) -> type[_T]:
    """Create the class. Its fields are its annotated names in order, after the inherited fields."""
    return _create_class(cls, {})


@dataclass_transform(field_specifiers=(dataclasses.field,))
def mutable(cls: type[_T]) -> type[_T]:
    """Create a class whose fields may change."""
    return _create_class(cls, {"__hash__": None})


def _create_class(cls: type[_T], fixed: dict[str, Any]) -> type[_T]:
    namespace = dict(cls.__dict__)
    own = {name: namespace.pop(name, _MISSING) for name, kind in _annotations(cls).items() if not _is_class_var(kind)}
    inherited: dict[str, Any] = getattr(cls, "__value_defaults__", {})
    namespace.pop("__dict__", None)
    namespace.pop("__weakref__", None)
    defaults = {**inherited, **own}
    namespace.update(
        __slots__=tuple(own),
        __match_args__=tuple(defaults),
        __value_defaults__=defaults,
        __dataclass_fields__=_Fields(),
        **fixed,
    )
    owner: list[Any] = []
    for name in _SOURCES.keys() - namespace.keys():
        namespace[name] = _stub(name, owner)
    kind: Any = type(cls)
    created: type[_T] = kind(cls.__name__, cls.__bases__, namespace)
    owner.append(created)
    return created


class _Fields:
    """`__dataclass_fields__`, created on first use."""

    def __get__(self, instance: object, cls: Any) -> dict[str, dataclasses.Field[Any]]:
        kinds: dict[str, Any] = {}
        for base in reversed(cls.__mro__):
            kinds |= _annotations(base)
        names = [
            (name, kinds[name], default if isinstance(default, dataclasses.Field) else _field(default))
            for name, default in cls.__value_defaults__.items()
        ]
        twin: Any = dataclasses.make_dataclass("_", names)
        fields: dict[str, dataclasses.Field[Any]] = twin.__dataclass_fields__
        cls.__dataclass_fields__ = fields
        return fields


def _field(default: Any) -> Any:
    return dataclasses.field() if default is _MISSING else dataclasses.field(default=default)


if sys.version_info >= (3, 14):
    # Annotations are evaluated on access (PEP 749); names that are not defined yet must not fail.
    from annotationlib import Format, get_annotations

    def _annotations(cls: type) -> dict[str, Any]:
        return get_annotations(cls, format=Format.FORWARDREF)

else:

    def _annotations(cls: type) -> dict[str, Any]:
        return inspect.get_annotations(cls)


def _is_class_var(kind: Any) -> bool:
    return "ClassVar" in (kind if isinstance(kind, str) else repr(kind))


# ---- the methods


def _stub(name: str, owner: list[Any]) -> Callable[..., Any]:
    """Return the method's stub, which compiles the real method, replaces itself with it, and calls it."""
    calls = 0

    def call(self: Any, *arguments: Any, **keywords: Any) -> Any:
        (cls,) = owner
        if name == "__init__":
            nonlocal calls
            calls += 1
            if calls < _COMPILED_AT and _assign(cls, self, arguments, keywords):
                return None
        method = _compile(cls, name)
        setattr(cls, name, method)
        return method(self, *arguments, **keywords)

    return call


def _assign(cls: Any, made: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> bool:
    """Do the work of `__init__` uncompiled. Return False if the arguments do not fit: the compiled one raises."""
    values = dict(zip(cls.__value_defaults__, arguments, strict=False))
    if len(arguments) > len(cls.__value_defaults__) or values.keys() & keywords.keys():
        return False
    values |= keywords
    for name, declared in cls.__value_defaults__.items():
        if name not in values:
            default = declared
            if isinstance(declared, dataclasses.Field):
                factory = declared.default_factory
                default = declared.default if factory is _MISSING else factory()
            if default is _MISSING:
                return False
            values[name] = default
    if len(values) > len(cls.__value_defaults__):
        return False
    for name in cls.__value_defaults__:
        setattr(made, name, values[name])
    if hasattr(cls, "__post_init__"):
        made.__post_init__()
    return True


def _compile(cls: Any, name: str) -> Any:
    scope: dict[str, Any] = {}
    lines = _SOURCES[name](cls, scope)
    exec(compile("\n    ".join(lines), f"<{cls.__module__}.{cls.__qualname__}.{name}>", "exec"), scope)
    method = scope[name]
    method.__qualname__ = f"{cls.__qualname__}.{name}"
    method.__module__ = cls.__module__
    return method


def _init(cls: Any, scope: dict[str, Any]) -> list[str]:
    parameters, body = ["self"], []
    for name, declared in cls.__value_defaults__.items():
        value, default = name, declared
        if isinstance(declared, dataclasses.Field):
            assert declared.init, f"{name}: a field that is not given is not supported"
            default = declared.default
            if declared.default_factory is not _MISSING:
                scope[f"_new_{name}"], default = declared.default_factory, _BY_FACTORY
                scope["_create_class"], value = _BY_FACTORY, f"_new_{name}() if {name} is _create_class else {name}"
        if default is _MISSING:
            parameters.append(name)
        else:
            scope[f"_default_{name}"] = default
            parameters.append(f"{name}=_default_{name}")
        body.append(f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    return [f"def __init__({', '.join(parameters)}):", *(body or ["pass"])]


def _names(cls: Any, flag: str) -> list[str]:
    """Return the fields that take part in `repr` or `compare`."""
    return [
        name
        for name, declared in cls.__value_defaults__.items()
        if not isinstance(declared, dataclasses.Field) or getattr(declared, flag)
    ]


def _parts(cls: Any, instance: str) -> str:
    return "(" + "".join(f"{instance}.{name}, " for name in _names(cls, "compare")) + ")"


def _eq(cls: Any, scope: dict[str, Any]) -> list[str]:
    compared = f"{_parts(cls, 'self')} == {_parts(cls, 'other')}"
    return ["def __eq__(self, other):", f"return {compared} if other.__class__ is self.__class__ else NotImplemented"]


def _hash(cls: Any, scope: dict[str, Any]) -> list[str]:
    return ["def __hash__(self):", f"return hash({_parts(cls, 'self')})"]


def _repr(cls: Any, scope: dict[str, Any]) -> list[str]:
    shown = ", ".join(f"{name}={{self.{name}!r}}" for name in _names(cls, "repr"))
    return ["def __repr__(self):", f"return f'{{self.__class__.__qualname__}}({shown})'"]


_SOURCES = {"__init__": _init, "__eq__": _eq, "__hash__": _hash, "__repr__": _repr}
