"""What only a group coordinator is told and wants done; the rest is in `ottla.coordinator.contract`."""

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


Event = Called | Loaded | TimePassed | TopicsChanged | SettingsChanged | ShareStateAnswered | HeldHeartbeat | Hurry


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


Effect = Append | Answer | InitializeShareState | DeleteShareState | Continue
