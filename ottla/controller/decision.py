"""What a command of the controller comes to: records to write and the response that may leave after."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.kernel.error import KafkaError
from ottla.kernel.named import NamedTuple


class Decision(NamedTuple):
    """What is written and what is answered; the response leaves when all records are committed."""

    records: list[Any]
    response: Any
    #: The kraft.version that the quorum must have from now on; None leaves it. It goes into the log before `records`.
    kraft_version: int | None = None
    #: The records stand in the log together or not at all. Otherwise each of them may stand there without those after
    #: it: many are written as several batches (Apache Kafka's ControllerResult).
    atomic: bool = True


#: Told how many partitions a command makes or deletes, before it does; a KafkaError refuses them (KIP-599).
MutationQuota = Callable[[int], None]


def unlimited(partitions: int) -> None:
    """No mutation quota applies."""


def message_or_none(error: KafkaError) -> str | None:
    """The text that goes with an error, or None where the code says all."""
    return error.message or None
