"""What the admin client takes and gives: frozen, typed, with Kafka's words.

A call about many things answers with `Results`: it maps each thing to its result, and raises a thing's own KafkaError
when that thing is asked for. Nothing is lost silently: `check` raises the first error, and errors that were not
looked at warn.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from enum import Enum, IntEnum
from typing import Generic, TypeVar

from ottla.client.connection.metadata import ClusterNode
from ottla.kernel.error import KafkaError
from ottla.kernel.frozen import frozen
from ottla.kernel.ids import TopicPartition, Uuid
from ottla.kernel.open_enum import OpenEnum
from ottla.security.acl import AclOperation

#: A setting's value as callers may give it; it travels as text, a list with commas.
ConfigValue = str | bool | int | float | Sequence[str]

K = TypeVar("K")
V = TypeVar("V")


class UncheckedErrors(RuntimeWarning):
    """Some things of an admin call failed, and the program dropped the call's results without a look."""


class Results(Mapping[K, V], Generic[K, V]):
    """Results by what was asked for. `results[key]` gives the value, or raises that key's KafkaError.

    Iteration and `len` cover all keys, failed ones too; `values()` and `items()` raise at a failed one. Results with
    errors that were not looked at (by `check`, `errors`, `succeeded`, or a key) warn with `UncheckedErrors` later.
    """

    __slots__ = ("_errors", "_looked", "_succeeded", "call")

    def __init__(self, succeeded: dict[K, V], errors: dict[K, KafkaError]) -> None:
        #: The method that gave them.
        self.call = ""
        self._succeeded = succeeded
        self._errors = errors
        self._looked = not errors

    @property
    def succeeded(self) -> dict[K, V]:
        """What went well, without what failed."""
        self._looked = True
        return self._succeeded

    @property
    def errors(self) -> dict[K, KafkaError]:
        """What failed, and why."""
        self._looked = True
        return self._errors

    def __getitem__(self, key: K) -> V:
        self._looked = True
        if key in self._errors:
            raise self._errors[key]
        return self._succeeded[key]

    def __iter__(self) -> Iterator[K]:
        yield from self._succeeded
        yield from self._errors

    def __len__(self) -> int:
        return len(self._succeeded) + len(self._errors)

    def check(self) -> dict[K, V]:
        """All values; raises the first KafkaError."""
        for error in self.errors.values():
            raise error
        return self._succeeded

    def __repr__(self) -> str:
        return f"Results({self.succeeded!r}, errors={self.errors!r})"

    def __del__(self) -> None:
        if getattr(self, "_looked", True):
            return
        key, error = next(iter(self._errors.items()))
        warnings.warn(
            f"{self.call}: {len(self._errors)} of {len(self)} failed and were not looked at, first {key}: {error} "
            "(call .check() to raise, or read .errors)",
            UncheckedErrors,
            stacklevel=2,
        )


# ---- topics


@frozen
class NewTopic:
    """A topic to create. -1 takes the broker's default; `assignments` (partition to replicas) replaces both numbers."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, ConfigValue] = field(default_factory=dict)
    assignments: Mapping[int, Sequence[int]] | None = None


@frozen
class CreatedTopic:
    """What the cluster made. Numbers are -1 when the broker is too old to say."""

    name: str
    id: Uuid
    partitions: int
    replication_factor: int
    configs: Mapping[str, str | None]


@frozen
class TopicListing:
    """A line of `list_topics`."""

    name: str
    id: Uuid
    internal: bool


@frozen
class PartitionDescription:
    """A partition and who holds it. `leader` is None while there is none; `elr` (KIP-966) None on older brokers."""

    partition: int
    leader: ClusterNode | None
    leader_epoch: int
    replicas: tuple[ClusterNode, ...]
    isr: tuple[ClusterNode, ...]
    offline: tuple[ClusterNode, ...]
    elr: tuple[ClusterNode, ...] | None = None
    last_known_elr: tuple[ClusterNode, ...] | None = None


@frozen
class TopicDescription:
    """A topic with its partitions, by number."""

    name: str
    id: Uuid
    internal: bool
    partitions: tuple[PartitionDescription, ...]
    #: What the principal may do with it (KIP-430); None unless it was asked for.
    authorized_operations: frozenset[AclOperation] | None = None


# ---- offsets


class OffsetSpec(IntEnum):
    """Offsets that `list_offsets` finds, beside those at a timestamp (any int of at least 0, milliseconds)."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5
    EARLIEST_PENDING_UPLOAD = -6


@frozen
class ListedOffset:
    """An offset with its record's timestamp (-1 if there is no record there) and leader epoch (None if not known)."""

    offset: int
    timestamp: int
    leader_epoch: int | None


# ---- configs


