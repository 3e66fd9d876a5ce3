"""A driver of one coordinator for tests: it carries out effects at once, keeps the log, and moves time by hand.

After every step it validates the coordinator, checks that the driver's contract is kept (each ticket answered once)
and that every answer can be encoded in its request's version.
"""

from collections.abc import Callable, Collection, Sequence
from random import Random
from typing import Any, TypeVar

from ottla.coordinator.contract import Answer, Append, Called, Continue, Loaded, TimePassed, append_error
from ottla.group.coordinator import GroupCoordinator
from ottla.group.event import (
    DeleteShareState,
    Event,
    InitializeShareState,
    ShareStateAnswered,
    StreamsHeartbeat,
    TopicsChanged,
)
from ottla.group.failure import failure
from ottla.group.selection import Selected
from ottla.group.setting import CoordinatorSettings
from ottla.group.state.classic import ClassicGroup
from ottla.group.topology.topology import InternalTopic
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import Uuid
from ottla.kernel.now import Now
from ottla.wire.compile import encode

T = TypeVar("T")


class Topics:
    """A TopicView of plain dictionaries. Topic ids are made from the order of creation."""

    def __init__(self, counts: dict[str, int] | None = None, version: int = 1, *, racks: bool = True) -> None:
        self.version = version
        self._racks = racks
        self._counts: dict[str, int] = {}
        self._ids: dict[str, Uuid] = {}
        self._made = 0
        for name, count in (counts or {}).items():
            self.create(name, count)

    def create(self, name: str, count: int) -> None:
        self._made += 1
        self._counts[name] = count
        self._ids[name] = Uuid(self._made.to_bytes(16, "big"))

    def delete(self, name: str) -> None:
        del self._counts[name], self._ids[name]

    def grow(self, name: str, count: int) -> None:
        self._counts[name] = count

    def rename(self, topic_id: Uuid, name: str) -> None:
        """Give a topic the id that it has elsewhere."""
        self._ids[name] = topic_id

    def names(self) -> Collection[str]:
        return self._counts

    def topic_id(self, name: str) -> Uuid | None:
        return self._ids.get(name)

    def topic_name(self, topic_id: Uuid) -> str | None:
        return next((name for name, known in self._ids.items() if known == topic_id), None)

    def partition_count(self, name: str) -> int:
        return self._counts.get(name, 0)

    def racks(self, name: str, partition: int) -> Sequence[str]:
        return ["a", "b"][: partition % 3] if self._racks else []


