"""What a handler returns: the response itself, or the promise of it.

Rules:
- `Later` is resolved exactly once, on the loop's thread; whoever waits for it is called at once, not in the loop's
  next turn as with asyncio's futures, since every turn is latency.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from typing import Any, Final

from ottla.kernel.error import ErrorCode, KafkaError
from ottla.net.inbound import Connection

_log = logging.getLogger("ottla.broker")


class NoReply:
    """The request has no response (Produce with acks=0)."""


NO_REPLY: Final = NoReply()


class Later:
    """A response that is not there yet. A handler makes it, something that happens later resolves it."""

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
        """Give the response, or the KafkaError the request fails with."""
        assert self.value is None, "a request has one response"
        self.value = value
        if self._waiting is not None:
            self._waiting(value)

    def then(self, waiting: Callable[[Any], None]) -> None:
        """Call `waiting` with the response: now if it is there."""
        if self.value is not None:
            waiting(self.value)
        else:
            self._waiting = waiting


def in_turns(connection: Connection, work: Generator[None, None, Any]) -> Any:
    """Do a long request's `work` a step at a time: the response, or a `Later` of it.

    Each `yield` ends a step, which takes about a millisecond. The first is done now, and a request of one step is
    answered as any other; between the later ones others have their turns. The client's next request waits for the end.
    The work may end in a `Later` of its own.
    """
    try:
        next(work)
    except StopIteration as done:
        return done.value
    last: Later | None = None

    def superseded(key: int) -> None:
        if last is not None and last.superseded is not None:
            last.superseded(key)

    later = Later(superseded)
    connection.pause()

    def step() -> None:
        if connection.closed:
            return work.close()
        try:
            next(work)
        except StopIteration as done:
            end(done.value)
        except KafkaError as error:
            end(error)
        except Exception:
            _log.exception("a request that is answered in turns failed")
            end(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
        else:
            connection.turns.wait(step)

    def end(value: Any) -> None:
        nonlocal last
        if type(value) is Later:
            last = value
            value.then(later.resolve)
        else:
            later.resolve(value)
        connection.resume()

    connection.turns.wait(step)
    return later


#: What handlers return. The response's class is checked when it is encoded.
Reply = Any
#: (request, version, error) -> the response that says so.
Refusal = Callable[[Any, int, KafkaError], Any]
