"""The assignor `simple` of KIP-932 for share groups. Pure functions.

Rules:
- Every partition gets the same number of members: the fewest with which each member has a partition.
- Every member gets the same number of partitions, give or take one; if there are fewer partitions than members, each is
  shared.
- As little as possible moves: a member keeps its partitions up to its share.
- If all subscriptions are equal, all topics are assigned together, otherwise topic by topic. As in Apache Kafka, topics
  that do not exist count.
"""

from collections import deque
from collections.abc import Mapping, Sequence

from ottla.group.state.consumer import Target
from ottla.kernel.ids import Uuid

SIMPLE = "simple"

_Tp = tuple[Uuid, int]


def assign_simple(
    subscriptions: Mapping[str, Sequence[Uuid]],
    present: Mapping[str, Target],
    partitions: Mapping[Uuid, Sequence[int]],
    *,
    same_names: bool = True,
) -> dict[str, Target]:
    """Member id -> target, from the subscriptions, the present targets, and the assignable partitions.

    `same_names`: do the members name the same topics, counting those that do not exist?
    """
    given: dict[str, dict[Uuid, list[int]]] = {member_id: {} for member_id in subscriptions}
    alike = same_names and len({frozenset(topics) for topics in subscriptions.values()}) == 1
    every = dict.fromkeys(topic_id for topics in subscriptions.values() for topic_id in topics)
    for together in [list(every)] if alike else [[topic_id] for topic_id in every]:
        members = [member_id for member_id, topics in subscriptions.items() if set(together) & set(topics)]
        wanted = [(topic_id, index) for topic_id in together for index in partitions.get(topic_id, ())]
        for member_id, taken in _deal(wanted, members, present).items():
            for topic_id, index in taken:
                given[member_id].setdefault(topic_id, []).append(index)
    return {
        member_id: {topic_id: tuple(sorted(indexes)) for topic_id, indexes in topics.items()}
        for member_id, topics in given.items()
    }


def _deal(partitions: Sequence[_Tp], members: Sequence[str], present: Mapping[str, Target]) -> dict[str, list[_Tp]]:
    if not partitions:
        return {}
    sharing = -(-len(members) // len(partitions))
    total = sharing * len(partitions)
    room = {
        member_id: -(-total * (index + 1) // len(members)) - -(-total * index // len(members))
        for index, member_id in enumerate(members)
    }
    takers: dict[_Tp, list[str]] = {tp: [] for tp in partitions}
    taken: dict[str, list[_Tp]] = {member_id: [] for member_id in members}
    for member_id in members:
        for topic_id, indexes in present.get(member_id, {}).items():
            for index in indexes:
                tp = topic_id, index
                if tp in takers and len(taken[member_id]) < room[member_id] and len(takers[tp]) < sharing:
                    takers[tp].append(member_id)
                    taken[member_id].append(tp)
    unfilled = deque(member_id for member_id in members if len(taken[member_id]) < room[member_id])
    for tp, holders in takers.items():
        for _ in range(len(unfilled)):
            if len(holders) == sharing:
                break
            member_id = unfilled.popleft()
            if member_id in holders:
                # Try the next member with room; if all of them have this partition, it gets fewer members.
                unfilled.append(member_id)
                continue
            holders.append(member_id)
            taken[member_id].append(tp)
            if len(taken[member_id]) < room[member_id]:
                unfilled.append(member_id)
    return taken
