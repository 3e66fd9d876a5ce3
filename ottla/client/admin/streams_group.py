"""The admin calls for streams groups (KIP-1071). Listing, deleting and offsets work as for any group."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.client.admin.share_group import ShareGroupCalls
from ottla.client.connection.connection import BrokerConnection
from ottla.client.connection.metadata import ClusterNode
from ottla.kernel.client_error import check, only
from ottla.kernel.frozen import frozen
from ottla.security.acl import AclOperation, authorized_operations
from ottla.wire.api.streams_group_describe import (
    Assignment,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
    TaskIds,
)

#: A task: (subtopology, partition).
Task = tuple[str, int]


@frozen
class StreamsTasks:
    """The tasks of a member."""

    active: tuple[Task, ...]
    standby: tuple[Task, ...]
    warmup: tuple[Task, ...]


@frozen
class StreamsMemberDescription:
    """An instance of a streams application."""

    id: str
    epoch: int
    instance_id: str | None
    rack: str | None
    client_id: str
    host: str
    process_id: str
    topology_epoch: int
    assignment: StreamsTasks
    target: StreamsTasks


@frozen
class SubtopologyDescription:
    """A part of a streams application's topology that runs as its own tasks."""

    id: str
    source_topics: tuple[str, ...]
    repartition_sink_topics: tuple[str, ...]
    state_changelog_topics: tuple[str, ...]
    repartition_source_topics: tuple[str, ...]


@frozen
class StreamsGroupDescription:
    """A streams group with its topology and members."""

    id: str
    state: str
    epoch: int
    assignment_epoch: int
    topology_epoch: int | None
    subtopologies: tuple[SubtopologyDescription, ...]
    members: tuple[StreamsMemberDescription, ...]
    coordinator: ClusterNode
    #: Operations that the principal may perform on the group (KIP-430); None unless requested.
    authorized_operations: frozenset[AclOperation] | None = None


class StreamsGroupCalls(ShareGroupCalls):
    """The part of `AsyncAdmin` for streams groups."""

    async def describe_streams_group(
        self, group: str, *, include_authorized_operations: bool = False
    ) -> StreamsGroupDescription:
        """Describe a streams group: state, topology and members. KafkaError GROUP_ID_NOT_FOUND if it does not exist.

        With `include_authorized_operations`, also the operations that the principal may perform on it (KIP-430).
        """
        with_operations = include_authorized_operations

        async def attempt(connection: BrokerConnection) -> StreamsGroupDescription:
            request = StreamsGroupDescribeRequest(group_ids=[group], include_authorized_operations=with_operations)
            response = await self._on(connection, request, StreamsGroupDescribeResponse)
            described = only(response.groups, group)
            check(described.error_code, described.error_message)
            subtopologies = () if described.topology is None else described.topology.subtopologies or ()
            return StreamsGroupDescription(
                group,
                described.group_state,
                described.group_epoch,
                described.assignment_epoch,
                None if described.topology is None else described.topology.epoch,
                tuple(
                    SubtopologyDescription(
                        sub.subtopology_id,
                        tuple(sub.source_topics),
                        tuple(sub.repartition_sink_topics),
                        tuple(topic.name for topic in sub.state_changelog_topics),
                        tuple(topic.name for topic in sub.repartition_source_topics),
                    )
                    for sub in subtopologies
                ),
                tuple(
                    StreamsMemberDescription(
                        member.member_id,
                        member.member_epoch,
                        member.instance_id,
                        member.rack_id,
                        member.client_id,
                        member.client_host,
                        member.process_id,
                        member.topology_epoch,
                        _tasks(member.assignment),
                        _tasks(member.target_assignment),
                    )
                    for member in described.members
                ),
                self._node_of(group),
                authorized_operations(described.authorized_operations),
            )

        return await self._coordinator(group, attempt)


def _tasks(assignment: Assignment) -> StreamsTasks:
    return StreamsTasks(_flat(assignment.active_tasks), _flat(assignment.standby_tasks), _flat(assignment.warmup_tasks))


def _flat(tasks: Iterable[TaskIds]) -> tuple[Task, ...]:
    return tuple((task.subtopology_id, number) for task in tasks for number in task.partitions)