class Host:
    """One coordinator, its log and its clock."""

    def __init__(self, settings: CoordinatorSettings | None = None, topics: Topics | None = None) -> None:
        self.settings = settings or CoordinatorSettings()
        self.topics = topics or Topics({"orders": 4, "clicks": 2})
        self.now_ms = 1_000_000
        #: One for all coordinators: two leaders never hand out the same member id.
        self._rng = Random(7)
        #: (key, value, producer id), or (producer id, committed) for a marker.
        self.log: list[tuple[Any, ...]] = []
        self.answers: dict[int, Any] = {}
        #: Internal topics that a heartbeat of a streams group found missing, by ticket.
        self.missing: dict[int, Sequence[InternalTopic]] = {}
        self._versions: dict[int, int] = {}
        self._asked: dict[int, Any] = {}
        self._tickets = 0
        #: (epoch, start offset) by group, topic and partition, as a share coordinator holds them.
        self.share_states: dict[tuple[str, Uuid, int], tuple[int, int]] = {}
        self.share_calls: list[InitializeShareState | DeleteShareState] = []
        #: The share coordinator answers only when `answer_share_calls` is called.
        self.share_waits = False
        self._follow: list[Event] = []
        #: What clients may describe; None: every topic.
        self.may_describe: Callable[[str], bool] | None = None
        self.selected: Selected | None = None
        #: What a broker has worked out of the next request.
        self.prepared: Any = None
        #: With this error the log refuses all records, and the client gets it as the driver tells it.
        self.refuses: ErrorCode | None = None
        #: The groups that emptied while the log refused their records: it has an older generation.
        self.ahead: set[str] = set()
        self.coordinator = self._new()
        self.send(Loaded())

    def _new(self) -> GroupCoordinator:
        return GroupCoordinator(0, self.settings, self._rng, self.topics)

    # -- requests and time

    def send(self, event: Event) -> None:
        refused = False
        for effect in self.coordinator.step(event, Now(self.now_ms, self.now_ms)):
            refused = refused or (isinstance(effect, Append) and self.refuses is not None)
            match effect:
                case Answer(ticket) if refused:
                    self._answer_refusal(ticket)
                case _ if refused:
                    pass
                case Append(entries, producer_id):
                    assert entries, "a batch has at least one record"
                    for key, value in entries:
                        offset = len(self.log)
                        self.log.append((key, value, producer_id))
                        self.coordinator.replay(key, value, offset=offset, producer_id=producer_id)
                case Answer(ticket, response):
                    assert ticket not in self.answers, f"ticket {ticket} is answered twice"
                    if isinstance(response, StreamsHeartbeat):
                        self.missing[ticket] = response.missing
                        response = response.response
                    encode(response, self._versions[ticket])
                    self.answers[ticket] = response
                case InitializeShareState() | DeleteShareState():
                    self.share_calls.append(effect)
                    if not self.share_waits:
                        self.answer_share_calls()
                case Continue(event):
                    self._follow.append(event)
        if refused:
            ticket = getattr(event, "ticket", -1)
            self.coordinator.refused(ticket)
            if ticket not in self.answers and ticket != -1:
                self._answer_refusal(ticket)
            groups = self.coordinator.shard.groups
            self.ahead |= {name for name, group in groups.items() if isinstance(group, ClassicGroup) and group.is_empty}
        if self._follow:
            self.send(self._follow.pop(0))
        else:
            self.coordinator.validate()

    def _answer_refusal(self, ticket: int) -> None:
        assert ticket not in self.answers and self.refuses is not None
        error = KafkaError(append_error(self.refuses))
        self.answers[ticket] = failure(self._asked[ticket], self._versions[ticket], error)

    def answer_share_calls(self, errors: dict[tuple[Uuid, int], KafkaError] | None = None) -> None:
        """The share coordinator answers everything that it was asked."""
        for call in self.share_calls:
            match call:
                case InitializeShareState(_, group_id, epoch, offsets) if not errors:
                    for topic_id, partitions in offsets.items():
                        for index, offset in partitions.items():
                            self.share_states[group_id, topic_id, index] = epoch, offset
                case DeleteShareState(_, group_id, gone) if not errors:
                    for topic_id, indexes in gone.items():
                        for index in indexes:
                            self.share_states.pop((group_id, topic_id, index), None)
            self._follow.append(ShareStateAnswered(call.call_id, errors or {}))
        self.share_calls.clear()

    def ask(self, request: Any, version: int, client_id: str = "client") -> int:
        """Send a request; the ticket under which its answer will be in `answers`."""
        self._tickets += 1
        self._versions[self._tickets] = version
        self._asked[self._tickets] = request
        called = Called(
            self._tickets,
            request,
            version,
            client_id,
            "/127.0.0.1",
            may_describe=self.may_describe,
            selected=self.selected,
            prepared=self.prepared,
        )
        self.send(called)
        return self._tickets

    def call(self, request: Any, version: int, client_id: str = "client") -> Any:
        """Send a request that is answered at once."""
        ticket = self.ask(request, version, client_id)
        assert ticket in self.answers, f"{request} waits"
        return self.answers[ticket]

    def waits(self, ticket: int) -> bool:
        return ticket not in self.answers

    def pass_ms(self, duration_ms: int) -> None:
        """Let time go by; deadlines come in their order, each at its time."""
        until_ms = self.now_ms + duration_ms
        for _ in range(100_000):
            deadline_ms = self.coordinator.deadline_ms()
            if deadline_ms is None or deadline_ms > until_ms:
                break
            self.now_ms = max(self.now_ms, deadline_ms)
            self.send(TimePassed())
        else:
            raise AssertionError("deadlines without end")
        self.now_ms = until_ms

    # -- the log

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        self.log.append((producer_id, committed))
        self.coordinator.replay_marker(producer_id, committed=committed)
        self.coordinator.validate()

    def replayed(self) -> GroupCoordinator:
        """A coordinator that was made from the log alone."""
        other = self._new()
        for offset, entry in enumerate(self.log):
            if len(entry) == 2:
                other.replay_marker(entry[0], committed=entry[1])
            else:
                other.replay(entry[0], entry[1], offset=offset, producer_id=entry[2])
        return other

    def restart(self) -> None:
        """The leader moves: open requests are told so, and another coordinator is loaded from the log."""
        error = KafkaError(ErrorCode.NOT_COORDINATOR)
        for ticket, version in self.coordinator.open.items():
            self.answers[ticket] = failure(self._asked[ticket], version, error)
        self.coordinator = self.replayed()
        self.ahead.clear()
        self.send(Loaded())

    def change_topics(self, **change: Any) -> None:
        """Tell the coordinator of changed topics; the same view, with a later version."""
        self.topics.version += 1
        self.send(TopicsChanged(self.topics, **change))

    # -- looking in

    def group(self, group_id: str = "g") -> Any:
        return self.coordinator.shard.groups.get(group_id)

    def replayed_group(self, group_id: str = "g") -> Any:
        """The group as the log alone tells it."""
        return self.replayed().shard.groups.get(group_id)
