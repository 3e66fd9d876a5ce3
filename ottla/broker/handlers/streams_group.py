"""StreamsGroupHeartbeat (0): check the topology's names, pass the heartbeat to the group's coordinator
(`ottla.group.streams.heartbeat`), and create the internal topics that the coordinator finds missing.

KIPs: 1071.
"""

from __future__ import annotations

from ottla.broker.call.handler import Call, handles
from ottla.broker.call.reply import Later
from ottla.broker.coordinators.group_protocol import STREAMS, check_enabled
from ottla.group.event import StreamsHeartbeat
from ottla.group.failure import failure
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import INTERNAL_TOPICS
from ottla.kernel.topic_name import is_legal_name
from ottla.wire.api import ApiKey
from ottla.wire.api.streams_group_heartbeat import StreamsGroupHeartbeatRequest, Topology


@handles(ApiKey.STREAMS_GROUP_HEARTBEAT, error_response=failure)
def streams_group_heartbeat(call: Call, request: StreamsGroupHeartbeatRequest) -> Later:
    """Pass the heartbeat to its group's coordinator, then create missing internal topics."""
    check_enabled(call.node, STREAMS)
    if request.topology is not None:
        _check_names(request.topology)
    groups = call.node.groups
    later = Later()

    def answered(result: StreamsHeartbeat | KafkaError) -> None:
        if isinstance(result, StreamsHeartbeat) and result.missing:
            groups.internal_topics.make(result.missing, result.response)
        later.resolve(result.response if isinstance(result, StreamsHeartbeat) else result)

    groups.driver_of(request.group_id).ask(
        request,
        call.version,
        answered,
        client_id=call.client_id,
        client_host=call.client_host,
        principal=call.principal,
    )
    return later


def _check_names(topology: Topology) -> None:
    names = dict.fromkeys(
        name
        for subtopology in topology.subtopologies
        for name in (
            *subtopology.source_topics,
            *subtopology.repartition_sink_topics,
            *(topic.name for topic in subtopology.repartition_source_topics),
            *(topic.name for topic in subtopology.state_changelog_topics),
        )
    )
    prohibited = [name for name in names if name in INTERNAL_TOPICS]
    if prohibited:
        text = f"Use of Kafka internal topics {','.join(prohibited)} in a Kafka Streams topology is prohibited."
        raise KafkaError(ErrorCode.STREAMS_INVALID_TOPOLOGY, text)
    illegal = [name for name in names if not is_legal_name(name)]
    if illegal:
        text = f"Topic names {','.join(illegal)} are not valid topic names."
        raise KafkaError(ErrorCode.STREAMS_INVALID_TOPOLOGY, text)
