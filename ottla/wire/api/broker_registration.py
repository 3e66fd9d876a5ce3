"""BrokerRegistration (key 62): a broker registers its incarnation with the controller (KIP-631).

Version 1: migration from ZooKeeper; 2 log directories (KIP-858); 3 the epoch of the previous incarnation, after a clean
shutdown (KIP-966); 4 features that start at 0 (KIP-1022).
"""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import NO_UUID, Boolean, Int16, Int32, Int64, String, Uint16, Uuid


@wire
class Listener:
    name: String = on("0+", default="")
    host: String = on("0+", default="")
    port: Uint16 = on("0+", default=0)
    security_protocol: Int16 = on("0+", default=0)


@wire
class Feature:
    name: String = on("0+", default="")
    min_supported_version: Int16 = on("0+", default=0)
    max_supported_version: Int16 = on("0+", default=0)


@wire(versions="0-4", flexible="0+")
class BrokerRegistrationRequest:
    broker_id: Int32 = on("0+", default=0)
    cluster_id: String = on("0+", default="")
    incarnation_id: Uuid = on("0+", default=NO_UUID)
    listeners: list[Listener] = on("0+", factory=list)
    features: list[Feature] = on("0+", factory=list)
    rack: String | None = on("0+", default="")
    is_migrating_zk_broker: Boolean = on("1+", default=False)
    log_dirs: list[Uuid] = on("2+", factory=list, ignorable=True)
    previous_broker_epoch: Int64 = on("3+", default=-1, ignorable=True)


@wire(versions="0-4", flexible="0+")
class BrokerRegistrationResponse:
    throttle_time_ms: Int32 = on("0+", default=0)
    error_code: Int16 = on("0+", default=0)
    broker_epoch: Int64 = on("0+", default=-1)
