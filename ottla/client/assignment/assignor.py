"""Which member of a classic group reads which partition: what the group's leader decides for all.

Rules:
- The same members, topics and numbers of partitions give the same assignment as the Java client's assignors of the same
  names: leaders of both kinds may follow each other in a group. (For `sticky` and `cooperative-sticky` that holds when
  all members subscribe to the same topics; otherwise the assignment is as balanced, but need not be the same.)
- `cooperative-sticky` never gives a partition to a new owner while the old one has it: that is for the next rebalance,
  which follows at once (KIP-429).

- Members are given what is near them, by the racks of the partitions' replicas, as far as balance allows (`rack`).

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
    """A member as the assignors see it."""

    id: str
    subscription: Subscription
    instance_id: str | None = None

    @property
    def order(self) -> tuple[int, str]:
        """Static members stand before the others, by instance id; the others by member id."""
        return (0, self.instance_id) if self.instance_id is not None else (1, self.id)


Assignment = dict[str, list[TopicPartition]]
#: Members, how many partitions each topic has, and the racks of these.
Assign = Callable[[list[CandidateMember], Mapping[str, int], Racks], Assignment]


def assign_range(members: list[CandidateMember], partitions: Mapping[str, int], racks: Racks) -> Assignment:
    """Topic by topic, in stretches: the first members get one more where it does not divide."""
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
    """All partitions in order, dealt out one by one to those who subscribe."""
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
    """As even as can be, and members keep what they have as far as that allows."""
    return _sticky(members, partitions, racks)


def assign_cooperative(members: list[CandidateMember], partitions: Mapping[str, int], racks: Racks) -> Assignment:
    """Sticky; a partition that changes hands is unassigned until its old owner has let go."""
    found = _sticky(members, partitions, racks)
    owner = {one: member.id for member in members for one in member.subscription.owned}
    for member_id, assigned in found.items():
        found[member_id] = [one for one in assigned if owner.get(one, member_id) == member_id]
    return found


#: By the name that stands in JoinGroup.
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
    """What each member may claim: of several claims the newest generation's holds, of two equal ones none."""
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
    """All members want the same topics: each gets the quota, or one more."""
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
                # The member has its quota: it may get one more when all have theirs.
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
    """Give what is free to members near it that have room; returns what found none. `over_left` may have one more."""
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
    """The order in which a Java HashMap of so many names is walked: there it decides who keeps the one that is over.

    The table's size is the power of two that keeps it at most three quarters full, 16 at least.
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
    """Members want different topics: keep what is kept, give the rest to the least loaded, then level out.

    Of members as loaded as each other, one that is near comes first.
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
                # Each move brings two loads nearer to each other, so this ends.
                if len(found[giver]) - len(found[taker]) > 1:
                    found[giver].remove(one)
                    found[taker].append(one)
                    moved = True
    return found


def _least(readers: list[str], found: Assignment, one: TopicPartition, nearness: Nearness) -> str:
    return min(readers, key=lambda member: (len(found[member]), not nearness.near(member, one), member))
