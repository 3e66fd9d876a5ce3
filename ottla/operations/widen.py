"""More replicas for partitions that have too few: which nodes take them. Pure.

Rules:
- The replicas that there are stay, in their order; new ones come behind them.
- A new replica goes to a node that has none of the partition: first to one in a rack that holds no replica of it, then
  to the node with the fewest replicas, moves of this plan counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from ottla.kernel.ids import TopicPartition


def widened(
    replicas: Mapping[TopicPartition, Sequence[int]], racks: Mapping[int, str | None], count: int
) -> dict[TopicPartition, list[int]]:
    """Partition -> its replicas, for each that gets more: `count`, or as many as there are nodes.

    `replicas`: of every partition of the cluster. `racks`: node -> rack of all nodes.
    """
    load = Counter(each for held in replicas.values() for each in held)
    plan: dict[TopicPartition, list[int]] = {}
    for tp, before in sorted(replicas.items()):
        held = list(before)
        while len(held) < count and (free := [each for each in racks if each not in held]):
            taken_racks = {racks.get(each) for each in held} - {None}
            target = min(free, key=lambda each: (racks[each] in taken_racks, load[each], each))
            load[target] += 1
            held.append(target)
        if len(held) > len(before):
            plan[tp] = held
    return plan
