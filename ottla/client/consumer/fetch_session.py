"""A fetch session with one broker: it remembers our partitions, we send only what changed (KIP-227). Pure.

Rules:
- The first request names everything (epoch 0); later ones only partitions that are new, moved on, or are to be
  forgotten.
- A session that the broker lost begins again; a broker that keeps none answers with session 0, and every request is
  full.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.kernel.error import ErrorCode
from ottla.kernel.ids import TopicPartition, Uuid
from ottla.kernel.named import NamedTuple

NO_SESSION = 0
FIRST_EPOCH = 0


class WantedPartition(NamedTuple):
    """What is asked of one partition."""

    offset: int
    leader_epoch: int
    bytes_max: int
    topic_id: Uuid


class SessionRequest(NamedTuple):
    """The part of a fetch request that the session decides."""

    session_id: int
    epoch: int
    send: dict[TopicPartition, WantedPartition]
    forget: list[tuple[TopicPartition, Uuid]]


class FetchSession:
    """A consumer's session with one broker. The fetcher makes it; it ends with its connection."""

    def __init__(self) -> None:
        self.id = NO_SESSION
        self.epoch = FIRST_EPOCH
        #: What the broker has of us.
        self.known: dict[TopicPartition, WantedPartition] = {}

    def next_request(self, wanted: Mapping[TopicPartition, WantedPartition]) -> SessionRequest:
        """What to send so that the broker fetches exactly `wanted`."""
        if self.epoch == FIRST_EPOCH:
            send, forget = dict(wanted), []
        else:
            send = {one: want for one, want in wanted.items() if self.known.get(one) != want}
            forget = [
                (one, known.topic_id)
                for one, known in self.known.items()
                # A topic that was made again under its name is another: the old one is to be forgotten.
                if one not in wanted or wanted[one].topic_id != known.topic_id
            ]
        self.known = dict(wanted)
        return SessionRequest(self.id, self.epoch, send, forget)

    def answered(self, error_code: int, session_id: int) -> bool:
        """The broker's answer. False if the session is over and the request must be made again."""
        if error_code in (
            ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
            ErrorCode.INVALID_FETCH_SESSION_EPOCH,
            ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ):
            self.reset(keep_id=error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH)
            return False
        if session_id == NO_SESSION:
            self.reset()
        else:
            self.id = session_id
            self.epoch = 1 if self.epoch == 0x7FFFFFFF else self.epoch + 1
        return True

    def reset(self, *, keep_id: bool = False) -> None:
        """Begin again; with `keep_id` the broker closes the old session while it makes the new one."""
        if not keep_id:
            self.id = NO_SESSION
        self.epoch = FIRST_EPOCH
        self.known = {}
