"""Reconcile a member's assignment with its target (KIP-848), waiting for other members only where necessary.

    STABLE                 the member has the target of its epoch
    UNREVOKED_PARTITIONS   it must give up partitions first; it stays in its epoch and gets nothing new
    UNRELEASED_PARTITIONS  it is in the target's epoch and waits for partitions that others must give up

| from | to | when |
|---|---|---|
| STABLE, UNRELEASED_PARTITIONS | UNREVOKED_PARTITIONS | a new target or subscription takes partitions away |
| STABLE | UNRELEASED_PARTITIONS | a new target gives it partitions that others still own |
| UNREVOKED_PARTITIONS | UNRELEASED_PARTITIONS | it has given them up, and others still own what it gets |
| UNREVOKED_PARTITIONS, UNRELEASED_PARTITIONS | STABLE | nothing is left to give up or to wait for |

Rules:
- Revoke before assign: a member that owns a partition outside its target gets nothing new until it reports that it gave
  the partition up.
- A partition is assigned only when it has no owner.
- A kept partition keeps its assignment epoch, and commits of that epoch stay valid.
"""

from collections.abc import Mapping
from dataclasses import replace

from ottla.group.state.consumer import ConsumerMember, MemberState, Owned, Target
from ottla.kernel.error import ErrorCode, KafkaError
from ottla.kernel.frozen import frozen
from ottla.kernel.ids import Uuid


@frozen
class Goal:
    """The target of a member, and the facts that constrain its next step."""

    assignment_epoch: int
    target: Target
    #: The topics of its present subscription. The target may be for an earlier one.
    topic_ids: frozenset[Uuid]
    #: The owner of each partition.
    owners: Mapping[tuple[Uuid, int], str]
    #: The partitions that the member says it owns; None if the request does not say.
    claimed: Mapping[Uuid, frozenset[int]] | None
    #: Did its subscription just change? Then unsubscribed topics are revoked even without a new target.
    subscription_changed: bool


def reconcile(member: ConsumerMember, goal: Goal) -> ConsumerMember:
    """The member after its next step; the same object if there is none."""
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
            # A newer version wrote an unknown state: the member must start over without partitions.
            if goal.claimed is None or any(goal.claimed.values()):
                raise KafkaError(
                    ErrorCode.FENCED_MEMBER_EPOCH,
                    "The consumer group member is in a unknown state. "
                    "The member must abandon all its partitions and rejoin.",
                )
            return _advance(member, goal, goal.assignment_epoch)


def _claims(owned: Owned, goal: Goal) -> bool:
    """May the member still own any of these? True if the request does not say."""
    if goal.claimed is None:
        return True
    return any(not goal.claimed.get(topic_id, frozenset()).isdisjoint(epochs) for topic_id, epochs in owned.items())


def _drop_unsubscribed(member: ConsumerMember, goal: Goal) -> ConsumerMember:
    """Revoke the topics that the member no longer subscribes to; the rest waits for the next target."""
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
    """Revoke what is not in the target; if that is done, assign what is free."""
    assigned: dict[Uuid, dict[int, int]] = {}
    revoking: dict[Uuid, dict[int, int]] = {}
    gains: dict[Uuid, list[int]] = {}
    waits = False
    for topic_id in dict.fromkeys((*goal.target, *member.assigned)):
        target = goal.target.get(topic_id, ()) if topic_id in goal.topic_ids else ()
        has = member.assigned.get(topic_id, {})
        keeps = {partition: since for partition, since in has.items() if partition in target}
        loses = {partition: since for partition, since in has.items() if partition not in target}
        if keeps:
            assigned[topic_id] = keeps
        if loses:
            revoking[topic_id] = loses
        for partition in target:
            if partition in keeps:
                continue
            owner = goal.owners.get((topic_id, partition))
            # A partition that the member itself is giving up is free for it.
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
