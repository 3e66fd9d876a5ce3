"""The client's errors: classes for some of Kafka's codes, and for failures that the client detects itself.

An error with a Kafka code is a KafkaError, so that `except KafkaError` and `error.code` work for it. An error without
one is an OttlaError, whose message says how to fix the problem.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.kernel.ids import TopicPartition

T = TypeVar("T")


class ClientClosed(OttlaError):
    """The client was closed before or during the call."""


class NotReachable(OttlaError):
    """No broker, or not the required one, could be reached."""


class ConnectionLost(KafkaError):
    """The connection was lost or closed before the response arrived. Whether the broker acted is unknown."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.NETWORK_EXCEPTION, message)


class RequestTimedOut(KafkaError):
    """The response, or the awaited condition, did not arrive in time."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, message)


class Unsupported(KafkaError):
    """The broker does not support this request, or no version of it that can express the call."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.UNSUPPORTED_VERSION, message)


class _TriedAgain(KafkaError):
    """An error that a retry may cure where it occurs, although its code is not retriable."""

    @property
    def retriable(self) -> bool:
        """True, unlike the code."""
        return True


class ServerFault(_TriedAgain):
    """The broker failed on one partition and does not say why. Reads ask again, as those of Java's clients do."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.UNKNOWN_SERVER_ERROR, message)


class StaleEpoch(_TriedAgain):
    """The coordinator has a newer epoch of this member than its last heartbeat's answer brought: the next one does."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.STALE_MEMBER_EPOCH, message)


class AuthenticationFailed(KafkaError):
    """The broker rejected this client's credentials. A retry does not help."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.SASL_AUTHENTICATION_FAILED, message)


class TlsFailed(OttlaError):
    """The TLS handshake failed: one side does not trust the other, or they share no protocol. A retry does not help."""


class BufferFull(KafkaError):
    """`buffer.memory` stayed full for `max.block.ms`: records are produced faster than the cluster accepts them."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, message)


class RecordDeserializationError(OttlaError):
    """A record whose key or value the deserializer (or serde) cannot read. The consumer's position stays at the record.

    `consumer.seek(error.topic_partition, error.offset + 1)` skips it. The settings `on.decode.error` and
    `dead.letter.topic` avoid the error. The deserializer's own exception is `__cause__`.
    """

    def __init__(self, record: Sequence[Any], part: str, reason: str) -> None:
        self.topic: str
        self.partition: int
        self.offset: int
        #: The record's timestamp, ms since 1970; -1 if it has none.
        self.timestamp: int
        #: The bytes as they were fetched.
        self.key: bytes | None
        self.value: bytes | None
        self.headers: Sequence[tuple[str, bytes | None]]
        self.topic, self.partition, self.offset, self.timestamp, self.key, self.value, self.headers = record
        #: "key" or "value": the first part that could not be read.
        self.part = part
        #: The deserializer's message.
        self.reason = reason
        #: The message without the advice.
        self.summary = f"{self.topic}-{self.partition} at offset {self.offset}: the {part} cannot be read ({reason})"
        super().__init__(f"{self.summary}; seek past it, or set on.decode.error=skip or dead.letter.topic")

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition, as `seek` takes it."""
        return TopicPartition(self.topic, self.partition)


class LogTruncation(KafkaError):
    """Records that this consumer has read were lost or replaced: an unclean election truncated the log.

    Without a reset policy (auto.offset.reset=none), polls raise it until the program seeks: to the offset of
    `divergent`, the first that may differ from what was read, or elsewhere. Java: LogTruncationException.
    """

    def __init__(
        self, topic_partition: TopicPartition, offset: int, leader_epoch: int, divergent: tuple[int, int] | None
    ) -> None:
        self.topic_partition = topic_partition
        #: The position, and the leader epoch of the record before it.
        self.offset = offset
        self.leader_epoch = leader_epoch
        #: (offset, leader epoch) where the leader's log ends that epoch; None if the leader does not know.
        self.divergent = divergent
        where = "the leader does not know where its log diverges"
        if divergent is not None:
            where = f"the leader's log diverges at offset {divergent[0]} (leader epoch {divergent[1]})"
        way = "seek_to_beginning or seek" if divergent is None else f"seek to {divergent[0]} to read what is there"
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{topic_partition}: the log was truncated below the position {offset} (leader epoch {leader_epoch}); "
            f"{where}; {way}, or set auto.offset.reset",
        )


class Fenced(KafkaError):
    """Another producer or member has replaced this one. It cannot continue: close it."""


class ProducerFenced(Fenced):
    """A newer producer uses this transactional id. Close this one; its open transaction was aborted."""


class InvalidProducerEpoch(KafkaError):
    """A partition has seen a newer epoch of this producer: abort; the coordinator decides whether it can continue."""


class TransactionAbortable(KafkaError):
    """The transaction can no longer be committed. Abort it; the producer can continue with the next one."""


class TransactionAborted(KafkaError):
    """The record was not sent, or the commit not made, because the transaction was aborted first."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.OPERATION_NOT_ATTEMPTED, message)


class InvalidTxnState(KafkaError):
    """The transaction is in a state that does not allow this operation."""


class ConcurrentTransactions(KafkaError):
    """The coordinator is still completing the previous transaction, and did not finish within the timeout."""


class InvalidProducerIdMapping(KafkaError):
    """The producer id of this transactional id has expired (transactional.id.expiration.ms). Close the producer."""


#: The codes that have their own class.
_KINDS: dict[ErrorCode, type[KafkaError]] = {
    ErrorCode.FENCED_INSTANCE_ID: Fenced,
    ErrorCode.FENCED_MEMBER_EPOCH: Fenced,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: Fenced,
    ErrorCode.PRODUCER_FENCED: ProducerFenced,
    ErrorCode.INVALID_PRODUCER_EPOCH: InvalidProducerEpoch,
    ErrorCode.TRANSACTION_ABORTABLE: TransactionAbortable,
    ErrorCode.INVALID_TXN_STATE: InvalidTxnState,
    ErrorCode.CONCURRENT_TRANSACTIONS: ConcurrentTransactions,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: InvalidProducerIdMapping,
}


def error_of(code: int, message: str | None = None) -> KafkaError | None:
    """Return the error for a response's code; None for NONE."""
    if code == 0:
        return None
    try:
        known = ErrorCode(code)
    except ValueError:
        return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, message or f"the broker returned unknown error code {code}")
    return _KINDS.get(known, KafkaError)(known, message or "")


def check(code: int, message: str | None = None) -> None:
    """Raise the error for a response's code unless it is NONE."""
    if code:
        error = error_of(code, message)
        assert error is not None
        raise error


def kafka_error(error: Exception) -> KafkaError:
    """Return an error of any kind as the KafkaError that deliveries and transactions fail with."""
    if isinstance(error, KafkaError):
        return error
    if isinstance(error, OttlaError):
        return RequestTimedOut(str(error))
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{type(error).__name__}: {error}")


def left_out(key: object) -> KafkaError:
    """Return the error for a requested item that is missing in the response."""
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the broker's answer leaves out {key}")


def only(answers: Sequence[T], key: object) -> T:
    """Return the result of a request about one item."""
    if not answers:
        raise left_out(key)
    return answers[0]
