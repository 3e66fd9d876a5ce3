"""The handler of ShareGroupDescribe (1) (KIP-932)."""

from ottla.coordinator.contract import Called
from ottla.group.share.assignor import SIMPLE
from ottla.group.share.state import not_a_share_group
from ottla.group.state.shard import CommandContext
from ottla.group.state.share import ShareGroup, ShareMember
from ottla.group.topic import TopicView
from ottla.kernel.error import ErrorCode
from ottla.wire.api.share_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
    TopicPartitions,
)


def describe_share_groups(context: CommandContext, call: Called) -> None:
    """Answer with the epochs, the members and the assignments of share groups."""
    request: ShareGroupDescribeRequest = call.request
    groups = [_describe(context, group_id) for group_id in request.group_ids]
    context.answer(call.ticket, ShareGroupDescribeResponse(groups=groups))


def _describe(context: CommandContext, group_id: str) -> DescribedGroup:
    if not group_id:
        return DescribedGroup(group_id="", error_code=ErrorCode.INVALID_GROUP_ID)
    group = context.shard.groups.get(group_id)
    if not isinstance(group, ShareGroup):
        error = not_a_share_group(group_id, group)
        text = error.message if group is not None else f"Group {group_id} not found."
        return DescribedGroup(group_id=group_id, error_code=error.code, error_message=text)
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=SIMPLE,
        members=[_member(member, context.shard.topics) for member in group.members.values()],
    )


def _member(member: ShareMember, topics: TopicView) -> Member:
    assigned = []
    for topic_id, partitions in member.assigned.items():
        name = topics.topic_name(topic_id)
        if name is not None:
            assigned.append(TopicPartitions(topic_id=topic_id, topic_name=name, partitions=list(partitions)))
    return Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topics),
        assignment=Assignment(topic_partitions=assigned),
    )
