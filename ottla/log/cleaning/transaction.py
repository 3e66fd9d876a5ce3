"""The transactions of a cleaning pass: whose records were aborted, and which markers still have records.

Rules:
- A batch of an aborted transaction is dropped at once.
- A marker stays while the pass meets a batch of its transaction, and after that until its delete horizon: a reader in
  the middle of the transaction must still learn how it ended.
- The pass presents every batch once, in order; the aborted transactions are known in advance.

KIPs: 98, 534.
"""

from collections import deque
from collections.abc import Iterable

from ottla.kernel.ports import Buffer
from ottla.log.producer.marker import read_marker
from ottla.log.segment.aborted import AbortedTransaction
from ottla.wire.batch import BatchHeader


class CleanedTransactions:
    """The state of one pass over a log, which creates and drops it."""

    __slots__ = ("_aborted", "_committed", "_coming", "_seen")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        #: The aborted transactions that begin later in the log, by first offset.
        self._coming = deque(sorted(aborted, key=lambda transaction: transaction.first_offset))
        #: Producer id -> the aborted transaction that the pass is inside of.
        self._aborted: dict[int, AbortedTransaction] = {}
        #: The producers in `_aborted` with a batch of that transaction.
        self._seen: set[int] = set()
        #: The producers with a batch of a transaction whose commit marker is still to come.
        self._committed: set[int] = set()

    def is_aborted(self, header: BatchHeader) -> bool:
        """Does this data batch, the next one of the pass, belong to an aborted transaction?"""
        self._advance(header.last_offset)
        if not header.is_transactional:
            return False
        if header.producer_id in self._aborted:
            self._seen.add(header.producer_id)
            return True
        self._committed.add(header.producer_id)
        return False

    def ended(self, header: BatchHeader, data: Buffer) -> tuple[bool, AbortedTransaction | None]:
        """Take a control batch: (does its transaction have no batch left?, the transaction index entry to keep)."""
        self._advance(header.last_offset)
        if header.count == 0:
            return True, None
        marker = read_marker(data, header)
        if marker is None:
            # Not a transaction marker: keep it, since its lifetime is unknown.
            return False, None
        producer_id = header.producer_id
        if not marker.aborted:
            has_batches = producer_id in self._committed
            self._committed.discard(producer_id)
            return not has_batches, None
        transaction = self._aborted.pop(producer_id, None)
        has_batches = producer_id in self._seen
        self._seen.discard(producer_id)
        return (False, transaction) if transaction is not None and has_batches else (True, None)

    def _advance(self, offset: int) -> None:
        while self._coming and self._coming[0].first_offset <= offset:
            transaction = self._coming.popleft()
            self._aborted.setdefault(transaction.producer_id, transaction)
