"""The kinds of faults, and which requests they take. `ottla.embedded.faults` makes them; read that first.

Rules:
- All but `wait` and `remove` run on the node's thread.
- A request that a fault takes is carried out in its turn or not at all, never later: its bytes are only lent.
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
#: Their partitions are looked up one by one, and fail one by one.
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
#: Errors of a fetch session (KIP-227) are about the request, not about a partition.
_OF_SESSION = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


@frozen
class Where:
    """Which requests are meant. What is None does not matter."""

    apis: frozenset[int]
    topic: str | None = None
    partition: int | None = None
    group: str | None = None
    transactional_id: str | None = None
    client_id: str | None = None

    def fits(self, call: Call, request: Any, key: int) -> bool:
        """Is this request meant?"""
        if key not in self.apis or self.client_id not in (None, call.client_id):
            return False
        if self.group is not None and self.group not in _said(request, _GROUPS):
            return False
        if self.transactional_id is not None and self.transactional_id not in _said(request, _TRANSACTIONS):
            return False
        return self.topic is None or self._names_topic(call.node, request)

    def _names_topic(self, node: BrokerNode, request: Any) -> bool:
        image = node.image.topics.get(self.topic or "")
        names = {self.topic, bytes(image.topic_id)} if image is not None else {self.topic}
        said = set(_said(request, _TOPICS))
        session = node.fetch_sessions.find(request.session_id) if hasattr(request, "session_id") else None
        if session is not None:
            said.update(topic for topic, _ in session.wanted)
        return not names.isdisjoint(said)


def _said(struct: Any, names: frozenset[str]) -> Iterator[str | bytes]:
    """What stands in the fields of these names, in a request and all its parts."""
    for field in fields(type(struct)):
        value = getattr(struct, field.name)
        for each in value if isinstance(value, list) else (value,):
            if isinstance(each, Struct):
                yield from _said(each, names)
            elif field.name in names and isinstance(each, str | bytes):
                yield each


class Fault(ABC):
    """A fault. It ends by `remove`, or at the end of a `with` block."""

    def __init__(self, where: Where, times: int | None, after: int) -> None:
        if (times is not None and times < 1) or after < 0:
            raise ValueError("times is at least 1, or None for always; after is at least 0")
        self.where = where
        #: How many requests it has taken.
        self.hits = 0
        self._left = times
        self._after = after
        self._changed = threading.Condition()
        #: Called by `remove`, on the caller's thread.
        self.on_removal: Callable[[Fault], None] = lambda _: None

    def wait(self, times: int = 1, timeout_s: float = 30.0) -> None:
        """Return when it has taken this many requests. Raises TimeoutError when they do not come."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.hits >= times, timeout_s):
                raise TimeoutError(f"the fault took {self.hits} requests in {timeout_s} s, not {times}")

    def remove(self) -> None:
        """End it. What it holds back is answered."""
        self.on_removal(self)

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    # ---- on the node's thread

    def fits(self, call: Call, request: Any, key: int) -> bool:
        """May it take this request?"""
        return self._left != 0 and self.where.fits(call, request, key)

    def take(self) -> bool:
        """Is it this one's turn?"""
        if self._after:
            self._after -= 1
            return False
        if self._left is not None:
            self._left -= 1
        return True

    def taken(self) -> None:
        """Count it. Its waiter finds the request carried out, if it is at all."""
        with self._changed:
            self.hits += 1
            self._changed.notify_all()

    def perform(self, call: Call, request: Any, key: int, go_on: Callable[[], Any]) -> Any:
        """The reply to a request that fits; `go_on` carries it out."""
        if not self.take():
            return go_on()
        try:
            return self.strike(call, request, key, go_on)
        finally:
            self.taken()

    @abstractmethod
    def strike(self, call: Call, request: Any, key: int, go_on: Callable[[], Any]) -> Any:
        """The reply to a request that it takes."""

    def removed(self) -> None:
        """Mark the fault as over."""
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
        if key in _BY_PARTITION and self.code not in _OF_SESSION and not self._carried_out:
            return self._fail_partitions(call.node, request, go_on)
        return super().perform(call, request, key, go_on)

    def _fail_partitions(self, node: BrokerNode, request: Any, go_on: Callable[[], Any]) -> Any:
        """Carry out the request on a node that finds some of its partitions failed."""
        session = node.fetch_sessions.find(request.session_id) if hasattr(request, "session_id") else None
        for wanted in session.wanted.values() if session is not None else ():
            # A fetch passes over partitions where nothing has happened; now it looks each one up.
            wanted.led = None
        lookup = node.leader_of
        taken: list[bool] = []

        def leader_of(topic: str, index: int) -> Any:
            if self.where.topic in (None, topic) and self.where.partition in (None, index):
                if not taken:
                    taken.append(self.take())
                if taken[0]:
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
            if any(taken):
                self.taken()

    def strike(self, call: Call, request: Any, key: int, go_on: Callable[[], Any]) -> Any:
        error = KafkaError(self.code)
        if key == ApiKey.METADATA and self.code is not ErrorCode.REBOOTSTRAP_REQUIRED:
            return instead(go_on(), lambda value, resolve: resolve(self._fail_topics(value)))
        if self._carried_out:
            return instead(go_on(), lambda _, resolve: resolve(error))
        raise error

    def _fail_topics(self, response: Any) -> Any:
        """Metadata tells the brokers whatever its topics' errors are."""
        for topic in response.topics:
            if self.where.topic in (None, topic.name):
                topic.error_code, topic.partitions = self.code, []
        return response


