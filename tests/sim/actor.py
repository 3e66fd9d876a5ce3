"""The clients of a simulated node: scripts that ask, remember what they were promised, and ask again after a loss.

Rules:
- A script is a generator: it yields an `Ask` and gets the answer, or yields milliseconds and waits.
- What got no answer is asked again in the same bytes. Only the codes in `_LATER` are asked again; any other code is for
  the script, which allows none unless it says so.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from random import Random
from typing import Any, NamedTuple

from ottla.kernel.error import ErrorCode
from ottla.sim.machine import Machine
from ottla.sim.net import SimConnection
from ottla.wire.api import API, ApiKey
from ottla.wire.compile import decode, encode
from ottla.wire.header import RequestHeader, ResponseHeader, request_header_version, response_header_version

_LATER = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    # A transaction's coordinator that is not there yet, as a producer hears of it.
    ErrorCode.NOT_ENOUGH_REPLICAS,
}
_RETRY_MS = 20
_KEYS = {API[key].name: key for key in ApiKey}


class Ask(NamedTuple):
    """A request, and the part of its response that has the error code."""

    request: Any
    version: int
    part: Callable[[Any], Any] = lambda response: response


#: What a script is.
Script = Generator[Ask | int, Any, None]


def frame(request: Any, version: int) -> tuple[ApiKey, bytes]:
    """A request as it is sent, without its length."""
    key = _KEYS[type(request).__name__.removesuffix("Request")]
    header = RequestHeader(request_api_key=key, request_api_version=version, correlation_id=1, client_id="actor")
    return key, encode(header, request_header_version(key, version)) + encode(request, version)


def parse(key: ApiKey, version: int, reply: bytes) -> Any:
    """The response in a frame, whole to its last byte."""
    _, position = decode(ResponseHeader, response_header_version(key, version), reply)
    response, end = decode(API[key].response, version, reply, position)
    assert end == len(reply), "the response has bytes behind its end"
    return response


class Actor:
    """One client. `begin` starts its script; it lives on when the machine's node dies."""

    def __init__(self, name: str, machine: Machine, seed: int) -> None:
        self.name = name
        self.machine = machine
        self.random = Random(f"{name} {seed}")
        #: How many requests were answered.
        self.answers = 0
        self.done = False
        #: Told to come to its end.
        self.ending = False
        self._script: Script
        self._asked: Ask | None = None
        self._connection: SimConnection | None = None

    def script(self) -> Script:
        raise AssertionError("every actor has its own script")

    def begin(self) -> None:
        self._script = self.script()
        self._go_on(None)

    def come_back(self) -> None:
        """The node was away and serves again: what has no answer is asked again."""
        self._connection = None
        if not self.done:
            self._send() if self._asked is not None else self._go_on(None)

    def _go_on(self, answer: Any) -> None:
        try:
            wanted = self._script.send(answer)
        except StopIteration:
            self.done = True
            self._asked = None
            return
        if isinstance(wanted, Ask):
            self._asked = wanted
            self._send()
        else:
            self._asked = None
            self._later(wanted, lambda: self._go_on(None))

    def _later(self, ms: int, what: Callable[[], None]) -> None:
        # The loop of this node's life: a later one has its own `come_back`.
        self.machine.loop.call_later(ms / 1000, what)

    def _send(self) -> None:
        asked = self._asked
        assert asked is not None
        if self._connection is None or self._connection.closed:
            try:
                self._connection = self.machine.connect(self._replied, self._lost)
            except ConnectionRefusedError:
                return
        self._key, data = frame(asked.request, asked.version)
        self._connection.send(data)

    def _lost(self) -> None:
        self._connection = None
        if self._asked is not None and self.machine.node is not None:
            self._later(_RETRY_MS, self._send)

    def _replied(self, reply: bytes) -> None:
        asked = self._asked
        assert asked is not None, f"{self.name}: a reply to nothing"
        part = asked.part(parse(self._key, asked.version, reply))
        code = getattr(part, "error_code", 0)
        if code and self.machine.disk.has_failed:
            # A node whose disk fails says so in many ways, and ends: what it did not confirm is asked of the next one.
            return
        if code in _LATER:
            self._later(_RETRY_MS, self._send)
            return
        self.answers += 1
        self._go_on(part)


class SimClient:
    """Ask one thing at a time; the simulation goes on until the answer is there."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._replies: list[bytes] = []
        self._connection = machine.connect(self._replies.append, lambda: None)

    def ask(self, request: Any, version: int) -> Any:
        key, data = frame(request, version)
        self._connection.send(data)
        self._machine.run(lambda: bool(self._replies) or self._connection.closed)
        assert self._replies, f"no answer to {request}: {self._machine.failure}"
        return parse(key, version, self._replies.pop())
