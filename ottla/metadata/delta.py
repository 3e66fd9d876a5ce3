"""Records -> the next image.

Rules:
- `Delta.replay` is the only way to change metadata. It handles every record type of 4.3 and 4.4.
- A delta belongs to its creator, and `image` consumes it. A map is copied when a record first touches it, and a topic's
  partitions when a record first touches the topic: a batch costs what it touches, plus one copy of each touched map.
- An impossible record (a partition without a topic) raises ValueError: the log is damaged or this program has a bug,
  and continuing would hide it.
- `MetadataReplayer` adds metadata transactions (KIP-868): the records between Begin and End become visible together
  or, after Abort, never.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any

from ottla.kernel.ids import Uuid
from ottla.metadata.image import BrokerEndpoint, BrokerImage, Image, PartitionImage, QuotaEntity, Step, TopicImage
from ottla.metadata.partition_change import changed
from ottla.wire.record import metadata as record

#: Not kept as a feature level: it is in the control records (KAFKA-18979).
_KRAFT_VERSION = "kraft.version"


class Delta:
    """The changes of a sequence of records to an image; `image` completes it."""

    def __init__(self, base: Image) -> None:
        self._base = base
        self._changed: dict[str, Any] = {}
        #: The partitions, by index, of each touched topic.
        self._partitions: dict[str, dict[int, PartitionImage]] = {}
        self._copied_configs: set[tuple[int, str]] = set()
        #: Ordered by the first touch.
        self._touched_topics: dict[str, None] = {}
        self._touched_configs: dict[tuple[int, str], None] = {}
        self._touched_acls: dict[Uuid, None] = {}
        self._copied_quotas: set[QuotaEntity] = set()

    def replay(self, change: object) -> None:
        """Apply one record."""
        replay = _REPLAY.get(type(change))
        if replay is None:
            raise ValueError(f"unknown metadata record: {change!r}")
        replay(self, change)

    def image(self, offset: int, epoch: int, timestamp: int) -> Image:
        """Return the image after all records, which end at `offset`. The delta must not be used afterwards."""
        base = self._base
        if self._partitions:
            topics = self._copy_of("topics")
            for name, partitions in self._partitions.items():
                topics[name] = topics[name]._replace(partitions=_in_order(name, partitions))
        changed = self._changed
        return Image(
            offset=offset,
            epoch=epoch,
            timestamp=timestamp,
            features=changed.get("features", base.features),
            brokers=changed.get("brokers", base.brokers),
            controllers=changed.get("controllers", base.controllers),
            topics=changed.get("topics", base.topics),
            topic_names=changed.get("topic_names", base.topic_names),
            configs=changed.get("configs", base.configs),
            quotas=changed.get("quotas", base.quotas),
            next_producer_id=changed.get("next_producer_id", base.next_producer_id),
            acls=changed.get("acls", base.acls),
            scram=changed.get("scram", base.scram),
            tokens=changed.get("tokens", base.tokens),
            step=Step(
                base.offset, tuple(self._touched_topics), tuple(self._touched_configs), tuple(self._touched_acls)
            ),
        )

    def _copy_of(self, part: str) -> Any:
        """Return the delta's copy of one map of the image."""
        own = self._changed.get(part)
        if own is None:
            own = self._changed[part] = dict(getattr(self._base, part))
        return own

    # ---- topics

    def _topic(self, change: record.TopicRecord) -> None:
        topic_id = change.topic_id
        self._copy_of("topics")[change.name] = TopicImage(change.name, topic_id, ())
        self._copy_of("topic_names")[topic_id] = change.name
        self._partitions[change.name] = {}
        self._touched_topics[change.name] = None

    def _remove_topic(self, change: record.RemoveTopicRecord) -> None:
        name = self._copy_of("topic_names").pop(change.topic_id, None)
        if name is None:
            raise ValueError(f"removal of an unknown topic: {change!r}")
        del self._copy_of("topics")[name]
        self._partitions.pop(name, None)
        self._touched_topics[name] = None
        # Kafka's controller drops a topic's settings together with the topic, without records.
        if (2, name) in self._changed.get("configs", self._base.configs):
            del self._copy_of("configs")[2, name]
            self._touched_configs[2, name] = None
            self._copied_configs.discard((2, name))

    def _touched(self, topic_id: bytes, change: object) -> dict[int, PartitionImage]:
        names = self._changed.get("topic_names", self._base.topic_names)
        name = names.get(topic_id)
        if name is None:
            raise ValueError(f"partition of an unknown topic: {change!r}")
        partitions = self._partitions.get(name)
        if partitions is None:
            partitions = self._partitions[name] = dict(enumerate(self._base.topics[name].partitions))
            self._touched_topics[name] = None
        return partitions

    def _partition(self, change: record.PartitionRecord) -> None:
        self._touched(change.topic_id, change)[change.partition_id] = PartitionImage(
            leader=change.leader,
            leader_epoch=change.leader_epoch,
            replicas=tuple(change.replicas),
            isr=tuple(change.isr),
            partition_epoch=change.partition_epoch,
            removing_replicas=tuple(change.removing_replicas),
            adding_replicas=tuple(change.adding_replicas),
            directories=tuple(change.directories),
            eligible_leader_replicas=tuple(change.eligible_leader_replicas or ()),
            last_known_elr=tuple(change.last_known_elr or ()),
            leader_recovery_state=change.leader_recovery_state,
        )

    def _change_partition(self, change: record.PartitionChangeRecord) -> None:
        partitions = self._touched(change.topic_id, change)
        old = partitions.get(change.partition_id)
        if old is None:
            raise ValueError(f"change of an unknown partition: {change!r}")
        partitions[change.partition_id] = changed(old, change)

    def _clear_elr(self, change: record.ClearElrRecord) -> None:
        """Clear the ELR of one topic or, with an empty name, of all."""
        topics = self._changed.get("topics", self._base.topics)
        for name in [change.topic_name] if change.topic_name else list(topics):
            topic = topics.get(name)
            if topic is None:
                raise ValueError(f"change of an unknown topic: {change!r}")
            touched = self._partitions.get(name)
            pairs = list(touched.items() if touched is not None else enumerate(topic.partitions))
            for index, partition in pairs:
                if partition.eligible_leader_replicas or partition.last_known_elr:
                    self._touched(topic.topic_id, change)[index] = partition._replace(
                        partition_epoch=partition.partition_epoch + 1, eligible_leader_replicas=(), last_known_elr=()
                    )

    # ---- nodes

    def _register_broker(self, change: record.RegisterBrokerRecord) -> None:
        self._copy_of("brokers")[change.broker_id] = BrokerImage(
            broker_id=change.broker_id,
            epoch=change.broker_epoch,
            incarnation_id=change.incarnation_id,
            endpoints=tuple(
                BrokerEndpoint(endpoint.name, endpoint.host, endpoint.port, endpoint.security_protocol)
                for endpoint in change.end_points
            ),
            features=tuple(
                (feature.name, feature.min_supported_version, feature.max_supported_version)
                for feature in change.features
            ),
            rack=change.rack,
            fenced=change.fenced,
            in_controlled_shutdown=change.in_controlled_shutdown,
            is_migrating_zk_broker=change.is_migrating_zk_broker,
            log_dirs=tuple(change.log_dirs),
            cordoned_log_dirs=_uuids(change.cordoned_log_dirs),
        )

    def _registered(self, broker_id: int, epoch: int, change: object) -> BrokerImage:
        brokers = self._changed.get("brokers", self._base.brokers)
        broker: BrokerImage | None = brokers.get(broker_id)
        if broker is None or broker.epoch != epoch:
            raise ValueError(f"unknown broker registration: {change!r}")
        return broker

    def _unregister_broker(self, change: record.UnregisterBrokerRecord) -> None:
        self._registered(change.broker_id, change.broker_epoch, change)
        del self._copy_of("brokers")[change.broker_id]

    def _fence(self, change: record.FenceBrokerRecord) -> None:
        self._copy_of("brokers")[change.id] = self._registered(change.id, change.epoch, change)._replace(fenced=True)

    def _unfence(self, change: record.UnfenceBrokerRecord) -> None:
        self._copy_of("brokers")[change.id] = self._registered(change.id, change.epoch, change)._replace(fenced=False)

    def _change_broker(self, change: record.BrokerRegistrationChangeRecord) -> None:
        broker = self._registered(change.broker_id, change.broker_epoch, change)
        if change.fenced:
            broker = broker._replace(fenced=change.fenced > 0)
        if change.in_controlled_shutdown:
            broker = broker._replace(in_controlled_shutdown=True)
        if change.log_dirs:
            broker = broker._replace(log_dirs=tuple(change.log_dirs))
        if change.cordoned_log_dirs is not None:
            broker = broker._replace(cordoned_log_dirs=_uuids(change.cordoned_log_dirs))
        self._copy_of("brokers")[change.broker_id] = broker

    def _register_controller(self, change: record.RegisterControllerRecord) -> None:
        self._copy_of("controllers")[change.controller_id] = change

    def _unregister_controller(self, change: record.UnregisterControllerRecord) -> None:
        self._copy_of("controllers").pop(change.controller_id, None)

    # ---- the rest

    def _feature_level(self, change: record.FeatureLevelRecord) -> None:
        if change.name == _KRAFT_VERSION:
            return
        if change.feature_level == 0:
            self._copy_of("features").pop(change.name, None)
        else:
            self._copy_of("features")[change.name] = change.feature_level

    def _config(self, change: record.ConfigRecord) -> None:
        key = (change.resource_type, change.resource_name)
        configs = self._copy_of("configs")
        if key not in self._copied_configs:
            configs[key] = dict(configs.get(key, ()))
            self._copied_configs.add(key)
            self._touched_configs[key] = None
        _set(configs, key, change.name, change.value)
        if key not in configs:
            self._copied_configs.discard(key)

    def _quota(self, change: record.ClientQuotaRecord) -> None:
        key = tuple(sorted((part.entity_type, part.entity_name) for part in change.entity))
        quotas = self._copy_of("quotas")
        if key not in self._copied_quotas:
            quotas[key] = dict(quotas.get(key, ()))
            self._copied_quotas.add(key)
        _set(quotas, key, change.key, None if change.remove else change.value)
        if key not in quotas:
            self._copied_quotas.discard(key)

    def _producer_ids(self, change: record.ProducerIdsRecord) -> None:
        self._changed["next_producer_id"] = change.next_producer_id

    def _acl(self, change: record.AccessControlEntryRecord) -> None:
        self._copy_of("acls")[change.id] = change
        self._touched_acls[change.id] = None

    def _remove_acl(self, change: record.RemoveAccessControlEntryRecord) -> None:
        if self._copy_of("acls").pop(change.id, None) is None:
            raise ValueError(f"removal of an unknown ACL: {change!r}")
        self._touched_acls[change.id] = None

    def _scram(self, change: record.UserScramCredentialRecord) -> None:
        self._copy_of("scram")[change.name, change.mechanism] = change

    def _remove_scram(self, change: record.RemoveUserScramCredentialRecord) -> None:
        self._copy_of("scram").pop((change.name, change.mechanism), None)

    def _token(self, change: record.DelegationTokenRecord) -> None:
        self._copy_of("tokens")[change.token_id] = change

    def _remove_token(self, change: record.RemoveDelegationTokenRecord) -> None:
        self._copy_of("tokens").pop(change.token_id, None)

    def _ignore(self, change: object) -> None:
        """Ignore the record: a NoOp changes nothing, and the ZooKeeper migration is over."""