class CoordinatorAway(Error):
    """A coordinator that cannot be found. What it is told depends on whether it is looked for or asked."""

    def __init__(self, where: Where, times: int | None, after: int) -> None:
        super().__init__(where, times, after, ErrorCode.NOT_COORDINATOR)

    def fits(self, call: Call, request: Any, key: int) -> bool:
        # Produce names its transaction but asks no coordinator.
        return key != ApiKey.PRODUCE and super().fits(call, request, key)

    def strike(self, call: Call, request: Any, key: int, go_on: Callable[[], Any]) -> Any:
        looked_for = key == ApiKey.FIND_COORDINATOR
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE if looked_for else self.code)


class Disconnect(Fault):
    """Closes the connection instead of an answer."""

    def __init__(self, where: Where, times: int | None, after: int, *, carried_out: bool = False) -> None:
        super().__init__(where, times, after)
        self._carried_out = carried_out

    def strike(self, call: Call, request: Any, key: int, go_on: Callable[[], Any]) -> Any:
        if self._carried_out:
            return instead(go_on(), lambda _value, _resolve: call.connection.close("dropped on request"))
        raise PeerError("dropped on request")


class Hold(Fault):
    """Keeps answers back: for a time on the node's clock, or until `release`."""

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
        """Give the answers that were kept back, in their order."""
        self._on_loop(self.removed)

    def removed(self) -> None:
        held, self._held = self._held, {}
        for answer in held.values():
            answer()

    def strike(self, call: Call, request: Any, key: int, go_on: Callable[[], Any]) -> Any:
        number = next(self._numbers)

        def keep(value: Any, resolve: Callable[[Any], None]) -> None:
            self._held[number] = lambda: resolve(value)
            if self._delay_ms is not None:
                call.node.loop.call_later(self._delay_ms / 1000, self._answer, number)

        return instead(go_on(), keep)

    def _answer(self, number: int) -> None:
        answer = self._held.pop(number, None)
        if answer is not None:
            answer()


class AnswerInstead(Fault):
    """Lets the test write the answer."""

    def __init__(self, where: Where, times: int | None, after: int, answer: Callable[[Any, int], Any]) -> None:
        super().__init__(where, times, after)
        self._answer = answer

    def strike(self, call: Call, request: Any, key: int, go_on: Callable[[], Any]) -> Any:
        response = self._answer(request, call.version)
        return go_on() if response is None else response


class Seen(NamedTuple):
    """A request that came."""

    api: ApiKey
    version: int
    client_id: str


class Watch(Fault):
    """Lists the requests that come, and harms none."""

    def __init__(self, where: Where, times: int | None, after: int) -> None:
        super().__init__(where, times, after)
        #: In the order in which they came.
        self.requests: list[Seen] = []

    def strike(self, call: Call, request: Any, key: int, go_on: Callable[[], Any]) -> Any:
        self.requests.append(Seen(ApiKey(key), call.version, call.client_id))
        return go_on()


def instead(reply: Any, then: Callable[[Any, Callable[[Any], None]], None]) -> Any:
    """A reply that is not given as it comes: `then(value, resolve)` decides. What has no reply has none to change."""
    if isinstance(reply, NoReply):
        return reply
    if not isinstance(reply, Later):
        first = Later()
        first.resolve(reply)
        reply = first
    later = Later(superseded=reply.superseded)
    reply.then(lambda value: then(value, later.resolve))
    return later