class ResourceType(OpenEnum):
    """What has settings."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


@frozen
class ConfigResource:
    """A thing with settings: `ConfigResource(ResourceType.TOPIC, "flights")`. Broker "": all brokers."""

    type: ResourceType
    name: str


class ConfigSource(IntEnum):
    """Where a value comes from."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


@frozen
class ConfigSynonym:
    """Another name and place from which the value could come; the first of an entry's synonyms is in force."""

    name: str
    value: str | None
    source: ConfigSource


@frozen
class ConfigEntry:
    """A setting of a resource. `value` is None when it is sensitive or not set."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    sensitive: bool
    type: str
    documentation: str | None = None
    synonyms: tuple[ConfigSynonym, ...] = ()

    @property
    def is_default(self) -> bool:
        """True if it was not set."""
        return self.source is ConfigSource.DEFAULT_CONFIG


class AlterOperation(IntEnum):
    """How `alter_configs` changes one setting. APPEND and SUBTRACT are for lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


# ---- groups


class GroupType(Enum):
    """The protocol a group speaks."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"
    UNKNOWN = "unknown"


@frozen
class GroupListing:
    """A line of `list_groups`. `state` is Kafka's word: Stable, Empty, PreparingRebalance, Assigning, Dead, ..."""

    id: str
    type: GroupType
    state: str
    protocol_type: str


@frozen
class MemberDescription:
    """A member and what is assigned to it."""

    id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]
    #: What it should have when the rebalance is over; None in a classic group.
    target_assignment: tuple[TopicPartition, ...] | None = None
    #: Member epoch (KIP-848); None in a classic group.
    epoch: int | None = None
    rack: str | None = None
    subscribed_topics: tuple[str, ...] = ()
    #: In a consumer group: does it speak that protocol already? None where the broker does not say, or in other groups.
    upgraded: bool | None = None


@frozen
class GroupDescription:
    """A classic or consumer group."""

    id: str
    type: GroupType
    state: str
    #: The assignor in use; "" when there is none.
    assignor: str
    members: tuple[MemberDescription, ...]
    coordinator: ClusterNode
    #: Group and assignment epoch (KIP-848); None in a classic group.
    epoch: int | None = None
    assignment_epoch: int | None = None
    protocol_type: str = "consumer"
    #: What the principal may do with it (KIP-430); None unless it was asked for.
    authorized_operations: frozenset[AclOperation] | None = None


@frozen
class PartitionLag:
    """How far a group is behind in one partition. What is not known is None."""

    partition: TopicPartition
    committed: int | None
    end_offset: int | None
    member: MemberDescription | None
    leader_epoch: int | None = None

    @property
    def lag(self) -> int | None:
        """Records still to read, or None if nothing was committed or the end is not known."""
        if self.committed is None or self.end_offset is None:
            return None
        return max(0, self.end_offset - self.committed)


# ---- cluster


@frozen
class ClusterDescription:
    """The cluster as its brokers show it. Under KRaft, `controller` is a broker that forwards to the controller."""

    cluster_id: str
    controller: ClusterNode | None
    nodes: tuple[ClusterNode, ...]
    #: Which of them are fenced; only when these were asked for.
    fenced: frozenset[int] = frozenset()
    #: What the principal may do with it (KIP-430); None unless it was asked for.
    authorized_operations: frozenset[AclOperation] | None = None


@frozen
class ReplicaLogDir:
    """A replica in a log directory. `offset_lag` is how far it is behind; `future` marks one that is being moved."""

    partition: TopicPartition
    size: int
    offset_lag: int
    future: bool


@frozen
class LogDirDescription:
    """A log directory of one broker. `total_bytes` and `usable_bytes` are of its volume, -1 if not known."""

    path: str
    error: KafkaError | None
    replicas: tuple[ReplicaLogDir, ...]
    total_bytes: int
    usable_bytes: int


@frozen
class QuorumReplica:
    """A voter or observer of the metadata quorum. Timestamps are milliseconds, -1 if not known."""

    id: int
    directory_id: Uuid
    log_end_offset: int
    last_fetch_timestamp: int
    last_caught_up_timestamp: int


@frozen
class QuorumDescription:
    """The metadata quorum as its leader sees it."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]
    #: By node where it listens, LISTENER://HOST:PORT; empty where the leader does not say (before 3.9).
    endpoints: Mapping[int, tuple[str, ...]] = field(default_factory=dict)


@frozen
class FeatureLevels:
    """A feature's finalized level (None if it has none) and the levels that the broker supports."""

    finalized: int | None
    min_supported: int
    max_supported: int


class Downgrade(IntEnum):
    """May `update_features` lower a level? SAFE: only if no metadata gets lost by it."""

    NO = 1
    SAFE = 2
    UNSAFE = 3


class Features(dict[str, FeatureLevels]):
    """Features by name. `epoch` is the offset of the metadata that the levels stand for, -1 if not known."""

    epoch: int = -1
