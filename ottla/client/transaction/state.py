"""A producer's transactions, as the producer sees them: what it may do next, and what an answer means. Pure.

| from | to | when |
|---|---|---|
| NEW | READY | the coordinator gave a producer id |
| READY | OPEN | the program begins a transaction |
| READY | PREPARED | with the producer id came the prepared transaction of an earlier producer (KIP-939) |
| OPEN | PREPARED | the program prepares it, and everything is delivered |
| OPEN, PREPARED | COMMITTING | the program commits |
| OPEN, PREPARED, COMMITTING, FAILED | ABORTING | the program aborts, and no request to commit has gone out |
| OPEN, COMMITTING | FAILED | a record is not delivered, or a request is refused for good |
| COMMITTING, ABORTING | READY | the coordinator has ended it |
| NEW, READY, OPEN, PREPARED, COMMITTING, ABORTING, FAILED | FATAL | the id is another producer's, or not allowed |

`Transactor` carries out the requests and feeds the answers back, `Sender` asks whether a batch may leave.

Rules:
- With the first protocol a partition is added at the coordinator before anything is written to it; with the second
  (`transaction.version` 2, KIP-890) writing adds it, and every end gives the producer a new epoch.
- What cannot be mended inside of a transaction makes it FAILED: it can only be aborted, and then the producer goes on.
  FATAL is the end of the producer: another one has its transactional id, or it may not use it.
- A new epoch begins at sequence 0. A sequence that was sent and given up leaves a gap: no record goes out under that
  epoch again.
- An end that was not answered is asked for again as it was: the coordinator knows a repetition. After a commit that was
  not answered no abort is allowed: the coordinator may have committed.
- Offsets that the program gave and that no coordinator has confirmed (`owed`) are written before the commit goes out.

KIPs: 98 (transactions), 360 (a new epoch mends a gap), 447 (offsets of a member), 588, 691, 890, 939 (two-phase
commit), 1050.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from ottla.client.membership.commit import CommittedAt, GroupMetadata
from ottla.kernel.client_error import TransactionAborted, check, error_of
from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.kernel.ids import TopicPartition
from ottla.kernel.named import NamedTuple
from ottla.wire.api.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.wire.api.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from ottla.wire.api.end_txn import EndTxnRequest, EndTxnResponse
from ottla.wire.api.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.wire.api.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)


class PreparedTransaction(NamedTuple):
    """Which transaction was prepared: what the other resources of a two-phase commit keep (KIP-939).

    `str` gives Kafka's text for it ("producer id:epoch", empty for none), `parse` reads that.
    """

    producer_id: int = -1
    producer_epoch: int = -1

    def __str__(self) -> str:
        return f"{self.producer_id}:{self.producer_epoch}" if self.producer_id >= 0 else ""

    @classmethod
    def parse(cls, text: str) -> PreparedTransaction:
        """The reverse of `str`. ValueError for anything else."""
        if not text:
            return cls()
        producer_id, colon, epoch = text.partition(":")
        if not (colon and producer_id.isdecimal() and epoch.isdecimal()):
            raise ValueError(f"invalid prepared transaction {text!r}: expected producer id:epoch, or nothing")
        return cls(int(producer_id), int(epoch))


class CommitUnanswered(OttlaError):
    """A commit was sent and not answered, so the transaction cannot be aborted: commit again to know how it ended."""


class Phase(Enum):
    """Where a producer stands; the text is how errors say it."""

    NEW = "it has no producer id yet: call init_transactions first"
    READY = "no transaction is open: begin one first"
    OPEN = "a transaction is open"
    COMMITTING = "a commit is under way: only commit can be repeated"
    ABORTING = "an abort is under way: only abort can be repeated"
    PREPARED = "the transaction is prepared: commit, abort or complete it"
    FAILED = "the transaction has failed: abort it"
    FATAL = "the producer cannot go on: close it"


#: Offsets of a group.
Owed = tuple[GroupMetadata, Mapping[TopicPartition, CommittedAt]]
#: The first version of InitProducerId that knows two-phase commits.
_TWO_PHASE_FROM = 6
#: Between two tries while a transaction's end is under way (Java's client waits as long).
TRANSACTION_PAUSE_MS = 20
#: Another producer has the transactional id, or this one may not use it.
_FATAL = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TRANSACTION_TIMEOUT,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
    }
)
#: The same from a coordinator. A partition's leader that says so may only be behind: the coordinator decides.
_FATAL_OF_COORDINATOR = _FATAL | {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE}


class Transactions:
    """A producer's transactions. The producer makes it and serialises the calls."""

    def __init__(self, transactional_id: str, timeout_ms: int, *, two_phase: bool = False) -> None:
        self.transactional_id = transactional_id
        self.phase = Phase.NEW
        #: Why it is FAILED or FATAL.
        self.error: KafkaError | None = None
        #: Producer id and epoch; None before the first answer.
        self.producer: tuple[int, int] | None = None
        #: The protocol's version: 1, or 2 (KIP-890). It stays the same through a transaction.
        self.version = 1
        #: In the open transaction, and those that wait to be added to it (by the first protocol).
        self.partitions: set[TopicPartition] = set()
        self.pending: dict[TopicPartition, None] = {}
        #: Does the coordinator know of the open transaction, or may it?
        self.begun = False
        #: Offsets that the program gave and their coordinator has not confirmed, in their order.
        self.owed: list[Owed] = []
        self._commit_sent = False
        self._groups: set[str] = set()
        self._gap = False
        self._timeout_ms = timeout_ms
        self.two_phase = two_phase
        #: Does the next init keep a transaction that an earlier producer has prepared?
        self.keeps = False
        #: What is prepared, while it is.
        self.prepared: PreparedTransaction | None = None

    # ---- what the program asks for

    def begin(self, version: int) -> None:
        """Open a transaction."""
        self._demand(Phase.READY)
        self.version = version
        self.partitions, self.pending, self._groups = set(), {}, set()
        self.begun = False
        self.phase = Phase.OPEN

    def check_open(self) -> None:
        """May a record be sent, or offsets? Raises what stands against it."""
        if self.phase is not Phase.OPEN:
            self._demand(Phase.OPEN)

    def committing(self) -> None:
        """From now on the transaction takes nothing more; what it has may still go out."""
        self._demand(Phase.OPEN, Phase.PREPARED, Phase.COMMITTING)
        self.phase = Phase.COMMITTING

    def aborting(self) -> TransactionAborted:
        """From now on nothing goes out. Returns the error of the records that had not."""
        if self.unanswered:
            raise CommitUnanswered(f"producer {self.transactional_id}: {self.phase.value}")
        self._demand(Phase.OPEN, Phase.PREPARED, Phase.FAILED, Phase.COMMITTING, Phase.ABORTING)
        self.phase = Phase.ABORTING
        self.pending.clear()
        self.owed.clear()
        why = f"the transaction of {self.transactional_id} was aborted before the record was sent"
        return TransactionAborted(f"{why} ({self.error})" if self.error is not None else why)

    def to_complete(self) -> PreparedTransaction:
        """What is prepared; raises when nothing is."""
        self._demand(Phase.PREPARED)
        assert self.prepared is not None
        return self.prepared

    def preparing(self) -> None:
        """From now on the transaction takes nothing more, once what it has is delivered."""
        self._demand(Phase.OPEN)
        if not self.two_phase:
            raise OttlaError("preparing a transaction needs transaction.two.phase.commit.enable=true")

    def is_prepared(self) -> PreparedTransaction:
        """Everything is delivered: only its end is left, here or by a producer that takes it over."""
        self._demand(Phase.OPEN)
        self.phase = Phase.PREPARED
        # Nothing was written, so there is nothing that another producer could find.
        self.prepared = PreparedTransaction(*(self.producer or ())) if self.begun else PreparedTransaction()
        return self.prepared

    def _demand(self, *phases: Phase) -> None:
        if self.phase in phases:
            return
        if self.phase in (Phase.FAILED, Phase.FATAL) and self.error is not None:
            raise self.error.with_traceback(None)
        raise OttlaError(f"producer {self.transactional_id}: {self.phase.value}")

    # ---- records

    @property
    def sends(self) -> bool:
        """May batches go out at all?"""
        return self.phase is Phase.OPEN or self.phase is Phase.COMMITTING

    def admit(self, partition: TopicPartition) -> bool:
        """May a batch of this partition go out now? Otherwise it is to be added first."""
        if partition in self.partitions:
            return True
        if self.version >= 2:
            self.partitions.add(partition)
            self.begun = True
            return True
        self.pending[partition] = None
        return False

    def given_up(self, error: KafkaError, *, numbered: bool) -> None:
        """A batch of the transaction will not be delivered. `numbered`: it has (or had) a sequence."""
        self._gap = self._gap or numbered
        self.failed(error, _FATAL)

    def failed(self, error: KafkaError, fatal: frozenset[ErrorCode] = _FATAL_OF_COORDINATOR) -> None:
        """What a transaction cannot get over; the first such error is the one that is told."""
        if self.phase is Phase.FATAL:
            return
        if error.code in fatal:
            self.phase, self.error = Phase.FATAL, error
        elif self.sends:
            self.phase, self.error = Phase.FAILED, error

    def _refused(self, code: int, what: str, fatal: frozenset[ErrorCode] = _FATAL_OF_COORDINATOR) -> None:
        """Raise what an answer says, if it is an error: one that may pass as it is, others after they are taken in."""
        if error := error_of(code, f"{what} ({self.transactional_id})"):
            if not error.code.retriable:
                self.failed(error, fatal)
            raise error

    # ---- a producer id

    def init_request(self) -> InitProducerIdRequest:
        """Ask for a producer id; with one, for its next epoch."""
        producer_id, epoch = self.producer or (-1, -1)
        return InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self._timeout_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
            enable2_pc=self.two_phase,
            keep_prepared_txn=self.keeps,
        )

    @property
    def init_version(self) -> int:
        """The version that InitProducerId must have; -1: any."""
        return _TWO_PHASE_FROM if self.two_phase or self.keeps else -1

    def init_answered(self, response: InitProducerIdResponse) -> None:
        """READY, or raises. Every producer before this one is locked out, and its transaction aborted."""
        self._refused(response.error_code, "beginning to use the transactional id")
        self._ready((response.producer_id, response.producer_epoch))
        if self.keeps and response.ongoing_txn_producer_id >= 0:
            self.prepared = PreparedTransaction(response.ongoing_txn_producer_id, response.ongoing_txn_producer_epoch)
            # Only with the second protocol can a transaction be kept.
            self.phase, self.version, self.begun = Phase.PREPARED, 2, True
        self.keeps = False

    def _ready(self, producer: tuple[int, int]) -> None:
        self.producer = producer
        self.phase, self.error = Phase.READY, None
        self._gap = self.begun = self._commit_sent = False
        self.prepared = None

    # ---- partitions

    def add_request(self) -> AddPartitionsToTxnRequest:
        """Add the partitions that wait."""
        assert self.producer is not None
        topics: dict[str, AddPartitionsToTxnTopic] = {}
        for topic, number in self.pending:
            topics.setdefault(topic, AddPartitionsToTxnTopic(name=topic)).partitions.append(number)
        # Even unanswered it may have begun the transaction at the coordinator.
        self.begun = True
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer[0],
            v3_and_below_producer_epoch=self.producer[1],
            v3_and_below_topics=list(topics.values()),
        )

    def add_answered(self, response: AddPartitionsToTxnResponse) -> None:
        """What was added may be written to. Raises the worst of what was not: an error for good before one to retry."""
        codes: dict[TopicPartition, int] = {
            TopicPartition(topic.name, one.partition_index): one.partition_error_code
            for topic in response.results_by_topic_v3_and_below
            for one in topic.results_by_partition
        }
        again: tuple[TopicPartition, int] | None = None
        for partition, code in codes.items():
            if code == 0:
                self.pending.pop(partition, None)
                self.partitions.add(partition)
            elif code != ErrorCode.OPERATION_NOT_ATTEMPTED:
                error = error_of(code)
                if error is not None and not error.code.retriable:
                    self._refused(code, f"adding {partition} to the transaction")
                again = (partition, code)
        if again is not None:
            check(again[1], f"adding {again[0]} to the transaction ({self.transactional_id})")

    # ---- offsets

    def group_request(self, group_id: str) -> AddOffsetsToTxnRequest | None:
        """Add a group's offsets; None if that is not needed."""
        assert self.producer is not None
        if self.version >= 2 or group_id in self._groups:
            return None
        self.begun = True
        return AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer[0],
            producer_epoch=self.producer[1],
            group_id=group_id,
        )

    def group_answered(self, group_id: str, code: int) -> None:
        """Its offsets may be written, or raises."""
        self._refused(code, f"adding the offsets of group {group_id} to the transaction")
        self._groups.add(group_id)

    def owe(self, group: GroupMetadata, offsets: Mapping[TopicPartition, CommittedAt]) -> None:
        """Take offsets into the open transaction: it is not committed before they are written."""
        self.check_open()
        if offsets:
            self.owed.append((group, offsets))

    def offsets_request(self, owed: Owed) -> TxnOffsetCommitRequest:
        """Write offsets that count when the transaction is committed. Raises if it takes no more."""
        if not self.sends:
            self.check_open()
        group, offsets = owed
        assert self.producer is not None
        self.begun = True
        topics: dict[str, TxnOffsetCommitRequestTopic] = {}
        for (topic, number), (offset, epoch, metadata) in offsets.items():
            part = TxnOffsetCommitRequestPartition(
                partition_index=number,
                committed_offset=offset,
                committed_leader_epoch=epoch,
                committed_metadata=metadata,
            )
            topics.setdefault(topic, TxnOffsetCommitRequestTopic(name=topic)).partitions.append(part)
        return TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group.group_id,
            producer_id=self.producer[0],
            producer_epoch=self.producer[1],
            generation_id_or_member_epoch=group.generation_id,
            member_id=group.member_id,
            group_instance_id=group.group_instance_id,
            topics=list(topics.values()),
        )

    def offsets_answered(self, owed: Owed, response: TxnOffsetCommitResponse) -> None:
        """All are written and no longer owed, or raises."""
        left = set(owed[1])
        for topic in response.topics:
            for one in topic.partitions:
                where = f"committing {topic.name}-{one.partition_index} in the transaction"
                self._refused(one.error_code, where)
                left.discard(TopicPartition(topic.name, one.partition_index))
        if left:
            # As in Java's client: what the answer leaves out is sent again.
            why = f"the answer leaves out the offset of {min(left)} ({self.transactional_id})"
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, why)
        self.owed = [one for one in self.owed if one is not owed]

    # ---- the end

    def end_request(self) -> EndTxnRequest | None:
        """Commit or abort, as was decided; None if the coordinator need not hear of it: then it is over by `ended`."""
        assert self.producer is not None
        if not self.begun:
            return None
        self._commit_sent = self.phase is Phase.COMMITTING
        return EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer[0],
            producer_epoch=self.producer[1],
            committed=self.phase is Phase.COMMITTING,
        )

    def end_answered(self, response: EndTxnResponse) -> None:
        """Take the answer to EndTxn: the transaction is over, or this raises."""
        commits = self.phase is Phase.COMMITTING
        fatal = _FATAL_OF_COORDINATOR
        if commits and self.version >= 2:
            # The transaction was open for too long and the coordinator has aborted it: our abort then repeats that, and
            # brings the next epoch.
            fatal = fatal - {ErrorCode.INVALID_TXN_STATE}
        self._refused(response.error_code, f"{'committing' if commits else 'aborting'} the transaction", fatal)
        if self.version >= 2 and response.producer_id >= 0:
            self._ready((response.producer_id, response.producer_epoch))
        else:
            self.ended()

    @property
    def unanswered(self) -> bool:
        """Has a request to commit gone out whose answer is not known? Only committing again tells how it ended."""
        return self._commit_sent and self.phase is Phase.COMMITTING

    def ended(self) -> None:
        """The coordinator has nothing open of us. After a gap a new epoch comes first (`needs_init`)."""
        self.begun = False
        if not self._gap:
            assert self.producer is not None
            self._ready(self.producer)

    @property
    def needs_init(self) -> bool:
        """Is the transaction over, and only a new epoch lacking?"""
        return self.phase in (Phase.COMMITTING, Phase.ABORTING) and not self.begun and self._gap
