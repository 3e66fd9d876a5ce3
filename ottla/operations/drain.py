"""A plan that empties a node: which node takes each of its replicas. Pure.

Rules:
- A replica goes to a node without a replica of the partition: first to one in a rack that holds no other replica of
  it, then to the node with the fewest replicas, counting the moves of this plan.
- The position in the list stays: the node that takes the first replica becomes the preferred leader.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from ottla.kernel.error import OttlaError
from ottla.kernel.ids import TopicPartition


def plan_drain(
    replicas: Mapping[TopicPartition, Sequence[int]], racks: Mapping[int, str | None], node_id: int
) -> dict[TopicPartition, list[int]]:
    """Return partition -> its replicas without `node_id`, for each partition that the node holds.

    `replicas`: those of every partition of the cluster. `racks`: node -> rack of the nodes that may take replicas;
    `node_id` is ignored. OttlaError names a partition whose replica no other node can take.
    """
    load = Counter(node for held in replicas.values() for node in held)
    others = sorted(node for node in racks if node != node_id)
    plan: dict[TopicPartition, list[int]] = {}
    for tp, held in sorted(replicas.items()):
        if node_id not in held:
            continue
        free = [other for other in others if other not in held]
        if not free:
            raise OttlaError(
                f"{tp} has {len(held)} replicas, but without node {node_id} there are {len(others)} nodes: add a node "
                "first (ottla cluster add-node)"
            )
        taken_racks = {racks.get(node) for node in held if node != node_id} - {None}
        target = min(free, key=lambda node: (racks[node] in taken_racks, load[node], node))
        load[target] += 1
        plan[tp] = [target if node == node_id else node for node in held]
    return plan
