"""The server-side assignors `uniform` and `range` of KIP-848. Pure functions.

Rules:
- `uniform` gives every member the same number of partitions, give or take one, as far as subscriptions allow, and moves
  as few partitions as possible.
- `range` gives each member a contiguous range of every topic, and the same range in topics with equal partition counts,
  so that one member has both sides of a join. It ignores the present assignment.
- The same input in the same order gives the same result. `range` sorts static members first, by instance id, so that a
  restart under another member id changes nothing.

Like Apache Kafka 4's assignors, they ignore racks.
"""

from bisect import insort
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from heapq import heapify, heapreplace

from ottla.group.state.consumer import Target
from ottla.kernel.frozen import frozen
from ottla.kernel.ids import Uuid

#: The most balancing rounds for members with overlapping subscriptions. Each about halves the imbalance.
_ROUNDS_MAX = 16


@frozen
class Subscriber:
    """A member as an assignor sees it."""

    #: The existing topics that the member subscribes to.
    topics: Sequence[Uuid]
    #: Its present target.
    target: Target = field(default_factory=dict)
    instance_id: str | None = None
    #: Its subscription as it is written: the names, also of topics that do not exist, and the regular expression.
    subscription: tuple[tuple[str, ...], str | None] = ((), None)


#: By member id. The order breaks ties.
Subscribers = Mapping[str, Subscriber]
#: Topic id -> number of partitions.
Counts = Mapping[Uuid, int]
Assignor = Callable[[Subscribers, Counts], dict[str, Target]]


def assign_range(members: Subscribers, counts: Counts) -> dict[str, Target]:
    """Assign contiguous ranges, topic by topic."""
    order = sorted(
        members,
        key=lambda member_id: (
            members[member_id].instance_id is None,
            members[member_id].instance_id or member_id,
        ),
    )
    takers: dict[Uuid, int] = {}
    for member in members.values():
        for topic_id in member.topics:
            takers[topic_id] = takers.get(topic_id, 0) + 1
    start = dict.fromkeys(takers, 0)
    extra = {topic_id: counts[topic_id] % count for topic_id, count in takers.items()}
    assignment: dict[str, Target] = {}
    for member_id in order:
        target: dict[Uuid, tuple[int, ...]] = {}
        for topic_id in members[member_id].topics:
            size = counts[topic_id] // takers[topic_id]
            if extra[topic_id]:
                extra[topic_id] -= 1
                size += 1
            if size:
                target[topic_id] = tuple(range(start[topic_id], start[topic_id] + size))
                start[topic_id] += size
        assignment[member_id] = target
    return assignment


def assign_uniform(members: Subscribers, counts: Counts) -> dict[str, Target]:
    """Assign evenly, with few moves. As in Apache Kafka, subscriptions are equal only if they are written the same."""
    subscriptions = {(frozenset(member.topics), member.subscription) for member in members.values()}
    if len(subscriptions) <= 1:
        return _assign_equal_subscriptions(members, counts)
    return _Balance(members, counts).assignment()


def _assign_equal_subscriptions(members: Subscribers, counts: Counts) -> dict[str, Target]:
    """Assign for equal subscriptions: keep partitions up to a member's share, deal out the rest."""
    if not members:
        return {}
    topics = dict.fromkeys(next(iter(members.values())).topics)
    held = {
        (topic_id, partition)
        for member in members.values()
        for topic_id, partitions in member.target.items()
        for partition in partitions
    }
    free = [
        (topic_id, partition)
        for topic_id in topics
        for partition in range(counts[topic_id])
        if (topic_id, partition) not in held
    ]
    share, with_one_more = divmod(sum(counts[topic_id] for topic_id in topics), len(members))
    kept: dict[str, dict[Uuid, list[int]]] = {}
    unfilled: list[tuple[str, int]] = []
    for index, (member_id, member) in enumerate(members.items()):
        room = share + (1 if with_one_more else 0)
        keeps: dict[Uuid, list[int]] = {}
        for topic_id, partitions in member.target.items():
            if topic_id not in topics:
                continue
            present = [partition for partition in partitions if partition < counts[topic_id]]
            keeps[topic_id] = present[:room]
            free += [(topic_id, partition) for partition in present[room:]]
            room -= len(keeps[topic_id])
        takes_one_more = with_one_more > 0
        if takes_one_more and room and len(members) - index > with_one_more:
            # The member has room anyway: leave the extra partition to a member that may have it already.
            room -= 1
            takes_one_more = False
        with_one_more -= takes_one_more
        kept[member_id] = keeps
        if room:
            unfilled.append((member_id, room))
    dealt = iter(free)
    for member_id, room in unfilled:
        for _, (topic_id, partition) in zip(range(room), dealt, strict=False):
            insort(kept[member_id].setdefault(topic_id, []), partition)
    assert next(dealt, None) is None, "partitions were left over"
    return {member_id: _target(keeps) for member_id, keeps in kept.items()}


