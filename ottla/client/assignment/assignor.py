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

from ottla.client.assignment.consumer_protocol import Subscription, parse_sticky_user_data
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
    in_order = sorted(members, key=lambda member: member.order)
    readers = {
        topic: [(member.id, member.subscription.rack) for member in in_order if topic in member.subscription.topics]
        for topic in topics
        if partitions.get(topic)
    }
    assignment = range_by_rack(partitions, readers, racks)
    return {member.id: assignment.get(member.id, []) for member in members}


def assign_round_robin(members: list[CandidateMember], partitions: Mapping[str, int], racks: Racks) -> Assignment:
    """Deal all partitions in order, one by one, to the members that subscribe to their topic."""
    assignment: Assignment = {member.id: [] for member in members}
    circle = sorted(members, key=lambda one: one.order)
    position = 0
    for topic in sorted({topic for member in members for topic in member.subscription.topics}):
        for number in range(partitions.get(topic, 0)):
            while topic not in circle[position].subscription.topics:
                position = (position + 1) % len(circle)
            assignment[circle[position].id].append(TopicPartition(topic, number))
            position = (position + 1) % len(circle)
    return assignment


def assign_sticky(members: list[CandidateMember], partitions: Mapping[str, int], racks: Racks) -> Assignment:
    """Balance as evenly as possible, letting members keep their partitions as far as that allows.

    Members give up their partitions before they join, so their user data tell what they had.
    """
    return _sticky([_remembering(member) for member in members], partitions, racks)


def _remembering(member: CandidateMember) -> CandidateMember:
    """The member with the claims of its user data."""
    subscription = member.subscription
    if subscription.user_data is None:
        return member
    owned, generation = parse_sticky_user_data(subscription.user_data)
    return CandidateMember(
        member.id, Subscription(subscription.topics, owned, generation, subscription.rack), member.instance_id
    )


def assign_cooperative(members: list[CandidateMember], partitions: Mapping[str, int], racks: Racks) -> Assignment:
    """Sticky, but a partition that changes hands stays unassigned until its old owner has revoked it."""
    assignment = _sticky(members, partitions, racks)
    owner = _owners(members)
    for member_id, assigned in assignment.items():
        assignment[member_id] = [partition for partition in assigned if owner.get(partition, member_id) == member_id]
    return assignment


#: Assignors by their name in JoinGroup.
ASSIGNORS: dict[str, Assign] = {
    "range": assign_range,
    "roundrobin": assign_round_robin,
    "sticky": assign_sticky,
    "cooperative-sticky": assign_cooperative,
}


def _sticky(members: list[CandidateMember], partitions: Mapping[str, int], racks: Racks) -> Assignment:
    topics = [frozenset(topic for topic in member.subscription.topics if partitions.get(topic)) for member in members]
    owned = _owned(members, partitions)
    all_partitions = [
        TopicPartition(topic, number)
        for topic in sorted(frozenset().union(*topics))
        for number in range(partitions[topic])
    ]
    nearness = Nearness({member.id: member.subscription.rack for member in members}, all_partitions, racks)
    if all(member_topics == topics[0] for member_topics in topics):
        return _even(owned, all_partitions, nearness)
    wanted = {member.id: member_topics for member, member_topics in zip(members, topics, strict=True)}
    return _uneven(owned, wanted, partitions, nearness)


def _owned(members: list[CandidateMember], partitions: Mapping[str, int]) -> Assignment:
    """The partitions that each member may keep: those that it owns, still reads, and that still exist."""
    owners = _owners(members)
    return {
        member.id: [
            partition
            for partition in dict.fromkeys(member.subscription.owned)
            if owners[partition] == member.id
            and partition.topic in member.subscription.topics
            and partition.partition < partitions.get(partition.topic, 0)
        ]
        for member in members
    }


def _owners(members: list[CandidateMember]) -> dict[TopicPartition, str | None]:
    """The owner of each claimed partition: the newest generation's claim wins; equal claims cancel out (None)."""
    claims: dict[TopicPartition, tuple[int, str | None]] = {}
    for member in members:
        generation = member.subscription.generation
        for partition in dict.fromkeys(member.subscription.owned):
            known = claims.get(partition)
            if known is None or generation > known[0]:
                claims[partition] = (generation, member.id)
            elif generation == known[0]:
                claims[partition] = (generation, None)
    return {partition: owner for partition, (_, owner) in claims.items()}


