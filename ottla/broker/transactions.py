"""The transaction coordinators of this node, one a partition of `__transaction_state`, and their markers.

Rules:
- Markers are written into the partitions by the coordinator itself: on one node every partition is here. A partition
  that was deleted meanwhile needs none.
- A producer that speaks transaction version 2 (Produce 12 and later, KIP-890) need not announce its partitions: the
  produce request itself brings them into the transaction. An older one's are verified instead, once a transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ottla.broker.driver import Driver
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.name import OFFSETS_TOPIC, TRANSACTION_TOPIC, TopicPartition, coordinator_partition
from ottla.log.log import Origin
from ottla.replica.partition import Partition
from ottla.txn.coordinator import Coordinator, TransactionSettings
from ottla.txn.event import Append, Called, Loaded, MarkersWritten, TimePassed, WriteMarkers
from ottla.wire.batch import Batch, build
from ottla.wire.record.control import ControlRecordType, EndTxnMarker
from ottla.wire.record.control import key_bytes as control_key
from ottla.wire.record.control import value_bytes as control_value
from ottla.wire.record.transaction import parse

if TYPE_CHECKING:
    from ottla.broker.node import Node

#: This node's coordinators are never replaced by another's, so one epoch serves.
_COORDINATOR_EPOCH = 0


class Transactions:
    """All transaction coordinators. The node makes it and tells it of partitions."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._drivers: dict[int, TransactionDriver] = {}

    def drivers(self) -> list[TransactionDriver]:
        """Every coordinator, in the order of the partitions."""
        return [self._drivers[index] for index in sorted(self._drivers)]

    def partition_of(self, transactional_id: str) -> int:
        """Which partition of `__transaction_state` holds this id; makes the topic when there is none yet."""
        node = self._node
        topic = node.image.topics.get(TRANSACTION_TOPIC)
        if topic is None:
            node.create_transaction_topic()
            topic = node.image.topics[TRANSACTION_TOPIC]
        return coordinator_partition(transactional_id, len(topic.partitions))

    def driver_of(self, transactional_id: str) -> TransactionDriver:
        """The coordinator of a transactional id."""
        driver = self._drivers.get(self.partition_of(transactional_id))
        if driver is None:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        return driver

    def lead(self, partition: Partition) -> None:
        """A partition of `__transaction_state` is ours: load its coordinator."""
        self._drivers[partition.tp.partition] = TransactionDriver(self._node, partition)

    def resign(self, index: int) -> None:
        """The partition is gone."""
        driver = self._drivers.pop(index, None)
        if driver is not None:
            driver.cancel_timer()

    def resume(self) -> None:
        """All partitions are there: transactions whose end was decided before a restart get their markers."""
        for driver in self.drivers():
            driver.step(Loaded())

    def close(self) -> None:
        """Stop the timers."""
        for index in list(self._drivers):
            self.resign(index)

    def guard(
        self, transactional_id: str, partition: Partition, producer_id: int, producer_epoch: int, *, implicit: bool
    ) -> None:
        """Let a transactional batch pass only into an open transaction that has the partition (KIP-890)."""
        if partition.log.producers.has_ongoing_transaction(producer_id, producer_epoch):
            return
        driver = self.driver_of(transactional_id)
        if implicit:
            code = driver.add(transactional_id, producer_id, producer_epoch, [partition.tp], client_version=2)
        elif self._node.settings.transaction_partition_verification_enable:
            code = driver.machine.verify(transactional_id, producer_id, producer_epoch, partition.tp)
        else:
            return
        if code:
            raise KafkaError(code)


class TransactionDriver(Driver[Coordinator]):
    """One transaction coordinator on one partition."""

    def __init__(self, node: Node, partition: Partition) -> None:
        super().__init__(node, partition, _fresh(node), TimePassed())
        self.load()

    def restart(self) -> None:
        """A machine begins that knows what is in the log; ends that were decided go on."""
        self.machine = _fresh(self.node)
        self.load()
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
        now_ms = self.node.clock.now_ms()
        code, effects = self.machine.add(
            transactional_id, producer_id, producer_epoch, partitions, client_version=client_version, now_ms=now_ms
        )
        self.carry_out_all(effects, now_ms)
        self.plan(now_ms)
        return code

    def carry_out(self, effect: Append | WriteMarkers, now_ms: int) -> None:
        """Append to `__transaction_state`, or write a transaction's markers and report them."""
        if isinstance(effect, Append):
            self.append(effect.entries, now_ms)
            return
        for tp in effect.partitions:
            write_marker(
                self.node,
                tp,
                effect.producer_id,
                effect.producer_epoch,
                committed=effect.committed,
                coordinator_epoch=_COORDINATOR_EPOCH,
                transaction_version=effect.transaction_version,
            )
        self.step(MarkersWritten(effect.transactional_id))


def _fresh(node: Node) -> Coordinator:
    settings = node.settings
    return Coordinator(
        TransactionSettings(
            settings.transaction_max_timeout_ms,
            settings.transaction_abort_timed_out_transaction_cleanup_interval_ms,
            settings.transactional_id_expiration_ms,
            settings.transaction_remove_expired_transaction_cleanup_interval_ms,
        ),
        node.next_producer_id,
    )


def write_marker(
    node: Node,
    tp: TopicPartition,
    producer_id: int,
    producer_epoch: int,
    *,
    committed: bool,
    coordinator_epoch: int,
    transaction_version: int,
) -> None:
    """End a producer's transaction in one partition."""
    partition = node.partitions.get(tp)
    if partition is None:
        return
    now_ms = node.clock.now_ms()
    kind = ControlRecordType.COMMIT if committed else ControlRecordType.ABORT
    value = control_value(EndTxnMarker(coordinator_epoch=coordinator_epoch))
    data = build(
        [(now_ms, control_key(kind), value, ())],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )
    partition.append(bytearray(data), now_ms, Origin.COORDINATOR, transaction_version)
    if tp.topic == OFFSETS_TOPIC:
        node.groups.driver_at(tp.partition).machine.replay_marker(producer_id, committed=committed)
