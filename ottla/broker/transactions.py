"""The transaction coordinators of this node, one a partition of `__transaction_state`, and their markers.

Rules:
- Markers are written into the partitions by the coordinator itself: on one node every partition is here. A partition
  that was deleted meanwhile needs none.
- A producer that speaks transaction version 2 (Produce 12 and later, KIP-890) need not announce its partitions: the
  produce request itself brings them into the transaction. An older one's are verified instead, once a transaction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.coordinators import Coordinators
from ottla.broker.creation import new_topic
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.lazy import LazyModule
from ottla.kernel.name import TRANSACTION_TOPIC, TopicPartition
from ottla.replica.partition import Partition
from ottla.wire.api.create_topics import CreatableTopic

if TYPE_CHECKING:
    from ottla.broker import transaction_driver
    from ottla.broker.node import Node
else:
    transaction_driver = LazyModule("ottla.broker.transaction_driver")


class Transactions(Coordinators["transaction_driver.TransactionDriver"]):
    """All transaction coordinators of a node."""

    topic = TRANSACTION_TOPIC

    def __init__(self, node: Node) -> None:
        super().__init__(node)
        #: Are all partitions there, so that markers can be written?
        self.resumed = False

    def make(self, partition: Partition) -> transaction_driver.TransactionDriver:
        """A coordinator of the transactional ids of a partition."""
        return transaction_driver.TransactionDriver(self.node, partition)

    def new_topic(self) -> CreatableTopic:
        """`__transaction_state`, on the first need of it."""
        settings = self.node.settings
        return new_topic(
            TRANSACTION_TOPIC,
            settings.transaction_state_log_num_partitions,
            {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": "1",
                "unclean.leader.election.enable": "false",
                "segment.bytes": str(settings.transaction_state_log_segment_bytes),
            },
        )

    def led(self, tp: TopicPartition) -> None:
        """A partition is led here now: markers that wait for it are written."""

    def resume(self) -> None:
        """All partitions are there: transactions whose end was decided before a restart get their markers."""
        self.resumed = True
        for driver in self.loaded():
            driver.begin()

    def guard(
        self,
        transactional_id: str,
        partition: Partition,
        producer_id: int,
        producer_epoch: int,
        *,
        sequence: int | None = None,
        implicit: bool,
    ) -> None:
        """Let a transactional batch pass only into an open transaction that has the partition (KIP-890)."""
        log_producers = partition.log.producers
        if log_producers.has_ongoing_transaction(producer_id, producer_epoch):
            return
        log_producers.check_epoch(producer_id, producer_epoch)
        if sequence is not None:
            log_producers.verify_from(producer_id, producer_epoch, sequence, implicit, self.node.clock.now_ms())
        driver = self.driver_of(transactional_id)
        if implicit:
            code = driver.add(transactional_id, producer_id, producer_epoch, [partition.tp], client_version=2)
        elif self.node.settings.transaction_partition_verification_enable:
            code = driver.machine.verify(transactional_id, producer_id, producer_epoch, partition.tp)
        else:
            return
        if code == ErrorCode.PRODUCER_FENCED:
            # Who writes has always been told this one, and takes it as the end; the other only ends a transaction.
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        if code:
            raise KafkaError(code)
