"""What a handler returns: the response itself, or a `Later` that will hold it.

Rules:
- `Later` is resolved exactly once, on the loop's thread. Its callback runs at once and not, as with asyncio's futures,
  in the loop's next turn, because every turn is latency.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from typing import Any, Final

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.net.inbound import Connection, PeerError

_log = logging.getLogger("ottla.broker")


class NoReply:
    """The request has no response (Produce with acks=0)."""


NO_REPLY: Final = NoReply()
#: Why a connection is closed: a request failed whose client reads no response.
FAILED_UNANSWERED: Final = "a produce request with acks=0 failed"


class Later:
    """A future response. A handler creates it, and a later event resolves it."""

    __slots__ = ("_waiting", "superseded", "value")

    def __init__(self, superseded: Callable[[int], None] | None = None) -> None:
        self.value: Any = None
        self._waiting: Callable[[Any], None] | None = None
        #: Called with the API key of another request that the client has sent behind this one, or NO_REQUEST.
        self.superseded = superseded

    @property
    def resolved(self) -> bool:
        return self.value is not None

    def resolve(self, value: Any) -> None:
        """Set the response, or the KafkaError with which the request fails."""
        assert self.value is None, "a request has one response"
        self.value = value
        # Both usually refer back to this object: without this only the collector would free a response.
        waiting, self._waiting = self._waiting, None
        self.superseded = None
        if waiting is not None:
            waiting(value)

    def then(self, waiting: Callable[[Any], None]) -> None:
        """Call `waiting` with the response, now or when it is set."""
        if self.value is not None:
            waiting(self.value)
        else:
            self._waiting = waiting


#: Calls its argument once, on the loop's thread but not at once, when the next step can be done.
Wait = Callable[[Callable[[], None]], None]
Work = Generator[Wait | None, None, Any]


def in_turns(connection: Connection, work: Work) -> Any:
    """Do a long request's `work` in steps; return the response, or a `Later` that will hold it.

    Each `yield` ends a step, which takes about a millisecond. The first step is done now, and a request of one step is
    answered like any other; between later steps the loop serves others. The client's next request waits for the end.
    A step may yield a `Wait`, which gets the callback that does the next step. The work may return a `Later` of its
    own.
    """
    try:
        wait = next(work)
    except StopIteration as done:
        return done.value
    return _InTurns(connection, work, wait).later


def reported(function: Callable[[Any, Any], Any], call: Any, request: Any, report: Callable[[Any], None]) -> Any:
    """Call a handler's function and return its reply. `report` gets its response or error, before it is answered."""
    try:
        reply = function(call, request)
    except KafkaError as error:
        report(error)
        raise
    if type(reply) is not Later:
        report(reply)
        return reply
    later = Later(reply.superseded)

    def resolve(value: Any) -> None:
        report(value)
        later.resolve(value)

    reply.then(resolve)
    return later


class _InTurns:
    """The work of one request that is done in steps. `in_turns` creates it.

    Nothing here refers back to itself once the work has ended: the response of a long request is large, and would stay
    for minutes if only the collector could free it.
    """

    __slots__ = ("_connection", "_last", "_work", "later")

    def __init__(self, connection: Connection, work: Work, wait: Wait | None) -> None:
        self._connection = connection
        self._work = work
        #: The `Later` that the work returned, if any.
        self._last: Later | None = None
        self.later = Later(self._supersede)
        connection.pause()
        (wait or connection.turns.wait)(self._step)

    def _supersede(self, key: int) -> None:
        if self._last is not None and self._last.superseded is not None:
            self._last.superseded(key)

    def _step(self) -> None:
        if self._connection.closed:
            self.later.superseded = None
            self._work.close()
            return
        try:
            wait = next(self._work)
        except StopIteration as done:
            self._end(done.value)
        except KafkaError as error:
            self._end(error)
        except PeerError as error:
            self.later.superseded = None
            self._connection.close(str(error))
        except Exception:
            _log.exception("a request handled in steps failed")
            self._end(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
        else:
            (wait or self._connection.turns.wait)(self._step)

    def _end(self, value: Any) -> None:
        if type(value) is Later:
            self._last = value
            value.then(self.later.resolve)
        else:
            self.later.resolve(value)
        self._connection.resume()


#: What handlers return. The response's class is checked when it is encoded.
Reply = Any
#: (request, version, error) -> the error response; raises PeerError if the client reads no response.
ErrorResponseBuilder = Callable[[Any, int, KafkaError], Any]
