"""ControllerRegistration (key 70): a controller registers its endpoints and features with the active one (KIP-919)."""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import NO_UUID, Boolean, Int16, Int32, String, Uint16, Uuid


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


@wire(versions="0", flexible="0+")
class ControllerRegistrationRequest:
    controller_id: Int32 = on("0+", default=0)
    incarnation_id: Uuid = on("0+", default=NO_UUID)
    zk_migration_ready: Boolean = on("0+", default=False)
    listeners: list[Listener] = on("0+", factory=list)
    features: list[Feature] = on("0+", factory=list)


@wire(versions="0", flexible="0+")
class ControllerRegistrationResponse:
    throttle_time_ms: Int32 = on("0+", default=0)
    error_code: Int16 = on("0+", default=0)
    error_message: String | None = on("0+", default="")
