"""The functions that a program of the tests may name; tests/interop/java/driver/Functions.java has the same ones."""

from collections.abc import Callable
from typing import Any

Function = Callable[..., Any]


def java(value: object) -> str:
    """What Java's string concatenation makes of a value."""
    return "null" if value is None else str(value)


def _split(name: str) -> tuple[str, str]:
    kind, _, argument = name.partition(":")
    return kind, argument


def test(name: str) -> Function:
    kind, argument = _split(name)
    return {
        "starts": lambda key, value: value is not None and value.startswith(argument),
        "not_null": lambda key, value: value is not None,
        "key": lambda key, value: key == argument,
        "all": lambda key, value: True,
        "none": lambda key, value: False,
    }[kind]


test.__test__ = False  # type: ignore[attr-defined]


def value(name: str) -> Function:
    kind, argument = _split(name)
    return {
        "append": lambda key, value: java(value) + argument,
        "with_key": lambda key, value: f"{java(key)}:{java(value)}",
        "null_on": lambda key, value: None if value is not None and str(value).startswith(argument) else value,
    }[kind]


def values(name: str) -> Function:
    return {
        "chars": lambda key, value: [] if value is None else list(value),
        "twice": lambda key, value: [f"{java(value)}1", f"{java(value)}2"],
        "null": lambda key, value: None,
    }[name]


def key(name: str) -> Function:
    kind, argument = _split(name)
    return {
        "value": lambda key, value: value,
        "first": lambda key, value: None if value is None else value[0],
        "null": lambda key, value: None,
        "const": lambda key, value: argument,
        "null_on": lambda key, value: None if value is not None and value.startswith(argument) else value,
        "key": lambda key, value: key,
    }[kind]


def _picky(key: Any, value: Any) -> tuple[str | None, str | None] | None:
    if value.startswith("P"):
        return None
    return None if value.startswith("N") else value[0], None if value.startswith("V") else value


def pair(name: str) -> Function:
    kind, argument = _split(name)
    return {
        "swap": lambda key, value: (value, str(key)),
        "first": lambda key, value: (None if value is None else str(value)[0], str(value)),
        "const": lambda key, value: (argument, str(value)),
        "picky": _picky,
    }[kind]


def pairs(name: str) -> Function:
    split = values(name)
    return lambda key, value: [(each, value) for each in split(key, value)]


def initial(name: str) -> Function:
    kind, argument = _split(name)
    return {"empty": lambda: "", "text": lambda: argument, "null": lambda: None}[kind]


def add(name: str) -> Function:
    """(key, value, aggregate) to an aggregate."""
    return {
        "concat": lambda key, value, aggregate: None if value == "D" else java(aggregate) + java(value),
        "plus": lambda key, value, aggregate: f"{java(aggregate)}+{java(value)}",
        "minus": lambda key, value, aggregate: f"{java(aggregate)}-{java(value)}",
        "null": lambda key, value, aggregate: None,
        "with_key": lambda key, value, aggregate: f"{java(aggregate)}({java(key)}{java(value)})",
    }[name]


def reduce(name: str) -> Function:
    """(aggregate, value) to an aggregate."""
    function = add(name)
    return lambda aggregate, value: function(None, value, aggregate)


def merge(key: object, one: object, other: object) -> str:
    return f"({java(one)}|{java(other)})"


def join(name: str) -> Function:
    """(key, left, right) to a value."""
    kind, argument = _split(name)
    return {
        "bar": lambda key, left, right: f"{java(left)}|{java(right)}",
        "with_key": lambda key, left, right: f"{java(key)}:{java(left)}|{java(right)}",
        "null_on": lambda key, left, right: (
            None if left is not None and str(left).startswith(argument) else f"{java(left)}|{java(right)}"
        ),
    }[kind]
