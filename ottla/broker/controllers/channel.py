"""Requests to the active controller, retried until one responds or their timeout has passed.

Rules:
- Each attempt determines whether the active controller is this node or another, so a retry may go elsewhere.
- At most one request is in flight to another node; the others wait in order. A disconnect or NOT_CONTROLLER puts a
  request back in front of all others, as in Apache Kafka (NodeToControllerRequestThread), so a change may be decided
  twice.
- `done` gets the response, or a KafkaError when the whole request failed: the controller's error, UNSUPPORTED_VERSION
  when that controller does not support it, REQUEST_TIMED_OUT when no controller responded.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from ottla.controller.decision import MutationQuota
from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.net.peer import NotOffered, Peer, Unanswered
from ottla.wire.schema import fields

if TYPE_CHECKING:
    from ottla.net.outbound import Outbound

#: How long to wait for a controller to become known (NodeToControllerRequestThread).
_LOOKUP_RETRY_SECONDS = 0.1
Answered = Callable[[Any], None]


class LocalController(Protocol):
    """The part of the node's metadata log that a channel uses."""

    @property
    def leader(self) -> Peer | None:
        """The active controller, if known; has this node's id if this node is the active controller."""

    def ask(self, request: Any, done: Answered, version: int, charge: MutationQuota) -> None:
        """Have this node's controller decide; NOT_CONTROLLER if it is not the active one."""


class Question:
    """A request, in the form for this node's controller and in the form for another node."""

    __slots__ = ("charge", "done", "expired", "request", "timer", "unwrap", "version", "wrap")

    def __init__(
        self,
        request: Any,
        done: Answered,
        version: int,
        charge: MutationQuota,
        wrap: Callable[[], Any] | None = None,
        unwrap: Callable[[Any], Any] | None = None,
    ) -> None:
        self.request = request
        self.done = done
        #: The version for this node's own controller.
        self.version = version
        self.charge = charge
        #: Build the request for another node (KafkaError if that is impossible), and interpret its response.
        self.wrap = wrap
        self.unwrap = unwrap
        self.timer: asyncio.TimerHandle | None = None
        self.expired = False


