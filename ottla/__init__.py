"""Ottla: Apache Kafka's job done in Python, for people who live in Python.

`ottla.Node` is a whole broker in your process. Start reading at `ottla.broker.node`; docs/ARCHITECTURE.md is the map.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.embedded.cluster.cluster import Cluster
    from ottla.embedded.node import Node

__all__ = ["Cluster", "Node", "__version__"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    # The broker is imported on first use: a client or a tool does not need it.
    if name == "Node":
        from ottla.embedded.node import Node

        return Node
    if name == "Cluster":
        from ottla.embedded.cluster.cluster import Cluster

        return Cluster
    raise AttributeError(f"module 'ottla' has no attribute {name!r}")
