"""What a public call takes for each annotation of its arguments, what it makes of that, and how it refuses the rest."""

from __future__ import annotations

import asyncio
import enum
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NewType, Optional, Protocol, TypeVar, cast

import pytest

from ottla.client.checked import check_calls, checked, converter
from ottla.kernel.ids import TopicPartition

_T = TypeVar("_T")
_Name = NewType("_Name", str)


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Level(enum.IntEnum):
    LOW = 1


@dataclass
class Box:
    name: str
    size: int | None = None


class Port(Protocol):
    def read(self) -> bytes: ...
    def write(self, data: bytes) -> None: ...
    def _hidden(self) -> None: ...


class Plug:
    read = write = None


class Half:
    write = None

    def __repr__(self) -> str:
        return "half"


BOX, PLUG = Box("a"), Plug()

TAKEN: list[tuple[Any, object, object]] = [
    (str, "a", "a"),
    (_Name, "a", "a"),
    (bool, False, False),
    (int, 5, 5),
    (int, Level.LOW, Level.LOW),
    (float, 5, 5.0),
    (float, 5.5, 5.5),
    (bytes, b"x", b"x"),
    (bytes, bytearray(b"x"), b"x"),
    (bytes, memoryview(b"x"), b"x"),
    (TopicPartition, ("a", 0), TopicPartition("a", 0)),
    (str | None, None, None),
    (str | None, "a", "a"),
    (Optional[str], None, None),  # noqa: UP045
    (str | int, 5, 5),
    (Iterable[str] | str, "a", "a"),
    (Literal["a", "b"], "b", "b"),
    (Mapping[TopicPartition, int | None], {("a", 0): None}, {TopicPartition("a", 0): None}),
    (dict[str, float], {"a": 1}, {"a": 1.0}),
    (tuple[str, float], ["a", 1], ("a", 1.0)),
    (tuple[str, ...], ["a", "b", "c"], ("a", "b", "c")),
    (Iterable[str], iter("ab"), ["a", "b"]),
    (Sequence[float], (1,), [1.0]),
    (Collection[int], [1], [1]),
    (list[int], (1,), [1]),
    (set[int], {1}, [1]),
    (frozenset[int], {1}, [1]),
    (Callable[[Any], int], len, len),
    (Any, BOX, BOX),
    (object, BOX, BOX),
    (_T, BOX, BOX),
    (Colour, Colour.RED, Colour.RED),
    (Box, BOX, BOX),
    (Port, PLUG, PLUG),
    (type[int], bool, bool),
]

WHOLE = "the value is a whole number (int), not"
REFUSED: list[tuple[Any, object, type[Exception], str]] = [
    (str, 5, TypeError, "expected str, not int: 5"),
    (str, b"a", TypeError, "expected str, not bytes: b'a'"),
    (str, "\ud800", ValueError, r"expected text that UTF-8 can carry, not '\ud800' (surrogates not allowed)"),
    (_Name, 5, TypeError, "expected str, not int: 5"),
    (bool, 1, TypeError, "expected True or False, not int: 1"),
    (int, True, TypeError, f"{WHOLE} bool: True"),
    (int, "5", TypeError, f"{WHOLE} str: '5'"),
    (int, Colour.RED, TypeError, f"{WHOLE} Colour: <Colour.RED: 1>"),
    (float, True, TypeError, "expected a number, not bool: True"),
    (float, "5", TypeError, "expected a number, not str: '5'"),
    (bytes, "x", TypeError, "expected bytes, not str: 'x'"),
    (TopicPartition, 5, TypeError, "a partition is a TopicPartition(topic, number), not 5"),
    (str | None, 5, TypeError, "expected str, not int: 5"),
    (str | int, None, TypeError, "expected str or int, not NoneType: None"),
    (str | int | None, b"x", TypeError, "expected str or int or None, not bytes: b'x'"),
    (int | str, "\ud800", ValueError, r"expected text that UTF-8 can carry, not '\ud800' (surrogates not allowed)"),
    (Iterable[tuple[str, int]] | str, 5, TypeError, "expected list of (tuple of (str, int)) or str, not int: 5"),
    (Mapping[str, int] | bytes, 5, TypeError, "expected mapping of (str, int) or bytes, not int: 5"),
    (tuple[str, ...] | bytes, 5, TypeError, "expected tuple of str or bytes, not int: 5"),
    (Literal["a", "b"], "c", ValueError, "expected one of 'a', 'b', not 'c'"),
    (Mapping[str, int], 5, TypeError, "expected a mapping of str to int, not int: 5"),
    (Mapping[str, Sequence[int]], 5, TypeError, "expected a mapping of str to list of int, not int: 5"),
    (Mapping[str, int], {5: 1}, TypeError, "expected str, not int: 5"),
    (dict[str, int], {"a": "x"}, TypeError, f"{WHOLE} str: 'x'"),
    (tuple[str, int], ("a",), TypeError, "expected a tuple (str, int), not tuple: ('a',)"),
    (tuple[str, str], "ab", TypeError, "expected a tuple (str, str), not str: 'ab'"),
    (tuple[str, int], ("a", "b"), TypeError, f"{WHOLE} str: 'b'"),
    (tuple[str, ...], "a", TypeError, "expected a list of str, not str: put it into a list, ['a']"),
    (Iterable[str], "a", TypeError, "expected a list of str, not str: put it into a list, ['a']"),
    (Iterable[str], 5, TypeError, "expected a list of str, not int: 5"),
    (Sequence[int], [1, "a"], TypeError, f"{WHOLE} str: 'a'"),
    (Callable[[Any], int], 5, TypeError, "expected a function, not int: 5"),
    (Colour, 1, TypeError, "expected Colour (RED, BLUE), not int: 1"),
    (Box, 5, TypeError, "expected Box, not int: 5"),
    (Box, Box(5), TypeError, "Box.name: expected str, not int: 5"),  # type: ignore[arg-type]
    (Box, Box("a", "b"), TypeError, f"Box.size: {WHOLE} str: 'b'"),  # type: ignore[arg-type]
    (
        Box,
        Box("\ud800"),
        ValueError,
        r"Box.name: expected text that UTF-8 can carry, not '\ud800' (surrogates not allowed)",
    ),
    (Port, Half(), TypeError, "expected an object with read, write, not Half: half"),
    (type[int], 5, TypeError, "expected type, not int: 5"),
]


