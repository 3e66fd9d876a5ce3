"""Assigns the partitions of a classic group to its members; the group's leader runs it for all.

Rules:
- The same members, topics and partition counts give the same assignment as the Java client's assignors of the same
  names, since leaders of both kinds may alternate in a group. (For `sticky` and `cooperative-sticky` this holds if all
  members subscribe to the same topics; otherwise the assignment is as balanced, but not always the same.)
- `cooperative-sticky` never gives a partition to a new owner while the old one has it: that is left to the next
  rebalance, which follows at once (KIP-429).
- Members get near partitions, by the racks of the partitions' replicas, as far as balance allows (`rack`).

KIPs: 54 (sticky), 341 and 429 (generations, cooperation), 345 (static members first, by instance id), 881 (racks).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ottla.client.assignment.consumer_protocol import Subscription
from ottla.client.assignment.rack import Nearness, Racks, range_by_rack
from ottla.kernel.frozen import frozen
from ottla.kernel.ids import TopicPartition, java_string_hash


@frozen
class CandidateMember:
    """A group member, in the form that the assignors take."""

    id: str
    subscription: Subscription
    instance_id: str | None = None

    @property
    def order(self) -> tuple[int, str]:
        """Sort key: static members first, by instance id; the others by member id."""
        return (0, self.instance_id) if self.instance_id is not None else (1, self.id)


Assignment = dict[str, list[TopicPartition]]
#: (members, number of partitions by topic, racks by partition) to an assignment.
Assign = Callable[[list[CandidateMember], Mapping[str, int], Racks], Assignment]


def assign_range(members: list[CandidateMember], partitions: Mapping[str, int], racks: Racks) -> Assignment:
    """Assign each topic in ranges; the first members get one partition more if the division leaves a remainder."""
    topics = dict.fromkeys(topic for member in members for topic in member.subscription.topics)
    in_order = sorted(members, key=lambda one: one.order)
    readers = {
        topic: [(one.id, one.subscription.rack) for one in in_order if topic in one.subscription.topics]
        for topic in topics
        if partitions.get(topic)
    }
    found = range_by_rack(partitions, readers, racks)
    return {member.id: found.get(member.id, []) for member in members}


def assign_round_robin(members: list[CandidateMember], partitions: Mapping[str, int], racks: Racks) -> Assignment:
    """Deal all partitions in order, one by one, to the members that subscribe to their topic."""
    found: Assignment = {member.id: [] for member in members}
    circle = sorted(members, key=lambda one: one.order)
    turn = 0
    for topic in sorted({topic for member in members for topic in member.subscription.topics}):
        for number in range(partitions.get(topic, 0)):
            while topic not in circle[turn].subscription.topics:
                turn = (turn + 1) % len(circle)
            found[circle[turn].id].append(TopicPartition(topic, number))
            turn = (turn + 1) % len(circle)
    return found


def assign_sticky(members: list[CandidateMember], partitions: Mapping[str, int], racks: Racks) -> Assignment:
    """Balance as evenly as possible, letting members keep their partitions as far as that allows."""
    return _sticky(members, partitions, racks)


def assign_cooperative(members: list[CandidateMember], partitions: Mapping[str, int], racks: Racks) -> Assignment:
    """Sticky, but a partition that changes hands stays unassigned until its old owner has revoked it."""
    found = _sticky(members, partitions, racks)
    owner = {one: member.id for member in members for one in member.subscription.owned}
    for member_id, assigned in found.items():
        found[member_id] = [one for one in assigned if owner.get(one, member_id) == member_id]
    return found


#: Assignors by their name in JoinGroup.
ASSIGNORS: dict[str, Assign] = {
    "range": assign_range,
    "roundrobin": assign_round_robin,
    "sticky": assign_sticky,
    "cooperative-sticky": assign_cooperative,
}


def _sticky(members: list[CandidateMember], partitions: Mapping[str, int], racks: Racks) -> Assignment:
    topics = [frozenset(topic for topic in one.subscription.topics if partitions.get(topic)) for one in members]
    owned = _owned(members, partitions)
    every = [
        TopicPartition(topic, number)
        for topic in sorted(frozenset().union(*topics))
        for number in range(partitions[topic])
    ]
    nearness = Nearness({one.id: one.subscription.rack for one in members}, every, racks)
    if all(one == topics[0] for one in topics):
        return _even(owned, every, nearness)
    wanted = {one.id: some for one, some in zip(members, topics, strict=True)}
    return _uneven(owned, wanted, partitions, nearness)


def _owned(members: list[CandidateMember], partitions: Mapping[str, int]) -> Assignment:
    """The partitions that each member may claim: the newest generation's claim wins; equal claims cancel out."""
    claims: dict[TopicPartition, tuple[int, str | None]] = {}
    for member in members:
        subscription = member.subscription
        for one in subscription.owned:
            if one.topic not in subscription.topics or one.partition >= partitions.get(one.topic, 0):
                continue
            known = claims.get(one)
            if known is None or subscription.generation > known[0]:
                claims[one] = (subscription.generation, member.id)
            elif subscription.generation == known[0]:
                claims[one] = (known[0], None)
    found: Assignment = {member.id: [] for member in members}
    for one, (_, owner) in claims.items():
        if owner is not None:
            found[owner].append(one)
    return found


