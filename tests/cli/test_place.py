"""Names, patterns and places as they are given on the command line."""

from __future__ import annotations

import click
import pytest

from ottla.cli.pattern import expand, is_pattern
from ottla.cli.place import place, with_time_hint
from ottla.client import OffsetSpec
from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.operations import offsets

THERE = ["orders.eu", "orders.us", "bills", "orders", "a*"]


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("a*", True),
        ("a?", True),
        ("[ab]", True),
        ("/a/", True),
        ("//", True),
        ("/", False),
        ("a/b", False),
        ("a", False),
    ],
)
def test_a_pattern_is_known_by_its_form(text: str, is_one: bool) -> None:
    assert is_pattern(text) == is_one


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (["bills"], ["bills"]),
        (["orders.*"], ["orders.eu", "orders.us"]),
        (["orders*"], ["orders", "orders.eu", "orders.us"]),
        (["orders.?s"], ["orders.us"]),
        (["/s$/"], ["bills", "orders", "orders.us"]),
        (["/rd/"], ["orders", "orders.eu", "orders.us"]),
        (["/^bill/"], ["bills"]),
        (["a*"], ["a*"]),
        (["bills", "*"], ["bills", "a*", "orders", "orders.eu", "orders.us"]),
        (["orders.us", "orders.*", "orders.us"], ["orders.us", "orders.eu"]),
        (["__secret"], ["__secret"]),
        ([], []),
    ],
)
def test_names_are_selected_once_and_in_order(given: list[str], found: list[str]) -> None:
    assert expand(given, THERE, "topic", hidden=["__secret"]) == found


@pytest.mark.parametrize("pattern", ["none*", "/^x/", "__*"])
def test_a_pattern_that_matches_nothing_is_an_error_and_hidden_names_are_not_matched(pattern: str) -> None:
    with pytest.raises(OttlaError) as error:
        expand([pattern], THERE, "topic", hidden=["__secret"])
    assert str(error.value) == f"no topic matches {pattern}"


@pytest.mark.parametrize(
    ("what", "code"), [("topic", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), ("group", ErrorCode.GROUP_ID_NOT_FOUND)]
)
def test_a_name_that_is_not_there_is_the_clusters_error(what: str, code: ErrorCode) -> None:
    with pytest.raises(OttlaError, match=f"there is no {what} bils") as error:
        expand(["bils"], THERE, what)
    assert "bills" in str(error.value)
    assert isinstance(error.value.__cause__, KafkaError) and error.value.__cause__.code == code


def test_an_invalid_expression_is_a_mistake_of_usage() -> None:
    with pytest.raises(click.UsageError, match=r"invalid regular expression /\(/"):
        expand(["/(/"], THERE, "topic")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("latest", OffsetSpec.LATEST),
        ("end", OffsetSpec.LATEST),
        ("earliest", OffsetSpec.EARLIEST),
        ("beginning", OffsetSpec.EARLIEST),
        ("start", OffsetSpec.EARLIEST),
        ("5", 5),
        ("-5", -5),
        ("0:5", {0: 5}),
        ("0:5,12:70", {0: 5, 12: 70}),
        ("@1795304325959", offsets.Moment(1_795_304_325_959)),
        ("2026-11-21T06:00Z", offsets.Moment(1_795_240_800_000)),
    ],
)
def test_a_place_is_read_in_every_form(text: str, found: object) -> None:
    assert place(text) == found


@pytest.mark.parametrize("text", ["", "soon", "0:", "0:5,", "1.5", "0:-1"])
def test_a_place_that_is_none_is_refused_with_what_is_taken(text: str) -> None:
    with pytest.raises(click.UsageError, match="expected earliest, latest, an offset"):
        place(text)


@pytest.mark.parametrize(
    ("target", "hint"),
    [
        ("1795304325959", "; for the time 2026-11-21T23:38:45.959Z write @1795304325959"),
        ("1000000000000", "; for the time 2001-09-09T01:46:40.000Z write @1000000000000"),
        ("999999999999", ""),
        ("-1795304325959", ""),
        ("latest", ""),
        (None, ""),
    ],
)
def test_an_offset_that_looks_like_a_time_has_a_hint(target: str | None, hint: str) -> None:
    with pytest.raises(OttlaError) as error, with_time_hint(target):
        raise offsets.BeyondTheEnd("too far")
    assert str(error.value) == f"too far{hint}"
