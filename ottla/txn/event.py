"""What only a transaction coordinator is told and wants done; the rest is in `ottla.coordinator.contract`."""

from ottla.coordinator.contract import Answer, Append, Called, Loaded, TimePassed
from ottla.kernel.frozen import frozen
from ottla.kernel.ids import TopicPartition


@frozen
class AddPartitions:
    """A request: put partitions into the producer's transaction, beginning one if need be.

    The response is an ErrorCode. Nothing is done unless all of it is.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]
    #: The client's transaction version: 2 for those that add partitions implicitly.
    client_version: int


@frozen
class VerifyPartitions:
    """A request: is each partition in the producer's open transaction (KIP-890)? Answered by partition -> ErrorCode."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]


@frozen
class MarkersWritten:
    """Every partition of the transaction has its marker."""

    transactional_id: str


Event = Called | Loaded | MarkersWritten | TimePassed


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
