"""The numbers of Kafka's error codes: one for each, without a gap."""

from __future__ import annotations

import pytest

from ottla.kernel.error import ErrorCode


def test_every_code_has_its_own_number_and_none_is_left_out() -> None:
    assert [code.value for code in ErrorCode] == list(range(-1, len(ErrorCode.__members__) - 1))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        # org.apache.kafka.common.protocol.Errors
        ("UNKNOWN_SERVER_ERROR", -1),
        ("NONE", 0),
        ("NOT_LEADER_OR_FOLLOWER", 6),
        ("NOT_COORDINATOR", 16),
        ("REBALANCE_IN_PROGRESS", 27),
        ("NOT_CONTROLLER", 41),
        ("INVALID_PRODUCER_EPOCH", 47),
        ("KAFKA_STORAGE_ERROR", 56),
        ("FENCED_LEADER_EPOCH", 74),
        ("ELECTION_NOT_NEEDED", 84),
        ("PRODUCER_FENCED", 90),
        ("UNKNOWN_TOPIC_ID", 100),
        ("FENCED_MEMBER_EPOCH", 110),
        ("TRANSACTION_ABORTABLE", 120),
        ("STREAMS_INVALID_TOPOLOGY", 130),
    ],
)
def test_a_code_has_the_number_that_kafka_gave_it(name: str, value: int) -> None:
    assert ErrorCode[name] == value
