"""The result of a controller command: the records to write and the response to send after their commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.named import NamedTuple

#: Apache Kafka's limit of the records of one request and of one batch (QuorumController.MAX_RECORDS_PER_USER_OP).
RECORDS_MAX = 10_000


class Decision(NamedTuple):
    """The records to write and the response, which is sent when all records are committed."""

    records: list[Any]
    response: Any
    #: The new kraft.version of the quorum; None leaves it unchanged. It is written before `records`.
    kraft_version: int | None = None
    #: The records are written together or not at all. Otherwise a prefix of them may be written: many records are split
    #: into several batches (Apache Kafka's ControllerResult).
    atomic: bool = True


#: Called with the number of partitions that a command is about to create or delete; raises KafkaError to reject them
#: (KIP-599).
MutationQuota = Callable[[int], None]


def unlimited(partitions: int) -> None:
    """No mutation quota applies."""


def check_size(records: Sequence[Any]) -> None:
    """Raise POLICY_VIOLATION if one batch cannot hold the records: a long request must not be decided to its end."""
    if len(records) > RECORDS_MAX:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation.")


def check_count(count: int, most: int = RECORDS_MAX) -> None:
    """Raise POLICY_VIOLATION if a request asks for too many changes (default: than one batch may have records)."""
    if count > most:
        why = f"The request asks for {count} changes, and one may have {most}: divide it."
        raise KafkaError(ErrorCode.POLICY_VIOLATION, why)


def message_or_none(error: KafkaError) -> str | None:
    """Return the message of an error; None if it has none."""
    return error.message or None
