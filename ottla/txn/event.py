"""What comes into the coordinator (events, in the past tense) and what it wants done (effects, imperative)."""

from dataclasses import dataclass
from typing import Any

from ottla.kernel.name import TopicPartition

#: The key and value of a record as they stand in `__transaction_state`. A value of None is a tombstone.
Entry = tuple[bytes, bytes | None]


@dataclass(frozen=True, slots=True)
class Called:
    """A request for a transactional id of this partition. It is answered exactly once, in this step."""

    ticket: int
    request: Any
    version: int


@dataclass(frozen=True, slots=True)
class Loaded:
    """Every record of the log was replayed: transactions whose end is decided go on, requests may come."""


@dataclass(frozen=True, slots=True)
class MarkersWritten:
    """Every partition of the transaction has its marker."""

    transactional_id: str


@dataclass(frozen=True, slots=True)
class TimePassed:
    """`deadline_ms()` was reached."""


Event = Called | Loaded | MarkersWritten | TimePassed


@dataclass(frozen=True, slots=True)
class Append:
    """Append these records as one batch and replay them at once."""

    entries: list[Entry]


@dataclass(frozen=True, slots=True)
class Answer:
    """Send this response once everything appended so far is committed."""

    ticket: int
    response: Any


@dataclass(frozen=True, slots=True)
class WriteMarkers:
    """Write the transaction's end into each of its partitions, then report `MarkersWritten`."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool
    partitions: tuple[TopicPartition, ...]
    #: The client's transaction version: 2 says that the marker's epoch is higher than that of the records.
    transaction_version: int


Effect = Append | Answer | WriteMarkers
