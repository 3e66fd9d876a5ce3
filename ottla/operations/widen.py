"""A plan that adds replicas to partitions that have too few: which nodes take them. Pure.

Rules:
- The existing replicas stay, in their order; new ones follow.
- A new replica goes to a node without a replica of the partition: first to one in a rack that holds no replica of it,
  then to the node with the fewest replicas, counting the moves of this plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from ottla.kernel.ids import TopicPartition


def plan_widening(
    replicas: Mapping[TopicPartition, Sequence[int]], racks: Mapping[int, str | None], count: int
) -> dict[TopicPartition, list[int]]:
    """Return partition -> its replicas, for each partition that gets more: `count`, or as many as there are nodes.

    `replicas`: those of every partition of the cluster. `racks`: node -> rack of all nodes.
    """
    load = Counter(node for held in replicas.values() for node in held)
    plan: dict[TopicPartition, list[int]] = {}
    for tp, before in sorted(replicas.items()):
        held = list(before)
        while len(held) < count and (free := [node for node in racks if node not in held]):
            taken_racks = {racks.get(node) for node in held} - {None}
            target = min(free, key=lambda node: (racks[node] in taken_racks, load[node], node))
            load[target] += 1
            held.append(target)
        if len(held) > len(before):
            plan[tp] = held
    return plan
