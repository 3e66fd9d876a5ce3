"""The state of one partition of `__consumer_offsets`, and the context in which one step runs."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ottla.coordinator.contract import Answer, Append, Called, Entry, independent
from ottla.group.event import Effect, HeldHeartbeat
from ottla.group.selection import Selected
from ottla.group.setting import CoordinatorSettings, GroupOverride
from ottla.group.state.classic import ClassicGroup, Protocols
from ottla.group.state.consumer import ConsumerGroup
from ottla.group.state.offsets import OffsetStore
from ottla.group.state.share import ShareGroup
from ottla.group.state.streams import StreamsGroup
from ottla.group.timer import TimerKey, Timers
from ottla.group.topic import TopicView
from ottla.kernel.error import KafkaError
from ottla.kernel.ids import Uuid, uuid_v4
from ottla.kernel.named import NamedTuple
from ottla.kernel.now import Now
from ottla.kernel.ports import Rng

Group = ClassicGroup | ConsumerGroup | ShareGroup | StreamsGroup
#: The share coordinator's errors, by topic id and partition.
StateErrors = Mapping[tuple[Uuid, int], KafkaError]


class ShareCall(NamedTuple):
    """A request to the share coordinator that is not answered yet."""

    on_answer: "Callable[[CommandContext, StateErrors], None]"
    #: The client requests that wait for the answer.
    calls: tuple[Called, ...]


@dataclass(slots=True)
class Shard:
    """The state of one partition. `GroupCoordinator` creates it empty; replay fills it."""

    settings: CoordinatorSettings
    rng: Rng
    topics: TopicView
    #: By group id. Joins and timers are not durable.
    groups: dict[str, Group] = field(default_factory=dict)
    offsets: OffsetStore = field(default_factory=OffsetStore)
    timers: Timers = field(default_factory=Timers)
    overrides: dict[str, GroupOverride] = field(default_factory=dict)
    #: `topics.version` when a topic was last created: regular expressions resolved at an older version are stale.
    topics_created_version: int = -1
    #: Call id -> pending request to the share coordinator. Not durable.
    share_calls: dict[int, ShareCall] = field(default_factory=dict)
    share_calls_made: int = 0
    #: When this leader last asked for the creation of a share group's topic state, until the answer. Not in the group:
    #: the first command of a new group runs before replay creates the group.
    share_requested_ms: dict[tuple[str, Uuid], int] = field(default_factory=dict)
    #: Ticket -> heartbeat of a share group that waits for the share coordinator.
    held: dict[int, HeldHeartbeat] = field(default_factory=dict)
    #: Group id -> member id -> all protocols of a member. For a group that becomes a classic one, until it is replayed:
    #: its record has only the protocol that was chosen. Not durable.
    protocols: dict[str, dict[str, Protocols]] = field(default_factory=dict)
    #: What takes back the changes that the present step has made in memory, apart from deadlines.
    undo: list[Callable[[], object]] = field(default_factory=list)

    def begin_step(self) -> None:
        """Note the present state, to which `undo_step` returns."""
        self.timers.begin()
        self.undo.clear()

    def undo_step(self) -> None:
        """Take back the changes since `begin_step`: the log has refused the records of the step."""
        self.timers.undo()
        for undo in reversed(self.undo):
            undo()
        self.undo.clear()

    def override(self, group_id: str) -> GroupOverride:
        return self.overrides.get(group_id, _NO_OVERRIDE)


class CommandContext:
    """The context of one step: it collects the records of one batch, the answers, and further effects."""

    def __init__(
        self,
        shard: Shard,
        now: Now,
        may_describe: Callable[[str], bool] | None = None,
        selected: Selected | None = None,
    ) -> None:
        self.shard = shard
        #: The topics of the client's regular expression, if they were selected before this step.
        self.selected = selected
        #: May the client of this step describe the topic of this name? None allows every topic.
        self.may_describe = may_describe
        #: Wall time, for timestamps and durations since them.
        self.now_ms = now.wall_ms
        #: Monotonic time, for deadlines.
        self.monotonic_ms = now.monotonic_ms
        self.entries: list[Entry] = []
        self.answers: list[Answer] = []
        self.errors: list[Answer] = []
        self.actions: list[Effect] = []
        self.producer_id = -1
        self.producer_epoch = -1

    @property
    def settings(self) -> CoordinatorSettings:
        return self.shard.settings

    @property
    def timers(self) -> Timers:
        return self.shard.timers

    def alarm_in(self, key: TimerKey, delay_ms: int) -> None:
        """Set a deadline `delay_ms` from now."""
        self.shard.timers.set(key, self.monotonic_ms + delay_ms)

    def append(self, *entries: Entry) -> None:
        self.entries.extend(entries)

    def extend(self, entries: Iterable[Entry]) -> None:
        self.entries.extend(entries)

    def answer(self, ticket: int, response: Any) -> None:
        self.answers.append(Answer(ticket, response))

    def answer_error(self, ticket: int, response: Any) -> None:
        """Answer with an error that stands even if the log refuses the records of this step."""
        self.errors.append(Answer(ticket, response))

    def after(self, action: Effect) -> None:
        """Add an effect to be carried out after the append and the answers."""
        self.actions.append(action)

    def effects(self) -> list[Effect]:
        effects: list[Effect] = [*self.errors]
        if self.producer_id == -1 and all(value is None for _, value in self.entries):
            effects.extend(independent(self.entries))
        elif self.entries:
            effects.append(Append(self.entries, self.producer_id, self.producer_epoch))
        effects.extend(self.answers)
        effects.extend(self.actions)
        return effects

    def new_uuid_text(self) -> str:
        """A random UUID (version 4) as Java prints it, for member ids."""
        text = uuid_v4(self.shard.rng).hex()
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


_NO_OVERRIDE = GroupOverride()
