"""The admin calls for groups and their offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.client.admin.call import by_topic, collect
from ottla.client.admin.offset import OffsetCalls
from ottla.client.admin.result import (
    GroupDescription,
    GroupListing,
    GroupType,
    ListedOffset,
    MemberDescription,
    OffsetSpec,
    PartitionLag,
    Results,
)
from ottla.client.assignment.consumer_protocol import parse_assignment, parse_subscription
from ottla.client.connection.cluster import GROUP
from ottla.client.connection.connection import BrokerConnection
from ottla.client.connection.metadata import ClusterNode
from ottla.client.membership.commit import CommittedOffset
from ottla.kernel.client_error import check, error_of, left_out, only
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.ids import TopicPartition
from ottla.security.acl import authorized_operations
from ottla.wire.api import ApiKey
from ottla.wire.api import consumer_group_describe as modern
from ottla.wire.api import describe_groups as classic
from ottla.wire.api.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from ottla.wire.api.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from ottla.wire.api.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.wire.api.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.wire.api.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from ottla.wire.api.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)

#: The last versions of OffsetCommit and OffsetFetch with topic names. Later ones take topic ids, but an admin call may
#: ask for the offsets of a deleted topic.
_NAMED_TOPICS = 9


class GroupCalls(OffsetCalls):
    """The part of `AsyncAdmin` for groups."""

    async def list_groups(self, *, states: Iterable[str] = (), types: Iterable[GroupType] = ()) -> list[GroupListing]:
        """All groups of the cluster, or those in these states and of these types, sorted by id."""
        request = ListGroupsRequest(states_filter=list(states), types_filter=[group_type.value for group_type in types])
        listings: dict[str, GroupListing] = {}
        await self._cluster.update()
        for node_id in list(self._cluster.metadata.nodes):
            response = await self._node(node_id, request, ListGroupsResponse, lambda answer: check(answer.error_code))
            for group in response.groups:
                listings[group.group_id] = GroupListing(
                    group.group_id, _group_type(group.group_type), group.group_state, group.protocol_type
                )
        return [listings[group] for group in sorted(listings)]

    async def describe_groups(
        self, groups: Iterable[str], *, include_authorized_operations: bool = False
    ) -> Results[str, GroupDescription]:
        """Describe classic and consumer groups: state, members, assignments. GROUP_ID_NOT_FOUND for a missing group.

        With `include_authorized_operations`, also the operations that the principal may perform on each (KIP-430).
        """

        async def ask(group: str) -> GroupDescription:
            return await self.describe_group(group, include_authorized_operations=include_authorized_operations)

        return await self._each(groups, ask)

    async def describe_group(self, group: str, *, include_authorized_operations: bool = False) -> GroupDescription:
        """Describe a single classic or consumer group. KafkaError GROUP_ID_NOT_FOUND if it does not exist."""
        with_operations = include_authorized_operations

        async def attempt(connection: BrokerConnection) -> GroupDescription:
            node = self._node_of(group)
            if connection.supports(ApiKey.CONSUMER_GROUP_DESCRIBE):
                request = modern.ConsumerGroupDescribeRequest(
                    group_ids=[group], include_authorized_operations=with_operations
                )
                answer = await self._on(connection, request, modern.ConsumerGroupDescribeResponse)
                described = only(answer.groups, group)
                # A classic group counts as "not found" here.
                if described.error_code not in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
                    check(described.error_code, described.error_message)
                    return _modern_group(described, node)
            older = classic.DescribeGroupsRequest(groups=[group], include_authorized_operations=with_operations)
            old = await self._on(connection, older, classic.DescribeGroupsResponse)
            classic_group = only(old.groups, group)
            check(classic_group.error_code, classic_group.error_message)
            if classic_group.group_state == "Dead":
                raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group}")
            return _classic_group(classic_group, node)

        return await self._coordinator(group, attempt)

    async def delete_groups(self, groups: Iterable[str]) -> Results[str, None]:
        """Delete groups with their offsets. NON_EMPTY_GROUP for a group with members."""

        async def ask(group: str) -> None:
            async def attempt(connection: BrokerConnection) -> None:
                response = await self._on(connection, DeleteGroupsRequest(groups_names=[group]), DeleteGroupsResponse)
                result = only(response.results, group)
                check(result.error_code, result.error_message)

            await self._coordinator(group, attempt)

        return await self._each(groups, ask)

    async def delete_group(self, group: str) -> None:
        """Delete a group with its offsets. KafkaError NON_EMPTY_GROUP while it has members."""
        (await self.delete_groups([group])).check()

    async def remove_group_members(self, group: str, instance_ids: Iterable[str] | None = None) -> None:
        """Remove the static members with these instance ids from a classic group, or all its members (default)."""
        if instance_ids is None:
            members = [
                MemberIdentity(member_id=member.id, group_instance_id=member.instance_id, reason="removed by an admin")
                for member in (await self.describe_group(group)).members
            ]
        else:
            members = [
                MemberIdentity(group_instance_id=instance_id, reason="removed by an admin")
                for instance_id in instance_ids
            ]

        async def attempt(connection: BrokerConnection) -> None:
            request = LeaveGroupRequest(group_id=group, members=members)
            response = await self._on(connection, request, LeaveGroupResponse)
            check(response.error_code)
            left = {member.group_instance_id or member.member_id: member.error_code for member in response.members}
            for member in members:
                name = member.group_instance_id or member.member_id
                if name not in left:
                    raise left_out(f"member {name}")
                check(left[name], name)

        if members:
            await self._coordinator(group, attempt)

    # ---- offsets of groups

    async def list_group_offsets(
        self, group: str, partitions: Iterable[TopicPartition] | None = None, *, stable: bool = False
    ) -> dict[TopicPartition, CommittedOffset]:
        """The committed offsets of all partitions, or of these; a partition without a commit is left out.

        With `stable`, the call waits while a transaction holds offsets of the group (UNSTABLE_OFFSET_COMMIT, KIP-447).
        """
        topics = None if partitions is None else by_topic(partitions)

        async def attempt(connection: BrokerConnection) -> dict[TopicPartition, CommittedOffset]:
            version = connection.version_of(ApiKey.OFFSET_FETCH, _NAMED_TOPICS)
            if version >= 8:
                wanted_group = OffsetFetchRequestGroup(
                    group_id=group,
                    topics=None
                    if topics is None
                    else [
                        OffsetFetchRequestTopics(name=name, partition_indexes=numbers)
                        for name, numbers in topics.items()
                    ],
                )
                request = OffsetFetchRequest(groups=[wanted_group], require_stable=stable)
            else:
                old = None
                if topics is not None:
                    old = [
                        OffsetFetchRequestTopic(name=name, partition_indexes=numbers)
                        for name, numbers in topics.items()
                    ]
                request = OffsetFetchRequest(group_id=group, topics=old, require_stable=stable)
            timeout_ms = self._settings.request_timeout_ms
            response = await connection.call(request, OffsetFetchResponse, timeout_ms=timeout_ms, version=version)
            return _committed(response, version)

        return await self._coordinator(group, attempt)

    async def alter_group_offsets(
        self, group: str, offsets: Mapping[TopicPartition, CommittedOffset | int]
    ) -> Results[TopicPartition, None]:
        """Commit offsets for a group without members. UNKNOWN_MEMBER_ID while it has members."""
        wanted = {
            key: offset if isinstance(offset, CommittedOffset) else CommittedOffset(offset)
            for key, offset in offsets.items()
        }
        topics = [
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=number,
                        committed_offset=(committed := wanted[TopicPartition(topic, number)]).offset,
                        committed_leader_epoch=-1 if committed.leader_epoch is None else committed.leader_epoch,
                        committed_metadata=committed.metadata,
                    )
                    for number in numbers
                ],
            )
            for topic, numbers in by_topic(wanted).items()
        ]

        async def attempt(connection: BrokerConnection) -> OffsetCommitResponse:
            version = connection.version_of(ApiKey.OFFSET_COMMIT, _NAMED_TOPICS)
            request = OffsetCommitRequest(group_id=group, topics=topics)
            timeout_ms = self._settings.request_timeout_ms
            response = await connection.call(request, OffsetCommitResponse, timeout_ms=timeout_ms, version=version)
            for topic in response.topics:
                for result in topic.partitions:
                    if (error := error_of(result.error_code)) and error.code.retriable and not _is_missing(error):
                        raise error
            return response

        if not wanted:
            return Results({}, {})
        response = await self._coordinator(group, attempt)
        return collect(
            {
                TopicPartition(topic.name, result.partition_index): error_of(result.error_code)
                for topic in response.topics
                for result in topic.partitions
            },
            wanted,
        )

    async def delete_group_offsets(
        self, group: str, partitions: Iterable[TopicPartition]
    ) -> Results[TopicPartition, None]:
        """Delete committed offsets. GROUP_SUBSCRIBED_TO_TOPIC while a member subscribes to the topic."""
        wanted = list(partitions)
        topics = [
            OffsetDeleteRequestTopic(
                name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=number) for number in numbers]
            )
            for topic, numbers in by_topic(wanted).items()
        ]

        async def attempt(connection: BrokerConnection) -> OffsetDeleteResponse:
            request = OffsetDeleteRequest(group_id=group, topics=topics)
            return await self._on(connection, request, OffsetDeleteResponse, lambda answer: check(answer.error_code))

        response = await self._coordinator(group, attempt)
        return collect(
            {
                TopicPartition(topic.name, result.partition_index): error_of(result.error_code)
                for topic in response.topics
                for result in topic.partitions
            },
            wanted,
        )

    async def group_lag(self, group: str) -> list[PartitionLag]:
        """The lag and the reader of each partition that the group has committed or a member is assigned."""
        description = await self.describe_group(group)
        committed = await self.list_group_offsets(group)
        owners = {partition: member for member in description.members for partition in member.assignment}
        partitions = sorted({*committed, *owners})
        ends: Results[TopicPartition, ListedOffset] = Results({}, {})
        if partitions:
            await self._cluster.update({partition.topic for partition in partitions})
            live = [partition for partition in partitions if self._cluster.metadata.leader(*partition) is not None]
            ends = await self.list_offsets(dict.fromkeys(live, OffsetSpec.LATEST))
        lags = []
        for partition in partitions:
            committed_offset = committed.get(partition)
            end = ends.succeeded.get(partition)
            lags.append(
                PartitionLag(
                    partition,
                    None if committed_offset is None else committed_offset.offset,
                    None if end is None else end.offset,
                    owners.get(partition),
                    None if committed_offset is None else committed_offset.leader_epoch,
                )
            )
        return lags

    def _node_of(self, group: str) -> ClusterNode:
        node_id = self._cluster.coordinator_id(GROUP, group)
        return self._node_or_unknown(-1 if node_id is None else node_id)


def _is_missing(error: KafkaError) -> bool:
    return error.code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


def _group_type(name: str) -> GroupType:
    # Brokers before 3.8 (ListGroups v5) do not return the type; all their groups are classic.
    try:
        return GroupType(name.lower() or "classic")
    except ValueError:
        return GroupType.UNKNOWN


def _modern_group(group: modern.DescribedGroup, node: ClusterNode) -> GroupDescription:
    members = tuple(
        MemberDescription(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            _assigned(member.assignment),
            _assigned(member.target_assignment),
            member.member_epoch,
            member.rack_id,
            tuple(member.subscribed_topic_names),
            None if member.member_type < 0 else member.member_type == 1,
        )
        for member in group.members
    )
    return GroupDescription(
        group.group_id,
        GroupType.CONSUMER,
        group.group_state,
        group.assignor_name,
        members,
        node,
        group.group_epoch,
        group.assignment_epoch,
        authorized_operations=authorized_operations(group.authorized_operations),
    )


def _assigned(assignment: modern.Assignment) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(topic.topic_name, number) for topic in assignment.topic_partitions for number in topic.partitions
    )


def _classic_group(group: classic.DescribedGroup, node: ClusterNode) -> GroupDescription:
    consumer = group.protocol_type in ("consumer", "")
    members = []
    for member in group.members:
        # Other protocol types (connect) have their own bytes there; a member that is still joining has none.
        assignment: tuple[TopicPartition, ...] = ()
        topics: tuple[str, ...] = ()
        if consumer:
            assignment = parse_assignment(member.member_assignment)
            if len(member.member_metadata):
                topics = parse_subscription(member.member_metadata).topics
        members.append(
            MemberDescription(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                assignment,
                subscribed_topics=topics,
            )
        )
    return GroupDescription(
        group.group_id,
        GroupType.CLASSIC,
        group.group_state,
        group.protocol_data,
        tuple(members),
        node,
        protocol_type=group.protocol_type,
        authorized_operations=authorized_operations(group.authorized_operations),
    )


def _committed(response: OffsetFetchResponse, version: int) -> dict[TopicPartition, CommittedOffset]:
    committed: dict[TopicPartition, CommittedOffset] = {}
    if version >= 8:
        group = only(response.groups, "the group")
        check(group.error_code)
        rows = [
            (
                topic.name,
                partition.partition_index,
                partition.error_code,
                partition.committed_offset,
                partition.committed_leader_epoch,
                partition.metadata,
            )
            for topic in group.topics
            for partition in topic.partitions
        ]
    else:
        check(response.error_code)
        rows = [
            (
                topic.name,
                partition.partition_index,
                partition.error_code,
                partition.committed_offset,
                partition.committed_leader_epoch,
                partition.metadata,
            )
            for topic in response.topics
            for partition in topic.partitions
        ]
    for name, number, error_code, offset, epoch, metadata in rows:
        check(error_code)
        if offset >= 0:
            committed[TopicPartition(name, number)] = CommittedOffset(
                offset, metadata or "", epoch if epoch >= 0 else None
            )
    return committed
