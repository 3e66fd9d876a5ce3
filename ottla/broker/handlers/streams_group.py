"""StreamsGroupHeartbeat (0): check the topology's names, pass the heartbeat to the group's coordinator
(`ottla.group.streams.heartbeat`), and create the internal topics that the coordinator finds missing.

KIPs: 1071.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

from ottla.broker.call.handler import Call, handles
from ottla.broker.call.reply import Later, Reply, in_turns
from ottla.broker.coordinators.group_protocol import STREAMS, check_enabled
from ottla.broker.coordinators.internal_topic import checked_names, report_denied
from ottla.group.event import StreamsHeartbeat
from ottla.group.failure import failure
from ottla.group.topology.topology import InternalTopic
from ottla.kernel.error import KafkaError
from ottla.security.acl import AclOperation, AclResource
from ottla.wire.api import ApiKey
from ottla.wire.api.streams_group_heartbeat import StreamsGroupHeartbeatRequest


@handles(ApiKey.STREAMS_GROUP_HEARTBEAT, error_response=failure)
def streams_group_heartbeat(call: Call, request: StreamsGroupHeartbeatRequest) -> Reply:
    """Pass the heartbeat to its group's coordinator, then create missing internal topics."""
    check_enabled(call.node, STREAMS)
    return _ask(call, request) if request.topology is None else in_turns(call.connection, _check_and_ask(call, request))


def _check_and_ask(call: Call, request: StreamsGroupHeartbeatRequest) -> Generator[None, None, Later]:
    assert request.topology is not None
    yield from checked_names(request.topology)
    return _ask(call, request)


def _ask(call: Call, request: StreamsGroupHeartbeatRequest) -> Later:
    groups = call.node.groups
    later = Later()

    def answered(result: StreamsHeartbeat | KafkaError) -> None:
        if isinstance(result, StreamsHeartbeat) and result.missing:
            denied = _denied(call, result.missing)
            if denied:
                report_denied(result.response, denied)
            else:
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


def _denied(call: Call, topics: Sequence[InternalTopic]) -> list[str]:
    """The names of the topics that the client may not create; with one of them none is created."""
    authorizer = call.node.authorizer
    if authorizer is None or authorizer.allows(call, AclOperation.CREATE, AclResource.CLUSTER, logged=False):
        return []
    names = [topic.name for topic in topics]
    return [name for name in names if not authorizer.allows(call, AclOperation.CREATE, AclResource.TOPIC, name)]
