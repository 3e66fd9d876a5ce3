"""The transaction calls of a producer: `with producer.transaction():`, and the single steps.

Rules:
- A body that ends normally commits; one that raises aborts, and its exception propagates.
- A commit that was sent but not answered is not aborted: its error gets a note that says so, and `commit_transaction`
  or `close` asks again.
- The first transaction gets the producer id if `init_transactions` was not called. Call it before reading what an
  earlier producer with the same transactional id may have left open.
"""

from __future__ import annotations

from types import TracebackType
from typing import Protocol

from ottla.client.membership.commit import CommittedAt, CommittedOffset, GroupMetadata, Offsets, offsets_of
from ottla.client.transaction.driver import Transactor
from ottla.client.transaction.state import CommitUnanswered, PreparedTransaction
from ottla.kernel.argument import shown
from ottla.kernel.client_error import Fenced, TransactionAborted
from ottla.kernel.error import KafkaError, OttlaError
from ottla.kernel.ids import TopicPartition


class Positions(Protocol):
    """The part of a consumer that a transaction needs."""

    def group_metadata(self) -> GroupMetadata: ...
    def next_offsets(self) -> dict[TopicPartition, CommittedOffset]: ...


#: Source of offsets to commit: a consumer (its positions or given offsets), its group metadata, or a group's name.
Reader = Positions | GroupMetadata | str


def group_offsets(reader: Reader, offsets: Offsets | None) -> tuple[GroupMetadata, dict[TopicPartition, CommittedAt]]:
    """The group and its offsets to commit."""
    if isinstance(reader, (str, GroupMetadata)):
        if offsets is None:
            raise OttlaError("send_offsets needs offsets for a group given by name or metadata: pass them as well")
        return (GroupMetadata(reader) if isinstance(reader, str) else reader), offsets_of(offsets)
    if not hasattr(reader, "group_metadata") or not hasattr(reader, "next_offsets"):
        expected = "the consumer, its group_metadata() or the name of a group"
        raise TypeError(f"send_offsets takes {expected}, not {type(reader).__name__}: {shown(reader)}")
    return reader.group_metadata(), offsets_of(reader.next_offsets() if offsets is None else offsets)


class TransactionCalls:
    """The part of `AsyncProducer` for transactions."""

    _transactor: Transactor | None

    def _transacting(self) -> Transactor:
        if self._transactor is None:
            raise OttlaError("this producer is not transactional: set transactional.id")
        return self._transactor

    def transaction(self) -> AsyncTransaction:
        """An async context manager for one transaction: commits at the end of its body, aborts if the body raises."""
        return AsyncTransaction(self)

    async def init_transactions(self, *, keep_prepared: bool = False) -> PreparedTransaction | None:
        """Fence every earlier producer with this transactional id and abort its open transaction (KIP-98).

        With `keep_prepared`, a transaction that the earlier producer prepared is kept: the call returns it (None if
        there is none), and it can only be committed, aborted or completed (KIP-939). Unsupported if the brokers do not
        have two-phase commit.
        """
        return await self._transacting().init(keep_prepared=keep_prepared)

    async def prepare_transaction(self) -> PreparedTransaction:
        """Deliver all records of the transaction, and keep it open for a decision even if this producer dies.

        Store the result where the decision is made (such as a database, in the same transaction as its own changes);
        `complete_transaction` then commits or aborts. Needs transaction.two.phase.commit.enable=true (KIP-939).
        """
        return await self._transacting().prepare(self.settle)

    async def complete_transaction(self, decided: PreparedTransaction) -> bool:
        """Commit the prepared transaction if it equals `decided`, otherwise abort it. Returns True if committed."""
        return await self._transacting().complete(self.settle, decided)

    async def begin_transaction(self) -> None:
        """Open a transaction; records sent from now on belong to it. Call `init_transactions` once before."""
        await self._transacting().begin()

    async def send_offsets(self, reader: Reader, offsets: Offsets | None = None) -> None:
        """Commit consumed offsets as part of the transaction (KIP-447).

        `offsets` defaults to the consumer's positions. They take effect when the transaction commits, and never if it
        aborts. `reader` is the consumer or its `group_metadata()`: the coordinator then refuses a member that has lost
        its partitions since. A group's name works, too, without that check.
        """
        await self._transacting().send_offsets(*group_offsets(reader, offsets))

    async def commit_transaction(self) -> None:
        """Deliver all records and offsets of the transaction, and commit.

        After RequestTimedOut or another retriable error, commit again. Aborting is then possible only if no commit
        request has gone out (otherwise OttlaError), because the coordinator may have committed. TransactionAborted if
        another task or thread has aborted it, as `close` does. After any other KafkaError except Fenced, abort the
        transaction.
        """
        await self._transacting().commit(self.settle)

    async def abort_transaction(self) -> None:
        """Abort the transaction. Records not sent yet fail with TransactionAborted."""
        await self._transacting().abort(self.settle)

    async def settle(self) -> None:
        """Wait until nothing is in flight; a failure is in the transaction's error."""


class AsyncTransaction:
    """A transaction of an `AsyncProducer`; `async with` begins and ends it."""

    def __init__(self, producer: TransactionCalls) -> None:
        self._producer = producer

    async def send_offsets(self, reader: Reader, offsets: Offsets | None = None) -> None:
        """Commit consumed offsets with this transaction; see `AsyncProducer.send_offsets`."""
        await self._producer.send_offsets(reader, offsets)

    async def __aenter__(self) -> AsyncTransaction:
        await self._producer.init_transactions()
        await self._producer.begin_transaction()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            return await self._abort_for(error)
        try:
            await self._producer.commit_transaction()
        except BaseException as failure:
            await self._abort_for(failure)
            raise

    async def _abort_for(self, error: BaseException) -> None:
        try:
            await self._producer.abort_transaction()
        except (KafkaError, OttlaError) as failure:
            not_aborted(failure, error)


def not_aborted(failure: KafkaError | OttlaError, error: BaseException) -> None:
    """Handle a failed abort of a transaction that ends with `error`: raise it if it says more, or add a note."""
    if isinstance(failure, Fenced) and isinstance(error, KafkaError) and not isinstance(error, Fenced):
        raise failure from error
    if isinstance(failure, CommitUnanswered):
        error.add_note("the commit was sent and may have been carried out: call commit_transaction to know, or close")
    elif failure is not error and not isinstance(error, (Fenced, TransactionAborted)):
        error.add_note(f"the transaction was not aborted ({failure}): the coordinator aborts it after its timeout")
