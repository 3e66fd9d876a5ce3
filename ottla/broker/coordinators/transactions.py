"""The transaction coordinators of this node, one for each partition of `__transaction_state`, and their markers.

Rules:
- A coordinator has the leaders of the partitions write its markers (`ottla.broker.coordinators.markers`).
- A producer with transaction version 2 (Produce 12 and later, KIP-890) need not announce its partitions: the produce
  request adds them to the transaction. An older producer's partitions are verified instead, once per transaction.
- The coordinator may be on another broker, and its record waits for replicas: the request is held (`prepare`), and
  checked again with the answer (`pass_verified`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import TYPE_CHECKING

from ottla.broker.coordinators.coordinators import Coordinators
from ottla.broker.coordinators.parts import CoordinatorParts
from ottla.broker.coordinators.topic_spec import internal_replicas, new_topic
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import TRANSACTION_TOPIC, TopicPartition
from ottla.kernel.lazy import LazyModule
from ottla.metadata.image import TopicImage
from ottla.replica.partition import Partition
from ottla.wire.api.create_topics import CreatableTopic

if TYPE_CHECKING:
    from ottla.broker.coordinators import markers, peers, transaction_driver, verification
    from ottla.broker.coordinators.groups import GroupCoordinators
    from ottla.broker.runtime import Dial
else:
    markers = LazyModule("ottla.broker.coordinators.markers")
    peers = LazyModule("ottla.broker.coordinators.peers")
    transaction_driver = LazyModule("ottla.broker.coordinators.transaction_driver")
    verification = LazyModule("ottla.broker.coordinators.verification")


class TransactionCoordinators(Coordinators["transaction_driver.TransactionDriver"]):
    """All transaction coordinators of a node."""

    topic = TRANSACTION_TOPIC

    def __init__(
        self, parts: CoordinatorParts, dial: Dial, new_producer_id: Callable[[], int | None], groups: GroupCoordinators
    ) -> None:
        super().__init__(parts)
        self._dial = dial
        self._new_producer_id = new_producer_id
        self._groups = groups

    @cached_property
    def marker_writer(self) -> markers.MarkerWriter:
        """Writes markers into the partitions that this node leads."""
        return markers.MarkerWriter(self.parts, self._groups)

    @cached_property
    def markers(self) -> markers.Markers:
        """The markers being written; created when the first transaction ends."""
        return markers.Markers(self.parts, self.marker_writer, peers.BrokerPeers(self.runtime, self._dial))

    @cached_property
    def verification(self) -> verification.Verification:
        """Asks the coordinators; created for the first transactional batch."""
        return verification.Verification(self.runtime, self, peers.BrokerPeers(self.runtime, self._dial))

    def make(self, partition: Partition) -> transaction_driver.TransactionDriver:
        """A coordinator for the transactional ids of a partition."""
        return transaction_driver.TransactionDriver(self.parts, self, self._new_producer_id, partition)

    def new_topic(self) -> CreatableTopic:
        """`__transaction_state`, as the first lookup creates it."""
        settings = self.runtime.settings
        name, value = "transaction.state.log.replication.factor", settings.transaction_state_log_replication_factor
        replicas = internal_replicas(self.runtime, name, value)
        return new_topic(
            TRANSACTION_TOPIC,
            settings.transaction_state_log_num_partitions,
            {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": str(min(replicas, settings.transaction_state_log_min_isr)),
                "unclean.leader.election.enable": "false",
                "segment.bytes": str(settings.transaction_state_log_segment_bytes),
            },
            replicas,
        )

    def led(self, tp: TopicPartition) -> None:
        """Write the pending markers of a partition that is now led here."""
        if "markers" in vars(self):
            self.markers.look_again(tp)

    def follow(self, names: Iterable[str]) -> None:
        """Apply a change of these topics: markers go to the partitions' current leaders."""
        if "markers" in vars(self):
            self.markers.follow(names)

    def follow_brokers(self) -> None:
        """Apply a change of the brokers."""
        if "markers" in vars(self):
            self.markers.follow_brokers()
        if "verification" in vars(self):
            self.verification.peers.follow()

    def drop(self, topic: TopicImage) -> None:
        """Drop the pending markers of a deleted topic."""
        for index in range(len(topic.partitions)):
            self.led(TopicPartition(topic.name, index))

    def resign(self, index: int) -> None:
        """End the coordinator of a partition that this node no longer leads."""
        driver = self.find(index)
        if driver is not None and "markers" in vars(self):
            self.markers.forget(driver)
        super().resign(index)

    def close(self) -> None:
        """End all coordinators: answer their pending requests and stop the timers."""
        super().close()
        if "markers" in vars(self):
            self.markers.close()
        if "verification" in vars(self):
            self.verification.close()

    def prepare(
        self, partition: Partition, producer_id: int, producer_epoch: int, *, sequence: int, implicit: bool
    ) -> object | None:
        """A token for `pass_verified` if the coordinator must be asked before this batch, else None (KIP-890).

        Raises KafkaError for an old epoch.
        """
        log_producers = partition.log.producers
        if log_producers.has_ongoing_transaction(producer_id, producer_epoch):
            return None
        log_producers.check_epoch(producer_id, producer_epoch)
        token = log_producers.verify_from(producer_id, producer_epoch, sequence, implicit, self.runtime.clock.now_ms())
        return token if implicit or self.runtime.settings.transaction_partition_verification_enable else None

    def pass_verified(
        self,
        partition: Partition,
        producer_id: int,
        producer_epoch: int,
        answer: tuple[object, ErrorCode] | None,
        *,
        implicit: bool,
    ) -> None:
        """Admit a transactional batch only to an open transaction that includes the partition.

        `answer` is the token of `prepare` and the coordinator's error code; None if the coordinator was not asked.
        """
        log_producers = partition.log.producers
        if log_producers.has_ongoing_transaction(producer_id, producer_epoch):
            return
        log_producers.check_epoch(producer_id, producer_epoch)
        if answer is None:
            if implicit or self.runtime.settings.transaction_partition_verification_enable:
                # Since the request was first checked, the partition has moved here or the transaction has ended.
                raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "the transaction was not verified yet")
            return
        token, code = answer
        if code:
            raise KafkaError(_producer_error(code))
        if not log_producers.is_verifying(producer_id, token):
            # A marker arrived between the coordinator's answer and this batch: the transaction it was asked for is
            # over.
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, "Record was not part of an ongoing transaction")


def _producer_error(code: ErrorCode) -> ErrorCode:
    """The error to give to a producer for a coordinator's error.

    PRODUCER_FENCED is fatal to a producer; INVALID_PRODUCER_EPOCH, which producers have always got here, only aborts
    the transaction.
    """
    return ErrorCode.INVALID_PRODUCER_EPOCH if code is ErrorCode.PRODUCER_FENCED else code
