"""Checks new TLS stores before the controller is asked: a change that this node could not load is refused (KIP-226).

As in Apache Kafka, the broker whose configs change does the check (ConfigAdminManager.preprocess), and the error is
INVALID_REQUEST (KAFKA-13609).
"""

from __future__ import annotations

from collections.abc import Mapping

from ottla.broker.call.handler import Call
from ottla.kernel.error import ErrorCode, KafkaError, OttlaError
from ottla.metadata.image import BROKER

_OF_LISTENERS, _OF_TLS = "listener.name.", ".ssl."


def store_error(call: Call, kind: int, name: str, changes: Mapping[str, str | None]) -> KafkaError | None:
    """Why these config changes of a resource must be refused, or None. A value of None deletes the config.

    Changes that do not touch this node's TLS stores are never refused here.
    """
    node = call.node
    security = node.security
    if security is None or kind != BROKER or name != str(node.node_id):
        return None
    if not any(key.startswith(_OF_LISTENERS) and _OF_TLS in key for key in changes):
        return None
    before = node.image.config(BROKER, name)
    after = {each: text for each, text in {**before, **changes}.items() if text is not None}
    try:
        security.check(node.with_dynamic(after, node.image.config(BROKER, "")))
    except OttlaError as error:
        return KafkaError(
            ErrorCode.INVALID_REQUEST, f"Validation of dynamic config update of SSLFactory failed: {error}"
        )
    return None
