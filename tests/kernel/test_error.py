"""The numbers of Kafka's error codes: one for each, without a gap. Errors that are copied and pickled."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from ottla.kernel.client_error import LogTruncation, RecordDeserializationError, RequestTimedOut
from ottla.kernel.error import ErrorCode, KafkaError, OttlaError, RefusedBatch
from ottla.kernel.ids import TopicPartition


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


def _copies(error: Exception) -> list[Any]:
    return [copy.copy(error), *(pickle.loads(pickle.dumps(error, each)) for each in range(pickle.HIGHEST_PROTOCOL + 1))]


@pytest.mark.parametrize(
    "error",
    [
        KafkaError(ErrorCode.FENCED_INSTANCE_ID, "another member has it"),
        KafkaError(ErrorCode.NONE),
        RefusedBatch(ErrorCode.INVALID_RECORD, "no key", [(3, "it has no key")]),
        OttlaError("set acks to all"),
        RequestTimedOut("no answer in 5 s"),
        LogTruncation(TopicPartition("t", 3), 7, 2, (5, 1)),
        RecordDeserializationError(("t", 3, 7, -1, None, b"{", ()), "value", "no JSON"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_reach_other_processes_as_they_are(error: Exception) -> None:
    error.add_note("in partition 3")
    for found in _copies(error):
        assert (type(found), str(found), found.args, vars(found)) == (type(error), str(error), error.args, vars(error))
