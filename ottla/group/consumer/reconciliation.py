"""A member's way from what it has to its target (KIP-848); no member waits for another beyond what it must.

    STABLE                 it has what the target of its epoch says
    UNREVOKED_PARTITIONS   it must first give up partitions; it stays in its epoch and asks for nothing new
    UNRELEASED_PARTITIONS  it is in the target's epoch and waits for partitions that others must give up first

Rules:
- Revoke before assign: a member that owns something it should not have gets nothing new until it says it gave it up.
- A partition is assigned only when it has no owner any more.
- A partition that stays keeps the epoch since when it is the member's, and commits of that epoch stay good.
"""

from collections.abc import Mapping
from dataclasses import replace

from ottla.group.state.consumer import ConsumerMember, MemberState, Owned, Target
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.frozen import frozen
from ottla.kernel.ids import Uuid


@frozen
class Goal:
    """Where a member must get to, and what stands in its way."""

    assignment_epoch: int
    target: Target
    #: What it subscribes to now. The target may be of a former subscription.
    topic_ids: frozenset[Uuid]
    #: The owner of each partition.
    owners: Mapping[tuple[Uuid, int], str]
    #: What the member says it owns; None if it did not say.
    claimed: Mapping[Uuid, frozenset[int]] | None
    #: Its subscription has just changed: what it no longer subscribes to is taken away even without a new target.
    subscription_changed: bool


def reconcile(member: ConsumerMember, goal: Goal) -> ConsumerMember:
    """The member after its next step; the same object if there is none to take."""
    match member.state:
        case MemberState.STABLE:
            if member.epoch != goal.assignment_epoch:
                return _advance(member, goal, member.epoch)
            return _drop_unsubscribed(member, goal) if goal.subscription_changed else member
        case MemberState.UNREVOKED_PARTITIONS:
            if _claims(member.revoking, goal):
                return _drop_unsubscribed(member, goal) if goal.subscription_changed else member
            return _advance(member, goal, member.epoch)
        case MemberState.UNRELEASED_PARTITIONS:
            return _advance(member, goal, member.epoch)
        case _:
            # A newer coordinator left it in a state that we do not know: it starts again, with nothing.
            if goal.claimed is None or any(goal.claimed.values()):
                raise KafkaError(
                    ErrorCode.FENCED_MEMBER_EPOCH,
                    "The consumer group member is in a unknown state. "
                    "The member must abandon all its partitions and rejoin.",
                )
            return _advance(member, goal, goal.assignment_epoch)


def _claims(owned: Owned, goal: Goal) -> bool:
    """Does the member own any of these still? If it does not say, it may."""
    if goal.claimed is None:
        return True
    return any(not goal.claimed.get(topic_id, frozenset()).isdisjoint(epochs) for topic_id, epochs in owned.items())


def _drop_unsubscribed(member: ConsumerMember, goal: Goal) -> ConsumerMember:
    """Take away the topics it no longer subscribes to, and leave all else for the next target."""
    assigned = {topic_id: epochs for topic_id, epochs in member.assigned.items() if topic_id in goal.topic_ids}
    if len(assigned) == len(member.assigned):
        return member
    revoking = dict(member.revoking)
    for topic_id, epochs in member.assigned.items():
        if topic_id not in assigned:
            revoking[topic_id] = {**revoking.get(topic_id, {}), **epochs}
    if _claims(revoking, goal):
        return replace(
            member,
            state=MemberState.UNREVOKED_PARTITIONS,
            previous_epoch=member.epoch,
            assigned=assigned,
            revoking=revoking,
        )
    return replace(member, previous_epoch=member.epoch, assigned=assigned)


def _advance(member: ConsumerMember, goal: Goal, epoch: int) -> ConsumerMember:
    """Give up what it should not have; if that is done, take what is free."""
    assigned: dict[Uuid, dict[int, int]] = {}
    revoking: dict[Uuid, dict[int, int]] = {}
    gains: dict[Uuid, list[int]] = {}
    waits = False
    for topic_id in dict.fromkeys((*goal.target, *member.assigned)):
        wanted = goal.target.get(topic_id, ()) if topic_id in goal.topic_ids else ()
        has = member.assigned.get(topic_id, {})
        keeps = {partition: since for partition, since in has.items() if partition in wanted}
        loses = {partition: since for partition, since in has.items() if partition not in wanted}
        if keeps:
            assigned[topic_id] = keeps
        if loses:
            revoking[topic_id] = loses
        for partition in wanted:
            if partition in keeps:
                continue
            owner = goal.owners.get((topic_id, partition))
            # What it is itself about to give up is free for it.
            if owner is None or partition in member.revoking.get(topic_id, {}):
                gains.setdefault(topic_id, []).append(partition)
            else:
                waits = True
    if revoking and _claims(revoking, goal):
        return replace(
            member,
            state=MemberState.UNREVOKED_PARTITIONS,
            epoch=epoch,
            previous_epoch=member.epoch,
            assigned=assigned,
            revoking=revoking,
        )
    for topic_id, partitions in gains.items():
        assigned.setdefault(topic_id, {}).update(dict.fromkeys(partitions, goal.assignment_epoch))
    return replace(
        member,
        state=MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE,
        epoch=goal.assignment_epoch,
        previous_epoch=member.epoch,
        assigned=assigned,
        revoking={},
    )
