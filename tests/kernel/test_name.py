"""Names, and where Kafka puts what bears them."""

import pytest

from ottla.kernel.ids import coordinator_partition, java_string_hash
from ottla.kernel.topic_name import is_legal_name


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


def test_a_topics_name_has_at_most_249_characters() -> None:
    assert is_legal_name("a" * 249)
    assert not is_legal_name("a" * 250)