_REPLAY: dict[type, Callable[[Delta, Any], None]] = {
    record.RegisterBrokerRecord: Delta._register_broker,
    record.UnregisterBrokerRecord: Delta._unregister_broker,
    record.TopicRecord: Delta._topic,
    record.PartitionRecord: Delta._partition,
    record.ConfigRecord: Delta._config,
    record.PartitionChangeRecord: Delta._change_partition,
    record.FenceBrokerRecord: Delta._fence,
    record.UnfenceBrokerRecord: Delta._unfence,
    record.RemoveTopicRecord: Delta._remove_topic,
    record.DelegationTokenRecord: Delta._token,
    record.UserScramCredentialRecord: Delta._scram,
    record.FeatureLevelRecord: Delta._feature_level,
    record.ClientQuotaRecord: Delta._quota,
    record.ProducerIdsRecord: Delta._producer_ids,
    record.BrokerRegistrationChangeRecord: Delta._change_broker,
    record.AccessControlEntryRecord: Delta._acl,
    record.RemoveAccessControlEntryRecord: Delta._remove_acl,
    record.NoOpRecord: Delta._ignore,
    record.ZkMigrationStateRecord: Delta._ignore,
    record.RemoveUserScramCredentialRecord: Delta._remove_scram,
    record.RemoveDelegationTokenRecord: Delta._remove_token,
    record.RegisterControllerRecord: Delta._register_controller,
    record.ClearElrRecord: Delta._clear_elr,
    record.UnregisterControllerRecord: Delta._unregister_controller,
}


