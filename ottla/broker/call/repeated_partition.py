"""A Produce request that names a partition twice, which no client of ours or of Apache Kafka sends.

Apache Kafka reads such a request into a map: the last entry is written, and the partition is answered once. An entry
that is refused for its records alone takes the place of the others, because Apache Kafka answers with its error.
"""

from collections.abc import Callable, Generator
from typing import Any

from ottla.wire.api.produce import PartitionProduceData, ProduceRequest, TopicProduceData

_ENTRIES_PER_STEP = 200


def drop(request: ProduceRequest, refusal: Callable[[PartitionProduceData], Any]) -> Generator[None, None, None]:
    """Leave one entry for each partition in the request. `refusal` is the error of an entry's records, or None."""
    topics: dict[str | bytes, tuple[TopicProduceData, dict[int, PartitionProduceData]]] = {}
    number = 0
    for topic in request.topic_data:
        kept = topics.setdefault(topic.name or topic.topic_id, (topic, {}))[1]
        for data in topic.partition_data:
            earlier = kept.get(data.index)
            if earlier is None or refusal(earlier) is None or refusal(data) is not None:
                kept[data.index] = data
            number += 1
            if not number % _ENTRIES_PER_STEP:
                yield
    for topic, parts in topics.values():
        topic.partition_data = list(parts.values())
    request.topic_data = [topic for topic, _ in topics.values()]
