"""The records of a decision in progress, and the partitions with these records applied."""

from __future__ import annotations

from functools import partial
from typing import Any

from ottla.controller.active import Active
from ottla.controller.partition_change import PartitionChange, allowed_election
from ottla.controller.placement import is_offline
from ottla.controller.topic_rules import TopicRules, rules_of
from ottla.metadata.image import Image, PartitionImage, TopicImage
from ottla.metadata.index import PartitionIndex, PartitionKey
from ottla.metadata.partition_change import changed
from ottla.settings.server.settings import ServerSettings
from ottla.wire.record.metadata import PartitionChangeRecord

NO_BROKER = -1


class Draft:
    """A decision in progress: a second change of a partition builds on the first."""

    def __init__(self, image: Image, settings: ServerSettings, active: Active) -> None:
        self.image = image
        self.settings = settings
        self.active = active
        self.records: list[Any] = []
        #: The changed partitions, and the changes that are not in them yet.
        self._partitions: dict[PartitionKey, PartitionImage] = {}
        self._changes: dict[PartitionKey, list[PartitionChangeRecord]] = {}
        self._rules: dict[str, TopicRules] = {}

    @property
    def index(self) -> PartitionIndex:
        """The partitions of the image, without the draft's own changes."""
        return self.active.index(self.image)

    def rules(self, topic: TopicImage) -> TopicRules:
        """Return the topic's election rules."""
        rules = self._rules.get(topic.name)
        if rules is None:
            rules = self._rules[topic.name] = rules_of(self.image, self.settings, topic)
        return rules

    def partition(self, topic: TopicImage, index: int) -> PartitionImage:
        """Return the partition with the draft's changes applied. IndexError if it does not exist."""
        partition = topic.partitions[index]
        if self._changes or self._partitions:
            key = PartitionKey(topic.topic_id, index)
            partition = self._partitions.get(key, partition)
            if records := self._changes.pop(key, None):
                for record in records:
                    partition = changed(partition, record)
                self._partitions[key] = partition
        return partition

    def change(self, topic: TopicImage, index: int) -> PartitionChange:
        """Start a change of the partition."""
        return PartitionChange(self.image, self.rules(topic), topic, index, self.partition(topic, index))

    def add(self, topic: TopicImage, index: int, record: PartitionChangeRecord | None) -> None:
        """Add the record of a change, if there is one."""
        if record is not None:
            self.records.append(record)
            self._changes.setdefault(PartitionKey(topic.topic_id, index), []).append(record)

    def update(
        self, keys: list[PartitionKey], *, gone: int = NO_BROKER, back: int = NO_BROKER, crashed: int = NO_BROKER
    ) -> None:
        """Update leaders and ISRs of these partitions after a broker is `gone`, comes `back`, or has `crashed`.

        A crashed broker may have lost records, so it is not an eligible leader replica either.
        """
        image = self.image
        for key in keys:
            topic = image.topic(key.topic_id)
            assert topic is not None, key
            partition, rules = self.partition(topic, key.partition), self.rules(topic)
            change = PartitionChange(image, rules, topic, key.partition, partition)
            change.election = allowed_election(rules)
            change.acceptable = partial(_acceptable, image, partition, gone, crashed, back)
            change.isr = [replica for replica in partition.isr if replica not in (gone, crashed)]
            change.unclean = (crashed,)
            self.add(topic, key.partition, change.build())


def _acceptable(image: Image, partition: PartitionImage, gone: int, crashed: int, back: int, replica: int) -> bool:
    broker = image.brokers.get(replica)
    if replica in (gone, crashed) or broker is None or is_offline(image, partition, replica):
        return False
    return replica == back or broker.is_active
