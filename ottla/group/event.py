"""What comes into the coordinator (events, in the past tense) and what it wants done (effects, imperative)."""

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from ottla.group.setting import CoordinatorSettings, GroupOverride
from ottla.group.topic import TopicView
from ottla.group.topology.topology import InternalTopic
from ottla.kernel.error import KafkaError
from ottla.kernel.frozen import frozen
from ottla.kernel.ids import Uuid


@frozen
class Called:
    """A request arrived for a group of this partition. It is answered exactly once, in this step or a later one."""

    #: The driver's own number for the request; it comes back in the `Answer`.
    ticket: int
    #: A request of one of the classes of `coordinator.REQUESTS`.
    request: Any
    version: int
    client_id: str
    #: As Kafka records it: the address with a slash before it, `/127.0.0.1`.
    client_host: str
    principal: str = "User:ANONYMOUS"


@frozen
class Loaded:
    """Every record of the log was replayed and this node leads the partition: timers start, requests may come."""


@frozen
class Resigned:
    """This node no longer leads, or an append failed: requests that still wait get NOT_COORDINATOR.

    After it the coordinator is thrown away; a new one is loaded from the log.
    """


@frozen
class TimePassed:
    """`deadline_ms()` was reached."""


@frozen
class TopicsChanged:
    """The metadata image changed in a way that may concern groups."""

    topics: TopicView
    #: Names of the topics that are new.
    created: Sequence[str] = ()
    #: Names of the topics that have more partitions, or whose replicas moved.
    changed: Sequence[str] = ()
    #: Name and id of the topics that are gone.
    deleted: Sequence[tuple[str, Uuid]] = ()


@frozen
class SettingsChanged:
    """The broker's settings, or those of single groups, changed."""

    settings: CoordinatorSettings
    overrides: Mapping[str, GroupOverride]


@frozen
class ShareStateAnswered:
    """The share coordinator has answered `InitializeShareState` or `DeleteShareState`."""

    call_id: int
    #: What failed, by topic id and partition.
    errors: Mapping[tuple[Uuid, int], KafkaError] = field(default_factory=dict)


@frozen
class HeldHeartbeat:
    """A share group's heartbeat that waited for state to be begun; `response` is what it would have been told."""

    call: Called
    response: Any


@frozen
class Hurry:
    """The client has sent more behind this request, or has gone: a heartbeat that is held is answered now."""

    ticket: int


Event = (
    Called
    | Loaded
    | Resigned
    | TimePassed
    | TopicsChanged
    | SettingsChanged
    | ShareStateAnswered
    | HeldHeartbeat
    | Hurry
)

#: The key and value of a record as they stand in `__consumer_offsets`. A value of None is a tombstone.
Entry = tuple[bytes, bytes | None]


@frozen
class Append:
    """Append these records as one batch, stamped with this step's time, and replay them at once.

    With a producer id the batch is transactional.
    """

    entries: list[Entry]
    producer_id: int = -1
    producer_epoch: int = -1


@frozen
class Answer:
    """Send this response once everything the coordinator has appended so far is committed."""

    ticket: int
    response: Any


@frozen
class StreamsHeartbeat:
    """The answer to a streams group's heartbeat, and the internal topics that its application lacks.

    The driver has them made in the client's name, when the answer leaves.
    """

    response: Any
    missing: Sequence[InternalTopic] = ()


@frozen
class InitializeShareState:
    """Have the share coordinator begin the state of partitions; its answer comes as `ShareStateAnswered`."""

    call_id: int
    group_id: str
    state_epoch: int
    #: Topic id -> partition -> start offset.
    offsets: Mapping[Uuid, Mapping[int, int]]


@frozen
class DeleteShareState:
    """Have the share coordinator forget the state of partitions; its answer comes as `ShareStateAnswered`."""

    call_id: int
    group_id: str
    partitions: Mapping[Uuid, Sequence[int]]


@frozen
class Continue:
    """Send this event when the effects before it are carried out."""

    event: Event


Effect = Append | Answer | InitializeShareState | DeleteShareState | Continue
