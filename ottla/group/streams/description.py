"""The handler of StreamsGroupDescribe (0) (KIP-1071)."""

from collections.abc import Iterable, Mapping

from ottla.coordinator.contract import Called
from ottla.group.state.shard import CommandContext
from ottla.group.state.streams import StreamsGroup, StreamsMember
from ottla.group.streams.heartbeat import not_a_streams_group
from ottla.group.topology.configuration import ConfiguredTopology
from ottla.group.topology.topology import InternalTopic, Subtopology
from ottla.kernel.error import ErrorCode
from ottla.wire.api import streams_group_describe as api


def describe_streams_groups(context: CommandContext, call: Called) -> None:
    """Answer with the topology and the members of streams groups."""
    request: api.StreamsGroupDescribeRequest = call.request
    groups = [_describe(context, group_id) for group_id in request.group_ids]
    context.answer(call.ticket, api.StreamsGroupDescribeResponse(groups=groups))


def _describe(context: CommandContext, group_id: str) -> api.DescribedGroup:
    if not group_id:
        return api.DescribedGroup(group_id="", error_code=ErrorCode.INVALID_GROUP_ID)
    group = context.shard.groups.get(group_id)
    if not isinstance(group, StreamsGroup):
        error = not_a_streams_group(group_id, group, what="Group")
        return api.DescribedGroup(group_id=group_id, error_code=error.code, error_message=error.message)
    return api.DescribedGroup(
        group_id=group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        topology=_topology(group),
        members=[_member(group, member) for member in group.members.values()],
    )


def _topology(group: StreamsGroup) -> api.Topology | None:
    """The topology, with the partition counts of internal topics if they are known."""
    topology, configured = group.topology, group.configured
    if topology is None:
        return None
    ready = configured if configured is not None and configured.is_ready else None
    subtopologies = sorted(topology.subtopologies, key=lambda subtopology: subtopology.subtopology_id)
    return api.Topology(
        epoch=topology.epoch, subtopologies=[_subtopology(subtopology, ready) for subtopology in subtopologies]
    )


def _subtopology(subtopology: Subtopology, configured: ConfiguredTopology | None) -> api.Subtopology:
    known = None if configured is None else configured.subtopologies[subtopology.subtopology_id]
    return api.Subtopology(
        subtopology_id=subtopology.subtopology_id,
        source_topics=sorted(subtopology.source_topics),
        repartition_sink_topics=sorted(subtopology.repartition_sinks),
        state_changelog_topics=_infos(subtopology.changelogs if known is None else known.changelogs),
        repartition_source_topics=_infos(
            subtopology.repartition_sources if known is None else known.repartition_sources
        ),
    )


def _infos(topics: Iterable[InternalTopic]) -> list[api.TopicInfo]:
    return [
        api.TopicInfo(
            name=topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            topic_configs=[api.KeyValue(key=key, value=value) for key, value in topic.configs],
        )
        for topic in sorted(topics, key=lambda topic: topic.name)
    ]


def _member(group: StreamsGroup, member: StreamsMember) -> api.Member:
    target = group.target_of(member.member_id)
    endpoint = member.endpoint
    return api.Member(
        member_id=member.member_id,
        member_epoch=member.epoch,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        topology_epoch=member.topology_epoch,
        process_id=member.process_id,
        user_endpoint=None if endpoint is None else api.Endpoint(host=endpoint[0], port=endpoint[1]),
        client_tags=[api.KeyValue(key=key, value=value) for key, value in member.client_tags.items()],
        assignment=_assignment(member.assigned.active, member.assigned.standby, member.assigned.warmup),
        target_assignment=_assignment(target.active, target.standby, target.warmup),
    )


def _assignment(*roles: Mapping[str, Iterable[int]]) -> api.Assignment:
    active, standby, warmup = (
        [
            api.TaskIds(subtopology_id=subtopology, partitions=sorted(partitions))
            for subtopology, partitions in sorted(tasks.items())
        ]
        for tasks in roles
    )
    return api.Assignment(active_tasks=active, standby_tasks=standby, warmup_tasks=warmup)
