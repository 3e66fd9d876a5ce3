"""The plan of a cluster: its nodes, and the server.properties of each. Pure.

Rules:
- The first nodes are combined brokers and controllers and vote in the metadata quorum; the others are brokers.
- Replication factors are three, or the number of nodes if fewer; with three or more nodes, a write needs two replicas.
- A node's id, addresses and rack never change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from ottla.kernel.error import OttlaError

HOST = "127.0.0.1"
#: The replicas of a partition, if there are enough nodes.
REPLICAS_MAX = 3
_VOTERS_MAX = 3


@dataclass(slots=True)
class PlannedNode:
    """The configuration of a node."""

    node_id: int
    port: int
    controller_port: int = 0
    #: The id of the metadata directory, as text; empty for a node that is not an initial voter.
    directory_id: str = ""
    rack: str = ""

    @property
    def is_controller(self) -> bool:
        return self.controller_port > 0

    @property
    def address(self) -> str:
        """`host:port` for clients."""
        return f"{HOST}:{self.port}"


@dataclass(slots=True)
class ClusterPlan:
    """The configuration of a cluster; `as_document` is the content of `cluster.json`."""

    cluster_id: str
    nodes: list[PlannedNode] = field(default_factory=list)
    #: Settings for every node, which override those of the plan.
    settings: dict[str, str] = field(default_factory=dict)

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(each.address for each in self.nodes)

    def node(self, node_id: int) -> PlannedNode:
        """The node with this id. OttlaError lists the existing ones."""
        for each in self.nodes:
            if each.node_id == node_id:
                return each
        there = ", ".join(str(each.node_id) for each in self.nodes)
        raise OttlaError(f"there is no node {node_id} in this cluster; its nodes are {there}")

    def initial_controllers(self) -> str:
        """The initial voters of the quorum, in the form of `kafka-storage format --initial-controllers`."""
        return ",".join(
            f"{each.node_id}@{HOST}:{each.controller_port}:{each.directory_id}"
            for each in self.nodes
            if each.is_controller and each.directory_id
        )

    def properties(self, node: PlannedNode, log_dir: str) -> dict[str, str]:
        """The settings of a node by Kafka's names."""
        replicas = str(min(REPLICAS_MAX, len(self.nodes)))
        in_sync = "2" if len(self.nodes) >= REPLICAS_MAX else "1"
        listeners = f"PLAINTEXT://{node.address}"
        if node.is_controller:
            listeners += f",CONTROLLER://{HOST}:{node.controller_port}"
        voters = ",".join(f"{HOST}:{each.controller_port}" for each in self.nodes if each.is_controller)
        planned = {
            "process.roles": "broker,controller" if node.is_controller else "broker",
            "node.id": str(node.node_id),
            "listeners": listeners,
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": voters,
            "log.dirs": log_dir,
            "default.replication.factor": replicas,
            "min.insync.replicas": in_sync,
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": in_sync,
            "share.coordinator.state.topic.replication.factor": replicas,
            "share.coordinator.state.topic.min.isr": in_sync,
            "group.initial.rebalance.delay.ms": "0",
        }
        if node.rack:
            planned["broker.rack"] = node.rack
        return planned | self.settings

    def as_document(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of_document(cls, document: Mapping[str, Any]) -> ClusterPlan:
        nodes = [PlannedNode(**each) for each in document["nodes"]]
        return cls(document["cluster_id"], nodes, dict(document["settings"]))


def voters_of(nodes: int, controllers: int | None) -> int:
    """How many nodes vote: `controllers`, or by default the largest odd number up to three and `nodes`."""
    if nodes < 1:
        raise OttlaError(f"a cluster has at least one node, not {nodes}")
    if controllers is None:
        most = min(_VOTERS_MAX, nodes)
        return most if most % 2 else most - 1
    if not 1 <= controllers <= nodes:
        raise OttlaError(f"of {nodes} nodes 1 to {nodes} can be controllers, not {controllers}")
    return controllers


def rack_of(racks: Sequence[str], index: int) -> str:
    """The rack of the node at `index`: racks are assigned in turn."""
    return racks[index % len(racks)] if racks else ""
