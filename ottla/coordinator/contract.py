"""The events (in the past tense) and effects (imperative) that all coordinators have in common.

A coordinator is a state machine for one partition of an internal topic. Its driver, `ottla.broker.coordinators.driver`:

1. replays the partition's log: `replay` for each record (and a group coordinator's `replay_marker` for each marker);
2. sends `Loaded`, and after that requests (`Called`), `TimePassed` when `deadline_ms()` is reached, and the events of
   this kind of coordinator;
3. carries out the effects of each `step` in order, before the next step: an `Append` is appended as one batch and its
   records are replayed at once. An `Answer`, or a request to another component, is sent when everything appended so far
   is committed; the component's reply comes back as an event;
4. answers all open requests with NOT_COORDINATOR and drops the machine when an append fails or the node no longer leads
   the partition. An event whose records the log refuses (too large, too few in-sync replicas) fails alone: the machine
   takes the step back.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from ottla.kernel.error import ErrorCode
from ottla.kernel.frozen import frozen
from ottla.kernel.now import Now
from ottla.wire.batch import HEADER_BYTES

#: The encoded key and value of a record. A value of None is a tombstone.
Entry = tuple[bytes, bytes | None]


class CoordinatorMachine(Protocol):
    """A coordinator of any kind: `step` decides, `replay` changes the state."""

    def step(self, event: Any, now: Now) -> Sequence[Any]:
        """The effects of an event, in the order in which they must be carried out."""

    def replay(self, key: bytes, value: bytes | None, *, offset: int, producer_id: int = -1) -> None:
        """Take in a record, on load or right after its append; `producer_id`: of an open transaction."""

    def deadline_ms(self) -> int | None:
        """When `TimePassed` is due, in monotonic time; None if nothing can become due."""


@frozen
class Called:
    """A request arrived. The machine answers it exactly once, in this step or a later one."""

    #: The driver's number for the request, which the `Answer` carries.
    ticket: int
    request: Any
    version: int = 0
    client_id: str = ""
    #: The client's address as Kafka records it, with a slash in front: `/127.0.0.1`.
    client_host: str = ""
    principal: str = "User:ANONYMOUS"
    #: May the client describe the topic of this name? None allows every topic.
    may_describe: Callable[[str], bool] | None = None
    #: The topics of the request's regular expression, if they were selected before (`ottla.group.selection`).
    selected: Any = None
    #: What the broker has worked out of a long request in steps (`ottla.group.offsets.plan`).
    prepared: Any = None


@frozen
class Loaded:
    """Every record of the log was replayed and this node leads the partition: timers start, requests may arrive."""


@frozen
class TimePassed:
    """The time `deadline_ms()` was reached."""


@frozen
class Append:
    """Append these records as one batch, stamped with this step's time, and replay them at once.

    The batch is transactional if there is a producer id.
    """

    entries: Sequence[Entry]
    producer_id: int = -1
    producer_epoch: int = -1
    #: The records depend neither on each other nor on the effects before: they may go into several batches, each of
    #: which is appended even if the log refuses another one as too large.
    independent: bool = False

    def batches(self, bytes_max: int) -> list[Sequence[Entry]]:
        """The records of each batch in a log that takes batches of at most `bytes_max`."""
        if not self.independent:
            return [self.entries]
        bytes_max = min(bytes_max, _BATCH_BYTES) - HEADER_BYTES
        batches: list[list[Entry]] = []
        size = bytes_max
        for key, value in self.entries:
            record_bytes = len(key) + len(value or b"") + _RECORD_OVERHEAD_BYTES
            size += record_bytes
            if size > bytes_max or not batches:
                batches.append([])
                size = record_bytes
            batches[-1].append((key, value))
        return [*batches]


@frozen
class Answer:
    """Send this response once everything the coordinator has appended so far is committed."""

    ticket: int
    response: Any


@frozen
class Continue:
    """Send this event when the effects before it are carried out."""

    event: Any


#: The most bytes of independent records in a batch: well below the default of max.message.bytes.
_BATCH_BYTES = 256 << 10
_RECORD_OVERHEAD_BYTES = 16


def independent(entries: Iterable[Entry]) -> list[Append]:
    """Append records that do not depend on each other, such as tombstones, in as many batches as they need.

    Their number has no bound, and a log refuses a batch that is too large for it.
    """
    listed = [*entries]
    return [Append(listed, independent=True)] if listed else []


#: Error of the log -> error for a client of the coordinator.
_APPEND_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def append_error(code: ErrorCode) -> ErrorCode:
    """The error for requests whose records could not be appended or committed because of `code`."""
    return _APPEND_ERRORS.get(code, code)
