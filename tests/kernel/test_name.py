"""Names, and where Kafka puts what bears them."""

from typing import Any

import pytest

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import coordinator_partition, java_string_hash
from ottla.kernel.open_enum import OpenEnum
from ottla.kernel.topic_name import check_name, collision_name, is_legal_name, may_collide


@pytest.mark.parametrize(
    ("name", "partitions", "partition"),
    [
        # Where Apache Kafka 4.3.1 put these groups; the first one's hash is negative.
        ("apache-group-consumer", 8, 5),
        ("apache-group-classic", 8, 5),
        ("apache-group-transactional", 8, 4),
        # The one hash that has no absolute value.
        ("polygenelubricants", 50, 0),
    ],
)
def test_a_coordinator_is_found_where_kafka_puts_it(name: str, partitions: int, partition: int) -> None:
    assert coordinator_partition(name, partitions) == partition


def test_the_hash_is_javas_signed_one() -> None:
    assert java_string_hash("apache-group-consumer") == -447766045
    assert java_string_hash("polygenelubricants") == -(1 << 31)


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("", "the empty string is not allowed"),
        (".", "'.' is not allowed"),
        ("..", "'..' is not allowed"),
        ("...", ""),
        ("a.b_c-D9", ""),
        ("a" * 250, f"the length of '{'a' * 250}' is longer than the max allowed length 249"),
        ("a b", "'a b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
        ("\N{LATIN SMALL LETTER E WITH ACUTE}", "contains one or more characters other than ASCII alphanumerics"),
        ("a\n", "contains one or more characters other than ASCII alphanumerics"),
    ],
)
def test_a_topic_that_cannot_be_is_refused_in_apaches_words(name: str, fault: str) -> None:
    assert is_legal_name(name) is (not fault)
    if not fault:
        check_name(name)
        return
    with pytest.raises(KafkaError) as refused:
        check_name(name)
    assert refused.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert refused.value.message.startswith("Topic name is invalid: ")
    assert refused.value.message.endswith(fault) or fault in refused.value.message


def test_names_collide_where_metrics_have_one_for_both() -> None:
    assert [may_collide(each) for each in ("a.b", "a_b", "a-b", "ab")] == [True, True, False, False]
    assert collision_name("a.b_c.d") == collision_name("a_b.c_d") != collision_name("a-b_c_d")


class Level(OpenEnum):
    LOW = 1
    HIGH = 2


def test_a_number_that_a_newer_broker_has_is_unknown_and_keeps_its_value() -> None:
    other = Level(7)
    assert (other, other.name, other.value, isinstance(other, Level)) == (7, "UNKNOWN", 7, True)
    assert (Level(2), list(Level)) == (Level.HIGH, [Level.LOW, Level.HIGH])
    wrongs: list[Any] = ["HIGH", None, 1.5]
    for wrong in wrongs:
        with pytest.raises(ValueError, match="is not a valid Level"):
            Level(wrong)


def test_a_topics_name_has_at_most_249_characters() -> None:
    assert is_legal_name("a" * 249)
    assert not is_legal_name("a" * 250)
