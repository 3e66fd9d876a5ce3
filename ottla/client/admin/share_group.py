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
        asked = include_authorized_operations

        async def attempt(connection: BrokerConnection) -> GroupDescription:
            request = ShareGroupDescribeRequest(group_ids=[group], include_authorized_operations=asked)
            response = await self._on(connection, request, ShareGroupDescribeResponse)
            one = only(response.groups, group)
            check(one.error_code, one.error_message)
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
                for member in one.members
            )
            return GroupDescription(
                group,
                GroupType.SHARE,
                one.group_state,
                one.assignor_name,
                members,
                self._node_of(group),
                one.group_epoch,
                one.assignment_epoch,
                protocol_type="share",
                authorized_operations=authorized_operations(one.authorized_operations),
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
        asked = DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=topics)

        async def attempt(connection: BrokerConnection) -> DescribeShareGroupOffsetsResponse:
            def read(answer: DescribeShareGroupOffsetsResponse) -> None:
                one = only(answer.groups, group)
                check(one.error_code, one.error_message)

            request = DescribeShareGroupOffsetsRequest(groups=[asked])
            return await self._on(connection, request, DescribeShareGroupOffsetsResponse, read)

        response = await self._coordinator(group, attempt)
        found: dict[TopicPartition, ShareOffset | KafkaError] = {}
        for topic in response.groups[0].topics:
            for one in topic.partitions:
                error = error_of(one.error_code, one.error_message)
                if error is not None or one.start_offset >= 0 or unread:
                    lag = one.lag if one.lag >= 0 else None
                    found[TopicPartition(topic.topic_name, one.partition_index)] = error or ShareOffset(
                        one.start_offset, one.leader_epoch, lag
                    )
        return collect(found)

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
                TopicPartition(topic.topic_name, one.partition_index): error_of(one.error_code, one.error_message)
                for topic in response.responses
                for one in topic.partitions
            },
            offsets,
        )

    async def delete_share_group_offsets(self, group: str, topics: Iterable[str]) -> Results[str, None]:
        """Delete the start offsets of a group without members in these topics."""
        asked = [DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in topics]

        async def attempt(connection: BrokerConnection) -> DeleteShareGroupOffsetsResponse:
            return await self._on(
                connection,
                DeleteShareGroupOffsetsRequest(group_id=group, topics=asked),
                DeleteShareGroupOffsetsResponse,
                lambda answer: check(answer.error_code, answer.error_message),
            )

        response = await self._coordinator(group, attempt)
        found = {one.topic_name: error_of(one.error_code, one.error_message) for one in response.responses}
        return collect(found, [one.topic_name for one in asked])
