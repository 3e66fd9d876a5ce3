"""The partitions of each endpoint of a streams group, for interactive queries (KIP-67).

A process that answers queries reports its host and port; every member can then find the process with a key's state.
"""

from collections.abc import Iterable, Mapping

from ottla.group.state.streams import StreamsGroup, StreamsMember
from ottla.group.topic import TopicView
from ottla.wire.api.streams_group_heartbeat import Endpoint, EndpointToPartitions, TopicPartition


def endpoints(group: StreamsGroup, member: StreamsMember, topics: TopicView) -> list[EndpointToPartitions]:
    """The partitions of every member with an endpoint; `member` is used in its new state."""
    members = [other for other in group.members.values() if other.member_id != member.member_id]
    result = []
    for other in (*members, member):
        if other.endpoint is not None:
            host, port = other.endpoint
            result.append(
                EndpointToPartitions(
                    user_endpoint=Endpoint(host=host, port=port),
                    active_partitions=_partitions(group, other.assigned.active, topics),
                    standby_partitions=_partitions(group, other.assigned.standby, topics),
                )
            )
    return result


def _partitions(group: StreamsGroup, tasks: Mapping[str, Iterable[int]], topics: TopicView) -> list[TopicPartition]:
    """The partitions that the tasks read; a topic with few partitions has none for some tasks."""
    configured = {} if group.configured is None else group.configured.subtopologies
    result = []
    for subtopology, partitions in tasks.items():
        known = configured.get(subtopology)
        for topic in () if known is None else known.subtopology.inputs:
            count = topics.partition_count(topic)
            result.append(TopicPartition(topic=topic, partitions=[index for index in partitions if index < count]))
    return result
