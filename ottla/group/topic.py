"""What a coordinator must know of the cluster's topics: the port to the metadata image."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from ottla.kernel.ids import Uuid


class TopicView(Protocol):
    """The topics at one moment. Immutable: a newer one comes in `TopicsChanged`."""

    @property
    def version(self) -> int:
        """The offset of the last metadata record in it."""

    def names(self) -> Iterable[str]:
        """All topics, internal ones too."""

    def topic_id(self, name: str) -> Uuid | None: ...

    def topic_name(self, topic_id: Uuid) -> str | None: ...

    def partition_count(self, name: str) -> int:
        """0 for a topic that does not exist."""

    def racks(self, name: str, partition: int) -> Sequence[str]:
        """The racks that hold a replica of the partition; brokers without a rack are left out."""


def topic_ids(names: Iterable[str], topics: TopicView) -> frozenset[Uuid]:
    """The ids of those of the topics that exist."""
    found = (topics.topic_id(name) for name in names)
    return frozenset(topic_id for topic_id in found if topic_id is not None)
