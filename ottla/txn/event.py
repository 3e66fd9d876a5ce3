"""The events and effects of a transaction coordinator, besides those of `ottla.coordinator.contract`."""

from ottla.coordinator.contract import Answer, Append, Called, Continue, Loaded, TimePassed
from ottla.kernel.frozen import frozen
from ottla.kernel.ids import TopicPartition


@frozen
class AddPartitions:
    """A request to add partitions to the producer's transaction, and to begin one if there is none.

    The response is an ErrorCode. All partitions are added, or none.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]
    #: The client's transaction version: 2 for those that add partitions implicitly.
    client_version: int


@frozen
class VerifyPartitions:
    """A request to verify that each partition is in the producer's ongoing transaction (KIP-890).

    The response is partition -> ErrorCode.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]


@frozen
class MarkersWritten:
    """Every partition of the transaction has its marker."""

    transactional_id: str


@frozen
class TimedOut:
    """The transaction's timeout has passed. Each gets a step of its own, so that no other has to wait for it."""

    transactional_id: str


Event = Called | Loaded | MarkersWritten | TimedOut | TimePassed


@frozen
class WriteMarkers:
    """Write the transaction's marker to each of its partitions, then report `MarkersWritten`."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool
    partitions: tuple[TopicPartition, ...]
    #: The client's transaction version: with 2 the marker's epoch is higher than that of the records.
    transaction_version: int


Effect = Append | Answer | Continue | WriteMarkers
