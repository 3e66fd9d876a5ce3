"""ListConfigResources (key 74): the resources that have settings (KIP-1142).

Version 0 lists client metrics only (KIP-714).
"""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import Int8, Int16, Int32, String


@wire(versions="0-1", flexible="0+")
class ListConfigResourcesRequest:
    resource_types: list[Int8] = on("1+", factory=list)


@wire
class ConfigResource:
    resource_name: String = on("0+", default="")
    resource_type: Int8 = on("1+", default=16, ignorable=True)


@wire(versions="0-1", flexible="0+")
class ListConfigResourcesResponse:
    throttle_time_ms: Int32 = on("0+", default=0)
    error_code: Int16 = on("0+", default=0)
    config_resources: list[ConfigResource] = on("0+", factory=list)
