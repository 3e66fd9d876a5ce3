"""Arguments of public calls: what each check takes, what it makes of it, and which error shows a wrong one."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest

from ottla.kernel import argument
from ottla.kernel.client_error import RequestTimedOut, kafka_error
from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.kernel.ids import TopicPartition, parse_uuid, uuid_text

ONE = TopicPartition("t", 0)
BIG = 1 << 63


class Index:
    """A whole number of another library, such as numpy's."""

    def __index__(self) -> int:
        return 7


@pytest.mark.parametrize(
    ("check", "given", "made"),
    [
        (argument.topic_names, "t", ["t"]),
        (argument.topic_names, ("t", "u"), ["t", "u"]),
        (argument.topic_names, iter(["t"]), ["t"]),
        (argument.partition_of, ("t", 3), TopicPartition("t", 3)),
        (argument.partition_of, ("t", (1 << 31) - 1), TopicPartition("t", (1 << 31) - 1)),
        (argument.partitions_of, {ONE: 5}, [ONE]),
        (lambda values: argument.by_partition(values, "offsets"), {("t", 0): 5}, {ONE: 5}),
        (lambda values: argument.texts(values, "groups"), ("g", "h"), ["g", "h"]),
        (lambda value: argument.whole(value, "n"), Index(), 7),
        (lambda value: argument.whole(value, "n"), -BIG, -BIG),
        (lambda value: argument.whole(value, "n"), BIG - 1, BIG - 1),
        (lambda value: argument.whole(value, "n", 2, 4), 2, 2),
        (lambda value: argument.whole(value, "n", 2, 4), 3, 3),
        (argument.seconds, 0, 0.0),
        (argument.seconds, 1.5, 1.5),
        (argument.seconds, float("inf"), 4_000_000.0),
        (argument.optional_seconds, None, None),
        (argument.optional_seconds, 2, 2.0),
        (argument.wait_ms, 1.2345, 1234),
        (lambda value: argument.config_text(value, "s"), None, None),
        (lambda value: argument.config_text(value, "s"), "x", "x"),
        (lambda value: argument.config_text(value, "s"), True, "true"),
        (lambda value: argument.config_text(value, "s"), False, "false"),
        (lambda value: argument.config_text(value, "s"), 1.5, "1.5"),
        (lambda value: argument.config_text(value, "s"), 60_000, "60000"),
        (lambda value: argument.config_text(value, "s"), ["a", "b"], "a,b"),
        (lambda value: argument.config_text(value, "s"), (), ""),
        (argument.config_texts, {"a": 1, "b": None}, {"a": "1", "b": None}),
        (parse_uuid, "AAECAwQFBgcICQoLDA0ODw", bytes(range(16))),
    ],
)
def test_a_good_argument_is_taken(check: Callable[[Any], Any], given: Any, made: Any) -> None:
    assert check(given) == made


def test_a_partition_is_given_back_as_it_is() -> None:
    assert argument.partition_of(ONE) is ONE
    assert type(argument.partition_of(("t", 0))) is TopicPartition


LONG = "x" * 80


