"""DescribeClientQuotas (key 48): the quotas of users, client ids and addresses (KIP-546)."""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import Boolean, Float64, Int8, Int16, Int32, String


@wire
class ComponentData:
    entity_type: String = on("0+", default="")
    match_type: Int8 = on("0+", default=0)
    match: String | None = on("0+", default="")


@wire(versions="0-1", flexible="1+")
class DescribeClientQuotasRequest:
    components: list[ComponentData] = on("0+", factory=list)
    strict: Boolean = on("0+", default=False)


@wire
class EntityData:
    entity_type: String = on("0+", default="")
    entity_name: String | None = on("0+", default="")


@wire
class ValueData:
    key: String = on("0+", default="")
    value: Float64 = on("0+", default=0.0)


@wire
class EntryData:
    entity: list[EntityData] = on("0+", factory=list)
    values: list[ValueData] = on("0+", factory=list)


@wire(versions="0-1", flexible="1+")
class DescribeClientQuotasResponse:
    throttle_time_ms: Int32 = on("0+", default=0)
    error_code: Int16 = on("0+", default=0)
    error_message: String | None = on("0+", default="")
    entries: list[EntryData] | None = on("0+", factory=list)