@pytest.mark.parametrize(("kind", "given", "made"), TAKEN)
def test_a_value_is_taken_in_the_form_that_the_call_works_with(kind: Any, given: object, made: object) -> None:
    # The second time, the converter knows the class already.
    for value in (given, given) if not isinstance(given, type(iter(""))) else (given,):
        found = converter(kind)(value)
        assert (found, type(found)) == (made, type(made))


@pytest.mark.parametrize(("kind", "given", "error", "said"), REFUSED)
def test_a_wrong_value_is_refused_in_a_sentence(kind: Any, given: object, error: type[Exception], said: str) -> None:
    for _ in range(2):
        with pytest.raises(error, match=f"^{re.escape(said)}$") as raised:
            converter(kind)(given)
        assert type(raised.value) is error


class Client:
    """A class as the clients are."""

    @checked
    def call(self, name: str, sizes: Iterable[int] = (), *, colour: Colour | None = None) -> object:
        return name, sizes, colour

    async def work(self, size: float) -> Outcome:
        """Work with a size."""
        return Outcome(size)

    async def none(self) -> None: ...

    async def named(self) -> Outcome:
        return Outcome(1.0, "another")

    async def _own(self, size: float) -> float:
        return size

    def plain(self, size: float) -> float:
        return size


@dataclass
class Outcome:
    size: float
    call: str = ""


check_calls(Client)


def test_a_checked_call_gets_its_arguments_converted() -> None:
    assert Client().call("a", (1, 2), colour=Colour.RED) == ("a", [1, 2], Colour.RED)
    assert Client().call(name="a") == ("a", (), None)


@pytest.mark.parametrize(
    ("arguments", "keywords", "error", "said"),
    [
        ((), {}, TypeError, "call: missing a required argument: 'name'"),
        (("a",), {"x": 1}, TypeError, "call: got an unexpected keyword argument 'x'"),
        ((5,), {}, TypeError, "call, argument name: expected str, not int: 5"),
        (("a", ["b"]), {}, TypeError, f"call, argument sizes: {WHOLE} str: 'b'"),
        (("a",), {"colour": 1}, TypeError, "call, argument colour: expected Colour (RED, BLUE), not int: 1"),
        (
            ("\ud800",),
            {},
            ValueError,
            r"call, argument name: expected text that UTF-8 can carry, not '\ud800' (surrogates not allowed)",
        ),
    ],
)
def test_a_checked_call_names_itself_and_the_argument(
    arguments: tuple[Any, ...], keywords: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error) as raised:
        Client().call(*arguments, **keywords)
    assert (type(raised.value), str(raised.value)) == (error, said)


def test_every_public_coroutine_is_checked_when_it_is_called_and_names_its_outcome() -> None:
    client, wrong = Client(), cast(Any, "x")
    with pytest.raises(TypeError, match=r"^work, argument size: expected a number, not str: 'x'$"):
        client.work(wrong)  # type: ignore[unused-coroutine]
    assert client.plain(wrong) == wrong

    async def run() -> list[object]:
        done = [await client.work(2), await client.named(), await client._own(wrong)]
        return [*done, await cast(Any, client.none())]

    assert asyncio.run(run()) == [Outcome(2.0, "work"), Outcome(1.0, "another"), wrong, None]
    assert Client.work.__name__ == "work" and Client.work.__doc__ == "Work with a size."
