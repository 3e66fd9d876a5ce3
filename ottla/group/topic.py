"""The port to the metadata image: the topics that a coordinator reads."""

from collections.abc import Collection, Iterable, Sequence
from itertools import islice
from typing import Protocol

from ottla.kernel.ids import Uuid


class TopicView(Protocol):
    """The topics at one metadata version. Immutable; `TopicsChanged` brings a newer one."""

    @property
    def version(self) -> int:
        """The offset of the last metadata record in the view."""

    def names(self) -> Collection[str]:
        """All topics, including internal ones. `in` is a look-up."""

    def topic_id(self, name: str) -> Uuid | None: ...

    def topic_name(self, topic_id: Uuid) -> str | None: ...

    def partition_count(self, name: str) -> int:
        """The number of partitions; 0 for an unknown topic."""

    def racks(self, name: str, partition: int) -> Sequence[str]:
        """The racks with a replica of the partition; brokers without a rack are left out."""


def merged(partitions: Iterable[tuple[Uuid, Iterable[int]]]) -> dict[Uuid, frozenset[int]]:
    """The partitions of each topic. A client may name a topic in very many entries."""
    topics: dict[Uuid, set[int]] = {}
    for topic_id, indexes in partitions:
        topics.setdefault(topic_id, set()).update(indexes)
    return {topic_id: frozenset(indexes) for topic_id, indexes in topics.items()}


def existing(names: Iterable[str], topics: TopicView) -> list[str]:
    """The names of topics that exist. A client may name very many topics, of which few do."""
    known = topics.names()
    return [name for name in names if name in known]


def topic_ids(names: Iterable[str], topics: TopicView) -> frozenset[Uuid]:
    """The ids of the topics that exist."""
    ids = (topics.topic_id(name) for name in existing(names, topics))
    return frozenset(topic_id for topic_id in ids if topic_id is not None)


class Subscribed(Protocol):
    """A member that names its topics."""

    @property
    def topics(self) -> tuple[str, ...]: ...


#: A new subscription is compared with those of so many members.
_ALIKE = 8


def as_before(topics: tuple[str, ...], members: Iterable[Subscribed]) -> tuple[str, ...]:
    """The same topics, as the object of another member: most groups have one subscription, and it is stored once."""
    return next((each.topics for each in islice(members, _ALIKE) if each.topics == topics), topics)


def names_of(members: Iterable[Subscribed]) -> dict[str, None]:
    """The topics that members name. Each stored subscription is looked through once."""
    stored = {id(each.topics): each.topics for each in members}
    names: dict[str, None] = {}
    for topics in stored.values():
        names |= dict.fromkeys(topics)
    return names
