"""The state of a transactional id and its transitions.

| from | to | when |
|---|---|---|
| NONE | EMPTY | InitProducerId |
| EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT | ONGOING | the first partition is added |
| ONGOING | PREPARE_COMMIT | EndTxn: commit |
| ONGOING | PREPARE_ABORT | EndTxn: abort; InitProducerId; the timeout has passed |
| EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT | PREPARE_ABORT | EndTxn with transaction version 2: abort of nothing |
| PREPARE_COMMIT | COMPLETE_COMMIT | all markers are written |
| PREPARE_ABORT | COMPLETE_ABORT | all markers are written |
| COMPLETE_COMMIT, COMPLETE_ABORT | EMPTY | InitProducerId |
| EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT | NONE | unused for `transactional.id.expiration.ms` |

Rules:
- With transaction version 2 (KIP-890) every end raises the epoch, so that a late record of the ended transaction cannot
  slip into the next one; an abort is then legal without a transaction.
- A producer id whose epochs are used up (`EPOCH_MAX`) is replaced: the end of the transaction, or InitProducerId,
  brings a new producer id.
- A producer may take over an ongoing transaction without aborting it (KIP-939): the transaction keeps the producer id
  and epoch of its records, and the client gets another pair, `client`, with which only it can end the transaction.
"""

from __future__ import annotations

from dataclasses import replace
from enum import IntEnum

from ottla.kernel.frozen import frozen
from ottla.kernel.ids import TopicPartition
from ottla.wire.record.transaction import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
    key_bytes,
    value_bytes,
)

NO_PRODUCER_ID = -1
NO_EPOCH = -1
#: Apache Kafka reserves the largest int16: a producer gets at most one less.
EPOCH_MAX = 32767 - 1
EPOCH_BUMP_VERSION = 2
#: The timeout of a transaction in a two-phase commit: the coordinator never ends it on its own (KIP-939).
NO_TIMEOUT_MS = (1 << 31) - 1
#: The newest version of a record's value.
_VALUE_VERSION = 1


