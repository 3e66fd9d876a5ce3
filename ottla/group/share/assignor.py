"""The assignor `simple` of KIP-932: which member of a share group reads which partitions. Pure functions.

Rules:
- Every partition gets the same number of members: as many as it takes that each member has a partition.
- Every member gets as many partitions as every other, give or take one; of partitions that are fewer than members each
  is shared.
- Under that as little moves as can be: a member keeps what it has, up to its number.
- Members with the same subscription are served together; with different ones, topic by topic.
"""

from collections import deque
from collections.abc import Mapping, Sequence

from ottla.group.state.consumer import Target
from ottla.kernel.ids import Uuid

SIMPLE = "simple"

_Tp = tuple[Uuid, int]


def assign_simple(
    subscriptions: Mapping[str, Sequence[Uuid]], present: Mapping[str, Target], partitions: Mapping[Uuid, Sequence[int]]
) -> dict[str, Target]:
    """Member id -> what it should have, from its topics, what it has, and the partitions that can be assigned."""
    given: dict[str, dict[Uuid, list[int]]] = {member_id: {} for member_id in subscriptions}
    alike = len({frozenset(topics) for topics in subscriptions.values()}) == 1
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
                # A member may take another one; if all that have room have this one, it stays with fewer members.
                unfilled.append(member_id)
                continue
            holders.append(member_id)
            taken[member_id].append(tp)
            if len(taken[member_id]) < room[member_id]:
                unfilled.append(member_id)
    return taken
