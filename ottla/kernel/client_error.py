"""The client's own errors. What a broker answers is a `KafkaError` with Kafka's code; these say what the client met.

All are OttlaErrors (a sentence that says how to mend it), and each that stands for one of Kafka's codes is a KafkaError
with that code too, so that `except KafkaError` and `error.code` work for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.kernel.ids import TopicPartition

T = TypeVar("T")


class ClientClosed(OttlaError):
    """The client was closed before, or while, it was used."""


class NotReachable(OttlaError):
    """No broker, or not the needed one, could be reached."""


class ConnectionLost(KafkaError):
    """The connection broke, or was given up, before the answer came. Whether the broker acted is not known."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.NETWORK_EXCEPTION, message)


class RequestTimedOut(KafkaError):
    """The answer, or what was waited for, did not come in time."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, message)


class Unsupported(KafkaError):
    """The broker does not know this request, or no version of it that can carry what was asked."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.UNSUPPORTED_VERSION, message)


class AuthenticationFailed(KafkaError):
    """The broker does not take this client's name and password, or its token. Trying again would not help."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.SASL_AUTHENTICATION_FAILED, message)


class TlsFailed(OttlaError):
    """The two ends do not trust each other, or cannot agree on TLS. Trying again would not help."""


class BufferFull(KafkaError):
    """`buffer.memory` stayed full for `max.block.ms`: records come faster than the cluster takes them."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, message)


class RecordDeserializationError(OttlaError):
    """A record whose key or value its deserializer (or serde) cannot read. The consumer's position stays at it.

    `consumer.seek(error.topic_partition, error.offset + 1)` goes on behind it. The settings `on.decode.error` and
    `dead.letter.topic` do without the error. The deserializer's own exception is `__cause__`.
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
        #: "key" or "value": the first of them that could not be read.
        self.part = part
        #: What the deserializer said.
        self.reason = reason
        #: The error without what to do about it.
        self.summary = f"{self.topic}-{self.partition} at offset {self.offset}: the {part} cannot be read ({reason})"
        super().__init__(f"{self.summary}; seek past it to go on, or set on.decode.error=skip, or a dead.letter.topic")

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition, as `seek` takes it."""
        return TopicPartition(self.topic, self.partition)


class LogTruncation(KafkaError):
    """Records that this consumer has read are gone, or others are in their place: an unclean election cut the log.

    Without a reset policy (auto.offset.reset=none) polls raise it until the program seeks: to the offset of
    `divergent`, the first one that may differ from what was read, or elsewhere. Java: LogTruncationException.
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
        where = "the leader does not know from where on it differs"
        if divergent is not None:
            where = f"what the leader has differs from offset {divergent[0]} (leader epoch {divergent[1]}) on"
        way = "seek_to_beginning or seek" if divergent is None else f"seek to {divergent[0]} to read what is there now"
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{topic_partition}: the log was cut below the position, offset {offset} (leader epoch {leader_epoch}); "
            f"{where}; {way}, or set auto.offset.reset",
        )


class Fenced(KafkaError):
    """Another producer or member took this one's place. It cannot go on: close it."""


class ProducerFenced(Fenced):
    """A newer producer has this transactional id. Close this one; whatever it had open was aborted."""


class InvalidProducerEpoch(KafkaError):
    """A partition has seen a newer epoch of this producer: abort, and the coordinator says whether it may go on."""


class TransactionAbortable(KafkaError):
    """The transaction cannot be committed any more. Abort it; the producer can go on with the next one."""


class TransactionAborted(KafkaError):
    """The record was not sent, because its transaction was aborted before."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.OPERATION_NOT_ATTEMPTED, message)


class InvalidTxnState(KafkaError):
    """The coordinator has the transaction in a state in which this cannot be done."""


class ConcurrentTransactions(KafkaError):
    """The coordinator is still busy with the end of the last transaction. It passes; it was waited for in vain."""


class InvalidProducerIdMapping(KafkaError):
    """The coordinator has forgotten this transactional id's producer id (transactional.id.expiration.ms). Close it."""


#: The codes that are a class of their own.
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
    """The error that a response's code stands for; None for NONE."""
    if code == 0:
        return None
    try:
        known = ErrorCode(code)
    except ValueError:
        return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, message or f"the broker answered the unknown code {code}")
    return _KINDS.get(known, KafkaError)(known, message or "")


def check(code: int, message: str | None = None) -> None:
    """Raise what a response's code stands for, if it is not NONE."""
    if code:
        error = error_of(code, message)
        assert error is not None
        raise error


def left_out(key: object) -> KafkaError:
    """The error of what was asked for and does not appear in the answer."""
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the broker's answer leaves out {key}")


def only(answers: Sequence[T], key: object) -> T:
    """The answer of a request about one thing."""
    if not answers:
        raise left_out(key)
    return answers[0]
