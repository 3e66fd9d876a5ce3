"""What follows when a member of a consumer group says something new: its record, the group epoch, its next step.

Used by the heartbeat of the consumer protocol and by the join of a classic member alike.

Rules:
- Nothing in memory changes here: everything is computed from the group as it is and written, and replay does it.
- The group epoch rises when subscriptions change, when what regular expressions mean changes, and when a subscribed
  topic has changed (its hash has).
- A regular expression is looked up when a member brings it, again when a topic was created since, and every
  `group.consumer.regex.refresh.interval.ms`, but not within ten seconds.
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
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.frozen import frozen
from ottla.kernel.ids import Uuid
from ottla.kernel.re2.pattern import Expression, InvalidExpression

#: Apache Kafka's numbers, not settings.
_REGEX_REFRESH_MIN_MS = 10_000
_REFRESH_INTERVAL_MS = 2_147_483_647

#: Topic id -> partitions that a member says it owns; None if it did not say.
Claimed = Mapping[Uuid, frozenset[int]] | None


@frozen
class Revision:
    """The group as it will be when what was written so far is replayed."""

    epoch: int
    resolved: Mapping[str, Resolved]
    #: The member's own subscription changed.
    subscription_changed: bool


def bump_group_epoch(
    turn: CommandContext, group: ConsumerGroup, before: ConsumerMember, after: ConsumerMember
) -> Revision:
    """Write the member if it changed, its regular expression, and the group epoch if that must rise."""
    if after != before:
        turn.append(member_entry(group.group_id, after))
    names_changed = after.topics != before.topics
    regex_changed = (after.regex or None) != (before.regex or None)
    resolved, meaning_changed = _resolve(turn, group, before, after)
    bump = names_changed or regex_changed or meaning_changed
    epoch = group.epoch
    if bump or group.refresh_is_due(turn.monotonic_ms):
        names = subscribed_topics(group.members_with(after).values(), resolved)
        fresh_hash = metadata_hash(names, turn.shard.topics)
        if bump or fresh_hash != group.metadata_hash:
            epoch += 1
            turn.append(epoch_entry(group.group_id, epoch, fresh_hash))
        group.refresh_deadline_ms = turn.monotonic_ms + _REFRESH_INTERVAL_MS
        # If what is written here is lost, the epoch in memory stays behind this one and the refresh is due again.
        group.refresh_epoch = epoch
        if group.has_partition_metadata:
            turn.append(partition_metadata_tombstone(group.group_id))
    return Revision(epoch, resolved, names_changed or regex_changed)


def _resolve(
    turn: CommandContext, group: ConsumerGroup, before: ConsumerMember, after: ConsumerMember
) -> tuple[dict[str, Resolved], bool]:
    """What each expression of the group means now, and whether that differs from what was known."""
    unchanged = (after.regex or None) == (before.regex or None)
    if unchanged and not any(_is_stale(turn, known) for known in group.resolved.values()):
        # Heartbeats come this way all the time.
        return group.resolved, False
    resolved = dict(group.resolved)
    members = group.members_with(after)
    used = dict.fromkeys(member.regex for member in members.values() if member.regex)
    if before.regex and before.regex not in used and before.regex in resolved:
        del resolved[before.regex]
        turn.append(regex_tombstone(group.group_id, before.regex))
    changed = False
    for regex in used:
        known = resolved.get(regex)
        if known is not None and not _is_stale(turn, known):
            continue
        fresh = Resolved(_matching(turn, regex), turn.shard.topics.version, turn.now_ms)
        changed = changed or known is None or known.topics != fresh.topics
        resolved[regex] = fresh
        turn.append(regex_entry(group.group_id, regex, fresh))
    return resolved, changed


def _is_stale(turn: CommandContext, known: Resolved) -> bool:
    age_ms = turn.now_ms - known.timestamp_ms
    # A from the future is as old as can be: the clock was set.
    if 0 <= age_ms <= _REGEX_REFRESH_MIN_MS:
        return False
    topics_are_newer = known.version < turn.shard.topics_created_version
    return topics_are_newer or age_ms < 0 or age_ms > turn.settings.group_consumer_regex_refresh_interval_ms


def _matching(turn: CommandContext, regex: str) -> tuple[str, ...]:
    try:
        expression = Expression(regex)
        found = sorted(name for name in turn.shard.topics.names() if expression.matches(name))
    except InvalidExpression as error:
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {error}.",
        ) from error
    return tuple(name for name in found if turn.may_describe is None or turn.may_describe(name))


def advance(
    turn: CommandContext,
    group: ConsumerGroup,
    member: ConsumerMember,
    revision: Revision,
    target: tuple[int, Target],
    claimed: Claimed,
) -> ConsumerMember:
    """Take the member's next step towards its target and write it."""
    assignment_epoch, partitions = target
    if not revision.subscription_changed and member.is_reconciled_to(assignment_epoch):
        return member
    subscribed = topic_ids(topics_of(member, revision.resolved), turn.shard.topics)
    goal = Goal(assignment_epoch, partitions, subscribed, group.owners, claimed, revision.subscription_changed)
    advanced = reconcile(member, goal)
    if advanced != member:
        turn.append(current_entry(group.group_id, advanced))
        if advanced.classic is None:
            key = TimerKey(Alarm.REBALANCE, group.group_id, advanced.member_id)
            if advanced.state is MemberState.UNREVOKED_PARTITIONS:
                turn.alarm_in(key, advanced.rebalance_timeout_ms)
            else:
                turn.timers.cancel(key)
    return advanced
