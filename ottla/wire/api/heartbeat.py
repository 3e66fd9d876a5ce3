"""Heartbeat (key 12): a member of a classic group is alive.

Version 3: static members (KIP-345).
"""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import Int16, Int32, String


@wire(versions="0-4", flexible="4+")
class HeartbeatRequest:
    group_id: String = on("0+", default="")
    generation_id: Int32 = on("0+", default=0)
    member_id: String = on("0+", default="")
    group_instance_id: String | None = on("3+", default=None)


@wire(versions="0-4", flexible="4+")
class HeartbeatResponse:
    throttle_time_ms: Int32 = on("1+", default=0, ignorable=True)
    error_code: Int16 = on("0+", default=0)
