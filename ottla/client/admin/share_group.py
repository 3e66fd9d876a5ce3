"""The admin calls for share groups (KIP-932, KIP-1240). Listing and deleting work as for any group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.client.admin.call import by_topic, collect
from ottla.client.admin.group import GroupCalls
from ottla.client.admin.result import GroupDescription, GroupType, MemberDescription, Results
from ottla.client.connection.connection import BrokerConnection
from ottla.kernel.client_error import check, error_of, only
from ottla.kernel.error import KafkaError
from ottla.kernel.frozen import frozen
from ottla.kernel.ids import TopicPartition
from ottla.security.acl import authorized_operations
from ottla.wire.api.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
)
from ottla.wire.api.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsResponse,
)
from ottla.wire.api.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse,
)
from ottla.wire.api.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse


@frozen
class ShareOffset:
    """A share group's start offset in a partition: all records before it are done. `lag` is None with older brokers."""

    start_offset: int
    leader_epoch: int
    lag: int | None


class ShareGroupCalls(GroupCalls):
    """The part of `AsyncAdmin` for share groups."""

    async def describe_share_group(
        self, group: str, *, include_authorized_operations: bool = False
    ) -> GroupDescription:
        """Describe a share group: its state, and its members, several of which may have the same partition.

        With `include_authorized_operations`, also the operations that the principal may perform on it (KIP-430).
        """
        with_operations = include_authorized_operations

        async def attempt(connection: BrokerConnection) -> GroupDescription:
            request = ShareGroupDescribeRequest(group_ids=[group], include_authorized_operations=with_operations)
            response = await self._on(connection, request, ShareGroupDescribeResponse)
            described = only(response.groups, group)
            check(described.error_code, described.error_message)
            members = tuple(
                MemberDescription(
                    member.member_id,
                    None,
                    member.client_id,
                    member.client_host,
                    tuple(
                        TopicPartition(topic.topic_name, number)
                        for topic in member.assignment.topic_partitions
                        for number in topic.partitions
                    ),
                    None,
                    member.member_epoch,
                    member.rack_id,
                    tuple(member.subscribed_topic_names),
                )
                for member in described.members
            )
            return GroupDescription(
                group,
                GroupType.SHARE,
                described.group_state,
                described.assignor_name,
                members,
                self._node_of(group),
                described.group_epoch,
                described.assignment_epoch,
                protocol_type="share",
                authorized_operations=authorized_operations(described.authorized_operations),
            )

        return await self._coordinator(group, attempt)

    async def list_share_group_offsets(
        self, group: str, partitions: Iterable[TopicPartition] | None = None, *, unread: bool = False
    ) -> Results[TopicPartition, ShareOffset]:
        """The group's start offset in each partition that it has read, or in these.

        With `unread`, assigned partitions that the group has not read yet are included, with offset -1.
        """
        topics = None
        if partitions is not None:
            topics = [
                DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=numbers)
                for name, numbers in by_topic(partitions).items()
            ]
        wanted_group = DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=topics)

        async def attempt(connection: BrokerConnection) -> DescribeShareGroupOffsetsResponse:
            def read(answer: DescribeShareGroupOffsetsResponse) -> None:
                result_group = only(answer.groups, group)
                check(result_group.error_code, result_group.error_message)

            request = DescribeShareGroupOffsetsRequest(groups=[wanted_group])
            return await self._on(connection, request, DescribeShareGroupOffsetsResponse, read)

        response = await self._coordinator(group, attempt)
        offsets: dict[TopicPartition, ShareOffset | KafkaError] = {}
        for topic in response.groups[0].topics:
            for result in topic.partitions:
                error = error_of(result.error_code, result.error_message)
                if error is not None or result.start_offset >= 0 or unread:
                    lag = result.lag if result.lag >= 0 else None
                    offsets[TopicPartition(topic.topic_name, result.partition_index)] = error or ShareOffset(
                        result.start_offset, result.leader_epoch, lag
                    )
        return collect(offsets)

    async def alter_share_group_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int]
    ) -> Results[TopicPartition, None]:
        """Set the start offsets of a group without members. NON_EMPTY_GROUP while it has members."""
        topics = [
            AlterShareGroupOffsetsRequestTopic(
                topic_name=topic,
                partitions=[
                    AlterShareGroupOffsetsRequestPartition(
                        partition_index=number, start_offset=offsets[TopicPartition(topic, number)]
                    )
                    for number in numbers
                ],
            )
            for topic, numbers in by_topic(offsets).items()
        ]

        async def attempt(connection: BrokerConnection) -> AlterShareGroupOffsetsResponse:
            return await self._on(
                connection,
                AlterShareGroupOffsetsRequest(group_id=group, topics=topics),
                AlterShareGroupOffsetsResponse,
                lambda answer: check(answer.error_code, answer.error_message),
            )

        response = await self._coordinator(group, attempt)
        return collect(
            {
                TopicPartition(topic.topic_name, result.partition_index): error_of(
                    result.error_code, result.error_message
                )
                for topic in response.responses
                for result in topic.partitions
            },
            offsets,
        )

    async def delete_share_group_offsets(self, group: str, topics: Iterable[str]) -> Results[str, None]:
        """Delete the start offsets of a group without members in these topics."""
        wanted = [DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in topics]

        async def attempt(connection: BrokerConnection) -> DeleteShareGroupOffsetsResponse:
            return await self._on(
                connection,
                DeleteShareGroupOffsetsRequest(group_id=group, topics=wanted),
                DeleteShareGroupOffsetsResponse,
                lambda answer: check(answer.error_code, answer.error_message),
            )

        response = await self._coordinator(group, attempt)
        outcomes = {
            result.topic_name: error_of(result.error_code, result.error_message) for result in response.responses
        }
        return collect(outcomes, [topic.topic_name for topic in wanted])
