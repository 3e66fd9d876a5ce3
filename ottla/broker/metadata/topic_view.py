"""The topics of the metadata image as coordinators see them, and the changes from one image to the next."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ottla.kernel.ids import Uuid
from ottla.kernel.named import NamedTuple
from ottla.metadata.image import Image, TopicImage


class TopicStep(NamedTuple):
    """The topics that changed from one image to the next."""

    created: list[str]
    #: Topics with more partitions, or with replicas on other brokers or directories.
    changed: list[str]
    #: (name, topic id)
    deleted: list[tuple[str, Uuid]]
    #: Only leaders or in-sync replicas changed, which does not concern coordinators.
    adjusted: list[str]


class ImageTopics:
    """`ottla.group.topic.TopicView` of one image."""

    def __init__(self, image: Image) -> None:
        self._image = image

    @property
    def version(self) -> int:
        return self._image.offset

    def names(self) -> Collection[str]:
        return self._image.topics

    def topic_id(self, name: str) -> Uuid | None:
        topic = self._image.topics.get(name)
        return topic.topic_id if topic else None

    def topic_name(self, topic_id: Uuid) -> str | None:
        return self._image.topic_names.get(topic_id)

    def partition_count(self, name: str) -> int:
        topic = self._image.topics.get(name)
        return len(topic.partitions) if topic else 0

    def racks(self, name: str, partition: int) -> Sequence[str]:
        topic = self._image.topics.get(name)
        if topic is None or partition >= len(topic.partitions):
            return ()
        brokers = (self._image.brokers.get(node_id) for node_id in topic.partitions[partition].replicas)
        return [broker.rack for broker in brokers if broker is not None and broker.rack]


def topics_changed(old: Image, new: Image) -> TopicStep:
    """The changes that matter to coordinators and to the node."""
    step = TopicStep([], [], [], [])
    for name in new.touched_topics(old):
        before, after = old.topics.get(name), new.topics.get(name)
        if before is not None and (after is None or after.topic_id != before.topic_id):
            step.deleted.append((name, before.topic_id))
            before = None
        if after is not None and before is None:
            step.created.append(name)
        elif after is not None and before is not None and after is not before:
            (step.changed if _is_moved(before, after) else step.adjusted).append(name)
    return step


def _is_moved(before: TopicImage, after: TopicImage) -> bool:
    """Whether the topic has more partitions, or its replicas lie elsewhere."""
    return len(before.partitions) != len(after.partitions) or any(
        old is not new and (old.replicas != new.replicas or old.directories != new.directories)
        for old, new in zip(before.partitions, after.partitions, strict=True)
    )