class State(IntEnum):
    """The state, with its number in the log. `TITLES` has Kafka's display names."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7


TITLES = {
    State.EMPTY: "Empty",
    State.ONGOING: "Ongoing",
    State.PREPARE_COMMIT: "PrepareCommit",
    State.PREPARE_ABORT: "PrepareAbort",
    State.COMPLETE_COMMIT: "CompleteCommit",
    State.COMPLETE_ABORT: "CompleteAbort",
    State.DEAD: "Dead",
    State.PREPARE_EPOCH_FENCE: "PrepareEpochFence",
}
PREPARED = (State.PREPARE_COMMIT, State.PREPARE_ABORT)
COMPLETED = (State.COMPLETE_COMMIT, State.COMPLETE_ABORT)


@frozen
class Transaction:
    """The immutable state of a transactional id. Only replay replaces it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: State = State.EMPTY
    #: Ordered by when they were added.
    partitions: tuple[TopicPartition, ...] = ()
    #: -1 before the first transaction.
    start_ms: int = -1
    update_ms: int = -1
    previous_producer_id: int = NO_PRODUCER_ID
    #: The id that the producer gets at the end of this transaction, because the epochs of its id are used up.
    next_producer_id: int = NO_PRODUCER_ID
    #: The epoch that the client has instead of `producer_epoch` once it has taken over the transaction.
    next_producer_epoch: int = NO_EPOCH
    #: The epoch that the client had before the last bump: a request with it is a retry. Not in the log.
    last_epoch: int = NO_EPOCH
    #: The client's transaction version: 0, 1 or 2.
    client_version: int = 0

    @property
    def exhausted(self) -> bool:
        """Are the epochs of this producer id used up?"""
        return self.producer_epoch >= EPOCH_MAX

    @property
    def client(self) -> tuple[int, int]:
        """The client's producer id and epoch; after a takeover not those of the transaction's records."""
        if self.next_producer_epoch == NO_EPOCH:
            return self.producer_id, self.producer_epoch
        next_id = self.next_producer_id
        return (self.producer_id if next_id == NO_PRODUCER_ID else next_id), self.next_producer_epoch

    @property
    def client_exhausted(self) -> bool:
        """Are the epochs of the client's producer id used up?"""
        return self.client[1] >= EPOCH_MAX

    def taken_over(self, timeout_ms: int, new_producer_id: int | None, now_ms: int) -> Transaction:
        """The unchanged transaction taken over by a new client, the only one that may end it."""
        next_id, epoch = self.next_producer_id, self.client[1] + 1
        if new_producer_id is not None:
            next_id, epoch = new_producer_id, 0
        return replace(
            self, next_producer_id=next_id, next_producer_epoch=epoch, timeout_ms=timeout_ms, update_ms=now_ms
        )

    def initialized(
        self, timeout_ms: int, expected_epoch: int, new_producer_id: int | None, now_ms: int
    ) -> Transaction | None:
        """After InitProducerId: a higher epoch, or `new_producer_id`. None if the producer's epoch is fenced."""
        epoch, last, producer_id = self.producer_epoch + 1, NO_EPOCH, self.producer_id
        if new_producer_id is not None:
            producer_id, epoch = new_producer_id, 0
            last = self.producer_epoch if expected_epoch != NO_EPOCH else NO_EPOCH
        elif expected_epoch == NO_EPOCH:
            pass
        elif self.producer_epoch in (NO_EPOCH, expected_epoch):
            last = self.producer_epoch
        elif expected_epoch == self.last_epoch:
            # A retry after a lost response gets the same response.
            epoch, last = self.producer_epoch, self.last_epoch
        else:
            return None
        return replace(
            self,
            producer_id=producer_id,
            previous_producer_id=self.producer_id,
            next_producer_id=NO_PRODUCER_ID,
            next_producer_epoch=NO_EPOCH,
            producer_epoch=epoch,
            last_epoch=last,
            timeout_ms=timeout_ms,
            state=State.EMPTY,
            partitions=(),
            start_ms=-1,
            update_ms=now_ms,
        )

    def extended(self, added: tuple[TopicPartition, ...], client_version: int, now_ms: int) -> Transaction:
        """With partitions added; the first ones begin the transaction."""
        partitions = tuple(dict.fromkeys((*self.partitions, *added)))
        return replace(
            self,
            state=State.ONGOING,
            previous_producer_id=self.producer_id,
            partitions=partitions,
            start_ms=self.start_ms if self.state is State.ONGOING else now_ms,
            update_ms=now_ms,
            client_version=client_version,
        )

    def ended(self, *, commit: bool, client_version: int, bumps: bool, next_id: int, now_ms: int) -> Transaction:
        """With the end decided. `bumps` raises the epoch: with version 2, and when the producer is fenced.

        `next_id`: a new producer id if the epochs of the client's id are used up, else NO_PRODUCER_ID.
        """
        client_id, client_epoch = self.client
        taken_over = self.next_producer_epoch != NO_EPOCH
        after = 0 if next_id != NO_PRODUCER_ID else client_epoch + bumps
        return replace(
            self,
            state=State.PREPARE_COMMIT if commit else State.PREPARE_ABORT,
            previous_producer_id=client_id,
            next_producer_id=self.next_producer_id if taken_over and next_id == NO_PRODUCER_ID else next_id,
            next_producer_epoch=after if taken_over else NO_EPOCH,
            producer_epoch=self.producer_epoch + 1 if bumps else self.producer_epoch,
            last_epoch=client_epoch if bumps else self.last_epoch,
            start_ms=self.start_ms if self.state is State.ONGOING else now_ms,
            update_ms=now_ms,
            client_version=client_version,
        )

    @property
    def after_end(self) -> tuple[int, int]:
        """The producer id and epoch with which the client continues after the markers."""
        if self.next_producer_epoch != NO_EPOCH:
            return self.client
        if self.next_producer_id != NO_PRODUCER_ID:
            return self.next_producer_id, 0
        return self.producer_id, self.producer_epoch

    def completed(self, now_ms: int) -> Transaction:
        """With all markers written."""
        producer_id, epoch = self.after_end
        taken_over = self.next_producer_epoch != NO_EPOCH
        return replace(
            self,
            state=State.COMPLETE_COMMIT if self.state is State.PREPARE_COMMIT else State.COMPLETE_ABORT,
            previous_producer_id=self.previous_producer_id if taken_over else self.producer_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            next_producer_id=NO_PRODUCER_ID,
            next_producer_epoch=NO_EPOCH,
            partitions=(),
            update_ms=now_ms,
        )

    # ---- records

    def record(self, transaction_version: int = EPOCH_BUMP_VERSION) -> tuple[bytes, bytes | None]:
        """(key, value) as Apache Kafka writes them at this level of `transaction.version`.

        Level 0 writes values of version 0, which lacks KIP-890's fields.
        """
        version = min(transaction_version, _VALUE_VERSION)
        topics: dict[str, list[int]] = {}
        for tp in self.partitions:
            topics.setdefault(tp.topic, []).append(tp.partition)
        value = TransactionLogValue(
            producer_id=self.producer_id,
            previous_producer_id=self.previous_producer_id if version else NO_PRODUCER_ID,
            next_producer_id=self.next_producer_id if version else NO_PRODUCER_ID,
            producer_epoch=self.producer_epoch,
            next_producer_epoch=self.next_producer_epoch if version else NO_EPOCH,
            transaction_timeout_ms=self.timeout_ms,
            transaction_status=self.state,
            transaction_partitions=[
                PartitionsSchema(topic=topic, partition_ids=sorted(ids)) for topic, ids in topics.items()
            ]
            if topics or self.state is not State.EMPTY
            else None,
            transaction_last_update_timestamp_ms=self.update_ms,
            transaction_start_timestamp_ms=self.start_ms,
            client_transaction_version=self.client_version if version else 0,
        )
        return key_bytes(TransactionLogKey(transactional_id=self.transactional_id)), value_bytes(value, version)

    @classmethod
    def of_record(cls, key: TransactionLogKey, value: TransactionLogValue, last_epoch: int = NO_EPOCH) -> Transaction:
        """The reverse of `record`."""
        return cls(
            transactional_id=key.transactional_id,
            producer_id=value.producer_id,
            previous_producer_id=value.previous_producer_id,
            next_producer_id=value.next_producer_id,
            producer_epoch=value.producer_epoch,
            next_producer_epoch=value.next_producer_epoch,
            timeout_ms=value.transaction_timeout_ms,
            state=State(value.transaction_status),
            partitions=tuple(
                TopicPartition(topic.topic, partition)
                for topic in value.transaction_partitions or ()
                for partition in topic.partition_ids
            ),
            start_ms=value.transaction_start_timestamp_ms,
            update_ms=value.transaction_last_update_timestamp_ms,
            client_version=value.client_transaction_version,
            last_epoch=last_epoch,
        )
