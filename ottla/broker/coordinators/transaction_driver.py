"""A transaction coordinator on one partition of `__transaction_state`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ottla.broker.coordinators.driver import Driver
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import TopicPartition
from ottla.replica.partition import Partition
from ottla.txn.coordinator import TransactionCoordinator, TransactionSettings
from ottla.txn.event import Append, Called, Loaded, TimePassed, WriteMarkers
from ottla.wire.batch import Batch
from ottla.wire.record.transaction import parse

if TYPE_CHECKING:
    from ottla.broker.node import BrokerNode

_log = logging.getLogger("ottla.broker")
#: A load is cut into pieces of so many ids: some milliseconds.
_IDS_AT_ONCE = 200


class TransactionDriver(Driver[TransactionCoordinator]):
    """`Transactions` makes it, loads it and ends it."""

    writing = frozenset({"InitProducerIdRequest", "EndTxnRequest"})

    def __init__(self, node: BrokerNode, partition: Partition) -> None:
        super().__init__(node, partition, _fresh(node), TimePassed())

    def load(self) -> Iterator[None]:
        """Only the last record of each id counts; the ones before it, most of the log, are not even parsed."""
        last: dict[bytes, bytes | None] = {}
        for number, batches in enumerate(self.pieces()):
            if number:
                yield
            for batch in batches:
                for record in batch.records():
                    if record.key is not None:
                        last[record.key] = record.value
        for number, (key, value) in enumerate(last.items()):
            self.machine.replay(*parse(key, value))
            if number % _IDS_AT_ONCE == _IDS_AT_ONCE - 1:
                yield

    def begin(self) -> None:
        """Write the markers of transactions whose end was decided."""
        self.step(Loaded())

    def replay_batch(self, batch: Batch) -> None:
        """Every record to `replay`."""
        for record in batch.records():
            if record.key is not None:
                self.machine.replay(*parse(record.key, record.value))

    def ask(self, request: Any, version: int, answer: Callable[[Any], None]) -> None:
        """Put a request to the coordinator; `answer` is called once with the response."""
        self.step(Called(self.expect(answer), request, version))

    def add(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
        *,
        client_version: int,
    ) -> ErrorCode:
        """Bring partitions into a producer's transaction."""
        if self.failed:
            return ErrorCode.NOT_COORDINATOR
        refusal = self.refusal()
        if refusal is not None:
            return refusal.code
        now_ms = self.node.clock.now_ms()
        code, effects = self.machine.add(
            transactional_id, producer_id, producer_epoch, partitions, client_version=client_version, now_ms=now_ms
        )
        failed = self.carry_out_all(effects, now_ms)
        if failed is not None:
            return failed.code
        self.plan()
        return code

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
        """As `add`; `done` is called when all that the answer follows from is committed: at once on a lone replica."""
        code = self.add(transactional_id, producer_id, producer_epoch, partitions, client_version=client_version)
        self._say(code, done)

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
        done: Callable[[dict[TopicPartition, ErrorCode]], None],
    ) -> None:
        """Say of each partition whether it is in the producer's open transaction, when that is committed."""
        machine = self.machine
        found = {tp: machine.verify(transactional_id, producer_id, producer_epoch, tp) for tp in partitions}
        self._say(ErrorCode.NONE, lambda code: done(dict.fromkeys(found, code) if code else found))

    def _say(self, code: ErrorCode, done: Callable[[ErrorCode], None]) -> None:
        if self.failed or self.partition.machine is None:
            return done(code)
        return self.answer_committed(lambda said: done(said.code if isinstance(said, KafkaError) else said), code)

    def carry_out(self, effect: Append | WriteMarkers, now_ms: int) -> None:
        """Append to `__transaction_state`, or have a transaction's markers written."""
        if isinstance(effect, Append):
            self.append(effect.entries, now_ms)
            return
        self.after_commit(lambda: self.node.transactions.markers.write(self, effect))


def _fresh(node: BrokerNode) -> TransactionCoordinator:
    return TransactionCoordinator(
        TransactionSettings.of(node.settings),
        node.producer_ids.next,
        lambda: node.image.features.get("transaction.version", 0),
    )
