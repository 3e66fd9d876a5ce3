"""The kinds of faults, and their selection of requests. `ottla.embedded.faults` creates them; read that first.

Rules:
- Everything but `wait` and `remove` runs on the node's thread.
- A request that a fault takes is executed immediately or not at all, never later: its bytes are only borrowed.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from itertools import count
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.broker.call.handler import Call
from ottla.broker.call.reply import Later, NoReply
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.frozen import frozen
from ottla.kernel.named import NamedTuple
from ottla.net.inbound import PeerError
from ottla.wire.api import ApiKey
from ottla.wire.schema import Struct, fields

if TYPE_CHECKING:
    from ottla.broker.node import BrokerNode

_Self = TypeVar("_Self", bound="Fault")

_TOPICS = frozenset({"name", "topic", "topic_id", "topics", "topic_name", "topic_names"})
_GROUPS = frozenset({"group_id", "group_ids", "groups", "groups_names", "key", "coordinator_keys"})
_TRANSACTIONS = frozenset({"transactional_id", "transactional_ids", "key", "coordinator_keys"})
#: The APIs that look up their partitions one by one, so that partitions fail individually.
_BY_PARTITION = frozenset(
    {
        ApiKey.PRODUCE,
        ApiKey.FETCH,
        ApiKey.LIST_OFFSETS,
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        ApiKey.DELETE_RECORDS,
        ApiKey.DESCRIBE_PRODUCERS,
    }
)
#: Errors of a fetch session (KIP-227) concern the whole request, not a partition.
_SESSION_ERRORS = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


@frozen
class Where:
    """Selects requests; a field that is None matches all."""

    apis: frozenset[int]
    topic: str | None = None
    partition: int | None = None
    group: str | None = None
    transactional_id: str | None = None
    client_id: str | None = None

    def fits(self, call: Call, request: Any, key: int) -> bool:
        """Whether the request is selected."""
        if key not in self.apis or self.client_id not in (None, call.client_id):
            return False
        if self.group is not None and self.group not in _field_values(request, _GROUPS):
            return False
        if self.transactional_id is not None and self.transactional_id not in _field_values(request, _TRANSACTIONS):
            return False
        return self.topic is None or self._names_topic(call.node, request)

    def _names_topic(self, node: BrokerNode, request: Any) -> bool:
        image = node.image.topics.get(self.topic or "")
        names = {self.topic, bytes(image.topic_id)} if image is not None else {self.topic}
        values = set(_field_values(request, _TOPICS))
        session = node.fetch_sessions.find(request.session_id) if hasattr(request, "session_id") else None
        if session is not None:
            values.update(topic for topic, _ in session.partitions)
        return not names.isdisjoint(values)


def _field_values(struct: Any, names: frozenset[str]) -> Iterator[str | bytes]:
    """The values of the fields with these names, in a request and all its nested structs."""
    for field in fields(type(struct)):
        value = getattr(struct, field.name)
        for each in value if isinstance(value, list) else (value,):
            if isinstance(each, Struct):
                yield from _field_values(each, names)
            elif field.name in names and isinstance(each, str | bytes):
                yield each


class Fault(ABC):
    """A fault. It ends with `remove`, or with its `with` block."""

    def __init__(self, where: Where, times: int | None, after: int) -> None:
        if (times is not None and times < 1) or after < 0:
            raise ValueError("times is at least 1, or None for always; after is at least 0")
        self.where = where
        #: How many requests the fault has taken.
        self.hits = 0
        self._left = times
        self._after = after
        self._changed = threading.Condition()
        #: Called by `remove`, on the caller's thread.
        self.on_removal: Callable[[Fault], None] = lambda _: None

    def wait(self, times: int = 1, timeout_s: float = 30.0) -> None:
        """Wait until the fault has taken this many requests. TimeoutError if it does not."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.hits >= times, timeout_s):
                raise TimeoutError(f"the fault took {self.hits} requests in {timeout_s} s, not {times}")

    def remove(self) -> None:
        """End the fault; held answers are sent."""
        self.on_removal(self)

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    # ---- on the node's thread

    def fits(self, call: Call, request: Any, key: int) -> bool:
        """Whether the fault may take this request."""
        return self._left != 0 and self.where.fits(call, request, key)

    def claim(self) -> bool:
        """Whether the fault takes the current request; counts `after` and `times` down."""
        if self._after:
            self._after -= 1
            return False
        if self._left is not None:
            self._left -= 1
        return True

    def count_hit(self) -> None:
        """Count a taken request and wake waiters, after the request was executed if it is."""
        with self._changed:
            self.hits += 1
            self._changed.notify_all()

    def perform(self, call: Call, request: Any, key: int, go_on: Callable[[], Any]) -> Any:
        """The reply to a request that fits; `go_on` executes it."""
        if not self.claim():
            return go_on()
        try:
            return self.apply(call, request, key, go_on)
        finally:
            self.count_hit()

    @abstractmethod
    def apply(self, call: Call, request: Any, key: int, go_on: Callable[[], Any]) -> Any:
        """The reply to a request that the fault takes."""

    def removed(self) -> None:
        """Clean up after the removal."""
        return


