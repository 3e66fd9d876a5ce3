"""The metadata of a cluster at one offset of the metadata log. Everything here is immutable.

Rules:
- An image never changes. `ottla.metadata.delta` creates the next image from it. Both share the parts that no record
  touched, so `old.topics is new.topics` means that no topic changed.
- The maps are plain dicts behind a read-only type: reads run at full speed, and a map is copied once for each batch of
  records that touches it (docs/decisions/0030).
- An image knows which topics and settings its last batch touched, so that a caller that follows every step checks
  only those.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field

from ottla.kernel.frozen import frozen
from ottla.kernel.ids import TopicPartition, Uuid
from ottla.kernel.named import NamedTuple
from ottla.wire.record.metadata import (
    AccessControlEntryRecord,
    DelegationTokenRecord,
    RegisterControllerRecord,
    UserScramCredentialRecord,
)

NO_LEADER = -1
METADATA_VERSION = "metadata.version"

#: Kinds of resources that carry settings (ConfigResource.Type).
TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32


class PartitionImage(NamedTuple):
    """The current state of a partition."""

    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    #: Incremented with every change of the partition.
    partition_epoch: int = 0
    removing_replicas: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    #: The directory of each replica, in the order of `replicas` (KIP-858).
    directories: tuple[Uuid, ...] = ()
    eligible_leader_replicas: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    #: 0 recovered, 1 recovering from an unclean election (KIP-704).
    leader_recovery_state: int = 0

    @property
    def is_reassigning(self) -> bool:
        return bool(self.removing_replicas or self.adding_replicas)


class TopicImage(NamedTuple):
    """A topic with its partitions, by index."""

    name: str
    topic_id: Uuid
    partitions: tuple[PartitionImage, ...]


class BrokerEndpoint(NamedTuple):
    """A broker's address on one listener."""

    name: str
    host: str
    port: int
    #: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL.
    security_protocol: int


class BrokerImage(NamedTuple):
    """A registered broker. `epoch` is the offset of its registration."""

    broker_id: int
    epoch: int
    incarnation_id: Uuid
    endpoints: tuple[BrokerEndpoint, ...]
    #: (name, lowest level, highest level) of each feature, in the broker's order.
    features: tuple[tuple[str, int, int], ...]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool = False
    is_migrating_zk_broker: bool = False
    log_dirs: tuple[Uuid, ...] = ()
    #: None if the broker never reported them (KIP-1066).
    cordoned_log_dirs: tuple[Uuid, ...] | None = None

    @property
    def is_active(self) -> bool:
        """True if the broker may lead partitions."""
        return not (self.fenced or self.in_controlled_shutdown)


class Step(NamedTuple):
    """The parts of the image that one batch touched and possibly changed."""

    #: The offset of the image that it was applied to.
    since: int
    topics: tuple[str, ...]
    #: (kind, name) of resources.
    configs: tuple[tuple[int, str], ...]
    acls: tuple[Uuid, ...] = ()


#: A client quota's entity: (type, name or None for the default) of each part, sorted by type.
QuotaEntity = tuple[tuple[str, str | None], ...]


@frozen
class Image:
    """The metadata up to and including `offset`. Every log starts from `Image.empty()`."""

    #: The last offset included; -1 if empty.
    offset: int
    #: The leader epoch and timestamp of the batch with that offset.
    epoch: int
    timestamp: int
    #: Finalized feature levels, including `metadata.version` from the first record on.
    features: Mapping[str, int]
    brokers: Mapping[int, BrokerImage]
    controllers: Mapping[int, RegisterControllerRecord]
    topics: Mapping[str, TopicImage]
    topic_names: Mapping[Uuid, str]
    configs: Mapping[tuple[int, str], Mapping[str, str]]
    quotas: Mapping[QuotaEntity, Mapping[str, float]]
    #: The first id of the next block of producer ids; -1 before the first allocation.
    next_producer_id: int
    acls: Mapping[Uuid, AccessControlEntryRecord]
    scram: Mapping[tuple[str, int], UserScramCredentialRecord]
    tokens: Mapping[str, DelegationTokenRecord]
    #: The step from the previous image; None for the empty image.
    step: Step | None = field(default=None, compare=False, repr=False)

    @classmethod
    def empty(cls) -> Image:
        """Return the image of an empty log."""
        return cls(-1, -1, -1, {}, {}, {}, {}, {}, {}, {}, -1, {}, {}, {})

    @property
    def metadata_version(self) -> int:
        """The level of `metadata.version`; 0 before the bootstrap records."""
        return self.features.get(METADATA_VERSION, 0)

    @property
    def has_elr(self) -> bool:
        """True if eligible leader replicas are enabled (KIP-966)."""
        return self.features.get("eligible.leader.replicas.version", 0) > 0

    def topic(self, topic_id: Uuid) -> TopicImage | None:
        """Return a topic by its id; None if it does not exist."""
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics[name]

    def has(self, tp: TopicPartition) -> bool:
        """Return True if the partition exists."""
        topic = self.topics.get(tp.topic)
        return topic is not None and 0 <= tp.partition < len(topic.partitions)

    def config(self, kind: int, name: str) -> Mapping[str, str]:
        """Return the settings of one resource; empty if none are set."""
        return self.configs.get((kind, name), _NO_CONFIG)

    def config_names(self, kind: int) -> list[str]:
        """Return the resources of a kind that have settings."""
        return [name for resource_kind, name in self.configs if resource_kind == kind]

    def changed_configs(self, old: Image, kind: int) -> list[str]:
        """Return the resources of a kind whose settings differ from those in `old`."""
        if self.configs is old.configs:
            return []
        step = self._step_from(old)
        keys = step.configs if step is not None else dict.fromkeys([*self.configs, *old.configs])
        return [key[1] for key in keys if key[0] == kind and old.configs.get(key) != self.configs.get(key)]

    def wrote_configs(self, old: Image, kind: int, name: str) -> bool:
        """Return True if settings of this resource were written since `old`, also with the values that they had."""
        step = self._step_from(old)
        return self.config(kind, name) != old.config(kind, name) or (step is not None and (kind, name) in step.configs)

    def touched_topics(self, old: Image) -> Iterable[str]:
        """Return the names of all topics that may have been created, changed or deleted since `old`."""
        if self.topics is old.topics:
            return ()
        step = self._step_from(old)
        return step.topics if step is not None else dict.fromkeys([*self.topics, *old.topics])

    def touched_acls(self, old: Image) -> Iterable[Uuid]:
        """Return the ids of all ACLs that may differ from those in `old`."""
        if self.acls is old.acls:
            return ()
        step = self._step_from(old)
        return step.acls if step is not None else dict.fromkeys([*self.acls, *old.acls])

    def _step_from(self, old: Image) -> Step | None:
        return self.step if self.step is not None and self.step.since == old.offset else None

    def validate(self) -> None:
        """Assert every invariant. For tests: it visits everything."""
        assert len(self.topics) == len(self.topic_names)
        for name, topic in self.topics.items():
            assert topic.name == name
            assert self.topic_names[topic.topic_id] == name
            assert topic.partitions, f"{name} has no partitions"
            for partition in topic.partitions:
                assert partition.leader == NO_LEADER or partition.leader in partition.isr
                assert set(partition.isr) <= set(partition.replicas)
                assert not partition.directories or len(partition.directories) == len(partition.replicas)
        assert all(values for values in self.configs.values())
        assert all(level > 0 for level in self.features.values())


_NO_CONFIG: Mapping[str, str] = {}
