"""What a log knows of its producers: sequences, epochs and transactions (KIP-98).

Rules:
- A producer's last five batches are remembered: one of them sent again is answered with the offsets it got the first
  time. Any other batch continues the sequence, or is refused with OUT_OF_ORDER_SEQUENCE_NUMBER.
- An older epoch is refused with INVALID_PRODUCER_EPOCH; a newer one starts at sequence 0.
- Nothing below the first offset of the oldest undecided transaction is unstable; a transaction counts as decided once
  its marker is below the high watermark.
- Replicas take what the leader took: no checks.

Who checks calls `check`/`check_marker` before the write and `add`/`end` after it; in between nothing changes.

KIPs: 98, 360 (sequence after state is lost), 890 (markers of transaction version 2).
"""

from ottla.kernel.error import ErrorCode, KafkaError, RefusedBatch
from ottla.kernel.named import NamedTuple

#: Kafka's ProducerStateEntry.NUM_BATCHES_TO_RETAIN: a producer has at most five requests in flight.
BATCHES_MAX = 5
NO_EPOCH = -1
_SEQUENCE_MASK = 0x7FFFFFFF
_EPOCH_MAX = (1 << 15) - 1


class Sent(NamedTuple):
    """A batch that a producer has sent."""

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
    """A producer id's state in one log. `Producers` makes it."""

    __slots__ = ("coordinator_epoch", "epoch", "last_timestamp", "sent", "transaction_start")

    def __init__(self) -> None:
        self.epoch = NO_EPOCH
        #: The last batches of this epoch, oldest first.
        self.sent: list[Sent] = []
        #: The epoch of the transaction coordinator that wrote the last marker, or -1.
        self.coordinator_epoch = -1
        self.last_timestamp = -1
        #: The first offset of the transaction under way, or -1.
        self.transaction_start = -1

    @property
    def last_sequence(self) -> int:
        return self.sent[-1].last_sequence if self.sent else -1

    def duplicate(self, epoch: int, first_sequence: int, last_sequence: int) -> Sent | None:
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
    #: The lowest sequence that it tried to begin with: what it sent later must not overtake that.
    lowest_sequence: int
    #: Does it speak the second protocol, so that every transaction has its own epoch and begins at 0?
    bumps: bool
    since_ms: int
    #: Says that nothing has begun or ended a transaction of the producer since its coordinator was asked.
    token: object


class Ended(NamedTuple):
    """A transaction that a marker has decided."""

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool


