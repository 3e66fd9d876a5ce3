"""The events and effects of a share coordinator, besides those of `ottla.coordinator.contract`."""

from collections.abc import Iterable
from typing import Protocol

from ottla.coordinator.contract import Answer, Append, Called, Loaded, TimePassed
from ottla.kernel.frozen import frozen
from ottla.kernel.ids import Uuid
from ottla.settings.server.transaction import TransactionDeclaration
from ottla.settings.view import AS_DECLARED, SettingsView


class Topics(Protocol):
    """The port to the metadata image: the topics of the cluster."""

    def topic_name(self, topic_id: Uuid) -> str | None: ...

    def partition_count(self, name: str) -> int:
        """The number of partitions; 0 for an unknown topic."""


@frozen
class StateSettings(SettingsView, of=(TransactionDeclaration,), prefix="share_coordinator_"):
    """The share.coordinator settings."""

    snapshot_update_records_per_snapshot: int = AS_DECLARED
    state_topic_prune_interval_ms: int = AS_DECLARED
    cold_partition_snapshot_interval_ms: int = AS_DECLARED


@frozen
class TopicsChanged:
    """The metadata image changed."""

    topics: Topics
    #: The ids of the deleted topics.
    deleted: Iterable[Uuid] = ()


Event = Called | Loaded | TimePassed | TopicsChanged


@frozen
class Prune:
    """Delete the records before `offset`, which are no longer needed."""

    offset: int


Effect = Append | Answer | Prune
