"""The names that Kafka Streams gives the internal topics of an application; ours follow them."""

from __future__ import annotations

import re
from collections.abc import Iterable

_INTERNAL = re.compile(
    r".*(-changelog|-repartition|-subscription-registration-topic|-subscription-response-topic)"
    r"|.+-KTABLE-FK-JOIN-SUBSCRIPTION-(REGISTRATION|RESPONSE)-\d+-topic"
)


def internal_topics(application_id: str, topics: Iterable[str]) -> list[str]:
    """Return the internal topics of the application, in the order given."""
    return [topic for topic in topics if topic.startswith(f"{application_id}-") and _INTERNAL.fullmatch(topic)]
