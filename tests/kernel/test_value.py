"""`@frozen` beside the standard library's frozen dataclass: the same in everything but its cost."""

import copy
import dataclasses
import math
import pickle
from typing import Any, ClassVar

import pytest

from ottla.kernel.frozen import frozen, mutable


@frozen
class Ours:
    """What it is."""

    shared: ClassVar[int] = 7
    name: str
    size: int = 3
    tags: list[str] = dataclasses.field(default_factory=list)

    def doubled(self) -> int:
        return 2 * self.size


@dataclasses.dataclass(frozen=True, slots=True)
class Theirs:
    """What it is."""

    shared: ClassVar[int] = 7
    name: str
    size: int = 3
    tags: list[str] = dataclasses.field(default_factory=list)

    def doubled(self) -> int:
        return 2 * self.size


@frozen
class Empty:
    pass


@frozen
class Longer(Ours):
    more: float = math.nan


@pytest.mark.parametrize("arguments", [("a",), ("a", 4), ("a", 4, ["t"])])
def test_it_is_what_the_standard_one_is(arguments: tuple[Any, ...]) -> None:
    ours, theirs = Ours(*arguments), Theirs(*arguments)
    assert repr(ours) == repr(theirs).replace("Theirs", "Ours")
    assert dataclasses.asdict(ours) == dataclasses.asdict(theirs)
    assert ours == Ours(*arguments) != Ours("b")
    assert ours.doubled() == theirs.doubled()
    assert (Ours.shared, Ours.__doc__, Ours.__slots__) == (Theirs.shared, Theirs.__doc__, Theirs.__slots__)  # type: ignore[attr-defined]
    assert [each.name for each in dataclasses.fields(ours)] == [each.name for each in dataclasses.fields(theirs)]
    assert dataclasses.replace(ours, size=9) == Ours(arguments[0], 9, *arguments[2:])


def test_it_is_equal_to_its_own_kind_alone_and_by_parts_as_tuples_are() -> None:
    other: Any = Theirs("a")
    assert Ours("a") != other
    assert Longer("a") != Ours("a")
    assert Longer("a") == Longer("a"), "one nan is itself, as in a tuple"
    assert Empty() == Empty()
    assert repr(Empty()) == "Empty()"


def test_a_default_that_is_made_is_made_anew() -> None:
    one, two = Ours("a"), Ours("a")
    one.tags.append("t")
    assert two.tags == []


def test_its_hash_is_that_of_its_parts() -> None:
    @frozen
    class Point:
        x: int
        y: int = 0

    assert hash(Point(1)) == hash((1, 0))
    assert {Point(1): "found"}[Point(1, 0)] == "found"
    with pytest.raises(TypeError, match="unhashable"):
        hash(Ours("a"))


def test_it_matches_by_position_and_by_name() -> None:
    match Longer("a", 5):
        case Longer(name, size, more=more):
            assert (name, size) == ("a", 5)
            assert math.isnan(more)


def test_it_survives_copies_and_pickles() -> None:
    assert copy.deepcopy(Ours("a", 1, ["t"])) == Ours("a", 1, ["t"])
    assert pickle.loads(pickle.dumps(Ours("a", 1, ["t"]))) == Ours("a", 1, ["t"])


def test_it_takes_only_its_fields() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        Ours("a", colour="red")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'name'"):
        Ours()  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        Ours("a").colour = "red"  # type: ignore[attr-defined]


def test_a_field_may_be_kept_out_of_what_is_shown_and_compared() -> None:
    @frozen
    class Login:
        user: str
        password: str = dataclasses.field(repr=False)
        tries: int = dataclasses.field(default=0, compare=False)

    assert "secret" not in repr(Login("u", "secret"))
    assert Login("u", "secret", 1) == Login("u", "secret", 2) != Login("u", "other")
    assert hash(Login("u", "secret", 1)) == hash(Login("u", "secret"))


def test_what_follows_the_fields_may_be_checked() -> None:
    @frozen
    class Even:
        number: int

        def __post_init__(self) -> None:
            assert self.number % 2 == 0

        def __repr__(self) -> str:
            return f"even {self.number}"

    assert repr(Even(2)) == "even 2"
    with pytest.raises(AssertionError):
        Even(3)


def test_nothing_is_compiled_before_it_is_called() -> None:
    @frozen
    class Fresh:
        x: int

    def changed() -> list[str]:
        return [name for name, stub in stubs.items() if vars(Fresh)[name] is not stub]

    stubs = {name: vars(Fresh)[name] for name in ("__init__", "__eq__", "__hash__", "__repr__")}
    first, second = Fresh(1), Fresh(x=1)
    assert changed() == []
    third = Fresh(1)
    assert changed() == ["__init__"]
    assert first == second == third == Fresh(1)


WRONG: tuple[tuple[tuple[Any, ...], dict[str, Any]], ...] = (
    ((), {}),
    (("a", 1, [], 2), {}),
    (("a",), {"name": "b"}),
    (("a",), {"colour": 1}),
)


@pytest.mark.parametrize(("arguments", "keywords"), WRONG)
def test_a_first_call_refuses_what_later_ones_refuse(arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
    @frozen
    class Fresh:
        name: str
        size: int = 3
        tags: list[str] = dataclasses.field(default_factory=list)

    with pytest.raises(TypeError) as first:
        Fresh(*arguments, **keywords)
    for _ in range(3):
        Fresh("a")
    with pytest.raises(TypeError) as later:
        Fresh(*arguments, **keywords)
    assert str(first.value) == str(later.value)


def test_fields_that_change_are_those_of_a_dataclass() -> None:
    @mutable
    class Progress:
        offset: int
        seen: list[int] = dataclasses.field(default_factory=list)

    @dataclasses.dataclass(slots=True)
    class Standard:
        offset: int
        seen: list[int] = dataclasses.field(default_factory=list)

    for kind in (Progress, Standard):
        made = [kind(1), kind(1), kind(offset=1), kind(1)]
        made[0].seen.append(1)
        made[0].offset += 1
        assert made[0] != made[1] == made[2] == made[3]
        assert repr(made[0]).endswith("(offset=2, seen=[1])")
        with pytest.raises(TypeError, match="unhashable"):
            hash(made[0])
        with pytest.raises(AttributeError):
            made[0].other = 1  # type: ignore[union-attr]


def test_fields_tell_what_the_standard_ones_tell() -> None:
    """Their types, defaults and flags, of a base class, too."""

    @dataclasses.dataclass(frozen=True, slots=True)
    class TheirLonger(Theirs):
        more: float = math.nan
        hidden: bytes | None = dataclasses.field(default=None, repr=False, compare=False)

    @frozen
    class OurLonger(Ours):
        more: float = math.nan
        hidden: bytes | None = dataclasses.field(default=None, repr=False, compare=False)

    def told(kind: Any) -> list[tuple[Any, ...]]:
        return [
            (each.name, each.type, each.default, each.default_factory, each.repr, each.compare, each.init)
            for each in dataclasses.fields(kind)
        ]

    for ours, theirs in ((Ours, Theirs), (OurLonger, TheirLonger)):
        assert told(ours) == told(theirs)
        # They are made once.
        assert dataclasses.fields(ours)[0] is dataclasses.fields(ours)[0]
