"""What comes into the coordinator (events, in the past tense) and what it wants done (effects, imperative)."""

from typing import Any

from ottla.kernel.frozen import frozen
from ottla.kernel.ids import TopicPartition

#: The key and value of a record as they stand in `__transaction_state`. A value of None is a tombstone.
Entry = tuple[bytes, bytes | None]


@frozen
class Called:
    """A request for a transactional id of this partition. It is answered exactly once, in this step."""

    ticket: int
    request: Any
    version: int


@frozen
class Loaded:
    """Every record of the log was replayed: transactions whose end is decided go on, requests may come."""


@frozen
class MarkersWritten:
    """Every partition of the transaction has its marker."""

    transactional_id: str


@frozen
class TimePassed:
    """`deadline_ms()` was reached."""


Event = Called | Loaded | MarkersWritten | TimePassed


@frozen
class Append:
    """Append these records as one batch and replay them at once."""

    entries: list[Entry]


@frozen
class Answer:
    """Send this response once everything appended so far is committed."""

    ticket: int
    response: Any


@frozen
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
