"""UnregisterController (key 94): remove a controller's registration (4.4)."""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import Int16, Int32, String


@wire(versions="0", flexible="0+")
class UnregisterControllerRequest:
    controller_id: Int32 = on("0+", default=0)


@wire(versions="0", flexible="0+")
class UnregisterControllerResponse:
    throttle_time_ms: Int32 = on("0+", default=0)
    error_code: Int16 = on("0+", default=0)
    error_message: String | None = on("0+", default="")
