"""Transactions, as programs write them: `with producer.transaction():`, and the single steps.

Rules:
- A body that ends commits; one that raises aborts, and its exception goes on.
- A commit that was sent and not answered is not aborted: its error has a note that says so, and `commit_transaction` or
  `close` asks again.
- The first transaction gets the producer id where `init_transactions` has not: call that yourself before you read what
  an earlier producer of the same name may have left open.
"""

from __future__ import annotations

from types import TracebackType
from typing import Protocol

from ottla.client.membership.commit import CommittedAt, CommittedOffset, GroupMetadata, Offsets, offsets_of
from ottla.client.transaction.driver import Transactor
from ottla.client.transaction.state import CommitUnanswered, PreparedTransaction
from ottla.kernel.argument import shown
from ottla.kernel.client_error import Fenced
from ottla.kernel.error import KafkaError, OttlaError
from ottla.kernel.ids import TopicPartition


class Positions(Protocol):
    """A consumer, as far as a transaction needs it."""

    def group_metadata(self) -> GroupMetadata: ...
    def next_offsets(self) -> dict[TopicPartition, CommittedOffset]: ...


#: The reader of the offsets: a consumer (with its positions, or those given), its group metadata, or a group's name.
Reader = Positions | GroupMetadata | str


def group_offsets(reader: Reader, offsets: Offsets | None) -> tuple[GroupMetadata, dict[TopicPartition, CommittedAt]]:
    """The group and the offsets that are meant."""
    if isinstance(reader, (str, GroupMetadata)):
        if offsets is None:
            raise OttlaError("send_offsets needs the offsets when it is given a group: give it the consumer, or both")
        return (GroupMetadata(reader) if isinstance(reader, str) else reader), offsets_of(offsets)
    if not hasattr(reader, "group_metadata") or not hasattr(reader, "next_offsets"):
        takes = "the consumer, its group_metadata() or the name of a group"
        raise TypeError(f"send_offsets takes {takes}, not {type(reader).__name__}: {shown(reader)}")
    return reader.group_metadata(), offsets_of(reader.next_offsets() if offsets is None else offsets)


class TransactionCalls:
    """The part of `AsyncProducer` about transactions."""

    _transactor: Transactor | None

    def _transacting(self) -> Transactor:
        if self._transactor is None:
            raise OttlaError("this producer has no transactions: give it a transactional.id")
        return self._transactor

    def transaction(self) -> AsyncTransaction:
        """`async with producer.transaction():` commits at the end of its body, and aborts when that raises."""
        return AsyncTransaction(self)

    async def init_transactions(self, *, keep_prepared: bool = False) -> PreparedTransaction | None:
        """Lock out every earlier producer with this transactional id; what it had open is aborted.

        With `keep_prepared` a transaction that it had open stays as it is, and can only be committed, aborted or
        completed: which one it is, or None when there is none (KIP-939). `Unsupported` from brokers that do not know
        two-phase commits.
        """
        return await self._transacting().init(keep_prepared=keep_prepared)

    async def prepare_transaction(self) -> PreparedTransaction:
        """Deliver everything that was sent; the transaction then waits for its end, also when this producer dies.

        Store what this returns where the decision is made (a database, in the same transaction as its own changes);
        `complete_transaction` then does what was decided. Needs transaction.two.phase.commit.enable (KIP-939).
        """
        return await self._transacting().prepare(self.settle)

    async def complete_transaction(self, decided: PreparedTransaction) -> bool:
        """Commit the prepared transaction if it is the one that was `decided`, abort it if not. Was it committed?"""
        return await self._transacting().complete(self.settle, decided)

    async def begin_transaction(self) -> None:
        """Open a transaction: what is sent from now on belongs to it."""
        await self._transacting().begin()

    async def send_offsets(self, reader: Reader, offsets: Offsets | None = None) -> None:
        """Commit offsets with the transaction: a consumer's positions, or these offsets of a group.

        They count for the group when the transaction is committed, and never if it is aborted. Give the consumer (or
        its `group_metadata()`), so that a member that has lost its partitions meanwhile is refused.
        """
        await self.send_group_offsets(*group_offsets(reader, offsets))

    async def send_group_offsets(self, group: GroupMetadata, offsets: dict[TopicPartition, CommittedAt]) -> None:
        """The same, of a group and in the form in which it is sent."""
        await self._transacting().send_offsets(group, offsets)

    async def commit_transaction(self) -> None:
        """Deliver what was sent and commit, offsets too that a `send_offsets` could not write in time.

        RequestTimedOut and other retriable errors: commit again. The transaction can be aborted then only if no request
        to commit has gone out (OttlaError): the coordinator may have committed. After other KafkaErrors that are not
        `Fenced`: abort it.
        """
        await self._transacting().commit(self.settle)

    async def abort_transaction(self) -> None:
        """Undo the transaction. What had not been sent fails with TransactionAborted."""
        await self._transacting().abort(self.settle)

    async def settle(self) -> None:
        """Return when nothing is on its way; what failed is in the transaction's error."""


class AsyncTransaction:
    """An open transaction of an `AsyncProducer`; `async with` begins and ends it."""

    def __init__(self, producer: TransactionCalls) -> None:
        self._producer = producer

    async def send_offsets(self, reader: Reader, offsets: Offsets | None = None) -> None:
        """The producer's `send_offsets`."""
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
    """A transaction that ends with `error` could not be aborted. Raises what says more, if that is not `error`."""
    if isinstance(failure, Fenced) and isinstance(error, KafkaError) and not isinstance(error, Fenced):
        raise failure from error
    if isinstance(failure, CommitUnanswered):
        error.add_note("the commit was sent and may have been carried out: call commit_transaction to know, or close")
    elif failure is not error and not isinstance(error, Fenced):
        error.add_note(f"the transaction was not aborted ({failure}): the coordinator does it when it times out")
