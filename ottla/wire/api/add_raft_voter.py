"""AddRaftVoter (key 80): a controller joins the voters (KIP-853).

Version 1: the response is sent when the change is appended, or when it is committed (KIP-1186).
"""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import NO_UUID, Boolean, Int16, Int32, String, Uint16, Uuid


@wire
class Listener:
    name: String = on("0+", default="")
    host: String = on("0+", default="")
    port: Uint16 = on("0+", default=0)


@wire(versions="0-1", flexible="0+")
class AddRaftVoterRequest:
    cluster_id: String | None = on("0+", default="")
    timeout_ms: Int32 = on("0+", default=0)
    voter_id: Int32 = on("0+", default=0)
    voter_directory_id: Uuid = on("0+", default=NO_UUID)
    listeners: list[Listener] = on("0+", factory=list)
    ack_when_committed: Boolean = on("1+", default=True)


@wire(versions="0-1", flexible="0+")
class AddRaftVoterResponse:
    throttle_time_ms: Int32 = on("0+", default=0)
    error_code: Int16 = on("0+", default=0)
    error_message: String | None = on("0+", default="", ignorable=True)
