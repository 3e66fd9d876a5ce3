"""Checks the arguments of public calls against their annotations before the call does anything.

Rules:
- A wrong argument raises at the call, with the names of the method and the argument: TypeError for a wrong type,
  ValueError or OttlaError for a wrong value.
- An iterable is read once, here. A partition may be a plain (topic, partition) pair. A bool is not a number.
- Annotations are compiled at a method's first call. The hot paths (send, poll) check by hand.
"""

from __future__ import annotations

import collections.abc
import inspect
import re
import types
import typing
from collections.abc import Awaitable, Callable
from dataclasses import is_dataclass
from enum import Enum
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar, cast

from ottla.kernel.argument import items_of, map_of, partition_of, shown, whole
from ottla.kernel.error import OttlaError
from ottla.kernel.ids import TopicPartition

P = ParamSpec("P")
R = TypeVar("R")
#: Converts a value to the form that the call works with; raises TypeError, ValueError or OttlaError.
Convert = Callable[[Any], Any]

_SEQUENCES = (collections.abc.Iterable, collections.abc.Sequence, collections.abc.Collection, list, set, frozenset)


def checked(method: Callable[P, R]) -> Callable[P, R]:
    """Wrap a method so that its arguments are checked and converted; a coroutine function raises when it is called."""
    plan: list[tuple[inspect.Signature, dict[str, Convert]]] = []

    @wraps(method)
    def call(*arguments: P.args, **keywords: P.kwargs) -> R:
        if not plan:
            plan.append((inspect.signature(method), _converters(method)))
        signature, converters = plan[0]
        try:
            bound = signature.bind(*arguments, **keywords)
        except TypeError as error:
            raise TypeError(f"{method.__name__}: {error}") from None
        for name, convert in converters.items():
            if name in bound.arguments:
                try:
                    bound.arguments[name] = convert(bound.arguments[name])
                except (TypeError, ValueError, OttlaError) as error:
                    raise _raised_as(error)(f"{method.__name__}, argument {name}: {error}") from None
        return method(*bound.args, **bound.kwargs)

    return call


def _raised_as(error: Exception) -> type[Exception]:
    return next(kind for kind in (TypeError, ValueError, OttlaError) if isinstance(error, kind))


def check_calls(cls: type) -> None:
    """Wrap every public coroutine function that the class itself defines."""
    for name, method in list(vars(cls).items()):
        if not name.startswith("_") and inspect.iscoroutinefunction(method):
            setattr(cls, name, _named(checked(method), name))


def _named(method: Callable[..., Awaitable[Any]], name: str) -> Callable[..., Awaitable[Any]]:
    """Wrap a method so that a result with an empty `call` attribute gets the method's name."""

    @wraps(method)
    def call(*arguments: Any, **keywords: Any) -> Awaitable[Any]:
        return _with_name(method(*arguments, **keywords), name)

    return call


async def _with_name(work: Awaitable[Any], name: str) -> Any:
    result = await work
    if getattr(result, "call", None) == "":
        result.call = name
    return result


def _converters(method: Callable[..., Any]) -> dict[str, Convert]:
    hints = typing.get_type_hints(method)
    return {name: converter(kind) for name, kind in hints.items() if name not in ("return", "self")}


