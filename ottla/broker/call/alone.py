"""What one broker serves and several do not yet: refused at once, where it would wait for another broker forever."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.kernel.error import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.broker.node import BrokerNode


def check_alone(node: BrokerNode, what: str) -> None:
    """UNSUPPORTED_VERSION when the cluster has another broker: `what` needs requests that brokers cannot make yet."""
    if len(node.image.brokers) > 1:
        why = f"{what} are not served yet in a cluster of several brokers"
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, why)