class ControllerChannel:
    """A queue to the active controller. `Controllers` has one for each purpose, so that none waits for another's."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        node_id: int,
        quorum: Callable[[], LocalController],
        dial: Callable[[Peer], Outbound],
        request_timeout_ms: int,
    ) -> None:
        self._loop = loop
        self._node_id = node_id
        self._quorum = quorum
        self._dial = dial
        self._request_timeout_ms = request_timeout_ms
        self._queue: deque[Question] = deque()
        #: The request in flight to another node.
        self._sent: Question | None = None
        self._peer: Peer | None = None
        self._outbound: Outbound | None = None
        self._look_again: asyncio.TimerHandle | None = None
        self.closed = False

    @property
    def outbound(self) -> Outbound | None:
        """The connection to the active controller, if that is another node and was asked something."""
        return self._outbound

    def ask(self, question: Question, timeout_ms: int | None) -> None:
        """Retry until there is an answer or `timeout_ms` has passed; None means forever."""
        if self.closed:
            question.done(KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the node stops"))
            return
        if not self._queue and self._is_local():
            # The fast path of a node that is its own controller: no timer, no queue.
            return self._ask_here(question, timeout_ms)
        self._start_timer(question, timeout_ms)
        self._queue.append(question)
        self._pump()

    def leader_changed(self) -> None:
        """Continue with the new active controller, if there is one."""
        leader = self._quorum().leader
        if leader != self._peer and self._outbound is not None:
            # Pending requests on the connection fail, and are retried.
            self._outbound.close()
            self._outbound = self._peer = None
        if self._look_again is not None:
            self._look_again.cancel()
            self._look_again = None
        self._pump()

    def close(self) -> None:
        """Close the connection; pending requests get REQUEST_TIMED_OUT."""
        if self.closed:
            return
        self.closed = True
        if self._look_again is not None:
            self._look_again.cancel()
        if self._outbound is not None:
            self._outbound.close()
        waiting, self._queue = self._queue, deque()
        if self._sent is not None:
            waiting.appendleft(self._sent)
            self._sent = None
        for question in waiting:
            self._end(question, KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the node stops"))

    # ---- attempts

    def _is_local(self) -> bool:
        leader = self._quorum().leader
        return leader is not None and leader.node_id == self._node_id

    def _pump(self) -> None:
        """Send what can be sent now."""
        while self._queue and self._sent is None and self._look_again is None and not self.closed:
            leader = self._quorum().leader
            if leader is None:
                return self._wait()
            question = self._queue.popleft()
            if leader.node_id == self._node_id:
                self._ask_here(question, None)
            else:
                self._ask_there(question, leader)

    def _ask_here(self, question: Question, timeout_ms: int | None) -> None:
        def answered(response: Any) -> None:
            lost = isinstance(response, KafkaError) and response.code == ErrorCode.NOT_CONTROLLER
            if lost and not self.closed:
                if question.timer is None:
                    self._start_timer(question, timeout_ms)
                self._retry(question, "no controller says that it is the active one")
                return self._wait()
            return self._end(question, response)

        self._quorum().ask(question.request, answered, question.version, question.charge)

    def _ask_there(self, question: Question, leader: Peer) -> None:
        if self._outbound is None or self._peer != leader:
            if self._outbound is not None:
                self._outbound.close()
            self._peer, self._outbound = leader, self._dial(leader)
        try:
            request = question.request if question.wrap is None else question.wrap()
        except (KafkaError, OttlaError) as error:
            # The others must not wait for a request that cannot be sent.
            failure = error if isinstance(error, KafkaError) else KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
            return self._end(question, failure)
        self._sent = question

        def answered(answer: Any) -> None:
            if self._sent is not question:
                # The channel was closed in the meantime, which has answered every request.
                return
            self._sent = None
            try:
                self._answered(question, answer)
            finally:
                self._pump()

        self._outbound.ask(request, answered, timeout_ms=self._request_timeout_ms)

    def _answered(self, question: Question, answer: Any) -> None:
        if isinstance(answer, NotOffered):
            self._end(question, KafkaError(ErrorCode.UNSUPPORTED_VERSION, str(answer)))
        elif isinstance(answer, Unanswered):
            # The connection has its own reconnect backoff.
            self._retry(question, str(answer))
        elif is_from_elsewhere(answer):
            self._retry(question, "no controller says that it is the active one")
            self._wait()
        elif question.unwrap is not None:
            self._end(question, question.unwrap(answer))
        else:
            self._end(question, _failure(answer) or answer)

    def _retry(self, question: Question, why: str) -> None:
        if question.expired:
            self._end(question, KafkaError(ErrorCode.REQUEST_TIMED_OUT, why))
        else:
            self._queue.appendleft(question)

    def _wait(self) -> None:
        """Look for the controller again after a moment, or as soon as it becomes known."""
        if self._look_again is None:
            self._look_again = self._loop.call_later(_LOOKUP_RETRY_SECONDS, self._look_ended)

    def _look_ended(self) -> None:
        self._look_again = None
        self._pump()

    # ---- ending requests

    def _start_timer(self, question: Question, timeout_ms: int | None) -> None:
        if timeout_ms is not None:
            question.timer = self._loop.call_later(timeout_ms / 1000, self._expired, question)

    def _expired(self, question: Question) -> None:
        question.expired = True
        if question in self._queue:
            self._queue.remove(question)
            self._end(question, KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no active controller answered in time"))

    def _end(self, question: Question, answer: Any) -> None:
        if question.timer is not None:
            question.timer.cancel()
        question.done(answer)


def _failure(answer: Any) -> KafkaError | None:
    """The error of the whole request, or None."""
    code = getattr(answer, "error_code", 0)
    if not code:
        return None
    message = getattr(answer, "error_message", None) or ""
    try:
        return KafkaError(ErrorCode(code), message)
    except ValueError:
        return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the controller answered with the unknown error {code}")


def is_from_elsewhere(answer: Any) -> bool:
    """Whether any error code in the response says that it does not come from the active controller."""
    for field in fields(type(answer)):
        value = getattr(answer, field.name)
        if field.struct is not None and field.is_array:
            if any(map(is_from_elsewhere, value or ())):
                return True
        elif field.name == "error_code" and value == ErrorCode.NOT_CONTROLLER:
            return True
    return False
