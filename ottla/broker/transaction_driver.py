"""One transaction coordinator on one partition of `__transaction_state`, and the markers that it writes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ottla.broker.driver import Driver
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.name import OFFSETS_TOPIC, TRANSACTION_TOPIC, TopicPartition
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

_log = logging.getLogger("ottla.broker")
#: This node's coordinators are never replaced by another's, so one epoch serves.
_COORDINATOR_EPOCH = 0
#: Of a load that is cut into pieces: some milliseconds.
_IDS_AT_ONCE = 200


class TransactionDriver(Driver[Coordinator]):
    """`Transactions` makes it, loads it and ends it."""

    def __init__(self, node: Node, partition: Partition) -> None:
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
        """Write the markers of transactions whose end was decided, once there are partitions to write them into."""
        if self.node.transactions.resumed:
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
        now_ms = self.node.clock.now_ms()
        code, effects = self.machine.add(
            transactional_id, producer_id, producer_epoch, partitions, client_version=client_version, now_ms=now_ms
        )
        failed = self.carry_out_all(effects, now_ms)
        if failed is not None:
            return failed.code
        self.plan(now_ms)
        return code

    def carry_out(self, effect: Append | WriteMarkers, now_ms: int) -> None:
        """Append to `__transaction_state`, or write a transaction's markers and report them."""
        if isinstance(effect, Append):
            self.append(effect.entries, now_ms)
            return
        for tp in effect.partitions:
            self._mark(tp, effect)
        self.step(MarkersWritten(effect.transactional_id))

    def _mark(self, tp: TopicPartition, effect: WriteMarkers) -> None:
        partition = self.node.partitions.get(tp)
        known = None if partition is None else partition.log.producers.by_id.get(effect.producer_id)
        # A marker that somebody else sent may name any epoch; nobody but this node may be kept from ending by that.
        coordinator_epoch = max(_COORDINATOR_EPOCH, -1 if known is None else known.coordinator_epoch)
        try:
            write_marker(
                self.node,
                tp,
                effect.producer_id,
                effect.producer_epoch,
                committed=effect.committed,
                coordinator_epoch=coordinator_epoch,
                transaction_version=effect.transaction_version,
            )
        except KafkaError as error:
            if error.code is not ErrorCode.INVALID_PRODUCER_EPOCH:
                raise
            # A marker of a newer epoch has ended the transaction there.
            _log.warning("%s: no marker of %s in %s: %s", TRANSACTION_TOPIC, effect.transactional_id, tp, error)


def _fresh(node: Node) -> Coordinator:
    settings = node.settings
    return Coordinator(
        TransactionSettings(
            settings.transaction_max_timeout_ms,
            settings.transaction_abort_timed_out_transaction_cleanup_interval_ms,
            settings.transactional_id_expiration_ms,
            settings.transaction_remove_expired_transaction_cleanup_interval_ms,
        ),
        node.producer_ids.next,
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
    node.flusher.flush_now(partition)
    groups = node.groups.find(tp.partition) if tp.topic == OFFSETS_TOPIC else None
    if groups is not None:
        # One that is being loaded comes to the marker in the log.
        groups.machine.replay_marker(producer_id, committed=committed)
