"""A producer's view of its transactions: what it may do next, and what an answer means. Pure.

| from | to | when |
|---|---|---|
| NEW | READY | the coordinator has assigned a producer id |
| READY | OPEN | the program begins a transaction |
| READY | PREPARED | the producer id came with an earlier producer's prepared transaction (KIP-939) |
| OPEN | PREPARING | the program prepares it |
| PREPARING | PREPARED | everything is delivered |
| PREPARING | OPEN | not everything was delivered in time |
| OPEN, PREPARING, PREPARED | COMMITTING | the program commits |
| OPEN, PREPARING, PREPARED, COMMITTING, FAILED | ABORTING | the program aborts, and no commit request has gone out |
| OPEN, PREPARING, COMMITTING | FAILED | a record is not delivered, or a request fails for good |
| COMMITTING, ABORTING | READY | the coordinator has ended it |
| NEW, READY, OPEN, PREPARING, PREPARED, COMMITTING, ABORTING, FAILED | FATAL | the id is taken, or not allowed |

`Transactor` sends the requests and passes the answers back; `Sender` asks whether a batch may be sent.

Rules:
- With the first protocol a partition is added at the coordinator before anything is written to it. With the second
  (`transaction.version` 2, KIP-890) writing adds it, and every end gives the producer a new epoch.
- An error that cannot be cured within the transaction makes it FAILED: it can only be aborted, and then the producer
  goes on. FATAL ends the producer: another producer has its transactional id, or it may not use it.
- A new epoch starts at sequence 0. A sequence that was sent and given up leaves a gap: no more records are sent in that
  epoch.
- An end without an answer is requested again unchanged: the coordinator recognises a repetition. After a commit without
  an answer no abort is allowed, because the coordinator may have committed.
- Offsets that the program gave and no coordinator has confirmed (`owed`) are written before the commit is sent.

KIPs: 98 (transactions), 360 (a new epoch cures a gap), 447 (offsets of a member), 588, 691, 890, 939 (two-phase
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
    """The identity of a prepared transaction, for the other resources of a two-phase commit to store (KIP-939).

    `str` returns Kafka's text for it ("producer id:epoch", or empty for none); `parse` reads that text.
    """

    producer_id: int = -1
    producer_epoch: int = -1

    def __str__(self) -> str:
        return f"{self.producer_id}:{self.producer_epoch}" if self.producer_id >= 0 else ""

    @classmethod
    def parse(cls, text: str) -> PreparedTransaction:
        """Parse the text that `str` returns. ValueError for any other text."""
        if not text:
            return cls()
        producer_id, colon, epoch = text.partition(":")
        if not (colon and producer_id.isdecimal() and epoch.isdecimal()):
            raise ValueError(f"invalid prepared transaction {text!r}: expected producer id:epoch, or nothing")
        return cls(int(producer_id), int(epoch))


class CommitUnanswered(OttlaError):
    """A commit was sent but not answered, so the transaction cannot be aborted: commit again to learn its outcome."""


class Phase(Enum):
    """The state of a producer; its value is the text of errors about that state."""

    NEW = "it has no producer id yet: call init_transactions first"
    READY = "no transaction is open: begin one first"
    OPEN = "a transaction is open"
    COMMITTING = "a commit is under way: only commit can be repeated"
    ABORTING = "an abort is under way: only abort can be repeated"
    PREPARING = "the transaction is being prepared, and takes nothing more"
    PREPARED = "the transaction is prepared: commit, abort or complete it"
    FAILED = "the transaction has failed: abort it"
    FATAL = "the producer cannot go on: close it"


#: Offsets of a group that still have to be written.
Owed = tuple[GroupMetadata, Mapping[TopicPartition, CommittedAt]]
#: The first version of InitProducerId with two-phase commit.
_TWO_PHASE_FROM = 6
#: Retry interval in ms while the end of a transaction is in progress, as in Java's client.
TRANSACTION_PAUSE_MS = 20
#: Another producer has the transactional id, or this producer may not use it.
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
#: Fatal errors of a coordinator. A partition's leader with these errors may only be behind: the coordinator decides.
_FATAL_OF_COORDINATOR = _FATAL | {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE}
#: A producer that has no rights yet can ask for its id again, as in Java's client.
_FATAL_OF_INIT = _FATAL_OF_COORDINATOR - {
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
}


class Transactions:
    """A producer's transactions. The producer creates it and serialises the calls."""

    def __init__(self, transactional_id: str, timeout_ms: int, *, two_phase: bool = False) -> None:
        self.transactional_id = transactional_id
        self.phase = Phase.NEW
        #: The error that caused FAILED or FATAL.
        self.error: KafkaError | None = None
        #: Producer id and epoch; None before the first answer.
        self.producer: tuple[int, int] | None = None
        #: The protocol: 1, or 2 (KIP-890). It does not change within a transaction.
        self.version = 1
        #: Partitions in the open transaction, and those still to be added to it (first protocol only).
        self.partitions: set[TopicPartition] = set()
        self.pending: dict[TopicPartition, None] = {}
        #: True if the coordinator knows of the open transaction, or may know.
        self.begun = False
        #: Offsets from the program that their coordinator has not confirmed, in order.
        self.owed: list[Owed] = []
        self._commit_sent = False
        #: Whether the last transaction that has ended was committed.
        self._committed = False
        self._groups: set[str] = set()
        self._gap = False
        self._timeout_ms = timeout_ms
        self.two_phase = two_phase
        #: Whether the next init keeps a transaction that an earlier producer has prepared.
        self.keeps = False
        #: The prepared transaction, while there is one.
        self.prepared: PreparedTransaction | None = None

    # ---- calls of the program

    def begin(self, version: int) -> None:
        """Open a transaction."""
        self._require(Phase.READY)
        self.version = version
        self.partitions, self.pending, self._groups = set(), {}, set()
        self.begun = False
        self.phase = Phase.OPEN

    def check_open(self) -> None:
        """Raise unless a record, or offsets, may be sent."""
        if self.phase is not Phase.OPEN:
            self._require(Phase.OPEN)

    def committing(self) -> None:
        """Start to commit: the transaction takes nothing more, and what it has may still be sent."""
        self._require(Phase.OPEN, Phase.PREPARING, Phase.PREPARED, Phase.COMMITTING)
        self.phase = Phase.COMMITTING

    def aborting(self) -> TransactionAborted:
        """Start to abort: nothing more is sent. Returns the error for the records not sent yet."""
        if self.unanswered:
            raise CommitUnanswered(f"producer {self.transactional_id}: {self.phase.value}")
        self._require(Phase.OPEN, Phase.PREPARING, Phase.PREPARED, Phase.FAILED, Phase.COMMITTING, Phase.ABORTING)
        self.phase = Phase.ABORTING
        self.pending.clear()
        self.owed.clear()
        why = f"the transaction of {self.transactional_id} was aborted before the record was sent"
        return TransactionAborted(f"{why} ({self.error})" if self.error is not None else why)

    def to_complete(self) -> PreparedTransaction:
        """The prepared transaction; raises if there is none."""
        self._require(Phase.PREPARED)
        assert self.prepared is not None
        return self.prepared

    def preparing(self) -> None:
        """Start to prepare: the transaction takes nothing more, and what it has may still be sent."""
        self._require(Phase.OPEN)
        if not self.two_phase:
            raise OttlaError("preparing a transaction needs transaction.two.phase.commit.enable=true")
        self.phase = Phase.PREPARING

    def is_prepared(self) -> PreparedTransaction:
        """Note that everything is delivered: only the end is left, by this producer or one that takes over."""
        self._require(Phase.PREPARING)
        self.phase = Phase.PREPARED
        # Nothing was written, so another producer would find nothing.
        self.prepared = PreparedTransaction(*(self.producer or ())) if self.begun else PreparedTransaction()
        return self.prepared

    def not_prepared(self) -> None:
        """Note that preparing has ended: unless that succeeded, the transaction is open as before."""
        if self.phase is Phase.PREPARING:
            self.phase = Phase.OPEN

    def check_unfailed(self) -> None:
        """Raise the error with which the transaction, or the producer, has failed."""
        if self.phase in (Phase.FAILED, Phase.FATAL) and self.error is not None:
            raise self.error.with_traceback(None)

    def must_end(self, phase: Phase) -> bool:
        """True if a commit or abort, which began this phase, still has to end the transaction; False if that was done.

        TransactionAborted if another call has aborted meanwhile what this one commits.
        """
        if self.phase is phase:
            return True
        self.check_unfailed()
        if phase is Phase.COMMITTING and (self.phase is Phase.ABORTING or not self._committed):
            raise TransactionAborted(f"the transaction of {self.transactional_id} was aborted by another call")
        return False

    def _require(self, *phases: Phase) -> None:
        if self.phase in phases:
            return
        self.check_unfailed()
        raise OttlaError(f"producer {self.transactional_id}: {self.phase.value}")

    # ---- records

    @property
    def sends(self) -> bool:
        """True if batches may be sent at all."""
        return self.phase is Phase.OPEN or self.phase is Phase.COMMITTING or self.phase is Phase.PREPARING

    def admit(self, partition: TopicPartition) -> bool:
        """True if a batch of this partition may be sent now; otherwise the partition is queued to be added."""
        if partition in self.partitions:
            return True
        if self.version >= 2:
            self.partitions.add(partition)
            self.begun = True
            return True
        self.pending[partition] = None
        return False

    def given_up(self, error: KafkaError, *, numbered: bool) -> None:
        """Note that a batch will not be delivered. `numbered`: it has or had a sequence."""
        self._gap = self._gap or numbered
        self.failed(error, _FATAL)

    def failed(self, error: KafkaError, fatal: frozenset[ErrorCode] = _FATAL_OF_COORDINATOR) -> None:
        """Note an error that the transaction cannot survive; the first one is kept."""
        if self.phase is Phase.FATAL:
            return
        if error.code in fatal:
            self.phase, self.error = Phase.FATAL, error
        elif self.sends:
            self.phase, self.error = Phase.FAILED, error

    def _refused(self, code: int, action: str, fatal: frozenset[ErrorCode] = _FATAL_OF_COORDINATOR) -> None:
        """Raise an answer's error, if any; one that is not retriable is noted first."""
        if error := error_of(code, f"{action} ({self.transactional_id})"):
            if not error.code.retriable:
                self.failed(error, fatal)
            raise error

    # ---- a producer id

    def init_request(self) -> InitProducerIdRequest:
        """Request a producer id, or the next epoch of the current one."""
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
        """Become READY, or raise. Every earlier producer is now fenced, and its transaction aborted."""
        self._refused(response.error_code, "initialising the transactional id", _FATAL_OF_INIT)
        self._ready((response.producer_id, response.producer_epoch))
        if self.keeps and response.ongoing_txn_producer_id >= 0:
            self.prepared = PreparedTransaction(response.ongoing_txn_producer_id, response.ongoing_txn_producer_epoch)
            # Only the second protocol can keep a transaction.
            self.phase, self.version, self.begun = Phase.PREPARED, 2, True
        self.keeps = False

    def _ready(self, producer: tuple[int, int]) -> None:
        self.producer = producer
        self._committed = self.phase is Phase.COMMITTING
        self.phase, self.error = Phase.READY, None
        self._gap = self.begun = self._commit_sent = False
        self.prepared = None

    # ---- partitions

    def add_request(self) -> AddPartitionsToTxnRequest:
        """Request to add the queued partitions."""
        assert self.producer is not None
        topics: dict[str, AddPartitionsToTxnTopic] = {}
        for topic, number in self.pending:
            topics.setdefault(topic, AddPartitionsToTxnTopic(name=topic)).partitions.append(number)
        # Even without an answer, this may begin the transaction at the coordinator.
        self.begun = True
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer[0],
            v3_and_below_producer_epoch=self.producer[1],
            v3_and_below_topics=list(topics.values()),
        )

    def add_answered(self, response: AddPartitionsToTxnResponse) -> None:
        """Note the partitions that were added. Raises the worst error: one that is not retriable before one that is."""
        codes: dict[TopicPartition, int] = {
            TopicPartition(topic.name, result.partition_index): result.partition_error_code
            for topic in response.results_by_topic_v3_and_below
            for result in topic.results_by_partition
        }
        retriable: tuple[TopicPartition, int] | None = None
        for partition, code in codes.items():
            if code == 0:
                self.pending.pop(partition, None)
                self.partitions.add(partition)
            elif code != ErrorCode.OPERATION_NOT_ATTEMPTED:
                error = error_of(code)
                if error is not None and not error.code.retriable:
                    self._refused(code, f"adding {partition} to the transaction")
                retriable = (partition, code)
        if retriable is not None:
            check(retriable[1], f"adding {retriable[0]} to the transaction ({self.transactional_id})")

    # ---- offsets

    def group_request(self, group_id: str) -> AddOffsetsToTxnRequest | None:
        """Request to add a group's offsets; None if that is not needed."""
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
        """Note that the group's offsets may be written, or raise."""
        self._refused(code, f"adding the offsets of group {group_id} to the transaction")
        self._groups.add(group_id)

    def owe(self, group: GroupMetadata, offsets: Mapping[TopicPartition, CommittedAt]) -> None:
        """Add offsets to the open transaction; they are written before it is committed."""
        self.check_open()
        if offsets:
            self.owed.append((group, offsets))

    def offsets_request(self, owed: Owed) -> TxnOffsetCommitRequest:
        """Request to write offsets, which take effect with the commit. Raises if the transaction takes no more."""
        if not self.sends:
            self.check_open()
        group, offsets = owed
        assert self.producer is not None
        self.begun = True
        topics: dict[str, TxnOffsetCommitRequestTopic] = {}
        for (topic, number), (offset, epoch, metadata) in offsets.items():
            offset_data = TxnOffsetCommitRequestPartition(
                partition_index=number,
                committed_offset=offset,
                committed_leader_epoch=epoch,
                committed_metadata=metadata,
            )
            topics.setdefault(topic, TxnOffsetCommitRequestTopic(name=topic)).partitions.append(offset_data)
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
        """Note that all offsets are written, or raise."""
        left = set(owed[1])
        for topic in response.topics:
            for result in topic.partitions:
                action = f"committing {topic.name}-{result.partition_index} in the transaction"
                self._refused(result.error_code, action)
                left.discard(TopicPartition(topic.name, result.partition_index))
        if left:
            # As in Java's client: offsets that the answer lacks are sent again.
            why = f"the broker's answer lacks the offset of {min(left)} ({self.transactional_id})"
            raise KafkaError(ErrorCode.NETWORK_EXCEPTION, why)
        self.owed = [pending for pending in self.owed if pending is not owed]

    # ---- the end

    def end_request(self) -> EndTxnRequest | None:
        """Request the commit or abort; None if the coordinator has nothing to end: then call `ended`."""
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
        """Take in the answer to EndTxn: the transaction has ended, or this raises."""
        commits = self.phase is Phase.COMMITTING
        fatal = _FATAL_OF_COORDINATOR
        if commits and self.version >= 2:
            # The transaction timed out and the coordinator has aborted it: our abort repeats that, and returns the next
            # epoch.
            fatal = fatal - {ErrorCode.INVALID_TXN_STATE}
        self._refused(response.error_code, f"{'committing' if commits else 'aborting'} the transaction", fatal)
        if self.version >= 2 and response.producer_id >= 0:
            self._ready((response.producer_id, response.producer_epoch))
        else:
            self.ended()

    @property
    def unanswered(self) -> bool:
        """True if a commit request without an answer is out: only another commit request tells the outcome."""
        return self._commit_sent and self.phase is Phase.COMMITTING

    def ended(self) -> None:
        """Note that the coordinator has nothing open. After a gap a new epoch is needed first (`needs_init`)."""
        self.begun = False
        if not self._gap:
            assert self.producer is not None
            self._ready(self.producer)

    @property
    def needs_init(self) -> bool:
        """True if the transaction has ended and only a new epoch is missing."""
        return self.phase in (Phase.COMMITTING, Phase.ABORTING) and not self.begun and self._gap
