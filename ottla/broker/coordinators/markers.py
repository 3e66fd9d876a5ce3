"""Writes the markers of ended transactions to their partitions, and keeps those that cannot be written yet.

Rules:
- A transaction is complete when the marker of each of its partitions is committed, or the partition was deleted with
  its topic. The metadata image decides that, not the set of partitions led here. Until then the transaction stays in
  PrepareCommit or PrepareAbort.
- For a partition led here the marker is written by a call. Markers for another broker wait in that broker's queue
  (`MarkerQueue`), one request in flight at a time; after a failure they go to the partition's current leader.
- A marker for a partition without a leader (its directory has failed, its log is still being created) is written when
  the partition gets one. A refused marker is soon retried, as is one that too few in-sync replicas have
  (`min.insync.replicas`), as in Apache Kafka.
- Markers carry the leader epoch of the `__transaction_state` partition: those of a replaced coordinator are refused
  (TRANSACTION_COORDINATOR_FENCED), and its successor writes them.
- An error in a data partition affects only that partition: `__transaction_state` and its coordinator go on.

Bounded: each transaction has at most one marker per partition in a queue, and one end at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.coordinators.marker_queue import Ending, MarkerQueue
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import OFFSETS_TOPIC, TopicPartition
from ottla.log.log import Origin
from ottla.metadata.image import NO_LEADER
from ottla.txn.event import MarkersWritten, WriteMarkers
from ottla.wire.batch import build
from ottla.wire.record.control import ControlRecordType, EndTxnMarker
from ottla.wire.record.control import key_bytes as control_key
from ottla.wire.record.control import value_bytes as control_value

if TYPE_CHECKING:
    from ottla.broker.coordinators.groups import GroupCoordinators
    from ottla.broker.coordinators.parts import CoordinatorParts
    from ottla.broker.coordinators.peers import BrokerPeers
    from ottla.broker.coordinators.transaction_driver import TransactionDriver
    from ottla.replica.partition import Partition

_log = logging.getLogger("ottla.broker")
#: Backoff after a log of this node, or another broker, has refused a marker.
_RETRY_SECONDS = 1.0
_REMOTE_RETRY_SECONDS = 0.1
#: Errors of another broker that mean its partition no longer needs this marker, as in Apache Kafka.
_NOT_NEEDED = frozenset(
    {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION}
)


class Markers:
    """All markers of a node's coordinators. `Transactions` creates it."""

    def __init__(self, parts: CoordinatorParts, writer: MarkerWriter, peers: BrokerPeers) -> None:
        self._runtime = parts.runtime
        self._partitions = parts.leadership.partitions
        self._writer = writer
        #: Partition -> transactional id -> the transaction that needs a marker there.
        self._waiting: dict[TopicPartition, dict[str, Ending]] = {}
        #: Partitions with a scheduled retry.
        self._retries: dict[TopicPartition, asyncio.TimerHandle] = {}
        self._peers = peers
        #: Broker id -> queue.
        self._queues: dict[int, MarkerQueue] = {}

    def write(self, driver: TransactionDriver, effect: WriteMarkers) -> None:
        """Write the markers of one transaction; its driver gets `MarkersWritten` when all are committed."""
        ending = Ending(driver, effect, set(effect.partitions), {})
        for tp in effect.partitions:
            self._waiting.setdefault(tp, {})[effect.transactional_id] = ending
        for tp in effect.partitions:
            self._try(tp, ending)
        if not effect.partitions:
            _complete(driver, effect.transactional_id)

    def look_again(self, tp: TopicPartition) -> None:
        """Write the pending markers of a partition that is now led here, or drop them if its topic is gone."""
        for ending in list(self._waiting.get(tp, {}).values()):
            self._try(tp, ending)

    def follow(self, names: Iterable[str]) -> None:
        """Apply a change of these topics: their partitions may have new leaders."""
        if self._waiting:
            touched = set(names)
            for tp in [tp for tp in self._waiting if tp.topic in touched]:
                self.look_again(tp)

    def follow_brokers(self) -> None:
        """Apply a change of the brokers."""
        self._peers.follow()
        for broker_id in [known_id for known_id in self._queues if known_id not in self._runtime.image.brokers]:
            if not self._queues[broker_id]:
                del self._queues[broker_id]

    def forget(self, driver: TransactionDriver) -> None:
        """Drop the markers of a coordinator that has ended; its successor finds them in the log."""
        for tp in list(self._waiting):
            kept = {name: each for name, each in self._waiting[tp].items() if each.driver is not driver}
            self._set_waiting(tp, kept)

    def close(self) -> None:
        """Stop the timers and close the connections."""
        self._waiting.clear()
        for retry in self._retries.values():
            retry.cancel()
        self._retries.clear()
        self._peers.close()

    def _set_waiting(self, tp: TopicPartition, waiting: dict[str, Ending]) -> None:
        if waiting:
            self._waiting[tp] = waiting
        else:
            self._waiting.pop(tp, None)

    def wants(self, tp: TopicPartition, ending: Ending, broker_id: int) -> bool:
        """Whether this broker should still write this marker."""
        waiting = self._waiting.get(tp)
        # Writing an earlier marker may have failed the directory and thereby ended this coordinator.
        return (
            waiting is not None
            and waiting.get(ending.effect.transactional_id) is ending
            and ending.sent.get(tp) == broker_id
        )

    def _try(self, tp: TopicPartition, ending: Ending) -> None:
        runtime = self._runtime
        waiting = self._waiting.get(tp)
        if waiting is None or waiting.get(ending.effect.transactional_id) is not ending:
            return
        partition = self._partitions.get(tp)
        if partition is not None:
            if ending.sent.get(tp) != runtime.node_id and self._is_written(tp, partition, ending):
                ending.sent[tp] = runtime.node_id
                partition.when_committed(partition.log.end_offset, partial(self._committed, tp, ending))
            return
        if not runtime.image.has(tp):
            return self._finished(tp, ending)
        leader = runtime.image.topics[tp.topic].partitions[tp.partition].leader
        ending.sent.pop(tp, None)
        if leader not in (NO_LEADER, runtime.node_id):
            # Do not wait for a marker in flight to an earlier leader, which is fenced or hangs.
            ending.sent[tp] = leader
            queue = self._queues.get(leader)
            if queue is None:
                queue = self._queues[leader] = MarkerQueue(self, self._runtime.loop, self._peers, leader)
            queue.add(tp, ending)
        return None

    def _committed(self, tp: TopicPartition, ending: Ending, error: KafkaError | None) -> None:
        if not self.wants(tp, ending, self._runtime.node_id):
            return
        del ending.sent[tp]
        if error is None:
            self._finished(tp, ending)
        else:
            # A new leader, or too few replicas, may lack the marker. Write it again at the current leader.
            self._retry(tp, _REMOTE_RETRY_SECONDS)

    def answered(self, tp: TopicPartition, ending: Ending, broker_id: int, code: int | None) -> None:
        """Take another broker's error code for a marker; None if it did not respond."""
        if not self.wants(tp, ending, broker_id):
            return
        del ending.sent[tp]
        if code == ErrorCode.NONE or code in _NOT_NEEDED:
            self._finished(tp, ending)
        else:
            _log.info(
                "the marker of %s in %s was not written by broker %d: %s",
                ending.effect.transactional_id,
                tp,
                broker_id,
                code,
            )
            fenced = code == ErrorCode.TRANSACTION_COORDINATOR_FENCED
            self._retry(tp, _RETRY_SECONDS if fenced else _REMOTE_RETRY_SECONDS)

    def _finished(self, tp: TopicPartition, ending: Ending) -> None:
        """Finish with a partition whose marker is committed, or that was deleted."""
        waiting, name = self._waiting.get(tp, {}), ending.effect.transactional_id
        if waiting.get(name) is not ending:
            return
        waiting.pop(name, None)
        self._set_waiting(tp, waiting)
        ending.left.discard(tp)
        if not ending.left:
            _complete(ending.driver, name)

    def _is_written(self, tp: TopicPartition, partition: Partition, ending: Ending) -> bool:
        """Write the marker; True when it is in the log or not needed."""
        effect = ending.effect
        coordinator_epoch = ending.epoch
        if len(self._runtime.image.brokers) <= 1:
            # A marker from another client may name any epoch. It must not keep the cluster's only coordinator from
            # ending
            # the transaction.
            known = partition.log.producers.by_id.get(effect.producer_id)
            coordinator_epoch = max(coordinator_epoch, -1 if known is None else known.coordinator_epoch)
        try:
            self._writer.write(
                partition,
                effect.producer_id,
                effect.producer_epoch,
                committed=effect.committed,
                coordinator_epoch=coordinator_epoch,
                transaction_version=effect.transaction_version,
            )
        except KafkaError as error:
            if error.code is ErrorCode.INVALID_PRODUCER_EPOCH:
                # A marker of a newer epoch has ended the transaction there.
                _log.warning("the marker of %s in %s is not needed: %s", effect.transactional_id, tp, error)
                return True
            level = logging.INFO if error.code is ErrorCode.NOT_ENOUGH_REPLICAS else logging.ERROR
            _log.log(level, "cannot write the marker of %s to %s: %s", effect.transactional_id, tp, error)
            self._retry(tp, _RETRY_SECONDS)
            return False
        return True

    def _retry(self, tp: TopicPartition, seconds: float) -> None:
        if tp not in self._retries and not self._runtime.closed:
            self._retries[tp] = self._runtime.loop.call_later(seconds, self._time_passed, tp)

    def _time_passed(self, tp: TopicPartition) -> None:
        del self._retries[tp]
        self.look_again(tp)


