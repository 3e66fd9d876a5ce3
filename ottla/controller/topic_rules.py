"""What a topic's settings say to the controller: its least ISR, and whether an unclean leader may be elected.

Rules:
- A topic's own setting comes first, then the one of the controller's node, the cluster's, the configuration file's.
- The least ISR is never more than the replicas of partition 0: a topic of one replica is not without quorum forever.
"""

from __future__ import annotations

from ottla.kernel.named import NamedTuple
from ottla.metadata.image import BROKER, TOPIC, Image, TopicImage
from ottla.settings.server.settings import ServerSettings

_MIN_ISR = "min.insync.replicas"
_UNCLEAN = "unclean.leader.election.enable"


class TopicRules(NamedTuple):
    """What the settings of a topic allow."""

    min_isr: int
    may_be_unclean: bool


def rules_of(image: Image, settings: ServerSettings, topic: TopicImage) -> TopicRules:
    """Both of them, for who changes many partitions of a topic."""
    return TopicRules(min_isr(image, settings, topic), may_be_unclean(image, settings, topic))


def min_isr(image: Image, settings: ServerSettings, topic: TopicImage) -> int:
    """The in-sync replicas without which a partition of this topic takes no acks=all."""
    text = _dynamic(image, settings, topic.name, _MIN_ISR)
    wanted = settings.min_insync_replicas if text is None else int(text)
    return min(wanted, len(topic.partitions[0].replicas))


def may_be_unclean(image: Image, settings: ServerSettings, topic: TopicImage) -> bool:
    """May a replica lead that is not in sync when no other can?"""
    text = _dynamic(image, settings, topic.name, _UNCLEAN)
    return settings.unclean_leader_election_enable if text is None else text.strip().lower() == "true"


def _dynamic(image: Image, settings: ServerSettings, topic: str, key: str) -> str | None:
    for kind, name in ((TOPIC, topic), (BROKER, str(settings.node_id)), (BROKER, "")):
        text = image.config(kind, name).get(key)
        if text is not None:
            return text
    return None
