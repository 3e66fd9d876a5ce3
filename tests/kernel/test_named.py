"""`ottla.kernel.named` beside `typing.NamedTuple`: each class is made with both, and does the same."""

import copy
import inspect
import pickle
import sys
import typing
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import pytest

from ottla.kernel import named

T = TypeVar("T")


class Point(named.NamedTuple):
    """Somewhere."""

    x: int
    y: int = 2
    name: str | None = None

    @property
    def sum(self) -> int:
        return self.x + self.y


class TypingPoint(typing.NamedTuple):
    """Somewhere."""

    x: int
    y: int = 2
    name: str | None = None

    @property
    def sum(self) -> int:
        return self.x + self.y


class Box(named.NamedTuple, Generic[T]):
    value: T


class Near(Point):
    """A subclass without fields of its own."""


class Empty(named.NamedTuple):
    pass


USES: tuple[Callable[[Any], Any], ...] = (
    lambda kind: kind(1),
    lambda kind: kind(1, y=3, name="a"),
    lambda kind: kind(1).sum,
    lambda kind: kind(1)._replace(y=4),
    lambda kind: kind(1)._asdict(),
    lambda kind: kind._make([1, 2, 3]),
    lambda kind: (
        kind._fields,
        kind._field_defaults,
        kind.__match_args__,
        kind.__doc__,
        kind.__bases__,
        kind.__slots__,
    ),
    lambda kind: kind(1) == (1, 2, None),
    lambda kind: hash(kind(1)),
    lambda kind: str(inspect.signature(kind)),
    lambda kind: typing.get_type_hints(kind),
    lambda kind: [*kind(5)],
    lambda kind: repr(kind(1)).removeprefix("Typing"),
    lambda kind: kind.x.__doc__,
    lambda kind: copy.copy(kind(1)),
    lambda kind: kind.__new__.__defaults__ if kind(1) and kind(2) and kind(3) else None,
)


@pytest.mark.parametrize("use", USES)
def test_it_does_what_typings_does(use: Callable[[Any], Any]) -> None:
    assert use(Point) == use(TypingPoint)


def test_cpython_makes_the_own_classes() -> None:
    assert (named.NamedTuple is typing.NamedTuple) == (sys.implementation.name != "cpython")


DECLARED = """
class Declared({maker}):
    a: {kind}
    b: {kind} = 3
"""


# Without the future import, a name that is not yet there is an error before Python 3.14.
@pytest.mark.parametrize(
    ("future", "kind"), [(True, "int"), (True, "Later"), (False, "Later" if sys.version_info >= (3, 14) else "int")]
)
def test_fields_are_found_among_texts_and_among_annotations_evaluated_later(future: bool, kind: str) -> None:
    head = "from __future__ import annotations\n" if future else ""
    for maker in ("named.NamedTuple", "typing.NamedTuple"):
        scope: dict[str, Any] = {"named": named, "typing": typing, "__name__": __name__}
        exec(compile(head + DECLARED.format(maker=maker, kind=kind), "<declared>", "exec", dont_inherit=True), scope)
        made = scope["Declared"]
        assert [made(1), made(1, b=2), made(1), made(1)] == [(1, 3), (1, 2), (1, 3), (1, 3)]
        assert (made._fields, made._field_defaults) == (("a", "b"), {"b": 3})
        scope["Later"] = str
        told = {"a": scope.get(kind, int), "b": scope.get(kind, int)}
        assert typing.get_type_hints(made, scope) == typing.get_type_hints(made.__new__, scope) == told


WRONG: tuple[Callable[[Any], Any], ...] = (
    lambda kind: kind(),
    lambda kind: kind(1, 2, 3, 4),
    lambda kind: kind(1, z=2),
    lambda kind: kind._make([1]),
    lambda kind: kind(1)._replace(z=3),
    lambda kind: setattr(kind(1), "x", 2),
    lambda kind: setattr(kind(1), "new", 2),
)


@pytest.mark.parametrize("use", WRONG)
def test_it_refuses_what_typings_refuses(use: Callable[[Any], Any]) -> None:
    raised = []
    for kind in (Point, TypingPoint):
        with pytest.raises((TypeError, ValueError, AttributeError)) as caught:
            use(kind)
        raised.append((caught.type, str(caught.value).replace("TypingPoint", "Point")))
    assert raised[0] == raised[1]


def test_the_first_call_may_come_by_any_way() -> None:
    def fresh() -> Any:
        class Fresh(named.NamedTuple):
            a: int
            b: int = 7

        return Fresh

    assert str(inspect.signature(fresh())) == "(a: int, b: int = 7)"
    kind = fresh()
    assert kind._make((1, 2)) == (1, 2)
    assert kind(b=3, a=1) == (1, 3)
    assert type(kind._make((1, 2))._replace(b=9)) is kind
    assert Near(1) == (1, 2, None) and type(Near(1)) is Near and Near(1).sum == 3
    assert pickle.loads(pickle.dumps(Near(4))) == Near(4)
    assert Box("a").value == Box[str]("a").value == "a"
    assert Empty() == () and Empty._make([]) == ()


CALLS: tuple[tuple[tuple[Any, ...], dict[str, Any]], ...] = (
    ((), {}),
    ((1,), {}),
    ((1, 2, 3), {}),
    ((1, 2, 3, 4), {}),
    ((), {"x": 1}),
    ((), {"name": "a", "x": 1}),
    ((), {"y": 1}),
    ((1,), {"y": 3}),
    ((1,), {"x": 3}),
    ((1,), {"z": 3}),
    ((), {"y": 1, "z": 3}),
)


@pytest.mark.parametrize(("arguments", "keywords"), CALLS)
def test_the_first_calls_do_what_later_ones_do(arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
    class Point(named.NamedTuple):
        x: int
        y: int = 2
        name: str | None = None

    def outcome(kind: Any) -> Any:
        try:
            return kind(*arguments, **keywords)
        except TypeError as error:
            return str(error).replace("TypingPoint", "Point").rpartition("Point.")[2]

    assert [outcome(Point) for _ in range(4)] == 4 * [outcome(TypingPoint)]


def test_a_third_call_compiles_and_the_next_ones_do_not() -> None:
    class Counted(named.NamedTuple):
        a: int

    assert Counted.__new__.__name__ == "__new__"
    stub = Counted.__new__
    Counted(1)
    Counted(2)
    assert Counted.__new__ is stub
    Counted(3)
    made = Counted.__new__
    Counted(4)
    assert stub is not made
    assert Counted.__new__ is made