def _complete(driver: TransactionDriver, transactional_id: str) -> None:
    driver.when_writable(lambda: driver.step(MarkersWritten(transactional_id)))


class MarkerWriter:
    """Writes markers into the partitions that this node leads."""

    def __init__(self, parts: CoordinatorParts, groups: GroupCoordinators) -> None:
        self._clock = parts.runtime.clock
        self._flusher = parts.flusher
        self._log_dirs = parts.log_dirs
        self._groups = groups

    def write(
        self,
        partition: Partition,
        producer_id: int,
        producer_epoch: int,
        *,
        committed: bool,
        coordinator_epoch: int,
        transaction_version: int,
    ) -> None:
        """Append a marker that ends a producer's transaction in one partition.

        KafkaError when the log refuses the marker; NOT_ENOUGH_REPLICAS below min.insync.replicas.
        """
        now_ms = self._clock.now_ms()
        kind = ControlRecordType.COMMIT if committed else ControlRecordType.ABORT
        value = control_value(EndTxnMarker(coordinator_epoch=coordinator_epoch))
        data = build(
            [(now_ms, control_key(kind), value, ())],
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            transactional=True,
            control=True,
        )
        with self._log_dirs.guarding(partition.log):
            partition.append(bytearray(data), now_ms, Origin.COORDINATOR, transaction_version)
            self._flusher.flush_now(partition)
        group = self._groups.find(partition.tp.partition) if partition.tp.topic == OFFSETS_TOPIC else None
        if group is not None:
            # A coordinator that is still loading reads the marker from the log.
            group.machine.replay_marker(producer_id, committed=committed)
