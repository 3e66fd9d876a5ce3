"""The transaction coordinators of this node, one a partition of `__transaction_state`, and their markers.

Rules:
- Markers are written into the partitions by the coordinator itself (`ottla.broker.coordinators.markers`): all that
  are led are led here.
- A producer that speaks transaction version 2 (Produce 12 and later, KIP-890) need not announce its partitions: the
  produce request itself brings them into the transaction. An older one's are verified instead, once a transaction.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from ottla.broker.coordinators.coordinators import Coordinators
from ottla.broker.coordinators.topic_spec import new_topic
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import TRANSACTION_TOPIC, TopicPartition
from ottla.kernel.lazy import LazyModule
from ottla.metadata.image import TopicImage
from ottla.replica.partition import Partition
from ottla.wire.api.create_topics import CreatableTopic

if TYPE_CHECKING:
    from ottla.broker.coordinators import markers, transaction_driver
else:
    markers = LazyModule("ottla.broker.coordinators.markers")
    transaction_driver = LazyModule("ottla.broker.coordinators.transaction_driver")


class TransactionCoordinators(Coordinators["transaction_driver.TransactionDriver"]):
    """All transaction coordinators of a node."""

    topic = TRANSACTION_TOPIC

    @cached_property
    def markers(self) -> markers.Markers:
        """The markers on their way; made when the first transaction ends."""
        return markers.Markers(self.node)

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
        if "markers" in vars(self):
            self.markers.look_again(tp)

    def drop(self, topic: TopicImage) -> None:
        """A topic is gone: its partitions need no markers."""
        for index in range(len(topic.partitions)):
            self.led(TopicPartition(topic.name, index))

    def resign(self, index: int) -> None:
        """The partition is not led here any more."""
        driver = self.find(index)
        super().resign(index)
        if driver is not None and "markers" in vars(self):
            self.markers.forget(driver)

    def close(self) -> None:
        """Tell the requests that still wait, and stop the timers."""
        super().close()
        if "markers" in vars(self):
            self.markers.close()

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
            # Writers have always been told this one, and take it as the end; the other only ends a transaction.
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        if code:
            raise KafkaError(code)
