"""PushTelemetry (key 72): a client's metrics, as OTLP (KIP-714)."""

from __future__ import annotations

from ottla.wire.schema import on, wire
from ottla.wire.type import NO_UUID, Boolean, Bytes, Int8, Int16, Int32, Uuid


@wire(versions="0", flexible="0+")
class PushTelemetryRequest:
    client_instance_id: Uuid = on("0+", default=NO_UUID)
    subscription_id: Int32 = on("0+", default=0)
    terminating: Boolean = on("0+", default=False)
    compression_type: Int8 = on("0+", default=0)
    metrics: Bytes = on("0+", default=b"")


@wire(versions="0", flexible="0+")
class PushTelemetryResponse:
    throttle_time_ms: Int32 = on("0+", default=0)
    error_code: Int16 = on("0+", default=0)
