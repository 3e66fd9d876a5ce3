"""The topic settings that the controller uses: min.insync.replicas, and whether unclean elections are allowed.

Rules:
- Precedence: the topic's own setting, the controller node's, the cluster's, the configuration file's.
- The minimum ISR is capped at the replica count of partition 0, so that a topic with one replica can reach it.
"""

from __future__ import annotations

from collections.abc import Iterator

from ottla.kernel.named import NamedTuple
from ottla.kernel.validators import whole_number
from ottla.metadata.image import BROKER, TOPIC, Image, TopicImage
from ottla.settings.server.settings import ServerSettings

_MIN_ISR = "min.insync.replicas"
_UNCLEAN = "unclean.leader.election.enable"


class TopicRules(NamedTuple):
    """The election rules of a topic."""

    min_isr: int
    may_be_unclean: bool


def rules_of(image: Image, settings: ServerSettings, topic: TopicImage) -> TopicRules:
    """Return both rules, for callers that change many partitions of a topic."""
    return TopicRules(min_isr(image, settings, topic), may_be_unclean(image, settings, topic))


def min_isr(image: Image, settings: ServerSettings, topic: TopicImage) -> int:
    """Return the number of in-sync replicas that a partition needs to accept acks=all."""
    configured = settings.min_insync_replicas
    for text in _dynamic(image, settings, topic.name, _MIN_ISR):
        number = whole_number(text.strip(), 32)
        # Apache Kafka's controllers let any value of a broker's config through; brokers ignore one that does not fit.
        if number is not None and number > 0:
            configured = number
            break
    return min(configured, len(topic.partitions[0].replicas))


def may_be_unclean(image: Image, settings: ServerSettings, topic: TopicImage) -> bool:
    """Return True if an out-of-sync replica may lead when no other can."""
    text = next(_dynamic(image, settings, topic.name, _UNCLEAN), None)
    return settings.unclean_leader_election_enable if text is None else text.strip().lower() == "true"


def _dynamic(image: Image, settings: ServerSettings, topic: str, key: str) -> Iterator[str]:
    """Yield the values of a setting that are not the file's, the one that counts first."""
    for kind, name in ((TOPIC, topic), (BROKER, str(settings.node_id)), (BROKER, "")):
        text = image.config(kind, name).get(key)
        if text is not None:
            yield text
