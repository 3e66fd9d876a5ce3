"""The topic settings that the controller uses: min.insync.replicas, and whether unclean elections are allowed.

Rules:
- Precedence: the topic's own setting, the controller node's, the cluster's, the configuration file's.
- The minimum ISR is capped at the replica count of partition 0, so that a topic with one replica can reach it.
"""

from __future__ import annotations

from ottla.kernel.named import NamedTuple
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
    text = _dynamic(image, settings, topic.name, _MIN_ISR)
    configured = settings.min_insync_replicas if text is None else int(text)
    return min(configured, len(topic.partitions[0].replicas))


def may_be_unclean(image: Image, settings: ServerSettings, topic: TopicImage) -> bool:
    """Return True if an out-of-sync replica may lead when no other can."""
    text = _dynamic(image, settings, topic.name, _UNCLEAN)
    return settings.unclean_leader_election_enable if text is None else text.strip().lower() == "true"


def _dynamic(image: Image, settings: ServerSettings, topic: str, key: str) -> str | None:
    for kind, name in ((TOPIC, topic), (BROKER, str(settings.node_id)), (BROKER, "")):
        text = image.config(kind, name).get(key)
        if text is not None:
            return text
    return None
