"""Faults on request, for tests against an embedded node: `node.faults`.

    node.faults.error(ApiKey.PRODUCE, ErrorCode.NOT_LEADER_OR_FOLLOWER, times=2, topic="orders")
    with node.faults.coordinator_unavailable(group="billing") as fault:
        fault.wait()

Rules:
- A fault sits between dispatch and the handler: the rest of the request's path is real.
- The first fault that matches a request takes it; delays, holds and watches also pass it on to the next fault.
- Without `carried_out` the request never reaches its handler. With it the request is executed and only its answer is
  lost: the case in which a careless retry does harm.
- In APIs whose partitions fail individually (produce, fetch, list offsets), a fault fails individual partitions, too.
- Without faults, the node's handlers are called directly: there is no cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.broker.call.handler import Call, Handler
from ottla.broker.dispatch.dispatch import HANDLERS
from ottla.embedded.fault_rule import (
    AnswerInstead,
    CoordinatorUnavailable,
    Disconnect,
    Error,
    Fault,
    Hold,
    Watch,
    Where,
)
from ottla.kernel.argument import items_of
from ottla.kernel.error import ErrorCode, OttlaError
from ottla.wire.api import ApiKey

if TYPE_CHECKING:
    from ottla.broker.node import BrokerNode

__all__ = ["Fault", "Faults", "Hold", "Watch"]

_T = TypeVar("_T")
_F = TypeVar("_F", bound=Fault)

#: An API, several, or None for every API that the node serves.
Apis = ApiKey | Iterable[ApiKey] | None


class Faults:
    """All faults of one embedded node, which creates it. They survive a restart of the node.

    `topic` and `partition`, `group`, `transactional_id` and `client_id` select requests. The first `after` of these
    pass unharmed, then the fault takes `times` (None: all until `remove` or `clear`).
    """

    def __init__(self, on_loop: Callable[[Callable[[], None]], None]) -> None:
        self._on_loop = on_loop
        self._faults: tuple[Fault, ...] = ()
        self._node: BrokerNode | None = None

    def attach(self, node: BrokerNode | None) -> None:
        """Apply the faults to this node's handlers, or to none if None. Called on the node's thread."""
        self._node = node
        self._install()

    def _install(self) -> None:
        if self._node is not None:
            self._node.dispatch.wrap_handlers(self._wrap if self._faults else None)

    # ---- faults

    def error(
        self,
        api: Apis,
        code: ErrorCode,
        *,
        times: int | None = 1,
        after: int = 0,
        carried_out: bool = False,
        topic: str | None = None,
        partition: int | None = None,
        group: str | None = None,
        transactional_id: str | None = None,
        client_id: str | None = None,
    ) -> Fault:
        """Answer with an error."""
        if not isinstance(code, ErrorCode):
            raise TypeError(f"a fault's error is an ErrorCode, such as ErrorCode.NOT_LEADER_OR_FOLLOWER, not {code!r}")
        where = Where(_api_keys(api), topic, partition, group, transactional_id, client_id)
        return self._add(Error(where, times, after, code, carried_out=carried_out))

    def disconnect(
        self,
        api: Apis,
        *,
        times: int | None = 1,
        after: int = 0,
        carried_out: bool = False,
        topic: str | None = None,
        group: str | None = None,
        transactional_id: str | None = None,
        client_id: str | None = None,
    ) -> Fault:
        """Close the connection instead of answering."""
        where = Where(_api_keys(api), topic, None, group, transactional_id, client_id)
        return self._add(Disconnect(where, times, after, carried_out=carried_out))

    def delay(
        self,
        api: Apis,
        ms: int,
        *,
        times: int | None = None,
        after: int = 0,
        topic: str | None = None,
        group: str | None = None,
        transactional_id: str | None = None,
        client_id: str | None = None,
    ) -> Fault:
        """Execute at once and answer `ms` later, on the node's clock: `node.clock.advance(ms)` ends the wait."""
        where = Where(_api_keys(api), topic, None, group, transactional_id, client_id)
        return self._add(Hold(where, times, after, self._on_loop, delay_ms=ms))

    def hold(
        self,
        api: Apis,
        *,
        times: int | None = None,
        after: int = 0,
        topic: str | None = None,
        group: str | None = None,
        transactional_id: str | None = None,
        client_id: str | None = None,
    ) -> Hold:
        """Execute at once and hold the answers until `release()`: a slow node without a sleep in the test."""
        where = Where(_api_keys(api), topic, None, group, transactional_id, client_id)
        return self._add(Hold(where, times, after, self._on_loop))

    def answer(
        self,
        api: ApiKey,
        answer: Callable[[Any, int], Any],
        *,
        times: int | None = 1,
        after: int = 0,
        client_id: str | None = None,
    ) -> Fault:
        """Answer with the result of `answer(request, version)`; None passes the request on.

        `answer` is called on the node's thread. It must not block, and may raise KafkaError.
        """
        return self._add(AnswerInstead(Where(_api_keys(api), client_id=client_id), times, after, answer))

    def watch(self, api: Apis = None, *, client_id: str | None = None) -> Watch:
        """Count and list requests without harming them."""
        return self._add(Watch(Where(_api_keys(api), client_id=client_id), None, 0))

    def coordinator_unavailable(
        self, group: str | None = None, *, transactional_id: str | None = None, times: int | None = None
    ) -> Fault:
        """Make the coordinator of a group or of a transactional id unavailable until the fault is removed.

        Lookups get COORDINATOR_NOT_AVAILABLE, requests to the known coordinator NOT_COORDINATOR.
        """
        if (group is None) == (transactional_id is None):
            raise ValueError("give a group or a transactional_id")
        where = Where(frozenset(HANDLERS), group=group, transactional_id=transactional_id)
        return self._add(CoordinatorUnavailable(where, times, 0))

    def unreachable(self) -> Fault:
        """Answer no client: drop every connection now, and each new one at its first request."""
        fault = self._add(Disconnect(Where(frozenset(HANDLERS)), None, 0))
        self.drop_connections()
        return fault

    # ---- one-time actions

    def drop_connections(self) -> int:
        """Close every client's connection; returns their number."""

        def drop(node: BrokerNode) -> int:
            connections = [each for listener in node.listeners for each in listener.connections]
            for connection in connections:
                connection.close("dropped on request")
            return len(connections)

        return self._do(drop)

    def move_coordinator(self, group: str | None = None, *, transactional_id: str | None = None) -> None:
        """Fail over the coordinator of a group or of a transactional id: a new one is loaded from its log.

        Requests that wait for an answer of the old coordinator get NOT_COORDINATOR.
        """
        if (group is None) == (transactional_id is None):
            raise ValueError("give a group or a transactional_id")

        def move(node: BrokerNode) -> None:
            coordinators: Any = node.groups if group is not None else node.transactions
            index = coordinators.partition_of(group if group is not None else transactional_id)
            coordinators.resign(index)
            coordinators.lead(node.partitions[coordinators.topic, index])

        self._do(move)

    def clear(self) -> None:
        """Remove every fault; held answers are sent."""
        for fault in self._faults:
            fault.remove()

    # ---- mechanism

    def _do(self, work: Callable[[BrokerNode], _T]) -> _T:
        """Run `work` with the running node, on its thread."""
        done: list[_T] = []

        def run() -> None:
            if self._node is None:
                raise OttlaError("the node is not running; use `with ottla.Node() as node:` or call start()")
            done.append(work(self._node))

        self._on_loop(run)
        return done[0]

    def _add(self, fault: _F) -> _F:
        fault.on_removal = self._remove

        def add() -> None:
            self._faults = (*self._faults, fault)
            self._install()

        self._on_loop(add)
        return fault

    def _remove(self, fault: Fault) -> None:
        def remove() -> None:
            self._faults = tuple(each for each in self._faults if each is not fault)
            fault.removed()
            self._install()

        self._on_loop(remove)

    def _wrap(self, handler: Handler) -> Handler:
        """Wrap a handler in the faults."""
        key = handler.api.key

        def perform(call: Call, request: Any) -> Any:
            return through(self._faults, call, request)

        def through(faults: tuple[Fault, ...], call: Call, request: Any) -> Any:
            for position, fault in enumerate(faults, 1):
                if fault.fits(call, request, key):
                    return fault.perform(call, request, key, partial(through, faults[position:], call, request))
            return handler.function(call, request)

        return Handler(handler.api, perform, handler.error_response)


def _api_keys(api: Apis) -> frozenset[int]:
    if api is None:
        return frozenset(HANDLERS)
    keys = frozenset([api] if isinstance(api, ApiKey) else items_of(api, "ApiKey"))
    for key in keys:
        if not isinstance(key, ApiKey):
            raise TypeError(f"a fault is of an ApiKey, such as ApiKey.PRODUCE, not {key!r}")
    unknown = keys - HANDLERS.keys()
    if unknown:
        raise ValueError(f"this node does not serve {', '.join(ApiKey(key).name for key in sorted(unknown))}")
    return keys
