"""The `quorum-state` file with a voter's election state. Kafka stores it as one line of JSON with `data_version`.

Version 0 belongs to kraft.version 0 and has the voters; version 1 has the directory voted for (KIP-853).
"""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import NO_UUID, Int32, Int64, String, Uuid


@wire
class Voter:
    voter_id: Int32 = on("0", default=0)


@wire(versions="0-1", flexible="0+")
class QuorumStateData:
    cluster_id: String = on("0", default="")
    leader_id: Int32 = on("0+", default=-1)
    leader_epoch: Int32 = on("0+", default=-1)
    voted_id: Int32 = on("0+", default=-1)
    voted_directory_id: Uuid = on("1+", default=NO_UUID)
    applied_offset: Int64 = on("0", default=0)
    current_voters: list[Voter] | None = on("0", factory=list)
