"""The producer state of a log: sequences, epochs and transactions (KIP-98).

Rules:
- A producer's last five batches are remembered: a retry of one is answered with the offsets of its first append. Any
  other batch must continue the sequence, or it is refused with OUT_OF_ORDER_SEQUENCE_NUMBER.
- An older epoch is refused with INVALID_PRODUCER_EPOCH; a newer one starts at sequence 0.
- Everything below the first offset of the oldest undecided transaction is stable; a transaction is decided once its
  marker is below the high watermark.
- Followers append what the leader accepted, without checks.

The leader's log calls `check`/`check_marker` before the write and `add`/`end` after it; nothing changes in between.

KIPs: 98, 360 (sequence after state is lost), 890 (markers of transaction version 2).
"""

from ottla.kernel.error import ErrorCode, KafkaError, RefusedBatch
from ottla.kernel.named import NamedTuple

#: Kafka's ProducerStateEntry.NUM_BATCHES_TO_RETAIN: a producer has at most five requests in flight.
BATCHES_MAX = 5
NO_EPOCH = -1
_SEQUENCE_MASK = 0x7FFFFFFF
_EPOCH_MAX = (1 << 15) - 1


class SentBatch(NamedTuple):
    """A batch that a producer has appended."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) & _SEQUENCE_MASK

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class ProducerStateEntry:
    """The state of one producer id in one log. `Producers` creates it."""

    __slots__ = ("coordinator_epoch", "epoch", "in_snapshot", "last_timestamp", "sent", "transaction_start")

    def __init__(self) -> None:
        self.epoch = NO_EPOCH
        #: The last batches of this epoch, oldest first.
        self.sent: list[SentBatch] = []
        #: The epoch of the transaction coordinator that wrote the last marker, or -1.
        self.coordinator_epoch = -1
        self.last_timestamp = -1
        #: The first offset of the ongoing transaction, or -1.
        self.transaction_start = -1
        #: The bytes of this state in a snapshot; None after a change. Most producers are idle between two snapshots.
        self.in_snapshot: bytes | None = None

    @property
    def last_sequence(self) -> int:
        return self.sent[-1].last_sequence if self.sent else -1

    def duplicate(self, epoch: int, first_sequence: int, last_sequence: int) -> SentBatch | None:
        """The remembered batch with exactly these sequence numbers."""
        if epoch == self.epoch:
            for sent in self.sent:
                if sent.last_sequence == last_sequence and sent.first_sequence == first_sequence:
                    return sent
        return None

    def renew(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.epoch = epoch
            self.sent.clear()


class Unverified(NamedTuple):
    """A transactional producer whose first batch of a transaction has not been written yet."""

    epoch: int
    #: The lowest sequence that it tried to begin with; later batches must not overtake that one.
    lowest_sequence: int
    #: Does it use transaction version 2, where every transaction has its own epoch and begins at sequence 0?
    bumps: bool
    since_ms: int
    #: Replaced whenever a transaction of the producer begins, or the one that it is for ends; unchanged while its
    #: coordinator is asked.
    token: object


class EndedTransaction(NamedTuple):
    """A transaction that a marker has ended."""

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool


class Producers:
    """All producers of one log. `Log` creates it; recovery fills it."""

    __slots__ = ("_ongoing", "_unreplicated", "_unverified", "by_id", "end_offset")

    def __init__(self) -> None:
        self.by_id: dict[int, ProducerStateEntry] = {}
        #: First offset -> producer id of the ongoing transactions; first offsets rise.
        self._ongoing: dict[int, int] = {}
        #: First offset -> marker's offset of the ended transactions whose marker is not below the high watermark yet.
        self._unreplicated: dict[int, int] = {}
        #: The producers about to begin a transaction in this log; not part of a snapshot.
        self._unverified: dict[int, Unverified] = {}
        #: The state covers all batches below this offset.
        self.end_offset = 0

    # ---- before the write

    def verify_from(self, producer_id: int, epoch: int, sequence: int, bumps: bool, now_ms: int) -> object:
        """Note that a batch with this first sequence will begin a transaction if the coordinator verifies it.

        Returns the token to pass to `is_verifying` when the coordinator has answered.
        """
        known = self._unverified.get(producer_id)
        if known is not None and epoch <= known.epoch:
            lowest = min(known.lowest_sequence, sequence) if epoch == known.epoch else known.lowest_sequence
            changed = Unverified(known.epoch, lowest, known.bumps or bumps, known.since_ms, known.token)
        else:
            bumps = bumps or (known is not None and known.bumps)
            changed = Unverified(epoch, sequence, bumps, now_ms, object())
        self._unverified[producer_id] = changed
        return changed.token

    def is_verifying(self, producer_id: int, token: object) -> bool:
        """Is `token` still valid: has its transaction not begun or ended since it was given?"""
        known = self._unverified.get(producer_id)
        return known is not None and known.token is token

    def check_epoch(self, producer_id: int, epoch: int) -> None:
        """Refuse an old epoch before the coordinator is asked to verify the transaction."""
        producer = self.by_id.get(producer_id)
        if producer is not None and epoch < producer.epoch:
            message = f"producer {producer_id} has epoch {epoch}, its last one is {producer.epoch}"
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, message)

    def check(
        self,
        producer_id: int,
        epoch: int,
        first_sequence: int,
        last_offset_delta: int,
        transactional: bool,
        sequenced: bool,
    ) -> SentBatch | None:
        """The earlier batch that this batch repeats, or None if it may be appended. Raises KafkaError if it may not.

        `sequenced` is False for the coordinators' batches, which have no sequence numbers.
        """
        producer = self.by_id.get(producer_id)
        if sequenced and self._unverified:
            self._check_first(producer_id, producer, first_sequence)
        if producer is None:
            if epoch < NO_EPOCH:
                raise _old_epoch(producer_id, epoch, NO_EPOCH)
            # The first batch, or all records of the producer were deleted: any sequence is accepted (KIP-360).
            return None
        sent = producer.sent
        if epoch == producer.epoch and sent:
            if sequenced and first_sequence != (sent[-1].last_sequence + 1) & _SEQUENCE_MASK:
                last_sequence = (first_sequence + last_offset_delta) & _SEQUENCE_MASK
                duplicate = producer.duplicate(epoch, first_sequence, last_sequence)
                if duplicate is not None:
                    return duplicate
                if epoch == NO_EPOCH:
                    # The order of batches is not checked without an epoch, as in Apache Kafka.
                    return None
                raise _out_of_order(producer_id, first_sequence, producer.last_sequence)
        elif epoch < producer.epoch:
            raise _old_epoch(producer_id, epoch, producer.epoch)
        elif sequenced and first_sequence != 0 and producer.epoch != NO_EPOCH:
            raise _out_of_order(producer_id, first_sequence, -1)
        if producer.transaction_start >= 0 and not transactional:
            raise RefusedBatch(
                ErrorCode.INVALID_TXN_STATE, f"producer {producer_id} has an ongoing transaction and writes outside it"
            )
        return None

    def _check_first(self, producer_id: int, producer: ProducerStateEntry | None, sequence: int) -> None:
        """Refuse a first batch of a transaction that overtakes an earlier one that was refused (KIP-890)."""
        first = self._unverified.get(producer_id)
        if first is None:
            return
        unknown = producer is None or not producer.sent
        if (first.bumps and sequence != 0 and unknown) or sequence > first.lowest_sequence:
            raise _out_of_order(producer_id, sequence, -1)

    def check_marker(self, producer_id: int, epoch: int, coordinator_epoch: int, transaction_version: int) -> None:
        """Raise KafkaError if a transaction marker may not be appended."""
        producer = self.by_id.get(producer_id)
        if producer is None:
            return
        current = producer.epoch
        if transaction_version >= 2 and epoch == current:
            # A marker with the current epoch is accepted if no transaction is ongoing (a retry after a lost response),
            # and at the last epoch, which cannot be raised.
            if producer.transaction_start >= 0 and epoch != _EPOCH_MAX:
                raise _old_epoch(producer_id, epoch, current)
        elif epoch < current:
            raise _old_epoch(producer_id, epoch, current)
        if producer.coordinator_epoch > coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"coordinator epoch {coordinator_epoch} is older than {producer.coordinator_epoch}",
            )

    # ---- after the write

    def add(
        self,
        producer_id: int,
        epoch: int,
        last_sequence: int,
        first_offset: int,
        last_offset: int,
        timestamp: int,
        transactional: bool,
    ) -> None:
        """Account for a data batch that is in the log."""
        producer = self.by_id.get(producer_id)
        if producer is None:
            producer = self.by_id[producer_id] = ProducerStateEntry()
        if epoch != producer.epoch:
            producer.renew(epoch)
        sent = producer.sent
        if len(sent) >= BATCHES_MAX:
            del sent[0]
        sent.append(SentBatch(last_sequence, last_offset, last_offset - first_offset, timestamp))
        producer.last_timestamp = timestamp
        producer.in_snapshot = None
        if transactional:
            self._unverified.pop(producer_id, None)
            if producer.transaction_start < 0:
                producer.transaction_start = first_offset
                self._ongoing[first_offset] = producer_id

    def end(
        self, producer_id: int, epoch: int, coordinator_epoch: int, offset: int, timestamp: int, aborted: bool
    ) -> EndedTransaction | None:
        """Account for a marker in the log at `offset`; the transaction that it ends, or None."""
        producer = self.by_id.get(producer_id)
        if producer is None:
            producer = self.by_id[producer_id] = ProducerStateEntry()
        waiting = self._unverified.get(producer_id)
        if waiting is not None and not (waiting.bumps and waiting.epoch == epoch):
            # Not the next transaction, which with version 2 has the marker's epoch and may begin before the marker.
            del self._unverified[producer_id]
        first_offset = producer.transaction_start
        producer.renew(epoch)
        producer.coordinator_epoch = coordinator_epoch
        producer.last_timestamp = timestamp
        producer.transaction_start = -1
        producer.in_snapshot = None
        if first_offset < 0:
            return None
        return EndedTransaction(producer_id, first_offset, offset, aborted)

    def stable_offset_of(self, ended: EndedTransaction) -> int:
        """The last stable offset for the transaction index entry: the first offset of the oldest other transaction."""
        for first_offset, producer_id in self._ongoing.items():
            if producer_id != ended.producer_id:
                return first_offset
        return ended.last_offset + 1

    def complete(self, ended: EndedTransaction) -> None:
        """Move an ended transaction from the ongoing ones to those whose marker is not replicated yet."""
        self._ongoing.pop(ended.first_offset, None)
        self._unreplicated[ended.first_offset] = ended.last_offset

    # ---- the last stable offset

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """The first offset of the oldest transaction that is ongoing or whose marker is above the high watermark."""
        if not self._ongoing and not self._unreplicated:
            return None
        starts = [first for first, last in self._unreplicated.items() if last >= high_watermark]
        if self._ongoing:
            starts.append(next(iter(self._ongoing)))
        return min(starts, default=None)

    def replicated(self, high_watermark: int) -> None:
        """Drop the ended transactions whose marker is below the high watermark."""
        if self._unreplicated:
            self._unreplicated = {first: last for first, last in self._unreplicated.items() if last >= high_watermark}

    def has_ongoing_transaction(self, producer_id: int, epoch: int) -> bool:
        producer = self.by_id.get(producer_id)
        return producer is not None and producer.transaction_start >= 0 and producer.epoch == epoch

    # ---- snapshots and expiration

    def load(self, entries: list[tuple[int, ProducerStateEntry]], end_offset: int) -> None:
        """Replace the state by that of a snapshot."""
        self.clear()
        self.by_id = dict(entries)
        self.end_offset = end_offset
        started = [
            (producer.transaction_start, producer_id)
            for producer_id, producer in entries
            if producer.transaction_start >= 0
        ]
        self._ongoing = dict(sorted(started))

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Drop the producers that were silent for `expiration_ms` and have no ongoing transaction."""
        expired = [
            producer_id
            for producer_id, each in self.by_id.items()
            if each.transaction_start < 0 and now_ms - each.last_timestamp >= expiration_ms
        ]
        for producer_id in expired:
            del self.by_id[producer_id]
        for producer_id, each in list(self._unverified.items()):
            if now_ms - each.since_ms >= expiration_ms:
                del self._unverified[producer_id]

    def clear(self) -> None:
        self.by_id = {}
        self._ongoing = {}
        self._unreplicated = {}
        self._unverified = {}

    def validate(self) -> None:
        """Assert the invariants, for tests."""
        assert list(self._ongoing) == sorted(self._ongoing)
        for first_offset, producer_id in self._ongoing.items():
            assert self.by_id[producer_id].transaction_start == first_offset
        for producer in self.by_id.values():
            assert len(producer.sent) <= BATCHES_MAX
            offsets = [sent.last_offset for sent in producer.sent]
            assert offsets == sorted(offsets)


def _out_of_order(producer_id: int, sequence: int, last: int) -> RefusedBatch:
    return RefusedBatch(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"producer {producer_id} sent sequence {sequence} after {last}",
    )


def _old_epoch(producer_id: int, epoch: int, current: int) -> RefusedBatch:
    return RefusedBatch(
        ErrorCode.INVALID_PRODUCER_EPOCH, f"producer {producer_id} has epoch {epoch}, its last one is {current}"
    )
