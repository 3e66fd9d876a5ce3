"""Process a changed member of a consumer group: its record, the group epoch, its next step.

The heartbeat of the consumer protocol and the join of a classic member both use it.

Rules:
- The durable state does not change here: records are computed from the present group and written, and replay applies
  them.
- The group epoch rises when a subscription changes, when a regular expression matches other topics, and when a
  subscribed topic has changed (by its hash).
- A regular expression is resolved when a member brings it, again if a topic was created since, and every
  `group.consumer.regex.refresh.interval.ms`, but at most every ten seconds. A heartbeat resolves its member's own
  expression and one of the others, since each takes the time of all topics.
"""

from collections.abc import Mapping

from ottla.group.consumer.reconciliation import Goal, reconcile
from ottla.group.metadata_hash import metadata_hash
from ottla.group.records.encode import (
    current_entry,
    epoch_entry,
    member_entry,
    partition_metadata_tombstone,
    regex_entry,
    regex_tombstone,
)
from ottla.group.selection import select
from ottla.group.state.consumer import (
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    Resolved,
    Target,
    subscribed_topics,
    topics_of,
)
from ottla.group.state.shard import CommandContext
from ottla.group.timer import Alarm, TimerKey
from ottla.group.topic import topic_ids
from ottla.kernel.frozen import frozen
from ottla.kernel.ids import Uuid
from ottla.kernel.re2.automaton import drained

#: Apache Kafka's numbers, not settings.
_REGEX_REFRESH_MIN_MS = 10_000
_REFRESH_INTERVAL_MS = 2_147_483_647

#: Topic id -> partitions that the member says it owns; None if the request does not say.
Claimed = Mapping[Uuid, frozenset[int]] | None


@frozen
class GroupEpochChange:
    """The group as it will be when the records of this step are replayed."""

    epoch: int
    resolved: Mapping[str, Resolved]
    #: Did the member's own subscription change?
    subscription_changed: bool


def bump_group_epoch(
    context: CommandContext, group: ConsumerGroup, before: ConsumerMember, after: ConsumerMember
) -> GroupEpochChange:
    """Write the member if it changed, its regular expression, and the group epoch if it must rise."""
    if after != before:
        context.append(member_entry(group.group_id, after))
    names_changed = after.topics != before.topics
    regex_changed = (after.regex or None) != (before.regex or None)
    resolved, meaning_changed = _resolve(context, group, before, after)
    bump = names_changed or regex_changed or meaning_changed
    epoch = group.epoch
    if bump or group.refresh_is_due(context.monotonic_ms):
        names = subscribed_topics(group.members_with(after).values(), resolved)
        fresh_hash = metadata_hash(names, context.shard.topics)
        if bump or fresh_hash != group.metadata_hash:
            epoch += 1
            context.append(epoch_entry(group.group_id, epoch, fresh_hash))
        group.refresh_deadline_ms = context.monotonic_ms + _REFRESH_INTERVAL_MS
        # If this record is lost, the epoch in memory stays behind and the refresh is due again.
        group.refresh_epoch = epoch
        if group.has_partition_metadata:
            context.append(partition_metadata_tombstone(group.group_id))
    return GroupEpochChange(epoch, resolved, names_changed or regex_changed)


def _resolve(
    context: CommandContext, group: ConsumerGroup, before: ConsumerMember, after: ConsumerMember
) -> tuple[dict[str, Resolved], bool]:
    """(the resolved expressions of the group, did the topics of any change?)."""
    unchanged = (after.regex or None) == (before.regex or None)
    # Apache Kafka's coordinators write a member before its expression is resolved.
    is_resolved = not after.regex or after.regex in group.resolved
    if unchanged and is_resolved and not any(_is_stale(context, known) for known in group.resolved.values()):
        # The common case of heartbeats.
        return group.resolved, False
    resolved = dict(group.resolved)
    members = group.members_with(after)
    used = dict.fromkeys(member.regex for member in members.values() if member.regex)
    if before.regex and before.regex not in used and before.regex in resolved:
        del resolved[before.regex]
        context.append(regex_tombstone(group.group_id, before.regex))
    changed = has_resolved_other = False
    for regex in used:
        known = resolved.get(regex)
        if known is not None and not _is_stale(context, known):
            continue
        if regex != after.regex:
            if has_resolved_other:
                continue
            has_resolved_other = True
        topics = _matching(context, regex, of_another=regex != after.regex)
        fresh = Resolved(topics, context.shard.topics.version, context.now_ms)
        changed = changed or known is None or known.topics != fresh.topics
        resolved[regex] = fresh
        context.append(regex_entry(group.group_id, regex, fresh))
    return resolved, changed


def _is_stale(context: CommandContext, known: Resolved) -> bool:
    age_ms = context.now_ms - known.timestamp_ms
    # A future timestamp counts as stale: the clock was set back.
    if 0 <= age_ms <= _REGEX_REFRESH_MIN_MS:
        return False
    topics_are_newer = known.version < context.shard.topics_created_version
    return topics_are_newer or age_ms < 0 or age_ms > context.settings.group_consumer_regex_refresh_interval_ms


def _matching(context: CommandContext, regex: str, *, of_another: bool) -> tuple[str, ...]:
    """The topics that an expression matches. KafkaError if it is invalid; one of another member then matches none."""
    selected = context.selected
    if selected is None or (selected.regex, selected.version) != (regex, context.shard.topics.version):
        selected = drained(select(regex, context.shard.topics))
    if selected.error is not None:
        # Another coordinator has taken it: its own member is told, at its own heartbeat.
        if of_another:
            return ()
        raise selected.error
    return tuple(name for name in selected.names if context.may_describe is None or context.may_describe(name))


def advance(
    context: CommandContext,
    group: ConsumerGroup,
    member: ConsumerMember,
    change: GroupEpochChange,
    target: tuple[int, Target],
    claimed: Claimed,
) -> ConsumerMember:
    """The member after its next step towards its target, which is written."""
    assignment_epoch, partitions = target
    if not change.subscription_changed and member.is_reconciled_to(assignment_epoch):
        return member
    subscribed = topic_ids(topics_of(member, change.resolved), context.shard.topics)
    goal = Goal(assignment_epoch, partitions, subscribed, group.owners, claimed, change.subscription_changed)
    advanced = reconcile(member, goal)
    if advanced != member:
        context.append(current_entry(group.group_id, advanced))
        if advanced.classic is None:
            key = TimerKey(Alarm.REBALANCE, group.group_id, advanced.member_id)
            if advanced.state is MemberState.UNREVOKED_PARTITIONS:
                context.alarm_in(key, advanced.rebalance_timeout_ms)
            else:
                context.timers.cancel(key)
    return advanced
