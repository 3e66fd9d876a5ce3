"""A transaction coordinator of one partition of `__transaction_state`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ottla.broker.coordinators.driver import RETRY_SECONDS, Driver
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import TopicPartition
from ottla.replica.partition import Partition
from ottla.txn.coordinator import TransactionCoordinator, TransactionSettings
from ottla.txn.event import AddPartitions, MarkersWritten, VerifyPartitions, WriteMarkers

if TYPE_CHECKING:
    from ottla.broker.coordinators.parts import CoordinatorParts
    from ottla.broker.coordinators.transactions import TransactionCoordinators
    from ottla.broker.runtime import Runtime

#: Ids that one piece of a load replays: some milliseconds.
_IDS_PER_PIECE = 200


class TransactionDriver(Driver[TransactionCoordinator]):
    """The driver of a transaction coordinator. `Transactions` creates, loads and ends it."""

    writing = frozenset({"InitProducerIdRequest", "EndTxnRequest", "AddPartitions"})
    answers_want_min_isr = True
    goes_on = False

    def __init__(
        self,
        parts: CoordinatorParts,
        coordinators: TransactionCoordinators,
        new_producer_id: Callable[[], int | None],
        partition: Partition,
    ) -> None:
        super().__init__(parts, partition, _fresh(parts.runtime, new_producer_id))
        self._coordinators = coordinators

    def load(self) -> Iterator[None]:
        """Replay only the last record of each id; the others, which are most of the log, are not even parsed."""
        last: dict[bytes, bytes | None] = {}
        for number, batches in enumerate(self.pieces()):
            if number:
                yield
            for batch in batches:
                for record in batch.records():
                    if record.key is not None:
                        last[record.key] = record.value
        for number, (key, value) in enumerate(last.items()):
            self.machine.replay(key, value)
            if number % _IDS_PER_PIECE == _IDS_PER_PIECE - 1:
                yield

    def join(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
        *,
        client_version: int,
        done: Callable[[ErrorCode], None],
    ) -> None:
        """Add partitions to a producer's transaction; `done` is called when that is committed, perhaps at once."""
        request = AddPartitions(transactional_id, producer_id, producer_epoch, tuple(partitions), client_version)
        self.ask(request, 0, lambda answer: done(answer.code if isinstance(answer, KafkaError) else answer))

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
        done: Callable[[dict[TopicPartition, ErrorCode]], None],
    ) -> None:
        """Report for each partition whether it is in the producer's open transaction, once that state is committed."""
        request = VerifyPartitions(transactional_id, producer_id, producer_epoch, tuple(partitions))

        def on_answer(answer: dict[TopicPartition, ErrorCode] | KafkaError) -> None:
            done(dict.fromkeys(request.partitions, answer.code) if isinstance(answer, KafkaError) else answer)

        self.ask(request, 0, on_answer)

    def refused(self, event: Any) -> None:
        """As `Driver.refused`: the machine is unchanged. A transaction whose markers are written must complete."""
        if isinstance(event, MarkersWritten):
            self.runtime.loop.call_later(RETRY_SECONDS, self.step, event)

    def ask_others(self, effect: WriteMarkers) -> None:
        """Write a transaction's markers."""
        self._coordinators.markers.write(self, effect)


def _fresh(runtime: Runtime, new_producer_id: Callable[[], int | None]) -> TransactionCoordinator:
    return TransactionCoordinator(
        TransactionSettings.of(runtime.settings),
        new_producer_id,
        lambda: runtime.image.features.get("transaction.version", 0),
    )
