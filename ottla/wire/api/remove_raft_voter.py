"""RemoveRaftVoter (key 81): a controller leaves the voters (KIP-853)."""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import NO_UUID, Int16, Int32, String, Uuid


@wire(versions="0", flexible="0+")
class RemoveRaftVoterRequest:
    cluster_id: String | None = on("0+", default="")
    voter_id: Int32 = on("0+", default=0)
    voter_directory_id: Uuid = on("0+", default=NO_UUID)


@wire(versions="0", flexible="0+")
class RemoveRaftVoterResponse:
    throttle_time_ms: Int32 = on("0+", default=0)
    error_code: Int16 = on("0+", default=0)
    error_message: String | None = on("0+", default="", ignorable=True)
