"""An incremental fetch session with one broker (KIP-227). Pure.

The broker remembers the partitions, and the client sends only the changes.

Rules:
- The first request names all partitions (epoch 0); later requests only those that are new, have moved on, or are to be
  forgotten.
- A session that the broker has lost starts again. A broker that keeps no sessions answers with session 0, and every
  request is full.
- A session that starts again after any other failure names its old id, so that the broker closes the old session. The
  last request of a session (epoch -1) does the same without a new one.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.kernel.error import ErrorCode
from ottla.kernel.ids import TopicPartition, Uuid
from ottla.kernel.named import NamedTuple

NO_SESSION = 0
FIRST_EPOCH = 0
FINAL_EPOCH = -1


class WantedPartition(NamedTuple):
    """The fetch parameters of one partition."""

    offset: int
    leader_epoch: int
    bytes_max: int
    topic_id: Uuid


class SessionRequest(NamedTuple):
    """The part of a fetch request that the session determines."""

    session_id: int
    epoch: int
    send: dict[TopicPartition, WantedPartition]
    forget: list[tuple[TopicPartition, Uuid]]


class FetchSession:
    """A consumer's session with one broker. The fetcher creates it and ends it."""

    def __init__(self) -> None:
        self.id = NO_SESSION
        self.epoch = FIRST_EPOCH
        #: The partitions that the broker remembers.
        self.known: dict[TopicPartition, WantedPartition] = {}

    def next_request(self, wanted: Mapping[TopicPartition, WantedPartition]) -> SessionRequest:
        """The changes to send so that the broker fetches exactly `wanted`."""
        if self.epoch == FIRST_EPOCH:
            send, forget = dict(wanted), []
        else:
            send = {partition: want for partition, want in wanted.items() if self.known.get(partition) != want}
            forget = [
                (partition, known.topic_id)
                for partition, known in self.known.items()
                # A topic recreated under the same name is a different topic: forget the old one.
                if partition not in wanted or wanted[partition].topic_id != known.topic_id
            ]
        self.known = dict(wanted)
        return SessionRequest(self.id, self.epoch, send, forget)

    def answered(self, error_code: int, session_id: int) -> bool:
        """Apply the broker's answer. False if the session is lost and the request must be sent again."""
        if error_code in (
            ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
            ErrorCode.INVALID_FETCH_SESSION_EPOCH,
            ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ):
            self.reset(keep_id=error_code != ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            return False
        if session_id == NO_SESSION:
            self.reset(keep_id=bool(error_code))
        else:
            self.id = session_id
            self.epoch = 1 if self.epoch == 0x7FFFFFFF else self.epoch + 1
        return True

    def reset(self, *, keep_id: bool = False) -> None:
        """Start again; with `keep_id` the broker closes the old session when it creates the new one."""
        if not keep_id:
            self.id = NO_SESSION
        self.epoch = FIRST_EPOCH
        self.known = {}
