"""The markers that transaction coordinators have written into partitions, and those that still have to wait.

Rules:
- A transaction is complete when the marker of each of its partitions is committed, or the partition is gone with its
  topic: the metadata image says that, not which partitions are led here. Until then it stays in PrepareCommit or
  PrepareAbort.
- A marker for a partition that is not led here (its directory has failed, its log is still being made) is written when
  the partition is led. One that the partition's log refused is tried again a second later.
- An error of a data partition is that partition's alone: `__transaction_state` and its coordinator go on.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import OFFSETS_TOPIC, TopicPartition
from ottla.log.log import Origin
from ottla.txn.event import MarkersWritten, WriteMarkers
from ottla.wire.batch import build
from ottla.wire.record.control import ControlRecordType, EndTxnMarker
from ottla.wire.record.control import key_bytes as control_key
from ottla.wire.record.control import value_bytes as control_value

if TYPE_CHECKING:
    from ottla.broker.coordinators.transaction_driver import TransactionDriver
    from ottla.broker.node import BrokerNode
    from ottla.replica.partition import Partition

_log = logging.getLogger("ottla.broker")
_RETRY_SECONDS = 1.0


class _Ending(NamedTuple):
    """A transaction whose end is decided, and who is told that all of its markers are written."""

    driver: TransactionDriver
    effect: WriteMarkers
    #: The partitions that have no committed marker yet, and those of them that have one that is not committed.
    left: set[TopicPartition]
    sent: set[TopicPartition]


class Markers:
    """All markers of a node's coordinators. `Transactions` makes it."""

    def __init__(self, node: BrokerNode) -> None:
        self._node = node
        #: What waits for each partition, by transactional id.
        self._waiting: dict[TopicPartition, dict[str, _Ending]] = {}
        #: Partitions that are to be tried again.
        self._refused: set[TopicPartition] = set()
        self._timer: asyncio.TimerHandle | None = None

    def write(self, driver: TransactionDriver, effect: WriteMarkers) -> None:
        """Write the markers of one transaction; the driver gets `MarkersWritten` when that is done."""
        ending = _Ending(driver, effect, set(effect.partitions), set())
        for tp in effect.partitions:
            self._waiting.setdefault(tp, {})[effect.transactional_id] = ending
        for tp in effect.partitions:
            self._try(tp, ending)
        if not effect.partitions:
            driver.step(MarkersWritten(effect.transactional_id))

    def look_again(self, tp: TopicPartition) -> None:
        """The partition is led here now, or its topic is gone: write what waits for it."""
        for ending in list(self._waiting.get(tp, {}).values()):
            self._try(tp, ending)

    def forget(self, driver: TransactionDriver) -> None:
        """This coordinator has ended. The one that follows it finds in the log what it has to write."""
        for tp in list(self._waiting):
            kept = {name: each for name, each in self._waiting[tp].items() if each.driver is not driver}
            self._keep(tp, kept)

    def close(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None

    def _keep(self, tp: TopicPartition, waiting: dict[str, _Ending]) -> None:
        if waiting:
            self._waiting[tp] = waiting
        else:
            self._waiting.pop(tp, None)

    def _try(self, tp: TopicPartition, ending: _Ending) -> None:
        waiting, name = self._waiting.get(tp, {}), ending.effect.transactional_id
        # Writing another one may have ended the directory, and with it this coordinator.
        if waiting.get(name) is not ending or tp in ending.sent:
            return
        partition = self._node.partitions.get(tp)
        if partition is None:
            if not self._node.image.has(tp):
                self._through(tp, ending)
        elif self._is_written(tp, partition, ending):
            ending.sent.add(tp)
            partition.when_committed(partition.log.end_offset, partial(self._committed, tp, ending))

    def _committed(self, tp: TopicPartition, ending: _Ending, error: KafkaError | None) -> None:
        ending.sent.discard(tp)
        if error is None or error.code is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND:
            self._through(tp, ending)
        elif ending.left:
            # Another leader may not have it. It is written again where the partition is led.
            self._try_again(tp)

    def _through(self, tp: TopicPartition, ending: _Ending) -> None:
        """The marker is committed, or the partition gone."""
        waiting, name = self._waiting.get(tp, {}), ending.effect.transactional_id
        if waiting.get(name) is not ending:
            return
        waiting.pop(name, None)
        self._keep(tp, waiting)
        ending.left.discard(tp)
        if not ending.left:
            ending.driver.step(MarkersWritten(name))

    def _is_written(self, tp: TopicPartition, partition: Partition, ending: _Ending) -> bool:
        """Write the marker; True when it is in the log, or need not be."""
        effect = ending.effect
        known = partition.log.producers.by_id.get(effect.producer_id)
        # A marker that another client sent may name any epoch; it must not keep this node from ending the transaction.
        coordinator_epoch = max(ending.driver.partition.leader_epoch, -1 if known is None else known.coordinator_epoch)
        try:
            write_marker(
                self._node,
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
                _log.warning("no marker of %s in %s: %s", effect.transactional_id, tp, error)
                return True
            _log.error("the marker of %s cannot be written to %s: %s", effect.transactional_id, tp, error)
            self._try_again(tp)
            return False
        return True

    def _try_again(self, tp: TopicPartition) -> None:
        self._refused.add(tp)
        if self._timer is None and not self._node.closed:
            self._timer = self._node.loop.call_later(_RETRY_SECONDS, self._time_passed)

    def _time_passed(self) -> None:
        self._timer = None
        refused, self._refused = self._refused, set()
        for tp in sorted(refused):
            self.look_again(tp)


def write_marker(
    node: BrokerNode,
    partition: Partition,
    producer_id: int,
    producer_epoch: int,
    *,
    committed: bool,
    coordinator_epoch: int,
    transaction_version: int,
) -> None:
    """End a producer's transaction in one partition. KafkaError when its log does not take the marker."""
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
    with node.log_dirs.guarding(partition.log):
        partition.append(bytearray(data), now_ms, Origin.COORDINATOR, transaction_version)
    node.flusher.flush_now(partition)
    groups = node.groups.find(partition.tp.partition) if partition.tp.topic == OFFSETS_TOPIC else None
    if groups is not None:
        # A coordinator that is being loaded comes to the marker in the log.
        groups.machine.replay_marker(producer_id, committed=committed)
