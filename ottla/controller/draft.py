"""The records of one decision while it is made, and the partitions as they are with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.controller.active import Active
from ottla.controller.partition_change import PartitionChange, allowed_election
from ottla.controller.placement import is_offline
from ottla.metadata.image import Image, PartitionImage, TopicImage
from ottla.metadata.index import PartitionIndex, PartitionKey
from ottla.metadata.partition_change import changed
from ottla.settings.server.settings import ServerSettings
from ottla.wire.record.metadata import PartitionChangeRecord

NOBODY = -1


class Draft:
    """Made for one decision: two changes of one partition in it build on each other."""

    def __init__(self, image: Image, settings: ServerSettings, active: Active) -> None:
        self.image = image
        self.settings = settings
        self.active = active
        self.records: list[Any] = []
        self._changed: dict[PartitionKey, PartitionImage] = {}

    @property
    def index(self) -> PartitionIndex:
        """The partitions of the image, without what was decided since."""
        return self.active.index(self.image)

    def partition(self, topic: TopicImage, index: int) -> PartitionImage:
        """The partition with what was decided so far. IndexError when there is none."""
        return self._changed.get(PartitionKey(topic.topic_id, index)) or topic.partitions[index]

    def change(self, topic: TopicImage, index: int) -> PartitionChange:
        """A change to fill in."""
        return PartitionChange(self.image, self.settings, topic, index, self.partition(topic, index))

    def add(self, topic: TopicImage, index: int, record: PartitionChangeRecord | None) -> PartitionImage:
        """Take the record of a change, if there is one; the partition after it."""
        partition = self.partition(topic, index)
        if record is not None:
            self.records.append(record)
            partition = self._changed[PartitionKey(topic.topic_id, index)] = changed(partition, record)
        return partition

    def update(
        self, keys: list[PartitionKey], *, gone: int = NOBODY, back: int = NOBODY, crashed: int = NOBODY
    ) -> None:
        """Leaders and in-sync sets of these partitions when a broker is `gone`, comes `back`, or has `crashed`.

        A crashed broker may have lost records: it is no eligible leader replica either.
        """
        for key in keys:
            topic = self.image.topic(key.topic_id)
            assert topic is not None, key
            partition = self.partition(topic, key.partition)
            change = self.change(topic, key.partition)
            change.election = allowed_election(self.image, self.settings, topic)
            change.acceptable = self._acceptable(partition, gone=(gone, crashed), back=back)
            change.isr = [replica for replica in partition.isr if replica not in (gone, crashed)]
            change.unclean = (crashed,)
            self.add(topic, key.partition, change.build())

    def _acceptable(self, partition: PartitionImage, *, gone: tuple[int, int], back: int) -> Callable[[int], bool]:
        image = self.image

        def acceptable(replica: int) -> bool:
            broker = image.brokers.get(replica)
            if replica in gone or broker is None or is_offline(image, partition, replica):
                return False
            return replica == back or broker.is_active

        return acceptable