def _target(partitions: Mapping[Uuid, Sequence[int]]) -> Target:
    return {topic_id: tuple(indexes) for topic_id, indexes in partitions.items() if indexes}


class _Balance:
    """The assignment for different subscriptions: deal each topic to the least loaded members, then even out."""

    def __init__(self, members: Subscribers, counts: Counts) -> None:
        self.member_ids = list(members)
        #: Topic id -> indexes of its subscribers in `member_ids`, ascending.
        self.subscribers: dict[Uuid, list[int]] = {}
        for index, member in enumerate(members.values()):
            for topic_id in dict.fromkeys(member.topics):
                self.subscribers.setdefault(topic_id, []).append(index)
        #: Topic id -> owner of each partition; -1 for none.
        self.owners = {topic_id: [-1] * counts[topic_id] for topic_id in self.subscribers}
        self.loads = [0] * len(members)
        for index, member in enumerate(members.values()):
            subscribed = frozenset(member.topics)
            for topic_id, partitions in member.target.items():
                if topic_id in subscribed:
                    for partition in partitions:
                        if partition < counts[topic_id]:
                            self._give(topic_id, partition, index)

    def assignment(self) -> dict[str, Target]:
        topics = sorted(self.subscribers, key=self._urgency)
        for topic_id in topics:
            self._deal(topic_id)
        shared = [topic_id for topic_id in topics if len(self.subscribers[topic_id]) > 1]
        unchanged_topics = 0
        for topic_id in shared * _ROUNDS_MAX:
            unchanged_topics = 0 if self._even_out(topic_id) else unchanged_topics + 1
            if unchanged_topics == len(shared):
                break
        targets: list[dict[Uuid, list[int]]] = [{} for _ in self.member_ids]
        for topic_id, owners in self.owners.items():
            for partition, owner in enumerate(owners):
                targets[owner].setdefault(topic_id, []).append(partition)
        return {member_id: _target(target) for member_id, target in zip(self.member_ids, targets, strict=True)}

    def _urgency(self, topic_id: Uuid) -> tuple[float, int, int, int]:
        """The sort key of topics: many partitions for few subscribers go first, since they leave the least choice."""
        subscribers = len(self.subscribers[topic_id])
        # Ties follow Java's order of UUIDs: two signed numbers.
        high, low = (int.from_bytes(half, "big", signed=True) for half in (topic_id[:8], topic_id[8:]))
        return -len(self.owners[topic_id]) / subscribers, subscribers, high, low

    def _give(self, topic_id: Uuid, partition: int, member: int) -> None:
        owner = self.owners[topic_id][partition]
        if owner != -1:
            self.loads[owner] -= 1
        self.owners[topic_id][partition] = member
        self.loads[member] += 1

    def _by_load(self, topic_id: Uuid) -> list[int]:
        return sorted(self.subscribers[topic_id], key=lambda member: (self.loads[member], member))

    def _deal(self, topic_id: Uuid) -> None:
        """Give unowned partitions to the least loaded members; ties keep the order of the first round."""
        # In order, and so a heap.
        queue = [(self.loads[member], place, member) for place, member in enumerate(self._by_load(topic_id))]
        for partition, owner in enumerate(self.owners[topic_id]):
            if owner == -1:
                load, place, member = queue[0]
                self._give(topic_id, partition, member)
                heapreplace(queue, (load + 1, place, member))

    def _even_out(self, topic_id: Uuid) -> bool:
        """Move partitions of one topic from the most to the least loaded members; True if any was moved."""
        order = self._by_load(topic_id)
        given: dict[int, list[int]] = {}
        for partition, owner in enumerate(self.owners[topic_id]):
            given.setdefault(owner, []).append(partition)
        least = [(self.loads[member], place, member) for place, member in enumerate(order)]
        most = [(-self.loads[member], -place, member) for place, member in enumerate(order) if member in given]
        heapify(most)
        moved = False
        while most:
            load, place, giver = most[0]
            taker = least[0][2]
            if self.loads[giver] - self.loads[taker] <= 1:
                break
            self._give(topic_id, given[giver].pop(), taker)
            moved = True
            heapreplace(least, (self.loads[taker], least[0][1], taker))
            if given[giver]:
                heapreplace(most, (load + 1, place, giver))
            else:
                most.remove(most[0])
                heapify(most)
        return moved


#: The assignors by the names in `group.consumer.assignors` and in requests.
ASSIGNORS: Mapping[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
