"""BrokerHeartbeat (key 63): a broker is alive, how far it has read the metadata, and the state it requests (KIP-631).

It can request to be fenced or unfenced, or to shut down.

Version 1: failed directories (KIP-858); 2 cordoned directories (KIP-1066).
"""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import Boolean, Int16, Int32, Int64, Uuid


@wire(versions="0-2", flexible="0+")
class BrokerHeartbeatRequest:
    broker_id: Int32 = on("0+", default=0)
    broker_epoch: Int64 = on("0+", default=-1)
    current_metadata_offset: Int64 = on("0+", default=0)
    want_fence: Boolean = on("0+", default=False)
    want_shut_down: Boolean = on("0+", default=False)
    offline_log_dirs: list[Uuid] = on("1+", factory=list, tag=0)
    cordoned_log_dirs: list[Uuid] | None = on("2+", default=None, tag=1)


@wire(versions="0-2", flexible="0+")
class BrokerHeartbeatResponse:
    throttle_time_ms: Int32 = on("0+", default=0)
    error_code: Int16 = on("0+", default=0)
    is_caught_up: Boolean = on("0+", default=False)
    is_fenced: Boolean = on("0+", default=True)
    should_shut_down: Boolean = on("0+", default=False)