def _even(owned: Assignment, all_partitions: list[TopicPartition], nearness: Nearness) -> Assignment:
    """Assign if all members subscribe to the same topics: each gets the quota, or one more."""
    quota, over_left = divmod(len(all_partitions), len(owned))
    assignment: Assignment = {member: [] for member in owned}
    below_quota: list[str] = []
    at_quota: list[str] = []
    for member in sorted(owned, key=_java_order(len(owned))):
        claimed = [partition for partition in owned[member] if nearness.near(member, partition)]
        have = sorted(claimed, key=lambda partition: (partition.partition, partition.topic))
        if len(have) < quota:
            assignment[member] += have
            below_quota.append(member)
        elif len(have) > quota and over_left:
            over_left -= 1
            assignment[member] += have[: quota + 1]
        else:
            assignment[member] += have[:quota]
            at_quota.append(member)
    taken = {partition for assigned in assignment.values() for partition in assigned}
    below_quota.sort()
    at_quota = sorted(at_quota) if over_left else []
    free = nearness.in_order([partition for partition in all_partitions if partition not in taken])
    if nearness.rack_of_member:
        free = _assign_near(free, assignment, below_quota, at_quota, quota, over_left, nearness)
    position = 0
    for partition in free:
        if below_quota:
            position %= len(below_quota)
            member = below_quota[position]
            assignment[member].append(partition)
            if len(assignment[member]) == quota:
                # The member has its quota; it may get one more when all members have theirs.
                at_quota.append(below_quota.pop(position))
            else:
                position += 1
        else:
            assignment[at_quota.pop(0)].append(partition)
    return assignment


def _assign_near(
    free: list[TopicPartition],
    assignment: Assignment,
    below_quota: list[str],
    at_quota: list[str],
    quota: int,
    over_left: int,
    nearness: Nearness,
) -> list[TopicPartition]:
    """Give free partitions to near members with room; returns the rest. `over_left` members may get one more."""
    left: list[TopicPartition] = []
    position = 0
    for partition in free:
        index = nearness.next_of(partition, below_quota, position)
        if index is not None:
            member = below_quota[index]
            if len(assignment[member]) + 1 >= quota:
                del below_quota[index]
                if over_left:
                    at_quota.append(member)
            else:
                index += 1
            position = index % len(below_quota) if below_quota else 0
        else:
            index = nearness.next_of(partition, at_quota, 0)
            if index is None:
                left.append(partition)
                continue
            member = at_quota.pop(index)
            over_left -= 1
            if not over_left:
                at_quota.clear()
        assignment[member].append(partition)
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
    assignment: Assignment = {member: list(claimed) for member, claimed in owned.items()}
    taken = {partition for assigned in assignment.values() for partition in assigned}
    readers = {
        topic: sorted(member for member, topics in wanted.items() if topic in topics)
        for topic in sorted({topic for topics in wanted.values() for topic in topics})
    }
    free = [
        partition
        for topic in sorted(readers, key=lambda topic: (len(readers[topic]), topic))
        for number in range(partitions[topic])
        if (partition := TopicPartition(topic, number)) not in taken
    ]
    for partition in free:
        assignment[_least(readers[partition.topic], assignment, partition, nearness)].append(partition)
    moved = True
    while moved:
        moved = False
        for giver in sorted(assignment, key=lambda member: (-len(assignment[member]), member)):
            for partition in sorted(assignment[giver]):
                taker = _least(readers[partition.topic], assignment, partition, nearness)
                # Each move brings two loads closer together, so this ends.
                if len(assignment[giver]) - len(assignment[taker]) > 1:
                    assignment[giver].remove(partition)
                    assignment[taker].append(partition)
                    moved = True
    return assignment


def _least(readers: list[str], assignment: Assignment, partition: TopicPartition, nearness: Nearness) -> str:
    return min(readers, key=lambda member: (len(assignment[member]), not nearness.near(member, partition), member))
