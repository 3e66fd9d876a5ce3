"""The quorum's own requests, on controllers' listeners: Fetch (key 1) and FetchSnapshot (key 59) of the metadata log.

The machine of the quorum answers them (`ottla.raft`); a fetch that finds nothing new waits there.

KIPs: 595 Fetch, 630 FetchSnapshot.
"""

from __future__ import annotations

from typing import Any

from ottla.broker.call.handler import Call, handles
from ottla.broker.call.reply import Later
from ottla.wire.api import CONTROLLER, ApiKey


@handles(ApiKey.FETCH, on=CONTROLLER)
@handles(ApiKey.FETCH_SNAPSHOT, on=CONTROLLER)
def receive(call: Call, request: Any) -> Later:
    """Tell the machine; it answers now or later."""
    return call.node.quorum.raft.network.receive(call, request)