class Producers:
    """All producers of one log. `Log` makes it; recovery fills it."""

    __slots__ = ("_ongoing", "_unreplicated", "_unverified", "by_id", "end_offset")

    def __init__(self) -> None:
        self.by_id: dict[int, ProducerStateEntry] = {}
        #: First offset -> producer id of the transactions under way; first offsets rise.
        self._ongoing: dict[int, int] = {}
        #: First offset -> marker's offset of the decided ones whose marker the high watermark has not passed.
        self._unreplicated: dict[int, int] = {}
        #: Producers about to begin a transaction here; not part of a snapshot.
        self._unverified: dict[int, Unverified] = {}
        #: This state covers all batches below this offset.
        self.end_offset = 0

    # ---- before the write

    def verify_from(self, producer_id: int, epoch: int, sequence: int, bumps: bool, now_ms: int) -> object:
        """A batch with this first sequence is about to begin a transaction, if its coordinator lets it.

        The token is for `is_verifying`, when the coordinator's answer has come.
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
        """Has no marker ended the producer's transaction since `token` was given?"""
        known = self._unverified.get(producer_id)
        return known is not None and known.token is token

    def check_epoch(self, producer_id: int, epoch: int) -> None:
        """An epoch that is known to be old is refused before the coordinator is asked about its transaction."""
        producer = self.by_id.get(producer_id)
        if producer is not None and epoch < producer.epoch:
            why = f"producer {producer_id} has epoch {epoch}, its last one is {producer.epoch}"
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, why)

    def check(
        self,
        producer_id: int,
        epoch: int,
        first_sequence: int,
        last_offset_delta: int,
        transactional: bool,
        sequenced: bool,
    ) -> Sent | None:
        """The earlier batch that this one repeats, or None if it may be appended; KafkaError if it may not.

        `sequenced` is False for the coordinators' own batches, which bear no sequence numbers.
        """
        producer = self.by_id.get(producer_id)
        if sequenced and self._unverified:
            self._check_first(producer_id, producer, first_sequence)
        if producer is None:
            if epoch < 0:
                raise RefusedBatch(ErrorCode.INVALID_RECORD, f"producer {producer_id} has epoch {epoch}")
            # Nothing is known (first batch, or all its records are gone): any sequence is taken (KIP-360).
            return None
        sent = producer.sent
        if epoch == producer.epoch and sent:
            if sequenced and first_sequence != (sent[-1].last_sequence + 1) & _SEQUENCE_MASK:
                last_sequence = (first_sequence + last_offset_delta) & _SEQUENCE_MASK
                duplicate = producer.duplicate(epoch, first_sequence, last_sequence)
                if duplicate is not None:
                    return duplicate
                raise _out_of_order(producer_id, first_sequence, producer.last_sequence)
        elif epoch < producer.epoch:
            raise _old_epoch(producer_id, epoch, producer.epoch)
        elif sequenced and first_sequence != 0 and producer.epoch != NO_EPOCH:
            raise _out_of_order(producer_id, first_sequence, -1)
        if producer.transaction_start >= 0 and not transactional:
            raise RefusedBatch(
                ErrorCode.INVALID_TXN_STATE, f"producer {producer_id} has a transaction under way and writes outside it"
            )
        return None

    def _check_first(self, producer_id: int, producer: ProducerStateEntry | None, sequence: int) -> None:
        """The first batch of a transaction must not overtake one that was refused before it (KIP-890)."""
        first = self._unverified.get(producer_id)
        if first is None:
            return
        unknown = producer is None or not producer.sent
        if (first.bumps and sequence != 0 and unknown) or sequence > first.lowest_sequence:
            raise _out_of_order(producer_id, sequence, -1)

    def check_marker(self, producer_id: int, epoch: int, coordinator_epoch: int, transaction_version: int) -> None:
        """May a transaction marker be appended? KafkaError if not."""
        producer = self.by_id.get(producer_id)
        if producer is None:
            return
        current = producer.epoch
        if transaction_version >= 2 and epoch == current:
            # The same marker again is let through when its transaction has ended (the answer was lost), and at the
            # last epoch there is, which cannot be raised.
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
        """A data batch of this producer is in the log."""
        producer = self.by_id.get(producer_id)
        if producer is None:
            producer = self.by_id[producer_id] = ProducerStateEntry()
        if epoch != producer.epoch:
            producer.renew(epoch)
        sent = producer.sent
        if len(sent) >= BATCHES_MAX:
            del sent[0]
        sent.append(Sent(last_sequence, last_offset, last_offset - first_offset, timestamp))
        producer.last_timestamp = timestamp
        if transactional:
            self._unverified.pop(producer_id, None)
            if producer.transaction_start < 0:
                producer.transaction_start = first_offset
                self._ongoing[first_offset] = producer_id

    def end(
        self, producer_id: int, epoch: int, coordinator_epoch: int, offset: int, timestamp: int, aborted: bool
    ) -> Ended | None:
        """A marker is in the log at `offset`. The transaction that it ends, or None if there was none."""
        producer = self.by_id.get(producer_id)
        if producer is None:
            producer = self.by_id[producer_id] = ProducerStateEntry()
        self._unverified.pop(producer_id, None)
        first_offset = producer.transaction_start
        producer.renew(epoch)
        producer.coordinator_epoch = coordinator_epoch
        producer.last_timestamp = timestamp
        producer.transaction_start = -1
        if first_offset < 0:
            return None
        return Ended(producer_id, first_offset, offset, aborted)

    def stable_offset_of(self, ended: Ended) -> int:
        """The last stable offset as the transaction index notes it with this transaction: the oldest other one's."""
        for first_offset, producer_id in self._ongoing.items():
            if producer_id != ended.producer_id:
                return first_offset
        return ended.last_offset + 1

    def complete(self, ended: Ended) -> None:
        """The transaction is decided, though not yet replicated."""
        self._ongoing.pop(ended.first_offset, None)
        self._unreplicated[ended.first_offset] = ended.last_offset

    # ---- the last stable offset

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of the oldest transaction that is under way or whose marker is not replicated."""
        if not self._ongoing and not self._unreplicated:
            return None
        starts = [next(iter(self._ongoing))] if self._ongoing else []
        if self._unreplicated:
            starts.append(min(self._unreplicated))
        return min(starts)

    def replicated(self, high_watermark: int) -> None:
        """The high watermark moved."""
        if self._unreplicated:
            self._unreplicated = {first: last for first, last in self._unreplicated.items() if last >= high_watermark}

    def has_ongoing_transaction(self, producer_id: int, epoch: int) -> bool:
        producer = self.by_id.get(producer_id)
        return producer is not None and producer.transaction_start >= 0 and producer.epoch == epoch

    # ---- life

    def load(self, entries: list[tuple[int, ProducerStateEntry]], end_offset: int) -> None:
        """Take the state of a snapshot."""
        self.clear()
        self.by_id = dict(entries)
        self.end_offset = end_offset
        started = [
            (each.transaction_start, producer_id) for producer_id, each in entries if each.transaction_start >= 0
        ]
        self._ongoing = dict(sorted(started))

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forget the producers that have been silent and have no transaction under way."""
        gone = [
            producer_id
            for producer_id, each in self.by_id.items()
            if each.transaction_start < 0 and now_ms - each.last_timestamp >= expiration_ms
        ]
        for producer_id in gone:
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
        """The invariants, for tests."""
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
