"""Arguments and results of the admin client: frozen, typed, in Kafka's terms.

A call about several items returns `Results`, which maps each item to its result and raises the item's own KafkaError on
access. No error is lost silently: `check` raises the first one, and a warning reports errors that the program never
looked at.
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

#: A setting's value from callers; it is sent as text, a list joined with commas.
ConfigValue = str | bool | int | float | Sequence[str]

K = TypeVar("K")
V = TypeVar("V")


class UncheckedErrors(RuntimeWarning):
    """Warning: items of an admin call failed, and the program dropped the call's results without looking at them."""


class Results(Mapping[K, V], Generic[K, V]):
    """Results by requested item: `results[key]` returns the key's value or raises its KafkaError.

    Iteration and `len` cover all keys, including failed ones; `values()` and `items()` raise at a failed one. Results
    whose errors were not looked at (by `check`, `errors`, `succeeded` or a key) warn with `UncheckedErrors` when they
    are deleted.
    """

    __slots__ = ("_errors", "_looked", "_succeeded", "call")

    def __init__(self, succeeded: dict[K, V], errors: dict[K, KafkaError]) -> None:
        #: Name of the method that returned them.
        self.call = ""
        self._succeeded = succeeded
        self._errors = errors
        self._looked = not errors

    @property
    def succeeded(self) -> dict[K, V]:
        """The values of the keys that succeeded."""
        self._looked = True
        return self._succeeded

    @property
    def errors(self) -> dict[K, KafkaError]:
        """The errors of the keys that failed."""
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
        """Return all values, or raise the first KafkaError."""
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
    """A topic to create. -1 means the broker's default; `assignments` (partition to replicas) replaces both numbers."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, ConfigValue] = field(default_factory=dict)
    assignments: Mapping[int, Sequence[int]] | None = None


@frozen
class CreatedTopic:
    """A created topic. Numbers are -1 if the broker is too old to return them."""

    name: str
    id: Uuid
    partitions: int
    replication_factor: int
    configs: Mapping[str, str | None]


@frozen
class TopicListing:
    """An entry of `list_topics`."""

    name: str
    id: Uuid
    internal: bool


@frozen
class PartitionDescription:
    """A partition and its replicas. `leader` is None if there is none; `elr` (KIP-966) is None with older brokers."""

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
    """A topic with its partitions, in order of their numbers."""

    name: str
    id: Uuid
    internal: bool
    partitions: tuple[PartitionDescription, ...]
    #: Operations that the principal may perform on the topic (KIP-430); None unless requested.
    authorized_operations: frozenset[AclOperation] | None = None


# ---- offsets


class OffsetSpec(IntEnum):
    """Special offsets for `list_offsets`, besides timestamps (any int of at least 0, ms since 1970)."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5
    EARLIEST_PENDING_UPLOAD = -6


@frozen
class ListedOffset:
    """An offset, its record's timestamp in ms (-1 if there is no record), and its leader epoch (None if unknown)."""

    offset: int
    timestamp: int
    leader_epoch: int | None


# ---- configs


class ResourceType(OpenEnum):
    """Types of resources with settings."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


@frozen
class ConfigResource:
    """A resource with settings: `ConfigResource(ResourceType.TOPIC, "flights")`. Broker "" means all brokers."""

    type: ResourceType
    name: str


class ConfigSource(IntEnum):
    """The source of a setting's value."""

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
    """A name and source that can supply an entry's value; the first of the entry's synonyms is in effect."""

    name: str
    value: str | None
    source: ConfigSource


@frozen
class ConfigEntry:
    """A setting of a resource. `value` is None if it is sensitive or not set."""

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
        """True if the setting has its default value."""
        return self.source is ConfigSource.DEFAULT_CONFIG


class AlterOperation(IntEnum):
    """Operations of `alter_configs` on a setting. APPEND and SUBTRACT are for lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


# ---- groups


class GroupType(Enum):
    """The protocol of a group."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"
    STREAMS = "streams"
    UNKNOWN = "unknown"


