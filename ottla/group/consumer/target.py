"""The target assignment of a consumer group, computed when the group epoch has risen.

Rules:
- The assignor is the one that most members name, or the first of `group.consumer.assignors` if none does.
- At most one target is computed per `group.consumer.assignment.interval.ms`; until then the last one applies.
- Only changed targets are written.
"""

from collections.abc import Iterable, Mapping

from ottla.group.consumer.assignor import ASSIGNORS, Subscriber
from ottla.group.records.encode import assignment_epoch_entry, target_entry
from ottla.group.setting import CoordinatorSettings
from ottla.group.state.consumer import ConsumerGroup, ConsumerMember, Resolved, Target, topics_of
from ottla.group.state.shard import CommandContext
from ottla.group.topic import existing
from ottla.kernel.ids import Uuid


def preferred_assignor(members: Iterable[ConsumerMember], settings: CoordinatorSettings) -> str:
    """The assignor with the most votes; a tie goes to `uniform`, as in Apache Kafka."""
    votes: dict[str, int] = {}
    for member in members:
        if member.assignor:
            votes[member.assignor] = votes.get(member.assignor, 0) + 1
    return max(votes, key=lambda name: (votes[name], name)) if votes else settings.group_consumer_assignors[0]


def update_target(
    context: CommandContext, group: ConsumerGroup, member: ConsumerMember, epoch: int, resolved: Mapping[str, Resolved]
) -> tuple[int, Target]:
    """(assignment epoch, target of this member), computing a new target if one is due."""
    present = group.target_of(member.member_id, member.instance_id)
    if group.assignment_epoch >= epoch or not _may_compute(context, group):
        return group.assignment_epoch, present
    members = group.members_with(member)
    topics = context.shard.topics
    subscribers: dict[str, Subscriber] = {}
    counts: dict[Uuid, int] = {}
    #: A stored subscription is looked through once, however many members have it.
    found: dict[tuple[int, str | None], tuple[Uuid, ...]] = {}
    for member_id, other in members.items():
        subscription = id(other.topics), other.regex
        if subscription not in found:
            ids = {name: topics.topic_id(name) for name in existing(topics_of(other, resolved), topics)}
            counts |= {topic_id: topics.partition_count(name) for name, topic_id in ids.items() if topic_id is not None}
            found[subscription] = tuple(topic_id for topic_id in ids.values() if topic_id is not None)
        before = group.target_of(member_id, other.instance_id) if other is member else group.target_of(member_id)
        subscribers[member_id] = Subscriber(
            found[subscription], before, other.instance_id, (other.topics, other.regex or None)
        )
    assign = ASSIGNORS[preferred_assignor(members.values(), context.settings)]
    targets = assign(subscribers, counts)
    for member_id, target in targets.items():
        if group.targets.get(member_id) != target:
            context.append(target_entry(group.group_id, member_id, target))
    context.append(assignment_epoch_entry(group.group_id, epoch, context.now_ms))
    return epoch, targets[member.member_id]


def _may_compute(context: CommandContext, group: ConsumerGroup) -> bool:
    interval_ms = context.shard.override(group.group_id).consumer_assignment_interval_ms
    if interval_ms is None:
        interval_ms = context.settings.group_consumer_assignment_interval_ms
    return group.may_assign(interval_ms, context.now_ms)
