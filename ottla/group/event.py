"""The events and effects of a group coordinator, besides those of `ottla.coordinator.contract`."""

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from ottla.coordinator.contract import Answer, Append, Called, Continue, Loaded, TimePassed
from ottla.group.setting import CoordinatorSettings, GroupOverride
from ottla.group.topic import TopicView
from ottla.group.topology.topology import InternalTopic
from ottla.kernel.error import KafkaError
from ottla.kernel.frozen import frozen
from ottla.kernel.ids import Uuid


@frozen
class TopicsChanged:
    """The metadata image changed in a way that may concern groups."""

    topics: TopicView
    #: The names of the new topics.
    created: Sequence[str] = ()
    #: The names of the topics that gained partitions or whose replicas moved.
    changed: Sequence[str] = ()
    #: (name, id) of the deleted topics.
    deleted: Sequence[tuple[str, Uuid]] = ()
    #: The groups that are told; None for all.
    groups: Sequence[str] | None = None
    #: The end of the log when the topics were deleted: what is committed behind it is of later topics of their names.
    log_end: int = 1 << 63


@frozen
class SettingsChanged:
    """The settings of the broker or of single groups changed."""

    settings: CoordinatorSettings
    overrides: Mapping[str, GroupOverride]


@frozen
class ShareStateAnswered:
    """The share coordinator has answered `InitializeShareState` or `DeleteShareState`."""

    call_id: int
    #: The errors, by topic id and partition.
    errors: Mapping[tuple[Uuid, int], KafkaError] = field(default_factory=dict)


@frozen
class HeldHeartbeat:
    """A share group's heartbeat that waited for state to be created; `response` is the one without that state."""

    call: Called
    response: Any


@frozen
class HeartbeatSuperseded:
    """The client has sent another request or disconnected: answer its held heartbeat now."""

    ticket: int


Event = (
    Called
    | Loaded
    | TimePassed
    | TopicsChanged
    | SettingsChanged
    | ShareStateAnswered
    | HeldHeartbeat
    | HeartbeatSuperseded
)


@frozen
class StreamsHeartbeat:
    """The response to a streams group's heartbeat, and the application's missing internal topics.

    The driver creates them in the client's name when it sends the response.
    """

    response: Any
    missing: Sequence[InternalTopic] = ()


@frozen
class InitializeShareState:
    """Ask the share coordinator to create the state of partitions; it answers with `ShareStateAnswered`."""

    call_id: int
    group_id: str
    state_epoch: int
    #: Topic id -> partition -> start offset.
    offsets: Mapping[Uuid, Mapping[int, int]]


@frozen
class DeleteShareState:
    """Ask the share coordinator to delete the state of partitions; it answers with `ShareStateAnswered`."""

    call_id: int
    group_id: str
    partitions: Mapping[Uuid, Sequence[int]]


Effect = Append | Answer | InitializeShareState | DeleteShareState | Continue