class MetadataReplayer:
    """Replays the log, batch by batch, into the current image."""

    def __init__(self, image: Image) -> None:
        #: The metadata up to the last batch that ended outside a transaction.
        self.image = image
        #: The offset where the open metadata transaction began, or -1.
        self.transaction_offset = -1
        self._delta: Delta | None = None

    def replay(self, change: object, offset: int, epoch: int, timestamp: int) -> None:
        """Apply one record. It becomes visible with `publish`, but not while a transaction is open."""
        kind = type(change)
        if kind is record.BeginTransactionRecord:
            if self.transaction_offset >= 0:
                raise ValueError(f"metadata transaction at {offset} begins inside the one at {self.transaction_offset}")
            self.publish(offset - 1, epoch, timestamp)
            self.transaction_offset = offset
        elif kind is record.EndTransactionRecord or kind is record.AbortTransactionRecord:
            if self.transaction_offset < 0:
                raise ValueError(f"metadata transaction end at {offset} without a begin")
            self.transaction_offset = -1
            if kind is record.AbortTransactionRecord:
                self._delta = None
        else:
            if self._delta is None:
                self._delta = Delta(self.image)
            self._delta.replay(change)

    def publish(self, offset: int, epoch: int, timestamp: int) -> Image:
        """Return the image up to `offset`, the last offset read."""
        if self.transaction_offset < 0:
            delta, self._delta = self._delta or Delta(self.image), None
            self.image = delta.image(offset, epoch, timestamp)
        return self.image


def _uuids(ids: list[Uuid] | None) -> tuple[Uuid, ...] | None:
    return None if ids is None else tuple(ids)


def _set(maps: MutableMapping[Any, Any], key: Any, name: str, value: Any) -> None:
    """Set one value of a map, or delete it if None; an empty map is removed."""
    if value is None:
        maps[key].pop(name, None)
        if not maps[key]:
            del maps[key]
    else:
        maps[key][name] = value


def _in_order(name: str, partitions: dict[int, PartitionImage]) -> tuple[PartitionImage, ...]:
    try:
        return tuple([partitions[index] for index in range(len(partitions))])
    except KeyError as missing:
        raise ValueError(f"topic {name} has {len(partitions)} partitions, but not partition {missing}") from None
