"""The brokers as clients of one listener see them (KRaftMetadataCache in Apache Kafka).

Rules:
- A broker appears with its address on the client's listener. A broker without that listener is left out, and partitions
  that it leads get LISTENER_NOT_FOUND (Metadata 6 and later) or LEADER_NOT_AVAILABLE.
- Fenced brokers are left out and their replicas are offline, as are replicas in failed directories.
- Clients need not find the controller: any live broker is reported as controller, because each forwards requests.
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.controller.placement import is_offline
from ottla.kernel.error import ErrorCode
from ottla.kernel.named import NamedTuple
from ottla.kernel.ports import Rng
from ottla.metadata.image import NO_LEADER, BrokerImage, Image, PartitionImage
from ottla.net.peer import Peer


class BrokerNodeAddress(NamedTuple):
    """A broker's address on one listener."""

    node_id: int
    host: str
    port: int
    rack: str | None
    fenced: bool


def peer_of(image: Image, broker_id: int, listener_name: str) -> Peer | None:
    """The broker at the inter-broker listener; None if the metadata has no such address."""
    broker = image.brokers.get(broker_id)
    endpoints = () if broker is None else broker.endpoints
    return next(
        (Peer(broker_id, endpoint.host, endpoint.port) for endpoint in endpoints if endpoint.name == listener_name),
        None,
    )


class BrokerView:
    """All registered brokers at one listener, according to one image."""

    __slots__ = ("_brokers", "all_well", "listener_name", "nodes")

    def __init__(self, brokers: Mapping[int, BrokerImage], listener_name: str) -> None:
        self._brokers = brokers
        self.listener_name = listener_name
        #: Broker id -> address, for registered brokers with this listener.
        self.nodes = {
            broker_id: BrokerNodeAddress(broker_id, endpoint.host, endpoint.port, broker.rack, broker.fenced)
            for broker_id, broker in sorted(brokers.items())
            for endpoint in broker.endpoints
            if endpoint.name == listener_name
        }
        #: True if every broker has this listener and none is fenced.
        self.all_well = len(self.nodes) == len(brokers) and not any(node.fenced for node in self.nodes.values())

    def is_of(self, image: Image, listener_name: str) -> bool:
        """Whether the view is still current, for this listener."""
        return self._brokers is image.brokers and self.listener_name == listener_name

    @property
    def alive(self) -> list[BrokerNodeAddress]:
        """The brokers that clients may use."""
        return [node for node in self.nodes.values() if not node.fenced]

    def alive_node(self, broker_id: int) -> BrokerNodeAddress | None:
        """The broker, unless it is fenced or does not have this listener."""
        broker = self.nodes.get(broker_id)
        return None if broker is None or broker.fenced else broker

    def any_alive_id(self, rng: Rng) -> int:
        """The id of a random unfenced broker, whatever its listeners; -1 if there is none."""
        alive = [broker_id for broker_id, broker in self._brokers.items() if not broker.fenced]
        return alive[rng.randrange(len(alive))] if alive else -1

    def leader(self, partition: PartitionImage, *, names_listener: bool) -> tuple[int, ErrorCode]:
        """(leader id or -1, error code). `names_listener`: the client knows LISTENER_NOT_FOUND."""
        if partition.leader in self.nodes:
            return partition.leader, ErrorCode.NONE
        if names_listener and partition.leader in self._brokers:
            return NO_LEADER, ErrorCode.LISTENER_NOT_FOUND
        return NO_LEADER, ErrorCode.LEADER_NOT_AVAILABLE

    def offline(self, image: Image, partition: PartitionImage) -> list[int]:
        """The replicas that are not available now."""
        if self.all_well and len(partition.replicas) == 1 and partition.leader >= 0:
            return []
        return [replica for replica in partition.replicas if self._is_offline(image, partition, replica)]

    def _is_offline(self, image: Image, partition: PartitionImage, replica: int) -> bool:
        return self.alive_node(replica) is None or is_offline(image, partition, replica)
