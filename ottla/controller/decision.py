"""The result of a controller command: the records to write and the response to send after their commit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.kernel.error import KafkaError
from ottla.kernel.named import NamedTuple


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


def message_or_none(error: KafkaError) -> str | None:
    """Return the message of an error; None if it has none."""
    return error.message or None