@frozen
class GroupListing:
    """An entry of `list_groups`. `state` is Kafka's name: Stable, Empty, PreparingRebalance, Assigning, Dead, ..."""

    id: str
    type: GroupType
    state: str
    protocol_type: str


@frozen
class MemberDescription:
    """A group member and its assignment."""

    id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]
    #: The assignment after the current rebalance; None in a classic group.
    target_assignment: tuple[TopicPartition, ...] | None = None
    #: Member epoch (KIP-848); None in a classic group.
    epoch: int | None = None
    rack: str | None = None
    subscribed_topics: tuple[str, ...] = ()
    #: True if the member uses the consumer protocol. None outside of consumer groups, or if the broker does not say.
    upgraded: bool | None = None


@frozen
class GroupDescription:
    """A classic, consumer or share group."""

    id: str
    type: GroupType
    state: str
    #: The assignor in use; "" if there is none.
    assignor: str
    members: tuple[MemberDescription, ...]
    coordinator: ClusterNode
    #: Group epoch and assignment epoch (KIP-848); None in a classic group.
    epoch: int | None = None
    assignment_epoch: int | None = None
    protocol_type: str = "consumer"
    #: Operations that the principal may perform on the group (KIP-430); None unless requested.
    authorized_operations: frozenset[AclOperation] | None = None


@frozen
class PartitionLag:
    """A group's progress in one partition. Unknown values are None."""

    partition: TopicPartition
    committed: int | None
    end_offset: int | None
    member: MemberDescription | None
    leader_epoch: int | None = None

    @property
    def lag(self) -> int | None:
        """The number of records still to read; None without a committed offset or a known end."""
        if self.committed is None or self.end_offset is None:
            return None
        return max(0, self.end_offset - self.committed)


# ---- cluster


@frozen
class ClusterDescription:
    """The cluster as its brokers describe it. With KRaft, `controller` is a broker that forwards to the controller."""

    cluster_id: str
    controller: ClusterNode | None
    nodes: tuple[ClusterNode, ...]
    #: Ids of the fenced brokers in `nodes`; only if requested.
    fenced: frozenset[int] = frozenset()
    #: Operations that the principal may perform on the cluster (KIP-430); None unless requested.
    authorized_operations: frozenset[AclOperation] | None = None


@frozen
class ReplicaLogDir:
    """A replica in a log directory. `size` is in bytes, `offset_lag` in offsets; `future` is True during a move."""

    partition: TopicPartition
    size: int
    offset_lag: int
    future: bool


@frozen
class LogDirDescription:
    """A log directory of a broker. `total_bytes` and `usable_bytes` are those of its volume, -1 if unknown."""

    path: str
    error: KafkaError | None
    replicas: tuple[ReplicaLogDir, ...]
    total_bytes: int
    usable_bytes: int


@frozen
class QuorumReplica:
    """A voter or observer of the metadata quorum. Timestamps are in ms since 1970, -1 if unknown."""

    id: int
    directory_id: Uuid
    log_end_offset: int
    last_fetch_timestamp: int
    last_caught_up_timestamp: int


@frozen
class QuorumDescription:
    """The metadata quorum, from its leader's view."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]
    #: Listeners by node, as LISTENER://HOST:PORT; empty if the leader does not return them (before 3.9).
    endpoints: Mapping[int, tuple[str, ...]] = field(default_factory=dict)


@frozen
class FeatureLevels:
    """A feature's finalized level (None if it has none), and the levels that the broker supports."""

    finalized: int | None
    min_supported: int
    max_supported: int


class Downgrade(IntEnum):
    """Whether `update_features` may lower a level. SAFE: only if that loses no metadata."""

    NO = 1
    SAFE = 2
    UNSAFE = 3


class Features(dict[str, FeatureLevels]):
    """Features by name. `epoch` is the metadata offset at which these levels were finalized, -1 if unknown."""

    epoch: int = -1
