"""AlterConfigs (key 33): replace all settings of resources. Superseded by IncrementalAlterConfigs."""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import Boolean, Int8, Int16, Int32, String


@wire
class AlterableConfig:
    name: String = on("0+", default="")
    value: String | None = on("0+", default="")


@wire
class AlterConfigsResource:
    resource_type: Int8 = on("0+", default=0)
    resource_name: String = on("0+", default="")
    configs: list[AlterableConfig] = on("0+", factory=list)


@wire(versions="0-2", flexible="2+")
class AlterConfigsRequest:
    resources: list[AlterConfigsResource] = on("0+", factory=list)
    validate_only: Boolean = on("0+", default=False)


@wire
class AlterConfigsResourceResponse:
    error_code: Int16 = on("0+", default=0)
    error_message: String | None = on("0+", default="")
    resource_type: Int8 = on("0+", default=0)
    resource_name: String = on("0+", default="")


@wire(versions="0-2", flexible="2+")
class AlterConfigsResponse:
    throttle_time_ms: Int32 = on("0+", default=0)
    responses: list[AlterConfigsResourceResponse] = on("0+", factory=list)