class Error(Fault):
    """Answers with an error."""

    def __init__(
        self, where: Where, times: int | None, after: int, code: ErrorCode, *, carried_out: bool = False
    ) -> None:
        super().__init__(where, times, after)
        if where.partition is not None and not where.apis <= _BY_PARTITION:
            raise ValueError("only the requests whose partitions fail alone can be told a partition")
        self.code = code
        self._carried_out = carried_out

    def perform(self, call: Call, request: Any, key: int, go_on: Callable[[], Any]) -> Any:
        if key in _BY_PARTITION and self.code not in _SESSION_ERRORS and not self._carried_out:
            return self._fail_partitions(call.node, request, go_on)
        return super().perform(call, request, key, go_on)

    def _fail_partitions(self, node: BrokerNode, request: Any, go_on: Callable[[], Any]) -> Any:
        """Execute the request while the node's lookup of the selected partitions fails."""
        session = node.fetch_sessions.find(request.session_id) if hasattr(request, "session_id") else None
        for wanted in session.partitions.values() if session is not None else ():
            # A fetch skips unchanged partitions; make it look each one up.
            wanted.replica = None
        lookup = node.leader_of
        claimed: list[bool] = []

        def leader_of(topic: str, index: int) -> Any:
            if self.where.topic in (None, topic) and self.where.partition in (None, index):
                if not claimed:
                    claimed.append(self.claim())
                if claimed[0]:
                    raise KafkaError(self.code)
            return lookup(topic, index)

        before = node.__dict__.get("leader_of")
        node.__dict__["leader_of"] = leader_of
        try:
            return go_on()
        finally:
            if before is None:
                del node.__dict__["leader_of"]
            else:
                node.__dict__["leader_of"] = before
            if any(claimed):
                self.count_hit()

    def apply(self, call: Call, request: Any, key: int, go_on: Callable[[], Any]) -> Any:
        error = KafkaError(self.code)
        if key == ApiKey.METADATA and self.code is not ErrorCode.REBOOTSTRAP_REQUIRED:
            return replace_reply(go_on(), lambda value, resolve: resolve(self._fail_topics(value)))
        if self._carried_out:
            return replace_reply(go_on(), lambda _, resolve: resolve(error))
        raise error

    def _fail_topics(self, response: Any) -> Any:
        """Fail the topics of a Metadata response only: it lists the brokers in any case."""
        for topic in response.topics:
            if self.where.topic in (None, topic.name):
                topic.error_code, topic.partitions = self.code, []
        return response


class CoordinatorUnavailable(Error):
    """An unavailable coordinator. Lookups and requests to the coordinator get different errors."""

    def __init__(self, where: Where, times: int | None, after: int) -> None:
        super().__init__(where, times, after, ErrorCode.NOT_COORDINATOR)

    def fits(self, call: Call, request: Any, key: int) -> bool:
        # Produce names its transaction but does not go to a coordinator.
        return key != ApiKey.PRODUCE and super().fits(call, request, key)

    def apply(self, call: Call, request: Any, key: int, go_on: Callable[[], Any]) -> Any:
        looked_for = key == ApiKey.FIND_COORDINATOR
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE if looked_for else self.code)


class Disconnect(Fault):
    """Closes the connection instead of answering."""

    def __init__(self, where: Where, times: int | None, after: int, *, carried_out: bool = False) -> None:
        super().__init__(where, times, after)
        self._carried_out = carried_out

    def apply(self, call: Call, request: Any, key: int, go_on: Callable[[], Any]) -> Any:
        if self._carried_out:
            return replace_reply(go_on(), lambda _value, _resolve: call.connection.close("dropped on request"))
        raise PeerError("dropped on request")


class Hold(Fault):
    """Holds answers back: for a time on the node's clock, or until `release`."""

    def __init__(
        self,
        where: Where,
        times: int | None,
        after: int,
        on_loop: Callable[[Callable[[], None]], None],
        *,
        delay_ms: int | None = None,
    ) -> None:
        super().__init__(where, times, after)
        self._on_loop = on_loop
        self._delay_ms = delay_ms
        self._numbers = count()
        self._held: dict[int, Callable[[], None]] = {}

    def release(self) -> None:
        """Send the held answers, in order."""
        self._on_loop(self.removed)

    def removed(self) -> None:
        held, self._held = self._held, {}
        for answer in held.values():
            answer()

    def apply(self, call: Call, request: Any, key: int, go_on: Callable[[], Any]) -> Any:
        number = next(self._numbers)

        def keep(value: Any, resolve: Callable[[Any], None]) -> None:
            self._held[number] = lambda: resolve(value)
            if self._delay_ms is not None:
                call.node.loop.call_later(self._delay_ms / 1000, self._answer, number)

        return replace_reply(go_on(), keep)

    def _answer(self, number: int) -> None:
        answer = self._held.pop(number, None)
        if answer is not None:
            answer()


class AnswerInstead(Fault):
    """Lets the test give the answer."""

    def __init__(self, where: Where, times: int | None, after: int, answer: Callable[[Any, int], Any]) -> None:
        super().__init__(where, times, after)
        self._answer = answer

    def apply(self, call: Call, request: Any, key: int, go_on: Callable[[], Any]) -> Any:
        response = self._answer(request, call.version)
        return go_on() if response is None else response


class SeenRequest(NamedTuple):
    """A request that a `Watch` saw."""

    api: ApiKey
    version: int
    client_id: str


class Watch(Fault):
    """Lists requests without harming them."""

    def __init__(self, where: Where, times: int | None, after: int) -> None:
        super().__init__(where, times, after)
        #: The requests, in order of arrival.
        self.requests: list[SeenRequest] = []

    def apply(self, call: Call, request: Any, key: int, go_on: Callable[[], Any]) -> Any:
        self.requests.append(SeenRequest(ApiKey(key), call.version, call.client_id))
        return go_on()


def replace_reply(reply: Any, then: Callable[[Any, Callable[[Any], None]], None]) -> Any:
    """Replace a reply: `then(value, resolve)` decides what is sent. A request without a reply is left alone."""
    if isinstance(reply, NoReply):
        return reply
    if not isinstance(reply, Later):
        first = Later()
        first.resolve(reply)
        reply = first
    later = Later(superseded=reply.superseded)
    reply.then(lambda value: then(value, later.resolve))
    return later
