"""AlterClientQuotas (key 49): set and remove the quotas of users, client ids and addresses (KIP-546)."""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import Boolean, Float64, Int16, Int32, String


@wire
class EntityData:
    entity_type: String = on("0+", default="")
    entity_name: String | None = on("0+", default="")


@wire
class OpData:
    key: String = on("0+", default="")
    value: Float64 = on("0+", default=0.0)
    remove: Boolean = on("0+", default=False)


@wire
class RequestEntryData:
    entity: list[EntityData] = on("0+", factory=list)
    ops: list[OpData] = on("0+", factory=list)


@wire(versions="0-1", flexible="1+")
class AlterClientQuotasRequest:
    entries: list[RequestEntryData] = on("0+", factory=list)
    validate_only: Boolean = on("0+", default=False)


@wire
class ResponseEntryData:
    error_code: Int16 = on("0+", default=0)
    error_message: String | None = on("0+", default="")
    entity: list[EntityData] = on("0+", factory=list)


@wire(versions="0-1", flexible="1+")
class AlterClientQuotasResponse:
    throttle_time_ms: Int32 = on("0+", default=0)
    entries: list[ResponseEntryData] = on("0+", factory=list)