@cache
def converter(kind: Any) -> Convert:
    """The check and conversion for an argument with this annotation."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return _union(parts)
    if origin is typing.Literal:
        return _choice(parts)
    if origin is collections.abc.Mapping or origin is dict:
        return _mapping(*parts)
    if origin is tuple:
        return _pair(parts)
    if origin in _SEQUENCES:
        return _list(parts[0])
    if origin is collections.abc.Callable:
        return _callable
    if isinstance(kind, typing.NewType):
        return converter(kind.__supertype__)
    if origin is not None:
        kind = origin
    if kind is Any or kind is object or isinstance(kind, TypeVar):
        return lambda value: value
    return _SIMPLE.get(kind) or _instance(kind)


def _type_name(kind: Any) -> str:
    """The name of an annotation, for an error message."""
    if kind is type(None):
        return "None"
    if typing.get_origin(kind) in (*_SEQUENCES, collections.abc.Mapping, tuple):
        inside = ", ".join(_type_name(part) for part in typing.get_args(kind) if part is not ...)
        container = {collections.abc.Mapping: "mapping", tuple: "tuple"}.get(cast(Any, typing.get_origin(kind)), "list")
        return f"{container} of ({inside})" if "," in inside else f"{container} of {inside}"
    return getattr(kind, "__name__", str(kind))


def _expected(wanted: str, value: object) -> TypeError:
    return TypeError(f"expected {wanted}, not {type(value).__name__}: {shown(value)}")


def _union(kinds: tuple[Any, ...]) -> Convert:
    named = [(kind, converter(kind)) for kind in kinds if kind is not type(None)]
    optional = len(named) < len(kinds)

    def convert(value: Any) -> Any:
        if value is None and optional:
            return None
        failures: list[Exception] = []
        for _, convert_one in named:
            try:
                return convert_one(value)
            except (TypeError, ValueError, OttlaError) as error:
                failures.append(error)
        for failure in failures:
            if len(named) == 1 or not isinstance(failure, TypeError):
                raise failure from None
        raise _expected(" or ".join(_type_name(kind) for kind in kinds), value)

    return convert


def _choice(choices: tuple[Any, ...]) -> Convert:
    def convert(value: Any) -> Any:
        if value not in choices:
            raise ValueError(f"expected one of {', '.join(map(repr, choices))}, not {shown(value)}")
        return value

    return convert


def _mapping(key_kind: Any, value_kind: Any) -> Convert:
    key, content = converter(key_kind), converter(value_kind)

    def convert(value: Any) -> dict[Any, Any]:
        pairs = map_of(value, f"{_type_name(key_kind)} to {_type_name(value_kind)}")
        return {key(item): content(item_value) for item, item_value in pairs.items()}

    return convert


def _pair(kinds: tuple[Any, ...]) -> Convert:
    if len(kinds) == 2 and kinds[1] is ...:
        convert_all = _list(kinds[0])
        return lambda value: tuple(convert_all(value))
    parts = [converter(kind) for kind in kinds]

    def convert(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, (tuple, list)) or len(value) != len(parts):
            raise _expected(f"a tuple ({', '.join(map(_type_name, kinds))})", value)
        return tuple(part(item) for part, item in zip(parts, value, strict=True))

    return convert


def _list(kind: Any) -> Convert:
    convert_one = converter(kind)

    def convert(values: Any) -> list[Any]:
        return [convert_one(value) for value in items_of(values, _type_name(kind))]

    return convert


def _callable(value: Any) -> Any:
    if not callable(value):
        raise _expected("a function", value)
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise _expected("str", value)
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"expected text that UTF-8 can carry, not {shown(value)} ({error.reason})") from None
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _expected("True or False", value)
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _expected("a number", value)
    return float(value)


def _bytes(value: Any) -> bytes:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise _expected("bytes", value)
    return bytes(value)


def _int(value: Any) -> int:
    return value if isinstance(value, Enum) and isinstance(value, int) else whole(value, "the value")


_SIMPLE: dict[Any, Convert] = {
    str: _text,
    bool: _flag,
    int: _int,
    float: _number,
    bytes: _bytes,
    TopicPartition: partition_of,
}


def _instance(kind: Any) -> Convert:
    """Check for an instance of this class; the fields of a dataclass are checked, too."""
    if getattr(kind, "_is_protocol", False):
        return _protocol(kind)
    fields: list[tuple[str, Convert]] = []

    def convert(value: Any) -> Any:
        if not isinstance(value, kind):
            names = f" ({', '.join(member.name for member in kind)})" if issubclass(kind, Enum) else ""
            raise _expected(f"{kind.__name__}{names}", value)
        if is_dataclass(kind) and not fields:
            fields.extend((name, converter(hint)) for name, hint in typing.get_type_hints(kind).items())
        for name, check in fields:
            try:
                check(getattr(value, name))
            except (TypeError, ValueError, OttlaError) as error:
                raise _raised_as(error)(f"{kind.__name__}.{name}: {error}") from None
        return value

    return convert


def _protocol(kind: Any) -> Convert:
    wanted = [name for name in vars(kind) if not re.match("_", name)]

    def convert(value: Any) -> Any:
        if not all(hasattr(value, name) for name in wanted):
            raise _expected(f"an object with {', '.join(wanted)}", value)
        return value

    return convert