@pytest.mark.parametrize(
    ("check", "given", "kind", "said"),
    [
        (argument.topic_names, b"t", TypeError, "expected a list of topics, not bytes: put it into a list, [b't']"),
        (argument.topic_names, 5, TypeError, "expected a list of topics, not int: 5"),
        (argument.topic_names, bytearray(b"t"), TypeError, "expected a list of topics, not bytearray: bytearray(b't')"),
        (argument.topic_names, [5], TypeError, "a topic must be a str, not int: 5"),
        (argument.topic_names, "a b", KafkaError, "invalid topic name: 'a b' (expected 1 to 249 letters"),
        (argument.topic_names, LONG * 4, KafkaError, f"invalid topic name: '{'x' * 56}... (expected"),
        (
            argument.partitions_of,
            ONE,
            TypeError,
            "expected a list of partitions, not TopicPartition: put it into a list",
        ),
        (argument.partitions_of, "t", TypeError, "expected a list of partitions, not str: put it into a list, ['t']"),
        (
            argument.partitions_of,
            ["t"],
            TypeError,
            "a partition is a TopicPartition(topic, number), not 't': name its number too, TopicPartition('t', 0), or",
        ),
        (argument.partition_of, ("t",), TypeError, "a partition is a TopicPartition(topic, number), not ('t',)"),
        (argument.partition_of, ("t", 1, 2), TypeError, "a partition is a TopicPartition(topic, number)"),
        (argument.partition_of, ["t", 1], TypeError, "a partition is a TopicPartition(topic, number), not ['t', 1]"),
        (argument.partition_of, ("t", True), TypeError, "a partition is a TopicPartition(topic, number)"),
        (argument.partition_of, ("t", "1"), TypeError, "a partition is a TopicPartition(topic, number)"),
        (argument.partition_of, (1, 1), TypeError, "a partition is a TopicPartition(topic, number)"),
        (argument.partition_of, ("t", -1), ValueError, "invalid partition of t: -1 (expected a number from 0 to"),
        (argument.partition_of, ("t", 1 << 31), ValueError, "invalid partition of t: 2147483648 (expected"),
        (
            lambda values: argument.by_partition(values, "offsets"),
            [ONE],
            TypeError,
            "expected a mapping of partitions to offsets, not list: [TopicPartition(",
        ),
        (lambda values: argument.texts(values, "groups"), [5], TypeError, "group is a str, not int: 5"),
        (lambda values: argument.texts(values, "groups"), "g", TypeError, "expected a list of groups, not str"),
        (lambda value: argument.whole(value, "n"), True, TypeError, "n is a whole number (int), not bool: True"),
        (lambda value: argument.whole(value, "n"), "1", TypeError, "n is a whole number (int), not str: '1'"),
        (lambda value: argument.whole(value, "n"), 1.5, TypeError, "not float: 1.5 (int(1.5) truncates it)"),
        (lambda value: argument.whole(value, "n"), BIG, ValueError, f"invalid value for n: {BIG} (expected a whole"),
        (lambda value: argument.whole(value, "n"), -BIG - 1, ValueError, f"a whole number of at least -{BIG})"),
        (lambda value: argument.whole(value, "n", 2, 4), 1, ValueError, "(expected a whole number of at least 2)"),
        (lambda value: argument.whole(value, "n", 2, 4), 4, ValueError, "(expected a whole number below 4)"),
        (argument.seconds, True, TypeError, "timeout is a number of seconds, not bool: True"),
        (argument.seconds, "1", TypeError, "timeout is a number of seconds, not str: '1'"),
        (argument.seconds, -0.1, ValueError, "invalid value for timeout: -0.1 (expected a number of seconds of"),
        (argument.seconds, float("nan"), ValueError, "invalid value for timeout: nan"),
        (argument.optional_seconds, -1, ValueError, "invalid value for timeout: -1"),
        (
            lambda value: argument.serde_of(value, "key_serde"),
            "str",
            TypeError,
            "key_serde is a serde (ottla.serde.serde)",
        ),
        (lambda value: argument.config_text(value, "s"), {}, TypeError, "setting s takes text, a number, a boolean or"),
        (lambda value: argument.config_text(value, "s"), ["a", 1], TypeError, "setting s takes text, a number, a"),
        (lambda value: argument.config_text(value, "s"), {"a"}, TypeError, "a list of texts, not {'a'}"),
        (argument.config_texts, ["a"], TypeError, "expected a mapping of settings' names to values, not list: ['a']"),
        (argument.config_texts, {5: "a"}, TypeError, "a setting's name is a str, not int: 5"),
        (parse_uuid, "x", ValueError, "invalid Kafka id: 'x' (expected 22 characters of base64url)"),
        (parse_uuid, "AAAA", ValueError, "invalid Kafka id: 'AAAA' (expected 22 characters of base64url)"),
        (parse_uuid, "\N{SNOWMAN}", ValueError, "invalid Kafka id: "),
    ],
)
def test_a_wrong_argument_is_shown(check: Callable[[Any], Any], given: Any, kind: type[Exception], said: str) -> None:
    with pytest.raises(kind) as error:
        check(given)
    assert said in str(error.value)
    assert len(str(error.value)) < 200


@pytest.mark.parametrize(("number", "text"), [(60, "x" * 58), (61, "x" * 59)])
def test_a_value_of_more_than_sixty_characters_is_cut(number: int, text: str) -> None:
    found = argument.shown(text)
    assert len(found) == 60
    assert found.endswith("..." if number > 60 else "x'")


def test_uuids_are_written_and_read() -> None:
    for number in (0, 1, (1 << 128) - 1, 0xFBF << 100):
        raw = number.to_bytes(16, "big")
        assert len(uuid_text(raw)) == 22 and bytes(parse_uuid(uuid_text(raw))) == raw


@pytest.mark.parametrize(("given", "warns"), [(99, False), (100, True), (100.0, False), (5000, True)])
def test_a_poll_of_so_many_seconds_may_be_meant_in_ms(given: float, warns: bool) -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert argument.wait_ms(given) == given * 1000
    assert len(told) == warns
    if warns:
        said = f"poll({given}) waits up to {given} seconds: write {given / 1000:g} for {given} ms, or {given}.0"
        assert str(told[0].message) == said


@pytest.mark.parametrize("absent", ["numpy", "pyarrow", None])
def test_a_missing_extra_is_named(absent: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(argument.importlib.util, "find_spec", lambda name: None if name == absent else object())  # type: ignore[attr-defined]
    if absent is None:
        argument.needs_arrow("tables")
    else:
        with pytest.raises(OttlaError, match=r"^tables needs pyarrow and numpy: pip install 'ottla\[arrow\]'$"):
            argument.needs_arrow("tables")


@pytest.mark.parametrize(
    ("error", "kind", "code", "said"),
    [
        (KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "x"), KafkaError, ErrorCode.INVALID_TOPIC_EXCEPTION, "x"),
        (OttlaError("closed"), RequestTimedOut, ErrorCode.REQUEST_TIMED_OUT, "closed"),
        (ZeroDivisionError("by 0"), KafkaError, ErrorCode.UNKNOWN_SERVER_ERROR, "ZeroDivisionError: by 0"),
    ],
)
def test_every_error_has_a_code_for_deliveries(error: Exception, kind: type, code: ErrorCode, said: str) -> None:
    found = kafka_error(error)
    assert (type(found), found.code) == (kind, code)
    assert said in str(found)
    assert (found is error) == isinstance(error, KafkaError)
