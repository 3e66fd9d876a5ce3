"""What comes into a share coordinator (events, in the past tense) and what it wants done (effects, imperative)."""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from ottla.kernel.frozen import frozen
from ottla.kernel.ids import Uuid
from ottla.settings.server.transaction import TransactionDeclaration
from ottla.settings.view import AS_DECLARED, SettingsView


class Topics(Protocol):
    """The port to the metadata image: which topics there are."""

    def topic_name(self, topic_id: Uuid) -> str | None: ...

    def partition_count(self, name: str) -> int:
        """0 for a topic that does not exist."""


@frozen
class StateSettings(SettingsView, of=(TransactionDeclaration,), prefix="share_coordinator_"):
    """The share.coordinator settings."""

    snapshot_update_records_per_snapshot: int = AS_DECLARED
    state_topic_prune_interval_ms: int = AS_DECLARED
    cold_partition_snapshot_interval_ms: int = AS_DECLARED


@frozen
class Called:
    """A request arrived that is for one share partition. It is answered in the same step."""

    ticket: int
    #: A request of the APIs 83 to 87, with one topic and one partition.
    request: Any


@frozen
class Loaded:
    """Every record of the log was replayed and this node leads the partition: timers start, requests may come."""


@frozen
class TimePassed:
    """`deadline_ms()` was reached."""


@frozen
class TopicsChanged:
    """The metadata image changed."""

    topics: Topics
    #: Ids of the topics that are gone.
    deleted: Iterable[Uuid] = ()


Event = Called | Loaded | TimePassed | TopicsChanged

#: The key and value of a record as they stand in `__share_group_state`. A value of None is a tombstone.
Entry = tuple[bytes, bytes | None]


@frozen
class Append:
    """Append these records as one batch, stamped with this step's time, and replay them at once."""

    entries: Sequence[Entry]


@frozen
class Answer:
    """Send this response once everything that was appended so far is committed."""

    ticket: int
    response: Any


@frozen
class Prune:
    """No record before this offset is needed any more."""

    offset: int


Effect = Append | Answer | Prune