def _even(owned: Assignment, every: list[TopicPartition], nearness: Nearness) -> Assignment:
    """Assign if all members subscribe to the same topics: each gets the quota, or one more."""
    quota, over_left = divmod(len(every), len(owned))
    found: Assignment = {member: [] for member in owned}
    hungry: list[str] = []
    content: list[str] = []
    for member in sorted(owned, key=_java_order(len(owned))):
        claimed = [one for one in owned[member] if nearness.near(member, one)]
        have = sorted(claimed, key=lambda one: (one.partition, one.topic))
        if len(have) < quota:
            found[member] += have
            hungry.append(member)
        elif len(have) > quota and over_left:
            over_left -= 1
            found[member] += have[: quota + 1]
        else:
            found[member] += have[:quota]
            content.append(member)
    taken = {one for assigned in found.values() for one in assigned}
    hungry.sort()
    content = sorted(content) if over_left else []
    free = nearness.in_order([one for one in every if one not in taken])
    if nearness.of_members:
        free = _feed_the_near(free, found, hungry, content, quota, over_left, nearness)
    turn = 0
    for one in free:
        if hungry:
            turn %= len(hungry)
            member = hungry[turn]
            found[member].append(one)
            if len(found[member]) == quota:
                # The member has its quota; it may get one more when all members have theirs.
                content.append(hungry.pop(turn))
            else:
                turn += 1
        else:
            found[content.pop(0)].append(one)
    return found


def _feed_the_near(
    free: list[TopicPartition],
    found: Assignment,
    hungry: list[str],
    content: list[str],
    quota: int,
    over_left: int,
    nearness: Nearness,
) -> list[TopicPartition]:
    """Give free partitions to near members with room; returns the rest. `over_left` members may get one more."""
    left: list[TopicPartition] = []
    turn = 0
    for one in free:
        place = nearness.next_of(one, hungry, turn)
        if place is not None:
            member = hungry[place]
            if len(found[member]) + 1 >= quota:
                del hungry[place]
                if over_left:
                    content.append(member)
            else:
                place += 1
            turn = place % len(hungry) if hungry else 0
        else:
            place = nearness.next_of(one, content, 0)
            if place is None:
                left.append(one)
                continue
            member = content.pop(place)
            over_left -= 1
            if not over_left:
                content.clear()
        found[member].append(one)
    return left


def _java_order(count: int) -> Callable[[str], int]:
    """The iteration order of a Java HashMap with `count` names, which decides who keeps a surplus partition there.

    The table's size is a power of two, at least 16, that is at most three quarters full.
    """
    size = 16
    while count > size * 3 // 4:
        size *= 2

    def place(name: str) -> int:
        value = java_string_hash(name) & 0xFFFFFFFF
        return (value ^ (value >> 16)) & (size - 1)

    return place


def _uneven(
    owned: Assignment, wanted: Mapping[str, frozenset[str]], partitions: Mapping[str, int], nearness: Nearness
) -> Assignment:
    """Assign if members subscribe to different topics: keep claims, give the rest to the least loaded, then level.

    Among equally loaded members, a near one comes first.
    """
    found: Assignment = {member: list(claimed) for member, claimed in owned.items()}
    taken = {one for assigned in found.values() for one in assigned}
    readers = {
        topic: sorted(member for member, topics in wanted.items() if topic in topics)
        for topic in sorted({topic for topics in wanted.values() for topic in topics})
    }
    free = [
        one
        for topic in sorted(readers, key=lambda topic: (len(readers[topic]), topic))
        for number in range(partitions[topic])
        if (one := TopicPartition(topic, number)) not in taken
    ]
    for one in free:
        found[_least(readers[one.topic], found, one, nearness)].append(one)
    moved = True
    while moved:
        moved = False
        for giver in sorted(found, key=lambda member: (-len(found[member]), member)):
            for one in sorted(found[giver]):
                taker = _least(readers[one.topic], found, one, nearness)
                # Each move brings two loads closer together, so this ends.
                if len(found[giver]) - len(found[taker]) > 1:
                    found[giver].remove(one)
                    found[taker].append(one)
                    moved = True
    return found


def _least(readers: list[str], found: Assignment, one: TopicPartition, nearness: Nearness) -> str:
    return min(readers, key=lambda member: (len(found[member]), not nearness.near(member, one), member))
