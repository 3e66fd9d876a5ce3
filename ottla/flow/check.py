"""Checks of the arguments of the DSL's calls against their annotations, so that an error names the user's line.

A function must also take the arguments that it will be called with: `filter(lambda value: ...)` is refused where it is
written, not at the first record. An annotation that is imported for type checkers only is not checked here.
"""

from __future__ import annotations

import collections.abc
import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from datetime import timedelta
from functools import partial, wraps
from types import SimpleNamespace
from typing import Any, Literal, TypeVar

from ottla.flow.column.batch import BatchFunction
from ottla.flow.column.expression import Expression
from ottla.flow.error import TopologyError
from ottla.flow.where import Where, here
from ottla.kernel.argument import shown
from ottla.kernel.topic_name import is_legal_name

T = TypeVar("T", bound=Callable[..., Any])
_WORDS = {Expression: "a column expression", BatchFunction: "a batch function", timedelta: "a timedelta",
          re.Pattern: "a compiled pattern"}  # fmt: skip

if sys.version_info >= (3, 14):
    # Annotations are evaluated when they are asked for (PEP 749), and may name what only type checkers import.
    from annotationlib import Format

    _signature = partial(inspect.signature, annotation_format=Format.FORWARDREF)
else:
    _signature = inspect.signature


def checked(target: T) -> T:
    """Check the arguments of a function, of a class's public methods, and of a dataclass's fields."""
    if not isinstance(target, type):
        wrapped: T = _wrapped(target)
        return wrapped
    for name, member in list(vars(target).items()):
        if name.startswith("_") and not (name == "__init__" and is_dataclass(target)):
            continue
        if isinstance(member, classmethod):
            setattr(target, name, classmethod(_wrapped(member.__func__)))
        elif inspect.isfunction(member):
            setattr(target, name, _wrapped(member))
    return target


def takes(function: Callable[..., Any], count: int) -> bool:
    """Whether the function can be called with `count` positional arguments; True if it does not tell."""
    try:
        _signature(function).bind(*range(count))
    except TypeError:
        return False
    except ValueError:  # some builtins have no signature
        return True
    return True


def named(value: Any) -> str:
    """A value for an error message; a function with its arguments."""
    if not callable(value) or isinstance(value, BatchFunction):
        return shown(value)
    try:
        return f"{getattr(value, '__name__', type(value).__name__)}{_signature(value)}"
    except (TypeError, ValueError):
        return shown(value)


def check_name(name: str, what: str, where: Where) -> None:
    """TopologyError if a topic cannot have this name, or the name of a store or program cannot begin one's."""
    if not is_legal_name(name):
        raise TopologyError(
            f"invalid {what}: {shown(name)} (expected 1 to 249 letters, digits, '.', '_' and '-')", where
        )


def check_supplier(supplier: Callable[[], Any], where: Where) -> None:
    """TopologyError if a supplier returns one object for all tasks (Kafka Streams: ApiUtils.checkSupplier).

    Such an object would write into the stores and outputs of the task that was opened last, outside of the transaction
    of the record that it processes.
    """
    if isinstance(supplier, type):
        return
    try:
        first, second = supplier(), supplier()
    except Exception:  # the task that opens it names the error
        return
    if first is second and (hasattr(first, "process") or hasattr(first, "transform")):
        raise TopologyError(
            f"{named(supplier)} returned the same object twice (expected a new one for each task)", where
        )


def _wrapped(function: Any) -> Any:
    hints: dict[str, Any] = {}
    signature: list[inspect.Signature] = []

    @wraps(function)
    def call(*arguments: Any, **keywords: Any) -> Any:
        if not signature:
            hints.update(_hints(function))
            signature.append(inspect.signature(function))
        for name, value in _given(signature[0], arguments, keywords):
            if name in hints and not _fits(value, hints[name]):
                where = function.__qualname__.removesuffix(".__init__").lstrip("_")
                wanted = _expected(hints[name], name, function.__doc__ or "")
                raise TopologyError(f"invalid {name} for {where}: {named(value)} (expected {wanted})", here())
        return function(*arguments, **keywords)

    return call


def _given(
    signature: inspect.Signature, arguments: tuple[Any, ...], keywords: dict[str, Any]
) -> Iterator[tuple[str, Any]]:
    try:
        bound = signature.bind(*arguments, **keywords).arguments
    except TypeError:  # the call itself raises it
        return
    for name, value in bound.items():
        if signature.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL:
            yield from ((name, each) for each in value)
        else:
            yield name, value


def _hints(function: Any) -> dict[str, Any]:
    hints: dict[str, Any] = {}
    for name, annotation in function.__annotations__.items():
        try:
            one = SimpleNamespace(__annotations__={name: annotation})
            hints |= typing.get_type_hints(one, function.__globals__)
        except NameError:
            continue
    return hints


def _fits(value: Any, hint: Any) -> bool:
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, part) for part in parts)
    if origin is Literal:
        return value in parts
    if origin is collections.abc.Callable:
        return (
            callable(value)
            and not isinstance(value, BatchFunction)
            and (parts[0] is Ellipsis or takes(value, len(parts[0])))
        )
    if origin is tuple:
        kinds = parts if parts[-1:] != (Ellipsis,) else parts[:1] * len(value)
        return isinstance(value, tuple) and len(value) == len(kinds) and all(map(_fits, value, kinds))
    if origin is collections.abc.Sequence:
        return isinstance(value, origin) and not isinstance(value, str) and all(_fits(each, parts[0]) for each in value)
    kind = origin or hint
    if kind in (int, float):  # an int is a float, too
        return isinstance(value, (int, kind)) and not isinstance(value, bool)
    return not isinstance(kind, type) or kind is Any or isinstance(value, kind)


def _expected(hint: Any, name: str, doc: str) -> str:
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        words = [_expected(part, name, doc) for part in parts if part is not types.NoneType]
        return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))
    if origin is Literal:
        return " or ".join(map(repr, parts))
    if origin is collections.abc.Callable:
        form = re.search(rf"`({name}\([^)]*\))", doc)
        return f"a function {form[1]}" if form else "a function"
    if origin is tuple:
        return f"a tuple ({', '.join(_expected(part, name, doc) for part in parts)})"
    if origin is collections.abc.Sequence:
        return f"a list of {_expected(parts[0], name, doc)}"
    kind = origin or hint
    return _WORDS.get(kind, getattr(kind, "__name__", str(kind)))
