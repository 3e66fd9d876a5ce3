"""A member's next step to its target (KIP-848): what it gives up, what it waits for, and in which epoch it is."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from ottla.group.consumer.reconciliation import Goal, reconcile
from ottla.group.state.consumer import ConsumerMember, MemberState
from ottla.kernel.ids import Uuid

A, B = Uuid(b"a" * 16), Uuid(b"b" * 16)
STABLE, UNREVOKED, UNRELEASED = (
    MemberState.STABLE,
    MemberState.UNREVOKED_PARTITIONS,
    MemberState.UNRELEASED_PARTITIONS,
)


def _goal(target: dict[Uuid, tuple[int, ...]], **more: Any) -> Goal:
    given: dict[str, Any] = {
        "assignment_epoch": 9,
        "target": target,
        "topic_ids": frozenset((A, B)),
        "owners": {},
        "claimed": None,
        "subscription_changed": False,
    }
    return Goal(**given | more)


def _member(state: MemberState = STABLE, epoch: int = 8, **more: Any) -> ConsumerMember:
    given: dict[str, Any] = {"previous_epoch": 7, "assigned": {A: {0: 3, 1: 4}}, "revoking": {}}
    return ConsumerMember("m", epoch, state=state, **given | more)


def _is(member: ConsumerMember) -> tuple[MemberState, int, int, Any, Any]:
    return member.state, member.epoch, member.previous_epoch, member.assigned, member.revoking


def test_a_member_at_its_target_has_no_step() -> None:
    member = _member(epoch=9)
    assert reconcile(member, _goal({A: (0, 1)})) is member
    assert reconcile(member, _goal({A: (0, 1)}, subscription_changed=True)) is member


@pytest.mark.parametrize(
    ("claimed", "expected"),
    [
        # It may have what it does not say it has not.
        (None, (UNREVOKED, 9, 9, {A: {0: 3, 1: 4}}, {B: {5: 2}})),
        ({B: frozenset((5,))}, (UNREVOKED, 9, 9, {A: {0: 3, 1: 4}}, {B: {5: 2}})),
        ({A: frozenset((0,))}, (STABLE, 9, 9, {A: {0: 3, 1: 4}}, {})),
    ],
)
def test_what_is_not_subscribed_to_goes_before_there_is_a_new_target(claimed: Any, expected: Any) -> None:
    member = _member(epoch=9, assigned={A: {0: 3, 1: 4}, B: {5: 2}})
    goal = _goal({A: (0, 1), B: (5,)}, topic_ids=frozenset((A,)), claimed=claimed, subscription_changed=True)
    assert _is(reconcile(member, goal)) == expected


def test_what_is_not_subscribed_to_joins_what_is_given_up_already() -> None:
    member = _member(UNREVOKED, epoch=9, assigned={A: {0: 3}, B: {5: 2}}, revoking={A: {7: 1}, B: {6: 2}})
    goal = _goal({A: (0,), B: (5,)}, topic_ids=frozenset((A,)), claimed={A: frozenset((7,))}, subscription_changed=True)
    assert _is(reconcile(member, goal)) == (UNREVOKED, 9, 9, {A: {0: 3}}, {A: {7: 1}, B: {5: 2, 6: 2}})


def test_a_member_gives_up_first_in_the_epoch_that_it_has() -> None:
    step = reconcile(_member(), _goal({A: (1, 2), B: (0,)}))
    assert _is(step) == (UNREVOKED, 8, 8, {A: {1: 4}}, {A: {0: 3}})
    # It says that it still has it: it stays as it is.
    assert reconcile(step, _goal({A: (1, 2)}, claimed={A: frozenset((0, 1))})) is step
    assert reconcile(step, _goal({A: (1, 2)})) is step
    # It has given it up: it takes what is free, in the target's epoch.
    done = reconcile(step, _goal({A: (1, 2), B: (0,)}, claimed={A: frozenset((1,))}))
    assert _is(done) == (STABLE, 9, 8, {A: {1: 4, 2: 9}, B: {0: 9}}, {})


def test_a_member_that_says_it_has_nothing_of_it_needs_not_give_it_up() -> None:
    step = reconcile(_member(), _goal({A: (1,)}, claimed={A: frozenset((1,))}))
    assert _is(step) == (STABLE, 9, 8, {A: {1: 4}}, {})


def test_what_another_member_owns_is_waited_for() -> None:
    goal = _goal({A: (0, 1, 2, 3)}, owners={(A, 2): "other", (A, 0): "m", (A, 1): "m"})
    step = reconcile(_member(), goal)
    assert _is(step) == (UNRELEASED, 9, 8, {A: {0: 3, 1: 4, 3: 9}}, {})
    free = reconcile(step, _goal({A: (0, 1, 2, 3)}))
    assert _is(free) == (STABLE, 9, 9, {A: {0: 3, 1: 4, 2: 9, 3: 9}}, {})


def test_what_a_member_is_about_to_give_up_is_free_for_itself() -> None:
    member = _member(UNREVOKED, revoking={A: {2: 1}})
    goal = _goal({A: (0, 1, 2)}, owners={(A, 2): "m"}, claimed={A: frozenset((0, 1))})
    assert _is(reconcile(member, goal)) == (STABLE, 9, 8, {A: {0: 3, 1: 4, 2: 9}}, {})


@pytest.mark.parametrize("seed", range(60))
def test_members_come_to_their_targets_and_no_partition_has_two_owners(seed: int) -> None:
    rng = Random(seed)
    names, partitions = ("x", "y", "z"), [(topic, number) for topic in (A, B) for number in range(4)]
    members = {name: ConsumerMember(name, 0) for name in names}
    holds: dict[str, set[tuple[Uuid, int]]] = {name: set() for name in names}
    for epoch in range(1, 6):
        target: dict[str, dict[Uuid, tuple[int, ...]]] = {name: {} for name in names}
        for topic, number in partitions:
            to = target[rng.choice(names)]
            to[topic] = (*to.get(topic, ()), number)
        for turn in range(60):
            name = names[turn % 3] if turn > 30 else rng.choice(names)
            member = members[name]
            owners = {
                (topic, number): each.member_id
                for each in members.values()
                for owned in (each.assigned, each.revoking)
                for topic, numbers in owned.items()
                for number in numbers
            }
            # The client holds at most what it was told, and gives up what it is told to.
            told = {(topic, number) for topic, numbers in member.assigned.items() for number in numbers}
            if rng.random() < 0.7 or turn > 30:
                holds[name] = told
            claimed = {topic: frozenset(n for t, n in holds[name] if t == topic) for topic in (A, B)}
            goal = _goal(target[name], assignment_epoch=epoch, owners=owners, claimed=claimed)
            members[name] = reconcile(member, goal)
            assert members[name].epoch <= epoch
            owned_now = [
                (topic, number)
                for each in members.values()
                for owned in (each.assigned, each.revoking)
                for topic, numbers in owned.items()
                for number in numbers
            ]
            assert len(owned_now) == len(set(owned_now)), "owned twice"
            for one in names:
                for other in names:
                    assert one == other or not holds[one] & holds[other], "read twice"
        for name in names:
            wanted = {topic: set(numbers) for topic, numbers in target[name].items()}
            assert {topic: set(numbers) for topic, numbers in members[name].assigned.items()} == wanted
            assert (members[name].state, members[name].epoch, members[name].revoking) == (STABLE, epoch, {})
