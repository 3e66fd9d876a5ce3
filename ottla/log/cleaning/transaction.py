"""What the cleaner knows of transactions while it reads a log upwards: whose records were aborted, and which markers
still have records.

Rules:
- A batch of an aborted transaction can go at once.
- A marker stays for as long as a batch of its transaction was met, and after that until its delete horizon is over:
  a reader in the middle of the transaction must still learn how it ended.
- Every batch is shown once, in order; the aborted transactions are known before.

KIPs: 98, 534.
"""

from collections import deque
from collections.abc import Iterable

from ottla.kernel.ports import Buffer
from ottla.log.producer.marker import read_marker
from ottla.log.segment.aborted import AbortedTransaction
from ottla.wire.batch import BatchHeader


class CleanedTransactions:
    """A pass over a log makes it and forgets it."""

    __slots__ = ("_aborted", "_committed", "_coming", "_seen")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        #: The aborted transactions that begin further up, by first offset.
        self._coming = deque(sorted(aborted, key=lambda each: each.first_offset))
        #: Producer id -> its aborted transaction that the pass is in the middle of.
        self._aborted: dict[int, AbortedTransaction] = {}
        #: The producers of `_aborted` of whose transaction a batch was met.
        self._seen: set[int] = set()
        #: The producers of whose undecided transaction, which will be committed, a batch was met.
        self._committed: set[int] = set()

    def is_aborted(self, header: BatchHeader) -> bool:
        """A data batch comes by: does it belong to an aborted transaction?"""
        self._advance(header.last_offset)
        if not header.is_transactional:
            return False
        if header.producer_id in self._aborted:
            self._seen.add(header.producer_id)
            return True
        self._committed.add(header.producer_id)
        return False

    def ended(self, header: BatchHeader, data: Buffer) -> tuple[bool, AbortedTransaction | None]:
        """A control batch comes by: is nothing left of what it ended, and which index entry must stay if it aborted?"""
        self._advance(header.last_offset)
        if header.count == 0:
            return True, None
        marker = read_marker(data, header)
        if marker is None:
            # No transaction's marker: it is not known for how long it matters.
            return False, None
        producer_id = header.producer_id
        if not marker.aborted:
            left = producer_id in self._committed
            self._committed.discard(producer_id)
            return not left, None
        transaction = self._aborted.pop(producer_id, None)
        left = producer_id in self._seen
        self._seen.discard(producer_id)
        return (False, transaction) if transaction is not None and left else (True, None)

    def _advance(self, offset: int) -> None:
        while self._coming and self._coming[0].first_offset <= offset:
            transaction = self._coming.popleft()
            self._aborted.setdefault(transaction.producer_id, transaction)
