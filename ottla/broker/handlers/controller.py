"""What the controller decides: topics, partitions, settings, features, elections, reassignments.

On a cluster a broker wraps these in Envelope and sends them to the active controller; this node is its own controller,
so they go to it by a call. A change is in the metadata log, synced, before the response leaves. Versions and error
codes are `ottla.cluster`'s business.
"""

from __future__ import annotations

from typing import Any

from ottla.broker.dispatch import Call, handles
from ottla.wire.api import ApiKey


@handles(ApiKey.CREATE_TOPICS)
@handles(ApiKey.DELETE_TOPICS)
@handles(ApiKey.CREATE_PARTITIONS)
@handles(ApiKey.ALTER_CONFIGS)
@handles(ApiKey.ELECT_LEADERS)
@handles(ApiKey.ALTER_PARTITION_REASSIGNMENTS)
@handles(ApiKey.LIST_PARTITION_REASSIGNMENTS)
@handles(ApiKey.UPDATE_FEATURES)
def decide(call: Call, request: Any) -> Any:
    """Let the controller decide, write what it decided, answer."""
    return call.node.quorum.handle(request, call.version)
