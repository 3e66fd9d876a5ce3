"""UpdateRaftVoter (key 82): a voter reports its endpoints and kraft.version range to the leader (KIP-853)."""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import NO_UUID, Int16, Int32, String, Uint16, Uuid


@wire
class Listener:
    name: String = on("0+", default="")
    host: String = on("0+", default="")
    port: Uint16 = on("0+", default=0)


@wire
class KRaftVersionFeature:
    min_supported_version: Int16 = on("0+", default=0)
    max_supported_version: Int16 = on("0+", default=0)


@wire(versions="0", flexible="0+")
class UpdateRaftVoterRequest:
    cluster_id: String | None = on("0+", default="")
    current_leader_epoch: Int32 = on("0+", default=0)
    voter_id: Int32 = on("0+", default=0)
    voter_directory_id: Uuid = on("0+", default=NO_UUID)
    listeners: list[Listener] = on("0+", factory=list)
    kraft_version_feature: KRaftVersionFeature = on("0+", factory=KRaftVersionFeature)


@wire
class CurrentLeader:
    leader_id: Int32 = on("0+", default=-1)
    leader_epoch: Int32 = on("0+", default=-1)
    host: String = on("0+", default="")
    port: Int32 = on("0+", default=0)


@wire(versions="0", flexible="0+")
class UpdateRaftVoterResponse:
    throttle_time_ms: Int32 = on("0+", default=0)
    error_code: Int16 = on("0+", default=0)
    current_leader: CurrentLeader = on("0+", factory=CurrentLeader, tag=0)
