"""How Kafka Streams names the topics that an application makes for itself; ours are named alike."""

from __future__ import annotations

import re
from collections.abc import Iterable

_INTERNAL = re.compile(
    r".*(-changelog|-repartition|-subscription-registration-topic|-subscription-response-topic)"
    r"|.+-KTABLE-FK-JOIN-SUBSCRIPTION-(REGISTRATION|RESPONSE)-\d+-topic"
)


def internal_topics(application_id: str, topics: Iterable[str]) -> list[str]:
    """The topics that the application has made, in their order."""
    return [each for each in topics if each.startswith(f"{application_id}-") and _INTERNAL.fullmatch(each)]
